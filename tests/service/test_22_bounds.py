# ruff: noqa: ASYNC110  the tests own the loop
"""What one user may take from all others: files and logs of a result, the disk, the places of a node."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import NodeTakesNothing
from tenuto.launchers.instructions import Limits
from tenuto.launchers.payload.limits import LOG_NOTICE
from tenuto.lifecycle.service import PayloadState, ServiceState
from tenuto.service import archive
from tenuto.service.archive import (
    ArchiveSource,
    PackingStopped,
    ResultBounds,
    measured,
    read_archived_log,
    read_log,
    write_zip,
)
from tenuto.service.context import Offered
from tenuto.service.decisions import Quota, places_of
from tenuto.service.local_node import LocalNode
from tenuto.service.node import packer, runner
from tenuto.service.node.node import EmbeddedNode, NodePlan
from tenuto.service.node.packer import PackingOrder
from tenuto.service.node.work import Terms
from tenuto.service.rows import NewJob, Page
from tenuto.service.server import Server, ServerPlan
from tenuto.settings.service import ServiceSettings
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Durability
from tests.faults.builders import mounted_tmpfs
from tests.service.asgi import ask, make_server, run
from tests.service.fake_node import FakeNode
from tests.service.multipart import CONTENT_TYPE, body, field, file
from tests.service.node_contract import ref
from tests.service.servers import Process, eventually
from tests.service.test_05_nodes import ended, job, plan

P = PayloadState
MIB = 1 << 20
LOG_BYTES = 64 << 10
Start = Callable[..., Process]


def limited(directory: Path, **terms: Any) -> NodePlan:
    made = Terms(Limits(grace_s=0.2, log_bytes=LOG_BYTES), Durability.NONE, 512, **terms)
    return replace(plan(directory), terms={"": made})


async def result_of(node_plan: NodePlan, tmp_path: Path, script: str) -> Any:
    embedded = EmbeddedNode(node_plan, this_machine())
    await embedded.start()
    try:
        node, sent = LocalNode(embedded), job(tmp_path, script)
        payload = ref(await node.submit(sent), sent)
        retrieved = await ended(node, payload, tmp_path / "got.zip")
        await node.retrieve_partial(payload, str(tmp_path / "got.zip"))
        return retrieved.status
    finally:
        await embedded.close()


# Packing


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "truncate -s 2M a; truncate -s 2M b; echo kept",
            "larger than 3145728 bytes",
        ),  # takes no disk at all
        ("mkdir d; head -c 4M /dev/zero > d/x; echo kept", "larger than 3145728 bytes"),
        ("mkdir d e; touch d/{1..30} e/{1..30}; echo kept", "more than 50 files"),
    ],
)
def test_a_result_that_is_too_large_fails_with_its_logs(
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ResultBounds", lambda size: ResultBounds(size, 50))
    status = run(result_of(limited(tmp_path / "n", max_result_bytes=3 * MIB), tmp_path, script + "\n"))
    assert status.state is P.FAILED
    assert status.message.startswith("result too large: ")
    assert why in status.message
    with zipfile.ZipFile(tmp_path / "got.zip") as made:
        assert set(made.namelist()) == {".tenuto/stdout", ".tenuto/stderr", ".tenuto/job.json"}
        assert made.read(".tenuto/stdout") == b"kept\n"
        assert json.loads(made.read(".tenuto/job.json"))["status"] == "Failed"


def test_many_names_are_counted_without_being_kept(tmp_path: Path) -> None:
    for n in range(40):
        (tmp_path / f"file{n}").touch()
        os.mkfifo(tmp_path / f"pipe{n}")
    source = ArchiveSource(str(tmp_path), {}, {}, bounds=ResultBounds(files=20))
    with pytest.raises(archive.ResultTooLarge, match="more than 20 files"):
        measured(source._replace(bounds=ResultBounds(files=20)))
    with open(tmp_path.parent / "made.zip", "wb") as target:
        write_zip(source, target)
    with zipfile.ZipFile(tmp_path.parent / "made.zip") as made:
        facts = json.loads(made.read(".tenuto/job.json"))
        assert len(made.namelist()) <= 21
    assert any("entries" in entry["why"] for entry in facts["skipped"])


def test_packing_ends_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(4 * MIB))
    asked = count()
    with open(tmp_path / "part", "wb") as target, pytest.raises(PackingStopped):
        write_zip(ArchiveSource(str(tmp_path), {}, {}), target, lambda: next(asked) >= 3)
    assert (tmp_path / "part").stat().st_size < MIB


def test_the_smallest_result_is_packed_first_and_small_ones_never_wait_for_large_ones() -> None:
    async def main() -> list[int]:
        order, packed, release = PackingOrder(2), [], asyncio.Event()

        async def pack(size: int) -> None:
            async with order.turn(size, None):
                packed.append(size)
                if size > packer.SMALL_BYTES:
                    await release.wait()

        large = packer.SMALL_BYTES
        tasks = [asyncio.create_task(pack(size)) for size in (large + 9, large + 7, large + 5)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(pack(size)) for size in (10, 20)]
        async with asyncio.timeout(5):
            while len(packed) < 3:
                await asyncio.sleep(0)
            cut = asyncio.get_running_loop().create_future()
            cut.set_result(None)
            with pytest.raises(PackingStopped):
                async with order.turn(large + 99, cut):
                    pass
            release.set()
            await asyncio.gather(*tasks)
        return packed

    large = packer.SMALL_BYTES
    assert run(main()) == [large + 9, 10, 20, large + 5, large + 7]


def test_a_job_whose_large_result_is_packed_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "SMALL_BYTES", MIB)
    began, go_on = threading.Event(), threading.Event()
    pack = runner.pack

    def slow(place: Any, source: ArchiveSource, is_stopped: Callable[[], bool]) -> Any:
        if source.with_files:
            began.set()
            go_on.wait(10)
        return pack(place, source, is_stopped)

    monkeypatch.setattr(runner, "pack", slow)

    async def main() -> None:
        embedded = EmbeddedNode(limited(tmp_path / "n"), this_machine())
        await embedded.start()
        node, sent = LocalNode(embedded), job(tmp_path, "echo said; head -c 3M /dev/urandom > out\n")
        payload = ref(await node.submit(sent), sent)
        await asyncio.to_thread(began.wait, 10)
        assert "are packed" in (await node.find(sent)).message  # type: ignore[union-attr]
        await node.kill(payload)
        go_on.set()
        retrieved = await ended(node, payload, tmp_path / "got.zip")
        assert retrieved.status.state is P.KILLED
        await node.retrieve_partial(payload, str(tmp_path / "got.zip"))
        await embedded.close()

    run(main())
    with zipfile.ZipFile(tmp_path / "got.zip") as made:
        assert set(made.namelist()) == {".tenuto/stdout", ".tenuto/stderr", ".tenuto/job.json"}


# Logs


def read_all(read: Callable[[int], Any]) -> bytes:
    """A whole log, as a client reads it: from where the last piece said."""
    text, offset = b"", 0
    while (piece := read(offset)).data:
        text, offset = text + piece.data, piece.next_offset
    return text


@pytest.mark.parametrize("cut", ["as it is printed", "with a hole of its own"])
def test_a_log_is_bounded_in_the_result_and_on_the_wire(cut: str, tmp_path: Path) -> None:
    script = "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; sleep 0.3; echo last\n"
    if cut != "as it is printed":
        script = "echo first; truncate -s 1G /proc/self/fd/1; echo last\n"

    async def main() -> bytes:
        embedded = EmbeddedNode(limited(tmp_path / "n"), this_machine())
        await embedded.start()
        node, sent = LocalNode(embedded), job(tmp_path, script)
        payload = ref(await node.submit(sent), sent)
        await ended(node, payload, tmp_path / "got.zip")
        text, offset = b"", 0
        while (piece := await node.read_log(payload, "stdout", offset, 10_000)).data:
            text, offset = text + piece.data, piece.next_offset
        await embedded.close()
        return text

    live = run(main())
    with zipfile.ZipFile(tmp_path / "got.zip") as made:
        packed = made.read(".tenuto/stdout")
        dropped = json.loads(made.read(".tenuto/job.json"))["logs"]["stdout"]
    assert packed == live
    assert len(packed) <= LOG_BYTES + len(LOG_NOTICE)
    assert packed.startswith(b"first\n")
    assert packed.endswith(b"last\n")
    assert packed.count(LOG_NOTICE) == 1
    assert dropped["bytes"] >= 3_000_000
    result = str(tmp_path / "got.zip")
    assert read_all(lambda offset: read_archived_log(result, "stdout", offset, 7000)) == packed
    late = read_archived_log(result, "stdout", dropped["bytes"] - 5, 100)
    assert late == (b"last\n", dropped["bytes"]), "a follower continues where it was when the job ended"


def test_a_short_log_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    assert read_log(str(tmp_path / "log"), 4, 3, LOG_BYTES) == (b"456", 7)
    assert read_log(str(tmp_path / "log"), 10, 3, LOG_BYTES) == (b"", 10)


# The disk


@pytest.fixture
def disk(tmp_path: Path, require: Callable[[str], None]) -> Iterator[Path]:
    """A disk of 32 MiB."""
    require("right to mount a disk")
    with mounted_tmpfs(tmp_path / "disk", f"size={32 * MIB}") as mounted:
        yield mounted


def test_the_largest_payload_is_stopped_before_the_disk_is_full(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database of the node lies on that disk, too: its end must be written all the same."""
    monkeypatch.setattr(runner, "LOOK_AT_SIZE_S", 0.1)
    small = f"head -c 2M /dev/urandom > x; until [ -e {tmp_path}/go ]; do sleep 0.05; done\n"
    greedy = "echo said; i=0; while :; do head -c 1M /dev/zero > f$i; i=$((i+1)); sleep 0.02; done 2>&-\n"

    async def main() -> None:
        embedded = EmbeddedNode(replace(limited(disk / "node"), min_free_bytes=16 * MIB), this_machine())
        await embedded.start()
        node = LocalNode(embedded)
        first, second = job(tmp_path, small), job(tmp_path, greedy, "k-2")
        kept = ref(await node.submit(first), first)
        stopped = ref(await node.submit(second), second)
        retrieved = await ended(node, stopped, tmp_path / "got.zip")
        assert retrieved.status.state is P.FAILED
        assert retrieved.status.message == "the node's disk is full"
        await node.retrieve_partial(stopped, str(tmp_path / "got.zip"))
        with zipfile.ZipFile(tmp_path / "got.zip") as made:
            assert made.read(".tenuto/stdout") == b"said\n"
        (tmp_path / "go").touch()
        assert (await ended(node, kept, tmp_path / "kept.zip")).status.state is P.COMPLETED
        assert await node.slots() == 2, "there is room again"
        (disk / "ballast").write_bytes(bytes(20 * MIB))
        assert await node.slots() == 0
        with pytest.raises(NodeTakesNothing, match="disk is full"):
            await node.submit(job(tmp_path, "true\n", "k-3"))
        await embedded.close()

    run(main())


