"""What a soak submits: jobs in waves, drawn from a seed, and what must become of each.
Pure values; every process of a soak draws the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, unique
from random import Random
from typing import NamedTuple

SCHEDULERS = 3
WITNESS = 0
"""The scheduler that is stopped at times, and never killed: its memory and its descriptors are looked at."""
CAPACITY = {"licences": 2, "gigabytes": 6}
WAVE = 20
_CROWDS = ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2))


@unique
class Kind(Enum):
    TASK = "a task of Python"
    COMMAND = "a program"
    RESUMABLE = "a resumable task under a walltime"


@unique
class Fate(Enum):
    """What must become of a job, whatever happens to whom."""

    DONE = "it is done"
    FAILED = "it fails, on purpose, each time"
    STRANDED = "it needs what fails, and never runs"
    PASSING = "it is transient: run if somebody needs it, and maybe removed"


class PlannedJob(NamedTuple):
    """One job."""

    number: int
    kind: Kind
    seconds: float
    fate: Fate
    needs: tuple[int, ...] = ()
    tokens: tuple[tuple[str, int], ...] = ()
    is_needed: bool = False
    """Transient, and needed by one that must be done."""
    removed: bool = False
    """Transient, and its directory is removed in the end."""
    daemon: bool = False
    """It leaves a daemon behind, which must end with it."""
    dallies: bool = False
    """It waits until the walltime is over."""

    @property
    def fails(self) -> bool:
        return self.fate is Fate.FAILED


class Wave(NamedTuple):
    """Jobs that are submitted together, by some of the schedulers."""

    number: int
    schedulers: tuple[int, ...]
    jobs: tuple[PlannedJob, ...]


def draw(seed: int, jobs: int) -> list[Wave]:
    """The waves of a soak."""
    random = Random(f"soak {seed}")
    waves = []
    for number, first in enumerate(range(0, jobs, WAVE)):
        crowd = random.choice(_CROWDS) if number else _CROWDS[-1]  # all of them have something to do
        waves.append(Wave(number, crowd, _wave(random, range(first, min(first + WAVE, jobs)))))
    return waves


def _wave(random: Random, numbers: Iterable[int]) -> tuple[PlannedJob, ...]:
    jobs: dict[int, PlannedJob] = {}
    for number in numbers:
        jobs[number] = _job(random, number, jobs)
    for job in jobs.values():
        if job.fate is Fate.DONE:
            _need(jobs, job.needs)
    return tuple(jobs.values())


def _job(random: Random, number: int, before: dict[int, PlannedJob]) -> PlannedJob:
    fate = random.choices((Fate.DONE, Fate.FAILED, Fate.PASSING), (80, 5, 15))[0]
    kind = random.choices((Kind.TASK, Kind.COMMAND, Kind.RESUMABLE), (45, 45, 10))[0]
    if fate is not Fate.DONE and kind is Kind.RESUMABLE:
        kind = Kind.TASK
    if fate is Fate.FAILED and random.random() < 0.5:
        kind = Kind.COMMAND
    # A resumable task is submitted last, in an experiment of its own with a walltime: nobody needs one.
    able = [
        one.number
        for one in before.values()
        if one.kind is not Kind.RESUMABLE and (fate is Fate.DONE or one.fate is Fate.DONE)
    ]
    needs = tuple(sorted(random.sample(able, min(len(able), random.choice((0, 0, 1, 1, 2))))))
    if any(before[needed].fate in (Fate.FAILED, Fate.STRANDED) for needed in needs):
        fate = Fate.STRANDED
    tokens: tuple[tuple[str, int], ...] = ()
    seconds = random.choice((0.0, 0.02, 0.1, 0.3, 0.6))
    if kind is not Kind.RESUMABLE and random.random() < 0.35:
        seconds = random.choice((0.2, 0.5, 1.0))  # so that there are always some who wait
        names = random.sample(sorted(CAPACITY), random.choice((1, 1, 2)))
        tokens = tuple((name, random.randint(1, CAPACITY[name] // 2 + 1)) for name in sorted(names))
    return PlannedJob(
        number,
        kind,
        seconds,
        fate,
        needs,
        tokens,
        removed=fate is Fate.PASSING and random.random() < 0.3,
        daemon=kind is not Kind.RESUMABLE and random.random() < 0.1,
        dallies=kind is Kind.RESUMABLE and random.random() < 0.3,
    )


def _need(jobs: dict[int, PlannedJob], needs: Iterable[int]) -> None:
    for number in needs:
        job = jobs[number]
        if job.fate is Fate.PASSING and not job.is_needed:
            jobs[number] = job._replace(is_needed=True)
            _need(jobs, job.needs)
