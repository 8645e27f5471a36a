"""Owns measuring: what processes cost, what a bare interpreter costs beside them, medians and their spread.
Knows nothing of workloads.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AT_ONCE = 2
TREE = Path(__file__).with_name("drivers") / "tree.py"


class Broken(Exception):
    """The measured command failed, so there is no number; the table says so."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one thing took once."""

    cpu_s: float
    wall_s: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.cpu_s - other.cpu_s, self.wall_s - other.wall_s)


@dataclass(frozen=True, slots=True)
class Summary:
    """What one thing took, repeated: medians, and how far apart the repetitions were."""

    cpu_s: float
    wall_s: float
    cpu_spread: float
    wall_spread: float
    raw: tuple[Cost, ...]


def spread(values: Sequence[float]) -> float:
    """(largest - smallest) / median."""
    median = statistics.median(values)
    return (max(values) - min(values)) / median if median > 0 else 0.0


def summarise(costs: Sequence[Cost]) -> Summary:
    cpu, wall = [c.cpu_s for c in costs], [c.wall_s for c in costs]
    return Summary(statistics.median(cpu), statistics.median(wall), spread(cpu), spread(wall), tuple(costs))


# A user's interpreter keeps byte code; told not to, it would compile Tenuto anew in every measured process.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def child(argv: Sequence[str]) -> Cost:
    """Run a command to its end; its CPU time is what the kernel charged to it and its children."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        started = time.perf_counter()
        actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
        pid = os.posix_spawnp(argv[0], argv, ENVIRONMENT, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
        wall_s = time.perf_counter() - started
    finally:
        os.close(null)
    if (code := os.waitstatus_to_exitcode(status)) != 0:
        raise Broken(f"exit code {code}")
    return Cost(usage.ru_utime + usage.ru_stime, wall_s)


def pairs(argv: Sequence[str], count: int) -> Cost:
    """What one of many equal commands costs, two at a time."""
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
    began, before = time.perf_counter(), _children_cpu_s()
    living: list[int] = []
    try:
        for _ in range(count):
            if len(living) == AT_ONCE:
                _reap(living)
            living.append(os.posix_spawnp(argv[0], argv, ENVIRONMENT, file_actions=actions))
        while living:
            _reap(living)
    finally:
        os.close(null)
    wall_s = time.perf_counter() - began
    return Cost((_children_cpu_s() - before) / count, wall_s / count)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _reap(living: list[int]) -> None:
    pid, status = os.wait()
    if pid in living:
        living.remove(pid)
        if status:
            raise Broken(f"exit code {os.waitstatus_to_exitcode(status)}")


def reference(count: int) -> Cost:
    """`ref`: what one bare interpreter costs, two at a time."""
    return pairs([sys.executable, "-c", "pass"], count)


@dataclass(frozen=True, slots=True)
class Measured:
    """Repetitions of one thing, each with the reference right before it."""

    cost: Summary
    ref: Summary
    load: float

    def x_wall(self, jobs: int) -> float:
        """Wall time of one job, in references."""
        return self.cost.wall_s / jobs / self.ref.wall_s

    def x_cpu(self, jobs: int) -> float:
        """CPU time of one job, in references."""
        return self.cost.cpu_s / jobs / self.ref.cpu_s


def beside_reference(repetitions: int, references: int, once: Callable[[], Cost]) -> Measured:
    load = os.getloadavg()[0]
    costs, refs = [], []
    for _ in range(repetitions):
        refs.append(reference(references))
        costs.append(once())
    return Measured(summarise(costs), summarise(refs), load)


def repeat_over(times: int, base: Callable[[], Cost], once: Callable[[], Cost]) -> Summary:
    """What ``once`` costs over ``base``; the two alternate, so that a busy moment hits both."""
    return summarise([once() - base() for _ in range(times)])


@dataclass(frozen=True, slots=True)
class Tree:
    """A command and all it started, run to the end; `said` is what it printed."""

    cost: Cost
    peak_kb: int  # of the largest process
    said: str

    def report(self) -> dict[str, Any]:
        """The JSON object that one of our drivers printed last."""
        for line in reversed(self.said.splitlines()):
            if line.startswith("{"):
                result: dict[str, Any] = json.loads(line)
                return result
        raise Broken("printed no result")


def tree(
    argv: Sequence[str], *, directory: Path, timeout_s: float, environment: Mapping[str, str] = ENVIRONMENT
) -> Tree:
    """Run a command in a directory; whatever it leaves behind is ended, also after a failure."""
    command = [sys.executable, "-I", "-S", str(TREE), f"{timeout_s:.1f}", *argv]
    done = subprocess.run(
        command,
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    try:
        said, _, last = done.stdout.rstrip("\n").rpartition("\n")
        seen = json.loads(last)
    except ValueError:
        raise Broken(reason(done.stderr, done.returncode)) from None
    if seen["timed_out"]:
        raise Broken(f"stopped after {timeout_s:.0f} s")
    if seen["exit_code"]:
        raise Broken(reason(done.stderr, seen["exit_code"]))
    return Tree(Cost(seen["cpu_s"], seen["wall_s"]), seen["peak_kb"], said)


def reason(stderr: str, exit_code: int) -> str:
    """One line that says why a command failed, fit for a table."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return (lines[-1] if lines else f"exit code {exit_code}").replace("|", "/")[:160]


def driver(
    path: Path, *arguments: object, directory: Path, timeout_s: float = 900.0, python: str = sys.executable
) -> dict[str, Any]:
    """Run one of our driver scripts in a directory of its own; it prints one JSON object."""
    argv = [python, str(path), *map(str, arguments)]
    return tree(argv, directory=directory, timeout_s=timeout_s).report()
