"""Owns what a seed stands for: the jobs of a world, who submits them, and what goes wrong when.
Plain values that print as Python, so that a scenario can be shrunk and kept as a test; nothing happens here.
"""

from __future__ import annotations

from enum import Enum, unique
from random import Random
from typing import NamedTuple

from tenuto.testing.cluster_job import Fate

LAST_DEED_S = 600.0
"""Nothing goes wrong any more after this long."""
CROWDED, CROWDED_AT = 40, 17
"""One world in so many, and which, has a crowd that asks for one token."""
FAR, FAR_AT = 7, 3
"""One world in so many, and which, has a cluster."""
TAKEN, TAKEN_AT = 5 * FAR, 31
"""One world in so many, and which, has a cluster whose processes take further orders."""
ONCE, ONCE_AT = 8, 5
"""One world in so many, and which, has jobs that run once."""
REOPENED, REOPENED_AT = 16, 9
"""One world in so many, and which, has two schedulers that both try again what failed."""
GROWN, GROWN_AT = 11, 6
"""One world in so many, and which, has jobs that run out of memory until they have enough."""


@unique
class Does(Enum):
    """What the payload of a job does, whenever it runs."""

    WELL = "ends well"
    BADLY = "exits with 3"
    STALLS = "runs into its walltime a few times, then ends well"
    HANGS = "runs into its walltime every time"
    STARVES = "runs out of memory until it may use what it wants"


class JobPlan(NamedTuple):
    """A job: what it needs and what it does."""

    name: str
    needs: tuple[str, ...] = ()
    does: Does = Does.WELL
    duration_s: float = 1.0
    walltime_s: float | None = None
    stalls: int = 0
    max_retries: int = 0
    max_lost_retries: int = 0
    transient: int = 0
    stops_after_s: float | None = 0.0
    lingers: bool = False
    """If its runner is killed, its payload lives on."""
    calls_back: bool = False
    """An owner asks to be called when it is done."""
    tokens: tuple[tuple[str, int], ...] = ()
    """(token, units) that it holds while it runs."""
    fate: Fate | None = None
    """What a cluster does to it, if one is to run it; None: this machine runs it."""
    once: bool = False
    """The attempt that its directory shows is the answer, for every scheduler."""
    wants: int = 0
    """Memory with which it ends well, if it starves otherwise."""
    grows: tuple[int, int, float] | None = None
    """Memory of its first attempt, the most that doubling leads to, and seconds before a further attempt."""


class RunPlan(NamedTuple):
    """A person with a scheduler: what is submitted to it, and how fast."""

    jobs: tuple[str, ...]
    at_s: float = 0.0
    gap_s: float = 0.0


@unique
class Deed(Enum):
    """What happens to the world."""

    CRASH = "a scheduler is killed"
    CRASH_IN = "a scheduler is killed in the middle of an operation on the disk"
    KILL_RUNNER = "a runner is killed right before a step"
    KILL_RUNNER_IN = "a runner is killed in the middle of an operation on the disk"
    KILL_PAYLOAD = "the payload of a job is killed"
    REUSE_PID = "a runner is killed, and its pid goes to a stranger"
    POWER_LOSS = "everything dies, and what was not synced may be lost"
    FULL_DISK = "the disk is full for a while"
    EIO = "an operation on the disk fails"
    SLOW = "operations take long for a while"
    STOP = "a scheduler stands still for a while (SIGSTOP)"
    STOP_RUNNER = "a runner stands still for a while"
    JUMP = "the wall clock is set"
    DEAF = "changes of directories are not told for a while"
    REFUSE = "a start fails for want of something"
    CANCEL = "a person cancels a job, and may submit it again at once"
    AGAIN = "a person submits a job again"


class DeedPlan(NamedTuple):
    """One deed."""

    at_s: float
    deed: Deed
    run: int = 0
    """Whose scheduler, or who acts."""
    job: str = ""
    amount: float = 0.0
    """Seconds, operations or a step, whatever the deed asks for."""
    is_armed: bool = False
    """It waits until a payload of `job` begins: `at_s` counts from there."""


