"""The sender: claims queued jobs within the quotas, and hands them to the getter to be seen through.
How a claimed job reaches its node is `getter.Handover`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tenuto.service.decisions import plan_nodes
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
        self._last = ""
        """The service that got the last place."""
        self.stage = Stage("sender", self.round, parts.settings.poll_s, parts.metrics.stage_failed)

    async def round(self) -> None:
        """Claims what the quotas and the places of the nodes allow.

        Services that share a node take turns, job by job: the queue of one does not delay those of others.
        """
        while True:
            services = [self._parts.services[name] for name in sorted(self._parts.services)]
            after = [one for one in services if one.name > self._last]
            ordered = after + services[: len(services) - len(after)]
            claimed = [await self._claim(service, _at_once(service, services)) for service in ordered]
            if not any(claimed):
                return

    async def _claim(self, service: Offered, most: int) -> int:
        parts = self._parts
        well = parts.book.well(service.nodes)
        plan = partial(plan_nodes, well, most=most)
        rows = await parts.sql(parts.requests.claim, service.name, service.quota, plan)
        if rows:
            log("claimed", service=service.name, jobs=len(rows))
            self._last = service.name
        for row in rows:
            parts.waiters.tell(row.id, row)
            self._follow(row)
        return len(rows)


def _at_once(service: Offered, services: list[Offered]) -> int:
    """How many jobs of a service are claimed before another service has its turn."""
    others = {node for other in services if other.name != service.name for node in other.nodes}
    return 1 if others & set(service.nodes) else AT_ONCE
