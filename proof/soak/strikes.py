"""Who is struck, and how: SIGKILL, a signal that asks to end, or SIGSTOP and SIGCONT a little later.
Knows processes by their place in the tree; asks nothing of Tenuto.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import NamedTuple

from proof.soak.oracle import STAGE
from proof.soak.plan import WITNESS

_WEIGHTS = {"scheduler": 3, "warm parent": 3, "runner": 7, "payload": 7}
_STOPS_S = (0.05, 0.2, 0.5, 1.0, 2.0, 12.0)
"""For how long a process may stand still. The last is longer than a scheduler may keep others from tokens."""
_STOPS_OFTEN = (6, 6, 4, 4, 2, 1)


_ENDING = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ENDING_OFTEN = (6, 2, 1, 1)


class Seen(NamedTuple):
    """A process of the soak."""

    pid: int
    parent: int
    began: str
    command: str


class Victim(NamedTuple):
    """A process, and what it is."""

    role: str
    process: Seen
    scheduler: int | None = None


def processes(stage: str) -> dict[int, Seen]:
    """The processes that bear the stamp of this soak, and have not ended."""
    wanted = f"{STAGE}={stage}".encode()
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as stream:
                if wanted not in stream.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/stat") as status:
                fields = status.read().rpartition(")")[2].split()
            with open(f"/proc/{name}/cmdline", "rb") as line:
                command = line.read().replace(b"\0", b" ").decode(errors="replace")
            if fields[0] not in "ZX":
                found[int(name)] = Seen(int(name), int(fields[1]), fields[19], command)
    return found


def victims(seen: Mapping[int, Seen], schedulers: Mapping[int, int]) -> list[Victim]:
    """What each process is. `schedulers`: pid -> which one."""
    return [Victim(_role(one, seen, schedulers), one, schedulers.get(one.pid)) for one in seen.values()]


def _role(process: Seen, seen: Mapping[int, Seen], schedulers: Mapping[int, int]) -> str:
    if process.pid in schedulers:
        return "scheduler"
    if _is_parent(process, schedulers):
        return "warm parent"
    above = seen.get(process.parent)
    if _is_ours(process) and (above is None or above.pid in schedulers or _is_parent(above, schedulers)):
        return "runner"
    return "payload"


def _is_ours(process: Seen) -> bool:
    return "/runner/__main__.py" in process.command


def _is_parent(process: Seen, schedulers: Mapping[int, int]) -> bool:
    return " --warm " in process.command and process.parent in schedulers


class Striker:
    """Strikes, and lets those go on who stand still."""

    def __init__(self, random: Random, stage: str, aim: str = "") -> None:
        """`aim`: the only role that is struck, while it has children, by a signal that ends; none: all."""
        self.struck: Counter[tuple[str, str]] = Counter()
        self.ended: set[int] = set()
        """The processes that were sent a signal that ends, whether or not they obeyed."""
        self._random = random
        self._stage = stage
        self._aim = aim
        self._stopped: list[tuple[float, int]] = []
        """When to let go on, and the pidfd of whom."""

    def strike(self, schedulers: Mapping[int, int]) -> Victim | None:
        """Strike one; None if there was nobody, or it had just ended."""
        there = victims(processes(self._stage), schedulers)
        if self._aim:
            parents = {one.process.parent for one in there}
            there = [one for one in there if one.role == self._aim and one.process.pid in parents]
        roles = {role: weight for role, weight in _WEIGHTS.items() if any(one.role == role for one in there)}
        if not roles:
            return None
        role = self._random.choices(list(roles), list(roles.values()))[0]
        victim = self._random.choice([one for one in there if one.role == role])
        kills = (role == self._aim or self._random.random() < 0.5) and victim.scheduler != WITNESS
        ending = self._random.choices(_ENDING, _ENDING_OFTEN)[0]
        seconds = self._random.choices(_STOPS_S, _STOPS_OFTEN)[0]
        return victim if self._hit(victim, ending if kills else signal.SIGSTOP, seconds) else None

    def _hit(self, victim: Victim, number: signal.Signals, seconds: float) -> bool:
        try:
            handle = os.pidfd_open(victim.process.pid)
        except ProcessLookupError:
            return False
        # The process that has the number now is not struck unless it is the one that was seen.
        if processes_began(victim.process.pid) != victim.process.began:
            os.close(handle)
            return False
        if number is not signal.SIGSTOP:
            self.ended.add(victim.process.pid)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
        self.struck[victim.role, number.name] += 1
        if number is not signal.SIGSTOP:
            os.close(handle)
        else:
            self._stopped.append((time.monotonic() + seconds, handle))
        return True

    def let_go(self, *, all_of_them: bool = False) -> None:
        """SIGCONT for those whose time is over."""
        now = time.monotonic()
        due = [one for one in self._stopped if all_of_them or one[0] <= now]
        self._stopped = [one for one in self._stopped if one not in due]
        for _, handle in due:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGCONT)
            os.close(handle)


def processes_began(pid: int) -> str | None:
    """When a process began, in the kernel's count."""
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None