def test_a_full_node_keeps_its_jobs_queued_and_says_so(disk: Path, tmp_path: Path, start: Start) -> None:
    """Over HTTP: 507 of a node is no refusal of the job, and no reason to give it up."""
    node_settings = '[service]\nmin_free_bytes = "8M"\n[node]\nname = "n"\nslots = 1\n'
    (disk / "tenuto.toml").write_text(node_settings)
    node = start("node", "--sandbox", "none", cwd=disk)
    (disk / "ballast").write_bytes(bytes(26 * MIB))
    health = eventually(lambda: (found := node.get("/health")).status == 503 and found)
    assert (health.json["status"], health.json["takes"]) == ("disk_full", False)
    (tmp_path / "tenuto.toml").write_text(
        f'[service]\nsend_for_s = 0.5\n[nodes.n]\nurl = "{node.url}"\ntoken_file = "{disk}/node/node.token"\n'
        '[services.example]\nnodes = ["n"]\n'
    )
    server = start("serve")
    number = server.upload().json["id"]
    assert server.job(number)["status"] in ("Queued", "Processing")
    (disk / "ballast").unlink()
    assert server.final(number)["status"] == "Completed"
    assert "walltime_s=86400" in node.log
    assert f"work_bytes={20 << 30}" in node.log


# Fairness


