"""Schedulers, runners and payloads killed before each of their operations, alone and together (F01, F02).

The tables below name every operation of one job that another process could notice, in order; `killing` says
why to strike before each of them is to strike everywhere. A case kills the first scheduler, the first runner
or the first payload that gets there; then another scheduler submits the same job. `matrix.judged` is the
oracle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

MATRIX = Path(__file__).with_name("matrix.py")
THEATRES = 2
"""Cases are played one after the other in each of these processes."""

# -- the steps, numbered as in the lifecycle's "Starting a job" --------------------------------------

SCHEDULER = [
    # 2 submit finds out whether the directory can be used
    *"mkdir .tenuto, mkdir job, mkdir oracle, mkdir jobs, mkdir ws".split(", "),
    *"mkdir jobs #2, mkdir oracle #2, mkdir job #2, mkdir .tenuto #2".split(", "),
    *"open oracle.lock, lock0 oracle.lock, close oracle.lock".split(", "),
    # 2, 3 the lock, for good
    *"mkdir .tenuto #3, open oracle.lock #2, lock0 oracle.lock #2".split(", "),
    # 4 the intent; what older attempts left goes
    *"open oracle.reserve, posix_fallocate oracle.reserve, close oracle.reserve".split(", "),
    *"open launch.json.tmp, write launch.json.tmp, ftruncate launch.json.tmp".split(", "),
    *"close launch.json.tmp, rename launch.json".split(", "),
    *"open oracle.lock #3, lock1 oracle.lock".split(", "),
    # 5 what the runner reads
    *"open params.json, write params.json, close params.json".split(", "),
    *"open oracle.py, write oracle.py, close oracle.py".split(", "),
    *"open status.json, write status.json, close status.json".split(", "),
    # 6, 8, 11
    *"posix_spawn, pidfd_open, close oracle.lock #2, close oracle.lock #3, waitid, _exit".split(", "),
]
SCHEDULER_AGAIN = [
    # 2, 3
    *"mkdir .tenuto, open oracle.lock, lock0 oracle.lock, close oracle.lock".split(", "),
    *"mkdir .tenuto #2, open oracle.lock #2, lock0 oracle.lock #2".split(", "),
    # 4
    *"rename oracle.out.1, rename oracle.err.1".split(", "),
    *"open oracle.reserve, posix_fallocate oracle.reserve, close oracle.reserve".split(", "),
    *"open launch.json.tmp, write launch.json.tmp, ftruncate launch.json.tmp".split(", "),
    *"close launch.json.tmp, rename launch.json".split(", "),
    *"unlink oracle.done, unlink oracle.failed, unlink oracle.pid".split(", "),
    *"unlink stop.json, unlink locks.json, unlink result.json".split(", "),
    *"open oracle.lock #3, lock1 oracle.lock".split(", "),
    # 5
    *"open params.json, open params.json.tmp, write params.json.tmp".split(", "),
    *"ftruncate params.json.tmp, close params.json.tmp, rename params.json".split(", "),
    *"open oracle.py, open oracle.py.tmp, write oracle.py.tmp".split(", "),
    *"ftruncate oracle.py.tmp, close oracle.py.tmp, rename oracle.py".split(", "),
    *"open status.json, open status.json.tmp, write status.json.tmp".split(", "),
    *"ftruncate status.json.tmp, close status.json.tmp, rename status.json".split(", "),
    # 6, 8, 11
    *"posix_spawn, pidfd_open, close oracle.lock #2, close oracle.lock #3, waitid, _exit".split(", "),
]
"""The same where an attempt before has failed."""
RUNNER = [
    "begin",
    *"lock0 lock, lock1 descendants, setsid".split(", "),
    # 7 the pid record, once all is ready for the payload
    *"open oracle.out, open oracle.err, open oracle.pid, write oracle.pid, close oracle.pid".split(", "),
    *"write ready, close ready".split(", "),
    # 9 the payload
    *"fork, close descendants, setpgid".split(", "),
    # 10 the marker, then the status
    *"open oracle.reserve, write oracle.reserve, ftruncate oracle.reserve".split(", "),
    *"fsync oracle.reserve, close oracle.reserve, rename oracle.done".split(", "),
    *"open status.json, open status.json.tmp, write status.json.tmp".split(", "),
    *"ftruncate status.json.tmp, close status.json.tmp, rename status.json".split(", "),
    "_exit",
]
PAYLOAD = [
    *"begin, close lock, setpgid, dup2, dup2 #2, close oracle.out, close oracle.err".split(", "),
    *"chdir job, execvp".split(", "),
]
# The same under the warm launcher: what differs, and the parent.
WARM_SCHEDULER = [step for step in SCHEDULER if step not in ("pidfd_open", "waitid")]
WARM_RUNNER = [
    *"begin, open oracle.err, dup2, dup2 #2, close oracle.err".split(", "),
    *("open oracle.err #2" if step == "open oracle.err" else step for step in RUNNER[1:]),
]
PARENT = [
    *"begin, pidfd_open, recvmsg, sendmsg, recvmsg #2, fork".split(", "),
    *"close ready, close descendants, close lock, pidfd_open #2, sendmsg #2, recvmsg #3, _exit".split(", "),
]
# The same for a job that needs a token.
TOKEN = [
    # 2 the lock of the queue, the number of the scheduler, then all or none
    *"open queue.lock, lock0 queue.lock, open schedulers.lock, lock0 schedulers.lock".split(", "),
    *"mkdir .tenuto #3, open oracle.lock #2, lock0 oracle.lock #2".split(", "),
    *"open pair.units, lock0 pair.units, close queue.lock".split(", "),
]
LOCKS_FILE = "open locks.json, write locks.json, close locks.json".split(", ")


def with_token(scheduler: list[str]) -> list[str]:
    """The steps of a scheduler, and those for the token among them."""
    taken = scheduler.index("lock0 oracle.lock #2") + 1
    spawned = scheduler.index("posix_spawn")
    closed = scheduler.index("close oracle.lock #2") + 1
    return [
        *(*scheduler[: taken - 3], *TOKEN, *scheduler[taken:spawned], *LOCKS_FILE),
        *(*scheduler[spawned:closed], "close pair.units", *scheduler[closed:]),
    ]


TOKEN_SCHEDULER = with_token(SCHEDULER)
TOKEN_WARM_SCHEDULER = with_token(WARM_SCHEDULER)
TOKEN_PAYLOAD = [*PAYLOAD[:-2], "close units", *PAYLOAD[-2:]]
TOKEN_PARENT = [*PARENT[:6], "close units", *PARENT[6:]]
QUEUEING = [
    *"open queue.json.tmp, write queue.json.tmp, close queue.json.tmp, rename queue.json".split(", "),
    *"close queue.lock, open queue.lock #2, rename queue.json #2, lock0 pair.units".split(", "),
]
"""What a scheduler does besides if the token is in use when it comes."""
VICTIMS = ("payload", "runner", "scheduler")
MOMENTS = ("start", "middle", "end")

Case = dict[str, Any]


def striking(who: str, operations: Iterable[str], **more: Any) -> list[Case]:
    return [{who: operation, **more} for operation in operations]


def telling(operations: list[str]) -> list[str]:
    """Without those that leave all as it was for whoever comes next; they are struck alone, not in pairs."""
    silent = (
        "mkdir",
        "ftruncate",
        "posix_fallocate",
        "fsync",
        "unlink stop",
        "unlink locks",
        "unlink result",
    )
    unread = ("params.json", "oracle.py", "launch.json.tmp")
    return [
        operation
        for operation in operations
        if not operation.startswith(silent)
        and not (operation.endswith(unread) and operation.startswith(("open", "close")))
    ]


def crossed(one: list[Case], other: list[Case]) -> list[Case]:
    return [{**a, **b} for a, b in product(one, other)]


ORACLE = [{"victim": victim, "moment": moment} for victim, moment in product(VICTIMS, MOMENTS)]
ALONE = [
    *striking("scheduler", SCHEDULER),
    *striking("runner", RUNNER),
    *striking("payload", PAYLOAD),
    *ORACLE,
    *({**case, "in_child": True} for case in ORACLE),
]
AT_ONCE = [
    *striking("scheduler", SCHEDULER, together=True),
    *striking("runner", RUNNER, together=True),
    *striking("payload", PAYLOAD, together=True),
    *({**case, "together": True} for case in ORACLE),
]
AGAIN = [
    *striking("scheduler", SCHEDULER_AGAIN, again=True),
    *striking("runner", RUNNER, again=True),
    *striking("scheduler", SCHEDULER_AGAIN, again=True, together=True),
    *(
        {"scheduler": scheduler, "runner": runner, "again": True}
        for scheduler in SCHEDULER_AGAIN
        for runner in ("begin", "write oracle.pid", "rename oracle.done")
    ),
]
STARTED = ["posix_spawn", "pidfd_open", "close oracle.lock #2", "close oracle.lock #3", "waitid"]
PAIRS = [
    # Every second field of the board; all of them when there is time (see below).
    *(
        {"scheduler": scheduler, "runner": runner}
        for row, scheduler in enumerate(telling(SCHEDULER))
        for runner in telling(RUNNER)[row % 2 :: 2]
    ),
    *crossed(striking("scheduler", STARTED), striking("payload", PAYLOAD)),
    *crossed(striking("scheduler", STARTED), [case for case in ORACLE if case["victim"] != "scheduler"]),
    *crossed(striking("runner", telling(RUNNER)), striking("payload", ["begin", "chdir job", "execvp"])),
]
TRIPLES = crossed(
    crossed(
        striking("scheduler", STARTED[1:4]), striking("runner", ["write ready", "fork", "rename oracle.done"])
    ),
    [{"payload": "execvp"}, {"victim": "payload", "moment": "middle"}],
)
if os.environ.get("HYPOTHESIS_PROFILE") == "prove":
    PAIRS = crossed(striking("scheduler", SCHEDULER), striking("runner", RUNNER)) + PAIRS
    TRIPLES = crossed(
        crossed(striking("scheduler", STARTED), striking("runner", RUNNER)), striking("payload", PAYLOAD)
    )

WARM_ORACLE = [*ORACLE, *({"victim": "parent", "moment": moment} for moment in MOMENTS)]
WARM = [
    {**case, "launcher": "warm"}
    for case in (
        *striking("scheduler", WARM_SCHEDULER),
        *striking("parent", PARENT),
        *striking("runner", WARM_RUNNER),
        *striking("payload", PAYLOAD),
        *WARM_ORACLE,
        *({**case, "in_child": True} for case in ORACLE),
        *striking("parent", PARENT, together=True),
        *striking("runner", WARM_RUNNER, together=True),
        *({**case, "together": True} for case in WARM_ORACLE),
        *crossed(striking("parent", PARENT), striking("scheduler", WARM_SCHEDULER[-4:])),
        *crossed(striking("parent", PARENT[4:]), striking("runner", telling(WARM_RUNNER)[::2])),
        *crossed(striking("parent", PARENT[4:]), striking("payload", ["begin", "execvp"])),
        *crossed(striking("scheduler", WARM_SCHEDULER[-4:]), striking("runner", telling(WARM_RUNNER)[::2])),
        *crossed(
            striking("scheduler", WARM_SCHEDULER[-4:]), [c for c in ORACLE if c["victim"] != "scheduler"]
        ),
    )
]
WITH_TOKEN = [
    *striking("scheduler", [*TOKEN, *LOCKS_FILE, "close pair.units"], token=True),
    *striking("scheduler", [*TOKEN[::2], "close pair.units"], token=True, together=True),
    *striking("scheduler", QUEUEING, token=True, busy=True),
    *striking("scheduler", QUEUEING, token=True, busy=True, together=True),
    *striking("runner", telling(RUNNER)[::2], token=True),
    *striking("payload", TOKEN_PAYLOAD[1::2], token=True),
    *({**case, "token": True, "together": True} for case in ORACLE[::2]),
    *crossed(
        striking("scheduler", [TOKEN[-1], "close pair.units"], token=True), striking("runner", RUNNER[::6])
    ),
    *striking("parent", TOKEN_PARENT[4:], token=True, launcher="warm"),
    *striking("scheduler", [*TOKEN[::3], "close pair.units"], token=True, launcher="warm"),
]
BULK = [*WITH_TOKEN, *ALONE, *AT_ONCE, *AGAIN, *PAIRS, *TRIPLES, *WARM]
PARTS = 16


def play(cases: list[Case], root: Path) -> list[dict[str, Any]]:
    """Plays the cases in a few processes at once; one result for each."""
    theatres = []
    for number in range(THEATRES):
        directory = root / f"theatre-{number}"
        directory.mkdir()
        (directory / "cases").write_text(json.dumps(cases[number::THEATRES]))
        with (directory / "cases").open() as given, (directory / "results").open("w") as results:
            command = [sys.executable, str(MATRIX), str(directory)]
            theatres.append((directory, subprocess.Popen(command, stdin=given, stdout=results)))
    for _, process in theatres:
        assert process.wait() == 0
    return [
        json.loads(line)
        for directory, _ in theatres
        for line in (directory / "results").read_text().splitlines()
    ]


def assert_all_is_well(cases: list[Case], results: list[dict[str, Any]]) -> None:
    assert len(results) == len(cases)
    for result in results:
        result["case"] = {name: value for name, value in result["case"].items() if value}
    wrong = [result for result in results if result["problems"]]
    assert not wrong, "\n".join(json.dumps(result, indent=1) for result in wrong)


def traced(tmp_path: Path, **case: Any) -> Callable[[str], list[str]]:
    """The operations of each process of a job that nobody harms."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path; from matrix import Case, Theatre\n"
        f"print(Theatre(Path(sys.argv[2])).play(Case(**{case}), trace=True)['directory'])\n"
    )
    command = [sys.executable, "-c", script, str(MATRIX.parent), str(tmp_path)]
    directory = Path(subprocess.check_output(command, text=True).strip())
    return lambda process: (directory / f"trace-{process}").read_text().splitlines()


