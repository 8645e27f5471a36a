"""What servers learned of their nodes, noted in the database: slots, and when each node last answered.
For readers such as the monitor, which ask no node; no decision is made by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection

from tenuto.database.members import Member, MemberKind, join, listed

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
