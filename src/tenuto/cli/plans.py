"""What `tenuto plan` says of an experiment that was planned: as text, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.experiments.display import tag_text
from tenuto.experiments.submissions import Intent, PlannedJob
from tenuto.jobs.difference import plain_side
from tenuto.jobs.forecast import Durations, ForecastJob, makespan
from tenuto.jobs.nearest import Nearest, nearest_earlier, renamed_from
from tenuto.jobs.text import duration, safe
from tenuto.workspace.ports import Files

if TYPE_CHECKING:
    from tenuto.experiments.experiment import experiment

SHOWN = {
    Intent.REFUSE: 10,
    Intent.RUN: 30,
    Intent.RETRY: 30,
    Intent.RERUN: 30,
    Intent.WAIT: 10,
    Intent.REUSE: 10,
    Intent.SKIP: 3,
}
METHOD = "median time of earlier jobs of each task, in the order of the dependencies"


class Prediction(NamedTuple):
    """How long it would take, and for how many jobs the past does not tell."""

    seconds: float
    slots: int
    unknown: Counter[str]
    """Jobs of tasks that never ran, by task."""


class Plan(NamedTuple):
    """An experiment that was planned, with all that is to be said of it."""

    name: str
    workspace: str
    jobs: tuple[PlannedJob, ...]
    nearest: dict[str, Nearest]
    prediction: Prediction
    renamed: Mapping[str, str] = {}
    """Tasks that have no job yet, and the ids that they may have had before."""

    def counted(self) -> Counter[Intent]:
        """How many jobs there are of each kind."""
        return Counter(planned.intent for planned in self.jobs)

    def why(self, planned: PlannedJob) -> str:
        """Why this job would run, or would not, and what would follow."""
        return self._reason(planned) + planned.then

    def _reason(self, planned: PlannedJob) -> str:
        if planned.intent is not Intent.RUN:
            return planned.why
        near = self.nearest.get(planned.job.key)
        if near:
            return str(near)
        former = self.renamed.get(planned.job.task_id)
        if former is None:
            return "the first of its task here"
        return (
            f"the first of its task here; {former} has the same parameters: if it was renamed or moved, "
            f'keep its results by @deprecate, or by __xpmid__ = "{former}" (docs/valid.md)'
        )

    def lines(self, *, everything: bool = False) -> Iterator[str]:
        """For people."""
        counted = self.counted()
        parts = [f"{counted[intent]} {intent.value}" for intent in SHOWN if counted[intent]]
        yield f"{safe(self.name)} in {safe(self.workspace)}: {', '.join(parts) or 'no jobs'}"
        for intent, most in SHOWN.items():
            jobs = [planned for planned in self.jobs if planned.intent is intent]
            for planned in jobs if everything else jobs[:most]:
                job = planned.job
                name = f"{safe(job.task_id)} {job.job_id[:12]}{tag_text(job.tags, ' ')}"
                yield f"  {intent.value}: {name}: {safe(self.why(planned))}"
            if len(jobs) > most and not everything:
                yield f"  {intent.value}: and {len(jobs) - most} more (--all shows them)"
        yield from self._predicted(counted)

    def _predicted(self, counted: Counter[Intent]) -> Iterator[str]:
        if not any(intent.runs for intent in counted.elements()):
            yield "nothing would run"
            return
        unknown = self.prediction.unknown
        if unknown.total() < sum(intent.runs for intent in counted.elements()):
            took = duration(self.prediction.seconds)
            yield f"predicted time: {took}, {self.prediction.slots} jobs at once ({METHOD})"
        for task_id, number in unknown.items():
            jobs = "1 job" if number == 1 else f"{number} jobs"
            yield f"no prediction for {jobs} of {safe(task_id)}: none has ended well yet"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "name": self.name,
            "workspace": self.workspace,
            "predicted_s": round(self.prediction.seconds, 3),
            "unpredicted": self.prediction.unknown.total(),
            "slots": self.prediction.slots,
            "method": METHOD,
            "jobs": [self._job_json(planned) for planned in self.jobs],
        }

    def _job_json(self, planned: PlannedJob) -> dict[str, Any]:
        job, near = planned.job, self.nearest.get(planned.job.key)
        return {
            "task": job.task_id,
            "job": job.job_id,
            "tags": dict(job.tags),
            "intent": planned.intent.name,
            "why": self.why(planned),
            "depends_on": list(job.linked),
            "nearest": None
            if near is None
            else {
                "job": near.key.job_id,
                "differences": [
                    {"path": one.path, "new": plain_side(one.here), "old": plain_side(one.there)}
                    for one in near.changed
                ],
            },
        }


def plan_of(xp: experiment, files: Files) -> Plan:
    """Looks up what a plan is to say; writes nothing."""
    new = [planned.job for planned in xp.plan if planned.intent is Intent.RUN]
    nearest = nearest_earlier(files, new)
    planned = {one.job.task_id for one in xp.plan}
    first = {job.task_id: job for job in new if job.key not in nearest}
    renamed = {task_id: renamed_from(files, job, planned) for task_id, job in first.items()}
    return Plan(
        xp.name,
        str(xp.workspace.path),
        tuple(xp.plan),
        nearest,
        _predict(xp.plan, files),
        {task_id: former for task_id, former in renamed.items() if former is not None},
    )


def _predict(plan: list[PlannedJob], files: Files) -> Prediction:
    known: dict[str, Durations] = {}
    unknown: Counter[str] = Counter()
    steps: list[ForecastJob] = []
    slots: dict[str, int] = {}
    for job, intent, *_ in plan:
        if not (intent.runs or intent is Intent.WAIT):
            continue
        durations = known.setdefault(job.layout.root, Durations(files, job.layout))
        expected = durations.expected(job.task_id)
        if expected is None and intent.runs:
            unknown[job.task_id] += 1
        # What another run has started takes none of our slots.
        launcher = job.launcher.name if intent.runs else f"elsewhere {job.key}"
        slots[launcher] = job.launcher.slots if intent.runs else 1
        needs = tuple(dependency.origin.key for dependency in job.dependencies)
        steps.append(ForecastJob(job.key, expected or 0.0, needs, launcher))
    ours = {job.launcher.name: job.launcher.slots for job, intent, *_ in plan if intent.runs}
    return Prediction(makespan(steps, slots), sum(ours.values()), unknown)
