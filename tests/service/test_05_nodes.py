# ruff: noqa: ASYNC240  the tests own the loop
"""What every node promises its server, embedded or over HTTP; and the older service on either side."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import sqlite3
import threading
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import uvicorn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from tenuto.clock import SystemRandomness
from tenuto.errors import DamagedResult, NodeNotReached, NodeRefusal, NodeSilent, NotOurs, PayloadGone
from tenuto.launchers.confinement import Sandbox, SandboxMode
from tenuto.launchers.instructions import Limits
from tenuto.launchers.selection import choose_launcher
from tenuto.lifecycle.service import PayloadState
from tenuto.lifecycle.states import JobState
from tenuto.service.http_node import HttpNode, NodeAddress
from tenuto.service.local_node import LocalNode
from tenuto.service.names import file_name, folded
from tenuto.service.node.node import EmbeddedNode, NodePlan
from tenuto.service.node.payloads import Sender
from tenuto.service.node.routes import NodeFront, node_app, router
from tenuto.service.node.work import Terms
from tenuto.service.nodes import Node, Outgoing, PayloadRef
from tenuto.service.tables import payloads
from tenuto.service.uploads import UploadLimits
from tenuto.workspace.job_directory import read_status, write_status
from tenuto.workspace.layout import METRICS
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Durability
from tests.service.asgi import ask, run
from tests.service.fake_node import FakeNode
from tests.service.multipart import CONTENT_TYPE, body, file
from tests.service.node_contract import NodeContract, Opened, asked, final, outgoing, ref

P = PayloadState
LIMITS = UploadLimits(1 << 30, 100, 0)


def plan(directory: Path) -> NodePlan:
    terms = {"": Terms(Limits(grace_s=1.0), Durability.NONE, 512)}
    environment = {"PATH": os.environ["PATH"]}
    sandbox = Sandbox(SandboxMode.NONE, os.geteuid() == 0)
    return NodePlan(
        "n",
        directory,
        directory / "node.sqlite",
        2,
        partial(choose_launcher, "spawn", 2),
        sandbox,
        terms,
        environment,
        3600.0,
    )


@asynccontextmanager
async def local(directory: Path) -> AsyncIterator[tuple[Node, EmbeddedNode]]:
    embedded = EmbeddedNode(plan(directory / "node"), this_machine())
    await embedded.start()
    yield LocalNode(embedded), embedded
    await embedded.close()


@asynccontextmanager
async def http(directory: Path) -> AsyncIterator[tuple[Node, EmbeddedNode]]:
    embedded = EmbeddedNode(plan(directory / "node"), this_machine())
    await embedded.start()
    machine = this_machine()
    front = NodeFront(embedded, "secret", "1", machine.clock, LIMITS)
    app = node_app(front, (), machine.randomness)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off", ws="none"))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server._serve())
    while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    node = HttpNode("n", NodeAddress(f"http://127.0.0.1:{port}", "secret"))
    yield node, embedded
    await node.close()
    front.drain()
    server.should_exit = True
    await serving
    await embedded.close()


Made = Callable[[Path], Any]


@pytest.fixture(params=[local, http], ids=["local", "http"])
def made(request: pytest.FixtureRequest) -> Made:
    found: Made = request.param
    return found


def job(directory: Path, script: str, key: str = "k-1") -> Outgoing:
    files = directory / f"files-{key}"
    files.mkdir()
    (files / "run.sh").write_text(script)
    return Outgoing(key, str(files), "example", "1", 1)


async def ended(node: Node, payload: PayloadRef, target: Path) -> Any:
    known = None
    while True:
        retrieved = await node.retrieve(payload, known, 5, str(target))
        if retrieved.status.state.is_final:
            return retrieved
        known = retrieved.status.state


def test_a_job_is_run_and_its_result_is_whole(made: Made, tmp_path: Path) -> None:
    async def main() -> None:
        async with made(tmp_path) as (node, _):
            assert await node.slots() == 2
            sent = job(tmp_path, "echo $JOB_ID $JOB_SERVICE; echo data > out\n")
            assert await node.find(sent) is None
            status = await node.submit(sent)
            assert status.state in (P.PREPARED, P.RUNNING)
            retrieved = await ended(node, ref(status, sent), tmp_path / "got.zip")
            assert retrieved.status.state is P.COMPLETED
            content = (tmp_path / "got.zip").read_bytes()
            assert retrieved.packed.sha256 == hashlib.sha256(content).hexdigest()
            archive = zipfile.ZipFile(io.BytesIO(content))
            assert archive.read("out") == b"data\n"
            assert await node.read_log(ref(status, sent), "stdout", 0, 100) == (b"1 example\n", 10)
            assert await node.read_log(ref(status, sent), "stdout", 2, 100) == (b"example\n", 10)
            assert not list(tmp_path.glob("*.part"))

    run(main())


def test_an_end_that_the_database_could_not_keep_is_kept_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2-3: another program holds the node's database, as a backup does, for longer than it is waited for."""
    monkeypatch.setattr("tenuto.service.node.node.PATIENCE_S", 0.2)
    monkeypatch.setattr("tenuto.service.node.runner.WRITE_AGAIN_S", 0.1, raising=False)
    failed = asyncio.Event()
    monkeypatch.setattr(
        "tenuto.service.node.runner.log", lambda action, *_, **__: action == "stage_failed" and failed.set()
    )

    async def main() -> None:
        async with local(tmp_path) as (node, _):
            go = tmp_path / "go"
            sent = job(tmp_path, f"until [ -e {go} ]; do sleep 0.05; done\n")
            payload = ref(await node.submit(sent), sent)
            while (await node.retrieve(payload, P.PREPARED, 5, "")).status.state is not P.RUNNING:
                pass
            with contextlib.closing(sqlite3.connect(tmp_path / "node" / "node.sqlite")) as backup:
                backup.execute("BEGIN IMMEDIATE")
                go.touch()
                await asyncio.wait_for(failed.wait(), 60)
                backup.rollback()
            retrieved = await ended(node, payload, tmp_path / "got.zip")
            assert retrieved.status.state is P.COMPLETED

    run(main())


