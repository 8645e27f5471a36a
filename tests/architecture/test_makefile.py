"""The Makefile prepares `.venv` for the interpreter that its caller names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose `.venv` is ready, of the version of this interpreter."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".venv" / ".ready").touch()
    return tmp_path


def steps(project: Path, *arguments: str) -> str:
    """What `make` would run, with nothing of the `make` that may run these tests."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "PYTHON"))}
    command = ["make", "--dry-run", "test", *arguments]
    made = subprocess.run(command, cwd=project, env=inherited, check=True, capture_output=True, text=True)
    return made.stdout


@pytest.mark.parametrize("arguments", [(), (f"PYTHON={sys.executable}",)])
def test_an_environment_that_is_ready_is_used(project: Path, arguments: tuple[str, ...]) -> None:
    assert "venv .venv" not in steps(project, *arguments)
    assert "-m pytest" in steps(project, *arguments)


def test_an_environment_of_another_version_is_made_anew(project: Path) -> None:
    other = project / "python3.99"
    other.write_text("#!/bin/sh\necho 3 99\n")
    other.chmod(0o755)
    lines = steps(project, f"PYTHON={other}").splitlines()
    assert lines.index("rm -rf .venv") < next(n for n, line in enumerate(lines) if "-m venv .venv" in line)
