"""Members: which servers, nodes, schedulers and workers use a database, and when each was last seen.
Says nothing of what a member does; times are of the database's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, unique

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    select,
    update,
)

from tenuto.database.engine import Prepared, now_ms

metadata = MetaData()
members = Table(
    "members",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("host", String(255), nullable=False),
    Column("process", Text, nullable=False),
    Column("workspace", Text),
    Column("slots", Integer),
    Column("started_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)


@unique
class MemberKind(Enum):
    """What a member is."""

    SERVER = "server"
    NODE = "node"
    SCHEDULER = "scheduler"
    WORKER = "worker"


_SEE = Prepared(
    update(members)
    .where(members.c.id == bindparam("member"))
    .values(seen_at=now_ms())
    .returning(members.c.id)
)


@dataclass(frozen=True, slots=True)
class Member:
    """A process that uses the database; `process` is its identity as the process itself wrote it down."""

    id: str
    kind: MemberKind
    host: str
    process: str
    workspace: str | None = None
    slots: int | None = None
    started_at: int = 0
    seen_at: int = 0


def join(connection: Connection, member: Member) -> None:
    """Adds a member, or replaces its row."""
    known = {
        "kind": member.kind.value,
        "host": member.host,
        "process": member.process,
        "workspace": member.workspace,
        "slots": member.slots,
        "started_at": now_ms(),
        "seen_at": now_ms(),
    }
    if not connection.execute(update(members).where(members.c.id == member.id).values(known)).rowcount:
        connection.execute(insert(members).values(id=member.id, **known))


def see(connection: Connection, member_id: str) -> bool:
    """Notes that a member is alive; False if it was taken off the list and must join again."""
    return bool(_SEE.rows(connection, {"member": member_id}))


def be_seen(connection: Connection, member: Member) -> None:
    """Notes that a member is alive; it joins if it is not on the list."""
    if not see(connection, member.id):
        join(connection, member)


def leave(connection: Connection, *member_ids: str) -> None:
    """Takes members off the list."""
    connection.execute(delete(members).where(members.c.id.in_(member_ids)))


def dismiss(connection: Connection, beats: Mapping[str, int]) -> None:
    """Takes members off the list unless they were seen since: their `seen_at` is compared."""
    for member_id, seen_at in beats.items():
        is_it = (members.c.id == member_id) & (members.c.seen_at == seen_at)
        connection.execute(delete(members).where(is_it))


def listed(connection: Connection, kind: MemberKind | None = None) -> list[Member]:
    """The members, the oldest first."""
    query = select(members).order_by(members.c.started_at, members.c.id)
    if kind is not None:
        query = query.where(members.c.kind == kind.value)
    return [_member(row._mapping) for row in connection.execute(query)]


def unseen(connection: Connection, kind: MemberKind, for_ms: int) -> list[Member]:
    """The members of a kind that were not seen for so long, or not since the clock was set back as far."""
    is_old = (members.c.seen_at < now_ms() - for_ms) | (members.c.seen_at > now_ms() + for_ms)
    query = select(members).where(members.c.kind == kind.value, is_old)
    return [_member(row._mapping) for row in connection.execute(query.order_by(members.c.id))]


def _member(row: object) -> Member:
    values = dict(row)  # type: ignore[call-overload]
    return Member(**{**values, "kind": MemberKind(values["kind"])})