def test_a_payload_is_run_once_the_disk_of_its_node_can_be_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed open for ever: nothing looked at it again before the node was started anew."""
    monkeypatch.setattr("tenuto.service.node.runner.WRITE_AGAIN_S", 0.05)

    async def main() -> None:
        async with local(tmp_path) as (node, embedded):
            scheduler, calls = embedded.runner.workshop.scheduler, []
            submit = scheduler.submit_async

            async def stumbling(*given: Any) -> Any:
                calls.append(given)
                if len(calls) < 3:
                    raise OSError(errno.EIO, "the disk is away")
                return await submit(*given)

            monkeypatch.setattr(scheduler, "submit_async", stumbling)
            sent = job(tmp_path, "true\n")
            retrieved = await ended(node, ref(await node.submit(sent), sent), tmp_path / "got.zip")
            assert retrieved.status.state is P.COMPLETED
            assert len(calls) == 3

    run(main())


@pytest.mark.parametrize("mode", list(SandboxMode))
def test_a_payload_whose_files_are_gone_has_failed(directory: Path, mode: SandboxMode) -> None:
    if mode is SandboxMode.UID and os.geteuid() != 0:
        pytest.skip("only root can give payloads a uid of their own")
    made = replace(plan(directory / "node"), sandbox=Sandbox(mode, os.geteuid() == 0), slots=1)

    async def main() -> None:
        embedded = EmbeddedNode(made, this_machine())
        await embedded.start()
        node = LocalNode(embedded)
        first, sent = job(directory, "exec sleep 100\n"), job(directory, "true\n", "k-2")
        running, waiting = [ref(await node.submit(one), one) for one in (first, sent)]
        await embedded.close()
        shutil.rmtree(embedded.runner.place("k-2").paths.directory)
        embedded = EmbeddedNode(made, this_machine())
        await embedded.start()
        node = LocalNode(embedded)
        await node.kill(running)
        retrieved = await ended(node, waiting, directory / "got.zip")
        assert (retrieved.status.state, retrieved.status.message) == (
            P.FAILED,
            "its files on the node are gone",
        )
        await ended(node, running, directory / "got.zip")
        await embedded.close()

    run(main())


NAMES = st.text(st.characters(blacklist_categories=("Cc", "Cf", "Cs", "Cn")), min_size=1, max_size=80)


@settings(max_examples=25)
@given(names=st.lists(NAMES, max_size=30, unique_by=folded))
@example(
    names=["my file", "café", "[1].pdb", "a+b", "x,y", "it's", 'x:"y', "a%20b", "%22", "é" * 127, ";=\"'"]
)
@example(names=["0/0", "0/ü/1", "0"])
def test_file_names_are_the_same_on_both_ends_of_the_wire(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    """From the server's disk by HTTP to the node's, and back in the result."""
    directory = tmp_path_factory.mktemp("names")
    sent = job(directory, "true\n")
    taken, folders = [], set()
    for name in sorted(names, key=lambda name: -name.count("/")):
        if (
            file_name(name.encode())[1]
            or folded(name) in folders | {"run.sh"}
            or folded(name).startswith("run.sh/")
        ):
            continue
        above = [folded(str(folder)) for folder in PurePosixPath(name).parents]
        if any(folded(other) in above for other in taken):
            continue
        folders.update(above)
        taken.append(name)
        path = Path(sent.directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)

    async def main() -> dict[str, bytes]:
        async with http(directory) as (node, _):
            status = await node.submit(sent)
            await ended(node, ref(status, sent), directory / "got.zip")
            archive = zipfile.ZipFile(directory / "got.zip")
            names = [name for name in archive.namelist() if not name.startswith(".tenuto/")]
            return {name: archive.read(name) for name in names}

    came = run(main())
    del came["run.sh"]
    assert came == {name: name.encode() for name in taken}


@asynccontextmanager
async def fake(directory: Path) -> AsyncIterator[tuple[Node, None]]:
    node = FakeNode()
    yield node, None
    await node.end()


@pytest.mark.parametrize("opened", [local, http])
def test_the_metrics_of_a_payload_are_read_from_its_node(opened: Any, tmp_path: Path) -> None:
    point = '{"name": "loss", "value": 1}'

    async def scenario() -> None:
        async with asyncio.timeout(60), opened(tmp_path) as (node, _):
            job = outgoing(tmp_path, f"echo '{point}' >> \"$JOB_METRICS\"\n")
            payload = ref(await node.submit(job), job)
            await final(node, payload, tmp_path / "got.zip")
            assert (await node.read_log(payload, METRICS, 0, 1000)).data == f"{point}\n".encode()

    asyncio.run(scenario())


class TestNodes(NodeContract):
    """In memory, embedded, and over HTTP."""

    @pytest.fixture(params=[fake, local, http], ids=["fake", "local", "http"])
    def opened(self, request: pytest.FixtureRequest) -> Opened:
        made: Made = request.param

        @asynccontextmanager
        async def opened(directory: Path) -> AsyncIterator[Node]:
            async with made(directory) as (node, _):
                yield node

        return opened


def test_a_node_that_is_restarted_goes_on(made: Made, tmp_path: Path) -> None:
    """N3: what was open is adopted, and started once."""

    async def main() -> None:
        async with made(tmp_path) as (node, _):
            script = f"echo x >> ledger; until [ -e {tmp_path}/go ]; do sleep 0.05; done\n"
            sent = job(tmp_path, script)
            payload = ref(await node.submit(sent), sent)
            while (await node.retrieve(payload, P.PREPARED, 5, "")).status.state is not P.RUNNING:
                pass
        (tmp_path / "go").touch()
        async with made(tmp_path) as (node, _):
            retrieved = await ended(node, payload, tmp_path / "got.zip")
            assert retrieved.status.state is P.COMPLETED
            assert zipfile.ZipFile(tmp_path / "got.zip").read("ledger") == b"x\n"

    run(main())


def test_a_node_that_was_killed_before_it_had_tidied_up_does_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with local(tmp_path) as (node, embedded):
            sent = job(tmp_path, "echo data > out\n")
            await ended(node, ref(await node.submit(sent), sent), tmp_path / "got.zip")
            place = embedded.runner.place("k-1")
        (Path(place.work) / "deep").mkdir(parents=True, exist_ok=True)
        async with local(tmp_path):
            while Path(place.work).exists():  # noqa: ASYNC110  it is removed by a thread
                await asyncio.sleep(0.01)
            assert zipfile.ZipFile(place.result).read("out") == b"data\n"

    run(main())


def test_a_restarted_node_mends_the_status_that_a_killed_runner_left(tmp_path: Path) -> None:
    """The payload ends while there is no node, and its runner is killed between the marker and the status."""
    machine = this_machine()

    async def main() -> None:
        async with local(tmp_path) as (node, embedded):
            script = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done\n"
            sent = job(tmp_path, script)
            payload = ref(await node.submit(sent), sent)
            while (await node.retrieve(payload, P.PREPARED, 5, "")).status.state is not P.RUNNING:
                pass
            paths = embedded.runner.place("k-1").paths
        running = read_status(machine.files, paths)
        assert running is not None
        (tmp_path / "go").touch()
        async with asyncio.timeout(60):
            while not Path(paths.done).exists() or machine.locks.is_locked(paths.lock):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        machine.files.make_directory(paths.private)  # a runner that was killed has not removed it
        write_status(machine.files, paths, running)
        async with local(tmp_path) as (node, _):
            assert (await ended(node, payload, tmp_path / "got.zip")).status.state is P.COMPLETED
        mended = read_status(machine.files, paths)
        assert mended is not None
        assert (running.state_record.state.finished(), mended.state_record.state) == (False, JobState.DONE)

    run(main())


def test_a_payload_that_is_ended_before_the_scheduler_has_it_does_not_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with local(tmp_path) as (node, embedded):
            scheduler, reached, killed = embedded._scheduler, asyncio.Event(), asyncio.Event()
            submit = scheduler.submit_async

            async def slow(*given: Any) -> Any:
                reached.set()
                await killed.wait()
                return await submit(*given)

            monkeypatch.setattr(scheduler, "submit_async", slow)
            sent = job(tmp_path, "exec sleep 1000\n")
            payload = ref(await node.submit(sent), sent)
            await reached.wait()
            await node.kill(payload)
            killed.set()
            assert (await ended(node, payload, tmp_path / "x")).status.state is P.KILLED

    run(main())


def test_files_that_were_moved_before_a_crash_are_recognised(tmp_path: Path) -> None:
    """N1: the files are there, the row is not."""

    async def main() -> None:
        async with local(tmp_path) as (node, embedded):
            sent = job(tmp_path, "true\n")
            place = embedded.runner.place(sent.key)
            Path(place.paths.directory).mkdir(parents=True)
            Path(sent.directory).rename(place.work)
            status = await node.submit(sent)
            assert (await ended(node, ref(status, sent), tmp_path / "x")).status.state is P.COMPLETED

    run(main())


def test_a_payload_that_writes_too_much_is_stopped(tmp_path: Path) -> None:
    """H28: disk limit."""

    async def main() -> None:
        terms = Terms(Limits(grace_s=1.0), Durability.NONE, 512, work_bytes=1 << 20)
        small = plan(tmp_path / "node").__class__(
            **{
                **{name: getattr(plan(tmp_path / "node"), name) for name in NodePlan.__slots__},
                "terms": {"": terms},
            }
        )
        embedded = EmbeddedNode(small, this_machine())
        await embedded.start()
        node = LocalNode(embedded)
        script = "for i in 1 2 3 4; do head -c 900000 /dev/urandom > f$i; done; sleep 1000\n"
        sent = job(tmp_path, script)
        retrieved = await ended(node, ref(await node.submit(sent), sent), tmp_path / "x")
        assert retrieved.status.state is P.FAILED
        assert "disk limit" in retrieved.status.message
        await embedded.close()

    run(main())


def test_a_round_of_the_cleaner_leaves_no_old_payload_but_those_in_use(tmp_path: Path) -> None:
    """S2-12: it took a hundred a minute, and a hundred that cannot be removed would have stopped it."""

    async def main() -> None:
        machine = this_machine()
        embedded = EmbeddedNode(replace(plan(tmp_path / "node"), max_age_s=-1.0), machine)
        locks = []
        for n in range(350):
            row = embedded.payloads.add(f"k-{n}", Sender())
            embedded.payloads.end(row.id, P.COMPLETED, "")
            if n < 101:
                paths = embedded.runner.place(row.key).paths
                Path(paths.directory).mkdir(parents=True)
                locks.append(machine.locks.try_lock(paths.lock))
        assert embedded._cleaner.clean() == 249
        for lock in locks:
            assert lock is not None
            lock.close()
        assert embedded._cleaner.clean() == 101
        await embedded.close()

    run(main())


@pytest.mark.parametrize("digit", "0f")
def test_ids_of_payloads_fit_into_31_bits(tmp_path: Path, digit: str) -> None:
    """S2-14: servers of job-orchestrator know no larger ones."""

    class Extreme(SystemRandomness):
        def nonce(self) -> str:
            return digit * 32

    async def main() -> None:
        machine = this_machine()._replace(randomness=Extreme())
        embedded = EmbeddedNode(plan(tmp_path / "node"), machine)
        row = embedded.payloads.add("k-1", Sender())
        assert 0 < row.id <= 2**30, "a billion more may follow"
        await embedded.close()

    run(main())


# Over HTTP only


def test_a_node_wants_its_secret(tmp_path: Path) -> None:
    """H32."""

    async def main() -> None:
        embedded = EmbeddedNode(plan(tmp_path / "node"), this_machine())
        machine = this_machine()
        front = NodeFront(embedded, "secret", "1", machine.clock, LIMITS)
        app = node_app(front, (), machine.randomness)
        assert (await ask(app, "GET", "/health")).json["tenuto"] == "1"
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
            assert (await ask(app, "GET", "/retrieve/1", headers)).status == 401
            assert (await ask(app, "POST", "/kill/1", headers)).status == 401
        assert (await ask(app, "GET", "/retrieve/1", {"authorization": "Bearer secret"})).status == 404
        await embedded.close()

    run(main())


def test_every_route_of_a_node_asks_for_the_secret_or_is_open() -> None:
    for route in router.routes:
        asked = [getattr(one.call, "scope", None) for one in route.dependant.dependencies]  # type: ignore[attr-defined]
        open_paths = {"/", "/health", "/metrics", "/openapi.json", "/swagger"}
        assert any(asked) or route.path in open_paths  # type: ignore[attr-defined]


def test_an_old_server_drives_our_node(tmp_path: Path) -> None:
    """Acceptance 5: no key, no fields, and `input` in every answer."""

    async def main() -> None:
        embedded = EmbeddedNode(plan(tmp_path / "node"), this_machine())
        await embedded.start()
        machine = this_machine()
        app = node_app(NodeFront(embedded, None, "1", machine.clock, LIMITS), (), machine.randomness)
        content = body(file("run.sh", b"echo x > out\n", name=b"file"))
        taken = await ask(app, "POST", "/submit", {"content-type": CONTENT_TYPE}, content)
        said = taken.json
        assert taken.status == 200
        assert {"id", "input", "status", "loc", "pid", "killed"} <= said.keys()
        assert said["status"] == "Prepared"
        while True:
            answer = await ask(app, "GET", f"/retrieve/{said['id']}?wait=5&known=Running")
            if answer.headers["content-type"] == "application/zip":
                break
        assert zipfile.ZipFile(io.BytesIO(answer.body)).read("out") == b"x\n"
        assert answer.headers["repr-digest"].startswith("sha-256=:")
        assert 0 <= (await ask(app, "GET", "/load")).json <= 100
        assert (await ask(app, "GET", "/retrieve/77")).status == 404
        assert list((tmp_path / "node" / "uploads").iterdir()) == []
        await embedded.close()

    run(main())


class OldNode(BaseHTTPRequestHandler):
    """A node of the older service: knows no keys, and holds no question back."""

    answers: dict[str, Any] = {}
    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if "redirect" in self.answers:
            self.send_response(302)
            self.send_header("Location", self.answers["redirect"])
            self.end_headers()
        elif self.path.startswith("/retrieve/"):
            waits = self.answers["waits"]
            self.answers["waits"] = waits - 1
            if waits > 0:
                body = {"id": 5, "input": {}, "status": "Prepared", "loc": "", "pid": 0, "killed": False}
                self._send(json.dumps(body).encode(), "application/json")
            else:
                self._send(self.answers["zip"], "application/zip")
        elif self.path == "/health" and "health" in self.answers:
            self._send(json.dumps(self.answers["health"]).encode(), "application/json")
        elif self.path.startswith(("/logs/", "/points/", "/progress/")) or "partial" in self.path:
            self._send(self.answers["zip"], "application/zip")
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.answers.get("drop"):
            self.connection.close()
            return
        body = {"id": 5, "input": {}, "status": "Prepared", "loc": "x", "pid": 1, "killed": False}
        self._send(json.dumps(body).encode(), "application/json")

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content) + self.answers.get("lie", 0)))
        for name, value in self.answers.get("headers", {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def old_node() -> Iterator[str]:
    OldNode.answers = {"waits": 2, "zip": b"PK zip"}
    OldNode.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), OldNode)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("name", "command", "word"), [("x", ("true",), "run.sh"), ("a/x", (), "folders")])
def test_an_old_node_is_not_sent_what_it_cannot_run(
    old_node: str, tmp_path: Path, name: str, command: tuple[str, ...], word: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")

    async def act() -> None:
        node = HttpNode("old", NodeAddress(old_node, poll_s=0.01))
        try:
            with pytest.raises(NodeRefusal, match=word):
                await node.submit(Outgoing("k", str(tmp_path), "dock", "1", 1, command))
        finally:
            await node.close()

    asyncio.run(act())
    assert not any("submit" in path for path in OldNode.asked)


def test_our_server_drives_an_old_node(old_node: str, tmp_path: Path) -> None:
    async def main() -> None:
        node = HttpNode("old", NodeAddress(old_node, poll_s=0.01))
        assert await node.slots() == 1
        status = await node.submit(job(tmp_path, "true\n"))
        assert (status.id, status.state) == (5, P.PREPARED)
        known = None
        for _ in range(3):
            retrieved = await node.retrieve(PayloadRef(5, ""), known, 25, str(tmp_path / "x.zip"))
            known = retrieved.status.state
        assert known is P.COMPLETED
        assert (tmp_path / "x.zip").read_bytes() == b"PK zip"
        assert not any("known=" in path or "Idempotency" in path for path in OldNode.asked)
        await node.close()

    run(main())


def test_an_old_node_that_does_not_answer_is_not_asked_again(old_node: str, tmp_path: Path) -> None:
    """To ask again could run the job twice."""

    async def main() -> None:
        node = HttpNode("old", NodeAddress(old_node))
        OldNode.answers["drop"] = True
        with pytest.raises(NodeRefusal, match="cannot be asked again"):
            await node.submit(job(tmp_path, "true\n"))
        assert OldNode.asked.count("/submit") == 1
        await node.close()

    run(main())


@pytest.mark.parametrize(
    "target", ["/secret", "file:///etc/passwd", "http://169.254.169.254/latest/meta-data"]
)
def test_a_node_cannot_send_its_server_elsewhere(old_node: str, tmp_path: Path, target: str) -> None:
    """H20: addresses come from the settings only, and no redirect is followed."""

    async def main() -> None:
        node = HttpNode("old", NodeAddress(old_node))
        OldNode.answers["redirect"] = old_node + target if target.startswith("/") else target
        for call in asked(node, PayloadRef(5, ""), str(tmp_path / "x.zip"))[:4]:
            with pytest.raises(NodeRefusal):
                await call()
        assert not any("secret" in path for path in OldNode.asked)
        assert not list(tmp_path.glob("x.zip*"))
        await node.close()

    run(main())


def test_damaged_results_are_seen(old_node: str, tmp_path: Path) -> None:
    """H16: cut in half, or another's."""

    async def main() -> None:
        node = HttpNode("old", NodeAddress(old_node))
        OldNode.answers |= {"waits": 0, "lie": 10}
        with pytest.raises((DamagedResult, NodeSilent)):
            await node.retrieve(PayloadRef(5, ""), None, 0, str(tmp_path / "x.zip"))
        OldNode.answers |= {"lie": 0, "headers": {"Repr-Digest": "sha-256=:AAAA:"}}
        with pytest.raises(DamagedResult):
            await node.retrieve(PayloadRef(5, ""), None, 0, str(tmp_path / "x.zip"))
        assert not list(tmp_path.glob("x.zip*"))
        await node.close()

    run(main())


