"""What every job of the soak does: writes down that it ran, and holds locks of the proof's own.
Imports nothing of Tenuto, so that nothing of what is judged helps to judge.

As a program: oracle.py PLACE NAME SECONDS FAILS DAEMON {TOKEN CAPACITY AMOUNT}...
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Sequence

STAMP = "_TENUTO_ATTEMPT"
STAGE = "SOAK_STAGE"
"""The variable, in the environment of everything in a soak, that says which soak it belongs to."""
FAILURE = 3
_EXITING = 0x4
_DIES_WITHIN_S = 60.0
"""The payload of a killed runner is killed by the kernel; how long a busy machine may take for that."""

_held: list[int] = []
"""Locks that fall when this process ends, and not before."""


def work(
    place: str, name: str, seconds: float, tokens: Sequence[tuple[str, int, int]] = (), daemon: bool = False
) -> None:
    """Hold what nobody else may hold at the same time, and work for a while."""
    print(os.environ[STAMP], flush=True)
    note(place, name, "start")
    if not _is_taken(f"{place}/locks/{name}"):
        note(place, name, "overlap")
    for token, capacity, amount in tokens:
        _take_units(place, name, token, capacity, amount)
    if daemon:
        _leave_daemon()
    time.sleep(seconds)


def note(place: str, name: str, what: str, nonce: str | None = None) -> None:
    """Add a line to the ledger of a job: in one write, to the end, whichever other process writes.

    What happened, in which attempt, to which process and its parent, and when on the machine's own clock.
    """
    line = f"{what} {nonce or os.environ[STAMP]} {os.getpid()} {os.getppid()} {time.monotonic()}\n"
    ledger = os.open(f"{place}/ledger/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(ledger, line.encode())
    finally:
        os.close(ledger)


def _is_taken(path: str) -> bool:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    _held.append(lock)
    return True


def _take_units(place: str, name: str, token: str, capacity: int, amount: int) -> None:
    """Take units of our own counting. If there are too few, more than all were given away, or a job died.

    The units of a killed runner are free before its payload is gone. So it counts who has a runner that
    lives: twice, since who lives at the second look lived in between, and all of them at the same time.
    """
    runner = _process(os.getppid())
    give_up = time.monotonic() + _DIES_WITHIN_S
    taken = 0
    while True:
        busy: list[str] = []
        for unit in range(capacity):
            path = f"{place}/units/{token}-{unit}"
            if taken < amount and _is_taken(path):
                os.ftruncate(_held[-1], 0)
                os.pwrite(_held[-1], runner.encode(), 0)
                taken += 1
            else:
                busy.append(path)
        if taken == amount:
            return
        first = {path: _living_holder(path) for path in busy}
        others = {path: who for path, who in first.items() if who not in ("", runner)}
        living = sum(who == _living_holder(path) for path, who in others.items())
        if living + amount > capacity and _is_living(runner) and os.getppid() == int(runner.split()[0]):
            note(place, name, "overcommit")
            return
        if time.monotonic() > give_up:
            note(place, name, "stuck")
            return
        time.sleep(0.005)


def _living_holder(path: str) -> str:
    """The runner whose payload has a unit, if it lives; nothing if it does not, or cannot be told yet."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        who = os.pread(file, 64, 0).decode()
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return who if who and _is_living(who) and os.pread(file, 64, 0).decode() == who else ""
        return ""
    finally:
        os.close(file)


def _process(pid: int) -> str:
    """Who a process is: its number, and when it began."""
    return f"{pid} {_stat(pid)[19]}"


def _is_living(who: str) -> bool:
    """Whether it still has all it had: one that is about to end has lost its locks before it is gone."""
    pid, began = who.split()
    fields = _stat(int(pid))
    return fields[19] == began and fields[0] not in "ZX" and not int(fields[6]) & _EXITING


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on."""
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return stream.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["X"] + ["0"] * 40


def _leave_daemon() -> None:
    """Start something that would outlive the job by far, as badly behaved programs do."""
    if os.fork() == 0:
        os.setsid()
        os.closerange(3, 256)  # as `subprocess` does: the lock of the job does not betray it
        os.execv("/bin/sleep", ["sleep", "3600"])


def main() -> None:
    place, name, seconds, fails, daemon, *rest = sys.argv[1:]
    wanted = [(rest[at], int(rest[at + 1]), int(rest[at + 2])) for at in range(0, len(rest), 3)]
    work(place, name, float(seconds), wanted, daemon == "1")
    if fails == "1":
        sys.exit(FAILURE)
    note(place, name, "end")


if __name__ == "__main__":
    main()
