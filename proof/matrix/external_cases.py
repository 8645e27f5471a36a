"""Owns the cases of the kill matrix with a cluster: schedulers and claimed runners are killed at each step.
Plays nothing.
"""

from __future__ import annotations

from proof.matrix.case import CANCELLED, FAILED
from proof.matrix.kinds import AT_WORK, ORACLE, Fields, Kind, also, crossed, striking, telling
from proof.matrix.steps import (
    ADOPTING_ELSEWHERE,
    EXTERNAL_PAYLOAD,
    EXTERNAL_RUNNER,
    EXTERNAL_SCHEDULER,
    FAILING_RUNNER,
    FURTHER_RUNNER,
    LATE_RUNNER,
    RECOVERING_ELSEWHERE,
    REVOKING,
    REVOKING_SCHEDULER,
    STOPPED_RUNNER,
    STOPPING,
    STOPPING_SCHEDULER,
    SUBMITTING,
    TAKING_OVER_ELSEWHERE,
)

CLUSTER = {"launcher": "cluster"}
CLAIMED = EXTERNAL_RUNNER.index("open claim")
UNLOCKED = EXTERNAL_RUNNER.index("lock0 oracle.lock")
"""The last step before which a runner that stands still can be given up."""
LOCKED = EXTERNAL_RUNNER.index("setsid")
HANDING_OVER = ["open params.json", "close oracle.lock #2", *SUBMITTING[5:], "_exit"]
"""Steps at which an attempt is open, before and after the cluster has it."""
FEW_OF_RUNNER = [
    "begin",
    "write claim",
    "lock1 oracle.lock",
    "write oracle.pid",
    "fork",
    "rename oracle.done",
]
LOST = {**AT_WORK, "runner": "open oracle.reserve"}
MENDING = [f"{step} oracle.lock #3" for step in ("open", "lock0", "close")]
"""Steps of a scheduler that sees the marker of a runner before the status: it looks who has the job."""


def distinct(operations: list[str]) -> list[str]:
    """Those of a runner that others can tell apart: all that are no looks."""
    return [operation for operation in telling(operations) if not operation.startswith("read ")]


EXTERNAL = Kind(
    "jobs that a cluster starts: a claim decides, and no lock is inherited",
    also(
        [
            *striking("scheduler", EXTERNAL_SCHEDULER),
            *striking("runner", EXTERNAL_RUNNER),
            *striking("payload", EXTERNAL_PAYLOAD),
            *ORACLE,
            *also(ORACLE, in_child=True),
            *striking("second", TAKING_OVER_ELSEWHERE, scheduler="close manifest"),
            *also(striking("second", ADOPTING_ELSEWHERE), **AT_WORK),
            *also(striking("second", RECOVERING_ELSEWHERE), **LOST),
        ],
        **CLUSTER,
    ),
    also(
        [
            *striking("scheduler", telling(EXTERNAL_SCHEDULER), end=FAILED),
            *striking("runner", distinct(FAILING_RUNNER), end=FAILED),
            *striking("runner", EXTERNAL_RUNNER[CLAIMED:], apart=True),
            *striking("scheduler", HANDING_OVER, blow="late"),
            *striking("scheduler", HANDING_OVER, blow="pause"),
            *striking("scheduler", telling(EXTERNAL_SCHEDULER), together=True),
            *crossed(striking("scheduler", HANDING_OVER), striking("runner", FEW_OF_RUNNER)),
        ],
        **CLUSTER,
    ),
    few=[
        *also(
            striking("runner", [*EXTERNAL_RUNNER[CLAIMED : CLAIMED + 3], "fork", "rename oracle.done"]),
            **CLUSTER,
        ),
        *also(striking("scheduler", ["close oracle.lock #2", "rename submission", "_exit"]), **CLUSTER),
        {**CLUSTER, "scheduler": "close manifest", "blow": "pause"},
    ],
)