@pytest.mark.parametrize("said", [{}, {"Tenuto-Payload": "key=k-1&service=example&user_id=2&job_id=1"}])
def test_an_answer_that_does_not_say_whose_it_is_is_not_taken(
    old_node: str, tmp_path: Path, said: dict[str, str]
) -> None:
    """S1-2: a node of ours says in every answer whose the payload is; only an older one may leave it out."""

    async def main() -> None:
        node, sent = HttpNode("n", NodeAddress(old_node)), job(tmp_path, "true\n")
        OldNode.answers |= {"waits": 0, "health": {"tenuto": "1", "slots": 1}, "headers": said}
        for call in asked(node, PayloadRef(5, sent.mark), str(tmp_path / "x.zip")):
            with pytest.raises(NotOurs):
                await call()
        with pytest.raises(NotOurs):
            await node.submit(sent)
        assert not list(tmp_path.glob("x.zip*"))
        await node.close()

    run(main())


def test_a_node_of_ours_that_refuses_is_not_taken_for_an_older_one(old_node: str) -> None:
    """It would be asked without keys, and its answers would not be compared."""

    async def main() -> None:
        node = HttpNode("n", NodeAddress(old_node))
        OldNode.answers["health"] = {"tenuto": "1", "slots": 3}
        assert await node.slots() == 3
        del OldNode.answers["health"]
        with pytest.raises(PayloadGone):
            await node.slots()
        assert await node._knows_keys()
        await node.close()

    run(main())


