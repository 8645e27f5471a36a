"""Owns making a failing scenario small: fewer deeds, schedulers and jobs, plainer jobs, as long as it fails.
Tries the nearest simpler scenarios one after the other; does not know why one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from proof.simulation.scenario import Does, JobPlan, Scenario

OTHER_SEEDS = 3
"""Each simpler scenario is tried with a few seeds, since what is left out also moves all later chances."""


def shrunk(scenario: Scenario, fails: Callable[[Scenario], bool], most_tries: int = 400) -> Scenario:
    """A scenario that still fails, and of which nothing more can be left out."""
    tries = 0
    is_smaller = True
    while is_smaller and tries < most_tries:
        is_smaller = False
        for simpler in _simpler(scenario):
            for seed in range(scenario.seed, scenario.seed + OTHER_SEEDS):
                tries += 1
                candidate = simpler._replace(seed=seed)
                if fails(candidate):
                    scenario, is_smaller = candidate, True
                    break
            if is_smaller or tries >= most_tries:
                break
    return scenario


def shown(scenario: Scenario) -> str:
    """As Python, ready to be kept in a test; what is as usual is left out."""
    return _spelled(scenario, "")


def _spelled(value: object, indent: str) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        usual = value._field_defaults  # type: ignore[attr-defined]
        fields = [
            f"{name}={_spelled(field, indent + '    ')}"
            for name, field in value._asdict().items()
            if name not in usual or usual[name] != field
        ]
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, tuple) and value and not isinstance(value[0], str):
        inner = indent + "    "
        return "(\n" + "".join(f"{inner}{_spelled(part, inner)},\n" for part in value) + f"{indent})"
    return repr(value)


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Simpler scenarios, the ones that save most first."""
    deeds, runs, jobs = scenario.deeds, scenario.runs, scenario.jobs
    if len(deeds) > 3:
        yield scenario._replace(deeds=deeds[: len(deeds) // 2])
        yield scenario._replace(deeds=deeds[len(deeds) // 2 :])
    for number in range(len(runs)):
        if len(runs) > 1:
            yield _without_run(scenario, number)
    if len(jobs) > 3:
        yield _without_jobs(scenario, {job.name for job in jobs[len(jobs) // 2 :]})
    for job in reversed(jobs):
        if len(jobs) > 1:
            yield _without_jobs(scenario, {job.name})
    for number in range(len(deeds)):
        yield scenario._replace(deeds=deeds[:number] + deeds[number + 1 :])
    for number, job in enumerate(jobs):
        for plainer in _plainer(job):
            yield scenario._replace(jobs=(*jobs[:number], plainer, *jobs[number + 1 :]))
    if scenario.jitter:
        yield scenario._replace(jitter=0.0)
    if scenario.hears:
        yield scenario._replace(hears=False)
    for number, run in enumerate(runs):
        if run.gap_s or run.at_s:
            yield scenario._replace(
                runs=(*runs[:number], run._replace(gap_s=0.0, at_s=0.0), *runs[number + 1 :])
            )


def _plainer(job: JobPlan) -> Iterator[JobPlan]:
    plain = JobPlan(job.name, job.needs)
    if job != plain:
        yield plain
    if job.does is not Does.WELL:
        yield job._replace(does=Does.WELL, walltime_s=None, stalls=0, max_retries=0, wants=0, grows=None)
    for field in (
        "tokens",
        "duration_s",
        "max_lost_retries",
        "transient",
        "stops_after_s",
        "lingers",
        "calls_back",
        "fate",
    ):
        usual = getattr(plain, field)
        if getattr(job, field) != usual and (field != "duration_s" or job.walltime_s is None):
            yield job._replace(**{field: usual})
    for need in job.needs:
        yield job._replace(needs=tuple(other for other in job.needs if other != need))


def _without_run(scenario: Scenario, number: int) -> Scenario:
    deeds = tuple(
        plan._replace(run=plan.run - (plan.run > number)) for plan in scenario.deeds if plan.run != number
    )
    return scenario._replace(runs=(*scenario.runs[:number], *scenario.runs[number + 1 :]), deeds=deeds)


def _without_jobs(scenario: Scenario, gone: set[str]) -> Scenario:
    return scenario._replace(
        jobs=tuple(
            job._replace(needs=tuple(need for need in job.needs if need not in gone))
            for job in scenario.jobs
            if job.name not in gone
        ),
        runs=tuple(
            run._replace(jobs=tuple(name for name in run.jobs if name not in gone)) for run in scenario.runs
        ),
        deeds=tuple(plan for plan in scenario.deeds if plan.job not in gone),
    )
