"""The embedded node, as its server sees it: files move by rename, and results are links; nothing is copied.
Adds no rule of its own to `node.runner`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import aclosing

from tenuto.errors import DamagedResult, NodeSilent, PayloadGone
from tenuto.lifecycle.service import PayloadState
from tenuto.service.archive import LogPiece, Packed
from tenuto.service.data_paths import private, remove_quietly, synced
from tenuto.service.node.node import EmbeddedNode, threaded
from tenuto.service.node.payloads import PayloadRow, Sender
from tenuto.service.nodes import Outgoing, PayloadRef, PayloadStatus, Retrieved


def status_of(row: PayloadRow) -> PayloadStatus:
    """What a node says of a payload."""
    return PayloadStatus(row.id, row.state, row.message, row.exit_code, row.cpu_s, row.memory_peak)


class LocalNode:
    """A `Node` in the process of its server."""

    def __init__(self, node: EmbeddedNode) -> None:
        self.name = node.name
        self._node = node

    async def submit(self, job: Outgoing) -> PayloadStatus:
        sender = Sender(job.service, job.user_id, str(job.job_id))
        try:
            return status_of(await self._node.runner.take(job.key, job.directory, sender, job.command))
        except OSError as error:  # a full disk: the files may be there by half
            raise NodeSilent(f"it cannot take the files: {error.strerror or error}") from None

    async def find(self, job: Outgoing) -> PayloadStatus | None:
        row = await self._node.runner.find(job.key)
        if row is None:
            return None
        row.refuse_other(job.mark)
        return status_of(row)

    async def retrieve(
        self, payload: PayloadRef, known: PayloadState | None, wait_s: float, target: str
    ) -> Retrieved:
        row = _its(payload, await self._node.changed(payload.id, known, wait_s))
        packed = None
        if row.state is PayloadState.COMPLETED:
            packed = await self._node.runner.files(self._link, row, target)
        return Retrieved(status_of(row), packed)

    async def retrieve_partial(self, payload: PayloadRef, target: str) -> Packed:
        row = await self._row(payload)
        return await self._node.runner.files(self._link, row, target)

    async def stream_partial(self, payload: PayloadRef) -> AsyncGenerator[bytes]:
        async with aclosing(threaded(self._node.partial(await self._row(payload)))) as pieces:
            async for piece in pieces:
                yield piece

    async def read_log(self, payload: PayloadRef, stream: str, offset: int, limit: int) -> LogPiece:
        return await asyncio.to_thread(self._node.read_log, await self._row(payload), stream, offset, limit)

    async def progress(self, payload: PayloadRef) -> str:
        return await asyncio.to_thread(self._node.progress, await self._row(payload))

    async def kill(self, payload: PayloadRef) -> PayloadStatus:
        _its(payload, await self._node.runner.get(payload.id))
        return status_of(_its(payload, await self._node.runner.kill(payload.id)))

    async def slots(self) -> int:
        return self._node.slots if await self._node.takes() is None else 0

    async def close(self) -> None:
        await self._node.close()

    async def _row(self, payload: PayloadRef) -> PayloadRow:
        """The row of a payload that has files."""
        row = _its(payload, await self._node.runner.get(payload.id))
        if row.state is PayloadState.CLEANED:
            raise PayloadGone("the node does not have the job")
        return row

    def _link(self, row: PayloadRow, target: str) -> Packed:
        """Links the result to where the server keeps it, atomically."""
        result = self._node.runner.place(row.key).result
        if row.result_bytes is None or row.result_sha256 is None:
            raise DamagedResult("the job left no result")
        part = f"{target}.part"
        remove_quietly(part)
        try:
            _link_or_copy(result, part)
        except FileNotFoundError:
            raise PayloadGone("the result is no longer there") from None
        os.replace(part, target)
        synced(os.path.dirname(target))
        return Packed(row.result_bytes, row.result_sha256)


def _its(payload: PayloadRef, row: PayloadRow | None) -> PayloadRow:
    """The row that the node has of a payload; refuses another's."""
    if row is None:
        raise PayloadGone("the node does not have the job")
    row.refuse_other(payload.mark)
    return row


def _link_or_copy(source: str, target: str) -> None:
    """Gives a file a second name; on another disk it is copied, and is there when this returns."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with open(source, "rb") as read, open(target, "wb", opener=private) as written:
            shutil.copyfileobj(read, written)
        synced(target)
