"""What every `Node` must do. Subclass, and give the fixture `opened`: a function that opens one somewhere.

It returns an asynchronous context manager of a `Node` without any payload. Jobs are small shell scripts.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import zipfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tenuto.errors import NodeRefusal, PayloadGone
from tenuto.lifecycle.service import PayloadState
from tenuto.service.nodes import Node, Outgoing, Retrieved

P = PayloadState
WAIT_S = 60.0
Opened = Callable[[Path], AbstractAsyncContextManager[Node]]


def outgoing(directory: Path, script: str, key: str = "k-1") -> Outgoing:
    """A job with one file, in a directory of its own."""
    files = directory / f"files-{key}"
    files.mkdir(parents=True)
    (files / "run.sh").write_text(script)
    return Outgoing(key, str(files), "example", "1", 1)


async def final(node: Node, payload_id: int, target: Path) -> Retrieved:
    """What a node says of a payload that has ended."""
    known: PayloadState | None = None
    while True:
        retrieved = await node.retrieve(payload_id, known, 5.0, str(target))
        if retrieved.status.state.is_final:
            return retrieved
        known = retrieved.status.state


class NodeContract:
    def run(self, opened: Opened, directory: Path, act: Callable[[Node], Awaitable[None]]) -> None:
        """Acts on a node that is open, for a bounded time."""

        async def main() -> None:
            async with asyncio.timeout(WAIT_S), opened(directory) as node:
                await act(node)

        asyncio.run(main())

    def test_the_result_of_a_job_is_what_its_digest_says(self, opened: Opened, tmp_path: Path) -> None:
        async def act(node: Node) -> None:
            assert await node.slots() > 0
            assert await node.find("k-1") is None
            status = await node.submit(outgoing(tmp_path, "true\n"))
            assert status.state in (P.PREPARED, P.RUNNING)
            retrieved = await final(node, status.id, tmp_path / "got.zip")
            assert (retrieved.status.state, retrieved.status.exit_code) == (P.COMPLETED, 0)
            content = (tmp_path / "got.zip").read_bytes()
            assert retrieved.packed == (len(content), hashlib.sha256(content).hexdigest())
            assert "run.sh" in zipfile.ZipFile(io.BytesIO(content)).namelist()
            assert not any(name.endswith(".part") for name in os.listdir(tmp_path))

        self.run(opened, tmp_path, act)

    def test_the_same_key_is_the_same_payload(self, opened: Opened, tmp_path: Path) -> None:
        async def act(node: Node) -> None:
            first = await node.submit(outgoing(tmp_path, "echo x\n"))
            again = await node.submit(outgoing(tmp_path / "again", "echo y\n"))
            assert again.id == first.id
            found = await node.find("k-1")
            assert found is not None
            assert found.id == first.id
            await final(node, first.id, tmp_path / "got.zip")
            assert zipfile.ZipFile(tmp_path / "got.zip").read("run.sh") == b"echo x\n"
            other = await node.submit(outgoing(tmp_path, "true\n", "k-2"))
            assert other.id != first.id

        self.run(opened, tmp_path, act)

    def test_a_payload_that_is_ended_is_killed_and_keeps_its_files(
        self, opened: Opened, tmp_path: Path
    ) -> None:
        async def act(node: Node) -> None:
            status = await node.submit(outgoing(tmp_path, "exec sleep 1000\n"))
            while (await node.retrieve(status.id, P.PREPARED, 5.0, "")).status.state is not P.RUNNING:
                pass
            await node.kill(status.id)
            retrieved = await final(node, status.id, tmp_path / "got.zip")
            assert (retrieved.status.state, retrieved.packed) == (P.KILLED, None)
            packed = await node.retrieve_partial(status.id, str(tmp_path / "got.zip"))
            assert packed.bytes == (tmp_path / "got.zip").stat().st_size
            pieces = [piece async for piece in node.stream_partial(status.id)]
            assert "run.sh" in zipfile.ZipFile(io.BytesIO(b"".join(pieces))).namelist()
            assert (await node.kill(status.id)).state is P.KILLED, "again makes no difference"

        self.run(opened, tmp_path, act)

    def test_a_failure_is_told_with_its_code(self, opened: Opened, tmp_path: Path) -> None:
        async def act(node: Node) -> None:
            status = await node.submit(outgoing(tmp_path, "exit 7\n"))
            retrieved = await final(node, status.id, tmp_path / "x")
            assert (retrieved.status.state, retrieved.status.exit_code) == (P.FAILED, 7)
            assert "7" in retrieved.status.message

        self.run(opened, tmp_path, act)

    def test_unknown_payloads_are_gone(self, opened: Opened, tmp_path: Path) -> None:
        async def act(node: Node) -> None:
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: node.retrieve(99, None, 0, str(tmp_path / "x")),
                lambda: node.retrieve_partial(99, str(tmp_path / "x")),
                lambda: node.kill(99),
                lambda: node.read_log(99, "stdout", 0, 10),
            ]
            for call in calls:
                with pytest.raises(PayloadGone):
                    await call()
            with pytest.raises(NodeRefusal):
                await node.submit(Outgoing("k-2", str(tmp_path / "nowhere"), "s", "1", 2))

        self.run(opened, tmp_path, act)
