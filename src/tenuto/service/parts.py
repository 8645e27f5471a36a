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
from tenuto.service.nodes import NodeBook
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

    def key(self, row: JobRow) -> str:
        """A job's name for its node: of this database, and of no other."""
        return f"{self.database_id}-{row.id}"

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
