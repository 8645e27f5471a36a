"""The shell: an effect that fails ends one job, and wishes may be taken in while effects are carried out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.scheduler import effects
from tenuto.scheduler.jobs import Job

from .servers import Server, run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.scheduler.close()


def test_an_effect_that_fails_ends_its_job_and_holds_up_no_other(server: Server) -> None:
    tell = server.scheduler._carriers[effects.Tell]

    def refuse(job: Job, state: JobState, message: str | None) -> None:
        if job.job_id == "a" and state is JobState.READY:
            raise RuntimeError("no pencil")
        tell(job, state, message)

    server.scheduler._carriers[effects.Tell] = refuse

    async def serve() -> list[Job]:
        jobs = [await server.submit("a"), await server.submit("b")]
        jobs.append(await server.submit("c", jobs[0]))
        for job in jobs:
            await job.finished()
        return jobs

    first, second, third = run(serve())
    assert (first.state, first.failure_status) == (JobState.ERROR, JobFailureStatus.FAILED)
    assert first.standing.message == "RuntimeError: no pencil"
    assert second.state is JobState.DONE
    assert third.failure_status is JobFailureStatus.DEPENDENCY


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
