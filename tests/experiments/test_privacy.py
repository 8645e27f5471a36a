"""Owns that a workspace is for its owner alone, and that one which cannot be used gets a sentence."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tenuto import CommandTask, experiment
from tenuto.errors import DirectoryUnusable
from tenuto.experiments import run as runs
from tenuto.experiments.run_record import RunState, RunStatus
from tests.faults.builders import mounted_tmpfs

from .scripts import TASKS, Place, python, run, tenuto

SHARING = f"""{TASKS}
from tenuto import Meta, PathGenerator, cache, field, param_group, partial
from tenuto import ProcessService

steps = param_group("steps")

class Shares(Task):
    size: Param[int] = field(groups=[steps])
    run = partial(exclude_groups=[steps])
    last: Meta[Path] = field(default_factory=PathGenerator("last.pt", partial=run))

    @cache("table")
    def table(self, path: Path) -> int:
        path.write_text("1")
        return 1

    def execute(self) -> None:
        self.last.write_text(str(self.table()))
"""


def test_what_jobs_share_and_services_log_is_for_the_owner_alone(place: Place) -> None:
    place.workspace.mkdir(mode=0o755)
    body = """
os.umask(0)
with experiment(HERE / "ws", "x") as xp:
    xp.add_service(ProcessService(["sleep", "100"], id="beside"))
    Shares.C(size=1).submit()
    xp.save([1], "kept")
"""
    result = run(python(place.script(body, tasks=SHARING)), place.directory)
    assert result.returncode == 0, result.stderr
    open_to_others = [
        str(path.relative_to(place.workspace))
        for path in place.workspace.iterdir()
        if stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    assert open_to_others == []
    assert {path.name for path in place.workspace.iterdir()} >= {"partials", "config", "experiments", "jobs"}
    (services,) = place.workspace.rglob("services")
    for path in (services, *services.iterdir(), *place.workspace.rglob("data")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_workspace_that_cannot_be_opened_is_a_sentence(place: Place) -> None:
    place.workspace.symlink_to(place.workspace)
    script = place.script('with experiment(HERE / "ws", "x"):\n    Note.C(name="a").submit()')
    result = run(tenuto("run", script), place.directory)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert f"{place.workspace}" in result.stderr
    assert "nothing was started" in result.stderr
    for command in ("jobs", "status"):
        looked = run(tenuto(command, "-w", place.workspace), place.directory)
        assert looked.returncode in (2, 3)
        assert looked.stderr.startswith("tenuto: ")


def test_a_disk_that_is_full_at_the_beginning_is_a_sentence(
    place: Place, require: Callable[[str], None]
) -> None:
    require("tmpfs")
    script = place.script('with experiment(HERE / "ws", "x"):\n    Note.C(name="a").submit()')
    with mounted_tmpfs(place.workspace, "size=64k") as disk:
        with suppress(OSError):
            (disk / "large").write_bytes(bytes(1 << 20))
        result = run(tenuto("run", script), place.directory)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "is full" in result.stderr
    assert "nothing was started" in result.stderr


def test_a_workspace_of_another_user_is_a_sentence(place: Place, require: Callable[[str], None]) -> None:
    require("right to mount a disk")  # that of root, who alone can be another user
    script = place.script('with experiment(HERE / "ws", "x"):\n    Note.C(name="a").submit()')
    place.workspace.mkdir(mode=0o700)
    for above in (place.directory, *place.directory.parents):
        if not stat.S_IMODE(above.stat().st_mode) & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if run([*as_nobody, *tenuto("--help")], place.directory).returncode:
        pytest.skip("another user cannot run this interpreter")
    result = run([*as_nobody, *tenuto("run", script)], place.directory)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert f"{place.workspace}" in result.stderr
    assert "nothing was started" in result.stderr


def test_a_disk_that_is_full_at_the_end_is_a_sentence_and_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = runs.write_run_status

    def full(files: Any, paths: Any, status: RunStatus) -> None:
        if status.state is not RunState.RUNNING:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), paths.status)
        write(files, paths, status)

    monkeypatch.setattr(runs, "write_run_status", full)
    with (
        pytest.raises(DirectoryUnusable, match=r"No space left.*the end of the run is not recorded"),
        experiment(tmp_path / "ws", "x", register_signals=False),
    ):
        CommandTask.C(command=["true"]).submit()
    monkeypatch.undo()
    with experiment(tmp_path / "ws", "x", register_signals=False) as again:
        CommandTask.C(command=["true"]).submit()
    assert [job.state.name for job in again.jobs] == ["DONE"]


def test_an_export_leaves_out_the_variables_of_its_jobs(place: Place) -> None:
    """The marker of a job that is done has its launch record, with the environment of its process."""
    place.script(
        'with experiment(HERE / "ws", "x") as xp:\n'
        '    xp.setenv("KEY", "p-l-a-n-t-e-d")\n'
        '    Note.C(name="a").submit()'
    )
    assert run(python(place.directory / "script.py"), place.directory).returncode == 0
    (marker,) = place.workspace.glob("jobs/*/*/*.done")
    assert "p-l-a-n-t-e-d" in marker.read_text()
    assert run(tenuto("export", "x", "out", "-w", "ws"), place.directory).returncode == 0
    exported = {
        path.name: path.read_text() for path in (place.directory / "out").rglob("*") if path.is_file()
    }
    assert '"nonce"' in exported["jobs.json"], "the marker is in it"
    assert not [name for name, content in exported.items() if "p-l-a-n-t-e-d" in content]
