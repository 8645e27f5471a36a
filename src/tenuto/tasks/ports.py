"""What a config may ask of its surroundings: the submitter outside, the job inside.
Protocols and one context variable each; `experiments` sets the first, the runner the second.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from tenuto.errors import NoExperiment, NotInJob
from tenuto.light import NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class SubmittedJob(Protocol):
    """What a config needs to know of the job that it became."""

    @property
    def state(self) -> Any:
        """Where the job stands: a `JobState`."""
        ...

    @property
    def path(self) -> "Path":
        """The job's directory."""
        ...

    @property
    def partials(self) -> "Path":
        """Where the workspace keeps the directories shared by partials."""
        ...

    @property
    def stdout(self) -> "Path":
        """The file that holds what the job prints."""
        ...

    @property
    def stderr(self) -> "Path":
        """The file that holds what the job prints to standard error."""
        ...

    def found_params(self) -> bytes | None:
        """The stored parameters of a job that this process found, and did not start itself; else None."""
        ...

    def wait(self) -> Any:
        """Blocks until the job reached a final state, and returns that state."""
        ...

    def result(self) -> Any:
        """What the task returned, once it is done; waits for that."""
        ...

    def watch_output(self, method: Callable[..., Any], callback: Callable[..., Any]) -> None:
        """Calls back with each output that the job registers through `method`."""
        ...

    def on_completed(self, callback: Callable[..., Any]) -> None:
        """Calls back once the job is done."""
        ...


class SubmitOptions(NamedTuple):
    """How a task is to be run; None leaves the choice to the experiment."""

    launcher: Any = None
    workspace: Any = None
    run_mode: Any = None
    max_retries: int | None = None
    retry: str | None = None
    transient: Any = None
    requires: Any = None
    """A requirement or its text; None: as the task's class says."""
    priority: int | None = None
    """Higher ones start first; None: as the task's class says."""


class Submitter(Protocol):
    """Turns a sealed task into a job; an open experiment is one."""

    def submit(self, task: Any, submission: SubmitOptions) -> SubmittedJob:
        """Accepts the task and returns its job at once."""
        ...


class JobContext(Protocol):
    """What a task may ask of the job it runs in."""

    @property
    def attempt(self) -> int:
        """The number of this try, from 1."""
        ...

    @property
    def path(self) -> "Path":
        """The job's directory."""
        ...

    @property
    def cache_path(self) -> "Path":
        """Where the workspace keeps what `cache` stores."""
        ...

    def progress(self, value: float, level: int, desc: str | None) -> None:
        """Reports how far the job is, from 0 to 1, at a nesting level."""
        ...

    def log_metrics(self, values: Mapping[str, float], step: int | None) -> None:
        """Keeps a point of each name; None: the step after the last one of the name."""
        ...

    def remaining_time(self) -> float | None:
        """Seconds until the launcher stops the job; None without a limit."""
        ...

    def result(self, directory: str) -> Any:
        """What the task of another job, which has this directory, returned."""
        ...

    def register_task_output(
        self, method: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        """Hands an output to the watchers of `method`."""
        ...


current_submitter: ContextVar[Submitter | None] = ContextVar("tenuto_submitter", default=None)
open_submitters: list[Submitter] = []
"""The open experiments of this process, in the order they were opened: a thread has a context of its own, in
which none is current."""
current_job: ContextVar[JobContext | None] = ContextVar("tenuto_job", default=None)
jobs_of_process: list[JobContext] = []
"""The job that this process runs, for threads of the task: each has a context of its own, without a job."""


def submitter() -> Submitter:
    """The open experiment; in another thread than the one that opened it, the only one that is open."""
    found = current_submitter.get()
    if found is None and len(open_submitters) > 1:
        raise NoExperiment(
            f"{len(open_submitters)} experiments are open, and submit() in another thread cannot tell them "
            f"apart: run its function by contextvars.copy_context().run(...), copied where one is open"
        )
    if found is None:
        found = open_submitters[0] if open_submitters else None
    if found is None:
        raise NoExperiment(
            'submit() needs an open experiment: put it inside `with experiment("workdir", "name"):` '
            "(or use instance().execute() to run the task here)"
        )
    return found


def running_job() -> JobContext | None:
    """The job that this process runs, in whichever thread; None elsewhere."""
    found = current_job.get()
    return jobs_of_process[0] if found is None and jobs_of_process else found


def job_context() -> JobContext:
    """The job this process runs; an error elsewhere."""
    found = running_job()
    if found is None:
        raise NotInJob("this is only known inside a running job")
    return found
