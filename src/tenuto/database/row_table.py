"""Rows that members claim: moves by compare-and-set, claims with a fence, take-over, a log, retention.
Knows no door's columns and no order: a door chooses the next row, and the end of a lost row.

`proof/models/shared_claim.py` is the model check. A claim writes the owner and raises the fence: what an
owner of before writes has no effect. A claim lasts as long as its owner is a member, whichever way the owner
went: it left, died, or never joined. So a member is seen in the transaction in which it claims: a frozen
member would be dismissed after it. Rows with a lease are lost with the lease instead, by when all that their
owner started has ended by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    TextClause,
    Update,
    bindparam,
    delete,
    insert,
    select,
    tuple_,
    update,
)

from tenuto.clock import Clock, SystemClock
from tenuto.database.engine import Prepared, now_ms
from tenuto.database.members import MemberKind, members
from tenuto.lifecycle.states import check_move, origins

S = TypeVar("S", bound=Enum)


class RowTable(Generic[S]):
    """One table of rows that go from state to state."""

    def __init__(
        self,
        table: Table,
        transitions: Mapping[S, Mapping[S, str]],
        *,
        state: str = "state",
        fence: str | None = None,
        owner: str | None = None,
        moves: Table | None = None,
    ) -> None:
        """`state`, `fence`, `owner`: the names of these columns, where rows have them; `moves`: their log."""
        self._table = table
        self._transitions = transitions
        self._state: Column[Any] = table.c[state]
        self._fence: Column[Any] | None = None if fence is None else table.c[fence]
        self._owner: Column[Any] | None = None if owner is None else table.c[owner]
        self._line = None if moves is None else Prepared(insert(moves))
        self._line_now = None if moves is None else Prepared(insert(moves).values(at=now_ms()))

    # Moving

    def check(self, state: S, to: S) -> None:
        """Raises `IllegalTransition` if the table of states forbids the move."""
        check_move(self._transitions, state, to)

    def movable(self, to: S, *more: ColumnElement[bool]) -> Update:
        """The update of every row that meets the conditions and may move there by the table of states."""
        allowed = self._state.in_([state.value for state in origins(self._transitions, to)])
        return update(self._table).where(allowed, *more).values({self._state.name: to.value})

    def swap(self, *returned: Column[Any], **stamps: Any) -> Prepared:
        """The compare-and-set of any columns, and of `stamps`; it returns the row, or these columns of it.

        Its values name the row, and the state and fence that the caller knows (`known`): a row that went on
        since is left alone.
        """
        where = [self._table.c.id == bindparam("the_row"), self._state == bindparam("known_state")]
        if self._fence is not None:
            where.append(self._fence == bindparam("known_fence"))
        statement = update(self._table).where(*where).values(stamps)
        return Prepared(statement.returning(*(returned or self._table.c)))

    def known(self, row_id: object, state: S, fence: int | None = None) -> dict[str, Any]:
        """What the caller of a swap knows of the row."""
        known = {"the_row": row_id, "known_state": state.value}
        return known if self._fence is None else {**known, "known_fence": fence}

    # Claims

    def claim(self, to: S, *where: ColumnElement[bool] | TextClause, **stamps: Any) -> Update:
        """Takes rows for the owner that `stamps` names; this raises their fence."""
        assert self._fence is not None
        raised = {self._state.name: to.value, self._fence.name: self._fence + 1}
        return update(self._table).where(*where).values({**raised, **stamps})

    def take_over(self, owner: str, kind: MemberKind, is_claimed: TextClause) -> Update:
        """Takes the rows that are claimed by no member of a kind, whichever way their owners went."""
        assert self._fence is not None
        assert self._owner is not None
        alive = select(members.c.id).where(members.c.kind == kind.value)
        lost = (self._owner != owner) & self._owner.not_in(alive)
        taken = {self._fence.name: self._fence + 1, self._owner.name: owner}
        return update(self._table).where(is_claimed, lost).values(taken)

    def held(self, keys: Collection[tuple[Any, int]]) -> ColumnElement[bool]:
        """The row is one of these, given as (id, fence), and was not claimed since."""
        return tuple_(self._table.c.id, self._fence).in_(keys)

    # The log

    def record(self, connection: Connection, lines: Sequence[Mapping[str, Any]]) -> None:
        """Writes a line for each move, as of now where it has no `at`; in the transaction of the moves."""
        assert self._line is not None
        assert self._line_now is not None
        if lines:
            (self._line if "at" in lines[0] else self._line_now).run(connection, lines)

    # Retention

    def old(self, connection: Connection, has_ended: TextClause, age_ms: int, limit: int) -> Sequence[Any]:
        """Rows that ended longer ago than this, the oldest first."""
        ended_at = self._table.c.ended_at
        query = select(self._table).where(has_ended, ended_at < now_ms() - age_ms)
        return connection.execute(query.order_by(ended_at).limit(limit)).all()

    def forget(self, connection: Connection, states: Iterable[S], age_ms: int, limit: int) -> int:
        """Deletes rows in these states that ended longer ago than this; how many."""
        rows = self._table.c
        is_over = self._state.in_([state.value for state in states])
        old = select(rows.id).where(is_over, rows.ended_at < now_ms() - age_ms).limit(limit)
        return connection.execute(delete(self._table).where(rows.id.in_(old))).rowcount


LATEST_S = 10.0
"""How long a gap is asked for: longer than a transaction may take. An id that was rolled back never comes."""
MOST_MISSING = 10_000


class LateIds:
    """The last id that was seen, and the gaps before it."""

    def __init__(self, seen: Iterable[int] = (), clock: Clock | None = None) -> None:
        """`seen`: the last ids of the table; the gaps between them may still be filled."""
        self._clock = clock or SystemClock()
        self._missing: dict[int, float] = {}
        """Id -> when it was missed first."""
        first, *others = sorted(seen) or [0]
        self.last = first
        self.saw(others)

    @property
    def missing(self) -> Sequence[int]:
        """The ids to ask for besides those after `last`."""
        return tuple(self._missing)

    def saw(self, ids: Iterable[int]) -> None:
        """Take note of rows that were read."""
        found = set(ids)
        now = self._clock.monotonic()
        for one in found:
            self._missing.pop(one, None)
        highest = max(found, default=self.last)
        begin = max(self.last + 1, highest - MOST_MISSING)
        self._missing.update((one, now) for one in range(begin, highest) if one not in found)
        self.last = max(self.last, highest)
        self._missing = {one: since for one, since in self._missing.items() if now - since < LATEST_S}
