"""Owns what a peer is: another system, measured as a black box through its documented interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

DRIVERS = Path(__file__).parents[1] / "drivers"
JOB = DRIVERS / "job.py"


class PeerAbsent(Exception):
    """The peer cannot be measured here; the table names it with this reason."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One system, or one way to use it.

    A shape of work is "many" (jobs that need nothing), "chain" (each needs the one before) or "sleep".
    """

    title: str
    name: str  # the option that chooses it, and its environment
    distribution: str | None  # what is installed; None: a command that the machine has or has not
    argv: Callable[[Path, str, int], list[str]]  # interpreter, shape, count
    start_s: float  # estimates, so that what would take too long is left out and named
    job_s: float
    hop_s: float
    files: Callable[[str, int], Mapping[str, str]] = field(default=lambda _shape, _count: {})
    whole: bool = False  # no clock inside: what is measured is the whole process
    remembers: bool = False  # run again, it finds its work done
    start: Mapping[str, list[str]] = field(
        default_factory=dict
    )  # case of W5 -> command after the interpreter
    note: str = ""


def script(name: str, *more: str) -> Callable[[Path, str, int], list[str]]:
    """The command that runs one of our drivers in the peer's interpreter."""
    return lambda python, shape, count: [str(python), str(DRIVERS / name), shape, str(count), *more]
