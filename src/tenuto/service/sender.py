"""The sender: claims queued jobs within the quotas, and hands them to the getter to be seen through.
How a claimed job reaches its node is `handover`.
"""

from __future__ import annotations

from collections.abc import Callable

from tenuto.service.log import log
from tenuto.service.parts import Offered, Parts
from tenuto.service.rows import JobRow
from tenuto.service.stage import Stage

AT_ONCE = 16
"""Jobs claimed in one transaction."""


class Sender:
    """The stage that claims jobs."""

    def __init__(self, parts: Parts, follow: Callable[[JobRow], None]) -> None:
        """`follow` sees a claimed job through."""
        self._parts = parts
        self._follow = follow
        self.stage = Stage("sender", self.round, parts.settings.poll_s, parts.metrics.stage_failed)

    async def round(self) -> None:
        """Claims what the quotas allow, of every service."""
        for service in self._parts.services.values():
            while await self._claim(service) == AT_ONCE:
                pass

    async def _claim(self, service: Offered) -> int:
        parts = self._parts
        nodes = parts.book.plan(service.name, service.nodes, AT_ONCE)
        if not nodes:
            return 0  # the getter wakes this stage when jobs have ended
        rows = await parts.sql(parts.requests.claim, service.name, service.quota, nodes)
        if rows:
            log("claimed", service=service.name, jobs=len(rows))
        for row in rows:
            parts.waiters.tell(row.id, row)
            self._follow(row)
        return len(rows)
