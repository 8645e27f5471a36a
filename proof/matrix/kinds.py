"""Owns what kinds of cases of the kill matrix are, and how cases are put together.
Knows no step and plays nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

Fields = dict[str, Any]
"""What a `Case` is made of; what is left out nobody is to suffer."""
VICTIMS = ("payload", "runner", "scheduler")
MOMENTS = ("start", "middle", "end")
ORACLE = [{"victim": victim, "moment": moment} for victim, moment in product(VICTIMS, MOMENTS)]
AT_WORK = {"victim": "scheduler", "moment": "start", "seen": True}
"""The first scheduler dies when the work has begun, which lasts until another has seen it."""
STRIKERS = ("scheduler", "second", "parent", "runner", "payload", "victim")


class Kind(NamedTuple):
    """Cases that have something in common."""

    title: str
    steps: list[Fields]
    """Every step once."""
    more: list[Fields]
    """Several steps in one case, and steps under other circumstances."""
    few: list[Fields] | None = None
    """What is to be played of it in the sizes of `make test`, where that is not every operation."""

    def all(self) -> list[Fields]:
        """Every step, and all of the others."""
        return different([*self.steps, *self.more])

    def certain(self) -> list[Fields]:
        """A few steps, spread over all of them, at which the blows fall whatever the processes do first."""
        return [case for case in self.steps if "together" not in case][3::27]


def different(cases: Iterable[Fields]) -> list[Fields]:
    return list({json.dumps(case, sort_keys=True): case for case in cases}.values())


def spread(cases: list[Fields], most: int) -> list[Fields]:
    stride = max(1.0, len(cases) / max(most, 1))
    return [cases[int(number * stride)] for number in range(min(most, len(cases)))]


def striking(who: str, operations: Iterable[str], **more: Any) -> list[Fields]:
    return [{who: operation, **more} for operation in operations]


def crossed(one: Iterable[Fields], *others: Iterable[Fields]) -> list[Fields]:
    """Each of these with each of those."""
    return [
        {name: value for case in cases for name, value in case.items()} for cases in product(one, *others)
    ]


def checkered(one: list[Fields], other: list[Fields]) -> list[Fields]:
    """Every second field of the board."""
    return [{**a, **b} for row, a in enumerate(one) for b in other[row % 2 :: 2]]


def also(cases: Iterable[Fields], **more: Any) -> list[Fields]:
    return [{**case, **more} for case in cases]


def telling(operations: list[str]) -> list[str]:
    """Without those that leave all as it was for the next process; they are struck alone, not in pairs."""
    silent = ("mkdir", "ftruncate", "posix_fallocate", "fsync")
    forgotten = ("unlink stop", "unlink locks", "unlink result")
    unread = ("params.json", "oracle.py", "launch.json.tmp")
    return [
        operation
        for operation in operations
        if not operation.startswith((*silent, *forgotten))
        and not (operation.endswith(unread) and operation.startswith(("open", "close")))
    ]
