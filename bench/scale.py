"""Owns how large a benchmark run is: its scale, its repetitions, and the time it may take.
Measures nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, unique
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@unique
class Scale(Enum):
    """Which sizes the workloads run at."""

    TINY = "tiny"  # does it work at all: for the tests
    QUICK = "quick"  # under three minutes
    FULL = "full"  # the figures that are kept
    LARGE = "large"  # and 100,000 jobs


@dataclass(frozen=True, slots=True)
class Limits:
    """What a scale may take; `cell_s` bounds all repetitions of one peer in one workload."""

    total_s: float
    cell_s: float


LIMITS = {
    Scale.TINY: Limits(3_600, 15),
    Scale.QUICK: Limits(150, 9),
    Scale.FULL: Limits(1_800, 60),
    Scale.LARGE: Limits(7_200, 75),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a workload at each scale, smallest first."""

    tiny: tuple[int, ...]
    quick: tuple[int, ...]
    full: tuple[int, ...]
    large: tuple[int, ...] = ()

    def at(self, scale: Scale) -> tuple[int, ...]:
        if scale is Scale.LARGE:
            return self.full + self.large
        return {Scale.TINY: self.tiny, Scale.QUICK: self.quick, Scale.FULL: self.full}[scale]


SLOTS = (1, 2, 4, 8, 16)
"""How many slots W13 has, one after another."""


class Budget:
    """The time that a run has left, and what was left out for want of it."""

    def __init__(self, limits: Limits, *, slowness: float = 1.0, now: float | None = None) -> None:
        """`slowness`: how many times longer than estimated things take on this machine, at this hour."""
        self._limits = limits
        self._slowness = max(slowness, 1.0)
        self._ends = (time.monotonic() if now is None else now) + limits.total_s
        self._share_ends = self._ends
        self._left_out: dict[tuple[str, str], dict[str, list[int]]] = {}

    def begin(self, share: float, now: float | None = None) -> None:
        """A workload begins, which may take a share of the time; its smallest sizes may take more."""
        began = time.monotonic() if now is None else now
        self._share_ends = min(began + share * self._limits.total_s, self._ends)

    def leave_out(self, workload: str, why: str, what: str, size: int | None = None) -> None:
        sizes = self._left_out.setdefault((workload, why), {}).setdefault(what, [])
        if size is not None:
            sizes.append(size)

    @property
    def left_out(self) -> list[str]:
        """One line for each workload and reason."""
        lines = []
        for (workload, why), whats in self._left_out.items():
            named = [
                f"{what} ({', '.join(f'{size:,}' for size in sizes)})" if sizes else what
                for what, sizes in whats.items()
            ]
            lines.append(f"{workload}, {why}: {'; '.join(named)}")
        return lines

    def affords(
        self,
        workload: str,
        what: str,
        size: int,
        estimate_s: float,
        *,
        smallest: bool = False,
        now: float | None = None,
    ) -> bool:
        """Whether there is time for something; if not, it is named."""
        ends = self._ends if smallest else self._share_ends
        if estimate_s * self._slowness <= ends - (time.monotonic() if now is None else now):
            return True
        self.leave_out(workload, "no time was left", what, size)
        return False

    def fitting(
        self,
        workload: str,
        what: str,
        sizes: Sequence[int],
        *,
        start_s: float,
        job_s: float,
        repetitions: int,
    ) -> list[int]:
        """The largest two sizes whose repetitions fit into one cell together; larger ones are named."""
        chosen: list[int] = []
        spent_s = 0.0
        for size in reversed(sizes):
            cost_s = repetitions * (start_s + job_s * size) * self._slowness
            if len(chosen) < 2 and spent_s + cost_s <= self._limits.cell_s:
                chosen.insert(0, size)
                spent_s += cost_s
            elif not chosen:
                self.leave_out(workload, f"takes more than {self._limits.cell_s:g} s", what, size)
        return chosen


@dataclass(frozen=True, slots=True)
class Options:
    """What the person who runs the suite chose."""

    scale: Scale
    repetitions: int
    peers: tuple[str, ...]
    directory: Path  # where the trees of the measured systems are made: on a real disk
    budget: Budget = field(compare=False)
    slots: tuple[int, ...] = SLOTS
    cases: tuple[str, ...] = ()
    """Of W12; empty: all."""

    @property
    def references(self) -> int:
        """Bare interpreters started for one measurement of the reference."""
        return {Scale.TINY: 4, Scale.QUICK: 8}.get(self.scale, 100)
