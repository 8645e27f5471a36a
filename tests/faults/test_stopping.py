"""Jobs that are stopped, or should be: deaf ones, daemons, time limits, kills of the payload alone."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tenuto.launchers.instructions import Limits
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.job_directory import read_stop
from tenuto.workspace.markers import read_markers
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE

from .builders import WAIT_S, Bench, eventually, failure, is_alive, lines, oracle, runner_pid
from .tasks_for_faults import Checkpointed

S = JobState


@pytest.fixture
def started(tmp_path: Path) -> Path:
    return tmp_path / "started"


def begun(started: Path, lines_expected: int = 1) -> list[int]:
    """The pids that the payload wrote down, once it has written all of them."""
    eventually(lambda: len(lines(started)) >= lines_expected, "the job to begin")
    return [int(line) for line in lines(started)]


def locks_are_free(bench: Bench, job_id: str) -> bool:
    lock = bench.paths(job_id).lock
    return not any(bench.machine.locks.is_locked(lock, byte) for byte in (RUNNER_BYTE, DESCENDANTS_BYTE))


def test_killing_the_payload_alone_is_a_failure_that_names_the_signal(tmp_path: Path, started: Path) -> None:
    """F03."""
    script = 'sleep 600 & echo $! >> "$1"; echo $$ >> "$1"; wait'
    with Bench(tmp_path / "ws") as bench:
        job = bench.shell("job", script, started)
        dependent = bench.command("dependent", "true", needs=[job])
        child, payload = begun(started, 2)
        os.kill(payload, signal.SIGKILL)
        assert failure(job) == (JobFailureStatus.FAILED, "was ended by SIGKILL")
        assert failure(dependent)[0] is JobFailureStatus.DEPENDENCY
        marker = read_markers(bench.machine.files, job.paths).failed
        assert getattr(marker, "signal", None) == signal.SIGKILL
        assert not is_alive(child, tmp_path)
        assert locks_are_free(bench, "job")


def test_a_job_that_does_not_listen_is_killed_after_its_grace(tmp_path: Path, started: Path) -> None:
    """F24."""
    script = "trap '' TERM INT HUP; echo $$ >> \"$1\"; while :; do sleep 600; done"
    with Bench(tmp_path / "ws") as bench:
        job = bench.shell("job", script, started, limits=Limits(grace_s=0.3))
        (payload,) = begun(started)
        bench.scheduler.cancel(job, "enough")
        reason, message = failure(job)
        assert reason is JobFailureStatus.CANCELLED
        assert message == "enough; it did not stop when asked and was killed"
        assert not is_alive(payload, tmp_path)
        stop = read_stop(bench.machine.files, job.paths, 1)
        assert stop is not None
        assert stop.reason is JobFailureStatus.CANCELLED


def test_a_runner_that_does_not_answer_is_killed_in_the_end(
    tmp_path: Path, started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F24, one level up: a runner stopped by SIGSTOP takes no TERM."""
    monkeypatch.setattr("tenuto.scheduler.shell.STOP_GRACE_S", 0.3)
    with Bench(tmp_path / "ws") as bench:
        limits = Limits(grace_s=0.1)
        job = bench.shell("job", 'echo $$ >> "$1"; exec sleep 600', started, limits=limits, retries=2)
        (payload,) = begun(started)
        os.kill(runner_pid(job), signal.SIGSTOP)
        bench.scheduler.cancel(job, "enough")
        assert failure(job) == (JobFailureStatus.CANCELLED, "enough")
        assert job.attempt == 1
        eventually(lambda: not is_alive(payload, tmp_path), "the payload to die with its runner")
        assert locks_are_free(bench, "job")


