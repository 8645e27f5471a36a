"""What a scheduler says of itself: snapshots, and a line in the log for each step of a job."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.lifecycle.states import JobState
from tenuto.scheduler import listeners as logbook
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.scheduler import OwnerSnapshot, WaitingJob, WaitsFor
from tenuto.scheduler.tokens import CounterToken, TokenDependency, declare
from tenuto.testing.jobs import FakeOwner
from tenuto.testing.launcher import Step

from .builders import WAIT_S
from .servers import Server
from .worlds import HOUR_S, World

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.fixture
def said() -> Iterator[list[logging.LogRecord]]:
    """The lines of the scheduler's log while a test runs."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("tenuto.scheduler")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(level)


def actions(said: list[logging.LogRecord]) -> list[str]:
    return [record.action for record in said]  # type: ignore[attr-defined]


# Snapshots


def test_a_snapshot_counts_states_slots_and_owners(server: Server) -> None:
    other = FakeOwner("other")
    done = server.scheduler.submit(server.job("done"), server.owner)
    done.wait(WAIT_S)
    server.hold_back()
    server.scheduler.submit(server.job("ready"), other)
    server.scheduler.submit(server.job("ready"), server.owner)
    found = server.scheduler.snapshot()
    assert dict(found.jobs) == {JobState.READY: 1, JobState.DONE: 1}
    assert found.launchers == (("instant", 0, 0, 1),)
    assert found.owners == (OwnerSnapshot("search/other", 1, 1, 0), OwnerSnapshot("search/owner", 2, 1, 0))
    assert found.paused is None
    server.let_start()
    server.scheduler.wait(server.owner, WAIT_S)
    assert server.scheduler.snapshot().launchers[0].free == 4


def test_a_snapshot_says_what_each_job_waits_for(server: Server, tmp_path: Path) -> None:
    server.hold_back()
    token = CounterToken("licences", 1, str(tmp_path / "tokens"))
    declare(server.machine, token)
    submit = server.scheduler.submit
    needed = submit(server.job("a"), server.owner)
    submit(server.job("b", needed), server.owner)
    submit(server.job("c", tokens=[TokenDependency(token, 1)]), server.owner)
    leaving = FakeOwner("leaving")
    server.scheduler.stop_starting(leaving)
    submit(server.job("d"), leaving)
    found = server.scheduler.snapshot()
    assert found.waits == (
        WaitingJob("server.Job", "a", WaitsFor.SLOT, ("instant",)),
        WaitingJob("server.Job", "b", WaitsFor.JOBS, ("a",)),
        WaitingJob("server.Job", "c", WaitsFor.SLOT, ("instant",)),
        WaitingJob("server.Job", "d", WaitsFor.OWNERS, ("search/leaving",)),
    )
    assert found.waits_left_out == 0
    few = server.scheduler.snapshot(most_waits=1)
    assert (few.waits, few.waits_left_out) == (found.waits[:1], 3)


def test_a_snapshot_names_the_tokens_that_are_busy(world: World) -> None:
    scheduler, owner = world.scheduler(), FakeOwner()
    token = CounterToken("licences", 1, "/tokens")
    declare(scheduler.machine, token)
    jobs = [
        scheduler.submit(world.job(name, tokens=[TokenDependency(token, 1)]), owner) for name in ("a", "b")
    ]
    world.loop.run_until_complete(asyncio.sleep(2.0))
    assert [job.state for job in jobs] == [JobState.RUNNING, JobState.WAITING]
    assert scheduler.snapshot().waits == (WaitingJob("sim.Task", "b", WaitsFor.TOKENS, ("licences",)),)
    scheduler.wait(owner, HOUR_S)


def test_a_snapshot_says_what_the_machine_is_short_of(world: World) -> None:
    world.launcher.errors.append(OSError(errno.EAGAIN, "no process left"))
    scheduler, owner = world.scheduler(), FakeOwner()
    scheduler.submit(world.job("a"), owner)
    world.loop.run_until_complete(asyncio.sleep(0.5))
    found = scheduler.snapshot()
    assert found.paused is not None
    assert "no process left" in found.paused
    assert [wait.cause for wait in found.waits] == [WaitsFor.MACHINE]
    scheduler.wait(owner, HOUR_S)
    assert scheduler.snapshot().paused is None


# Log lines


def test_each_step_of_a_job_is_a_line_with_an_action(server: Server, said: list[logging.LogRecord]) -> None:
    job = server.scheduler.submit(server.job("a"), server.owner)
    job.wait(WAIT_S)
    server.scheduler.forget(job, server.owner)
    server.scheduler.snapshot()
    assert actions(said) == ["submitted", "waiting", "ready", "started", "ended", "forgotten"]
    first = said[0].__dict__
    assert (first["job_id"], first["task_id"], first["owner"]) == ("a", "server.Job", "search/owner")
    end = said[4]
    assert end.getMessage() == "server.Job a: ended (DONE)"
    assert (end.__dict__["state"], end.__dict__["reason"], end.__dict__["attempt"]) == ("DONE", None, 1)


def test_a_job_that_is_withdrawn_says_so(server: Server, said: list[logging.LogRecord]) -> None:
    server.hold_back()
    job: Job = server.scheduler.submit(server.job("a"), server.owner)
    asyncio.run(server.scheduler.withdraw(job, server.owner, "no longer asked for"))
    assert actions(said)[-3:] == ["withdrawn", "cancelled", "ended"]
    assert said[-1].getMessage() == "server.Job a: ended (ERROR: CANCELLED: no longer asked for)"


def test_a_second_try_is_a_line_of_its_own(world: World, said: list[logging.LogRecord]) -> None:
    world.dies_at["job0"] = Step.CONCLUDE
    scheduler, owner = world.scheduler(), FakeOwner()
    world.submit_chain(scheduler, owner, 1)
    scheduler.wait(owner, HOUR_S)
    assert actions(said).count("started") == 2
    assert actions(said).count("retried") == 1


def test_a_shortage_that_goes_on_is_told_once_a_minute(world: World, said: list[logging.LogRecord]) -> None:
    world.launcher.errors += [OSError(errno.EAGAIN, "no process left") for _ in range(200)]
    scheduler, owner = world.scheduler(), FakeOwner()
    world.submit_chain(scheduler, owner, 1)
    scheduler.wait(owner, HOUR_S)
    assert 3 <= actions(said).count("starts_paused") <= 5


def test_nothing_is_said_while_info_is_off(server: Server, said: list[logging.LogRecord]) -> None:
    logging.getLogger("tenuto.scheduler").setLevel(logging.WARNING)
    server.scheduler.submit(server.job("a"), server.owner).wait(WAIT_S)
    assert said == []


def test_every_action_is_documented() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [step.value for step in logbook.LogStep if f"| `{step.value}` |" not in page] == []
