"""Owns measuring: CPU and wall time of child processes, medians and their spread."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


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
    spread: float  # (largest - smallest) / median, of CPU time
    raw: tuple[Cost, ...]


def summarise(costs: Sequence[Cost]) -> Summary:
    cpu = [c.cpu_s for c in costs]
    median = statistics.median(cpu)
    spread = (max(cpu) - min(cpu)) / median if median > 0 else 0.0
    return Summary(median, statistics.median(c.wall_s for c in costs), spread, tuple(costs))


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


def repeat(times: int, once: Callable[[], Cost]) -> Summary:
    return summarise([once() for _ in range(times)])


def repeat_over(times: int, base: Callable[[], Cost], once: Callable[[], Cost]) -> Summary:
    """What ``once`` costs over ``base``; the two alternate, so that a busy moment hits both."""
    return summarise([once() - base() for _ in range(times)])


def driver(python: str, *arguments: str) -> dict[str, Any]:
    """Run one of our driver scripts with some interpreter; it prints one JSON object."""
    done = subprocess.run([python, *arguments], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise Broken(last[0][:200])
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