def test_a_long_grace_is_granted(tmp_path: Path, started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F24: the scheduler does not kill the runner while the job still has time to end."""
    monkeypatch.setattr("tenuto.scheduler.shell.STOP_GRACE_S", 0.1)
    script = "trap 'sleep 1; exit 7' TERM; echo $$ >> \"$1\"; while :; do sleep 0.05; done"
    with Bench(tmp_path / "ws") as bench:
        job = bench.shell("job", script, started, limits=Limits(grace_s=30.0))
        begun(started)
        bench.scheduler.cancel(job, "enough")
        assert failure(job) == (JobFailureStatus.CANCELLED, "enough")


DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if sys.argv[2] == "closed":
            os.closerange(3, 256)
        with open(sys.argv[1], "a") as started:
            started.write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
os.wait()
with open(sys.argv[1], "a") as started:
    started.write(f"{os.getpid()}\\n")
while sys.argv[3] == "stay":
    time.sleep(600)
while len(open(sys.argv[1]).readlines()) < 2:
    time.sleep(0.005)
"""


@pytest.mark.parametrize("descriptors", ["kept", "closed"])
def test_daemons_of_a_job_end_with_it(tmp_path: Path, started: Path, descriptors: str) -> None:
    """F25: forked twice, in a session of their own, deaf to TERM."""
    with Bench(tmp_path / "ws") as bench:
        job = bench.command("job", sys.executable, "-c", DAEMON, str(started), descriptors, "go")
        assert job.wait(WAIT_S) is S.DONE
        assert job.marker is not None
        assert "leftovers" in job.marker.flags
        assert not any(is_alive(pid, tmp_path) for pid in begun(started, 2))
        assert locks_are_free(bench, "job")


@pytest.mark.parametrize("descriptors", ["kept", "closed"])
def test_daemons_end_when_their_job_is_cancelled(tmp_path: Path, started: Path, descriptors: str) -> None:
    """F25."""
    with Bench(tmp_path / "ws") as bench:
        job = bench.command("job", sys.executable, "-c", DAEMON, str(started), descriptors, "stay")
        pids = begun(started, 2)
        bench.scheduler.cancel(job)
        assert failure(job)[0] is JobFailureStatus.CANCELLED
        assert not any(is_alive(pid, tmp_path) for pid in pids)


@pytest.mark.parametrize("descriptors", ["kept", "closed"])
def test_daemons_of_a_lost_job_end_before_it_is_tried_again(
    tmp_path: Path, started: Path, descriptors: str
) -> None:
    """F25: their runner was killed and could not end them; the next attempt does not run beside them."""
    script = DAEMON.replace(
        "while sys.argv[3]", "while len(open(sys.argv[1]).readlines()) < 3 and sys.argv[3]"
    )
    with Bench(tmp_path / "ws") as bench:
        job = bench.command("job", sys.executable, "-c", script, str(started), descriptors, "stay", retries=1)
        first = begun(started, 2)
        os.kill(runner_pid(job), signal.SIGKILL)
        second = eventually(lambda: begun(started, 3)[2:], "the second attempt")
        assert not any(is_alive(pid, tmp_path) for pid in first)
        bench.scheduler.cancel(job)
        bench.wait()
        assert not any(is_alive(pid, tmp_path) for pid in second)


def test_a_job_that_takes_too_long_is_timed_out(tmp_path: Path, started: Path) -> None:
    """F28."""
    with Bench(tmp_path / "ws") as bench:
        limits = Limits(walltime_s=0.3, grace_s=0.2)
        job = bench.shell("job", "trap '' TERM; echo $$ >> \"$1\"; sleep 600", started, limits=limits)
        reason, message = failure(job)
        assert reason is JobFailureStatus.TIMEOUT
        assert message == "it ran longer than 0.3 s; it did not stop when asked and was killed"
        assert not is_alive(begun(started)[0], tmp_path)


def test_a_resumable_task_goes_on_after_a_timeout(tmp_path: Path) -> None:
    """F28: the same directory, its files kept, the logs of each try kept, the count grown."""
    with Bench(tmp_path / "ws") as bench:
        task = Checkpointed.C(steps=3)
        job = bench.task(task, limits=Limits(walltime_s=1.5, grace_s=30.0), max_retries=5)
        assert job.wait(WAIT_S) is S.DONE
        assert job.result() == [1, 2, 3]
        assert (job.attempt, job.tries.retry_count) == (3, 2)
        logs = [Path(f"{job.paths.out}{suffix}").read_text() for suffix in (".1", ".2", "")]
        assert logs == ["attempt 1\n", "attempt 2\n", "attempt 3\n"]
        bench.scheduler.drain()
        assert bench.scheduler.counts(bench.owner).failed == 0
        assert S.ERROR not in bench.owner.history[job.job_id]


def test_a_resumable_task_is_not_resumed_for_ever(tmp_path: Path) -> None:
    """F28."""
    with Bench(tmp_path / "ws") as bench:
        task = Checkpointed.C(steps=100)
        job = bench.task(task, limits=Limits(walltime_s=1.5, grace_s=30.0), max_retries=1)
        assert failure(job)[0] is JobFailureStatus.TIMEOUT
        assert (job.attempt, job.tries.retry_count) == (2, 1)


def test_a_job_cancelled_as_it_is_about_to_start_can_be_submitted_again(tmp_path: Path) -> None:
    """Cancelled between being taken from the queue and its first step: once that made it stuck for ever."""
    with Bench(tmp_path / "ws", slots=2) as bench:
        jobs = [bench.command(f"job-{number}", *oracle(tmp_path / f"{number}")) for number in range(20)]
        for job in jobs:
            bench.scheduler.cancel(job, "on second thought")
        again = [bench.command(f"job-{number}", *oracle(tmp_path / f"{number}")) for number in range(20)]
        assert again == jobs
        bench.wait()
        for job in jobs:
            if job.state is S.ERROR:
                assert failure(job)[0] is JobFailureStatus.CANCELLED
                bench.command(job.job_id, *oracle(tmp_path / job.job_id.removeprefix("job-")))
        bench.wait()
        assert {job.state for job in jobs} == {S.DONE}


def test_cancelling_over_and_over_leaves_nothing_behind(tmp_path: Path, started: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    with Bench(tmp_path / "ws") as bench:
        for number in range(5):
            job = bench.shell("job", 'echo $$ >> "$1"; exec sleep 600', started)
            begun(started, number + 1)
            bench.scheduler.cancel(job, f"round {number}")
            assert failure(job) == (JobFailureStatus.CANCELLED, f"round {number}")
            assert job.attempt == number + 1
        assert not any(is_alive(pid, tmp_path) for pid in begun(started, 5))
    assert time.monotonic() < deadline
