"""Every other supported Python of this machine runs the core of the tests of launchers and runner."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
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
CORE = (
    *(
        f"tests/launchers/test_warm.py::{name}"
        for name in (
            "test_a_task_is_forked_from_a_parent_that_imported_it",
            "test_a_module_is_imported_once",
            "test_a_task_that_does_nothing_imports_nothing_after_the_fork_and_is_not_taken_apart",
            "test_random_numbers_differ_between_jobs",
            "test_changed_source_is_picked_up",
            "test_what_a_fork_would_share_goes_to_a_fresh_interpreter_and_is_said_once[threads]",
            "test_a_killed_parent_harms_no_job_that_runs",
            "test_zombies_are_buried",
        )
    ),
    *(
        f"tests/launchers/test_local_contract.py::TestSpares::{name}"
        for name in (
            "test_a_job_runs_and_leaves_its_marker",
            "test_a_second_attempt_takes_over_the_directory",
            "test_a_job_is_stopped_for_the_reason_given",
            "test_a_killed_runner_leaves_no_marker_and_no_lock",
        )
    ),
    *SUITE[3:],
)
"""What another Python could do in another way; that each case is handled is shown by this one."""
TOOLS = ("pytest", "hypothesis")


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
NEWEST = max(FOUND, key=lambda version: int(version.partition(".")[2]), default="")


def environment(version: str, *more: str) -> Path:
    """The interpreter of an environment with what the tests need; made once, beside this one's own."""
    place = ROOT / ".venv" / "interpreters" / "-".join((version, *more))
    python = place / "bin" / "python"
    ready = place / "ready"
    with (ROOT / "pyproject.toml").open("rb") as project:
        packages = [*TOOLS, *more, *tomllib.load(project)["project"]["dependencies"]]
    if not ready.exists() or ready.read_text() != str(packages):
        subprocess.run([FOUND[version], "-m", "venv", "--clear", "--without-pip", place], check=True)
        # By the pip of this environment, and without a build of the project: a quarter of the time.
        pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check")
        subprocess.run([*pip, "install", "--quiet", "--no-compile", *packages], check=True)
        (packages_place,) = place.glob("lib/python*/site-packages")
        (packages_place / "tenuto.pth").write_text(f"{ROOT / 'src'}\n")
        ready.write_text(str(packages))
    return python


def run(python: Path, suite: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # What is missing there (numpy for a very new Python) skips, also in CI: the suite itself runs with it.
    variables = {name: value for name, value in os.environ.items() if name != "CI"}
    without = ("-p", "no:cacheprovider", "-p", "no:tests.parts.fixtures")
    command = [python, "-m", "pytest", "-q", "-x", *without, *suite]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


EACH = pytest.mark.parametrize(
    "version", FOUND or [pytest.param("none", marks=pytest.mark.skip("no other Python"))]
)


@pytest.mark.slow
@pytest.mark.watchdog(900)
@pytest.mark.parametrize(
    "version",
    [
        pytest.param(
            version, marks=[] if version == NEWEST else pytest.mark.prove("the newest stands for it")
        )
        for version in FOUND
    ]
    or [pytest.param("none", marks=pytest.mark.skip("no other Python"))],
)
def test_the_core_of_launchers_passes(version: str) -> None:
    done = run(environment(version), CORE)
    assert (done.returncode, " passed" in done.stdout) == (0, True), done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.watchdog(3600)
@pytest.mark.prove("the fast tests of launchers take minutes, and this Python runs all of them")
@EACH
def test_the_fast_tests_of_launchers_pass(version: str) -> None:
    done = run(environment(version, "numpy"), SUITE)
    assert (done.returncode, " passed" in done.stdout) == (0, True), done.stdout[-5000:] + done.stderr[-2000:]
