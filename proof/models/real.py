"""Owns the bridge from the models to the real code: `derive_state` judges a directory, `decide` a queue.
The models hold small tuples; here they become records, and the answer becomes a small tuple again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

from tenuto.lifecycle.states import JobFailureStatus
from tenuto.scheduler.decisions import RetryLimits, Tries, Verdict, after_attempt, explained, unless_cancelled
from tenuto.scheduler.tokens import MOST_OVERTAKINGS, Picks, decide
from tenuto.workspace.derive import ClusterReport, Derived, Evidence, derive_state
from tenuto.workspace.derive_table import Claimed, ClusterSays
from tenuto.workspace.markers import Marker, MarkersFound
from tenuto.workspace.ports import Liveness, ProcessIdentity
from tenuto.workspace.records import LaunchRecord, PidRecord, StopRecord
from tenuto.workspace.token_files import Need, Ticket

_SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)


class Launch(NamedTuple):
    """`launch.json`: the attempt, who opened it (the nonce), how often it was lost and timed out before."""

    attempt: int
    nonce: int
    lost: int = 0
    timeouts: int = 0


class Mark(NamedTuple):
    """A marker. `reason` is None in `.done`."""

    attempt: int
    nonce: int
    reason: JobFailureStatus | None = None


class Pid(NamedTuple):
    """A pid record: of which attempt, which runner, and since which start of the machine."""

    attempt: int
    nonce: int
    boot: int = 0


class Shown(NamedTuple):
    """What a directory shows to its reader."""

    launch: Launch | None = None
    done: Mark | None = None
    failed: Mark | None = None
    pid: Pid | None = None
    liveness: Liveness = Liveness.UNKNOWN
    locked: bool = False
    descendants: bool = False
    external: bool = False
    claimed: Claimed = Claimed.NONE
    cluster: ClusterSays = ClusterSays.NOTHING


@cache
def next_try(shown: Shown, limits: RetryLimits) -> Tries | None:
    """The counts to open the next attempt with; None if this one was the last."""
    launch = shown.launch
    tries = Tries() if launch is None else Tries(launch.timeouts, launch.lost)
    return after_attempt(judge(shown), tries, limits).tries


@cache
def verdict(
    shown: Shown, limits: RetryLimits, wish: JobFailureStatus | None, *, heeded: bool = True
) -> Verdict:
    """What an ended attempt amounts to that a person may have wished to stop.

    `heeded`: the wish keeps the job from another try.
    """
    found, launch = judge(shown), shown.launch
    tries = Tries() if launch is None else Tries(launch.timeouts, launch.lost)
    stop = None if wish is None else StopRecord(found.attempt, wish, _SOME_TIME, "wished")
    is_explained = found.marker is None and found.reason is JobFailureStatus.LOST
    ended = after_attempt(explained(found, stop if is_explained and heeded else None), tries, limits)
    return unless_cancelled(ended, stop if heeded else None)


@cache
def judge(shown: Shown) -> Derived:
    """What the real `derive_state` makes of a directory."""
    launch, pid = shown.launch, shown.pid
    return derive_state(
        Evidence(
            markers=MarkersFound(_marker(shown.done), _marker(shown.failed)),
            launch=None
            if launch is None
            else LaunchRecord(
                launch.attempt, str(launch.nonce), "model", "job", "host", _SOME_TIME, shown.external
            ),
            pid=None
            if pid is None
            else PidRecord(ProcessIdentity("host", str(pid.boot), "ns", 2, 3), pid.attempt, _SOME_TIME),
            liveness=shown.liveness,
            locked=shown.locked,
            descendants=shown.descendants,
            claimed=shown.claimed,
            cluster=ClusterReport(shown.cluster),
        )
    )


def _marker(mark: Mark | None) -> Marker | None:
    return None if mark is None else Marker(mark.attempt, str(mark.nonce), mark.reason)


Units = tuple[frozenset[int], ...]
"""token -> units"""


class Asked(NamedTuple):
    """A ticket: whose it is, what it asks for of each token, how often it may still be overtaken on it."""

    is_own: bool
    needs: tuple[int, ...]
    patience: tuple[int, ...]


class Granted(NamedTuple):
    """What `decide` made of a queue."""

    picks: tuple[tuple[int, Units], ...]
    """(place in the queue, units), of those that are granted."""
    patience: tuple[tuple[int, ...], ...]
    """How often each may still be overtaken afterwards, by its place in the queue."""


@cache
def give_out(queue: tuple[Asked, ...], free: Units) -> Granted:
    """Who of a queue gets which units."""
    tokens = range(len(free))
    picked: list[tuple[int, Units]] = []

    def claim(ticket: Ticket, picks: Picks) -> bool | None:
        if not queue[ticket.number].is_own:
            return None
        picked.append((ticket.number, tuple(frozenset(picks.get(str(token), ())) for token in tokens)))
        return True

    decision = decide(
        [_ticket(place, asked) for place, asked in enumerate(queue)],
        {str(token): sorted(units) for token, units in enumerate(free)},
        ignored=lambda ticket: False,
        claim=claim,
    )
    patience = [asked.patience for asked in queue]
    for ticket in decision.tickets:
        patience[ticket.number] = tuple(MOST_OVERTAKINGS - ticket.overtaken[str(token)] for token in tokens)
    return Granted(tuple(picked), tuple(patience))


def _ticket(place: int, asked: Asked) -> Ticket:
    needs = tuple(Need(str(token), amount) for token, amount in enumerate(asked.needs) if amount)
    overtaken = {str(token): MOST_OVERTAKINGS - left for token, left in enumerate(asked.patience)}
    return Ticket(place, 0, needs, overtaken)
