"""How a claimed job reaches its node, whatever becomes of the request: once, or certainly not at all.
Sends again only what the node says it does not have.
"""

from __future__ import annotations

from tenuto.errors import NodeError, NodeNotReached, NodeRefusal, NodeSilent, NotOurs
from tenuto.lifecycle.service import ServiceState
from tenuto.service.decisions import back_off_s
from tenuto.service.log import log
from tenuto.service.nodes import PayloadStatus
from tenuto.service.parts import Parts
from tenuto.service.requests import TERMINATED
from tenuto.service.rows import JobRow

TRIES = 6
"""How often, at least, a job is offered to nodes within its time."""
NO_NODE = "no node of the service answers"


class Handover:
    """Hands claimed jobs to nodes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def send(self, row: JobRow, *, may_be_there: bool, is_unwanted: bool) -> JobRow | None:
        """The job as Submitted, or as ended; None if another server has it, or it is queued again.

        ``may_be_there``: an earlier try may have reached the node. ``is_unwanted``: its end was asked for.
        Raises `NodeSilent` if the job may have reached the node now.
        """
        if row.node is None or row.node not in self._parts.book.nodes:
            return await self._not_sent(row, NO_NODE, is_unwanted)
        try:
            status = await self._hand_over(row, may_be_there, is_unwanted)
        except NodeNotReached as error:
            self._parts.book.failed(row.node, str(error))
            if may_be_there:
                raise NodeSilent(str(error)) from None
            return await self._not_sent(row, f"node {row.node}: {error}", is_unwanted)
        except NodeRefusal as error:
            self._parts.book.answered(row.node)
            return await self._ended(row, ServiceState.INVALID, f"the node refused the job: {error}")
        except NotOurs:
            raise
        except NodeError as error:
            self._parts.book.failed(row.node, str(error))
            log("send_failed", 30, job=row.id, node=row.node, why=str(error))
            raise
        self._parts.book.answered(row.node)
        if status is None:
            return await self._ended(row, ServiceState.KILLED, TERMINATED)
        log("sent", job=row.id, node=row.node, payload=status.id)
        return await self._parts.move(row, ServiceState.SUBMITTED, payload_id=status.id)

    async def _hand_over(self, row: JobRow, may_be_there: bool, is_unwanted: bool) -> PayloadStatus | None:
        """The payload of a job; None if its end was asked for before it was sent."""
        parts = self._parts
        node, job = parts.book.nodes[str(row.node)], parts.outgoing(row)
        if may_be_there and (found := await node.find(job)) is not None:
            return found
        if is_unwanted:
            return None
        return await node.submit(job)

    async def _not_sent(self, row: JobRow, why: str, is_unwanted: bool) -> JobRow | None:
        """Queues a job again that certainly reached no node, or gives it up after its time."""
        parts = self._parts
        log("send_failed", 30, job=row.id, node=row.node or "", why=why)
        if row.state is not ServiceState.PROCESSING:
            raise NodeSilent(why)  # it was taken over in another state: it may be somewhere
        if is_unwanted:
            return await self._ended(row, ServiceState.KILLED, TERMINATED)
        now = await parts.sql(parts.requests.now)
        waited_s = (now - (row.tried_at or now)) / 1000
        # A clock that jumped ahead is no reason to give up early: so many tries are made in any case.
        is_tried = row.claim >= TRIES or parts.settings.send_for_s == 0
        if waited_s >= parts.settings.send_for_s and is_tried:
            return await self._ended(row, ServiceState.FAILED, f"no node took the job: {why}")
        longest_s = max(parts.settings.send_for_s / TRIES, 0.5)
        wait_s = min(back_off_s(row.claim, parts.randomness.uniform()), longest_s)
        queued = await parts.sql(parts.requests.requeue, row, f"waits for a node: {why}", int(wait_s * 1000))
        if queued is not None:
            parts.told(queued)
        return None

    async def _ended(self, row: JobRow, to: ServiceState, message: str) -> JobRow | None:
        return await self._parts.move(row, to, message)
