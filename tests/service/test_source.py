"""The service as a monitor sees it: the contract of sources, over real rows."""

from __future__ import annotations

import asyncio
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import Connection

from tenuto.database import Database
from tenuto.jobs.source import ActedAs, Action, Target
from tenuto.lifecycle.service import ServiceState
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.monitor.provider import LocalProvider
from tenuto.service import server as service
from tenuto.service.data_paths import DataPaths
from tenuto.service.decisions import Quota
from tenuto.service.nodes import Node, NodeBook
from tenuto.service.requests import ROWS, Requests, note_nodes
from tenuto.service.rows import NewJob
from tenuto.service.source import History, ServiceFeed, ServiceSource
from tenuto.service.tables import MIGRATIONS, moves, opened
from tenuto.settings.service import OfferedSettings
from tenuto.testing.clock import FakeClock
from tenuto.testing.contracts.sources import SourceContract, all_rows
from tests.service.asgi import MADE, make_server, run
from tests.service.fake_node import FakeNode
from tests.service.servers import Process, eventually

S = ServiceState


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = opened(tmp_path / "db.sqlite", MIGRATIONS, 10.0)
    yield database
    database.close()


@pytest.fixture
def source(database: Database, tmp_path: Path) -> ServiceSource:
    requests = Requests(database, "me")
    places = DataPaths(str(tmp_path / "data"))
    places.make()
    for n in range(4):
        requests.add(NewJob("ada", "dock", f"d{n}"))
        places.open_job(f"d{n}")
    done, failed, running = requests.claim("dock", Quota(3, 3), ["n"] * 3)
    for row, ends in (
        (done, [S.SUBMITTED, S.COMPLETED]),
        (failed, [S.SUBMITTED, S.FAILED]),
        (running, [S.SUBMITTED, S.RUNNING]),
    ):
        for to in ends:
            moved = requests.move(row, to, "exit code 7" if to is S.FAILED else "")
            assert moved is not None
            row = moved
    with zipfile.ZipFile(places.job("d0").result, "w") as result:
        result.writestr(".tenuto/stdout", "what it printed\n")
    return ServiceSource(database, str(tmp_path / "data"))


@pytest.fixture
def group() -> str:
    return "service:dock"


class TestServiceSource(SourceContract):
    """Every promise of a source."""


def test_states_are_shown_in_both_words(source: ServiceSource, group: str) -> None:
    rows = all_rows(source, group)
    assert [row.status for row in rows] == ["Completed", "Failed", "Running", "Queued"]
    assert [row.state for row in rows] == [JobState.DONE, JobState.ERROR, JobState.RUNNING, JobState.WAITING]
    assert rows[1].reason is JobFailureStatus.FAILED
    assert rows[0].owner == "ada"
    assert source.log(rows[0].key, "out", 0).read(0, 4) == b"what"
    assert source.why(rows[1].key).because[1] == "exit code 7"
    panels = source.panels()
    assert panels.queue is not None
    [service] = panels.queue["services"]
    assert (service["name"], service["queued"], service["running"]) == ("dock", 1, 1)
    assert service["oldest_s"] >= 0
    assert sum(one["running"] for one in panels.queue["users"]) == 1
    assert panels.nodes is not None
    assert sum(node["running"] for node in panels.nodes) <= 1


def test_each_upload_is_one_bar_of_the_timeline(source: ServiceSource, group: str) -> None:
    provider = LocalProvider([source])
    try:
        assert provider.wait_until_loaded(30)
        (lane,) = provider.timeline([group])["lanes"]
        rows = all_rows(source, group)
        assert sorted((bar[4], bar[5]) for bar in lane["bars"]) == [
            (row.key, row.attempt) for row in rows[:3]
        ]
        assert lane["joins"] == []
    finally:
        provider.close()


