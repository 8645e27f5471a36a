"""What a person is told of an experiment: by a reporter while it is open, in sentences at the end of a run.
Changes nothing. A script that runs by itself has no reporter, and prints warnings only.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from tenuto.errors import FailedExperiment, GracefulExperimentExit
from tenuto.experiments.run import Run
from tenuto.experiments.run_record import RunState
from tenuto.jobs.row import JOBS_FAILED
from tenuto.jobs.submission import FormerJobs
from tenuto.jobs.text import counted
from tenuto.jobs.validity import Validity
from tenuto.lifecycle.events import Event
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job
from tenuto.workspace.flags import RESULT_NOT_KEPT

if TYPE_CHECKING:
    from tenuto.experiments.experiment import experiment


class Reporter(Protocol):
    """Hears of every experiment that is opened while it is the current one."""

    def opened(self, xp: experiment) -> None:
        """An experiment was entered."""
        ...

    def hear(self, event: Event) -> None:
        """An event of an open experiment; called in a thread of the scheduler's."""
        ...

    def closed(self, xp: experiment, state: RunState) -> None:
        """An experiment was left; its jobs will not be told any more."""
        ...

    def planned(self, xp: experiment) -> None:
        """An experiment that runs nothing was left: `xp.plan` or `xp.jobs` says which jobs it would run."""
        ...


current_reporter: ContextVar[Reporter | None] = ContextVar("tenuto_reporter", default=None)


def say(message: str) -> None:
    """Tells the person at the terminal, if there still is one: to be gone is no reason to fail."""
    with contextlib.suppress(OSError, ValueError):
        print(f"tenuto: {printable(message)}", file=sys.stderr)  # noqa: T201


def is_at_terminal() -> bool:
    """True if a person reads what `say` prints."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:
        return False  # it was closed


def printable(text: str) -> str:
    """Foreign text for a terminal: what would steer it is spelled out."""
    return "".join(
        character if character.isprintable() or character == "\n" else ascii(character)[1:-1]
        for character in text
    )


# -- the outcome of a run ----------------------------------------------------------------------------

EXIT_INTERRUPTED = 5
"""The exit code of a script whose experiment was left on purpose."""


def failure_text(run: Run) -> str:
    """The failed jobs, for the last line of a traceback."""
    failed = run.failed_jobs()
    first = failed[0]
    reason = first.failure_status.name if first.failure_status else "FAILED"
    jobs = counted(len(run.jobs), "job")
    text = f"{len(failed)} of {jobs} failed; the first: {first.task_id} ({reason})"
    if first.state_record.message:
        text += f": {printable(first.state_record.message)}"
    if os.path.isdir(first.paths.directory):
        return f"{text}\nits output: {first.stderr}"
    place = shlex.quote(os.path.relpath(run.layout.root))  # it was packed
    return f"{text}\nits output: tenuto logs --err {first.job_id[:8]} -w {place}"


def say_outcome(name: str, workspace: str, run: Run) -> None:
    """Say how a run went, if a person reads it."""
    if run.jobs and is_at_terminal():
        done = sum(job.state is JobState.DONE for job in run.jobs.values())
        reused = len(run.reused)
        place = os.path.relpath(workspace)
        unfinished = f", {run.unfinishedJobs} not finished" if run.unfinishedJobs else ""
        say(
            f"{name}: {counted(len(run.jobs), 'job')}, {reused} reused, {done - reused} ran, "
            f"{run.failedJobs} failed{unfinished}; to see results: tenuto results -w {shlex.quote(place)}"
        )


def say_what_runs_on(run: Run) -> None:
    """Say which jobs of a run that is left continue without it."""
    running = len(run.running_jobs())
    if running:
        still, them = ("runs on", "it") if running == 1 else ("run on", "them")
        say(f"{counted(running, 'job')} {still}; run the script again to wait for {them} and to continue.")


def is_leaving(error: BaseException) -> bool:
    """Whether an experiment, or one inside it, was left on purpose."""
    interrupted = isinstance(error, SystemExit) and error.code == EXIT_INTERRUPTED
    return interrupted or isinstance(error, GracefulExperimentExit)


def outcome(run: Run, error: BaseException | None, *, fails_fast: bool) -> tuple[RunState, str | None]:
    """The last state of a run, and why it is not `DONE`; `error`: how the block ended of the script."""
    if error is not None:
        state = RunState.INTERRUPTED if is_leaving(error) else RunState.FAILED
        return state, f"{type(error).__name__}: {error}"
    if run.unfinishedJobs:
        left = f"{counted(run.unfinishedJobs, 'job')} not started"
        if run.failedJobs and fails_fast:
            return RunState.FAILED, f"stopped at the first failure; {left}"
        return RunState.INTERRUPTED, left
    message = JOBS_FAILED if run.failedJobs else run.counts.problem
    return RunState.FAILED if message else RunState.DONE, message or None


def raise_failure(run: Run) -> None:
    """Raise `FailedExperiment` if a job failed, or not all of the run could be recorded."""
    if run.failedJobs:
        raise FailedExperiment(failure_text(run))
    if run.counts.problem is not None:
        raise FailedExperiment(f"all jobs are done, but {printable(run.counts.problem)}")


def notes_of(run: Run, validity: Validity, former: FormerJobs) -> list[str]:
    """Sentences on code that changed, on results that could not be kept, and on tasks that were renamed."""
    jobs = list(run.jobs.values())
    notes = [str(changed) for changed in validity.changed_code(jobs, run.reused)]
    notes += validity.older_shared(jobs, run.reused)
    lost = [job for job in jobs if job.marker is not None and RESULT_NOT_KEPT in job.marker.flags]
    if lost:
        returned = "1 job returned" if len(lost) == 1 else f"{len(lost)} jobs returned"
        notes.append(f"{returned} what could not be kept: {lost[0].task_id}: {_message(lost[0])}")
    unmeasured = run.unmeasured() if any(job.carbon_plan is not None for job in jobs) else 0
    if unmeasured and run.carbon() is not None:
        they = "it was" if unmeasured == 1 else "they were"
        notes.append(f"energy: {unmeasured} of the jobs ended before {they} measured (carbon.after_s)")
    if former.found:
        one = next(iter(former.found))
        are = "1 job is" if len(former.found) == 1 else f"{len(former.found)} jobs are"
        notes.append(
            f"{are} kept under a former name, such as {one.task_id}; "
            f"`tenuto clean --renamed -w {run.layout.root}` moves them"
        )
    return notes


def _message(job: Job) -> str:
    return (job.marker.message if job.marker is not None else None) or "see its log"
