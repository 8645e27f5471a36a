"""Owns the witness of a processor: a process that only sleeps, and notes when it woke up late.
Its priority is above that of all others, so that nothing of the scheduler's making delays it. The host of a
virtual machine does, which takes processors away.

    python proof/server/witness.py PROCESSOR: says when it was late once its standard input is closed
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

TICK_S = 0.00025
_LATE_S = 0.00025
_TICKS = 40
"""How often it sleeps before it looks whether it is over."""


class Interval(NamedTuple):
    """A part of the time that all processes of the machine have in common."""

    begin: float
    end: float


class Witness:
    """A witness on one processor."""

    def __init__(self, processor: int) -> None:
        command = [sys.executable, __file__, str(processor)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.is_heard = json.loads(self._process.stdout.readline())
        """False if it may not have a priority above others: then it may be late because of them."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def late(self) -> list[Interval]:
        """End it: when it was late."""
        said, _ = self._process.communicate()
        return [Interval(*one) for one in json.loads(said)] if self.is_heard else []


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time, in intervals that do not overlap."""
    found: list[Interval] = []
    for one in sorted(intervals):
        if found and one.begin <= found[-1].end:
            found[-1] = Interval(found[-1].begin, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found


def common_s(interval: Interval, others: Iterable[Interval]) -> float:
    """How much of an interval lies in others, which do not overlap."""
    return sum(max(0.0, min(interval.end, other.end) - max(interval.begin, other.begin)) for other in others)


def main(arguments: Sequence[str]) -> None:
    os.sched_setaffinity(0, {int(arguments[0])})
    is_heard = False
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))
        is_heard = True
    late: list[Interval] = []
    before = time.perf_counter()
    print(json.dumps(is_heard), flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(_TICKS):
            time.sleep(TICK_S)
            now = time.perf_counter()
            if now - before - TICK_S > _LATE_S:
                late.append(Interval(before + TICK_S, now))
            before = now
    print(json.dumps(late))


if __name__ == "__main__":
    main(sys.argv[1:])
