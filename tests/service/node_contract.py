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
from typing import Any

import pytest

from tenuto.errors import NodeRefusal, NotOurs, PayloadGone
from tenuto.lifecycle.service import PayloadState
from tenuto.service.nodes import Node, Outgoing, PayloadRef, PayloadStatus, Retrieved

P = PayloadState
WAIT_S = 60.0
Opened = Callable[[Path], AbstractAsyncContextManager[Node]]


def outgoing(directory: Path, script: str, key: str = "k-1") -> Outgoing:
    """A job with one file, in a directory of its own."""
    files = directory / f"files-{key}"
    files.mkdir(parents=True)
    (files / "run.sh").write_text(script)
    return Outgoing(key, str(files), "example", "1", 1)


def ref(status: PayloadStatus, job: Outgoing) -> PayloadRef:
    """The payload of a job."""
    return PayloadRef(status.id, job.mark)


async def final(node: Node, payload: PayloadRef, target: Path) -> Retrieved:
    """What a node says of a payload that has ended."""
    known: PayloadState | None = None
    while True:
        retrieved = await node.retrieve(payload, known, 5.0, str(target))
        if retrieved.status.state.is_final:
            return retrieved
        known = retrieved.status.state


def asked(node: Node, payload: PayloadRef, target: str) -> list[Callable[[], Awaitable[object]]]:
    """Every question about a payload."""

    async def first_piece() -> bytes:
        return await anext(aiter(node.stream_partial(payload)))

    return [
        lambda: node.retrieve(payload, None, 0, target),
        lambda: node.retrieve_partial(payload, target),
        first_piece,
        lambda: node.read_log(payload, "stdout", 0, 10),
        lambda: node.progress(payload),
        lambda: node.kill(payload),
    ]


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
            job = outgoing(tmp_path, "true\n")
            assert await node.find(job) is None
            status = await node.submit(job)
            assert status.state in (P.PREPARED, P.RUNNING)
            retrieved = await final(node, ref(status, job), tmp_path / "got.zip")
            assert (retrieved.status.state, retrieved.status.exit_code) == (P.COMPLETED, 0)
            content = (tmp_path / "got.zip").read_bytes()
            assert retrieved.packed == (len(content), hashlib.sha256(content).hexdigest())
            assert "run.sh" in zipfile.ZipFile(io.BytesIO(content)).namelist()
            assert not any(name.endswith(".part") for name in os.listdir(tmp_path))

        self.run(opened, tmp_path, act)

    def test_the_same_key_is_the_same_payload(self, opened: Opened, tmp_path: Path) -> None:
        async def act(node: Node) -> None:
            job = outgoing(tmp_path, "echo x\n")
            first = await node.submit(job)
            again = await node.submit(outgoing(tmp_path / "again", "echo y\n"))
            assert again.id == first.id
            found = await node.find(job)
            assert found is not None
            assert found.id == first.id
            await final(node, ref(first, job), tmp_path / "got.zip")
            assert zipfile.ZipFile(tmp_path / "got.zip").read("run.sh") == b"echo x\n"
            other = await node.submit(outgoing(tmp_path, "true\n", "k-2"))
            assert other.id != first.id

        self.run(opened, tmp_path, act)

    def test_a_payload_that_is_ended_is_killed_and_keeps_its_files(
        self, opened: Opened, tmp_path: Path
    ) -> None:
        async def act(node: Node) -> None:
            job = outgoing(tmp_path, "exec sleep 1000\n")
            status = await node.submit(job)
            payload = ref(status, job)
            while (await node.retrieve(payload, P.PREPARED, 5.0, "")).status.state is not P.RUNNING:
                pass
            await node.kill(payload)
            retrieved = await final(node, ref(status, job), tmp_path / "got.zip")
            assert (retrieved.status.state, retrieved.packed) == (P.KILLED, None)
            packed = await node.retrieve_partial(payload, str(tmp_path / "got.zip"))
            assert packed.bytes == (tmp_path / "got.zip").stat().st_size
            pieces = [piece async for piece in node.stream_partial(payload)]
            assert "run.sh" in zipfile.ZipFile(io.BytesIO(b"".join(pieces))).namelist()
            assert (await node.kill(payload)).state is P.KILLED, "again makes no difference"

        self.run(opened, tmp_path, act)

    def test_a_failure_is_told_with_its_code(self, opened: Opened, tmp_path: Path) -> None:
        async def act(node: Node) -> None:
            job = outgoing(tmp_path, "exit 7\n")
            retrieved = await final(node, ref(await node.submit(job), job), tmp_path / "x")
            assert (retrieved.status.state, retrieved.status.exit_code) == (P.FAILED, 7)
            assert "7" in retrieved.status.message

        self.run(opened, tmp_path, act)

    def test_unknown_payloads_are_gone(self, opened: Opened, tmp_path: Path) -> None:
        async def act(node: Node) -> None:
            for call in asked(node, PayloadRef(99, ""), str(tmp_path / "x")):
                with pytest.raises(PayloadGone):
                    await call()
            with pytest.raises(NodeRefusal):
                await node.submit(Outgoing("k-2", str(tmp_path / "nowhere"), "s", "1", 2))

        self.run(opened, tmp_path, act)

    @pytest.mark.parametrize("changed", ["key", "service", "user_id", "job_id"])
    def test_the_payload_of_another_job_is_not_given_away(
        self, opened: Opened, tmp_path: Path, changed: str
    ) -> None:
        """S1-2: a database that was restored or copied, or a node that was, has the same numbers again."""

        async def act(node: Node) -> None:
            job = outgoing(tmp_path, "exec sleep 1000\n")
            status = await node.submit(job)
            others: dict[str, Any] = {changed: 2 if changed == "job_id" else "other"}
            other = job._replace(**others)
            for call in asked(node, ref(status, other), str(tmp_path / "x")):
                with pytest.raises(NotOurs):
                    await call()
            assert not (tmp_path / "x").exists()
            if changed != "key":
                for same_key in (node.find, node.submit):
                    with pytest.raises(NotOurs):
                        await same_key(other)
            seen = await node.retrieve(ref(status, job), None, 0, "")
            assert seen.status.state in (P.PREPARED, P.RUNNING), "it was not killed for another"
            await node.kill(ref(status, job))
            assert (await final(node, ref(status, job), tmp_path / "x")).status.state is P.KILLED

        self.run(opened, tmp_path, act)
