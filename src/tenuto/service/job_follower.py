"""The way of a job through its server: claimed by the dispatcher, handed over, and seen through to its end.
One task for each active job asks its node and moves the row; what a node says of a job that another server
has taken over is lost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from tenuto.errors import (
    DamagedResult,
    NodeError,
    NodeNotReached,
    NodeRefusal,
    NodeSilent,
    NodeTakesNothing,
    NotOurs,
    PayloadGone,
    TenutoError,
)
from tenuto.lifecycle.service import PayloadState, ServiceState
from tenuto.service.archive import Packed
from tenuto.service.context import Offered, ServerContext
from tenuto.service.contract import ErrorCode
from tenuto.service.decisions import NO_NODE, back_off_s, plan_nodes
from tenuto.service.log import log
from tenuto.service.nodes import WAIT_S, Node, PayloadRef, PayloadStatus
from tenuto.service.periodic import Periodic
from tenuto.service.requests import TERMINATED
from tenuto.service.rows import JobRow

# How a claimed job reaches its node, whatever becomes of the request: once, or certainly not at all.
# Sends again only what the node says it does not have.


TRIES = 6
"""How often, at least, a job is offered to nodes within its time."""
WAITS_AT_NODE = "waits for a slot of node {}"


class Handover:
    """Hands claimed jobs to nodes."""

    def __init__(self, parts: ServerContext) -> None:
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
        except NodeTakesNothing as error:
            self._parts.book.answered(row.node, slots=0)  # until it says that it has slots again
            if may_be_there:
                raise NodeSilent(str(error)) from None
            return await self._not_sent(row, f"node {row.node}: {error}", is_unwanted, is_kept=True)
        except NodeNotReached as error:
            self._parts.book.failed(row.node, str(error))
            if may_be_there:
                raise NodeSilent(str(error)) from None
            return await self._not_sent(row, f"node {row.node}: {error}", is_unwanted)
        except NodeRefusal as error:
            self._parts.book.answered(row.node)
            return await self._parts.move(row, ServiceState.INVALID, f"the node refused the job: {error}")
        except NotOurs:
            raise
        except NodeError as error:
            self._parts.book.failed(row.node, str(error))
            log("send_failed", 30, job=row.id, node=row.node, why=str(error))
            raise
        self._parts.book.answered(row.node)
        if status is None:
            return await self._parts.move(row, ServiceState.KILLED, TERMINATED)
        log("sent", job=row.id, node=row.node, payload=status.id)
        message = WAITS_AT_NODE.format(row.node)
        return await self._parts.move(row, ServiceState.SUBMITTED, message, payload_id=status.id)

    async def _hand_over(self, row: JobRow, may_be_there: bool, is_unwanted: bool) -> PayloadStatus | None:
        """The payload of a job; None if its end was asked for before it was sent."""
        parts = self._parts
        node, job = parts.book.nodes[str(row.node)], parts.outgoing(row)
        if may_be_there and (found := await node.find(job)) is not None:
            return found
        if is_unwanted:
            return None
        return await node.submit(job)

    async def _not_sent(
        self, row: JobRow, why: str, is_unwanted: bool, *, is_kept: bool = False
    ) -> JobRow | None:
        """Queues a job again that certainly reached no node, or gives it up after its time.

        ``is_kept``: it is never given up, since its node only takes nothing for now.
        """
        parts = self._parts
        log("send_failed", 30, job=row.id, node=row.node or "", why=why)
        if row.state is not ServiceState.PROCESSING:
            raise NodeSilent(why)  # it was taken over in another state: it may be somewhere
        if is_unwanted:
            return await self._parts.move(row, ServiceState.KILLED, TERMINATED)
        now = await parts.sql(parts.requests.now)
        waited_s = (now - (row.tried_at or now)) / 1000
        # A clock that jumped ahead is no reason to give up early: so many tries are made in any case.
        is_tried = row.claim >= TRIES or parts.settings.send_for_s == 0
        if waited_s >= parts.settings.send_for_s and is_tried and not is_kept:
            return await self._parts.move(row, ServiceState.FAILED, f"no node took the job: {why}")
        longest_s = max(parts.settings.send_for_s / TRIES, 0.5)
        wait_s = min(back_off_s(row.claim, parts.randomness.uniform()), longest_s)
        queued = await parts.sql(parts.requests.requeue, row, f"waits for a node: {why}", int(wait_s * 1000))
        if queued is not None:
            parts.told(queued)
        return None


T = TypeVar("T")

LOST = "the node lost the job"


class _Followed:
    """The facts about a followed job."""

    def __init__(self, row: JobRow) -> None:
        self.row = row
        self.known: PayloadState | None = None
        self.terminate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the end of the job was asked for."""
        self.is_told = False
        """The node knows that the end was asked for."""
        self.failures = 0
        self.silent_since: float | None = None
        self.may_be_there = False
        self.is_tidy = False
        """Only the result is left of the job's files."""
        if row.terminate_at is not None:
            self.ask_to_end()

    def ask_to_end(self) -> None:
        if not self.terminate.done():
            self.terminate.set_result(None)