PENDING: Fields = {**CLUSTER, "end": CANCELLED, "cancel": "pending"}
RUNNING: Fields = {**CLUSTER, "end": CANCELLED, "cancel": "running"}
CANCELLED_JOBS = Kind(
    "jobs that are cancelled while their cluster has them, pending or running",
    [
        *also(striking("scheduler", ["close manifest", "rename submission", *REVOKING, "_exit"]), **PENDING),
        *also(striking("scheduler", [*STOPPING, "_exit"]), **RUNNING),
        *also(striking("runner", STOPPED_RUNNER), **RUNNING),
    ],
    [
        *also(striking("scheduler", REVOKING_SCHEDULER[::5]), **PENDING),
        *also(striking("scheduler", STOPPING_SCHEDULER[::5]), **RUNNING),
        # The cluster starts what was revoked, once all schedulers are gone. A claim that was written half
        # may be a runner's: the next scheduler waits for the cluster, and not for one that starts so late.
        *also(
            striking("scheduler", ["rename submission", *REVOKING[:4], *REVOKING[5:], "_exit"], fate="deaf"),
            **PENDING,
        ),
        *also(striking("runner", LATE_RUNNER, fate="deaf"), **PENDING),
        *also(striking("scheduler", ["open claim", "rename cancelled_0"], fate="deaf"), **RUNNING),
        *also(striking("scheduler", REVOKING[3:6], blow="late"), **PENDING),
        *also(striking("runner", EXTERNAL_RUNNER[: UNLOCKED + 1], stands=True, fate="deaf"), **PENDING),
        *also(
            crossed(striking("scheduler", STOPPING[::3]), striking("runner", STOPPED_RUNNER[-18::5])),
            **RUNNING,
        ),
    ],
    few=[
        *also(striking("scheduler", ["close claim", "rename oracle.failed"], fate="deaf"), **PENDING),
        *also(striking("scheduler", ["open claim"]), **RUNNING),
        *also(striking("runner", ["lock0 oracle.lock"], stands=True, fate="deaf"), **PENDING),
    ],
)

STANDING: Fields = {"runner": "open claim", "stands": True, "blow": "pause"}
"""A runner that goes on right when the scheduler stands still that gives its attempt up."""
GIVING_UP = ["open claim", "write claim", "close claim", "lock0 oracle.lock #4", "rename launch.json #2"]
FATES = Kind(
    "a cluster that starts twice, forgets, loses nodes and cannot know what still runs",
    also(
        [
            *striking("runner", EXTERNAL_RUNNER[: LOCKED + 1], stands=True),
            *striking("runner", distinct(EXTERNAL_RUNNER)[::2], fate="unconfirmed"),
            *striking("runner", FEW_OF_RUNNER, fate="forgotten"),
            *striking("runner", EXTERNAL_RUNNER[CLAIMED - 1 : LOCKED : 2], fate="twice"),
            *striking("scheduler", HANDING_OVER[-3:], fate="lying", apart=True),
            *striking("scheduler", HANDING_OVER[-3:], fate="forgotten", apart=True),
        ],
        **CLUSTER,
    ),
    also(
        [
            *striking("runner", distinct(EXTERNAL_RUNNER)[1::2], fate="unconfirmed"),
            *striking("runner", distinct(EXTERNAL_RUNNER), fate="forgotten"),
            *striking("runner", EXTERNAL_RUNNER, fate="twice"),
            *striking("runner", EXTERNAL_RUNNER[CLAIMED:], fate="unconfirmed", apart=True),
            *striking("runner", FEW_OF_RUNNER[2:], fate="lying"),
            *striking("scheduler", HANDING_OVER, fate="twice"),
            *striking("scheduler", HANDING_OVER[-3:], fate="twice", together=True),
            *striking("scheduler", GIVING_UP, **STANDING),
            *striking("scheduler", GIVING_UP, **STANDING, apart=True),
            {"fate": "lying", "apart": True},
            {"fate": "forgotten", "apart": True},
            {"fate": "twice", "apart": True},
        ],
        **CLUSTER,
    ),
    few=[
        *also(striking("runner", ["close claim", "lock0 oracle.lock"], stands=True), **CLUSTER),
        *also(striking("runner", ["write oracle.pid"], fate="forgotten"), **CLUSTER),
        {**CLUSTER, "scheduler": "_exit", "fate": "lying", "apart": True},
        {**CLUSTER, **STANDING, "scheduler": "rename launch.json #2", "apart": True},
    ],
)

ORDERS: Fields = {**CLUSTER, "orders": 2}
FURTHER = Kind(
    "two jobs of one submission, which the runner of the first runs as a further order",
    also([*striking("runner", FURTHER_RUNNER), {}], **ORDERS),
    also(
        [
            *striking("scheduler", [*HANDING_OVER, "rename launch.json #2", "close oracle.lock #3"]),
            *crossed(striking("scheduler", ["_exit"]), striking("runner", distinct(FURTHER_RUNNER)[1::6])),
            *striking("runner", distinct(FURTHER_RUNNER)[::3], fate="twice"),
            *striking("runner", distinct(FURTHER_RUNNER)[1::3], apart=True),
        ],
        **ORDERS,
    ),
    few=also(striking("runner", ["write taken", "write claim #2", "fork #2"]), **ORDERS),
)
