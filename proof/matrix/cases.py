"""Owns the cases of the kill matrix, by kind: each step alone, and steps of several processes together.
Plays nothing.

A case kills the first scheduler, the second one, the first runner or the first payload that gets to a step;
then another scheduler submits the same job.
"""

from __future__ import annotations

from typing import Any

from proof.matrix.external_cases import CANCELLED_JOBS, EXTERNAL, FATES, FURTHER
from proof.matrix.kinds import (
    AT_WORK,
    MOMENTS,
    ORACLE,
    STRIKERS,
    Fields,
    Kind,
    also,
    checkered,
    crossed,
    different,
    spread,
    striking,
    telling,
)
from proof.matrix.steps import (
    ADOPTING,
    FRESH_PAYLOAD,
    FRESH_RUNNER,
    LEAVING,
    LOCKS_FILE,
    OVERTAKING,
    PARENT,
    PAYLOAD,
    QUEUED_SCHEDULER,
    QUEUEING,
    RECOVERING,
    RUNNER,
    SCHEDULER,
    SCHEDULER_AGAIN,
    SPARE_PAYLOAD,
    SPARE_RUNNER,
    TAKING_OVER,
    TOKEN,
    TOKEN_PARENT,
    TOKEN_PAYLOAD,
    TOKEN_SCHEDULER,
    TOKEN_WARM_SCHEDULER,
    WARM_RUNNER,
    WARM_SCHEDULER,
)

STARTED = ["posix_spawn", "pidfd_open", "close oracle.lock #2", "close oracle.lock #3", "waitid"]
WARM_STARTED = WARM_SCHEDULER[-4:]
OTHERS = [case for case in ORACLE if case["victim"] != "scheduler"]
WARM_ORACLE = [*ORACLE, *({"victim": "parent", "moment": moment} for moment in MOMENTS)]
FEW_OF_RUNNER = striking("runner", ["begin", "write oracle.pid", "fork", "rename oracle.done"])

ALONE = [
    *striking("scheduler", SCHEDULER),
    *striking("runner", RUNNER),
    *striking("payload", PAYLOAD),
    *ORACLE,
]
DIRECT = Kind(
    "scheduler, runner and payload of a job that is started directly",
    [
        *ALONE,
        *also(ORACLE, in_child=True),
        *striking("scheduler", SCHEDULER_AGAIN, again=True),
        *striking("runner", RUNNER, again=True),
    ],
    [
        *crossed(striking("scheduler", STARTED), striking("payload", PAYLOAD)),
        *crossed(striking("scheduler", STARTED), OTHERS),
        *crossed(striking("runner", telling(RUNNER)), striking("payload", ["begin", "chdir job", "execvp"])),
        *crossed(
            striking("scheduler", SCHEDULER_AGAIN, again=True),
            striking("runner", ["begin", "write oracle.pid", "rename oracle.done"]),
        ),
        *crossed(
            striking("scheduler", STARTED[1:4]),
            striking("runner", ["write ready", "fork", "rename oracle.done"]),
            [{"payload": "execvp"}, {"victim": "payload", "moment": "middle"}],
        ),
        *crossed(striking("scheduler", telling(SCHEDULER)), striking("runner", telling(RUNNER))),
    ],
)

WARM_ALONE = [
    *striking("scheduler", WARM_SCHEDULER),
    *striking("parent", PARENT),
    *striking("runner", WARM_RUNNER),
    *striking("payload", PAYLOAD),
    *WARM_ORACLE,
]
WARM = Kind(
    "the same with a warm parent, which is killed too",
    also([*WARM_ALONE, *also(ORACLE, in_child=True)], launcher="warm"),
    also(
        [
            *crossed(striking("parent", PARENT), striking("scheduler", WARM_STARTED)),
            *crossed(striking("parent", PARENT[4:]), striking("runner", telling(WARM_RUNNER))),
            *crossed(striking("parent", PARENT[4:]), striking("payload", ["begin", "execvp"])),
            *crossed(striking("scheduler", WARM_STARTED), striking("runner", telling(WARM_RUNNER))),
            *crossed(striking("scheduler", WARM_STARTED), OTHERS),
        ],
        launcher="warm",
    ),
)