class Scenario(NamedTuple):
    """A whole world; with the seed, everything that happens in it is decided."""

    seed: int
    jobs: tuple[JobPlan, ...]
    runs: tuple[RunPlan, ...]
    deeds: tuple[DeedPlan, ...] = ()
    tokens: tuple[tuple[str, int], ...] = ()
    """(token, its units)"""
    slots: int = 4
    hears: bool = False
    """Schedulers are told of changes of directories, instead of looking every two seconds."""
    far_locks: bool = True
    """Locks that runners of the cluster take are seen here."""
    jitter: float = 0.0
    """How likely another process moves between two operations on the disk."""


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    random = Random(f"scenario {seed}")
    tokens = _tokens(random)
    jobs = _with_tokens(random, _jobs(random), tokens)
    runs = _runs(random, jobs)
    scenario = Scenario(
        seed=seed,
        jobs=jobs,
        runs=runs,
        deeds=_deeds(random, jobs, runs),
        tokens=tokens,
        slots=random.choice((1, 2, 4, 8)),
        hears=random.random() < 0.5,
        jitter=random.choice((0.0, 0.0, 0.02, 0.2)),
    )
    if seed % FAR == FAR_AT:
        scenario = _with_cluster(scenario)
    if seed % TAKEN == TAKEN_AT:
        scenario = _with_orders_taken(scenario)
    if seed % ONCE == ONCE_AT:
        scenario = _with_once(scenario)
    if seed % GROWN == GROWN_AT:
        scenario = _with_growth(scenario)
    if seed % REOPENED == REOPENED_AT:
        scenario = _reopened(scenario)
    return _crowd(scenario) if seed % CROWDED == CROWDED_AT else scenario


def _reopened(scenario: Scenario) -> Scenario:
    """Jobs that fail once, and two schedulers that try them again: each sees the other open attempts."""
    random = Random(f"reopened {scenario.seed}")
    jobs = tuple(
        JobPlan(f"j{number}", duration_s=round(random.uniform(0.5, 3.0), 4))
        for number in range(random.randint(5, 15))
    )
    deeds = [DeedPlan(0.1, Deed.KILL_PAYLOAD, job=job.name, is_armed=True) for job in jobs]
    names = tuple(job.name for job in jobs)
    return scenario._replace(
        jobs=jobs,
        runs=(RunPlan(names), RunPlan(names)),
        deeds=tuple(deeds),
        tokens=(),
        slots=8,
        hears=True,
        jitter=0.5,
    )


def _with_cluster(scenario: Scenario) -> Scenario:
    """The same world, in which a cluster runs most of the jobs.

    Their tokens are free when their scheduler dies (docs/adr/0009), what outlives a runner on another machine
    cannot be ended from here, and no fence holds against a process that stands still: left out.
    """
    random = Random(f"cluster {scenario.seed}")
    fates = (*(fate for fate in Fate if fate is not Fate.TAKEN), Fate.ORDINARY, Fate.ORDINARY)
    jobs = tuple(
        job._replace(fate=random.choice(fates), tokens=(), lingers=False) if random.random() < 0.7 else job
        for job in scenario.jobs
    )
    deeds = [plan for plan in scenario.deeds if plan.deed not in (Deed.STOP_RUNNER, Deed.SLOW)]
    if random.random() < 0.5:  # what is pending is cancelled, and submitted again
        at = random.randrange(len(jobs))
        fate = random.choice((Fate.UNANSWERED, Fate.CACHED, Fate.LATE))
        chosen = JobPlan(jobs[at].name, duration_s=20.0, fate=fate)
        jobs = (*jobs[:at], chosen, *jobs[at + 1 :])
        name = chosen.name
        at_s = round(random.uniform(0.1, 5.0), 4)
        deeds += [DeedPlan(at_s, Deed.CANCEL, job=name), DeedPlan(at_s + 1.0, Deed.AGAIN, job=name)]
    return scenario._replace(
        jobs=jobs,
        deeds=tuple(sorted(deeds, key=lambda plan: plan.at_s)),
        far_locks=random.random() < 0.5,
    )


def _with_orders_taken(scenario: Scenario) -> Scenario:
    """The same world of a cluster, in which what was ordinary is run by processes of other jobs."""
    ordinary = (Fate.ORDINARY, Fate.LATE)
    jobs = tuple(job._replace(fate=Fate.TAKEN) if job.fate in ordinary else job for job in scenario.jobs)
    return scenario._replace(jobs=jobs)


