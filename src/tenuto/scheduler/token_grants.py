"""The locks that a job with tokens starts with: its own and those of its units, all or none.
`take` and `take_again` are to be called under the mutex of the tokens.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import NamedTuple

from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import Verdict
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.shortages import failure
from tenuto.scheduler.token_decisions import Picks
from tenuto.scheduler.tokens import Grant
from tenuto.workspace import job_directory
from tenuto.workspace.derive_table import Action
from tenuto.workspace.job_directory import Ask
from tenuto.workspace.ports import LockHandle, Machine
from tenuto.workspace.records import TokenUnits
from tenuto.workspace.token_files import TokenFiles

logger = logging.getLogger("tenuto.scheduler")


class GrantOutcome(NamedTuple):
    """What one look at a queue led to."""

    granted: list[tuple[Job, Grant]]
    refused: list[tuple[Job, Exception | str]]

    def jobs(self) -> set[Job]:
        """The jobs that wait no longer."""
        return {job for job, _ in (*self.granted, *self.refused)}


def take(machine: Machine, files: TokenFiles, job: Job, picks: Picks) -> Grant | None:
    """The job's lock, then the units, token by token; None if a unit is not to be had.

    The grant has no lock if another scheduler runs the job: then it is to be watched, and needs no units.
    """
    with ExitStack() as undo:
        lock = job_directory.take_lock(machine, job.paths)
        if lock is None:
            return Grant(None)
        undo.callback(lock.close)
        handles: list[LockHandle] = []
        for token in sorted(picks):
            taken = files.take(token, picks[token])
            if taken is None:
                return None
            for handle in taken:
                undo.callback(handle.close)
            handles += taken
        undo.pop_all()
    environment: dict[str, str] = {}
    for token_, _ in job.tokens:
        environment.update(token_.environment(picks[token_.name]))
    units = [TokenUnits(name, picks[name]) for name in sorted(picks)]
    return Grant(lock, units, handles, environment, files.place.directory)


def take_again(machine: Machine, files: TokenFiles, job: Job) -> Grant:
    """The units that `locks.json` says a job has, which another scheduler started on an external launcher."""
    recorded = job_directory.read_locks(machine.files, job.paths, job.attempt)
    handles: list[LockHandle] = []
    for name, units in recorded.tokens if recorded else ():
        for unit in units:
            taken = files.take(name, (unit,))
            if taken is None:
                logger.warning(
                    "unit %d of token %s is somebody else's, though %s still runs with it",
                    unit,
                    name,
                    job.job_id,
                    extra={"action": "token_lost"},
                )
            else:
                handles += taken
    return Grant(None, handles=handles)


def declare_missing(files: TokenFiles, job: Job) -> None:
    """Write the capacities of a job's tokens whose files a person removed."""
    for token, _ in job.tokens:
        if token.capacity and files.capacity(token.name) is None:
            files.declare(token.name, token.capacity)


def is_run_by_others(machine: Machine, job: Job, ask: Ask) -> bool:
    """True if another scheduler runs a job, or has run it: then it needs no tokens here.

    A `.done` alone does not say so: beside a `.failed` it does not count, and the job is to be run.
    """
    files, paths = machine.files, job.paths
    if machine.locks.is_locked(paths.lock):
        return True
    is_marked = files.stat(paths.done) is not None
    if is_marked and job_directory.look(machine, paths).derived.state is JobState.DONE:
        return True
    if files.stat(paths.launch) is None:
        return False
    found = job_directory.look(
        machine, paths, ask=ask
    ).derived  # a job that a cluster has is run without a lock
    return found.external and found.action is Action.WATCH


def refusal(job: Job, error: Exception | str) -> Verdict:
    """The end of a job that can never have the tokens it asks for."""
    if isinstance(error, str):
        return Verdict(JobState.ERROR, JobFailureStatus.FAILED, error)
    return failure(job.job_id, error)
