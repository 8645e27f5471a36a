"""Owns that removing a directory never hurts what runs, what is locked, or what lies elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tenuto.jobs import removal
from tenuto.jobs.directories import directory_size
from tenuto.jobs.key import JobKey
from tenuto.jobs.removal import delete, no_keeper
from tenuto.jobs.source import ActedAs
from tenuto.workspace import job_directory
from tenuto.workspace.ports import DESCENDANTS_BYTE
from tenuto.workspace.records import LaunchRecord

from .runners import Runner
from .workspaces import MACHINE, Builder


def outcome(workspace: Builder, key: JobKey, *, really: bool = True) -> ActedAs:
    (acted,) = delete(workspace.jobs, [key], really=really, used=no_keeper)
    return acted.outcome


@pytest.mark.parametrize("really", [True, False])
def test_a_locked_job_is_spared(workspace: Builder, really: bool) -> None:
    key = workspace.job("done")
    lock = job_directory.take_lock(MACHINE, workspace.layout.job(*key))
    assert lock is not None
    assert outcome(workspace, key, really=really) is ActedAs.IN_USE
    lock.close()
    assert outcome(workspace, key) is ActedAs.DELETED


def test_a_remover_waits_for_another_one_that_keeps_the_job(
    workspace: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two runs that end together the first has the lock, and keeps the job because the second is live."""
    key = workspace.job("done")
    lock = job_directory.take_lock(MACHINE, workspace.layout.job(*key))
    assert lock is not None
    monkeypatch.setattr(removal, "time", SimpleNamespace(sleep=lambda seconds: lock.close()))
    (acted,) = removal.remove(workspace.jobs, [key], no_keeper, patience_s=60.0)
    assert acted.outcome is ActedAs.DELETED


def test_a_job_that_runs_without_its_lock_is_spared(workspace: Builder, runner: Runner) -> None:
    assert runner.lock is not None
    runner.lock.close()  # as if a person had deleted and remade the lock file
    assert outcome(workspace, runner.key, really=False) is ActedAs.IN_USE
    assert outcome(workspace, runner.key) is ActedAs.IN_USE
    assert os.path.isdir(runner.paths.directory)


def test_a_job_that_left_processes_behind_is_spared(workspace: Builder) -> None:
    key = workspace.job("lost", ended=None)
    leftover = MACHINE.locks.try_lock(workspace.layout.job(*key).lock, DESCENDANTS_BYTE)
    assert leftover is not None
    assert outcome(workspace, key) is ActedAs.IN_USE
    leftover.close()
    assert outcome(workspace, key) is ActedAs.DELETED


def test_what_a_cluster_may_have_is_spared(workspace: Builder) -> None:
    key = workspace.job("far", ended=None)
    paths = workspace.layout.job(*key)
    launch = job_directory.read_launch(MACHINE.files, paths)
    assert isinstance(launch, LaunchRecord)
    Path(paths.launch).write_bytes(launch._replace(external=True).encode())
    assert outcome(workspace, key) is ActedAs.IN_USE


def test_a_link_in_place_of_a_job_is_not_followed(workspace: Builder, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("all of it")
    Path(workspace.layout.jobs, "my.Train").mkdir()
    Path(workspace.layout.job("my.Train", "linked").directory).symlink_to(precious)
    assert outcome(workspace, JobKey("my.Train", "linked")) is ActedAs.GONE
    inner = workspace.job("inner")
    Path(workspace.layout.job(*inner).directory, "data").symlink_to(precious)
    assert outcome(workspace, inner) is ActedAs.DELETED
    assert (precious / "thesis.tex").read_text() == "all of it"


def test_a_dry_run_changes_nothing_and_tells_the_size(workspace: Builder) -> None:
    key = workspace.job("done")
    directory = workspace.layout.job(*key).directory
    Path(directory, "model.pt").write_bytes(b"x" * 10_000)
    (acted,) = delete(workspace.jobs, [key], really=False, used=no_keeper)
    assert acted.outcome is ActedAs.WOULD_DELETE
    assert 10_000 < acted.size < 30_000
    assert acted.size == directory_size(MACHINE.files, directory)


def test_the_trash_is_empty_afterwards(workspace: Builder) -> None:
    outcome(workspace, workspace.job("done"))
    assert os.listdir(workspace.layout.trash) == [".lock"]


def test_more_jobs_than_locks_are_held_at_once_are_deleted(workspace: Builder) -> None:
    keys = [workspace.job(f"job{number}") for number in range(230)]
    acted = delete(workspace.jobs, keys, really=True, used=no_keeper)
    assert [one.outcome for one in acted] == [ActedAs.DELETED] * 230
    assert os.listdir(workspace.layout.trash) == [".lock"]


@pytest.mark.parametrize("really", [True, False])
def test_a_job_that_was_tried_again_since_it_was_seen_is_spared(workspace: Builder, really: bool) -> None:
    workspace.job("twice")
    key = workspace.job("twice")
    (acted,) = delete(workspace.jobs, [key], really=really, used=no_keeper, seen={key: 1})
    assert (acted.outcome, acted.attempt) == (ActedAs.STALE, 2)
    (acted,) = delete(workspace.jobs, [key], really=really, used=no_keeper, seen={key: 2})
    assert acted.outcome is (ActedAs.DELETED if really else ActedAs.WOULD_DELETE)


def test_a_user_of_a_job_keeps_it_with_a_reason(workspace: Builder) -> None:
    key = workspace.job("done")
    (acted,) = delete(workspace.jobs, [key], really=True, used=lambda keys: dict.fromkeys(keys, "for me"))
    assert (acted.outcome, acted.detail) == (ActedAs.IN_USE, "for me")