@pytest.mark.parametrize("launcher", ["spawn", "warm"])
def test_the_tables_name_every_step_there_is(tmp_path: Path, launcher: str) -> None:
    steps = traced(tmp_path, launcher=launcher)
    is_warm = launcher == "warm"
    assert steps("scheduler-parent") == (WARM_SCHEDULER if is_warm else SCHEDULER)
    assert steps("runner-parent") == (WARM_RUNNER if is_warm else RUNNER)
    assert steps("runner-child") == PAYLOAD
    if is_warm:
        assert steps("runner-warm") == PARENT


def test_the_tables_name_every_step_of_another_attempt(tmp_path: Path) -> None:
    steps = traced(tmp_path, again=True)
    assert steps("scheduler-parent") == SCHEDULER_AGAIN
    assert steps("runner-parent") == RUNNER
    assert steps("runner-child") == PAYLOAD


@pytest.mark.parametrize("launcher", ["spawn", "warm"])
def test_the_tables_name_every_step_of_a_job_with_a_token(tmp_path: Path, launcher: str) -> None:
    steps = traced(tmp_path, launcher=launcher, token=True)
    is_warm = launcher == "warm"
    assert steps("scheduler-parent") == (TOKEN_WARM_SCHEDULER if is_warm else TOKEN_SCHEDULER)
    assert steps("runner-parent") == (WARM_RUNNER if is_warm else RUNNER)
    assert sorted(steps("runner-child")) == sorted(TOKEN_PAYLOAD)  # in the order of the descriptors' numbers
    if is_warm:
        assert steps("runner-warm") == TOKEN_PARENT


