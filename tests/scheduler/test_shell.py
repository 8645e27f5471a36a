"""The shell: an effect that fails ends one job, and wishes may be taken in while effects are carried out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.scheduler import inputs
from tenuto.scheduler.decisions import Tries, Verdict
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.tokens import CounterToken, declare

from .builders import WAIT_S
from .servers import Server, run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.scheduler.close()


def test_an_effect_that_fails_ends_its_job_and_holds_up_no_other(server: Server) -> None:
    tell = server.scheduler._carriers[inputs.Tell]

    def refuse(job: Job, state: JobState, message: str | None) -> None:
        if job.job_id == "a" and state is JobState.READY:
            raise RuntimeError("no pencil")
        tell(job, state, message)

    server.scheduler._carriers[inputs.Tell] = refuse

    async def serve() -> list[Job]:
        jobs = [await server.submit("a"), await server.submit("b")]
        jobs.append(await server.submit("c", jobs[0]))
        for job in jobs:
            await job.finished()
        return jobs

    first, second, third = run(serve())
    assert (first.state, first.failure_status) == (JobState.ERROR, JobFailureStatus.FAILED)
    assert first.state_record.message == "RuntimeError: no pencil"
    assert second.state is JobState.DONE
    assert third.failure_status is JobFailureStatus.DEPENDENCY


def test_a_start_that_fails_gives_back_its_slot_and_its_tokens(server: Server, tmp_path: Path) -> None:
    server.launcher.slots = 1
    spawn = server.scheduler._runner.spawn

    def refuse(coroutine: Any) -> None:
        job = coroutine.cr_frame.f_locals.get("job")
        if job is not None and job.job_id in ("a", "b"):
            raise MemoryError("no room")
        spawn(coroutine)

    server.scheduler._runner.spawn = refuse  # type: ignore[method-assign]
    licence = CounterToken("licence", 1, str(tmp_path / "tokens"))
    declare(server.machine, licence)

    async def serve() -> list[Job]:
        tokens = [licence.dependency()]
        jobs = [await server.submit("a"), await server.submit("b", tokens=tokens)]
        jobs += [await server.submit("c"), await server.submit("d", tokens=tokens)]
        for job in jobs:
            await job.finished()
        return jobs

    jobs = run(serve())
    assert [job.state for job in jobs] == [JobState.ERROR] * 2 + [JobState.DONE] * 2
    assert {job.state_record.message for job in jobs[:2]} == {"MemoryError: no room"}
    assert [usage.used for usage in server.scheduler.snapshot().launchers] == [0]


def test_a_transient_job_that_times_out_is_not_tried_again_for_a_cancelled_job(server: Server) -> None:
    """The attempt ends only after the job that needed it was cancelled."""
    attempts: list[str] = []
    began = threading.Event()

    async def time_out(job: Job, grant: Any) -> Verdict:
        attempts.append(job.job_id)
        began.set()
        await user.finished()
        return Verdict(JobState.ERROR, JobFailureStatus.TIMEOUT, "time is up", tries=Tries(1))

    server.scheduler.aio_submit_inner = time_out  # type: ignore[method-assign]
    needed = server.job("needed", transient=TransientMode.TRANSIENT)
    user = server.job("user", needed)

    async def serve() -> None:
        await server.scheduler.submit_async(needed, server.owner)
        await server.scheduler.submit_async(user, server.owner)
        assert await asyncio.to_thread(began.wait, WAIT_S)
        server.scheduler.cancel(user)
        await user.finished()
        await asyncio.to_thread(server.scheduler.wait, server.owner, WAIT_S)

    run(serve())
    assert (needed.state, attempts) == (JobState.UNSCHEDULED, ["needed"])


def test_wishes_can_be_taken_in_while_effects_are_carried_out(server: Server) -> None:
    """Once that put jobs to sleep twice, or stranded them after they were cancelled."""
    scheduler = server.scheduler
    for kind, carrier in list(scheduler._carriers.items()):

        def carry(*values: Any, carrier: Any = carrier) -> None:
            scheduler._take_in()
            carrier(*values)

        scheduler._carriers[kind] = carry

    async def serve() -> tuple[list[Job], Job]:
        spared = await server.submit("spared", transient=TransientMode.TRANSIENT)
        needed = await server.submit("needed", transient=TransientMode.TRANSIENT)
        jobs = []
        for number in range(10):
            jobs.append(await server.submit(f"x{number}", needed))
            gone = await server.submit(f"y{number}", spared, needed)
            scheduler.cancel(gone)
            jobs.append(gone)
        for job in jobs:
            await job.finished()
        return jobs, needed

    jobs, needed = run(serve())
    assert needed.state is JobState.DONE
    assert {job.state for job in jobs[::2]} == {JobState.DONE}
    assert all(job.state.finished() for job in jobs)
