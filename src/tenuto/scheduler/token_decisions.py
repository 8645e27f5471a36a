"""Which of the jobs that wait for tokens may start, by the tickets and the free units alone.
Locks nothing, writes nothing and reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from tenuto.workspace.token_files import Need, Ticket, TokenState, waiting_text

PATIENCE_S = 10.0
"""How long a ticket of another scheduler may be able to start, and not start, before it is ignored."""
MOST_OVERTAKINGS = 10
"""How often later requests may take units that an earlier one is short of."""

Picks = Mapping[str, tuple[int, ...]]
"""token -> units."""


class Decision(NamedTuple):
    """What one look at the queue led to."""

    tickets: tuple[Ticket, ...]
    """The tickets that still wait, each with how often it was passed."""
    able: frozenset[int]
    """The numbers of tickets that could start, and that other schedulers are to start."""


def decide(
    tickets: Sequence[Ticket],
    free: Mapping[str, Sequence[int]],
    *,
    ignored: Callable[[Ticket], bool],
    claim: Callable[[Ticket, Picks], bool | None],
) -> Decision:
    """Goes through the tickets by number, and grants each that fits.

    `ignored`: tickets that neither get anything nor keep another from it. `claim` is called for one that can
    start: True if it is the caller's own and has taken the units, False if it has not, None if it is
    another scheduler's, which is on the way to take them.
    """
    left = {token: list(units) for token, units in free.items()}
    waiting: list[Ticket] = []
    passed: list[int] = []
    """Where in `waiting` those stand that are short of something, and for whom nothing is kept."""
    able: set[int] = set()
    for ticket in tickets:
        if ignored(ticket):
            waiting.append(ticket)
            continue
        picks = _picks(ticket, left)
        if _is_short(ticket, picks):
            if _is_due(ticket, picks):
                _remove(left, picks)  # kept for it, until it has all
            else:
                passed.append(len(waiting))
            waiting.append(ticket)
            continue
        claimed = claim(ticket, {token: tuple(units) for token, units in picks.items()})
        if claimed is not True:
            waiting.append(ticket)
        if claimed is None:
            able.add(ticket.number)
        if claimed is not False:
            _remove(left, picks)
        if claimed is True:
            passed = [position for position in passed if _still_passed(waiting, position, picks, left)]
    return Decision(tuple(waiting), frozenset(able))


def _still_passed(
    waiting: list[Ticket], position: int, taken: Mapping[str, Sequence[int]], left: dict[str, list[int]]
) -> bool:
    """Counts an overtaking; if that was one too many, the rest is kept for the ticket from now on."""
    ticket = waiting[position] = _overtaken(waiting[position], taken, left)
    picks = _picks(ticket, left)
    if not _is_due(ticket, picks):
        return True
    _remove(left, picks)
    return False


def _picks(ticket: Ticket, left: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    return {need.token: _fitting(need, left)[: need.amount] for need in ticket.needs}


def _is_short(ticket: Ticket, picks: Mapping[str, Sequence[int]]) -> bool:
    return any(len(picks[need.token]) < need.amount for need in ticket.needs)


def _is_due(ticket: Ticket, picks: Mapping[str, Sequence[int]]) -> bool:
    """Whether it was overtaken often enough on everything that it is short of."""
    short = [need.token for need in ticket.needs if len(picks[need.token]) < need.amount]
    return all(ticket.overtaken.get(token, 0) >= MOST_OVERTAKINGS for token in short)


def _fitting(need: Need, left: Mapping[str, Sequence[int]]) -> Sequence[int]:
    units = left.get(need.token, ())
    return units if need.units is None else [unit for unit in units if unit in need.units]


def _remove(left: dict[str, list[int]], picks: Mapping[str, Sequence[int]]) -> None:
    for token, units in picks.items():
        gone = set(units)
        left[token] = [unit for unit in left.get(token, ()) if unit not in gone]


def _overtaken(ticket: Ticket, picks: Mapping[str, Sequence[int]], left: Mapping[str, list[int]]) -> Ticket:
    """The ticket, with one overtaking more on each token whose units were taken from before it."""
    overtaken = dict(ticket.overtaken)
    for need in ticket.needs:
        usable = [unit for unit in picks.get(need.token, ()) if need.units is None or unit in need.units]
        if usable and len(_fitting(need, left)) < need.amount:
            overtaken[need.token] = min(overtaken.get(need.token, 0) + 1, MOST_OVERTAKINGS)
    return ticket._replace(overtaken=overtaken)


def tokens_of(tickets: list[Ticket]) -> list[str]:
    """The tokens that tickets ask for, in one order: no step may depend on the hashes of names."""
    return sorted({need.token for ticket in tickets for need in ticket.needs})


def names_of(needs: tuple[Need, ...]) -> tuple[str, ...]:
    """The names of the tokens that a job needs units of."""
    return tuple(need.token for need in needs)


def why_waiting(needs: tuple[Need, ...], states: Mapping[str, TokenState]) -> str:
    """What a job with a ticket waits for, in words."""
    for need in needs:
        state = states.get(need.token)
        if state is not None and state.free_count < need.amount:
            return waiting_text(need.token, need.amount, state)
    return f"waits its turn for token {', '.join(need.token for need in needs)}"


class Absentees:
    """The tickets whose schedulers let them wait though they could start: nothing is kept for them."""

    def __init__(self) -> None:
        self._able_since: dict[int, float] = {}
        self._numbers: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def note(self, able: Collection[int], left: Collection[Ticket], own: int, now: float) -> None:
        """Take the numbers that could start now, and the tickets left; `own`: the caller's scheduler."""
        self._able_since = {number: self._able_since.get(number, now) for number in able}
        self._numbers |= {number for number, since in self._able_since.items() if now - since >= PATIENCE_S}
        self._numbers &= {ticket.number for ticket in left if ticket.scheduler != own}
