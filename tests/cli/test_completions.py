"""Owns what a shell completes: ids of jobs, experiments and runs, workspaces, files."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from tenuto.cli.main import commands

JOB = "ab" + "0" * 62


def completed(*words: str) -> list[tuple[str, str]]:
    """Kind and value of what the last of these words is completed to."""
    shell = BashComplete(commands, {}, "tenuto", "_TENUTO_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    workspace = tmp_path / "ws"
    (workspace / "jobs" / "lab.Train" / JOB / ".tenuto").mkdir(parents=True)
    (workspace / "jobs" / "lab.Test" / ("cd" + "1" * 62) / ".tenuto").mkdir(parents=True)
    (workspace / "experiments" / "sweep" / "20240101_120000").mkdir(parents=True)
    (tmp_path / "tenuto.toml").write_text('[workspaces.main]\npath = "ws"\n')
    monkeypatch.chdir(workspace)
    return workspace


def test_the_id_of_a_job_is_completed(here: Path) -> None:
    for command in ("why", "logs", "files", "retry", "kill"):
        assert completed(command, "a") == [("plain", JOB[:12])]
    assert [value for _, value in completed("why", "")] == ["cd1111111111", JOB[:12]]
    assert completed("why", "lab.Tr") == [("plain", f"lab.Train/{JOB[:12]}")]
    assert completed("why", "zz") == []


def test_runs_and_workspaces_are_completed(here: Path) -> None:
    assert completed("runs", "show", "sw") == [("plain", "sweep")]
    assert completed("runs", "show", "sweep/") == [("plain", "sweep/20240101_120000")]
    assert completed("jobs", "-r", "") == [("plain", "sweep")]
    assert completed("jobs", "-w", "ma") == [("plain", "main"), ("dir", "ma")]
    assert completed("run", "scr") == [("file", "scr")]


def test_nothing_is_said_where_there_is_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert completed("why", "a") == completed("runs", "show", "a") == []