def _with_once(scenario: Scenario) -> Scenario:
    """The same world, in which half of the jobs run once: as a node of a service and a search submit them."""
    random = Random(f"once {scenario.seed}")
    return scenario._replace(jobs=tuple(job._replace(once=random.random() < 0.5) for job in scenario.jobs))


def _with_growth(scenario: Scenario) -> Scenario:
    """The same world, in which half of the jobs need more memory than they ask for at first."""
    random = Random(f"growth {scenario.seed}")

    def grown(job: JobPlan) -> JobPlan:
        if random.random() < 0.5 or job.does is not Does.WELL:
            return job
        grows = 4, random.choice((8, 20, 64)), random.choice((0.0, 0.0, 0.5, 5.0))
        return job._replace(does=Does.STARVES, wants=random.choice((4, 7, 16, 40, 80)), grows=grows)

    return scenario._replace(jobs=tuple(map(grown, scenario.jobs)))


def _crowd(scenario: Scenario) -> Scenario:
    """Many that need a little of a token, and one early among them that needs all of it."""
    random = Random(f"crowd {scenario.seed}")
    units = random.randint(2, 4)
    jobs = [
        JobPlan(f"j{number}", duration_s=round(random.uniform(0.5, 3.0), 4), tokens=(("token0", 1),))
        for number in range(random.randint(20, 30))
    ]
    large = random.randint(units, units + 3)
    jobs[large] = jobs[large]._replace(tokens=(("token0", units),))
    names = tuple(job.name for job in jobs)
    return scenario._replace(
        jobs=tuple(jobs),
        runs=tuple(run._replace(jobs=names) for run in scenario.runs[:2]),
        deeds=tuple(plan for plan in scenario.deeds if plan.job in names)[:2],
        tokens=(("token0", units),),
        slots=8,
    )


def _jobs(random: Random) -> tuple[JobPlan, ...]:
    size = random.choice((random.randint(1, 4), random.randint(3, 12), random.randint(8, 24)))
    if random.random() < 0.06:
        size = random.randint(25, 50)
    wide = random.random()
    jobs: list[JobPlan] = []
    for number in range(size):
        earlier = [job.name for job in jobs]
        count = 0 if random.random() < wide else random.randint(1, 3)
        needs = tuple(sorted(random.sample(earlier, min(count, len(earlier)))))
        jobs.append(_job(random, f"j{number}", needs))
    return tuple(jobs)


def _tokens(random: Random) -> tuple[tuple[str, int], ...]:
    count = random.choice((0, 0, 1, 2))
    return tuple((f"token{number}", random.randint(1, 5)) for number in range(count))


def _with_tokens(
    random: Random, jobs: tuple[JobPlan, ...], tokens: tuple[tuple[str, int], ...]
) -> tuple[JobPlan, ...]:
    return tuple(
        job._replace(
            tokens=tuple((name, random.randint(1, units)) for name, units in tokens if random.random() < 0.6)
        )
        for job in jobs
    )


def _job(random: Random, name: str, needs: tuple[str, ...]) -> JobPlan:
    job = JobPlan(
        name,
        needs,
        duration_s=round(random.choice((0.001, 0.5, 3.0, 20.0)) * (0.5 + random.random()), 4),
        max_lost_retries=random.choice((0, 0, 1, 2)),
        transient=random.choice((0, 0, 0, 0, 1, 2)),
        stops_after_s=random.choice((0.0, 0.0, 2.0, None)),
        lingers=random.random() < 0.2,
        calls_back=random.random() < 0.1,
    )
    chance = random.random()
    if chance < 0.06:
        return job._replace(does=Does.BADLY)
    if chance < 0.16:
        retries = random.randint(1, 3)
        return job._replace(
            does=Does.STALLS,
            walltime_s=2 * job.duration_s,
            stalls=random.randint(1, retries),
            max_retries=retries,
        )
    if chance < 0.2:
        return job._replace(does=Does.HANGS, walltime_s=2 * job.duration_s, max_retries=random.randint(0, 2))
    return job


