"""How a runner starts a payload in a fresh interpreter: a plain one of the environment, for a task in Python.
`payload_setup.be_payload` says what happens there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from tenuto.launchers.runner.assignment import Assignment
from tenuto.launchers.runner.payload import Payload, added_variables
from tenuto.launchers.runner.signals import SIGNALS
from tenuto.light import signal

_READ_AT_START = ("PYTHON", "LD_", "GLIBC_", "MALLOC_", "LANG", "LC_", "TZ")
"""Variables that an interpreter or the C library reads at its start: too late for a child."""
ENTRY = f"{__file__.rpartition('/')[0]}/__main__.py"
BARE = ("-I", "-S")
"""How an interpreter is started that runs nothing but Tenuto: it needs no packages."""
PLAIN = ("-P",)
"""How one is started that runs what is the user's."""
FRESH_SIGNALS = (*SIGNALS, signal.SIGPIPE, signal.SIGXFSZ)


def needs_a_fresh_one(variables: Iterable[str]) -> bool:
    """True if a job is given a variable that only an interpreter which starts with it would heed."""
    return any(name.startswith(_READ_AT_START) for name in variables)


def start_afresh(payload: Payload, python: str) -> int:
    """Start the interpreter, with nothing of the runner's but what the payload is to have."""
    passed = (payload.report, payload.descendants)
    return os.posix_spawn(
        python,
        payload_arguments(
            python,
            Assignment.of(payload),
            runner=payload.parent,
            report=payload.report,
            descendants=payload.descendants,
            memory_bytes=payload.instructions.limits.memory_bytes,
            nonce=payload.launch.nonce,
        ),
        {**os.environ, **added_variables(payload.instructions, payload.launch)},
        file_actions=[
            *((os.POSIX_SPAWN_DUP2, log, standard) for standard, log in enumerate(payload.logs, start=1)),
            *((os.POSIX_SPAWN_DUP2, fd, fd) for fd in passed),  # or they would be closed
        ],
        setpgroup=0,
        setsigmask=SIGNALS,  # what comes before the task can take it is kept for it
        setsigdef=FRESH_SIGNALS,
    )


def payload_arguments(
    python: str,
    assignment: Assignment,
    *,
    runner: int,
    report: int,
    descendants: int,
    memory_bytes: int | None,
    nonce: str,
) -> list[str | bytes]:
    """The command line of a payload in a fresh interpreter, as `be_payload` reads it."""
    memory = "" if memory_bytes is None else memory_bytes
    settling = map(str, (runner, report, descendants, memory, nonce))
    return [python, *PLAIN, ENTRY, "--payload", *settling, *assignment.arguments()]
