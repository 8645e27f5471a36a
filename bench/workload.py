"""Owns what a workload is, and the list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.report import Row


@dataclass(frozen=True, slots=True)
class Options:
    """What the person who runs the suite chose."""

    quick: bool
    peers: bool
    repetitions: int


@dataclass(frozen=True, slots=True)
class Workload:
    """One question about speed, answered row by row."""

    name: str
    title: str
    rows: Callable[[Options], Iterator[Row]]
