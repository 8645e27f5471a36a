"""What the service decides, as functions of values and `now`: whose job is next, which node, when again.
Reads no row, asks no node and no clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

FAILURES_TO_OPEN = 3
LONGEST_BREAK_S = 60.0
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0
WAITING_PLACES = 2
NO_NODE = "no node of the service answers"


class UserQueue(NamedTuple):
    """The queued jobs of one user for one service, oldest first, and what the user has already."""

    user: str
    active: int
    """Jobs of the user that count for the quotas."""
    turn: int
    """When the user was served last: a number that grows with each claim; 0 for never."""
    jobs: tuple[int, ...]


class Quota(NamedTuple):
    """How many jobs of a service may be active."""

    runs_per_user: int
    max_runs: int


def next_jobs(queues: Sequence[UserQueue], quota: Quota, active: int, most: int) -> tuple[int, ...]:
    """The jobs to claim now, in order, given how many jobs of the service are active.

    Each place goes to the user with the fewest active jobs; among equals to the one whose last turn is
    longest ago, then to the one with the oldest job. So of a user with a thousand queued jobs only those
    delay another that nodes have in hand already.
    """
    free = min(quota.max_runs - active, most)
    waiting = [
        (queue.active, queue.turn, queue.jobs[0], 0, queue)
        for queue in queues
        if queue.jobs and queue.active < quota.runs_per_user
    ]
    heapq.heapify(waiting)
    last_turn = max((queue.turn for queue in queues), default=0)
    chosen: list[int] = []
    while waiting and len(chosen) < free:
        has, _, job, place, queue = heapq.heappop(waiting)
        chosen.append(job)
        last_turn += 1
        if place + 1 < len(queue.jobs) and has + 1 < quota.runs_per_user:
            heapq.heappush(waiting, (has + 1, last_turn, queue.jobs[place + 1], place + 1, queue))
    return tuple(chosen)


class ActiveJob(NamedTuple):
    """An active job of a service, which a queued one competes with."""

    user: str
    started_at: int | None
    """In milliseconds, once it runs."""


def waiting_message(
    user: str,
    active: Sequence[ActiveJob],
    quota: Quota,
    service: str,
    slots: Mapping[str, int] | None = None,
    in_hand: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """Why a queued job of a user is not sent.

    ``slots``: of the nodes of its service that are well, where they are known; ``in_hand``: their jobs.
    """
    own = [job for job in active if job.user == user]
    if len(own) >= quota.runs_per_user:
        return f"user {user} has {_active(own, quota.runs_per_user)}"
    if len(active) >= quota.max_runs:
        return f"service {service} has {_active(active, quota.max_runs)}"
    if slots is not None and not slots:
        return f"waits for a node: {NO_NODE}"
    if slots and not any(slots.values()):
        return f"waits for a node: none takes jobs now ({', '.join(sorted(slots))})"
    if slots and not plan_nodes(slots, in_hand, 1):
        jobs = sum(in_hand.get(node, 0) for node in slots)
        return f"waits for a place at a node: they have {jobs} jobs in hand, of all services"
    return "waits to be sent to a node"


def _active(active: Sequence[ActiveJob], most: int) -> str:
    running = sum(job.started_at is not None for job in active)
    if running == len(active):
        return f"{running} of {most} jobs running"
    return f"{len(active)} of {most} jobs at nodes, {running} of them running"


class QueuedUser(NamedTuple):
    """The queued jobs of one user for one service: how many, and the oldest."""

    jobs: int
    oldest: int
    turn: int
    """When the user was served last; 0 for never."""


class QueueView(NamedTuple):
    """The queue of a service at one instant, as a job in it sees it."""

    user: str
    before: int
    """Older queued jobs of the same user."""
    queued: Mapping[str, QueuedUser]
    active: Sequence[ActiveJob]
    runs_ms: Sequence[int]
    """How long jobs of the service ran that completed lately."""
    now: int

    @property
    def position(self) -> int:
        """The place of the job in the order of `next_jobs`, from 1; later jobs may change it."""
        has: dict[str, int] = {}
        for job in self.active:
            has[job.user] = has.get(job.user, 0) + 1

        def rank(user: str) -> tuple[int, int, int]:
            # Of users at one level the one with most active jobs is first: its turn there is its first one.
            return -has.get(user, 0), self.queued[user].turn, self.queued[user].oldest

        level = has.get(self.user, 0) + self.before
        place = self.before + 1
        for user, queue in self.queued.items():
            if user != self.user:
                is_before = rank(user) < rank(self.user)
                place += min(queue.jobs, max(level + is_before - has.get(user, 0), 0))
        return place

    def expected_start(self, quota: Quota, places: int) -> int | None:
        """When the job will start, if all continue as those before; None if that is not known.

        ``places``: jobs of the service that its nodes run at once.
        """
        most = min(places, quota.max_runs)
        if not self.runs_ms or most <= 0:
            return None
        run_ms = sorted(self.runs_ms)[len(self.runs_ms) // 2]
        own = [job for job in self.active if job.user == self.user]
        free_at = _free_at(self.active, most, self.position, run_ms, self.now)
        own_at = _free_at(own, quota.runs_per_user, self.before + 1, run_ms, self.now)
        return max(free_at, own_at)


def _free_at(active: Sequence[ActiveJob], places: int, position: int, run_ms: int, now: int) -> int:
    """When the place for number ``position`` is free, if each job runs for ``run_ms``."""
    ends = sorted(max(job.started_at + run_ms, now) for job in active if job.started_at is not None)
    at_nodes = len(active) - len(ends)  # they wait at their nodes, before all that are queued
    rounds, place = divmod(position - 1 + at_nodes, places)
    place += len(ends) - places  # below 0: a place that is free now
    return (now if place < 0 else ends[place]) + rounds * run_ms


class Breaker(NamedTuple):
    """Whether a node is worth asking: after three failures in a row it is left alone for a while."""

    failures: int = 0
    breaks: int = 0
    closed_at: float = 0.0
    """When it may be tried again, on the monotonic clock."""

    def is_open(self, now: float) -> bool:
        """True while the node is to be left alone."""
        return self.failures >= FAILURES_TO_OPEN and now < self.closed_at

    def failed(self, now: float) -> Breaker:
        """The breaker after one more failure; of several jobs that meet the same break, one counts."""
        if self.is_open(now):
            return self
        failures = self.failures + 1
        if failures < FAILURES_TO_OPEN:
            return Breaker(failures)
        rest_s = min(2.0 ** min(self.breaks, 10), LONGEST_BREAK_S)
        return Breaker(failures, self.breaks + 1, now + rest_s)

    def answered(self) -> Breaker:
        """The breaker after an answer."""
        return _CLOSED


_CLOSED = Breaker()


def places_of(slots: int) -> int:
    """How many jobs a node may have in hand, of all services and servers together.

    Those that run, and two that wait so that no slot does. The turn of a job is decided when it is claimed:
    a user who comes later waits for all that a node has in hand. A node without slots takes nothing now.
    """
    return slots + WAITING_PLACES if slots > 0 else 0


def plan_nodes(slots: Mapping[str, int], in_hand: Mapping[str, int], most: int) -> list[str | None]:
    """The nodes for the next jobs of a service, in order, at most so many: nodes that are well, by slots.

    Each job goes to the node with the fewest jobs for its slots, as long as that has a place. None stands for
    a job that no node can take, since none is well.
    """
    if not slots:
        return [None] * most
    has = {name: in_hand.get(name, 0) for name in slots}
    planned: list[str | None] = []
    while len(planned) < most:
        free = [name for name in slots if has[name] < places_of(slots[name])]
        if not free:
            break
        chosen = min(free, key=lambda name: (has[name] / slots[name], -slots[name], name))
        has[chosen] += 1
        planned.append(chosen)
    return planned


def back_off_s(tries: int, chance: float) -> float:
    """How long to wait before try number ``tries`` + 1: from 0.5 s doubling to 60 s, half of it by chance."""
    whole = min(FIRST_WAIT_S * 2.0 ** min(max(tries - 1, 0), 20), LONGEST_WAIT_S)
    return whole * (0.5 + chance / 2)


class CleanerRest(NamedTuple):
    """What the cleaner knows of the clock: where both stood in its last round, and how long it rests."""

    wall: float
    monotonic: float
    until: float = 0.0
    """On the monotonic clock."""

    def round(self, wall: float, monotonic: float, max_age_s: float) -> tuple[CleanerRest, float]:
        """The next round's knowledge, and by how much the wall clock ran ahead (0 if it did not).

        If the wall clock ran ahead by more than a minute, nothing is cleaned for as long as that: what
        looks old may be young.
        """
        ahead = (wall - self.wall) - (monotonic - self.monotonic)
        if ahead <= LONGEST_WAIT_S:
            return CleanerRest(wall, monotonic, self.until), 0.0
        return CleanerRest(wall, monotonic, max(self.until, monotonic + min(ahead, max_age_s))), ahead

    def is_resting(self, monotonic: float) -> bool:
        """True while nothing is to be cleaned."""
        return monotonic < self.until


class ServerBeats:
    """Since when each server has shown the same beat, by our own clock: a living one shows a new one soon.

    The database's clock alone may be wrong: it may jump between two looks, and back again.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, float]] = {}

    def look(self, beats: Mapping[str, int], monotonic: float) -> None:
        """Takes the beats that the servers show now."""
        known = self._known
        self._known = {
            server: known[server] if server in known and known[server][0] == beat else (beat, monotonic)
            for server, beat in beats.items()
        }

    def is_still(self, server: str, monotonic: float, for_s: float) -> bool:
        """True if a server shows the same beat for so long."""
        return monotonic - self._known[server][1] >= for_s
