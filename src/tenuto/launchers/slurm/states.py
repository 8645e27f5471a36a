"""What Slurm's states mean for an attempt: one table.
Pure; `commands` reads the states, `cluster` acts on the meaning.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace.derive_table import ClusterSays


class Meaning(NamedTuple):
    """What a state says of an attempt."""

    says: ClusterSays
    reason: JobFailureStatus = JobFailureStatus.LOST
    """Why there is no marker, if there is none."""
    confirmed: bool = True
    """False: Slurm believes that it ended, and cannot know; the fence decides."""
    blameless: bool = False


PENDING = Meaning(ClusterSays.PENDING)
RUNNING = Meaning(ClusterSays.RUNNING)
EXITED = Meaning(ClusterSays.ENDED)
FORGOTTEN = Meaning(ClusterSays.ENDED, confirmed=False, blameless=True)
"""Slurm no longer knows the job."""

STATES: dict[str, Meaning] = {
    **dict.fromkeys(
        ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"), PENDING
    ),
    **dict.fromkeys(("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"), RUNNING),
    **dict.fromkeys(("COMPLETED", "FAILED"), EXITED),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), Meaning(ClusterSays.ENDED, JobFailureStatus.TIMEOUT)),
    "OUT_OF_MEMORY": Meaning(ClusterSays.ENDED, JobFailureStatus.MEMORY),
    **dict.fromkeys(("CANCELLED", "REVOKED"), Meaning(ClusterSays.ENDED, JobFailureStatus.CANCELLED)),
    **dict.fromkeys(("PREEMPTED", "BOOT_FAIL"), Meaning(ClusterSays.ENDED, blameless=True)),
    "NODE_FAIL": Meaning(ClusterSays.ENDED, confirmed=False, blameless=True),
}
"""A state that is not listed means that the job may run: an unknown word never ends a job."""

NEVER_STARTS = frozenset(
    {"DependencyNeverSatisfied", "PartitionConfig", "BadConstraints", "PartitionTimeLimit"}
)
"""Reasons of pending jobs that no waiting cures; besides those that begin with `JobHeld`."""


@cache
def meaning_of(state: str) -> Meaning:
    """What a state means; sacct writes `CANCELLED by 1000`."""
    return STATES.get(state.partition(" ")[0].rstrip("+"), RUNNING)


def pending_text(reason: str) -> str:
    """What a person is told of a job that waits in Slurm's queue."""
    if reason in NEVER_STARTS or reason.startswith("JobHeld"):
        return f"it waits in Slurm's queue and will not start: {reason}"
    return "it waits in Slurm's queue" + ("" if reason in ("", "None") else f": {reason}")