SPAWN = Kind(
    "a Python task in a fresh interpreter, whose runner has a parent too",
    also(
        [*striking("runner", FRESH_RUNNER), *striking("payload", FRESH_PAYLOAD), *WARM_ORACLE],
        launcher="spawn",
    ),
    also(
        [
            *striking("scheduler", WARM_SCHEDULER),
            *striking("parent", PARENT),
            *also(ORACLE, in_child=True),
            *crossed(striking("parent", PARENT[4:]), striking("payload", FRESH_PAYLOAD)),
            *crossed(striking("runner", telling(FRESH_RUNNER)), striking("payload", FRESH_PAYLOAD)),
            *crossed(striking("scheduler", WARM_STARTED), striking("payload", FRESH_PAYLOAD)),
        ],
        launcher="spawn",
    ),
)

SPARE_STEPS = [
    *SPARE_RUNNER[:7],
    *("write oracle.pid", "close ready", "close descendants", "rename oracle.done"),
]
"""The steps before there is a job, and the hand-over to the payload; then it is a runner as any other."""
SPARE = Kind(
    "a Python task in an interpreter that imported its modules before there was the job",
    also(
        [*striking("runner", SPARE_STEPS), *striking("payload", SPARE_PAYLOAD), *ORACLE[1::3]],
        launcher="spare",
    ),
    also(
        [
            *striking("runner", SPARE_RUNNER),
            *ORACLE,
            *striking("scheduler", SCHEDULER),
            *also(ORACLE, in_child=True),
            *crossed(striking("runner", telling(SPARE_RUNNER)), striking("payload", SPARE_PAYLOAD[4:])),
            *crossed(striking("scheduler", STARTED), striking("payload", SPARE_PAYLOAD[4:])),
            *crossed(striking("scheduler", STARTED), striking("runner", telling(SPARE_RUNNER)[5:])),
        ],
        launcher="spare",
    ),
)

TOKEN_ONLY = [*TOKEN, *LOCKS_FILE, "posix_spawn", "close pair.units"]
TOKEN_STARTED = TOKEN_ONLY[7:]
QUEUED_ONLY = [*QUEUEING, *LEAVING]
TOKEN_ALONE = [
    *striking("scheduler", TOKEN_SCHEDULER),
    *striking("runner", RUNNER),
    *striking("payload", TOKEN_PAYLOAD),
    *ORACLE,
]
TOKENS = Kind(
    "jobs that need a token: at once, or after queueing for it",
    also(
        [
            *TOKEN_ALONE,
            *striking("scheduler", QUEUED_ONLY, busy=True),
            *striking("scheduler", TOKEN_ONLY, launcher="warm"),
            *striking("parent", TOKEN_PARENT, launcher="warm"),
            # The work lasts until the other job has asked for the units, which must not be free.
            AT_WORK,
            {**AT_WORK, "launcher": "warm"},
            *striking("scheduler", ["pidfd_open", *STARTED[2:4], "close pair.units"], seen=True),
            *striking("scheduler", [*WARM_STARTED[1:3], "close pair.units"], seen=True, launcher="warm"),
        ],
        token=True,
    ),
    also(
        [
            *also(striking("scheduler", TOKEN_WARM_SCHEDULER), launcher="warm"),
            *also(striking("runner", WARM_RUNNER), launcher="warm"),
            *also(WARM_ORACLE, launcher="warm"),
            *striking("scheduler", QUEUED_SCHEDULER, busy=True),
            *crossed(striking("scheduler", TOKEN_STARTED), striking("runner", telling(RUNNER))),
            *crossed(striking("scheduler", TOKEN_STARTED[-3:]), striking("payload", TOKEN_PAYLOAD)),
            *crossed(striking("scheduler", TOKEN_STARTED[-3:]), OTHERS),
            *also(
                crossed(striking("parent", TOKEN_PARENT[4:]), striking("runner", telling(WARM_RUNNER)[::3])),
                launcher="warm",
            ),
            *crossed(striking("scheduler", QUEUED_ONLY, busy=True), FEW_OF_RUNNER),
        ],
        token=True,
    ),
)

