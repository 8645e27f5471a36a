"""What servers learned of their nodes, noted in the database: slots, when each last answered, where it is.
For readers such as the monitor, which ask no node, and for jobs whose node has left the settings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from tenuto.database import Member, MemberKind, join, listed
from tenuto.service.tables import IS_ACTIVE, jobs, nodes

_LONGEST = 255


class NodeNote(NamedTuple):
    """A node as a server last met it; `seen_at` in milliseconds."""

    slots: int | None
    seen_at: int


def note_nodes(connection: Connection, answered: Mapping[str, int | None]) -> None:
    """Note the nodes that have just answered: name -> slots, where they are known."""
    for name, slots in answered.items():
        identity = hashlib.sha256(name.encode()).hexdigest()
        join(connection, Member(identity, MemberKind.NODE, name[:_LONGEST], "", slots=slots))


def noted_nodes(connection: Connection) -> dict[str, NodeNote]:
    """Every node that a server has noted, by its name."""
    found = listed(connection, MemberKind.NODE)
    return {member.host: NodeNote(member.slots, member.seen_at) for member in found}


class NodePlace(NamedTuple):
    """Where a node is, and the file that holds its secret."""

    name: str
    url: str
    token_file: str | None


def note_places(connection: Connection, places: Iterable[NodePlace]) -> None:
    """Note where the nodes of the settings are."""
    known = {place.name: place for place in _places(connection)}
    for place in places:
        if known.get(place.name) != place:
            connection.execute(delete(nodes).where(nodes.c.name == place.name))
            connection.execute(insert(nodes).values(place._asdict()))


def busy_nodes(connection: Connection) -> dict[str, NodePlace | None]:
    """The nodes that have jobs, and where they are if that was noted; the settings may name others by now."""
    having = connection.execute(select(jobs.c.node).where(IS_ACTIVE, jobs.c.node.is_not(None)).distinct())
    found: dict[str, NodePlace | None] = dict.fromkeys(map(str, having.scalars()))
    return found | {place.name: place for place in _places(connection) if place.name in found}


def _places(connection: Connection) -> list[NodePlace]:
    return [NodePlace(*row) for row in connection.execute(select(*nodes.c))]
