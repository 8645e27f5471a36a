"""The membership of one agent: its line among the members of a database, and the file that its runners watch.
Knows no rows.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from tenuto.database import Database
from tenuto.database.members import Member, MemberKind, join, leave, see
from tenuto.search.candidate_jobs import LEASE_FILE
from tenuto.search.recovery import process_text
from tenuto.workspace.ports import Machine


class Membership:
    """An agent as others see it."""

    def __init__(
        self, database: Database, machine: Machine, workspace: Path, *, slots: int, is_leased: bool
    ) -> None:
        """`is_leased`: runners of the workspace end their payloads when the agent's file grows old."""
        own = machine.processes.own()
        self.name = f"{own.host[:32]}-{own.pid}-{machine.randomness.nonce()[:8]}"
        self._database = database
        self._file = workspace / LEASE_FILE if is_leased else None
        self._member = Member(
            self.name, MemberKind.WORKER, own.host, process_text(own), str(workspace), slots
        )

    def join(self) -> None:
        """Is listed among the members."""
        self._database.write(lambda connection: join(connection, self._member))
        self._touch()

    def be_seen(self) -> None:
        """Says that the agent lives and that its leases hold; called after each renewal that succeeded."""
        self._database.write(partial(_see, self._member))
        self._touch()

    def leave(self) -> None:
        """Is listed no more."""
        self._database.write(lambda connection: leave(connection, self.name))

    def _touch(self) -> None:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.touch()
            os.utime(self._file)


def _see(member: Member, connection: Connection) -> None:
    if not see(connection, member.id):
        join(connection, member)