def _runs(random: Random, jobs: tuple[JobPlan, ...]) -> tuple[RunPlan, ...]:
    needs = {job.name: job.needs for job in jobs}
    runs = []
    for number in range(random.choice((1, 1, 2, 2, 3))):
        wanted = {job.name for job in jobs if random.random() < 0.8} if number else {job.name for job in jobs}
        for job in reversed(jobs):  # needs point back, so this closes the set
            if job.name in wanted:
                wanted |= set(needs[job.name])
        runs.append(
            RunPlan(
                jobs=tuple(job.name for job in jobs if job.name in wanted),
                at_s=random.choice((0.0, 0.0, round(random.uniform(0.0, 10.0), 3))),
                gap_s=random.choice((0.0, 0.0, 0.01, 0.5)),
            )
        )
    return tuple(runs)


def _deeds(random: Random, jobs: tuple[JobPlan, ...], runs: tuple[RunPlan, ...]) -> tuple[DeedPlan, ...]:
    """A few deeds, most of them while the jobs are likely to be under way."""
    span = min(LAST_DEED_S, 2.0 + 3.0 * sum(job.duration_s for job in jobs) / max(len(jobs) // 4, 1))
    focus = random.choice(jobs)
    by_name = {job.name: job for job in jobs}
    deeds = []
    for _ in range(random.choice((0, 1, 2, 3, 5, 8))):
        deed = random.choice((*Deed, *_OFTEN))
        run = random.randrange(len(runs))
        names = runs[run].jobs or (jobs[0].name,)
        job = focus if random.random() < 0.6 else by_name[random.choice(names)]
        is_armed = random.random() < 0.5
        near = (0.0, random.uniform(0.0, 0.1), random.uniform(0.0, 3 * job.duration_s if is_armed else span))
        deeds.append(
            DeedPlan(
                at_s=round(random.choice(near), 4),
                deed=deed,
                run=run,
                job=job.name,
                amount=_amount(random, deed),
                is_armed=is_armed,
            )
        )
    if random.random() < 0.4:
        deeds += _meeting(random, jobs, span)
    return tuple(sorted(deeds, key=lambda plan: plan.at_s))


def _meeting(random: Random, jobs: tuple[JobPlan, ...], span: float) -> list[DeedPlan]:
    """Two things that seldom meet by chance."""
    job = random.choice([job for job in jobs if job.walltime_s] or jobs)
    ends_s = job.walltime_s or job.duration_s
    kind = random.randrange(4)
    if kind == 0:  # a cancellation and a timeout
        return [DeedPlan(ends_s + random.uniform(0.0, 2.0), Deed.CANCEL, job=job.name, is_armed=True)]
    if kind == 1:  # a crash, and the next attempt being opened
        amount = float(random.randint(5, 40))
        return [DeedPlan(ends_s, Deed.CRASH_IN, job=job.name, amount=amount, is_armed=True)]
    waits = random.choice(jobs).name
    at_s = round(random.uniform(0.0, span / 2), 4)
    if kind == 2:  # a cancellation and a full disk
        return [DeedPlan(at_s, Deed.FULL_DISK, amount=10.0), DeedPlan(at_s + 0.1, Deed.CANCEL, job=waits)]
    # what waits is cancelled, and submitted again
    return [DeedPlan(at_s, Deed.CANCEL, job=waits), DeedPlan(at_s + 0.1, Deed.AGAIN, job=waits)]


_OFTEN = (Deed.CRASH_IN, Deed.KILL_RUNNER, Deed.CANCEL, Deed.CANCEL, Deed.AGAIN)
"""Deeds that find most when they meet others."""


def _amount(random: Random, deed: Deed) -> float:
    if deed in (Deed.CRASH_IN, Deed.EIO):
        return float(int(10 ** random.uniform(0.0, 3.0)))
    if deed is Deed.KILL_RUNNER_IN:
        return float(random.randint(1, 14))
    if deed is Deed.KILL_RUNNER:
        return float(random.randrange(7))
    if deed is Deed.JUMP:
        return random.choice((-86400.0, -60.0, 60.0, 86400.0))
    if deed is Deed.POWER_LOSS:
        return random.choice((0.0, 0.5, 0.9))
    return round(random.choice((0.01, 1.0, 10.0, 100.0)) * (0.5 + random.random()), 3)
