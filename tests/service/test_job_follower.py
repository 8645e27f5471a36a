# ruff: noqa: ASYNC110  the tests own the loop
"""How a server follows its jobs: each once, from its claim on, whatever happens in between."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tenuto.database import Database
from tenuto.lifecycle.service import ServiceState
from tenuto.service.access import Principal
from tenuto.service.context import Offered
from tenuto.service.decisions import Quota
from tenuto.service.names import Input
from tenuto.service.requests import Requests
from tenuto.service.rows import JobRow, NewJob
from tenuto.service.server import Server
from tenuto.settings.service import OfferedSettings
from tests.service.asgi import MADE, ask, make_server, run
from tests.service.fake_node import FakeNode, Trouble
from tests.service.multipart import CONTENT_TYPE, body, field, file


class Held:
    """A call of the database whose answer comes late: what it did is done."""

    def __init__(self, owner: Any, name: str) -> None:
        self._call = getattr(owner, name)
        self.is_done, self.goes_on = threading.Event(), threading.Event()
        setattr(owner, name, self)

    def __call__(self, *arguments: Any) -> Any:
        answer = self._call(*arguments)
        if answer:
            self.is_done.set()
            assert self.goes_on.wait(60)
        return answer

    async def done(self) -> None:
        assert await asyncio.to_thread(self.is_done.wait, 60)


def server_of(directory: Path, node: FakeNode, **settings: Any) -> Server:
    """A server that its test starts and closes."""
    server = make_server(directory, {"a": node}, **settings)
    MADE.remove(server)
    return server


def offering(*command: str) -> dict[str, Offered]:
    """A service with a command, or without one."""
    inputs = (Input("in.txt", True),) if command else ()
    settings = OfferedSettings(command=command, inputs=["in.txt"] if command else [])
    return {"example": Offered("example", Quota(5, 10), ("a",), settings, inputs)}


def added(server: Server, name: str = "job") -> int:
    place = server.parts.places.open_job(name)
    Path(place.files, "run.sh").write_text("true\n")
    return server.parts.requests.add(NewJob("1", "example", name))[0].id


async def ended(server: Server, job_id: int) -> JobRow:
    while True:
        row = await server.parts.sql(server.parts.requests.get, job_id)
        if row is not None and row.state.is_final:
            return row
        await asyncio.sleep(0.01)


def test_a_claim_whose_answer_comes_late_is_no_stray(tmp_path: Path) -> None:
    """A node of the older service cannot be asked whether it has a job: one never sent was Invalid."""
    calls: list[str] = []
    node = FakeNode(trouble=calls.append)

    async def main() -> JobRow:
        server = server_of(tmp_path, node, poll_s=0.05)
        await server.start()
        claim = Held(server.parts.requests, "claim")
        job_id = added(server)
        server._wake_dispatcher()
        await claim.done()
        seen = asyncio.ensure_future(server._be_seen())
        await asyncio.wait({seen}, timeout=0.5)
        claim.goes_on.set()
        await seen
        row = await ended(server, job_id)
        await server.close()
        return row

    assert run(main()).state is ServiceState.COMPLETED
    assert "find" not in calls
    assert calls.count("submit") == 1


def test_a_job_that_is_let_go_of_while_strays_are_looked_for_is_none(tmp_path: Path) -> None:
    """It was sent to its first node again, though it was in the queue by then, or at another node."""
    troubles = [Trouble.NOT_REACHED]
    sent = asyncio.Event()
    goes_on = asyncio.Event()
    calls: list[str] = []

    def trouble(call: str) -> Trouble | None:
        calls.append(call)
        return troubles.pop() if call == "submit" and troubles else None

    class Slow(FakeNode):
        async def submit(self, job: Any) -> Any:
            sent.set()
            await goes_on.wait()
            return await super().submit(job)

    async def main() -> JobRow | None:
        server = server_of(tmp_path, Slow(trouble=trouble), poll_s=3600, send_for_s=36000)
        await server.start()
        job_id = added(server)
        server._wake_dispatcher()
        await sent.wait()
        mine = Held(server.parts.requests, "mine")
        seen = asyncio.ensure_future(server._be_seen())
        await mine.done()
        server._wake_dispatcher = lambda: None  # type: ignore[method-assign]
        goes_on.set()
        while job_id in server._job_follower._tasks:
            await asyncio.sleep(0.01)
        mine.goes_on.set()
        await seen
        assert job_id not in server._job_follower._tasks
        row = await server.parts.sql(server.parts.requests.get, job_id)
        await server.close()
        return row

    row = run(main())
    assert row is not None
    assert row.state is ServiceState.QUEUED
    assert (calls.count("submit"), calls.count("find")) == (1, 0)


def test_a_node_that_is_not_there_is_left_alone_also_if_jobs_are_given_up_at_once(tmp_path: Path) -> None:
    """`send_for_s = 0`: a job that failed was taken for an answer of its node, which got the next."""
    node = FakeNode(trouble=lambda call: Trouble.NOT_REACHED if call == "submit" else None)

    async def main() -> None:
        server = server_of(tmp_path, node, poll_s=0.05, send_for_s=0)
        await server.start()
        for n in range(3):
            job_id = added(server, f"job{n}")
            server._wake_dispatcher()
            assert (await ended(server, job_id)).state is ServiceState.FAILED
        assert not server.parts.book.is_up("a")
        await server.close()

    run(main())


@pytest.mark.parametrize("is_started_anew", [False, True], ids=["reload", "restart"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("cat", "in.txt"), None),
        (("cat", "in.txt"), ()),
        (("cat", "in.txt"), ("wc", "in.txt")),
        ((), None),
        ((), ("wc", "in.txt")),
    ],
)
def test_a_job_is_handled_by_what_it_was_accepted_for(
    before: tuple[str, ...], after: tuple[str, ...] | None, is_started_anew: bool, tmp_path: Path
) -> None:
    """Its service may leave the settings, or have another command, before a node has the job."""
    lost = [True]
    node = FakeNode(trouble=lambda call: Trouble.LOST if call == "submit" and lost[0] else None)

    def server_now() -> Server:
        return server_of(tmp_path, node, poll_s=0.05, send_for_s=60)

    async def main() -> JobRow:
        server, later = server_now(), offering(*after) if after is not None else {}
        server.parts.services.update(offering(*before))
        await server.start()
        parts = [field("user_id", "1"), field("service", "example"), file("in.txt" if before else "run.sh")]
        headers = {"content-type": CONTENT_TYPE}
        answer = await ask(server.app(), "POST", "/upload", headers, body(*parts))
        job_id = answer.json["id"]
        while not server.parts.requests.get(job_id).message:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        if is_started_anew:
            await server.close()
            server = server_now()
            server.parts.services.clear()
            server.parts.services.update(later)
            await server.start()
        else:
            server.reload(later, {"a": node}, server.parts.settings)
        lost[0] = False
        row = await ended(server, job_id)
        await server.close()
        return row

    assert run(main()).state is ServiceState.COMPLETED
    (payload,) = node.payloads.values()
    assert payload.job.command == before


@pytest.mark.parametrize("by", ["a request", "another process"])
def test_the_uploads_of_a_job_that_ends_in_the_queue_are_removed(tmp_path: Path, by: str) -> None:
    """By a request or by `tenuto kill`: the job has no follower, and its uploads lay there for a day."""

    async def main() -> None:
        server = server_of(tmp_path, FakeNode(slots=0))
        await server.start()
        job_id = added(server)
        assert not server.parts.places.job("job").is_tidy()
        if by == "a request":
            await server.operations.terminate(job_id, Principal(None, frozenset()))
        else:
            database = Database(tmp_path / "db.sqlite")
            ended = Requests(database, "the command line").terminate(job_id)
            database.close()
            assert ended is not None
            assert ended.state is ServiceState.KILLED
        while not server.parts.places.job("job").is_tidy():
            await asyncio.sleep(0.01)
        await server.close()

    run(main())