@pytest.mark.parametrize("floods", ["same service", "other service"])
def test_a_thousand_jobs_of_one_user_delay_another_by_those_that_wait_at_the_node(
    floods: str, tmp_path: Path
) -> None:
    """docs/service.md: "On each node at most slots + 2 jobs are in hand ..."."""

    async def main() -> tuple[int, int]:
        order: list[int] = []
        busy = asyncio.Event()

        def run_s(sent: Any) -> float:
            order.append(sent.job_id)
            return 0.01

        node = FakeNode("a", slots=2, run_s=run_s)
        services = {name: Offered(name, Quota(1000, 1000), ("a",)) for name in ("s", "t")}
        settings = ServiceSettings(data=tmp_path / "data", poll_s=60.0)
        server = Server(
            ServerPlan(settings, str(tmp_path / "db.sqlite"), services, "0"), {"a": node}, this_machine()
        )
        requests, most = server.parts.requests, 0

        def add(user: str, service: str, n: int) -> int:
            place = server.parts.places.open_job(f"{user}{n}")
            Path(place.files, "run.sh").write_text("true\n")
            return requests.add(NewJob(user, service, f"{user}{n}"))[0].id

        for n in range(200):
            add("flood", "s" if floods == "same service" else "t", n)
        await server.start()
        while len(order) < 20:
            await asyncio.sleep(0.005)
        before, late = len(order), add("late", "s", 0)
        server._wake_dispatcher()
        while late not in order:
            active = [row for row in requests.listed(Page(limit=300)) if row.state.is_active]
            most = max(most, len(active))
            await asyncio.sleep(0.002)
        busy.set()
        await server.close()
        await node.end()
        return order.index(late) - before, most

    ahead, most = run(main())
    assert most <= places_of(2)
    # Those that the node has in hand, and the ones that end while the upload is claimed.
    assert ahead <= places_of(2) + 2


