"""Acceptance 19: the disk of the data, of the database or of the node is full, and has room again later."""

from __future__ import annotations

import asyncio
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenuto.lifecycle.service import PayloadState
from tenuto.service.local_node import LocalNode
from tenuto.service.node import runner
from tenuto.service.node.node import EmbeddedNode
from tenuto.service.rows import Page
from tenuto.service.server import Server
from tenuto.workspace.machine import this_machine
from tests.faults.builders import mounted_tmpfs
from tests.service.asgi import MADE, ask, make_server, run
from tests.service.fake_node import FakeNode
from tests.service.multipart import CONTENT_TYPE, body, field, file, good
from tests.service.node_contract import ref
from tests.service.test_05_nodes import ended, job, plan

HEADERS = {"content-type": CONTENT_TYPE}
MIB = 1 << 20
P = PayloadState


@pytest.fixture
def disk(tmp_path: Path, require: Callable[[str], None]) -> Iterator[Path]:
    """A disk of eight MiB."""
    require("right to mount a disk")
    with mounted_tmpfs(tmp_path / "disk", f"size={8 * MIB}") as mounted:
        yield mounted


def filled(disk: Path, leave: int = 0) -> Path:
    """A file that takes all room but so many bytes."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError:
            pass
        stream.truncate(max(0, stream.tell() - leave))
    return ballast


def test_a_full_disk_of_the_data_refuses_uploads_until_there_is_room(disk: Path, tmp_path: Path) -> None:
    server = make_server(disk, database=str(tmp_path / "db.sqlite"), min_free_bytes=MIB)
    app = server.app()
    large = body(
        field("user_id", "1"), field("service", "example"), file("run.sh"), file("x", bytes(9 * MIB))
    )

    async def upload(content: bytes, **headers: str) -> tuple[int, str]:
        pieces = [content[at : at + 65536] for at in range(0, len(content), 65536)]
        answer = await ask(app, "POST", "/upload", {**HEADERS, **headers}, pieces)
        return answer.status, answer.json.get("error", "")

    async def main() -> None:
        length = {"content-length": str(len(large))}
        assert await upload(large, **length) == (507, "disk_full"), "before it is read"
        assert await upload(large) == (507, "disk_full"), "in the middle of it"
        assert list((disk / "data" / "jobs").iterdir()) == []
        ballast = filled(disk)
        assert await upload(good()) == (507, "disk_full")
        ballast.unlink()
        assert await upload(good()) == (201, "")

    run(main())
    (kept,) = (disk / "data" / "jobs").iterdir()
    assert (kept / "files" / "run.sh").read_bytes() == b"echo hello\n"


def test_a_full_disk_of_the_database_is_503_until_there_is_room(disk: Path, tmp_path: Path) -> None:
    server = make_server(tmp_path, database=str(disk / "db.sqlite"), min_free_bytes=0)
    app = server.app()

    async def main() -> None:
        assert (await ask(app, "POST", "/upload", HEADERS, good())).status == 201
        ballast = filled(disk)
        codes = set()
        for _ in range(40):  # what SQLite has room for already is still taken
            answer = await ask(app, "POST", "/upload", HEADERS, good())
            codes.add((answer.status, answer.json.get("error", "")))
            if answer.status != 201:
                break
        assert (503, "database_unavailable") in codes
        ballast.unlink()
        assert (await ask(app, "POST", "/upload", HEADERS, good())).status == 201

    run(main())
    rows = server.parts.requests.listed(Page(limit=100))
    assert all((tmp_path / "data" / "jobs" / row.directory / "files" / "run.sh").exists() for row in rows)


def test_a_result_waits_for_room_on_the_disk_of_the_node(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "PACK_AGAIN_S", 0.1)

    async def main() -> None:
        embedded = EmbeddedNode(replace(plan(disk / "node"), database=tmp_path / "n.sqlite"), this_machine())
        await embedded.start()
        node = LocalNode(embedded)
        script = f"head -c 3000000 /dev/urandom > out; until [ -e {tmp_path}/go ]; do sleep 0.05; done\n"
        sent = job(tmp_path, script)
        payload = ref(await node.submit(sent), sent)
        while not _has(embedded, 3_000_000):
            await node.retrieve(payload, P.RUNNING, 0.05, "")
        ballast = filled(disk, leave=100_000)
        (tmp_path / "go").touch()
        while "waits for room" not in (await node.find(sent)).message:  # type: ignore[union-attr]
            await node.retrieve(payload, P.RUNNING, 0.05, "")
        assert (await node.find(sent)).state is P.RUNNING  # type: ignore[union-attr]
        ballast.unlink()
        retrieved = await ended(node, payload, disk / "got.zip")
        assert retrieved.status.state is P.COMPLETED
        with zipfile.ZipFile(disk / "got.zip") as made:
            assert made.testzip() is None
            assert made.getinfo("out").file_size == 3_000_000
        assert not list((disk / "node").rglob("*.part"))
        await embedded.close()

    run(main())


def test_a_job_waits_for_room_on_the_disk_of_the_node_and_says_so(disk: Path, tmp_path: Path) -> None:
    """A pause with its reason, also before the job is there."""

    async def main() -> None:
        node_plan = replace(plan(disk / "node"), database=tmp_path / "n.sqlite")
        embedded = EmbeddedNode(node_plan, this_machine())
        await embedded.start()
        server = make_server(tmp_path, nodes={"local": LocalNode(embedded)}, min_free_bytes=0)
        app = server.app()
        await server.start()
        ballast = filled(disk)
        large = (field("user_id", "1"), field("service", "example"), file("run.sh"), file("x", bytes(MIB)))
        id = (await ask(app, "POST", "/upload", HEADERS, body(*large))).json["id"]
        message = ""
        while "node local: the node's disk is full" not in message:
            said = (await ask(app, "GET", f"/jobs/{id}")).json
            assert said["status"] in ("Queued", "Processing"), said
            message = said["message"]
        ballast.unlink()
        assert (await ask(app, "GET", f"/jobs/{id}?wait=60")).json["status"] == "Completed"
        MADE.remove(server)
        await server.close()  # before the disk goes

    run(main())


@pytest.mark.parametrize("room", ["comes back", "does not come back"])
def test_a_result_that_the_server_has_no_room_for_is_fetched_later_or_given_up(
    disk: Path, tmp_path: Path, room: str
) -> None:
    """The node is well, and no other job waits for this one."""

    async def main() -> None:
        node = FakeNode(run_s=lambda job: 0.5)
        settings = {"min_free_bytes": 0, "retrieve_for_s": 60.0 if room == "comes back" else 1.0}
        server = make_server(disk, {"fake": node}, str(tmp_path / "db.sqlite"), **settings)  # type: ignore[arg-type]
        await server.start()
        try:
            large = body(
                field("user_id", "1"),
                field("service", "example"),
                file("run.sh"),
                file("x", os.urandom(3 * MIB)),
            )
            assert (await ask(server.app(), "POST", "/upload", HEADERS, large)).status == 201
            await _until(server, 1, "Running")
            ballast = filled(disk, leave=MIB)
            if room == "comes back":
                await _until(server, 1, "Unknown")
                assert "No space left" in (await _job(server, 1))["message"]
                assert server.parts.book.is_up("fake")
                ballast.unlink()
                await _until(server, 1, "Completed")
            else:
                await _until(server, 1, "Failed")
                assert "No space left" in (await _job(server, 1))["message"]
        finally:
            await node.end()
            await server.close()
            MADE.remove(server)

    run(main())


async def _job(server: Server, number: int) -> dict[str, Any]:
    told: dict[str, Any] = (await ask(server.app(), "GET", f"/jobs/{number}?wait=0.05")).json
    return told


async def _until(server: Server, number: int, status: str) -> None:
    async with asyncio.timeout(60):
        while (await _job(server, number))["status"] != status:
            pass


def _has(embedded: EmbeddedNode, size: int) -> bool:
    out = Path(embedded.runner.place("k-1").work) / "out"
    return out.exists() and out.stat().st_size == size
