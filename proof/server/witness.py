"""Owns the witness: a process that only sleeps, and notes when it woke up late. Whatever keeps it from its
processor, other processes or the host of a virtual machine, is not of the scheduler's making.

    python proof/server/witness.py, until its standard input is closed; then it says when it was late
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

TICK_S = 0.0005
_LATE_S = 0.0005


class Interval(NamedTuple):
    """A part of the time that all processes of the machine have in common."""

    begin: float
    end: float


class Witness:
    """A witness beside this process."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it is up

    @property
    def pid(self) -> int:
        return self._process.pid

    def late(self) -> list[Interval]:
        """End it: when it was late."""
        said, _ = self._process.communicate()
        return [Interval(*one) for one in json.loads(said)]


def common_s(interval: Interval, others: Iterable[Interval]) -> float:
    """How much of an interval lies in others, which do not overlap."""
    return sum(max(0.0, min(interval.end, other.end) - max(interval.begin, other.begin)) for other in others)


def main() -> None:
    late: list[Interval] = []
    before = time.perf_counter()
    print(flush=True)
    is_over = False
    while not is_over:
        is_over = bool(select.select([sys.stdin], [], [], TICK_S)[0])
        now = time.perf_counter()
        if now - before - TICK_S > _LATE_S:
            late.append(Interval(before + TICK_S, now))
        before = now
    print(json.dumps(late))


if __name__ == "__main__":
    main()