class JobFollower:
    """Follows the active jobs of one server."""

    def __init__(self, parts: ServerContext, wake_dispatcher: Callable[[], None]) -> None:
        """`wake_dispatcher` has more jobs claimed: a node has a place for one."""
        self._parts = parts
        self._wake_dispatcher = wake_dispatcher
        self._handover = Handover(parts)
        self.claiming = asyncio.Lock()
        """Held from the claim of jobs until they are followed."""
        self._followers: dict[int, _Followed] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def follow(self, row: JobRow, *, taken_over: bool = False) -> None:
        """Sees an active job through; one that was taken over may already be at its node."""
        if row.id in self._tasks:
            if row.terminate_at is not None:
                self.terminate(row.id)
            return
        follower = _Followed(row)
        follower.may_be_there = taken_over
        self._followers[row.id] = follower
        task = asyncio.get_running_loop().create_task(self._see_through(follower))
        self._tasks[row.id] = task
        task.add_done_callback(lambda _: self._left(follower))

    async def follow_strays(self) -> None:
        """Follows the jobs of this server that nobody does, wherever they may be by now.

        They were claimed by a transaction whose answer was lost, or left by a follower that failed.
        """
        async with self.claiming:
            followed = set(self._tasks)  # one that is let go of while the rows are read is no stray
            for row in await self._parts.sql(self._parts.requests.mine):
                if row.id in self._tasks or row.id not in followed:
                    self.follow(row, taken_over=True)

    def terminate(self, job_id: int) -> None:
        """Has the node of a job told that its end was asked for."""
        if job_id in self._followers:
            self._followers[job_id].ask_to_end()

    async def close(self) -> None:
        """Stops following; the next server that claims the jobs continues."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _left(self, follower: _Followed) -> None:
        row = follower.row
        self._tasks.pop(row.id, None)
        self._followers.pop(row.id, None)
        self._wake_dispatcher()  # a node has a place for another job

    async def _see_through(self, follower: _Followed) -> None:
        parts = self._parts
        try:
            row: JobRow | None = follower.row
            while row is not None and row.state.is_active:
                follower.row = row
                row = await self._step(follower)
            if row is not None and not follower.is_tidy:
                await parts.files(parts.place(row).tidy)
        except TenutoError as error:
            # The database is away for longer than it is waited for: the row is found again later.
            log("stage_failed", 40, stage="follower", job=follower.row.id, why=str(error))
            parts.metrics.stage_failed("follower")
        except Exception as error:  # noqa: BLE001  one job must not end the others
            log("stage_failed", 40, stage="follower", job=follower.row.id, why=repr(error))
            parts.metrics.stage_failed("follower")

    async def _step(self, follower: _Followed) -> JobRow | None:
        """One question to the node, or one try to send; the row afterwards, None if it is no longer ours."""
        row = follower.row
        try:
            if row.payload_id is None:
                moved = await self._handover.send(
                    row, may_be_there=follower.may_be_there, is_unwanted=follower.terminate.done()
                )
                follower.known = PayloadState.PREPARED
            else:
                moved = await self._ask(follower)
        except (PayloadGone, NotOurs) as error:
            self._parts.book.answered(str(row.node))
            message = LOST if isinstance(error, PayloadGone) else f"{ErrorCode.NOT_OURS.value}: {error}"
            return await self._parts.move(row, ServiceState.FAILED, message)
        except NodeError as error:
            self._parts.book.failed(str(row.node), str(error))
            return await self._trouble(follower, f"node {row.node} does not answer: {error}")
        except OSError as error:  # of the disk of this server, which may have room again later
            return await self._trouble(
                follower, f"the server cannot keep its files: {error.strerror or error}"
            )
        follower.failures, follower.silent_since = 0, None
        return moved

    async def _ask(self, follower: _Followed) -> JobRow | None:
        row = follower.row
        node = self._parts.book.nodes.get(row.node or "")
        if node is None:
            raise NodeError(f"node {row.node} is not in the settings")
        if follower.terminate.done() and not follower.is_told:
            await node.kill(self._parts.payload(row))
            follower.is_told = True
        place = self._parts.place(row)
        target = place.incoming(row.claim)
        question = node.retrieve(self._parts.payload(row), follower.known, WAIT_S, target)
        retrieved = await self._unless_terminated(question, follower)
        if retrieved is None:
            return row
        self._parts.book.answered(str(row.node))
        return await self._learn(follower, node, retrieved.status, retrieved.packed, target)

    async def _unless_terminated(self, question: Coroutine[Any, Any, T], follower: _Followed) -> T | None:
        """The answer to a question; None if the job's end is asked for first."""
        if follower.is_told:
            return await question
        asking = asyncio.ensure_future(question)
        try:
            either: set[asyncio.Future[Any]] = {asking, follower.terminate}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            elif not asking.cancelled():
                asking.exception()  # seen, also if this follower was cancelled meanwhile

    async def _learn(
        self, follower: _Followed, node: Node, status: PayloadStatus, packed: Packed | None, target: str
    ) -> JobRow | None:
        """Moves the row to where the payload stands."""
        row, parts = follower.row, self._parts
        follower.known = status.state
        if status.state is PayloadState.PREPARED:
            back = row.state is ServiceState.UNKNOWN
            waits = WAITS_AT_NODE.format(row.node)
            return await parts.move(row, ServiceState.SUBMITTED, waits) if back else row
        if status.state is PayloadState.RUNNING:
            if row.state is ServiceState.RUNNING:
                if row.message == status.message:
                    return row
                return await parts.sql(partial(parts.requests.update, row, message=status.message))
            return await parts.move(row, ServiceState.RUNNING, status.message)
        if status.state is PayloadState.INVALID:
            return await parts.move(row, ServiceState.INVALID, status.message)
        if status.state is PayloadState.CLEANED:
            return await parts.move(
                row, ServiceState.FAILED, "the node cleaned the job before it was fetched"
            )
        if status.state is not PayloadState.COMPLETED:
            packed = await self._partial(node, self._parts.payload(row), target)
        return await self._keep(follower, status, packed, target)

    async def _partial(self, node: Node, payload: PayloadRef, target: str) -> Packed | None:
        """What an unhappy payload left; None if it left nothing."""
        try:
            return await node.retrieve_partial(payload, target)
        except (PayloadGone, DamagedResult) as error:
            log("retrieve_failed", 30, payload=payload.id, why=str(error))
            return None

    async def _keep(
        self, follower: _Followed, status: PayloadStatus, packed: Packed | None, target: str
    ) -> JobRow | None:
        row, parts = follower.row, self._parts
        to = _ENDS[status.state]
        message = TERMINATED if to is ServiceState.KILLED else status.message
        if to is ServiceState.FAILED and packed is not None:
            path = parts.shown_path(f"/jobs/{row.id}/logs?stream=stderr")
            message = f"{message}; its stderr: {path}"
        values = {
            "exit_code": status.exit_code,
            "result_bytes": packed.bytes if packed else None,
            "result_sha256": packed.sha256 if packed else None,
            "cpu_s": status.cpu_s,
            "memory_peak": status.memory_peak,
        }
        if packed is None:
            return await parts.move(row, to, message, **values)
        moved, follower.is_tidy = await parts.sql(self._kept, row, target, (to, message), values)
        log("retrieved", job=row.id, bytes=packed.bytes)
        if moved is not None:
            parts.told(moved)
        return moved

    def _kept(
        self, row: JobRow, target: str, end: tuple[ServiceState, str], values: Mapping[str, Any]
    ) -> tuple[JobRow | None, bool]:
        """Renames a result and moves its row, in one thread; and whether nothing else is left of the job."""
        place = self._parts.place(row)
        os.replace(target, place.result)
        moved = self._parts.requests.move(row, *end, **values)
        return moved, place.is_tidy()

    async def _trouble(self, follower: _Followed, message: str) -> JobRow | None:
        """The node could not be asked, or its answer not be kept: the job is Unknown for now, and asked for
        again after a while.
        """
        parts, row = self._parts, follower.row
        now = parts.clock.monotonic()
        follower.failures += 1
        follower.silent_since = follower.silent_since or now
        follower.may_be_there = True
        follower.known = None
        silent_s = now - follower.silent_since
        log("retrieve_failed", 30, job=row.id, node=row.node or "", why=message)
        moved: JobRow | None = row
        if silent_s > parts.settings.retrieve_for_s:
            return await parts.move(row, ServiceState.FAILED, message)
        patience_s = parts.settings.send_for_s if row.payload_id is None else 0.0
        if row.state is not ServiceState.UNKNOWN and silent_s >= patience_s:
            moved = await parts.move(row, ServiceState.UNKNOWN, message)
        elif row.message != message:
            moved = await parts.sql(partial(parts.requests.update, row, message=message))
        wait_s = back_off_s(follower.failures, parts.randomness.uniform())
        if follower.terminate.done():
            await asyncio.sleep(wait_s)
        else:
            await asyncio.wait({follower.terminate}, timeout=wait_s)
        return moved


