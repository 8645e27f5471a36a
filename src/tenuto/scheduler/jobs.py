"""Jobs as the scheduler keeps them: a task, its directory, its dependencies, and its owners.
A job decides nothing: it holds data, and passes on what happens to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tenuto.clock import Clock
from tenuto.errors import NoResult, WorkspaceError
from tenuto.launchers.commands import command_of, environment_of
from tenuto.launchers.instructions import CarbonPlan, Command, Limits
from tenuto.launchers.outputs import TaskOutput, way_to
from tenuto.launchers.protocols import Launcher, Process, StartOrder
from tenuto.launchers.results import decoded, readable
from tenuto.lifecycle.base_job import CounterChange
from tenuto.lifecycle.events import CarbonMetricsData
from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing, TransientMode
from tenuto.light import late
from tenuto.scheduler.decisions import NO_RETRY, NO_RULES, NO_TRIES, Allowance, RetryLimits, worded
from tenuto.scheduler.entries import Entry, JobDependency
from tenuto.scheduler.owners import Owner
from tenuto.scheduler.tokens import TokenDependency, needs_of
from tenuto.scheduler.workers import WatchedOutput, call_safely, takes
from tenuto.tasks.arguments import function
from tenuto.tasks.base import ConfigBase
from tenuto.tasks.graph import folders
from tenuto.tasks.html import Html, dot, table
from tenuto.tasks.identity import identity
from tenuto.tasks.live import seal
from tenuto.tasks.schema import schema_of
from tenuto.tasks.serialization import dumps, job_document
from tenuto.tasks.tags import joined, tag_words
from tenuto.tasks.task import made_meanwhile
from tenuto.workspace.carbon import job_total
from tenuto.workspace.flags import RESULT_NOT_KEPT
from tenuto.workspace.job_directory import read_result, rotate_logs, unpacked
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Durability, Marker
from tenuto.workspace.ports import Files, LockHandle
from tenuto.workspace.records import LaunchRecord, StopRecord

if TYPE_CHECKING:
    from tenuto.launchers import requirements
    from tenuto.launchers.requirements import Alternative
    from tenuto.scheduler.loop import PendingAnswer
    from tenuto.scheduler.scheduler import Scheduler
else:
    requirements = late("tenuto.launchers.requirements")


_COLOURS = {
    JobState.DONE: "#2f9e58",
    JobState.ERROR: "#d6453d",
    JobState.RUNNING: "#3b82d6",
    JobState.SCHEDULED: "#3b82d6",
}
_GREY = "#8a8a8a"


def job_html(job: Job) -> str:
    """A job as a small table."""
    standing = job.standing
    rows: list[tuple[object, object]] = [("state", state_html(standing.state, standing.reason))]
    if standing.message:
        rows.append(("why", standing.message))
    if job.tags:
        rows.append(("tags", tag_words(job.tags)))
    if standing.starttime is not None and standing.endtime is not None:
        rows.append(("took", f"{(standing.endtime - standing.starttime).total_seconds():.1f} s"))
    if job.attempt > 1:
        rows.append(("attempt", job.attempt))
    if job.marker is not None and job.marker.reason is None and job.marker.result is not None:
        rows.append(("result", readable(job.marker.result)))
    rows.append(("directory", job.path))
    return str(table(f"{job.task_id} {job.job_id[:12]}", rows))


def state_html(state: JobState, reason: JobFailureStatus | None) -> Html:
    """Where a job stands, in a word."""
    return dot(_COLOURS.get(state, _GREY), f"{state.name} ({reason.name})" if reason else state.name)


_LARGEST_PARAMS = 4 << 20


class Reuse(Protocol):
    """Judges the evidence of a job, for the owner that asks for it now."""

    def is_valid(self, job: Job, marker: Marker) -> bool:
        """True if the result of a job that was found done can be reused, False if it is to be run again.

        Raises `DefaultChanged` for the result of other values than the task has.
        """
        ...

    def begins_anew(self, job: Job, launch: LaunchRecord, *, runs: bool) -> bool:
        """True if an attempt that is not done, or still `runs`, is followed by one in an empty directory.

        Raises `DefaultChanged` for an attempt at other values that runs, or could be gone on with.
        """
        ...

    def refuse_other(self, job: Job, known: Job) -> None:
        """Raises `DefaultChanged` if a job that is under way in this process has other values."""
        ...

    def other_values(self, job: Job, record: Mapping[str, Any]) -> str | None:
        """Why what another process made of a job since its submission is of other values; or None."""
        ...

    def dropped(self, job: Job) -> Iterable[Job]:
        """The done jobs whose removed files a job that is to run depends on, in the order they are to run."""
        ...

    def record(self, job: Job) -> Mapping[str, Any]:
        """What the result of an attempt that is about to begin will be made of."""
        ...


class Job(Entry):
    """An identity with a directory and a state.

    `task_id` and `job_id`, the identity, decide the directory in `layout`. `launcher` starts a runner, which
    runs `work` within `limits`, in `slots` of it, higher `priority` first. `dependencies` must be done first,
    `tokens` are held meanwhile, `retry` says when to try it again; with `once` the first attempt, however it
    ended, is the answer. `durability`: the files on the disk before it is done; `transient`: only for another
    job; `tags`: to find it by; `clock`: of its times; `carbon_plan`: how its energy is measured.
    """

    # A dictionary with more than 30 names is shared with no other job: 1.3 kB for each.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_final_state",
        "answered",
        "attempt",
        "carbon_plan",
        "completion_callbacks",
        "durability",
        "layout",
        "limits",
        "marker",
        "paths",
        "process",
        "retry",
        "scheduler",
        "slot_units",
        "stop",
        "tags",
        "tokens",
        "tries",
        "watched_outputs",
        "work",
    )

    reuse: Reuse | None = None
    """Asked when the job is found done; None: a done job is reused."""
    rerun_of: str | None = None
    """The nonce of the marker that was found, and is no answer: the job is run again all the same."""
    is_doubtful: bool = False
    """Whether it is run again is decided when its dependencies are done."""
    empties: bool = False
    """Its next attempt begins in an empty directory."""
    life: str | None = None
    """Names the life of its directory; see `LaunchRecord`."""
    is_planned: bool = False
    """It is only planned: its watchers are called when the plan is complete otherwise."""
    kept_record: Callable[[], Mapping[str, Any]] = dict
    """What the record of the next attempt says, without a `reuse`."""
    spent_stop: StopRecord | None = None
    """The request to end an attempt that was said to have failed before the job was submitted again."""
    uses: tuple[str, ...] = ()
    """The ids of the jobs whose outputs, handed over while they ran, it uses: it does not wait for them."""
    asked: str = ""
    """Its needs, as a requirement."""
    is_found: bool = False
    """It was done, or running, before this process asked for it: another one wrote its parameters."""

    def __init__(
        self,
        task_id: str,
        job_id: str,
        *,
        layout: Layout,
        launcher: Launcher,
        work: Work,
        clock: Clock,
        dependencies: Sequence[JobDependency] = (),
        tokens: Sequence[TokenDependency] = (),
        limits: Limits | None = None,
        slots: int = 1,
        retry: RetryLimits | None = None,
        once: bool = False,
        priority: int = 0,
        durability: Durability = Durability.MARKER,
        transient: TransientMode = TransientMode.NONE,
        tags: Mapping[str, Any] | None = None,
        carbon_plan: CarbonPlan | None = None,
    ) -> None:
        super().__init__(
            task_id,
            job_id,
            clock=clock,
            launcher=launcher,
            dependencies=dependencies,
            needs=needs_of(tokens, launcher.lock_path) if tokens or launcher.lock_path else (),
            slots=slots,
            priority=priority,
            transient=transient,
        )
        self.layout = layout
        self.paths = layout.job(task_id, job_id)
        self.work = work
        self.tokens = tuple(tokens)
        self.limits = limits_under(launcher, limits or launcher.limits or Limits())
        retry = retry or NO_RETRY
        self.retry = retry if retry.once is once else retry._replace(once=once)
        self.durability = durability
        self.tags: Mapping[str, Any] = tags or {}
        self.carbon_plan = carbon_plan
        self.watched_outputs: tuple[WatchedOutput, ...] = ()
        self.completion_callbacks: tuple[Callable[[Job], Any], ...] = ()
        self.scheduler: Scheduler | None = None
        self.process: Process | None = None
        self.slot_units: tuple[LockHandle, ...] = ()
        """Its share of the slots that processes share; its runner inherits them."""
        self.attempt = 0
        self.answered = 0
        """The last attempt whose failure was known when the job was submitted, or was tried again."""
        self.tries = NO_TRIES
        self.marker: Marker | None = None
        """The gist of the marker that ended the last attempt, when there is one."""
        self.stop: StopRecord | None = None
        """The request to end the attempt that runs, or is about to."""
        self._final_state: dict[PendingAnswer[JobState], None] | None = None
        """Answers that wait for it, in the order in which they were asked for."""

    @classmethod
    def of(
        cls,
        task: ConfigBase,
        workspace: Path | str,
        launcher: Launcher,
        *,
        name: str,
        key: str,
        after: Iterable[Job] = (),
        **options: Any,
    ) -> Job:
        """The job of a task for a scheduler of one's own; seals the task.

        `name` and `key`: its identity in the workspace, which the caller chooses. `after`: jobs that must be
        done first. `options`: as of `Job`, such as ``priority`` or ``once``.
        """
        seal(task)
        return cls(
            name,
            key,
            layout=Layout(str(Path(workspace).absolute())),
            launcher=launcher,
            work=TaskWork(task),
            clock=this_machine().clock,
            dependencies=[JobDependency(job) for job in after],
            **options,
        )

    @property
    def key(self) -> str:
        """The key of a job: its workspace and its identity."""
        return self.paths.directory

    @property
    def once(self) -> bool:
        """True if an attempt that may have begun is never followed by another."""
        return self.retry.once

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last attempt, where it had one."""
        return None if self.marker is None else self.marker.exit_code

    @property
    def retry_count(self) -> int:
        """How often the job was started again because it ran out of time."""
        return self.tries.retry_count

    @property
    def max_retries(self) -> int:
        """How often it may be."""
        return self.retry.max_retries if self.retry.resumable else 0

    @property
    def linked(self) -> tuple[str, ...]:
        """The ids of the jobs that it waits for, then of those whose outputs it uses."""
        return (*(dependency.origin.job_id for dependency in self.dependencies), *self.uses)

    # What a config may ask of its job (`tasks.ports.SubmittedJob`)

    @property
    def path(self) -> Path:
        """The job's directory; a job that was packed is put back into it."""
        self._unpack()
        return Path(self.paths.directory)

    @property
    def partials(self) -> Path:
        """Where partials keep their directories."""
        return Path(self.layout.partials)

    @property
    def stdout(self) -> Path:
        """What the job prints; made again, and empty, if the job is done and lost it since it was empty."""
        return self._log(self.paths.out)

    @property
    def stderr(self) -> Path:
        """What the job prints to standard error; made again as `stdout` is."""
        return self._log(self.paths.err)

    def _unpack(self) -> None:
        if self.state is JobState.DONE and self.scheduler is not None:
            with suppress(OSError, WorkspaceError):  # it cannot be written: then its files are not there
                unpacked(self.scheduler.machine, self.paths)

    def _log(self, path: str) -> Path:
        self._unpack()
        if self.state is JobState.DONE and self.scheduler is not None:
            with suppress(OSError):  # the job is another user's: then it is not there
                self.scheduler.machine.files.open_append(path).close()
        return Path(path)

    def found_params(self) -> bytes | None:
        """The stored parameters of a job that this process found, and did not start itself; else None."""
        if not self.is_found or self.scheduler is None:
            return None
        try:
            return self.scheduler.machine.files.read(self.paths.params, _LARGEST_PARAMS)
        except (OSError, WorkspaceError):
            return None  # they were removed: the job that needs them says so

    def let_go_of_slots(self) -> None:
        """Closes its shares of the slots that processes share; a runner that inherited them keeps them."""
        units, self.slot_units = self.slot_units, ()
        for unit in units:
            unit.close()

    def wait(self, timeout_s: float | None = None) -> JobState:
        """Blocks until the job reached a final state; `TimeoutError` if that takes over `timeout_s`."""
        if self.scheduler is None:
            return self.state
        return self.scheduler.wait_for_job(self, timeout_s)

    async def finished(self) -> JobState:
        """The final state of the job, once it has one; to be awaited on any event loop.

        Like `wait`, without a thread. A call that is cancelled leaves the job alone. Raises `SchedulerClosed`
        if the scheduler is closed first: the job continues, and another scheduler finds it.
        """
        if self.scheduler is None:
            return self.state
        return await self.scheduler.finished(self)

    def watch_output(self, method: Callable[..., Any], callback: Callable[..., Any]) -> None:
        """Calls back with each output that the task registers through `method`, also those before.

        A callback with a parameter `key` gets the `OutputKey`, by which to know an output that it has had
        before: after a restart all outputs are handed over again.
        """
        function(method, "watch_output(method)")
        function(callback, "watch_output(callback)")
        self.watched_outputs += (WatchedOutput(method, callback),)
        if self.scheduler is not None and not self.is_planned:
            self.scheduler.follow_outputs(self)

    def on_completed(self, callback: Callable[..., Any]) -> None:
        """Calls back once the job is done, where the same experiment is open as now.

        With the job, unless the callback takes no argument.
        """
        function(callback, "on_completed()")
        context, takes_job = copy_context(), takes(callback, 1)

        def call(job: Job) -> None:
            context.copy().run(callback, *([job] if takes_job else []))

        self.completion_callbacks += (call,)
        if self.scheduler is not None and not self.is_planned:
            self.scheduler.follow_completion(self)

    # What the scheduler asks of a job

    def merge(self, other: Job) -> None:
        """Takes over what `other`, a second submission of the same identity, asks for."""
        self.transient = self.transient.merge(other.transient)
        self.tags = joined(self.tags, other.tags) if self.owners else other.tags
        self.retry, self.priority = self.retry.merged(other.retry), max(self.priority, other.priority)
        if self.is_at_rest:  # otherwise it has begun to ask
            self.tokens, self.needs = other.tokens, other.needs
            # If it is run again, then as its present owner wants it: the launcher of an experiment that was
            # left is closed, and would start processes that no launcher ends.
            self.launcher, self.limits, self.work = other.launcher, other.limits, other.work
            self.slots, self.asked = other.slots, other.asked
            self.durability, self.carbon_plan = other.durability, other.carbon_plan
            self.priority = other.priority
            if self.once is not other.once:
                self.retry = other.retry
        self.watched_outputs += other.watched_outputs
        self.completion_callbacks += other.completion_callbacks

    def record(self) -> Mapping[str, Any]:
        """What the result of the attempt that is about to begin will be made of."""
        return self.kept_record() if self.reuse is None else self.reuse.record(self)

    def grow(self) -> None:
        """Have the next attempt ask for what the rules of the job say after so many tries."""
        if self.retry.rules == NO_RULES:
            return
        needs = self.retry.needs_of(self.tries)
        if self.launcher.external and any(need is not None for need in needs):
            needs = held(self.launcher, needs)
            self.launcher = self.launcher.adapted(_asked(needs))
        if needs.memory_bytes is not None:
            self.limits = self.limits._replace(memory_bytes=needs.memory_bytes)
        if needs.duration_s is not None:
            self.limits = self.limits._replace(walltime_s=needs.duration_s)

    def result(self) -> Any:
        """What the task returned, once it is done; waits for that."""
        state, name = self.wait(), f"{self.task_id} {self.job_id[:12]}"
        if state is not JobState.DONE or self.marker is None or self.scheduler is None:
            raise NoResult(f"{name} has no result: it is {self._cause(state)}")
        if RESULT_NOT_KEPT in self.marker.flags:
            raise NoResult(f"{name} is done, but has no result: {self.marker.message}")
        try:
            raw = read_result(self.scheduler.machine.files, self.paths, self.marker)
            try:
                return decoded(raw, self.paths.directory)
            except FileNotFoundError:  # a part of it is a file, and was packed
                self._unpack()
                return decoded(raw, self.paths.directory)
        except (OSError, ValueError) as error:
            raise NoResult(f"the result of {name} cannot be read: {error}") from error

    def _cause(self, state: JobState) -> str:
        """A state with what led to it, and the command that says more."""
        reason, message = self.standing.reason, self.standing.message
        words = f"{state.name}{f' ({reason.name})' if reason else ''}{f': {message}' if message else ''}"
        return f"{words}; see `tenuto why {self.job_id[:12]}`" if state is JobState.ERROR else words

    def carbon(self) -> CarbonMetricsData | None:
        """What the job used in all its attempts, as far as that was measured; None if nothing was."""
        return job_total(self.scheduler.machine.files, self.paths) if self.scheduler is not None else None

    def done_handler(self, state: JobState) -> str | None:
        """Calls the callbacks of a job whose `state` is DONE, off the loop; says what the first raised."""
        problem: str | None = None
        while state is JobState.DONE and self.completion_callbacks:
            # Taken before it is called: a caller that asks meanwhile is called once, too.
            callback, *others = self.completion_callbacks
            self.completion_callbacks = tuple(others)
            raised = call_safely(lambda: callback(self))  # noqa: B023  called at once
            if raised is not None and problem is None:
                problem = f"a callback for the end of {self.task_id} raised {worded(raised)}"
        return problem

    async def aio_run(self, order: StartOrder) -> Process:
        """Starts the runner of the attempt that an `order` describes; raises as `Launcher.start`."""
        process = await self.launcher.start(order)
        self.attach(process)
        return process

    def attach(self, process: Process | None) -> None:
        """Takes the process of the current attempt, and lets go of the one before."""
        if self.process is not None:
            self.process.close()
        self.process = process

    def rotate_logs(self, files: Files) -> None:
        """Keeps the log files of the attempt before."""
        rotate_logs(files, self.paths)

    def __repr__(self) -> str:
        return f"<Job {self.task_id} {self.job_id[:12]} {self.state.name}>"

    def _repr_html_(self) -> str:
        """The job in a notebook."""
        return job_html(self)

    def _reset_final_state(self) -> None:
        self.marker = None
        self.stop = None

    def _changed(self, before: Standing, now: datetime, attempt: int | None) -> None:
        if self.scheduler is not None:
            self.scheduler.job_changed(self, before, now, attempt)

    def _explained(self, now: datetime) -> None:
        if self.scheduler is not None:
            self.scheduler.job_explained(self, now)

    def _count_for(self, owner: Owner, change: CounterChange) -> None:
        if self.scheduler is not None:
            self.scheduler.counts(owner).add(change)


