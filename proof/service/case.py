"""Owns the cases: pairs of kill points, embedded and apart, and the sample that `make test` takes.
Plays none.
"""

from __future__ import annotations

from typing import NamedTuple

from proof.service.points import NODE_POINTS, SERVER_POINTS

EMBEDDED, APART = "embedded", "apart"


class Case(NamedTuple):
    """A pair of kill points, in the order in which an embedded pair is struck."""

    layout: str
    first: str
    second: str
    bug: str = ""
    """The bug that is planted in all processes."""

    @property
    def name(self) -> str:
        return f"{self.layout}-{self.first}-{self.second}" + (f"-{self.bug}" if self.bug else "")

    @property
    def points(self) -> tuple[str, str]:
        return self.first, self.second


CASES = (
    *(Case(APART, s, n) for s in SERVER_POINTS for n in NODE_POINTS),
    *(Case(EMBEDDED, s, n) for s in SERVER_POINTS for n in NODE_POINTS),
    *(Case(EMBEDDED, n, s) for s in SERVER_POINTS for n in NODE_POINTS),
)
"""All pairs: apart, both processes are armed at once; embedded, one life is struck after the other."""
SAMPLE = (
    Case(APART, "S4", "N2"),
    Case(APART, "S6", "N5"),
    Case(APART, "S9", "N7"),
    Case(EMBEDDED, "S2", "N1"),
    Case(EMBEDDED, "S7", "N4"),
    Case(EMBEDDED, "N3", "S3"),
    Case(EMBEDDED, "N6", "S1"),
)
"""What `make test` plays: kill points of both kinds, all but three of them."""
