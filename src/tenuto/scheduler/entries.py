"""Entries: a job as the core sees it, with one phase; how it is run is known to `jobs`.
An entry decides nothing and tells nothing: the core moves it from phase to phase.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum, unique
from typing import TYPE_CHECKING, NamedTuple, cast

from tenuto.clock import Clock
from tenuto.launchers.protocols import Launcher
from tenuto.lifecycle.base_job import BaseJob, CounterChange, counter_change
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.workspace.token_files import Need

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job
    from tenuto.scheduler.owners import Owner


@unique
class Phase(Enum):
    """Where a job is on its way through the scheduler."""

    ASLEEP = "no job or owner needs it to run"
    BLOCKED = "it waits for jobs that it depends on, or for the lock of its directory"
    READY = "it waits for a slot"
    WANTS_TOKENS = "it waits for units of tokens"
    STARTING = "it has a slot and its tokens, and no attempt yet"
    RUNNING = "an attempt of it is under way, here or elsewhere"
    SETTLING = "its end is known, and its last outputs are handed over"
    ENDED = "it is done, or failed"


class JobDependency(NamedTuple):
    """A job that must be done before another may start."""

    origin: Job


class Entry(BaseJob):
    """One job in the core: its dependencies, which jobs wait for it, and which slots it would take."""

    __slots__ = (
        "dependencies",
        "dependents",
        "depth",
        "is_done",
        "launcher",
        "missing",
        "needs",
        "owners",
        "phase",
        "pool",
        "priority",
        "slots",
        "transient",
    )

    def __init__(
        self,
        task_id: str,
        job_id: str,
        *,
        clock: Clock,
        launcher: Launcher,
        dependencies: Sequence[JobDependency] = (),
        needs: tuple[Need, ...] = (),
        slots: int = 1,
        priority: int = 0,
        transient: TransientMode = TransientMode.NONE,
    ) -> None:
        super().__init__(job_id, task_id, clock)
        self.phase = Phase.ASLEEP
        self.is_done = False
        """It ended well; False in all phases but ENDED."""
        # A tuple: of a hundred thousand jobs most have one, and an empty list takes 56 bytes.
        self.owners: tuple[Owner, ...] = ()
        self.launcher = launcher
        self.dependencies = tuple(dependencies)
        self.depth: int = 1 + max((one.origin.depth for one in self.dependencies), default=-1)
        """How many jobs stand before it in its longest chain of dependencies."""
        self.missing = 0
        """How many jobs it waits for."""
        self.dependents: dict[Job, None] | None = None
        """The jobs that wait for it. No list: a job that was cancelled, or stranded by another end, and came
        again before this one ended would be there twice, and this end would count for two."""
        self.needs = needs
        """The units that it holds while it runs, in the order of the tokens' names."""
        self.slots = slots
        """How many slots of its launcher it takes while it runs: its cores."""
        self.pool: object | None = None
        """The pool in whose queue it has a place."""
        self.priority = priority
        self.transient = transient

    @property
    def has_failed(self) -> bool:
        """True if it ended, and not well."""
        return self.phase is Phase.ENDED and not self.is_done

    @property
    def is_at_rest(self) -> bool:
        """True if nothing happens to it: it ended, or it is a transient job that sleeps."""
        return self.phase is Phase.ENDED or self.phase is Phase.ASLEEP

    @property
    def is_passed_over(self) -> bool:
        """True if its turn came when all its owners were stopping; it has no place in a queue any more."""
        return self.phase is Phase.READY and self.pool is None

    def has_owner(self, owner: Owner) -> bool:
        """True if this owner submitted the job, and has not left it."""
        return owner in self.owners

    def add_owner(self, owner: Owner) -> None:
        """Count the job, as it stands, for one more owner."""
        if not self.has_owner(owner):
            self.owners = (*self.owners, owner)
            self._count_for(owner, counter_change(JobState.UNSCHEDULED, self.state))

    def remove_owner(self, owner: Owner) -> None:
        """No longer count the job for this owner."""
        if self.has_owner(owner):
            self.disown(owner)
            self._count_for(owner, counter_change(self.state, JobState.UNSCHEDULED))

    def disown(self, owner: Owner) -> None:
        """The owner has gone; its counts stay as they are."""
        if self.owners:
            self.owners = tuple([known for known in self.owners if known is not owner])

    def _count(self, change: CounterChange) -> None:
        for owner in self.owners:
            self._count_for(owner, change)

    def _count_for(self, owner: Owner, change: CounterChange) -> None:
        """A hook: an owner has more or less to wait for."""

    def failure_text(self) -> str:
        """Why the jobs that need this one cannot run: it failed, or cannot run itself for the same reason."""
        if self.failure_status is JobFailureStatus.DEPENDENCY and self.state_record.message:
            return self.state_record.message
        reason = self.failure_status or self.state
        return f"{self.task_id} {self.job_id[:12]} failed ({reason.name})"

    # Which jobs wait for which

    def block(self) -> bool:
        """Wait for each job that this one depends on and that is not done; False if there is none."""
        unfinished = [one.origin for one in self.dependencies if not one.origin.is_done]
        self.missing = len(unfinished)
        for origin in unfinished:
            if origin.dependents is None:
                origin.dependents = {}
            origin.dependents[cast("Job", self)] = None
        return bool(unfinished)

    def unblock(self) -> None:
        """Wait for no job any more."""
        self.missing = 0

    def is_awaited(self) -> bool:
        """True if a job waits for this one."""
        return any(dependent.missing for dependent in self.dependents or ())

    def released(self) -> list[Job]:
        """This job is done: the jobs that wait for nothing any more, in the order they came."""
        dependents, self.dependents = self.dependents, None
        released: list[Job] = []
        for job in dependents or ():
            if job.missing:
                job.missing -= 1
                if not job.missing:
                    released.append(job)
        return released

    def stranded(self) -> list[Job]:
        """This job failed: the jobs that waited for it, nearest first, which wait no longer."""
        stranded: list[Job] = []
        pending: deque[Entry] = deque([self])
        while pending:
            failed = pending.popleft()
            dependents, failed.dependents = failed.dependents, None
            for job in dependents or ():
                if job.missing:
                    job.unblock()
                    stranded.append(job)
                    pending.append(job)
        return stranded