def test_a_node_of_two_servers_has_no_more_in_hand(tmp_path: Path) -> None:
    """What is in hand is counted in the database, for all servers and services."""
    server = Server(
        ServerPlan(
            ServiceSettings(data=tmp_path / "data"),
            str(tmp_path / "db.sqlite"),
            {name: Offered(name, Quota(1000, 1000), ("a",)) for name in ("s", "t")},
            "0",
        ),
        {"a": FakeNode("a", slots=2)},
        this_machine(),
    )
    requests = server.parts.requests
    for n in range(20):
        requests.add(NewJob("u", "st"[n % 2], f"d{n}"))

    async def main() -> None:
        server.parts.book.answered("a", slots=2)
        followed: list[Any] = []
        server._dispatcher._follow = followed.append
        await server._dispatcher.round()
        await server._dispatcher.round()
        assert len(followed) == places_of(2)
        assert {row.service for row in followed} == {"s", "t"}
        requests.move(followed[0], ServiceState.KILLED)
        await server._dispatcher.round()
        assert len(followed) == places_of(2) + 1
        await server.close()

    run(main())


# Stopping


def test_a_server_stops_at_once_while_a_large_result_is_packed(tmp_path: Path, start: Start) -> None:
    server = start("serve", "--with-node", "--sandbox", "none")
    server.upload("truncate -s 12G huge\n")
    eventually(lambda: list(tmp_path.glob("data/node/jobs/payload/*/result.zip.part")))
    number = server.upload("echo small\n").json["id"]
    assert server.final(number, 20)["status"] == "Completed", "a small result does not wait"
    server.signal(signal.SIGTERM)
    assert server.stop() == 0


# The queue of one user


def test_a_user_may_queue_so_many_jobs_of_all_services(database_url: str, tmp_path: Path) -> None:
    server = make_server(tmp_path, database=database_url, queued_per_user=3)
    app, headers = server.app(), {"content-type": CONTENT_TYPE}

    async def upload(user: str, **more: str) -> Any:
        sent = body(field("user_id", user), field("service", "example"), file("run.sh"))
        return await ask(app, "POST", "/upload", {**headers, **more}, sent)

    async def main() -> None:
        known = {"idempotency-key": "k"}
        answers = [await upload("1", **known)] + [await upload("1") for _ in range(3)]
        assert [answer.status for answer in answers] == [201, 201, 201, 429]
        assert answers[3].json["error"] == "too_many_queued"
        assert int(answers[3].headers["retry-after"]) > 0
        assert len(os.listdir(tmp_path / "data" / "jobs")) == 3, "nothing is left of it"
        assert (await upload("1", **known)).status == 201, "the same upload once more is no further job"
        assert (await upload("2")).status == 201
        await ask(app, "POST", f"/terminate/{answers[0].json['id']}")
        assert (await upload("1")).status == 201
        together = await asyncio.gather(*(upload("3") for _ in range(8)))
        assert sorted(answer.status for answer in together) == [201] * 3 + [429] * 5

    run(main())
