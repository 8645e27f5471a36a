"""What an experiment would do: the plan of a dry run."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, unique
from typing import NamedTuple

from tenuto.errors import DefaultChanged
from tenuto.jobs.inquiry import Inquiry
from tenuto.jobs.reuse import Validity
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.scheduler.decisions import Arrival, on_arrival
from tenuto.scheduler.jobs import Job
from tenuto.workspace import job_directory
from tenuto.workspace.ports import Machine


@unique
class Intent(Enum):
    """What would happen to a job."""

    REUSE = "reused"
    WAIT = "running already"
    RUN = "to run"
    RETRY = "to run again"
    RERUN = "to run once more"
    REFUSE = "refused"
    SKIP = "not needed"

    @property
    def runs(self) -> bool:
        """Whether the job would be started."""
        return self in (Intent.RUN, Intent.RETRY, Intent.RERUN)


class PlannedJob(NamedTuple):
    """One line of a plan."""

    job: Job
    intent: Intent
    why: str

    def __str__(self) -> str:
        tags = "".join(f" {name}={value}" for name, value in self.job.tag_texts.items())
        return f"{self.intent.value}: {self.job.task_id} {self.job.job_id[:12]}{tags} ({self.why})"


def plan_job(machine: Machine, job: Job, validity: Validity, inquiry: Inquiry) -> PlannedJob:
    """What submitting a job would lead to, by its directory and its cluster; writes nothing.

    `inquiry`: asks the clusters that may have the job, for two seconds in all of a plan.
    A job that is done is shown as done, so that a script can read its result while it is planned.
    """
    found = job_directory.look(machine, job.paths, ask=inquiry).derived
    arrival = on_arrival(found)
    if arrival is Arrival.REUSE:
        changed = validity.changed_file(found.marker)
        try:
            job.reruns = found.marker is not None and not validity(job, found.marker)
        except DefaultChanged as refusal:
            return PlannedJob(job, Intent.REFUSE, str(refusal))
        if job.reruns:
            why = f"{changed} has changed since it was done" if changed else "what it depends on is run again"
            return PlannedJob(job, Intent.RERUN, why)
        job.marker = found.marker
        job.state = JobState.DONE
        why = f"done before; {changed} has changed since" if changed else "done before"
        return PlannedJob(job, Intent.REUSE, why)
    if arrival is Arrival.ADOPT:
        return PlannedJob(job, Intent.WAIT, "another run has started it")
    if found.state is JobState.ERROR:
        reason = found.reason.name if found.reason else "FAILED"
        return PlannedJob(job, Intent.RETRY, f"failed before ({reason})")
    return PlannedJob(job, Intent.RUN, "never run")


def without_unneeded(plan: Iterable[PlannedJob]) -> list[PlannedJob]:
    """The plan, in which a transient job runs only if a job that runs depends on it."""
    planned = list(plan)
    needed: set[str] = set()
    for position in range(len(planned) - 1, -1, -1):  # what a job depends on was submitted before it
        job, intent, _ = planned[position]
        if intent.runs and job.transient is not TransientMode.NONE and job.key not in needed:
            planned[position] = PlannedJob(job, Intent.SKIP, "transient, and nothing that runs needs it")
        elif intent.runs:
            needed.update(dependency.origin.key for dependency in job.dependencies)
    return planned