def _asked(needs: Allowance) -> Alternative:
    return requirements.Alternative(duration_s=needs.duration_s, memory_bytes=needs.memory_bytes)


def limits_under(launcher: Launcher, limits: Limits) -> Limits:
    """Limits; where they leave something open, what the launcher asks of its cluster for each job."""
    asked = launcher.limits if launcher.external else None
    if asked is None:
        return limits
    return limits._replace(
        walltime_s=asked.walltime_s if limits.walltime_s is None else limits.walltime_s,
        memory_bytes=asked.memory_bytes if limits.memory_bytes is None else limits.memory_bytes,
    )


def held(launcher: Launcher, needs: Allowance) -> Allowance:
    """Needs that grew, held to what a launcher can give at most, if it knows that."""
    hold: Callable[[Alternative], Alternative] | None = getattr(launcher, "held", None)
    if hold is None or all(need is None for need in needs):
        return needs
    most = hold(_asked(needs))
    return Allowance(most.memory_bytes, most.duration_s)


# What a job runs: the files its runner reads, made when the job starts and not before.


class Work(Protocol):
    """The payload of a job, as far as the scheduler cares."""

    environment: Mapping[str, str]

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        """The content of ``params.json``."""
        ...

    def command(self) -> Command | None:
        """The program to run; None for a Python task."""
        ...

    def output(self, output: TaskOutput, method: Callable[..., Any]) -> Any:
        """What an output stands for, made by the method that is watched; None if another was meant."""
        ...


