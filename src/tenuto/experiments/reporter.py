"""What a person is told of an experiment: by the reporter of a command, or by sentences on standard error.
Decides nothing. A script that runs by itself has no reporter, and prints only what must be said.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from tenuto.experiments.run import Run
from tenuto.experiments.run_record import RunState
from tenuto.jobs.text import counted
from tenuto.lifecycle.events import Event
from tenuto.lifecycle.states import JobState

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
        """An experiment that runs nothing was left: `xp.plan` or `xp.jobs` says what it would have run."""
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


def failure_text(run: Run) -> str:
    """What failed, for the last line of a traceback."""
    failed = run.failed_jobs()
    first = failed[0]
    reason = first.failure_status.name if first.failure_status else "FAILED"
    jobs = counted(len(run.jobs), "job")
    text = f"{len(failed)} of {jobs} failed; the first: {first.task_id} ({reason})"
    if first.standing.message:
        text += f": {printable(first.standing.message)}"
    return f"{text}\nits output: {first.stderr}"


def say_outcome(name: str, workspace: str, run: Run) -> None:
    """Say what was done in a run, if a person reads it."""
    if run.jobs and is_at_terminal():
        done = sum(job.state is JobState.DONE for job in run.jobs.values())
        reused = len(run.reused)
        place = os.path.relpath(workspace)
        unfinished = f", {run.unfinishedJobs} not finished" if run.unfinishedJobs else ""
        say(
            f"{name}: {counted(len(run.jobs), 'job')}, {reused} reused, {done - reused} ran, "
            f"{run.failedJobs} failed{unfinished}; to see results: tenuto results -w {shlex.quote(place)}"
        )


def say_what_goes_on(run: Run) -> None:
    """Say which jobs of a run that is left go on without it."""
    running = len(run.running_jobs())
    if running:
        goes = "goes" if running == 1 else "go"
        say(f"{counted(running, 'job')} {goes} on; run the script again to wait for them and to go on.")
