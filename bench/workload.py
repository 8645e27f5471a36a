"""Owns what a workload is: one question about speed, asked of Tenuto and, where it makes sense, of peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.rows import Row
from bench.scale import Options


def nobody(_options: Options) -> Iterator[Row]:
    """No peer is asked."""
    return iter(())


@dataclass(frozen=True, slots=True)
class Workload:
    """Answered row by row; `theirs` says why a peer is not asked where that is not plain."""

    name: str
    title: str
    ours: Callable[[Options], Iterator[Row]]
    theirs: Callable[[Options], Iterator[Row]] = nobody
    share: float = 0.05  # of the time of a run

    @property
    def has_peers(self) -> bool:
        return self.theirs is not nobody
