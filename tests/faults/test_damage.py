"""Damaged files, met by a live scheduler: never DONE, never a crash (F17, F18, F19)."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.job_directory import look
from tenuto.workspace.layout import JobPaths

from .builders import (
    WAIT_S,
    Bench,
    SchedulerProcess,
    eventually,
    failure,
    ledger,
    lines,
    oracle,
    runner_pid,
)

S = JobState

GARBAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(b'{"attempt": 1, "nonce": "ab'),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "not JSON": lambda path: path.write_bytes(b"\xff\xfe garbage"),
    "a list": lambda path: path.write_bytes(b"[1, 2, 3]"),
    "wrong types": lambda path: path.write_bytes(b'{"attempt": "one", "nonce": 5, "state": []}'),
    "huge": lambda path: truncated(path, 1 << 34),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "a pipe": os.mkfifo,
    "a directory": Path.mkdir,
}


QUICK = {"empty", "cut", "a pipe"}
"""What every check runs; the rest takes part in `make test`."""


def kinds(*but: str) -> list[Any]:
    """The names of `GARBAGE`, most of them marked as slow."""
    return [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in GARBAGE
        if name not in but
    ]


def put(path: str, garbage: str) -> None:
    target = Path(path)
    target.parent.mkdir(exist_ok=True)  # of a job that is done, the record may be a part of the marker
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    GARBAGE[garbage](target)


def truncated(path: Path, size: int) -> None:
    path.touch()
    os.truncate(path, size)


@pytest.mark.parametrize("garbage", kinds())
def test_an_unreadable_done_marker_is_set_aside_and_the_job_runs_again(tmp_path: Path, garbage: str) -> None:
    """F18: to submit is to try again; until then the job counts as failed."""
    with Bench(tmp_path / "ws") as bench:
        assert bench.command("job", *oracle(tmp_path / "ran")).wait(WAIT_S) is S.DONE
        paths = bench.paths("job")
    put(paths.done, garbage)
    with Bench(tmp_path / "ws") as bench:
        found = look(bench.machine, paths).derived
        assert (found.state, found.reason) == (S.ERROR, JobFailureStatus.FAILED)
        assert (found.message or "").startswith("CORRUPT")
        assert bench.command("job", *oracle(tmp_path / "ran")).wait(WAIT_S) is S.DONE
    assert os.path.lexists(f"{paths.done}.corrupt-1")
    assert ledger(tmp_path / "ran") == ["start", "end", "start", "end"]


@pytest.mark.parametrize("garbage", kinds())
def test_an_unreadable_marker_met_by_a_scheduler_that_waits_is_a_failure(
    tmp_path: Path, garbage: str
) -> None:
    """F18: the job ends, but what it leaves cannot be read."""
    started = tmp_path / "started"
    jobs = {"job": ["/bin/sh", "-c", 'echo >> "$0"; exec sleep 600', str(started)]}
    with SchedulerProcess(tmp_path / "ws", jobs) as scheduler, Bench(tmp_path / "ws") as bench:
        scheduler.submitted()
        eventually(lambda: lines(started), "the job to begin")
        paths = bench.paths("job")
        runner = runner_pid(paths)
        scheduler.stop()
        put(paths.done, garbage)
        os.kill(runner, signal.SIGKILL)
        scheduler.signal(signal.SIGCONT)
        result = scheduler.results()["job"]
        assert (result["state"], result["reason"]) == ("ERROR", "FAILED")
        assert result["message"].startswith("CORRUPT")
        assert look(bench.machine, paths).derived.state is S.ERROR


OTHERS: dict[str, Callable[[JobPaths], str]] = {
    "launch.json": lambda paths: paths.launch,
    "status.json": lambda paths: paths.status,
    "pid": lambda paths: paths.pid,
}


@pytest.mark.parametrize("garbage", kinds("a directory"))
@pytest.mark.parametrize("which", OTHERS)
def test_unreadable_records_of_a_finished_job_change_nothing(
    tmp_path: Path, which: str, garbage: str
) -> None:
    """F17: only the marker is needed to know that a job is done."""
    with Bench(tmp_path / "ws") as bench:
        assert bench.command("job", "true").wait(WAIT_S) is S.DONE
        paths = bench.paths("job")
    put(OTHERS[which](paths), garbage)
    with Bench(tmp_path / "ws") as bench:
        job = bench.command("job", "true")
        assert job.wait(WAIT_S) is S.DONE
        assert job.attempt == 1


@pytest.mark.parametrize("garbage", kinds())
@pytest.mark.parametrize("which", OTHERS)
def test_unreadable_records_of_a_failed_job_do_not_stop_the_next_attempt(
    tmp_path: Path, which: str, garbage: str
) -> None:
    """F17: it runs again, or, where something that is no file is in the way, ends with a message."""
    with Bench(tmp_path / "ws") as bench:
        failure(bench.shell("job", "exit 1"))
        paths = bench.paths("job")
    put(OTHERS[which](paths), garbage)
    with Bench(tmp_path / "ws") as bench:
        job = bench.command("job", *oracle(tmp_path / "ran"))
        state = job.wait(WAIT_S)
        if garbage == "a directory":
            assert state in (S.DONE, S.ERROR)
            assert state is S.DONE or "directory" in (job.state_record.message or "").lower()
        else:
            assert state is S.DONE


@pytest.mark.parametrize("garbage", ["cut", "a pipe"])
@pytest.mark.parametrize("which", OTHERS)
def test_records_damaged_while_the_job_runs_do_not_harm_it(tmp_path: Path, which: str, garbage: str) -> None:
    """F17: the scheduler that started it, and one that comes later, both see the end."""
    started, gate = tmp_path / "started", tmp_path / "gate"
    os.mkfifo(gate)
    command = ["/bin/sh", "-c", 'echo >> "$0"; cat < "$1"', str(started), str(gate)]
    with Bench(tmp_path / "ws") as bench, Bench(tmp_path / "ws") as late:
        job = bench.command("job", *command)
        eventually(lambda: lines(started), "the job to begin")
        put(OTHERS[which](job.paths), garbage)
        other = late.command("job", *command)
        with gate.open("w"):
            pass
        assert job.wait(WAIT_S) is S.DONE
        assert other.wait(WAIT_S) is S.DONE
    assert len(lines(started)) == 1


def test_with_both_markers_of_one_attempt_the_failure_counts(tmp_path: Path) -> None:
    """F19."""
    with Bench(tmp_path / "ws") as bench:
        failure(bench.shell("job", "exit 1"))
        paths = bench.paths("job")
    text = Path(paths.failed).read_text()
    Path(paths.done).write_text(text.replace('"reason":"FAILED",', ""))
    with Bench(tmp_path / "ws") as bench:
        found = look(bench.machine, paths).derived
        assert (found.state, found.row) == (S.ERROR, "contradiction")
        assert found.alarm is not None
        assert bench.command("job", *oracle(tmp_path / "ran")).wait(WAIT_S) is S.DONE
        assert not Path(paths.failed).exists()


def test_a_lock_that_is_no_file_is_refused_at_submit(tmp_path: Path) -> None:
    with Bench(tmp_path / "ws") as bench:
        paths = bench.paths("job")
        Path(paths.directory).mkdir(parents=True)
        Path(paths.lock).symlink_to("/etc/passwd")
        with pytest.raises(Exception, match="is a link") as refused:
            bench.command("job", "true")
        assert type(refused.value).__module__ == "tenuto.errors"
        assert bench.scheduler.counts(bench.owner).unfinished == 0
