"""Recovery: takes back the rows of workers that are gone.
A worker of this machine and workspace is known to be dead by its process; of others only the lease tells.
"""

from __future__ import annotations

import json
from functools import partial

from sqlalchemy import Connection

from tenuto.database.members import Member, MemberKind, leave, listed
from tenuto.search.claim_store import has_lost_rows
from tenuto.search.store import Store
from tenuto.workspace.ports import Liveness, Processes, ProcessIdentity


def process_text(identity: ProcessIdentity) -> str:
    """A process as the list of members keeps it."""
    return json.dumps(identity._asdict())


def is_dead(processes: Processes, member: Member) -> bool:
    """Whether the process of a member of this machine is certainly gone."""
    try:
        identity = ProcessIdentity(**json.loads(member.process))
    except (ValueError, TypeError):
        return False
    return processes.liveness(identity) in (Liveness.DEAD, Liveness.REBOOTED)


class Recovery:
    """Takes back rows, for all searches of a database."""

    def __init__(self, store: Store, processes: Processes, workspace: str, max_attempts: int) -> None:
        self._store = store
        self._processes = processes
        self._workspace = workspace
        self._max_attempts = max_attempts

    def is_due(self) -> bool:
        """Whether a row may have to be taken back; a look, which changes nothing."""
        return self._store.database.read(self._is_due)

    def _is_due(self, connection: Connection) -> bool:
        return has_lost_rows(connection) or bool(self._dead(connection))

    def _dead(self, connection: Connection) -> list[str]:
        """The workers of this workspace that are known to be dead."""
        return [
            member.id
            for member in listed(connection, MemberKind.WORKER)
            if member.workspace == self._workspace and is_dead(self._processes, member)
        ]

    def recover(self) -> int:
        """Takes back what can be; how many rows. Costs a row no attempt if its worker died here."""
        database = self._store.database
        dead = database.read(self._dead)
        count = self._store.recover(self._max_attempts, dead)
        if dead:
            database.write(partial(_leave_all, dead))
        return count


def _leave_all(members: list[str], connection: Connection) -> None:
    for member in members:
        leave(connection, member)
