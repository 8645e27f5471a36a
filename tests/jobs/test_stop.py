"""Owns that a kill ends the attempt that was seen, and nothing else."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tenuto.jobs.key import JobKey
from tenuto.jobs.removal import kill
from tenuto.jobs.source import ActedAs
from tenuto.launchers import clusters
from tenuto.testing.jobs import TASK_ID, JobBench
from tenuto.workspace import job_directory
from tenuto.workspace.claims import Claimer, claim, is_claimed
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.records import LaunchRecord, PidRecord

from .runners import Runner
from .workspaces import MACHINE, Builder


def test_the_wish_is_written_before_the_runner_is_told(workspace: Builder, runner: Runner) -> None:
    killing = kill(workspace.jobs, runner.key, "enough")
    assert killing.acted.outcome is ActedAs.ASKED
    assert killing.runner is not None
    killing.runner.close()
    stop = job_directory.read_stop(MACHINE.files, runner.paths, 1)
    assert stop is not None
    assert stop.message == "enough"
    assert runner.process.wait(60) == -signal.SIGTERM


def test_a_wish_for_another_attempt_does_nothing(workspace: Builder, runner: Runner) -> None:
    assert kill(workspace.jobs, runner.key, "enough", attempt=2).acted.outcome is ActedAs.STALE
    assert not os.path.exists(runner.paths.stop)
    assert runner.process.poll() is None


def test_a_process_that_only_has_the_same_pid_is_not_touched(workspace: Builder, runner: Runner) -> None:
    identity = MACHINE.processes.identify(runner.process.pid)
    assert identity is not None
    other = PidRecord(identity._replace(start_time=identity.start_time - 1), 1, MACHINE.clock.now())
    job_directory.write_pid(MACHINE.files, runner.paths, other)
    assert kill(workspace.jobs, runner.key, "enough").acted.outcome is not ActedAs.ASKED
    assert runner.process.poll() is None


def test_a_job_of_another_machine_is_left_to_that_machine(workspace: Builder, runner: Runner) -> None:
    identity = MACHINE.processes.own()._replace(host="far-away", boot_id="another")
    job_directory.write_pid(MACHINE.files, runner.paths, PidRecord(identity, 1, MACHINE.clock.now()))
    acted = kill(workspace.jobs, runner.key, "enough").acted
    assert acted.outcome is ActedAs.ELSEWHERE
    assert "far-away" in acted.detail


def test_a_job_that_has_ended_is_not_killed(workspace: Builder) -> None:
    done = workspace.job("done")
    assert kill(workspace.jobs, done, "enough").acted.outcome is ActedAs.NOT_RUNNING
    assert kill(workspace.jobs, JobKey("my.Train", "never"), "enough").acted.outcome is ActedAs.GONE


def test_a_job_that_ends_while_it_is_killed_is_left_alone(
    workspace: Builder, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner that ends well removes the directory in which the wish is written."""

    def look(*asked: Any, **more: Any) -> job_directory.Settled:
        found = seen(*asked, **more)
        shutil.rmtree(runner.paths.private)
        return found

    seen = job_directory.look
    monkeypatch.setattr(job_directory, "look", look)
    acted = kill(workspace.jobs, runner.key, "enough").acted
    assert (acted.outcome, acted.detail) == (ActedAs.NOT_RUNNING, "it has just ended")
    assert runner.process.poll() is None


def test_a_dry_run_tells_what_would_be_killed_and_kills_nothing(workspace: Builder, runner: Runner) -> None:
    assert kill(workspace.jobs, runner.key, "enough", really=False).acted.outcome is ActedAs.WOULD_KILL
    assert not os.path.exists(runner.paths.stop)
    assert runner.process.poll() is None


def test_a_dry_run_leaves_what_a_cluster_has_and_names_its_launcher(workspace: Builder) -> None:
    key = workspace.job("far", ended=None)
    paths = workspace.layout.job(*key)
    launch = job_directory.read_launch(MACHINE.files, paths)
    assert launch is not None
    Path(paths.launch).write_bytes(launch._replace(external=True, launcher="slurm").encode())
    before = sorted(os.listdir(paths.private))
    acted = kill(workspace.jobs, key, "enough", really=False).acted
    assert (acted.outcome, acted.detail) == (ActedAs.WOULD_KILL, "attempt 1, by slurm")
    assert kill(workspace.jobs, key, "enough", attempt=2, really=False).acted.outcome is ActedAs.STALE
    assert sorted(os.listdir(paths.private)) == before, "neither a wish nor a claim"


def test_a_wish_for_an_attempt_that_was_followed_by_another_is_stale_though_that_has_ended(
    workspace: Builder,
) -> None:
    workspace.job("twice")
    key = workspace.job("twice")
    assert kill(workspace.jobs, key, "enough", attempt=1).acted.outcome is ActedAs.STALE


class Far:
    """A cluster that runs every attempt, and counts those that it is to stop."""

    def __init__(self) -> None:
        self.stopped: list[str] = []

    def report(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        return ClusterReport(ClusterSays.RUNNING)

    def process(self, paths: JobPaths, launch: LaunchRecord) -> None:
        return None

    def stop(self, paths: JobPaths, launch: LaunchRecord) -> None:
        self.stopped.append(launch.nonce)


def test_an_attempt_of_a_cluster_is_left_alone_by_a_dry_run_and_by_a_wish_for_another(
    workspace: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run asked Slurm to stop the job."""
    far = Far()
    monkeypatch.setattr(clusters, "_loaded", lambda name: far)
    job = JobBench(workspace.layout.root, MACHINE, launcher="far", external=True).command("true")
    assert claim(MACHINE, job.paths, job.launch.nonce, Claimer.RUNNER)
    key = JobKey(TASK_ID, job.job_id)
    dry = kill(workspace.jobs, key, "enough", attempt=1, really=False).acted
    assert (dry.outcome, dry.detail) == (ActedAs.WOULD_KILL, "attempt 1, by far")
    assert kill(workspace.jobs, key, "enough", attempt=2).acted.outcome is ActedAs.STALE
    assert far.stopped == []
    assert not os.path.exists(job.paths.stop)
    killing = kill(workspace.jobs, key, "enough", attempt=1)
    assert killing.acted.outcome is ActedAs.ASKED
    assert killing.elsewhere is not None
    assert far.stopped == [job.launch.nonce]
    assert os.path.exists(job.paths.stop)


def test_a_dry_run_does_not_revoke_an_attempt_that_waits_in_a_cluster(
    workspace: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "_loaded", lambda name: Far())
    job = JobBench(workspace.layout.root, MACHINE, launcher="far", external=True).command("true")
    key = JobKey(TASK_ID, job.job_id)
    kill(workspace.jobs, key, "enough", really=False)
    assert not is_claimed(MACHINE, job.paths, job.launch.nonce)
    assert not job.has_marker()
    kill(workspace.jobs, key, "enough")
    assert job.marker().message == "enough"