_ENDS = {
    PayloadState.COMPLETED: ServiceState.COMPLETED,
    PayloadState.FAILED: ServiceState.FAILED,
    PayloadState.KILLED: ServiceState.KILLED,
}


AT_ONCE = 16
"""Jobs claimed in one transaction."""


class JobDispatcher:
    """The stage that claims jobs."""

    def __init__(
        self, parts: ServerContext, follow: Callable[[JobRow], None], claiming: asyncio.Lock
    ) -> None:
        """`follow` sees a claimed job through; until it does, `claiming` is held."""
        self._parts = parts
        self._follow = follow
        self._claiming = claiming
        self._last = ""
        """The service that got the last place."""
        self.stage = Periodic("dispatcher", self.round, parts.settings.poll_s, parts.metrics.stage_failed)

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
        async with self._claiming:
            rows = await parts.sql(parts.requests.claim, service.name, service.quota, plan)
            for row in rows:
                parts.waiters.tell(row.id, row)
                self._follow(row)
        if rows:
            log("claimed", service=service.name, jobs=len(rows))
            self._last = service.name
        return len(rows)


def _at_once(service: Offered, services: list[Offered]) -> int:
    """How many jobs of a service are claimed before another service has its turn."""
    others = {node for other in services if other.name != service.name for node in other.nodes}
    return 1 if others & set(service.nodes) else AT_ONCE
