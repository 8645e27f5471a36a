"""What was asked of a scheduler, from any thread, and is not yet taken in.
It keeps the order, and decides nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

from tenuto.scheduler.decisions import Look
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.loop import Loop
from tenuto.scheduler.owners import Owner

GATHER_S = 0.002
"""Submissions are taken in together: two threads that take turns for each of them take twice as long."""
GATHER_DONE_S = 0.1
"""The same for jobs that are done: nothing waits to be started, so that there may be more of them."""
MOST_GATHERED = 256
"""A thread that submits more waits until the loop took these in: one thread at a time is faster."""


class Submission(NamedTuple):
    """An owner wants a job to be run."""

    job: Job
    """The job that counts: the first one with this identity."""
    given: Job
    owner: Owner
    is_new: bool
    """False for an identity that was known already."""
    look: Look | None
    """What its directory showed, if the caller looked: for a new job, and for one that had failed."""


class Cancellation(NamedTuple):
    """An owner wants a job to end."""

    job: Job
    message: str


class Withdrawal(NamedTuple):
    """An owner no longer wants a job."""

    job: Job
    owner: Owner
    message: str


class Forgetting(NamedTuple):
    """An owner has no more use for a job that ended."""

    job: Job
    owner: Owner


Wish = Submission | Cancellation | Withdrawal | Forgetting


class Inbox:
    """Wishes in the order they came: a cancellation ends only what was submitted before it."""

    def __init__(self, loop: Loop, take_in: Callable[[], None]) -> None:
        """`take_in` is called in a step of the loop, soon after a wish came and maybe others."""
        self._loop = loop
        self._take_in = take_in
        self._lock = threading.Lock()
        self._wishes: deque[Wish] = deque()
        self._gathers_s = inf
        """After what time, at most, the loop takes in what was asked for; it is told when this falls."""
        self._round = 0
        """How often it was emptied."""

    def __len__(self) -> int:
        return len(self._wishes)

    def put(self, wish: Wish, gather_s: float = GATHER_S) -> None:
        """From any thread; returns at once."""
        with self._lock:
            self._wishes.append(wish)
            if gather_s < self._gathers_s:
                self._gathers_s = gather_s
                self._loop.post(self._loop.later, gather_s, self._take_in_round, self._round)

    def emptied(self) -> Iterator[Wish]:
        """Takes out one wish after the other, also those that come meanwhile."""
        while True:
            with self._lock:
                if not self._wishes:
                    self._gathers_s = inf
                    self._round += 1
                    return
                wish = self._wishes.popleft()
            yield wish

    def _take_in_round(self, number: int) -> None:
        """A round's time has come, unless it was taken in before; later wishes have a time of their own."""
        if number == self._round:
            self._take_in()