def test_nodes_show_their_slots_and_load_as_servers_noted_them(
    database: Database, source: ServiceSource
) -> None:
    [node] = source.panels("nodes").nodes or ()
    assert (node["url"], node["running"], node["slots"], node["load"]) == ("n", 1, None, None)
    book = NodeBook({"n": cast(Node, None), "other": cast(Node, None)}, FakeClock())
    book.answered("other")
    book.answered("n", 4)
    book.answered("n")
    answered = book.take_answered()
    assert answered == {"n": 4, "other": None}
    assert book.take_answered() == {}
    database.write(lambda connection: note_nodes(connection, answered))
    busy, idle = source.panels("nodes").nodes or ()
    assert (busy["url"], busy["slots"], busy["load"]) == ("n", 4, 0.25)
    assert (idle["url"], idle["slots"], idle["state"]) == ("other", None, "idle")
    assert idle["seen"] is not None


def test_a_server_notes_the_slots_of_its_node(shared: Process) -> None:
    database = opened(shared.log_path.parent / "db.sqlite", MIGRATIONS, 10.0)
    try:
        history = History(database)
        notes = eventually(history.nodes)
    finally:
        database.close()
    assert [note.slots for note in notes.values()] == [4]


class ResizedNode(FakeNode):
    """A node that is started anew with other slots."""

    slots_now = 2

    async def slots(self) -> int:
        return self.slots_now


def are_noted(history: History, slots: list[int]) -> bool:
    return [note.slots for note in history.nodes().values()] == slots


def test_a_server_asks_again_for_the_slots_of_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "NODES_EVERY_S", 0.02)
    monkeypatch.setattr(service, "SEEN_EVERY_S", 0.02)
    node = ResizedNode("n")

    async def scenario() -> None:
        server = make_server(tmp_path, {"n": node})
        history = History(server.database)
        MADE.remove(server)  # it is closed in the loop that started it
        try:
            await server.start()
            for slots in (2, 5):
                node.slots_now = slots
                await asyncio.to_thread(eventually, partial(are_noted, history, [slots]))
                assert are_noted(history, [slots])
        finally:
            await server.close()

    run(scenario())


def test_a_detail_has_the_fields_of_the_monitor(source: ServiceSource, group: str) -> None:
    row = all_rows(source, group)[1]
    fields = source.detail(row.key).fields
    assert fields["attempts"][0]["message"] == "exit code 7"
    assert fields["parameters"]["service"] == "dock"
    assert fields["commands"][0].startswith("curl -F user_id=ada -F service=dock")
    assert not fields.keys() & {"state", "id", "task"}


def test_a_job_of_a_command_is_uploaded_again_by_its_inputs(
    source: ServiceSource, group: str, database: Database, tmp_path: Path
) -> None:
    key = next(row.key for chunk in source.rows(group) for row in chunk)
    assert "-F file=@run.sh $SERVER" in source.detail(key).fields["commands"][0]
    dock = OfferedSettings(command=("dock",), inputs=("a.pdb", "b.cfg?"))
    offering = ServiceSource(database, str(tmp_path / "data"), {"dock": dock})
    assert "-F service=dock -F file=@a.pdb $SERVER" in offering.detail(key).fields["commands"][0]


def test_a_service_without_a_job_is_shown_as_offered(source: ServiceSource, database: Database) -> None:
    offering = ServiceSource(database, "data", {"fold": OfferedSettings(), "dock": OfferedSettings()})
    shown = [(one.name, one.state, one.total) for one in offering.groups()]
    assert shown == [("dock", "offered", 4), ("fold", "offered", 0)]
    assert list(offering.rows("service:fold")) == []
    assert sum(offering.counts("service:fold").values()) == 0


def test_a_feed_tells_of_jobs_that_moved(source: ServiceSource, group: str, database: Database) -> None:
    feed = source.feed()
    assert feed.read((group,), 100).rows == []
    Requests(database, "me").terminate(4)
    (row,) = feed.read((group,), 100).rows
    assert (row.id, row.status) == ("dock#4", "Killed")
    assert feed.read((group,), 100).rows == []


