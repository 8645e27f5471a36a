"""Every other Python of this machine that Tenuto supports runs the fast tests of launchers and runner."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLDEST = (3, 11)
SUITE = (
    "tests/launchers/test_warm.py",
    "tests/launchers/test_local_contract.py::TestSpares",
    "tests/launchers/test_exits.py",
    "tests/launchers/test_verdict.py",
    "tests/tasks/test_declaring.py",
)
"""Forks, spares and the runner; and how a class is read, which each Python does in its own way."""
PACKAGES = ("pytest", "pytest-randomly", "hypothesis", "numpy", "psycopg[binary]", "redis", "pika")


def interpreters() -> dict[str, str]:
    """Version -> interpreter, of every supported Python but this one: on the PATH, or installed by pyenv."""
    places = [Path(place) for place in os.environ.get("PATH", "").split(os.pathsep) if place]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places += sorted(pyenv.glob("versions/*/bin"))
    found: dict[str, str] = {}
    for program in (program for place in places for program in sorted(place.glob("python3.*"))):
        named = re.fullmatch(r"python(3)\.(\d+)", program.name)
        version = named and (int(named[1]), int(named[2]))
        if version and version >= OLDEST and version != sys.version_info[:2] and works(program):
            found.setdefault(f"{version[0]}.{version[1]}", str(program))
    return found


def works(program: Path) -> bool:
    """A shim of pyenv may stand for a version that is not there."""
    return not subprocess.run([program, "-c", "import venv"], capture_output=True, check=False).returncode


FOUND = interpreters()


def environment(version: str) -> Path:
    """The interpreter of an environment with what the tests need; made once, beside this one's own."""
    place = ROOT / ".venv" / "interpreters" / version
    python = place / "bin" / "python"
    ready = place / "ready"
    if not ready.exists() or ready.read_text() != str(PACKAGES):
        subprocess.run([FOUND[version], "-m", "venv", "--clear", place], check=True)
        quietly = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([python, *quietly, *PACKAGES, "-e", str(ROOT)], check=True)
        ready.write_text(str(PACKAGES))
    return python


@pytest.mark.slow
@pytest.mark.watchdog(900)
@pytest.mark.parametrize(
    "version", FOUND or [pytest.param("none", marks=pytest.mark.skip("no other Python"))]
)
def test_the_fast_tests_of_launchers_pass(version: str) -> None:
    # What is missing there (numpy for a very new Python) skips, also in CI: the suite itself runs with it.
    variables = {name: value for name, value in os.environ.items() if name != "CI"}
    suite = [
        environment(version),
        "-m",
        "pytest",
        "-q",
        "-x",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        *SUITE,
    ]
    done = subprocess.run(suite, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