class TaskWork:
    """A sealed task."""

    def __init__(self, task: Any, environment: Mapping[str, str] | None = None) -> None:
        self.task = task
        own = environment_of(task)
        self.environment: Mapping[str, str] = {**(environment or {}), **own} if own else environment or {}

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        logs = paths.out, paths.err
        document = job_document(self.task, paths.directory, layout.partials, sys.path, logs)
        return dumps(document)

    def command(self) -> Command | None:
        return command_of(self.task)

    @property
    def keeps_logs(self) -> bool:
        """Whether a generated path is a log of the job: a dependent opens it, also if nothing was printed."""
        schemas = (schema_of(type(config)) for config, _ in folders(self.task))
        return any(one.stream is not None for schema in schemas for one in schema.generators.values())

    def output(self, output: TaskOutput, method: Callable[..., Any]) -> Any:
        config = self.task
        for step in output.config:
            config = getattr(config, str(step)) if isinstance(config, ConfigBase) else config[step]
        if not self._is_meant(getattr(method, "__self__", None), config) or method.__name__ != output.method:
            return None
        return method(made_meanwhile(self.task), *output.arguments, **output.named)

    def _is_meant(self, watched: Any, config: Any) -> bool:
        """True for a config of this task, and for the equal one of a copy that became the same job."""
        if watched is config:
            return True
        is_copy = isinstance(watched, ConfigBase) and way_to(watched, self.task) is None
        return (
            is_copy
            and schema_of(type(watched)) is schema_of(type(config))
            and identity(watched) == identity(config)
        )
