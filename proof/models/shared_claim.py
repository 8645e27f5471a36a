"""Owns the model of a row that members of a database claim: join, claim, move, leave, die, take over, forget.
It follows `tenuto.database.row_table`, one transaction a step; a real table says which moves there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proof.models.checker import Step
from tenuto.lifecycle.service import SERVICE_TRANSITIONS, ServiceState

PLANTED = {
    "only the dismissed": (
        "a member that left gracefully, or died between leaving and joining, still holds claims"
    ),
    "no fence": "a move is not compared with the claim, so that an owner of then still ends the row",
    "same claim": "a row that is taken over keeps its fence, so that both owners move it",
    "claim without a look": "a member reads what waits, and claims it later whatever became of it",
    "claims before it joins": "a member claims rows before it is listed, or after it was dismissed",
    "claims unseen": "a member that was not seen for too long claims, and is dismissed after that",
    "one clock": "a member counts as gone by the database's clock alone, which may jump",
    "never read back": "a claim whose answer was lost stays with its owner, who does not know of it",
    "log apart": "the line of a move is written in another transaction than the move",
    "forgotten by age": "retention removes rows by their age, whatever their state",
}
LEASED = ("no fence", "claim without a look", "log apart", "forgotten by age")
PLANTED_LEASED = {name: PLANTED[name] for name in LEASED} | {
    "lease by another clock": "a lease runs out although its owner prolongs it"
}
_S = ServiceState
_NOBODY: frozenset[int] = frozenset()
_CLAIMED = _S.PROCESSING
_ENDED = _S.FAILED


class Row(NamedTuple):
    state: ServiceState | None = _S.QUEUED
    """None: forgotten."""
    fence: int = 0
    owner: int = -1
    is_over: bool = False
    """Its lease has run out; only of leased rows."""
    is_logged: bool = True
    """The log has its last move."""


class Member(NamedTuple):
    id: int
    """Another one after each start."""
    life: str = "up"
    """up, frozen, gone"""
    is_listed: bool = False
    is_late: bool = False
    """It was not seen for too long, by every clock that is asked."""
    held: int = 0
    """The fence of the claim that it knows of; 0: it knows of none."""
    pc: str = "idle"
    """idle, seen (planted), dismissed, log (planted)"""
    dismissed: frozenset[int] = frozenset()
    """Whom it has just dismissed."""
    slept: bool = False
    """It was frozen since it claimed."""


class State(NamedTuple):
    members: tuple[Member, ...]
    row: Row = Row()
    ghosts: frozenset[int] = frozenset()
    """Members that are gone, and still listed."""
    next_id: int = 0
    faults: int = 0
    wrong: str | None = None


class SharedClaim:
    """One row and two members: a claim lasts as long as its owner is a member."""

    name = "shared claim"
    _is_leased = False

    def __init__(self, *, members: int = 2, faults: int = 2, planted: str | None = None) -> None:
        assert planted is None or planted in PLANTED | PLANTED_LEASED
        self._members = members
        self._faults = faults
        self._planted = planted

    def initial(self) -> State:
        return State(tuple(map(Member, range(self._members))), next_id=self._members)

    def broken(self, state: State) -> str | None:
        return state.wrong

    def at_rest(self, state: State) -> bool:
        return state.row.state in (_ENDED, None) and state.row.is_logged

    def show(self, state: State) -> str:
        row = state.row
        words = [f"row:{row.state.value if row.state else 'forgotten'}#{row.fence} of {row.owner}"]
        words += ["over"] * row.is_over + ["unlogged"] * (not row.is_logged)
        for one in state.members:
            listed = f"{'listed' if one.is_listed else 'unlisted'}{' late' if one.is_late else ''}"
            words.append(f"M{one.id}:{one.life},{listed},{one.pc},holds {one.held}")
        return " ".join(words)

    def steps(self, state: State) -> Iterator[Step[State]]:
        for i, member in enumerate(state.members):
            if member.life == "up":
                yield from self._up(state, i, member)
            elif member.life == "frozen":
                yield Step(f"M{member.id} continues", _with(state, i, life="up"))
            else:
                others = tuple(one for one in state.members if one.id != member.id)
                ghosts = state.ghosts | {member.id} if member.is_listed else state.ghosts
                born = state._replace(
                    members=(*others, Member(state.next_id)), ghosts=ghosts, next_id=state.next_id + 1
                )
                yield Step(f"M{state.next_id} is started", born)
            yield from self._time(state, i, member)
        yield from self._lease(state)
        yield from self._accidents(state)
        if state.row.state is _ENDED:
            is_known = state.row.is_logged or any(one.pc == "log" for one in state.members)
            wrong = None if is_known else "a row is forgotten whose end was never logged"
            yield Step("the row is forgotten", state._replace(row=Row(None), wrong=wrong))
        elif state.row.state is not None and self._planted == "forgotten by age":
            yield Step("the row is forgotten", state._replace(wrong="a row was forgotten before its end"))

    # One transaction each

    def _up(self, state: State, i: int, m: Member) -> Iterator[Step[State]]:
        name, row = f"M{m.id}", state.row
        if m.pc == "log":
            yield Step(f"{name} logs", _with(state._replace(row=row._replace(is_logged=True)), i, pc="idle"))
            return
        if not m.is_listed:
            yield Step(f"{name} joins", _with(state, i, is_listed=True, is_late=False))
            if self._planted != "claims before it joins":
                if m.held:
                    yield from self._moves(state, i, m)
                return
        elif m.is_late:
            yield Step(f"{name} is seen", _with(state, i, is_late=False))
        if m.held:
            yield from self._moves(state, i, m)
        elif m.pc == "seen":
            yield Step(f"{name} claims", self._claimed(state, i, m))
        elif row.state is _S.QUEUED:
            if self._planted == "claim without a look":
                yield Step(f"{name} sees the row", _with(state, i, pc="seen"))
            else:
                yield Step(f"{name} claims", self._claimed(state, i, m))
                if state.faults < self._faults:
                    unheard = _with(self._claimed(state, i, m), i, held=0, slept=False)
                    worse = unheard._replace(faults=state.faults + 1)
                    yield Step(f"{name} claims, and the answer is lost", worse, True)
        elif row.state is _CLAIMED and row.owner == m.id and self._planted != "never read back":
            found = _with(state, i, held=row.fence, is_late=False)  # it looks after it was seen
            if self._is_leased:  # which it did not prolong: it is given back
                found = self._moved(found, i, found.members[i], _S.QUEUED)
            yield Step(f"{name} finds its own", found)
        yield from self._takes_over(state, i, m)

    def _claimed(self, state: State, i: int, m: Member) -> State:
        row = state.row
        if row.state is not _S.QUEUED:
            if self._planted != "claim without a look":
                return _with(state, i, pc="idle")
            if row.state is not _CLAIMED:
                return state._replace(wrong=f"a row was claimed that is {row.state and row.state.value}")
        seen = _with(state, i, is_late=m.is_late and self._planted == "claims unseen")
        after = self._written(
            seen, i, row._replace(state=_CLAIMED, owner=m.id, fence=row.fence + 1, is_over=False)
        )
        return self._robbed(_with(after, i, held=row.fence + 1, slept=False), row, m)

    def _moves(self, state: State, i: int, m: Member) -> Iterator[Step[State]]:
        yield Step(f"M{m.id} ends the row", self._moved(state, i, m, _ENDED))
        if state.faults < self._faults:
            worse = state._replace(faults=state.faults + 1)
            yield Step(f"M{m.id} gives the row back", self._moved(worse, i, m, _S.QUEUED), True)

    def _moved(self, state: State, i: int, m: Member, to: ServiceState) -> State:
        """The compare-and-set: a row that another member claimed since is left alone."""
        row, without = state.row, _with(state, i, held=0, slept=False)
        is_same = (row.state, row.fence) == (_CLAIMED, m.held)
        if not is_same and self._planted != "no fence":
            return without
        if row.state is None or to not in SERVICE_TRANSITIONS[row.state]:
            return state._replace(wrong=f"the table forbids {row.state and row.state.value} -> {to.value}")
        if row.owner != m.id:
            return state._replace(wrong="an owner of then moved the row of another")
        return self._written(without, i, row._replace(state=to, owner=-1, is_over=False))

    def _written(self, state: State, i: int, row: Row) -> State:
        if self._planted != "log apart":
            return _with(state._replace(row=row), i, pc="idle")
        return _with(state._replace(row=row._replace(is_logged=False)), i, pc="log")

    def _takes_over(self, state: State, i: int, m: Member) -> Iterator[Step[State]]:
        row = state.row
        if m.pc == "idle":
            late = {one.id for one in state.members if one.is_listed and one.is_late and one.id != m.id}
            members = tuple(
                one._replace(is_listed=one.is_listed and one.id not in late) for one in state.members
            )
            late |= state.ghosts
            dismissed = frozenset(late) if self._planted == "only the dismissed" else _NOBODY
            others = state._replace(members=members, ghosts=_NOBODY)
            after = _with(others, i, pc="dismissed", dismissed=dismissed)
            yield Step(f"M{m.id} dismisses {sorted(late)}", after)
            return
        if m.pc != "dismissed":
            return
        is_late = m.is_late and self._planted == "claims unseen"
        after = _with(state, i, pc="idle", dismissed=_NOBODY, is_listed=True, is_late=is_late)
        if row.state is _CLAIMED and self._is_lost(state, m):
            if self._is_leased:  # its next claim raises the fence
                back = row._replace(state=_S.QUEUED, owner=-1, is_over=False)
                after = self._robbed(self._written(after, i, back), row, m)
            else:
                fence = row.fence if self._planted == "same claim" else row.fence + 1
                taken = self._written(after, i, row._replace(owner=m.id, fence=fence))
                after = self._robbed(_with(taken, i, held=fence, slept=False), row, m)
        yield Step(f"M{m.id} takes over", after)

    def _is_lost(self, state: State, m: Member) -> bool:
        row = state.row
        if self._is_leased:
            return row.is_over
        listed = {one.id for one in state.members if one.is_listed} | state.ghosts
        if self._planted == "only the dismissed":
            return row.owner in m.dismissed - listed
        return row.owner not in listed | {m.id}

    def _robbed(self, state: State, before: Row, by: Member) -> State:
        """Whether a row was taken from a member that lives, and was awake all the time."""
        for one in state.members:
            is_its = before.state is _CLAIMED and before.owner == one.id and one.held == before.fence
            if is_its and one.id != by.id and one.life == "up" and not one.slept:
                return state._replace(wrong="a member that was awake all the time lost its row")
        return state

    # What happens by itself

    def _time(self, state: State, i: int, m: Member) -> Iterator[Step[State]]:
        is_silent = m.life != "up" or self._planted == "one clock"
        if m.is_listed and not m.is_late and is_silent:
            yield Step(f"M{m.id} is late", _with(state, i, is_late=True))

    def _lease(self, state: State) -> Iterator[Step[State]]:
        row = state.row
        is_prolonged = any(
            one.life == "up" and one.id == row.owner and one.held == row.fence for one in state.members
        )
        is_prolonged = is_prolonged and self._planted != "lease by another clock"
        if self._is_leased and row.state is _CLAIMED and not is_prolonged and not row.is_over:
            yield Step("the lease is over", state._replace(row=row._replace(is_over=True)))

    def _accidents(self, state: State) -> Iterator[Step[State]]:
        if state.faults >= self._faults:
            return
        worse = state._replace(faults=state.faults + 1)
        for i, m in enumerate(state.members):
            if m.life == "gone":
                continue
            dead = {"life": "gone", "held": 0, "pc": "idle", "dismissed": _NOBODY, "slept": False}
            yield Step(f"M{m.id} dies", _with(worse, i, **dead), True)
            if m.life == "up" and m.is_listed:
                yield Step(
                    f"M{m.id} leaves with what it holds", _with(worse, i, **dead, is_listed=False), True
                )
            if m.life == "up":
                yield Step(f"M{m.id} freezes", _with(worse, i, life="frozen", slept=bool(m.held)), True)


class LeasedClaim(SharedClaim):
    """The same with a lease, which the owner prolongs: the claim ends with it, and only then."""

    name = "leased claim"
    _is_leased = True


def _with(state: State, i: int, **changes: object) -> State:
    members = list(state.members)
    members[i] = members[i]._replace(**changes)  # type: ignore[arg-type]
    return state._replace(members=tuple(members))
