# ruff: noqa: ASYNC240  the test owns the loop
"""Which node a server asks next, and how many jobs it has in hand for one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from tenuto.lifecycle.service import ServiceState
from tenuto.service.decisions import FEWEST_PLACES, PLACES_PER_SLOT, Quota, places_of
from tenuto.service.nodes import Node, NodeBook
from tenuto.service.parts import Offered
from tenuto.service.rows import JobRow, NewJob, Page
from tenuto.service.sender import AT_ONCE
from tenuto.service.server import Server, ServerPlan
from tenuto.settings.service import ServiceSettings
from tenuto.testing.clock import FakeClock
from tenuto.testing.fake_node import FakeNode
from tenuto.workspace.machine import this_machine
from tests.service.asgi import run

PATIENCE_S = 60.0


def book_of(*names: str) -> NodeBook:
    return NodeBook({name: cast(Node, None) for name in names}, FakeClock())


def filled(book: NodeBook, service: str, name: str, jobs: int) -> None:
    for _ in range(jobs):
        book.took(name, service)


def test_a_node_with_more_slots_has_more_places_and_none_waits_for_a_claim() -> None:
    assert places_of(1) == FEWEST_PLACES
    assert places_of(100) == 100 * PLACES_PER_SLOT
    assert all(places_of(slots) - AT_ONCE >= slots for slots in range(1, 1000))


def test_nothing_is_planned_until_there_are_places_for_a_whole_claim() -> None:
    book = book_of("a")
    filled(book, "s", "a", FEWEST_PLACES - 4)
    assert book.plan("s", ("a",), 4) == ["a"] * 4
    assert book.plan("s", ("a",), 5) == []
    book.freed_place("a", "s")
    assert book.plan("s", ("a",), 5) == ["a"] * 5


def test_the_jobs_of_one_service_take_no_place_of_another() -> None:
    book = book_of("a")
    filled(book, "s", "a", FEWEST_PLACES)
    assert book.plan("s", ("a",), 1) == []
    assert book.plan("other", ("a",), 1) == ["a"]


def test_places_of_several_nodes_count_together_and_a_full_one_gets_nothing() -> None:
    book = book_of("a", "b")
    filled(book, "s", "a", FEWEST_PLACES)
    assert book.plan("s", ("a", "b"), 3) == ["b"] * 3


def test_a_node_that_is_left_alone_has_no_places_and_none_is_named_without_another() -> None:
    book = book_of("a", "b")
    for _ in range(3):
        book.failed("b", "silent")
    filled(book, "s", "a", FEWEST_PLACES)
    assert book.plan("s", ("a", "b"), 1) == []
    assert book.plan("s", ("b",), 2) == [None, None]


def test_quotas_that_are_lifted_leave_the_rest_in_the_queue_and_all_jobs_end(tmp_path: Path) -> None:
    """A server keeps in memory what its nodes can run soon, however much its quotas allow."""
    jobs = FEWEST_PLACES + 3 * AT_ONCE

    async def main() -> tuple[int, list[JobRow]]:
        node = FakeNode("a", slots=2, run_s=lambda job: 0.001)
        services = {"s": Offered("s", Quota(1000, 1000), ("a",))}
        settings = ServiceSettings(data=tmp_path / "data", poll_s=PATIENCE_S)
        plan = ServerPlan(settings, str(tmp_path / "db.sqlite"), services, "0")
        server = Server(plan, {"a": node}, this_machine())
        requests = server.parts.requests
        for n in range(jobs):
            place = server.parts.places.open_job(f"job{n}")
            Path(place.files, "run.sh").write_text("true\n")
            requests.add(NewJob(str(n % 5), "s", f"job{n}"))
        await server.start()
        most = 0
        async with asyncio.timeout(PATIENCE_S):
            while sum(n for (_, state), n in requests.counts().items() if not state.is_final):
                most = max(most, len(server._getter._tasks))
                await asyncio.sleep(0)
        rows = requests.listed(Page(limit=1000))
        await server.close()
        await node.end()
        return most, rows

    most, rows = run(main())
    assert 0 < most <= FEWEST_PLACES
    assert [row.state for row in rows] == [ServiceState.COMPLETED] * jobs
    assert all(row.started_at is not None for row in rows), "also of those too short to be seen running"
