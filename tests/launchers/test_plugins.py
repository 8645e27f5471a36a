"""Owns launchers of other distributions: found by entry point, named in the settings, used like ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.scripts import run, tenuto

SOURCE = """
from tenuto.launchers.spawn import SpawnLauncher

class Mine(SpawnLauncher):
    name = "mine"

def make(settings):
    return Mine(slots=settings.slots)
"""
SCRIPT = """
from tenuto import Task, experiment

class Note(Task):
    def execute(self):
        return 1

if __name__ == "__main__":
    with experiment("ws", "x"):
        job = Note.C().submit().job
        assert job.result() == 1
        assert job.launcher.name == "mine", job.launcher
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Variables under which a distribution with a launcher is installed."""
    site = tmp_path / "site"
    info = site / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tenuto.launchers]\nmine = mine_launcher:make\nbroken = no_such_module:make\n"
    )
    (site / "mine_launcher.py").write_text(SOURCE)
    return {"PYTHONPATH": str(site), "TENUTO_LAUNCHER": "mine", "TENUTO_DIRTY_GIT": "ignore"}


def test_a_plugin_is_a_launcher_like_ours(tmp_path: Path, installed: dict[str, str]) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(tenuto("run", "script.py"), tmp_path, **installed)
    assert done.returncode == 0, done.stderr
    listed = run(tenuto("launchers"), tmp_path, **installed)
    assert "mine" in listed.stdout


def test_a_plugin_that_is_not_installed_or_broken_is_refused(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    done = run(tenuto("launchers"), tmp_path, **{**installed, "TENUTO_LAUNCHER": "other"})
    assert done.returncode == 2
    assert "or of a plug-in" in done.stderr
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(tenuto("run", "script.py"), tmp_path, **{**installed, "TENUTO_LAUNCHER": "broken"})
    assert done.returncode != 0
    assert "no_such_module" in done.stderr
