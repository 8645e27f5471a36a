"""Owns which workspace a command without `-w` is about, and commands that can be copied as they are shown."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.cli.options import looks_like_workspace, workspace_path
from tenuto.errors import NotFound
from tenuto.experiments.workspace import last_workspace, remember_workspace
from tenuto.settings import Settings, load_settings
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def workspace(path: Path) -> Path:
    for room in ("jobs", "experiments"):
        (path / room).mkdir(parents=True)
    return path


def test_a_workspace_is_found_one_level_down(tmp_path: Path) -> None:
    inside = workspace(tmp_path / "project" / "workspace")
    (tmp_path / "project" / "jobs").mkdir()
    assert workspace_path(None, Settings(), tmp_path / "project") == inside
    assert workspace_path(None, Settings(), inside / "jobs") == inside, "and from inside"


@pytest.mark.parametrize("kept", [".tenuto/launch.json", "Task.done"])
def test_a_workspace_that_lost_its_runs_is_one_by_what_a_job_keeps(tmp_path: Path, kept: str) -> None:
    """A workspace of a node never had any; a job that is done may have its marker, and no `.tenuto`."""
    job = Layout(str(tmp_path / "ws")).job("a.Task", "ab" * 32)
    Path(job.directory).mkdir(parents=True)
    Path(job.params).touch()
    assert not looks_like_workspace(tmp_path / "ws")
    (Path(job.directory) / kept).parent.mkdir(exist_ok=True)
    (Path(job.directory) / kept).touch()
    assert looks_like_workspace(tmp_path / "ws")


def test_of_several_the_last_one_that_was_used_from_here_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, files = tmp_path / "project", this_machine().files
    first, second = workspace(here / "a"), workspace(here / "b")
    far = workspace(tmp_path / "data" / "ws")
    with pytest.raises(NotFound, match=r"2 workspaces are here \(a, b\): choose one, as in -w a"):
        workspace_path(None, Settings(), here)
    monkeypatch.chdir(here)
    for used in (second, first, far):
        remember_workspace(files, used)
        assert workspace_path(None, Settings(), here) == used
    assert last_workspace(files, tmp_path) is None
    with pytest.raises(NotFound, match=r"no workspace here .*TENUTO_DEFAULT_WORKSPACE=\./path"):
        workspace_path(None, Settings(), tmp_path / "nowhere")


def test_a_workspace_that_cannot_be_remembered_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("a file in its place")
    remember_workspace(this_machine().files, tmp_path)
    assert last_workspace(this_machine().files, Path.cwd()) is None


def test_a_variable_holds_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENUTO_DEFAULT_WORKSPACE", str(tmp_path / "ws"))
    assert load_settings().workspace() == tmp_path / "ws"
    workspace(tmp_path / "other")
    assert workspace_path(None, load_settings(), tmp_path) == tmp_path / "ws", "said beats found"


@pytest.mark.slow
def test_after_a_script_the_commands_find_its_workspace_and_their_hints_work(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tenuto import Param, Task, experiment\n"
        "class Fail(Task):\n"
        "    x: Param[int]\n"
        "    def execute(self):\n"
        "        raise ValueError('no luck')\n"
        "if __name__ == '__main__':\n"
        "    with experiment('workspace', 'x', raise_on_failure=False):\n"
        "        Fail.C(x=1).submit()\n"
    )
    command = [sys.executable, "-m", "tenuto"]

    def run(*arguments: str) -> str:
        done = subprocess.run(
            arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    ran = run(*command, "run", "script.py")
    (hint,) = [line for line in ran.splitlines() if "to see why:" in line]
    said = shlex.split(hint.partition("to see why: ")[2])
    assert said[:4] == ["python", "-m", "tenuto", "why"]
    assert "ValueError: no luck" in run(sys.executable, *said[1:])
    status = run(*command, "status", "-w", "workspace")
    assert "why, and again: python -m tenuto why ID -w workspace" in status
    assert f"workspace {tmp_path}/workspace" in run(*command, "status"), "it is found one level down"
