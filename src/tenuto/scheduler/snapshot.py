"""A scheduler at one moment: how many jobs are where, which slots are used, and what each job waits for.
Values only; the scheduler takes them in its loop, where nothing changes meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, unique
from types import MappingProxyType

from tenuto.lifecycle.states import JobState
from tenuto.scheduler.core import WITHOUT_ATTEMPT
from tenuto.scheduler.entries import Phase
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.owners import Owner, OwnerLedger
from tenuto.scheduler.slots import Slots, SlotUsage

MOST_WAITS = 1_000
"""Of how many jobs a snapshot says what they wait for."""


@unique
class WaitsFor(Enum):
    """What keeps a job from being started."""

    JOBS = "jobs that it depends on"
    SLOT = "a slot of its launcher"
    TOKENS = "units of tokens"
    MACHINE = "the machine, which is short of something"
    OWNERS = "an owner: those that it has are stopping"
    DIRECTORY = "its directory, which another process has locked"


@dataclass(frozen=True, slots=True)
class Wait:
    """One job that is not started yet."""

    task_id: str
    job_id: str
    cause: WaitsFor
    what: tuple[str, ...]
    """The ids of the jobs, the launcher, the tokens, the ids of the owners; else what is known in words."""


@dataclass(frozen=True, slots=True)
class OwnerSnapshot:
    """What one owner has."""

    id: str
    jobs: int
    """All that it has not forgotten."""
    unfinished: int
    failed: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a scheduler had to say at one moment."""

    jobs: Mapping[JobState, int]
    """How many jobs are in each state; states without a job are left out."""
    launchers: tuple[SlotUsage, ...]
    owners: tuple[OwnerSnapshot, ...]
    waits: tuple[Wait, ...]
    """What jobs wait for, in the order they were submitted."""
    waits_left_out: int
    """How many more wait."""
    paused: str | None
    """Why nothing is started at present: what the machine is short of."""


def take(
    jobs: Iterable[Job],
    slots: Slots,
    ledger: OwnerLedger,
    *,
    paused: str | None,
    most_waits: int,
) -> Snapshot:
    """The snapshot of these jobs; in the loop."""
    states: Counter[JobState] = Counter()
    owned: dict[Owner, int] = {}
    waiting: list[Job] = []
    for job in jobs:
        states[job.state] += 1
        for owner in job.owners:
            owned[owner] = owned.get(owner, 0) + 1
        if job.phase in WITHOUT_ATTEMPT:
            waiting.append(job)
    owners = []
    for owner, count in owned.items():
        counts = ledger.of(owner)
        owners.append(OwnerSnapshot(owner.id, count, counts.unfinished, counts.failed))
    return Snapshot(
        jobs=MappingProxyType(dict(sorted(states.items()))),
        launchers=tuple(slots.usage()),
        owners=tuple(sorted(owners, key=lambda owner: owner.id)),
        waits=tuple(
            Wait(job.task_id, job.job_id, *_cause(job, slots, paused)) for job in waiting[:most_waits]
        ),
        waits_left_out=max(len(waiting) - most_waits, 0),
        paused=paused,
    )


def _cause(job: Job, slots: Slots, paused: str | None) -> tuple[WaitsFor, tuple[str, ...]]:
    if job.phase is Phase.WANTS_TOKENS:
        return WaitsFor.TOKENS, tuple(need.token for need in job.needs)
    if job.phase is not Phase.BLOCKED:
        if not slots.is_wanted(job):
            return WaitsFor.OWNERS, tuple(owner.id for owner in job.owners)
        return (WaitsFor.SLOT, (job.launcher.name,)) if paused is None else (WaitsFor.MACHINE, (paused,))
    if job.missing:
        return WaitsFor.JOBS, tuple(d.origin.job_id for d in job.dependencies if not d.origin.is_done)
    return WaitsFor.DIRECTORY, (job.standing.message or "",)
