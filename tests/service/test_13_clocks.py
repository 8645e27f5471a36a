"""Acceptance 13: the clock of PostgreSQL jumps by days, the clocks of two servers are wrong by minutes."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tenuto.lifecycle.service import ServiceState
from tenuto.service.decisions import Quota
from tenuto.service.rows import NewJob
from tenuto.service.server import Cleaner, Server
from tenuto.testing.clock import FakeClock
from tenuto.workspace.machine import this_machine
from tests.parts.postgresql import PostgreSQL
from tests.service.asgi import make_server, run

DAY_S = 86400.0
QUOTA = Quota(5, 5)
Jump = Callable[[float], None]


@pytest.fixture
def jump(postgresql: PostgreSQL, postgresql_url: str) -> Jump:
    """``jump(60)``: the clock of the database, which stands still, is set.

    Its function is found before PostgreSQL's own.
    """
    name = urlsplit(postgresql_url).path.lstrip("/")
    for statement in (
        "CREATE SCHEMA shifted",
        "CREATE TABLE shifted.clock (moment TIMESTAMPTZ)",
        "INSERT INTO shifted.clock VALUES (now())",
        (
            "CREATE FUNCTION shifted.statement_timestamp() RETURNS TIMESTAMPTZ STABLE LANGUAGE SQL AS "
            "'SELECT moment FROM shifted.clock'"
        ),
        f"ALTER DATABASE {name} SET search_path = shifted, public, pg_catalog",
    ):
        postgresql.execute(statement, name)

    def jump(seconds: float) -> None:
        postgresql.execute(f"UPDATE shifted.clock SET moment = moment + INTERVAL '{seconds} seconds'", name)

    return jump


class WrongClock(FakeClock):
    """A clock that is wrong by a while."""

    def __init__(self, ahead_s: float) -> None:
        super().__init__(datetime.now().astimezone() + timedelta(seconds=ahead_s))


def server(directory: Path, url: str, ahead_s: float = 0.0) -> tuple[Server, WrongClock]:
    clock = WrongClock(ahead_s)
    made = make_server(
        directory, database=url, machine=this_machine()._replace(clock=clock), max_age_s=7200.0
    )
    return made, clock


def test_no_server_is_taken_for_dead_because_a_clock_is_wrong(
    tmp_path: Path, postgresql_url: str, jump: Jump
) -> None:
    (first, one), (second, two) = (
        server(tmp_path, postgresql_url, -600),
        server(tmp_path, postgresql_url, 600),
    )
    first.parts.requests.add(NewJob("1", "example", "d"))
    (claimed,) = first.parts.requests.claim("example", QUOTA, ["absent"])
    assert first.parts.requests.move(claimed, ServiceState.SUBMITTED, payload_id=1) is not None

    async def main() -> None:
        async def pass_s(seconds: float, *alive: Server) -> None:
            jump(seconds)
            one.advance(seconds)
            two.advance(seconds)
            for member in alive:
                await member._be_seen()

        for _ in range(5):
            await pass_s(5.0, first, second)
        for jumped in (DAY_S, -2 * DAY_S, 30.0, -30.0):
            jump(jumped)
            await second._be_seen()
            for _ in range(5):
                await pass_s(5.0, first, second)
            row = first.parts.requests.get(claimed.id)
            assert row is not None
            assert (row.server_id, row.claim) == (claimed.server_id, 1), f"after {jumped} s"
        jump(-DAY_S)  # and now the first dies: it was seen in the future
        for _ in range(8):
            await pass_s(5.0, second)
        row = first.parts.requests.get(claimed.id)
        assert row is not None
        assert (row.server_id, row.claim) != (claimed.server_id, 1)
        await second._job_follower.close()
        await first._job_follower.close()

    run(main())


def test_a_queued_job_does_not_wait_for_a_time_that_was_set_back(
    tmp_path: Path, postgresql_url: str, jump: Jump
) -> None:
    made, _ = server(tmp_path, postgresql_url)
    made.parts.requests.add(NewJob("1", "example", "d"))
    jump(-DAY_S)
    assert len(made.parts.requests.claim("example", QUOTA, ["absent"])) == 1


@pytest.mark.parametrize("jumped", [DAY_S, -DAY_S])
def test_nothing_is_cleaned_early(tmp_path: Path, postgresql_url: str, jump: Jump, jumped: float) -> None:
    made, clock = server(tmp_path, postgresql_url)
    requests, cleaner = made.parts.requests, Cleaner(made.parts)
    place = made.parts.places.open_job("d")
    row, _ = requests.add(NewJob("1", "example", "d"))

    def state() -> ServiceState:
        known = requests.get(row.id)
        assert known is not None
        return known.state

    async def main() -> None:
        await cleaner.round()
        if jumped < 0:  # the job ends while the clock is wrong, and a new server knows nothing of that
            jump(jumped)
        requests.terminate(row.id)
        os.utime(place.directory, (clock.now().timestamp(),) * 2)
        jump(abs(jumped))
        fresh = Cleaner(made.parts) if jumped < 0 else cleaner
        await fresh.round()
        assert state() is ServiceState.KILLED
        clock.advance(7000.0)
        jump(7000.0)
        await fresh.round()
        assert state() is ServiceState.KILLED, "not yet"
        clock.advance(400.0)
        jump(400.0)
        await fresh.round()
        assert state() is ServiceState.CLEANED

    run(main())
