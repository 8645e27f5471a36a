"""Owns that actions from outside never hurt a live run: delete, prune."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tenuto.errors import ExperimentLocked
from tenuto.experiments.pruning import askers, prune_runs, users
from tenuto.experiments.run_record import RunState, lock_experiment
from tenuto.jobs.key import JobKey
from tenuto.jobs.removal import delete
from tenuto.jobs.source import ActedAs
from tests.jobs.workspaces import MACHINE, Builder, line


@pytest.fixture
def workspace(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "ws")


def outcome(workspace: Builder, key: JobKey) -> ActedAs:
    (acted,) = delete(workspace.view, [key], really=True, used=partial(users, workspace.view))
    return acted.outcome


def test_what_a_live_run_asked_for_is_spared(workspace: Builder) -> None:
    key = workspace.job("done")
    workspace.run(line("done"), state=RunState.RUNNING)
    lock = lock_experiment(MACHINE, workspace.layout, "sweep")
    assert outcome(workspace, key) is ActedAs.IN_USE
    lock.close()
    assert outcome(workspace, key) is ActedAs.DELETED


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
    (acted,) = delete(workspace.view, [orphan.job_key], really=True, used=partial(askers, workspace.view))
    assert (acted.outcome, acted.detail) == (ActedAs.IN_USE, "again/20260101_000000 asked for it")
    (acted,) = delete(workspace.view, [key], really=True, used=partial(users, workspace.view))
    assert acted.outcome is ActedAs.DELETED, "asked for by name it goes: the run has ended"
