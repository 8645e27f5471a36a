"""A scheduler inside an asyncio server: jobs are submitted, awaited, withdrawn and forgotten on any loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tenuto.errors import DirectoryUnusable, JobNotEnded, SchedulerClosed
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.scheduler.inputs import SlotFree
from tenuto.scheduler.jobs import Job
from tenuto.testing.jobs import FakeOwner

from .builders import WAIT_S, Bench, eventually, lines
from .servers import Server, run
from .tasks_for_tests import Hold

T = TypeVar("T")
S = JobState


# Awaiting an end


def test_a_job_is_submitted_and_awaited_on_the_callers_loop(server: Server) -> None:
    async def serve() -> JobState:
        job = await server.submit("a")
        return await job.finished()

    assert run(serve()) is S.DONE


@pytest.mark.slow
def test_very_many_are_awaited_at_once_without_a_thread_each(server: Server) -> None:
    before = threading.active_count()

    async def serve() -> list[JobState]:
        server.hold_back()
        jobs = [await server.submit(str(number)) for number in range(100)]
        ends = [asyncio.create_task(job.finished()) for job in jobs for _ in range(30)]
        await asyncio.sleep(0)
        assert threading.active_count() < before + 20
        await asyncio.to_thread(server.let_start)
        return await asyncio.gather(*ends)

    assert run(serve()) == 3000 * [S.DONE]


def test_callers_on_several_loops_are_all_told(server: Server) -> None:
    server.hold_back()
    job = server.scheduler.submit(server.job("a"), server.owner)
    ends: list[JobState] = []
    threads = [threading.Thread(target=lambda: ends.append(run(job.finished()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    server.let_start()
    for thread in threads:
        thread.join(WAIT_S)
    assert ends == 4 * [S.DONE]


def test_a_caller_that_gives_up_leaves_nothing_behind_and_harms_no_other(server: Server) -> None:
    async def serve() -> JobState:
        server.hold_back()
        job = await server.submit("a")
        other = asyncio.create_task(job.finished())
        for _ in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await job.finished()
        tasks = await asyncio.to_thread(server.scheduler.call, lambda: len(asyncio.all_tasks()))
        assert tasks <= 3, "the cancelled calls still wait in the scheduler's loop"
        await asyncio.to_thread(server.let_start)
        return await other

    assert run(serve()) is S.DONE


def test_an_end_is_that_of_the_last_submission(server: Server, tmp_path: Path) -> None:
    """A failure that is known must not answer for the attempt that was just asked for."""
    failing = Server(tmp_path / "other", fails=lambda order: order.launch.attempt == 1)

    async def serve() -> list[JobState]:
        first = await (await failing.submit("a")).finished()
        second = await (await failing.submit("a")).finished()
        return [first, second]

    assert run(serve()) == [S.ERROR, S.DONE]
    failing.scheduler.close()


def test_a_sleeping_transient_job_is_no_reason_to_wait(server: Server) -> None:
    async def serve() -> JobState:
        job = await server.submit("a", transient=TransientMode.TRANSIENT)
        return await job.finished()

    assert run(serve()) is S.UNSCHEDULED


def test_a_closed_scheduler_says_so_to_waiting_callers(server: Server) -> None:
    async def serve() -> None:
        server.hold_back()
        job = await server.submit("a")
        waiting = [asyncio.create_task(job.finished()) for _ in range(50)]
        await asyncio.sleep(0)
        await asyncio.to_thread(server.scheduler.close)
        for end in waiting:
            with pytest.raises(SchedulerClosed):
                await end
        with pytest.raises(SchedulerClosed):
            await job.finished()
        with pytest.raises(SchedulerClosed):
            await server.submit("b")

    run(serve())
    with pytest.raises(SchedulerClosed):
        server.scheduler.submit(server.job("c"), server.owner)


# Submitting


def test_the_callers_loop_touches_no_file(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    looking: set[int] = set()
    look = server.scheduler._intake.look

    def noted(job: Job) -> Any:
        looking.add(threading.get_ident())
        return look(job)

    monkeypatch.setattr(server.scheduler._intake, "look", noted)
    run(server.submit("a"))
    assert looking
    assert threading.get_ident() not in looking


def test_calls_are_handed_in_in_their_order(server: Server) -> None:
    async def serve() -> list[JobState]:
        jobs = [server.job("0")]
        for number in range(1, 50):
            jobs.append(server.job(str(number), jobs[-1]))
        calls = [server.scheduler.submit_async(job, server.owner) for job in jobs]
        known = await asyncio.gather(*calls)
        return [await job.finished() for job in known]

    assert run(serve()) == 50 * [S.DONE]
    assert server.launcher.started == [str(number) for number in range(50)]


def test_an_unusable_directory_is_refused_to_the_caller(server: Server, tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "jobs").write_text("a file where a directory should be")
    with pytest.raises(DirectoryUnusable):
        run(server.submit("a"))


def test_a_call_that_is_cancelled_before_its_turn_submits_nothing(server: Server) -> None:
    async def serve() -> None:
        busy, go_on = threading.Event(), threading.Event()
        server.scheduler._runner.post(lambda: (busy.set(), go_on.wait(WAIT_S)))
        await asyncio.to_thread(busy.wait, WAIT_S)
        call = asyncio.create_task(server.submit("a"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go_on.set()
        await server.submit("b")

    run(serve())
    assert [job.job_id for job in server.scheduler.jobs.values()] == ["b"]


# Priority


def test_of_ready_jobs_the_most_urgent_start_first(server: Server) -> None:
    async def serve() -> None:
        server.launcher.slots = 0
        names = {"a": 0, "b": 5, "c": -1, "d": 5, "e": 0}
        jobs = [await server.submit(name, priority=priority) for name, priority in names.items()]
        await server.submit("c", priority=9)
        await asyncio.to_thread(server.scheduler.call, server.scheduler._take_in)
        server.launcher.slots = 1
        await asyncio.to_thread(server.scheduler.call, lambda: server.scheduler._feed(SlotFree()))
        for job in jobs:
            await job.finished()

    run(serve())
    assert server.launcher.started == ["c", "b", "d", "a", "e"]


# Withdrawing


def test_the_last_owner_that_withdraws_ends_the_job(server: Server) -> None:
    async def serve() -> None:
        server.hold_back()
        job = await server.submit("a")
        assert await server.scheduler.withdraw(job, server.owner, "no longer asked for") is S.ERROR
        assert job.failure_status is JobFailureStatus.CANCELLED
        assert job.state_record.message == "no longer asked for"

    run(serve())
    counts = server.scheduler.counts(server.owner)
    assert (counts.unfinished, counts.failed) == (0, 1)


def test_a_job_that_another_owner_has_goes_on(server: Server) -> None:
    other = FakeOwner("other")

    async def serve() -> None:
        server.hold_back()
        job = await server.submit("a")
        assert await server.submit("a", owner=other) is job
        assert await server.scheduler.withdraw(job, server.owner) is S.READY
        assert await server.scheduler.withdraw(job, server.owner) is S.READY, "it has left already"
        await asyncio.to_thread(server.let_start)
        assert await job.finished() is S.DONE

    run(serve())
    assert [server.scheduler.counts(owner).unfinished for owner in (server.owner, other)] == [0, 0]


def test_an_owner_that_waits_is_told_that_it_has_nothing_left(server: Server) -> None:
    async def serve() -> None:
        server.hold_back()
        job = await server.submit("a")
        await server.submit("a", owner=FakeOwner("other"))
        waiting = asyncio.create_task(asyncio.to_thread(server.scheduler.wait, server.owner, WAIT_S))
        await server.scheduler.withdraw(job, server.owner)
        await waiting

    run(serve())
    assert server.scheduler.counts(server.owner).unfinished == 0


def test_a_running_job_is_stopped_when_its_only_owner_withdraws(bench: Bench, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    job = bench.submit(Hold.C(name="held", ledger=ledger, release=tmp_path / "never"))
    eventually(lambda: lines(ledger), "the job to begin")
    assert run(bench.scheduler.withdraw(job, bench.owner)) is S.ERROR
    assert job.failure_status is JobFailureStatus.CANCELLED


def test_a_job_that_ended_is_not_changed_by_a_withdrawal(server: Server) -> None:
    async def serve() -> JobState:
        job = await server.submit("a")
        await job.finished()
        return await server.scheduler.withdraw(job, server.owner)

    assert run(serve()) is S.DONE


# Forgetting


def test_a_forgotten_job_is_gone_and_found_again_in_its_directory(server: Server) -> None:
    async def serve() -> weakref.ref[Job]:
        job = await server.submit("a")
        await job.finished()
        server.scheduler.forget(job, server.owner)
        return weakref.ref(job)

    forgotten = run(serve())
    server.scheduler.call(server.scheduler._take_in)
    server.scheduler.drain()
    gc.collect()
    assert forgotten() is None
    assert not server.scheduler.jobs
    again = server.scheduler.submit(server.job("a"), server.owner)
    assert again.wait(WAIT_S) is S.DONE
    assert server.launcher.started == ["a"]


def test_a_job_is_kept_until_its_last_owner_forgot_it(server: Server) -> None:
    other = FakeOwner("other")
    job = server.scheduler.submit(server.job("a"), server.owner)
    server.scheduler.submit(server.job("a"), other)
    job.wait(WAIT_S)
    for owner, left in ((server.owner, 1), (server.owner, 1), (other, 0)):
        server.scheduler.forget(job, owner)
        server.scheduler.call(server.scheduler._take_in)
        assert len(server.scheduler.jobs) == left


def test_an_owners_counts_leave_out_what_it_forgot(server: Server, tmp_path: Path) -> None:
    failing = Server(tmp_path / "other", fails=lambda order: True)
    job = failing.scheduler.submit(failing.job("a"), failing.owner)
    job.wait(WAIT_S)
    assert failing.scheduler.counts(failing.owner).failed == 1
    failing.scheduler.forget(job, failing.owner)
    failing.scheduler.call(failing.scheduler._take_in)
    assert failing.scheduler.counts(failing.owner).failed == 0
    failing.scheduler.close()


def test_a_job_that_has_not_ended_cannot_be_forgotten(server: Server) -> None:
    server.hold_back()
    job = server.scheduler.submit(server.job("a"), server.owner)
    server.scheduler.call(server.scheduler._take_in)
    with pytest.raises(JobNotEnded, match="READY"):
        server.scheduler.forget(job, server.owner)


def test_a_job_that_is_submitted_again_before_it_is_forgotten_is_kept(tmp_path: Path) -> None:
    server = Server(tmp_path / "ws", fails=lambda order: order.launch.attempt == 1)
    job = server.scheduler.submit(server.job("a"), server.owner)
    assert job.wait(WAIT_S) is S.ERROR
    server.hold_back()
    server.scheduler.submit(server.job("a"), server.owner)
    server.scheduler.forget(job, server.owner)
    server.scheduler.call(server.scheduler._take_in)
    assert server.scheduler.jobs == {job.key: job}
    server.let_start()
    assert job.wait(WAIT_S) is S.DONE
    server.scheduler.close()


def test_a_job_stays_usable_for_those_that_depend_on_it_after_it_was_forgotten(server: Server) -> None:
    needed = server.scheduler.submit(server.job("a"), server.owner)
    needed.wait(WAIT_S)
    server.scheduler.forget(needed, server.owner)
    needing = server.scheduler.submit(server.job("b", needed), server.owner)
    assert needing.wait(WAIT_S) is S.DONE
