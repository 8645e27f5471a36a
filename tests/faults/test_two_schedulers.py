"""Several schedulers on one workspace, each in a process of its own: racing, stopped, killed, adopting."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.job_directory import look, take_lock
from tenuto.workspace.machine import this_machine

from .builders import (
    WAIT_S,
    Bench,
    SchedulerProcess,
    eventually,
    failure,
    is_alive,
    ledger,
    lines,
    oracle,
    runner_pid,
)

S = JobState


def test_two_schedulers_that_race_for_the_same_jobs_run_each_once(tmp_path: Path) -> None:
    """F04."""
    jobs = {f"job-{number}": oracle(tmp_path / f"job-{number}") for number in range(30)}
    backwards = dict(reversed(jobs.items()))
    with (
        SchedulerProcess(tmp_path / "ws", jobs) as one,
        SchedulerProcess(tmp_path / "ws", backwards) as other,
    ):
        results = one.results(), other.results()
    for job_id in jobs:
        assert [result[job_id]["state"] for result in results] == ["DONE", "DONE"]
        assert [result[job_id]["attempt"] for result in results] == [1, 1]
        assert ledger(tmp_path / job_id) == ["start", "end"]


def test_a_failure_that_two_schedulers_wait_for_is_one_failure(tmp_path: Path) -> None:
    """F04: a scheduler that submitted before the job failed does not try it again."""
    script = 'until test -e "$1"; do sleep 0.02; done; echo ran >> "$0"; exit 3'
    gate = tmp_path / "gate"
    jobs = {
        f"job-{number}": ["/bin/sh", "-c", script, str(tmp_path / f"ran-{number}"), str(gate)]
        for number in range(20)
    }
    with SchedulerProcess(tmp_path / "ws", jobs) as one, SchedulerProcess(tmp_path / "ws", jobs) as other:
        one.submitted()
        other.submitted()
        gate.touch()
        results = one.results(), other.results()
    for number, job_id in enumerate(jobs):
        assert [result[job_id]["reason"] for result in results] == ["FAILED", "FAILED"]
        assert len(lines(tmp_path / f"ran-{number}")) == 1


def test_an_old_failure_is_no_answer_to_a_new_submission(tmp_path: Path) -> None:
    """F04: while another prepares the next attempt, the marker of the one before still lies there."""
    with Bench(tmp_path / "ws") as first:
        job = first.shell("job", "exit 3")
        assert failure(job) == (JobFailureStatus.FAILED, "exited with code 3")
    machine = this_machine()
    lock = take_lock(machine, job.paths)  # what another scheduler does first
    assert lock is not None
    with Bench(tmp_path / "ws") as second:
        again = second.shell("job", 'test -e "$1"', tmp_path)
        eventually(lambda: again.state is S.SCHEDULED, "the second to find the lock taken")
        with pytest.raises(TimeoutError):
            again.wait(0.3)
        lock.close()
        assert again.wait(WAIT_S) is S.DONE
        assert again.attempt == 2


def test_a_scheduler_that_stood_still_while_its_job_ended_sees_the_end(tmp_path: Path) -> None:
    """F09."""
    started, release = tmp_path / "started", tmp_path / "release"
    os.mkfifo(release)
    script = 'echo >> "$0"; read line < "$1"'
    jobs = {"job": ["/bin/sh", "-c", script, str(started), str(release)]}
    with SchedulerProcess(tmp_path / "ws", jobs) as scheduler:
        scheduler.submitted()
        eventually(lambda: lines(started), "the job to begin")
        scheduler.stop()
        release.write_text("go\n")
        paths = Bench(tmp_path / "ws").paths("job")
        machine = this_machine()
        eventually(lambda: look(machine, paths).derived.state is S.DONE, "the job to end without it")
        scheduler.signal(signal.SIGCONT)
        result = scheduler.results()["job"]
    assert (result["state"], result["attempt"]) == ("DONE", 1)
    assert len(lines(started)) == 1


def test_a_scheduler_that_stood_still_looks_again_before_it_starts_anything(tmp_path: Path) -> None:
    """F09: what it had queued was done by another meanwhile."""
    blocker = tmp_path / "blocker"
    os.mkfifo(blocker)
    jobs = {
        "first": ["/bin/sh", "-c", 'read line < "$0"', str(blocker)],
        **{f"job-{number}": oracle(tmp_path / f"job-{number}") for number in range(3)},
    }
    others = {job_id: command for job_id, command in jobs.items() if job_id != "first"}
    with SchedulerProcess(tmp_path / "ws", jobs, slots=1) as stopped:
        stopped.submitted()
        runner_pid(Bench(tmp_path / "ws").paths("first"))
        stopped.stop()
        with SchedulerProcess(tmp_path / "ws", others) as other:
            assert {result["state"] for result in other.results().values()} == {"DONE"}
        blocker.write_text("go\n")
        stopped.signal(signal.SIGCONT)
        results = stopped.results()
    assert {result["state"] for result in results.values()} == {"DONE"}
    for job_id in others:
        assert results[job_id]["attempt"] == 1
        assert ledger(tmp_path / job_id) == ["start", "end"]


JOBS = 50


@pytest.fixture
def running_jobs(tmp_path: Path) -> Callable[[], tuple[dict[str, list[str]], Path]]:
    """Jobs that a scheduler started, which was then killed; and the pipe that lets them end."""

    def start() -> tuple[dict[str, list[str]], Path]:
        gate, started = tmp_path / "gate", tmp_path / "started"
        os.mkfifo(gate)
        script = 'echo $$ >> "$0"; cat < "$1"'
        jobs = {f"job-{number}": ["/bin/sh", "-c", script, str(started), str(gate)] for number in range(JOBS)}
        with SchedulerProcess(tmp_path / "ws", jobs, slots=JOBS) as scheduler:
            scheduler.submitted()
            eventually(lambda: len(lines(started)) == JOBS, "all jobs to begin")
        return jobs, gate

    return start


def test_running_jobs_of_a_killed_scheduler_are_adopted_and_waited_for(
    tmp_path: Path, running_jobs: Callable[[], tuple[dict[str, list[str]], Path]]
) -> None:
    jobs, gate = running_jobs()
    with Bench(tmp_path / "ws", slots=1) as bench:
        adopted = [bench.command(job_id, *command) for job_id, command in jobs.items()]
        bench.scheduler.wait_until(lambda: all(job.state is S.RUNNING for job in adopted), WAIT_S)
        pids = lines(tmp_path / "started")
        assert all(is_alive(int(pid), tmp_path) for pid in pids)
        let_through(gate, lambda: all(job.state is S.DONE for job in adopted))
        assert {job.attempt for job in adopted} == {1}
    assert lines(tmp_path / "started") == pids


def test_running_jobs_of_a_killed_scheduler_can_be_killed_by_another(
    tmp_path: Path, running_jobs: Callable[[], tuple[dict[str, list[str]], Path]]
) -> None:
    jobs, _ = running_jobs()
    with Bench(tmp_path / "ws", slots=1) as bench:
        adopted = [bench.command(job_id, *command) for job_id, command in jobs.items()]
        for job in adopted:
            bench.scheduler.cancel(job, "not needed any more")
        bench.wait()
        assert {failure(job) for job in adopted} == {(JobFailureStatus.CANCELLED, "not needed any more")}
        assert not any(is_alive(int(pid), tmp_path) for pid in lines(tmp_path / "started"))
        assert {job.attempt for job in adopted} == {1}


def let_through(gate: Path, until: Callable[[], bool]) -> None:
    """Opens the pipe for writing again and again: a process that opens it to read meanwhile gets through."""

    def opened() -> bool:
        with contextlib.suppress(OSError):  # nobody reads just now
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        return until()

    eventually(opened, "the jobs to end")
