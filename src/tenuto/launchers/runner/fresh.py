"""How a runner starts a payload in a fresh interpreter: a plain one of the environment, for a task in Python.
What happens there is `begin`'s business.
"""

from __future__ import annotations

import os
import signal

from tenuto.launchers.runner.assignment import Assignment
from tenuto.launchers.runner.payload import Payload, added_variables
from tenuto.launchers.runner.signals import SIGNALS

ENTRY = f"{__file__.rpartition('/')[0]}/__main__.py"
BARE = ("-I", "-S")
"""How an interpreter is started that runs nothing but Tenuto: it needs no packages."""
PLAIN = ("-P",)
"""How one is started that runs what is the user's."""
_FRESH_SIGNALS = (*SIGNALS, signal.SIGPIPE, signal.SIGXFSZ)


def start_afresh(payload: Payload, python: str) -> int:
    """Start the interpreter, with nothing of the runner's but what the payload is to have."""
    passed = (payload.report, payload.descendants)
    memory_bytes = payload.instructions.limits.memory_bytes
    memory = "" if memory_bytes is None else memory_bytes
    settling = map(str, (payload.parent, *passed, memory, payload.launch.nonce))
    return os.posix_spawn(
        python,
        [python, *PLAIN, ENTRY, "--payload", *settling, *Assignment.of(payload).arguments()],
        {**os.environ, **added_variables(payload.instructions, payload.launch)},
        file_actions=[
            *((os.POSIX_SPAWN_DUP2, log, standard) for standard, log in enumerate(payload.logs, start=1)),
            *((os.POSIX_SPAWN_DUP2, fd, fd) for fd in passed),  # or they would be closed
        ],
        setpgroup=0,
        setsigmask=SIGNALS,  # what comes before the task can take it is kept for it
        setsigdef=_FRESH_SIGNALS,
    )
