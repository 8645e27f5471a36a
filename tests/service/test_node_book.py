# ruff: noqa: ASYNC240  the test owns the loop
"""Which node a server asks next, and how many jobs it has in hand for one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from tenuto.lifecycle.service import ServiceState
from tenuto.service.context import Offered
from tenuto.service.decisions import Quota, places_of, plan_nodes
from tenuto.service.job_follower import AT_ONCE
from tenuto.service.nodes import Node, NodeBook
from tenuto.service.rows import JobRow, NewJob, Page
from tenuto.service.server import Server, ServerPlan
from tenuto.settings.service import ServiceSettings
from tenuto.testing.clock import FakeClock
from tenuto.workspace.machine import this_machine
from tests.service.asgi import run
from tests.service.fake_node import FakeNode

PATIENCE_S = 60.0


def book_of(*names: str) -> NodeBook:
    return NodeBook({name: cast(Node, None) for name in names}, FakeClock())


def test_a_node_has_its_slots_in_hand_and_two_jobs_that_wait() -> None:
    assert [places_of(slots) for slots in (0, 1, 2, 100)] == [0, 3, 4, 102]
    assert plan_nodes({"a": 2}, {}, 16) == ["a"] * 4
    assert plan_nodes({"a": 2}, {"a": 3}, 16) == ["a"]
    assert plan_nodes({"a": 2}, {"a": 4}, 16) == []


def test_jobs_go_to_the_node_with_the_fewest_for_its_slots_and_a_full_one_gets_nothing() -> None:
    assert plan_nodes({"large": 4, "small": 1}, {}, 4) == ["large", "small", "large", "large"]
    assert plan_nodes({"a": 1, "b": 1}, {"a": 3}, 5) == ["b"] * 3


def test_a_node_that_takes_nothing_gets_nothing_and_one_that_is_left_alone_is_not_asked() -> None:
    book = book_of("a", "b")
    book.answered("a", slots=0)
    for _ in range(3):
        book.failed("b", "silent")
    assert book.well(("a", "b")) == {"a": 0}
    assert plan_nodes(book.well(("a", "b")), {}, 2) == [], "jobs wait for it"
    assert plan_nodes(book.well(("b",)), {}, 2) == [None, None], "no node of the service is well"


def test_quotas_that_are_lifted_leave_the_rest_in_the_queue_and_all_jobs_end(tmp_path: Path) -> None:
    """A server keeps in memory what its nodes can run soon, however much its quotas allow."""
    jobs = 4 * AT_ONCE

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
            while not all(state.is_final for _, state in requests.counts()):
                counts = requests.counts()
                most = max(most, sum(n for (_, state), n in counts.items() if state.is_active))
                await asyncio.sleep(0)
        rows = requests.listed(Page(limit=1000))
        await server.close()
        await node.end()
        return most, rows

    most, rows = run(main())
    assert 0 < most <= places_of(2)
    assert [row.state for row in rows] == [ServiceState.COMPLETED] * jobs
    assert all(row.started_at is not None for row in rows), "also of those too short to be seen running"
