"""Bugs put into the schedulers of a soak on purpose: if they stayed unseen, it would prove nothing.
Changes only the process it is called in. None lets a job run twice at once: a scheduler alone cannot, since
each runner makes sure of the lock by itself. That the ledger would tell, the tests show.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any, NamedTuple

from tenuto.launchers.spawn import SpawnLauncher
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler import attempts
from tenuto.scheduler.decisions import Verdict
from tenuto.scheduler.intake import Intake
from tenuto.workspace import job_directory


class Bug(NamedTuple):
    stands_for: str
    shows: str
    """What the judge must say for the bug to count as found."""
    aim: str = ""
    """The kind of process whose death shows it."""


BUGS = {
    "failed is done": Bug("a job whose program failed counts as done", "did not fail"),
    "units not passed on": Bug(
        "the runner does not get the units that its job waited for", "units of a token"
    ),
    "done is forgotten": Bug("a marker is removed before anybody looked at it", "ran again"),
    "some write no marker": Bug("one attempt in five leaves no marker", "was repeated without need"),
    "runners die with their parent": Bug(
        "a runner ends with the warm parent that forked it", "was repeated without need", "warm parent"
    ),
    "launcher never closed": Bug("an experiment that ends leaves its warm parents", "descriptors grew"),
}


def plant(name: str) -> None:
    """Break this process."""
    _PLANTS[name]()


def _failed_is_done() -> None:
    module: Any = attempts
    after_attempt = module.after_attempt

    def hopeful(*arguments: Any) -> Verdict:
        verdict: Verdict = after_attempt(*arguments)
        return Verdict(JobState.DONE) if verdict.reason is JobFailureStatus.FAILED else verdict

    module.after_attempt = hopeful


def _units_not_passed_on() -> None:
    for launcher in (SpawnLauncher, WarmLauncher):
        _without_tokens(launcher)


def _without_tokens(launcher: Any) -> None:
    start = launcher.start
    launcher.start = lambda self, order: start(self, order._replace(tokens=()))


def _done_is_forgotten() -> None:
    look = Intake.look

    def forgetful(self: Intake, job: Any) -> Any:
        if not job_directory.look(self._machine, job.paths).evidence.locked:
            self._machine.files.remove(job.paths.done)
        return look(self, job)

    Intake.look = forgetful  # type: ignore[method-assign]


def _some_write_no_marker() -> None:
    module: Any = job_directory
    look = module.look

    def forgetful(machine: Any, paths: Any, **options: Any) -> Any:
        launch = module.read_launch(machine.files, paths)
        if launch is not None and launch.nonce[-1] in "012" and not machine.locks.is_locked(paths.lock):
            machine.files.remove(paths.done)
        return look(machine, paths, **options)

    module.look = forgetful


def _runners_die_with_their_parent() -> None:
    """From the scheduler, which knows their processes: a thread ends a runner that got another parent."""
    start = WarmLauncher.start
    parents: dict[int, int] = {}

    async def watched(self: WarmLauncher, order: Any) -> Any:
        process = await start(self, order)
        pid = process.describe().get("pid")
        if isinstance(pid, int):
            parents[pid] = _parent(pid)
        return process

    def watch() -> None:
        while True:
            for pid, parent in list(parents.items()):
                now = _parent(pid)
                if now not in (0, parent):
                    os.kill(pid, signal.SIGKILL)
                if now != parent:
                    parents.pop(pid, None)
            time.sleep(0.01)

    WarmLauncher.start = watched  # type: ignore[method-assign]
    threading.Thread(target=watch, daemon=True).start()


def _parent(pid: int) -> int:
    """The parent of a process; 0 if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return int(stream.read().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _launcher_never_closed() -> None:
    WarmLauncher.close = lambda self: None  # type: ignore[method-assign]


_PLANTS = {
    "failed is done": _failed_is_done,
    "units not passed on": _units_not_passed_on,
    "done is forgotten": _done_is_forgotten,
    "some write no marker": _some_write_no_marker,
    "runners die with their parent": _runners_die_with_their_parent,
    "launcher never closed": _launcher_never_closed,
}
