"""The payloads of a node: the only SQL on them, each call one transaction.
Starts nothing and touches no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from tenuto.database import Database, Prepared, RowTable, now_ms
from tenuto.errors import NotOurs
from tenuto.lifecycle.service import PAYLOAD_TRANSITIONS, PayloadState
from tenuto.service.nodes import mark_of
from tenuto.service.tables import IS_OPEN, PAYLOAD_ENDED, meta, payloads

DRAINED = "drained"
"""In `meta`: the node takes no payloads."""


class PayloadRow(NamedTuple):
    """The row of a payload. Instants are milliseconds of the database's clock."""

    id: int
    key: str
    """The server's name for it: the same key is the same payload."""
    state: PayloadState
    killed: bool
    """A person asked for its end."""
    message: str
    service: str
    user_id: str
    job_id: str
    """The id that the user knows."""
    created_at: int
    started_at: int | None
    ended_at: int | None
    exit_code: int | None
    result_bytes: int | None
    result_sha256: str | None
    command: str
    """The program and its arguments as JSON; empty: the upload's own `run.sh`."""
    cpu_s: float | None = None
    memory_peak: int | None = None

    @property
    def mark(self) -> str:
        return mark_of(self.key, self.service, self.user_id, self.job_id)

    def refuse_other(self, mark: str | None) -> None:
        """Raises `NotOurs` if the payload is another's than the server says, where it says whose."""
        if mark not in (None, self.mark):
            raise NotOurs("the node has the job of another here")


class Sender(NamedTuple):
    """For whom a payload runs, as its program may know."""

    service: str = ""
    user_id: str = ""
    job_id: str = ""


ROWS = RowTable(payloads, PAYLOAD_TRANSITIONS)
_BY_ID = Prepared(select(payloads).where(payloads.c.id == bindparam("payload")))
_BY_KEY = Prepared(select(payloads).where(payloads.c.key == bindparam("name")))
_ANY = Prepared(select(payloads.c.id).limit(1))
_ADD = Prepared(
    insert(payloads).values(state=PayloadState.PREPARED.value, created_at=now_ms()).returning(*payloads.c)
)
_CHANGE = update(payloads).where(IS_OPEN, payloads.c.id == bindparam("payload")).returning(*payloads.c)
"""Changes any columns of a payload that has not ended."""
_END = _CHANGE.values(ended_at=now_ms())
_OPEN = Prepared(_CHANGE)
_ENDED = Prepared(_END)
_COMPLETED = Prepared(_END.values(started_at=func.coalesce(payloads.c.started_at, now_ms())))
_SWAPPED = ROWS.swap()
_STARTED = ROWS.swap(state=PayloadState.RUNNING.value, started_at=now_ms() - bindparam("ago_ms"))
_STATE = PayloadRow._fields.index("state")
_KILLED = PayloadRow._fields.index("killed")


