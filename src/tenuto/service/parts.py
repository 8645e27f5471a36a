"""What the stages and routes of one server share, put together by `server`.
Holds values and other rooms' objects; decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tenuto.clock import Clock, Randomness
from tenuto.lifecycle.service import ServiceState
from tenuto.service.decisions import Quota
from tenuto.service.log import log
from tenuto.service.metrics import Metrics
from tenuto.service.nodes import NodeBook, Outgoing, PayloadRef
from tenuto.service.places import DataPlaces, JobPlace
from tenuto.service.requests import Requests
from tenuto.service.rows import JobRow
from tenuto.service.threads import Threads
from tenuto.service.waiters import Waiters
from tenuto.settings.service import ServiceSettings


@dataclass(frozen=True, slots=True)
class Offered:
    """A service that the server offers."""

    name: str
    quota: Quota
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """One server's."""

    settings: ServiceSettings
    services: Mapping[str, Offered]
    requests: Requests
    database_id: str
    places: DataPlaces
    book: NodeBook
    clock: Clock
    randomness: Randomness
    metrics: Metrics
    sql: Threads
    waiters: Waiters[JobRow] = field(default_factory=Waiters)
    files: Threads = field(default_factory=lambda: Threads("files", 4))
    uploads: Threads = field(default_factory=lambda: Threads("uploads", 4))
    """For files and their row, one after the other."""

    def place(self, row: JobRow) -> JobPlace:
        return self.places.job(row.directory)

    def outgoing(self, row: JobRow) -> Outgoing:
        """A job as its node gets it.

        Its key names one upload: a database that was restored or copied gives its numbers again.
        """
        key = f"{self.database_id}-{row.id}-{row.directory}"
        return Outgoing(key, self.place(row).files, row.service, row.user_id, row.id)

    def payload(self, row: JobRow) -> PayloadRef:
        """The payload of a job that a node has."""
        return PayloadRef(int(row.payload_id or 0), self.outgoing(row).mark)

    async def move(self, row: JobRow, to: ServiceState, message: str = "", **values: Any) -> JobRow | None:
        """Moves a job, tells its waiters and logs it; None if another server has it by now."""
        moved = await self.sql(partial(self.requests.move, row, to, message, **values))
        if moved is not None:
            self.told(moved)
        return moved

    def told(self, row: JobRow) -> None:
        """Says that a job reached a state."""
        log("moved", job=row.id, state=row.state.value, message=row.message, node=row.node or "")
        self.metrics.moved(row)
        self.waiters.tell(row.id, row)