def test_a_node_that_is_not_there_was_not_reached(tmp_path: Path) -> None:
    async def main() -> None:
        for url in ("http://127.0.0.1:1", "http://no-such-host.invalid:9"):
            node = HttpNode("x", NodeAddress(url))
            with pytest.raises(NodeNotReached):
                await node.submit(job(tmp_path, "true\n", key=f"k{len(url)}"))
            await node.close()

    run(main())


@pytest.mark.parametrize("chance", ["0" * 32, "f" * 32, "3fffffff", "40000000"])
def test_ids_of_payloads_fit_into_31_bits_and_are_never_given_again(chance: str, tmp_path: Path) -> None:
    """Servers of the older service know 32 bits, and no key: also of a node whose rows are all forgotten."""

    class Chance(SystemRandomness):
        def nonce(self) -> str:
            return chance

    embedded = EmbeddedNode(plan(tmp_path), this_machine()._replace(randomness=Chance()))
    ids = [embedded.payloads.add(f"a{n}", Sender()).id for n in range(3)]
    embedded.database.write(lambda connection: connection.execute(delete(payloads)))
    ids += [embedded.payloads.add(f"b{n}", Sender()).id for n in range(3)]
    embedded.database.close()
    assert len(set(ids)) == 6
    assert all(0 < id < 1 << 31 for id in ids)
