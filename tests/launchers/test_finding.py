"""Owns the choice of a launcher by what a job needs: `launchers.py`, then this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto import LauncherNotFound, Requirement, SlurmLauncher, find_launcher
from tenuto.errors import RequirementError, SettingsError
from tenuto.launchers.selection import Finder, Launchers
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.settings import Settings


def finder(directory: Path, launcher: str = "auto", slots: int = 4) -> Finder:
    settings = Settings(launcher=launcher, slots=slots)
    return Finder(settings, Launchers(settings), directory)


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine has installed must not matter here."""
    monkeypatch.setenv("PATH", "/nowhere")


def write(directory: Path, body: str) -> Path:
    path = directory / "launchers.py"
    path.write_text(body)
    return path


def test_this_machine_is_chosen_if_it_fits(tmp_path: Path) -> None:
    chosen = finder(tmp_path).find(Requirement.parse("cpu(cores=99) | cpu(cores=4)"))
    assert (chosen.launcher.name, chosen.number, chosen.launcher.slots) == ("warm", 2, 4)


def test_each_launcher_that_was_asked_says_why_it_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(LauncherNotFound) as refused:
        finder(tmp_path).find(Requirement.parse("cpu(cores=99) | cpu(mem=900T)"))
    lines = str(refused.value).splitlines()
    assert lines[0] == "no launcher satisfies cpu(cores=99) | cpu(mem=900T):"
    assert "alternative 1: warm: 99 cores" in lines[1]
    assert "alternative 2: warm: 900T of memory" in lines[2]


def test_a_named_launcher_runs_everything_that_it_can(tmp_path: Path) -> None:
    chosen = finder(tmp_path, "spawn").choose(Requirement.parse("cpu(cores=99) | cpu(cores=2)"))
    assert (chosen.launcher.name, chosen.number) == ("spawn", 2)
    with pytest.raises(LauncherNotFound, match="spawn: 99 cores are asked for, and it offers 4"):
        finder(tmp_path, "spawn").choose(Requirement.parse("cpu(cores=99)"))


def test_a_launcher_that_a_script_chose_is_asked_alone(tmp_path: Path) -> None:
    write(tmp_path, "def find_launcher(requirement, tags): raise AssertionError")
    own = SpawnLauncher(slots=1)
    assert finder(tmp_path).choose(Requirement.parse("cpu(cores=1)"), own).launcher is own
    with pytest.raises(LauncherNotFound, match="it offers 1"):
        finder(tmp_path).choose(Requirement.parse("cpu(cores=2)"), own)


def test_launchers_py_has_the_last_word(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
from tenuto import Host
from tenuto.launchers.spawn import SpawnLauncher

ASKED = []

def find_launcher(requirement, tags):
    ASKED.append((requirement, tags))
    assert len(ASKED) == 1, "each requirement is asked about once"
    if "mine" in tags and requirement.match(Host(cores=8)):
        return SpawnLauncher(slots=8)
""",
    )
    found = finder(tmp_path)
    chosen = found.find(Requirement.parse("cpu(cores=8)"), frozenset({"mine"}))
    assert (chosen.launcher.name, chosen.launcher.slots, str(chosen.alternative)) == (
        "spawn",
        8,
        "cpu(cores=8)",
    )
    assert found.find(Requirement.parse("cpu(cores=8)"), frozenset({"mine"})) is chosen


def test_none_of_launchers_py_is_final(tmp_path: Path) -> None:
    write(tmp_path, "def find_launcher(requirement, tags): return None")
    with pytest.raises(LauncherNotFound, match=r"launchers\.py: it returned None"):
        finder(tmp_path).find(Requirement.parse("cpu(cores=1)"))


def documented() -> str:
    """The `launchers.py` of the page on Slurm, as it is."""
    page = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
    (body,) = [block for block in page.split("```") if "def find_launcher(requirement, tags)" in block]
    return body.removeprefix("python")


@pytest.mark.parametrize(
    ("text", "number", "partition", "gpus"),
    [
        ("cuda(mem=24G)", 1, "v100", 1),
        ("duration=2h & cuda(mem=40G)*2", 1, "a100", 2),
        ("cuda(mem=24G) | cpu(cores=4)", 1, "v100", 1),
        ("cuda(mem=100G) | cpu(cores=4)", 2, "v100", 0),
    ],
)
def test_the_documented_launchers_py_chooses_a_partition_for_the_memory_of_a_gpu(
    tmp_path: Path, text: str, number: int, partition: str, gpus: int
) -> None:
    write(tmp_path, documented())
    chosen = finder(tmp_path).find(Requirement.parse(text))
    launcher = chosen.launcher
    assert isinstance(launcher, SlurmLauncher)
    assert (chosen.number, launcher.options.partition, launcher.options.gpus) == (number, partition, gpus)
    assert chosen.alternative == Requirement.parse(text).alternatives[number - 1]


def test_launchers_py_that_has_none_for_any_alternative_is_final(tmp_path: Path) -> None:
    write(tmp_path, documented())
    with pytest.raises(LauncherNotFound) as refused:
        finder(tmp_path).find(Requirement.parse("cuda(mem=100G) | cuda(mem=200G)"))
    assert str(refused.value).count("launchers.py: it returned None") == 2


@pytest.mark.parametrize("launcher", ["slurm", "auto"])
def test_an_alternative_that_slurm_cannot_be_asked_for_is_not_passed_over_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text("#!/bin/sh\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(sbatch.parent))
    found = finder(tmp_path, launcher)
    for _ in range(3):
        assert found.choose(Requirement.parse("cuda(mem=24G) | cpu(cores=4)")).number == 2
    (said,) = caplog.messages
    assert "alternative 1: slurm: the memory of a GPU cannot be asked of Slurm" in said


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("def find_launcher(requirement, tags):\n    return 1 / 0\n", 2, "ZeroDivisionError"),
        ("\n\nimport nowhere_to_be_found\n", 3, "ModuleNotFoundError"),
        ("def find_launcher(requirement tags):\n    pass\n", 1, "SyntaxError"),
        ("x = 1\n", 1, "no function find_launcher"),
        ("\ndef find_launcher(requirement, tags):\n    return 'warm'\n", 2, "returned str"),
        ("def find_launcher(requirement):\n    return None\n", 1, "TypeError"),
    ],
)
def test_errors_of_launchers_py_name_its_line(tmp_path: Path, body: str, line: int, said: str) -> None:
    path = write(tmp_path, body)
    with pytest.raises(SettingsError) as refused:
        finder(tmp_path).find(Requirement.parse("cpu(cores=1)"))
    assert str(refused.value).startswith(f"{path}:{line}: ")
    assert said in str(refused.value)


def test_find_launcher_takes_several_requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TENUTO_SLOTS", "2")
    launcher = find_launcher("cpu(cores=99)", Requirement.parse("cpu(cores=2)"), tags=["any"])
    assert launcher.name == "warm"
    with pytest.raises(RequirementError, match="needs a requirement"):
        find_launcher()
    with pytest.raises(TypeError, match=r"tags=\) expects a list of text"):
        find_launcher("cpu(cores=1)", tags=[1])  # type: ignore[list-item]
