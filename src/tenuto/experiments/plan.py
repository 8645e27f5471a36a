"""What an experiment would do: the plan of a dry run."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import NamedTuple

from tenuto.lifecycle.states import JobState
from tenuto.scheduler.decisions import Arrival, on_arrival
from tenuto.workspace import job_directory
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Machine


@unique
class Intent(Enum):
    """What would happen to a job."""

    REUSE = "reused"
    WAIT = "running already"
    RUN = "to run"
    RETRY = "to run again"


class PlannedJob(NamedTuple):
    """One line of a plan."""

    task_id: str
    job_id: str
    intent: Intent
    why: str
    tags: Mapping[str, str] = {}
    depends_on: tuple[str, ...] = ()


def plan_job(machine: Machine, paths: JobPaths) -> tuple[Intent, str]:
    """What submitting a job would lead to, from what its directory shows; changes nothing."""
    found = job_directory.look(machine, paths).derived
    arrival = on_arrival(found)
    if arrival is Arrival.REUSE:
        return Intent.REUSE, "done before"
    if arrival is Arrival.ADOPT:
        return Intent.WAIT, "another run has started it"
    if found.state is JobState.ERROR:
        reason = found.reason.name if found.reason else "FAILED"
        return Intent.RETRY, f"failed before ({reason})"
    return Intent.RUN, "never run"
