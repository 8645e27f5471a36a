"""Owns that actions from outside never hurt what runs: kill, delete, prune."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tenuto.errors import ExperimentLocked
from tenuto.experiments.actions import prune_runs
from tenuto.experiments.locking import lock_experiment
from tenuto.experiments.status import RunState
from tenuto.experiments.users import askers, users
from tenuto.jobs.directories import directory_size
from tenuto.jobs.key import JobKey
from tenuto.jobs.outcome import Outcome
from tenuto.jobs.removal import delete
from tenuto.jobs.stop import kill
from tenuto.workspace import job_directory
from tenuto.workspace.ports import DESCENDANTS_BYTE
from tenuto.workspace.records import LaunchRecord, PidRecord

from .test_view import MACHINE, Builder, line


@pytest.fixture
def workspace(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "ws")


class Runner:
    """A process that stands for the runner of a job, with its lock held by the test."""

    def __init__(self, workspace: Builder, job_id: str = "busy") -> None:
        self.key = workspace.job(job_id, ended=None)
        self.paths = workspace.layout.job(*self.key)
        self.lock = job_directory.take_lock(MACHINE, self.paths)
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        identity = MACHINE.processes.identify(self.process.pid)
        assert identity is not None
        job_directory.write_pid(MACHINE.files, self.paths, PidRecord(identity, 1, MACHINE.clock.now()))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.lock is not None:
            self.lock.close()


@pytest.fixture
def runner(workspace: Builder) -> Iterator[Runner]:
    made = Runner(workspace)
    yield made
    made.close()


# -- killing -----------------------------------------------------------------------------------------


def test_the_wish_is_written_before_the_runner_is_told(workspace: Builder, runner: Runner) -> None:
    killing = kill(workspace.view, runner.key, "enough")
    assert killing.acted.outcome is Outcome.ASKED
    assert killing.runner is not None
    killing.runner.close()
    stop = job_directory.read_stop(MACHINE.files, runner.paths, 1)
    assert stop is not None
    assert stop.message == "enough"
    assert runner.process.wait(10) == -signal.SIGTERM


def test_a_wish_for_another_attempt_does_nothing(workspace: Builder, runner: Runner) -> None:
    assert kill(workspace.view, runner.key, "enough", attempt=2).acted.outcome is Outcome.STALE
    assert not os.path.exists(runner.paths.stop)
    assert runner.process.poll() is None


def test_a_process_that_only_has_the_same_pid_is_not_touched(workspace: Builder, runner: Runner) -> None:
    identity = MACHINE.processes.identify(runner.process.pid)
    assert identity is not None
    other = PidRecord(identity._replace(start_time=identity.start_time - 1), 1, MACHINE.clock.now())
    job_directory.write_pid(MACHINE.files, runner.paths, other)
    assert kill(workspace.view, runner.key, "enough").acted.outcome is not Outcome.ASKED
    assert runner.process.poll() is None


def test_a_job_of_another_machine_is_left_to_that_machine(workspace: Builder, runner: Runner) -> None:
    identity = MACHINE.processes.own()._replace(host="far-away", boot_id="another")
    job_directory.write_pid(MACHINE.files, runner.paths, PidRecord(identity, 1, MACHINE.clock.now()))
    acted = kill(workspace.view, runner.key, "enough").acted
    assert acted.outcome is Outcome.ELSEWHERE
    assert "far-away" in acted.detail


def test_what_has_ended_is_not_killed(workspace: Builder) -> None:
    done = workspace.job("done")
    assert kill(workspace.view, done, "enough").acted.outcome is Outcome.NOT_RUNNING
    assert kill(workspace.view, JobKey("my.Train", "never"), "enough").acted.outcome is Outcome.GONE


# -- deleting ----------------------------------------------------------------------------------------


def outcome(workspace: Builder, key: JobKey, *, really: bool = True) -> Outcome:
    (acted,) = delete(workspace.view, [key], really=really, used=partial(users, workspace.view))
    return acted.outcome


@pytest.mark.parametrize("really", [True, False])
def test_what_is_locked_is_spared(workspace: Builder, really: bool) -> None:
    key = workspace.job("done")
    lock = job_directory.take_lock(MACHINE, workspace.layout.job(*key))
    assert lock is not None
    assert outcome(workspace, key, really=really) is Outcome.IN_USE
    lock.close()
    assert outcome(workspace, key) is Outcome.DELETED


def test_what_runs_without_its_lock_is_spared(workspace: Builder, runner: Runner) -> None:
    assert runner.lock is not None
    runner.lock.close()  # as if somebody had deleted and remade the lock file
    assert outcome(workspace, runner.key, really=False) is Outcome.IN_USE
    assert outcome(workspace, runner.key) is Outcome.IN_USE
    assert os.path.isdir(runner.paths.directory)


def test_what_left_processes_behind_is_spared(workspace: Builder) -> None:
    key = workspace.job("lost", ended=None)
    leftover = MACHINE.locks.try_lock(workspace.layout.job(*key).lock, DESCENDANTS_BYTE)
    assert leftover is not None
    assert outcome(workspace, key) is Outcome.IN_USE
    leftover.close()
    assert outcome(workspace, key) is Outcome.DELETED


def test_what_a_cluster_may_have_is_spared(workspace: Builder) -> None:
    key = workspace.job("far", ended=None)
    paths = workspace.layout.job(*key)
    launch = job_directory.read_launch(MACHINE.files, paths)
    assert isinstance(launch, LaunchRecord)
    Path(paths.launch).write_bytes(launch._replace(external=True).encode())
    assert outcome(workspace, key) is Outcome.IN_USE


def test_what_a_live_run_asked_for_is_spared(workspace: Builder) -> None:
    key = workspace.job("done")
    workspace.run(line("done"), state=RunState.RUNNING)
    lock = lock_experiment(MACHINE, workspace.layout, "sweep")
    assert outcome(workspace, key) is Outcome.IN_USE
    lock.close()
    assert outcome(workspace, key) is Outcome.DELETED


def test_a_link_in_place_of_a_job_is_not_followed(workspace: Builder, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("all of it")
    Path(workspace.layout.jobs, "my.Train").mkdir()
    Path(workspace.layout.job("my.Train", "linked").directory).symlink_to(precious)
    assert outcome(workspace, JobKey("my.Train", "linked")) is Outcome.GONE
    inner = workspace.job("inner")
    Path(workspace.layout.job(*inner).directory, "data").symlink_to(precious)
    assert outcome(workspace, inner) is Outcome.DELETED
    assert (precious / "thesis.tex").read_text() == "all of it"


def test_a_dry_run_changes_nothing_and_tells_the_size(workspace: Builder) -> None:
    key = workspace.job("done")
    directory = workspace.layout.job(*key).directory
    Path(directory, "model.pt").write_bytes(b"x" * 10_000)
    (acted,) = delete(workspace.view, [key], really=False, used=partial(users, workspace.view))
    assert acted.outcome is Outcome.WOULD_DELETE
    assert 10_000 < acted.size < 30_000
    assert acted.size == directory_size(MACHINE.files, directory)


def test_the_trash_is_empty_afterwards(workspace: Builder) -> None:
    outcome(workspace, workspace.job("done"))
    assert os.listdir(workspace.layout.trash) == [".lock"]


# -- pruning -----------------------------------------------------------------------------------------


def test_old_runs_go_and_a_crashed_one_counts_as_failed(workspace: Builder) -> None:
    workspace.run(run_id="20260101_000000")
    workspace.run(run_id="20260102_000000")
    workspace.run(run_id="20260103_000000", state=RunState.RUNNING, pid=1)  # and it has no lock
    prune = {"max_done": 1, "max_failed": 0}
    expected = ["20260101_000000", "20260103_000000"]
    planned = prune_runs(workspace.view, "sweep", really=False, **prune)
    assert [run.run_id for run in planned] == expected
    assert all(run.size for run in planned)
    assert len(workspace.view.runs("sweep")) == 3
    assert prune_runs(workspace.view, "sweep", really=True, **prune) == planned
    assert [run.run_id for run in workspace.view.runs("sweep")] == ["20260102_000000"]


def test_a_running_experiment_is_not_pruned(workspace: Builder) -> None:
    workspace.run()
    lock = lock_experiment(MACHINE, workspace.layout, "sweep")
    with pytest.raises(ExperimentLocked):
        prune_runs(workspace.view, "sweep", max_done=0, max_failed=0, really=True)
    lock.close()


def test_an_orphan_that_a_run_asks_for_meanwhile_is_none_any_more(workspace: Builder) -> None:
    key = workspace.job("done")
    (orphan,) = workspace.view.orphans()
    workspace.run(line("done"), experiment="again", run_id="20260101_000000")
    (acted,) = delete(workspace.view, [orphan.key], really=True, used=partial(askers, workspace.view))
    assert (acted.outcome, acted.detail) == (Outcome.IN_USE, "again/20260101_000000 asked for it")
    (acted,) = delete(workspace.view, [key], really=True, used=partial(users, workspace.view))
    assert acted.outcome is Outcome.DELETED, "asked for by name it goes: the run has ended"


def test_more_jobs_than_locks_are_held_at_once_are_deleted(workspace: Builder) -> None:
    keys = [workspace.job(f"job{number}") for number in range(230)]
    acted = delete(workspace.view, keys, really=True, used=partial(users, workspace.view))
    assert [one.outcome for one in acted] == [Outcome.DELETED] * 230
    assert os.listdir(workspace.layout.trash) == [".lock"]
