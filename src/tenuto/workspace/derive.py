"""The state of a job, derived from what its directory shows: one pure function and its table.
Reads nothing; `job_directory.read_evidence` collects what it needs.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import NamedTuple

from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.markers import Marker, MarkersFound
from tenuto.workspace.ports import Liveness
from tenuto.workspace.records import Corrupt, LaunchRecord, PidRecord


@unique
class ClusterSays(Enum):
    """What a cluster says about a job it runs."""

    NOTHING = "no answer"
    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


class ClusterReport(NamedTuple):
    says: ClusterSays = ClusterSays.NOTHING
    reason: JobFailureStatus = JobFailureStatus.LOST
    message: str | None = None


class Evidence(NamedTuple):
    """Everything a directory shows at one moment."""

    markers: MarkersFound = MarkersFound()
    launch: LaunchRecord | Corrupt | None = None
    pid: PidRecord | Corrupt | None = None
    liveness: Liveness = Liveness.UNKNOWN
    """Of the process in the pid record; only looked at if there is one of this attempt."""
    locked: bool = False
    """Byte 0 is held by somebody other than the one who asks."""
    descendants: bool = False
    """Byte 1 is held."""
    cluster: ClusterReport = ClusterReport()


@unique
class Action(Enum):
    """What a scheduler that wants the job done does next."""

    KEEP = "nothing: the state is final"
    START = "start it, or retry it if the rules allow"
    WATCH = "wait: somebody else has it"
    SWEEP = "end the leftovers, then derive again"


class Derived(NamedTuple):
    """What the evidence amounts to."""

    state: JobState
    action: Action
    row: str
    """The name of the table's row that decided."""
    reason: JobFailureStatus | None = None
    message: str | None = None
    alarm: str | None = None
    """Something a person should look at, though the state is clear."""
    attempt: int = 0
    """The current attempt; 0 if there was none."""
    marker: Marker | None = None
    """The marker that decided, if one did."""
    payload_may_have_run: bool = False
    """False if it is certain that the current attempt never reached the task's code."""


def derive_state(evidence: Evidence) -> Derived:
    """The first row of the table that fits the evidence."""
    raise NotImplementedError