def test_the_matrix_is_as_large_as_promised() -> None:
    different = {json.dumps(case, sort_keys=True) for case in BULK}
    assert len(different) >= 400


def test_a_job_survives_a_kill_at_chosen_steps(tmp_path: Path) -> None:
    cases = [
        *striking("scheduler", SCHEDULER[8::5]),
        *striking("scheduler", STARTED),
        *striking("runner", RUNNER[1::4]),
        *striking("payload", PAYLOAD[::4]),
        *ORACLE[::2],
        {"victim": "runner", "moment": "start", "in_child": True},
        *AGAIN[9:40:6],
        *PAIRS[7::90],
        *({"parent": step, "launcher": "warm"} for step in PARENT),
        *WARM[::20],
        *[case for case in WITH_TOKEN if "together" not in case][::7],
    ]
    results = play(cases, tmp_path)
    assert_all_is_well(cases, results)
    assert all(len(result["struck"]) == len(set(result["case"]) & STRIKERS) for result in results)


STRIKERS = {"scheduler", "parent", "runner", "payload", "victim"}


@pytest.mark.slow
@pytest.mark.watchdog(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_job_survives_a_kill_at_every_step(part: int, tmp_path: Path) -> None:
    cases = BULK[part::PARTS]
    assert_all_is_well(cases, play(cases, tmp_path))
