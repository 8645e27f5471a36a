"""Owns the promise that what is published works: a wheel alone, and the tests of an sdist."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.docs.test_code_blocks import script

ROOT = Path(__file__).parents[2]
CLEAN = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TENUTO_", "UV_"))
}
FILES = "LICENSE README.md Makefile pyproject.toml mkdocs.yml deploy/compose.yaml .ci/run".split()
"""Some of each kind that the tests of an sdist read."""


def run(*command: str | Path, cwd: Path, expected: int = 0, **environment: str) -> str:
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**CLEAN, "HOME": str(cwd), **environment},
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == expected, f"{command}\n{said[-4000:]}"
    return said


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("packages")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(packages: Path) -> Path:
    (found,) = packages.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def needed(packages: Path, wheel: Path) -> Path:
    """A folder with the wheel and all that it needs, so that tools that install it need no index."""
    run(sys.executable, "-m", "pip", "download", "--quiet", "--dest", packages, wheel, cwd=packages)
    return packages


@pytest.mark.slow
@pytest.mark.watchdog(600)
def test_the_wheel_alone_runs_the_readme_twice(wheel: Path, needed: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", needed, wheel, cwd=tmp_path)
    installed = run(
        python, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check", cwd=tmp_path
    )
    names = {line.partition("==")[0].lower() for line in installed.splitlines() if "==" in line}
    assert names == {"click", "pip", "pyyaml", "setuptools", "tenuto"} & names | {"click", "pyyaml", "tenuto"}
    (tmp_path / "readme.py").write_text(script((ROOT / "README.md").read_text("utf-8")))
    for _ in range(2):
        run(python, "-W", "error", "readme.py", cwd=tmp_path)
    assert len(list((tmp_path / "workspace" / "jobs").glob("*/*/*.done"))) == 4
    program = python.with_name("tenuto")
    assert "8" in run(program, "demo", cwd=tmp_path)
    assert wheel.name.split("-")[1] in run(program, "--version", cwd=tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        assert {name.partition("/")[0].partition("-")[0] for name in archive.namelist()} == {"tenuto"}


@pytest.mark.slow
@pytest.mark.watchdog(600)
def test_tools_that_install_programs_take_the_wheel(wheel: Path, needed: Path, tmp_path: Path) -> None:
    uv, pipx = (Path(sys.executable).with_name(name) for name in ("uv", "pipx"))
    if not uv.exists() or not pipx.exists():
        pytest.skip("uv and pipx are not installed")
    places = {f"{name}_DIR": str(tmp_path / name) for name in ("UV_CACHE", "UV_TOOL", "UV_TOOL_BIN")}
    offline = ("--offline", "--no-index", "--find-links", needed, "--python", sys.executable)
    run(uv, "tool", "install", *offline, wheel, cwd=tmp_path, **places)
    version = wheel.name.split("-")[1]
    assert version in run(tmp_path / "UV_TOOL_BIN" / "tenuto", "--version", cwd=tmp_path)
    assert version in run(
        uv, "tool", "run", *offline, "--from", wheel, "tenuto", "--version", cwd=tmp_path, **places
    )
    places = {
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_DEFAULT_BACKEND": "pip",
    }
    arguments = f"--find-links {needed}"  # it brings a newer pip, for which there is no option
    run(pipx, "install", "--python", sys.executable, "--pip-args", arguments, wheel, cwd=tmp_path, **places)
    assert version in run(tmp_path / "bin" / "tenuto", "--version", cwd=tmp_path)


PAGES = (
    "tests/docs/test_generated_pages.py",
    "tests/docs/test_reliability.py",
    "tests/architecture/test_names.py",
)
"""Tests that read pages and other files beside the code."""
FAST = ("tests/architecture", *PAGES[:2], "tests/settings", "tests/service/test_25_deployment.py")


@pytest.mark.slow
@pytest.mark.watchdog(600)
@pytest.mark.parametrize(
    "rooms",
    [
        pytest.param(PAGES, id="pages"),
        pytest.param(FAST, id="all", marks=pytest.mark.prove("the suite runs these in the repository, too")),
    ],
)
def test_the_tests_of_an_unpacked_sdist_pass_in_it(
    packages: Path, tmp_path: Path, rooms: tuple[str, ...]
) -> None:
    (sdist,) = packages.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    assert [name for name in FILES if not (root / name).is_file()] == []
    tracked = run("git", "ls-files", cwd=ROOT).splitlines() if (ROOT / ".git").exists() else []
    assert [name for name in tracked if (ROOT / name).exists() and not (root / name).exists()] == []
    source = {"PYTHONPATH": str(root / "src")}
    assert str(root) in run(sys.executable, "-c", "import tenuto; print(tenuto.__file__)", cwd=root, **source)
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-m",
        "not slow",
    )
    said = run(*command, *rooms, cwd=root, **source)
    assert " passed" in said
    shutil.rmtree(root)


@pytest.mark.parametrize(
    ("version", "said"),
    [("", "'' is no version"), ("v1", "'v1' is no version"), ("0.1.0", "commit or remove these first")],
)
def test_a_release_stops_at_the_first_step_that_it_does_not_pass(
    tmp_path: Path, version: str, said: str
) -> None:
    (tmp_path / "deploy").mkdir()
    shutil.copy(ROOT / "deploy" / "release.py", tmp_path / "deploy")
    run("git", "init", "--quiet", ".", cwd=tmp_path)
    script = tmp_path / "deploy" / "release.py"
    assert said in run(sys.executable, script, version, cwd=tmp_path, expected=1)
    run("git", "add", ".", cwd=tmp_path)
    run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "All", cwd=tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n")
    run("git", "add", ".", cwd=tmp_path)
    run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "More", cwd=tmp_path)
    if version == "0.1.0":
        assert "has no line `## [0.1.0]" in run(sys.executable, script, version, cwd=tmp_path, expected=1)
        run("git", "tag", "v0.1.0", cwd=tmp_path)
        assert "exists already" in run(sys.executable, script, version, cwd=tmp_path, expected=1)