class Payloads:
    """The payloads of one node. Every method blocks: call it in a thread."""

    def __init__(self, database: Database, first_id: int = 1) -> None:
        """`first_id`: where ids begin; by chance, so that another node at the same URL has other ids."""
        self._database = database
        self._first_id: int | None = first_id

    def is_drained(self) -> bool:
        """True if the node was told to take no payloads."""
        query = select(meta.c.value).where(meta.c.key == DRAINED)
        return self._database.read(lambda connection: connection.execute(query).scalar()) is not None

    def set_drained(self, is_drained: bool) -> None:
        """Notes whether the node takes payloads."""

        def once(connection: Connection) -> None:
            connection.execute(delete(meta).where(meta.c.key == DRAINED))
            if is_drained:
                connection.execute(insert(meta).values(key=DRAINED, value="yes"))

        self._database.write(once)

    def add(self, key: str, sender: Sender, command: str = "") -> PayloadRow:
        """The row of a payload, made if the key is new."""

        def once(connection: Connection) -> PayloadRow:
            known = _found(connection, _BY_KEY, {"name": key})
            if known is not None:
                return known
            values: dict[str, Any] = {"key": key, "command": command, **sender._asdict()}
            if self._first_id is not None and _ANY.row(connection) is None:
                values["id"] = self._first_id
            return _payload(_ADD.rows(connection, values)[0])

        added = self._database.write(once)
        self._first_id = None  # also once all rows are forgotten: servers of the older service know ids only
        return added

    def get(self, payload_id: int) -> PayloadRow | None:
        """The row of a payload."""
        return self._database.read(lambda connection: _found(connection, _BY_ID, {"payload": payload_id}))

    def find(self, key: str) -> PayloadRow | None:
        """The row of the payload with this key."""
        return self._database.read(lambda connection: _found(connection, _BY_KEY, {"name": key}))

    def open(self) -> list[PayloadRow]:
        """The payloads that have not ended, the oldest first."""
        query = select(payloads).where(IS_OPEN).order_by(payloads.c.id)
        return self._database.read(lambda connection: [_payload(row) for row in connection.execute(query)])

    def counts(self) -> dict[PayloadState, int]:
        """How many payloads are in each state."""
        query = select(payloads.c.state, func.count()).group_by(payloads.c.state)
        return self._database.read(
            lambda connection: {PayloadState(row[0]): row[1] for row in connection.execute(query)}
        )

    def queue_age_s(self) -> float:
        """How long the oldest payload has waited for a slot, in seconds."""
        waiting = select(func.min(payloads.c.created_at)).where(
            IS_OPEN, payloads.c.state == PayloadState.PREPARED.value
        )
        query = select(func.coalesce(now_ms() - waiting.scalar_subquery(), 0))
        return self._database.read(
            lambda connection: max(int(connection.execute(query).scalar_one()), 0) / 1000
        )

    def started(self, payload_id: int, ago_ms: int = 0) -> PayloadRow | None:
        """Moves a prepared payload to Running, since a while; None if it was not prepared any more."""
        return self._changed(_STARTED, ROWS.known(payload_id, PayloadState.PREPARED), ago_ms=ago_ms)

    def explain(self, payload_id: int, message: str) -> PayloadRow | None:
        """Names the wait of an open payload."""
        return self._changed(_OPEN, {"payload": payload_id}, message=message)

    def kill(self, payload_id: int) -> PayloadRow | None:
        """Notes that the end of a payload was asked for; the row afterwards, None if there is none."""
        return self._changed(_OPEN, {"payload": payload_id}, killed=True) or self.get(payload_id)

    def end(self, payload_id: int, to: PayloadState, message: str, **values: Any) -> PayloadRow | None:
        """Moves an open payload to its end; None if it had ended before.

        One too short to be seen running passes through Running on the way.
        """
        ROWS.check(PayloadState.RUNNING, to)
        statement = _COMPLETED if to is PayloadState.COMPLETED else _ENDED
        return self._changed(statement, {"payload": payload_id}, **values, state=to.value, message=message)

    def clean(self, row: PayloadRow) -> PayloadRow | None:
        """Moves an ended payload to Cleaned."""
        ROWS.check(row.state, PayloadState.CLEANED)
        return self._changed(_SWAPPED, ROWS.known(row.id, row.state), state=PayloadState.CLEANED.value)

    def old(self, max_age_ms: int, limit: int = 100) -> list[PayloadRow]:
        """Payloads that ended longer ago than this and still have their files."""
        return self._database.read(
            lambda connection: [
                _payload(row) for row in ROWS.old(connection, PAYLOAD_ENDED, max_age_ms, limit)
            ]
        )

    def forget(self, age_ms: int, limit: int = 1000) -> int:
        """Deletes the rows of cleaned payloads that ended longer ago than this."""
        cleaned = (PayloadState.CLEANED,)
        return self._database.write(lambda connection: ROWS.forget(connection, cleaned, age_ms, limit))

    def _changed(self, statement: Prepared, which: Mapping[str, Any], **values: Any) -> PayloadRow | None:
        changes = {**which, **values}
        return self._database.write(lambda connection: _found(connection, statement, changes))


def _payload(row: Sequence[Any]) -> PayloadRow:
    values = list(row)
    values[_STATE] = PayloadState(values[_STATE])
    values[_KILLED] = bool(values[_KILLED])
    return PayloadRow(*values)


def _found(connection: Connection, statement: Prepared, values: Mapping[str, Any]) -> PayloadRow | None:
    found = statement.row(connection, values)
    return None if found is None else _payload(found)
