"""Owns how a proof uses the cores of a machine: independent pieces of work, in several processes.
Knows no proof; how many processes there may be is in the options.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


def spread(function: Callable[[A], R], work: Sequence[A], workers: int) -> Iterator[R]:
    """What the function makes of each piece of work, in the order of the work, whichever is done first.

    One worker: all is done in this process, where a test may have planted a bug. More: each is a fresh
    interpreter; function, work and results have to be picklable, and a worker that dies is an error.
    """
    workers = min(workers, len(work))
    if workers <= 1:
        yield from map(function, work)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(function, work)