LOST = {**AT_WORK, "runner": "open oracle.reserve"}
"""The same, and then the runner dies too."""
ENDING = RUNNER[RUNNER.index("setpgid") + 1 :]
WATCHING = ADOPTING[ADOPTING.index("pidfd_open") :]
ADOPTION = Kind(
    "a second scheduler takes a job over and is killed; a third one ends it",
    [
        *also(striking("second", ADOPTING), **AT_WORK),
        *also(striking("second", ADOPTING), **AT_WORK, launcher="warm"),
        *also(striking("second", ADOPTING), **AT_WORK, token=True),
        *also(striking("second", RECOVERING), **LOST),
        *striking("second", TAKING_OVER, scheduler="posix_spawn"),
    ],
    [
        *crossed(striking("scheduler", STARTED[1:4], seen=True), striking("second", ADOPTING)),
        *also(
            crossed(striking("scheduler", WARM_STARTED[1:3], seen=True), striking("second", ADOPTING)),
            launcher="warm",
        ),
        *also(
            crossed(striking("runner", ENDING), striking("second", [*WATCHING[:2], *RECOVERING[1::7]])),
            **AT_WORK,
        ),
        *also(crossed(striking("runner", ENDING), striking("second", WATCHING)), **AT_WORK, token=True),
        *also(
            crossed(
                striking("parent", PARENT[-2:]), striking("second", ["pidfd_open", "read stop.json", "_exit"])
            ),
            **AT_WORK,
            launcher="warm",
        ),
        *crossed(
            striking("scheduler", telling(SCHEDULER)[6:-6]),
            striking("second", telling(TAKING_OVER)[6::3]),
        ),
    ],
)

_UNLOCKED = "mkdir .tenuto #3"
"""The last step of a scheduler at which any other can overtake it."""
RACES = Kind(
    "two schedulers at once; one of them dies, dies late, or stands still for a while",
    [
        *also(ALONE, together=True),
        *striking("scheduler", SCHEDULER, blow="late"),
        *striking("scheduler", SCHEDULER, blow="pause"),
        *striking("second", OVERTAKING, scheduler=_UNLOCKED, blow="pause"),
        *striking("scheduler", TOKEN_ONLY, blow="late", token=True),
        *striking("scheduler", TOKEN_ONLY, blow="pause", token=True),
    ],
    [
        *also(WARM_ALONE, together=True, launcher="warm"),
        *striking("scheduler", WARM_SCHEDULER, blow="late", launcher="warm"),
        *striking("scheduler", WARM_SCHEDULER, blow="pause", launcher="warm"),
        *also(TOKEN_ALONE, together=True, token=True),
        *striking("scheduler", TOKEN_SCHEDULER, blow="late", token=True),
        *striking("scheduler", TOKEN_SCHEDULER, blow="pause", token=True),
        *striking("scheduler", SCHEDULER_AGAIN, again=True, together=True),
        *striking("scheduler", SCHEDULER_AGAIN, again=True, blow="late"),
        *striking("scheduler", SCHEDULER_AGAIN, again=True, blow="pause"),
        *striking("scheduler", QUEUED_ONLY, token=True, busy=True, together=True),
        *crossed(striking("scheduler", telling(SCHEDULER), blow="late"), FEW_OF_RUNNER),
        *crossed(striking("scheduler", telling(SCHEDULER), blow="pause"), FEW_OF_RUNNER),
        *crossed(striking("second", telling(OVERTAKING), scheduler=_UNLOCKED, blow="pause"), FEW_OF_RUNNER),
        *checkered(
            striking("scheduler", telling(SCHEDULER), together=True), striking("second", telling(OVERTAKING))
        ),
    ],
)

KINDS = {
    "direct": DIRECT,
    "warm": WARM,
    "spawn": SPAWN,
    "spare": SPARE,
    "tokens": TOKENS,
    "adoption": ADOPTION,
    "races": RACES,
    "external": EXTERNAL,
    "cancelled": CANCELLED_JOBS,
    "fates": FATES,
    "further": FURTHER,
}


def sampled(most: int) -> dict[str, list[Fields]]:
    """About so many cases, by kind: those whose blows are certain, every operation of every process once (but
    of kinds of which few are enough), and the rest spread over all others."""
    sample = {name: different([*kind.certain(), *(kind.few or ())]) for name, kind in KINDS.items()}
    struck = {blow for cases in sample.values() for case in cases for blow in blows(case)}
    left = {name: iter(kind.all()) for name, kind in KINDS.items() if kind.few is None}
    while left:
        name = min(left, key=lambda name: len(sample[name]))
        case = next((case for case in left[name] if not blows(case) <= struck), None)
        if case is None:
            del left[name]
        else:
            sample[name].append(case)
            struck |= blows(case)
    each = max(0, most - sum(map(len, sample.values()))) // len(KINDS)
    return {
        name: different([*cases, *spread([case for case in KINDS[name].all() if case not in cases], each)])
        for name, cases in sample.items()
    }


def blows(case: Fields) -> set[tuple[str, Any]]:
    """The processes that a case strikes, each with the operation before which it is struck."""
    return {(who, case[who]) for who in STRIKERS if who in case}
