"""Owns the bugs planted in schedulers and runners of the kill matrix, and the cases that must give each away.
Plants them for good: in a process that does nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from proof.matrix.external_cases import CLUSTER, PENDING, STANDING
from proof.matrix.kinds import AT_WORK, Fields, striking
from tenuto.launchers import observation
from tenuto.launchers.observation import Fence
from tenuto.launchers.protocols import Process, StartOrder
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler import attempts, decisions, external_attempts
from tenuto.scheduler.attempts import Attempt
from tenuto.scheduler.decisions import Verdict
from tenuto.scheduler.inputs import AdoptedEnded
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.shell import Shell

_run = Job.aio_run


class Bug(NamedTuple):
    """A mistake, and where it shows."""

    stands_for: str
    kind: str
    plant: Callable[[], None]
    cases: list[Fields]


class _Unlocked:
    """The file of a lock, opened once more: who has only this one holds nothing."""

    byte = 0

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def intact(self) -> bool:
        return True

    def close(self) -> None:
        os.close(self._fd)


async def _run_unlocked(self: Job, order: StartOrder) -> Process:
    lock, _ = order.locks
    unlocked = _Unlocked(lock.path)
    lock.close()
    return await _run(self, order._replace(runner_lock=unlocked))


async def _run_without_units(self: Job, order: StartOrder) -> Process:
    return await _run(self, order._replace(tokens=()))


async def _not_swept(self: Attempt, lock: Any, found: Any) -> Any:
    return found


def _lost_is_done(found: Any, tries: Any, limits: Any) -> Verdict:
    verdict = decisions.after_attempt(found, tries, limits)
    is_lost = JobFailureStatus.LOST in (verdict.reason, found.reason)
    return Verdict(JobState.DONE) if is_lost else verdict


async def _adopted_is_done(self: Any, job: Job) -> None:
    self._feed(AdoptedEnded(job, Verdict(JobState.DONE)))


def _never_revoked(*given: Any) -> bool:
    return True


def _always_passed(self: Fence) -> bool:
    return True


def _in_runners(statement: str) -> Callable[[], None]:
    """Planted in each runner that a cluster starts; `killed_runner` has the modules that it names."""
    return lambda: os.environ.update(FAULTS_PLANTED=statement)


def _putting(owner: Any, name: str, value: Any) -> Callable[[], None]:
    if not hasattr(owner, name):  # renamed: a bug that nothing calls would prove nothing
        raise AttributeError(f"{owner} has no {name}: the planted bug must follow the code")
    return lambda: setattr(owner, name, value)


BUGS = {
    "lock let go before the start": Bug(
        "the scheduler closes the job's lock, and leaves it to the runner to lock it again",
        "races",
        _putting(Job, "aio_run", _run_unlocked),
        striking("scheduler", ["posix_spawn"], blow="pause"),
    ),
    "units not handed over": Bug(
        "the runner does not inherit the units of its job, which fall with the scheduler",
        "tokens",
        _putting(Job, "aio_run", _run_without_units),
        [{**AT_WORK, "token": True}],
    ),
    "leftovers not swept": Bug(
        "what a killed runner left at work is not ended before the job starts again",
        "direct",
        _putting(Attempt, "_swept", _not_swept),
        [{"victim": "runner", "moment": "start", "in_child": True}],
    ),
    "lost taken for done": Bug(
        "a job whose runner vanished counts as done",
        "direct",
        _putting(attempts, "after_attempt", _lost_is_done),
        striking("runner", ["open oracle.reserve"]),
    ),
    "adopted taken for done": Bug(
        "an adopted job counts as done without waiting for its runner",
        "adoption",
        _putting(Shell, "_adopt", _adopted_is_done),
        [{**AT_WORK}],
    ),
    "claim not looked at": Bug(
        "a runner begins, though another made the claim on its attempt",
        "fates",
        _in_runners("claimed.claim = lambda *given: True"),
        [{**CLUSTER, "fate": "twice", "apart": True, "lasts_s": 10.0}],
    ),
    "given up, not revoked": Bug(
        "a scheduler opens the next attempt, and does not claim the one before it, which then begins",
        "fates",
        _putting(external_attempts, "claim", _never_revoked),
        [{**CLUSTER, **STANDING, "scheduler": "rename launch.json #2", "apart": True}],
    ),
    "marker not looked at": Bug(
        "a runner that was given up while it stood still begins, though its job was cancelled",
        "cancelled",
        _in_runners("from tenuto.launchers.runner import attempt; attempt.has_marker = lambda *given: False"),
        [{**PENDING, "fate": "deaf", "runner": "lock0 oracle.lock", "stands": True}],
    ),
    "exit 75 believed": Bug(
        "a runner that found another at work is taken for the end of the attempt",
        "fates",
        _putting(observation, "STALE", None),
        [{**CLUSTER, "fate": "lying", "apart": True, "lasts_s": 10.0}],
    ),
    "fence not awaited": Bug(
        "an attempt that the cluster forgot counts as ended, though its runner beats",
        "fates",
        _putting(Fence, "has_passed", _always_passed),
        [{**CLUSTER, "fate": "forgotten", "apart": True, "lasts_s": 10.0}],
    ),
}
