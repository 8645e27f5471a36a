"""Ends what a job left running: daemons, forgotten children, what a killed runner could not end any more.
Two ways to find them: as descendants, from the runner that adopted them; by lock and stamp, from outside.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, Machine, ProcessHandle

STAMP = "_TENUTO_ATTEMPT"
"""The variable, in the environment of everything a payload starts, that holds the attempt's nonce."""


def descendants() -> list[int]:
    """Every process below this one. Those that lost their parent are here too, if this is a subreaper."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        parent = _parent(pid)
        if parent is not None:
            children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def kill_descendants() -> None:
    """Send KILL to every process below this one."""
    for pid in descendants():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended; nothing else can have its pid yet, since its parent is still below us


def find_leftovers(machine: Machine, paths: JobPaths, nonce: str | None = None) -> list[ProcessHandle]:
    """What an attempt left, seen from outside: whoever holds the second byte of its lock, or bears its stamp.

    The stamp finds what the lock cannot: programs started with all descriptors closed, as `subprocess` does.
    Without `nonce` only the lock is asked.
    """
    pids = {*machine.locks.holders(paths.lock, DESCENDANTS_BYTE), *(_stamped(nonce) if nonce else ())}
    # Whoever has the first byte too is no leftover: a scheduler that prepares the job, or its runner.
    pids -= {*machine.locks.holders(paths.lock, RUNNER_BYTE), machine.processes.own().pid}
    handles = []
    for pid in sorted(pids):
        identity = machine.processes.identify(pid)
        handle = identity and machine.processes.open(identity)
        if handle:
            handles.append(handle)
    return handles


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            text = stream.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text[text.rindex(b")") + 2 :].split()[1])


def _stamped(nonce: str) -> Iterator[int]:
    wanted = f"{STAMP}={nonce}".encode()
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as stream:
                environment = stream.read()
        except OSError:
            continue  # it ended, or is not ours to look at
        if wanted in environment.split(b"\0"):
            yield pid


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