@pytest.fixture
def history(database_url: str) -> Iterator[History]:
    """Two queued jobs, on SQLite and on PostgreSQL."""
    database = opened(database_url, MIGRATIONS, 10.0)
    for name in ("a", "b"):
        Requests(database, "me").add(NewJob("ada", "dock", name))
    yield History(database)
    database.close()


def _line(job_id: int) -> dict[str, object]:
    return {"job_id": job_id, "state": S.QUEUED.value, "message": ""}


def told(feed: ServiceFeed) -> list[str]:
    return [row.id for row in feed.read(("service:dock",), 100).rows]


def test_a_feed_tells_of_a_move_with_a_smaller_number_that_comes_later(history: History) -> None:
    feed = ServiceFeed(history)
    [last] = history.last_moves(1)
    for job, number in ((2, last + 2), (1, last + 1)):
        values = {"id": number, "job_id": job, "state": "Queued", "message": "", "at": 0}
        history._database.write(lambda connection: connection.execute(moves.insert(), values))  # noqa: B023
        assert told(feed) == [f"dock#{job}"]
    assert told(feed) == []


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_feed_tells_of_a_move_whose_transaction_commits_after_a_later_one(history: History) -> None:
    feed = ServiceFeed(history)
    is_numbered, go = threading.Event(), threading.Event()

    def late(connection: Connection) -> None:
        ROWS.record(connection, [_line(1)])
        is_numbered.set()
        assert go.wait(60)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(history._database.write, late)
        try:
            assert is_numbered.wait(60)
            history._database.write(lambda connection: ROWS.record(connection, [_line(2)]))
            assert told(feed) == ["dock#2"]
        finally:
            go.set()
        writing.result(60)
    assert told(feed) == ["dock#1"]
    assert told(feed) == []


def test_a_running_job_can_be_ended_from_a_monitor(source: ServiceSource, group: str) -> None:
    running = all_rows(source, group)[2]
    target = Target(running.key, running.attempt)
    assert source.act(Action.KILL, [target], dry_run=True, by="x")[0].outcome is ActedAs.WOULD_KILL
    assert source.act(Action.KILL, [target], dry_run=False, by="x")[0].outcome is ActedAs.ASKED
    assert source.act(Action.RETRY, [target], dry_run=False, by="x")[0].outcome is ActedAs.REFUSED


def test_a_server_ends_a_running_job_that_another_process_asks_to_end(shared: Process) -> None:
    job = shared.upload("echo began; sleep 6000\n").json["id"]
    eventually(lambda: shared.job(job)["status"] == "Running")
    database = opened(shared.log_path.parent / "db.sqlite", MIGRATIONS, 10.0)
    try:
        source = ServiceSource(database, str(shared.log_path.parent / "data"))
        row = source.detail(f"service:example/{job}").row
        acted = source.act(Action.KILL, [Target(row.key, row.attempt)], dry_run=False, by="x")
        assert acted[0].outcome is ActedAs.ASKED
        assert shared.final(job)["status"] == "Killed"
    finally:
        database.close()


def test_metrics_come_from_the_result_or_from_the_node_of_the_server(
    source: ServiceSource, group: str, tmp_path: Path
) -> None:
    line = '{"name": "loss", "value": 0.5}\n'
    with zipfile.ZipFile(tmp_path / "data" / "jobs" / "d0" / "result.zip", "a") as result:
        result.writestr(".tenuto/metrics.jsonl", line * 2)
    rows = {row.state: row for chunk in source.rows(group) for row in chunk}
    running = rows[JobState.RUNNING]
    live = tmp_path / "data" / "node" / "jobs" / "payload" / "3-x" / "work" / ".tenuto"
    live.mkdir(parents=True)
    assert source.metrics(running.key) == {}
    assert source.metrics_stamp(running.key) is None
    (live / "metrics.jsonl").write_text(line)
    assert source.metrics_stamp(running.key) is not None
    assert [point.value for point in source.metrics(running.key)["loss"]] == [0.5]
    assert [point.step for point in source.metrics(rows[JobState.DONE].key)["loss"]] == [0, 1]
