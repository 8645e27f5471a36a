"""Owns `tenuto launchers`: what there is, and where a requirement leads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tenuto as tenuto_package
from tests.experiments.scripts import environment, run, tenuto

from .calls import call


def test_the_launchers_are_listed(tmp_path: Path) -> None:
    found = call(["launchers", "list", "--json"], tmp_path, environment(TENUTO_SLOTS="3"))
    rows = {row["name"]: row for row in json.loads(found.stdout)}
    assert rows["warm"]["usable"]
    assert rows["warm"]["default"]
    assert "3 slots" in rows["warm"]["offers"]
    assert "there is no" in rows["launchers.py"]["why"]
    shown = call(["launchers"], tmp_path, environment())
    assert "warm" in shown.stdout
    assert "spawn" in shown.stdout


@pytest.mark.parametrize(
    ("spec", "code", "chosen"),
    [
        ("cpu(cores=9) | cpu(cores=2)", 0, {"launcher": "warm", "alternative": 2, "options": []}),
        ("cpu(cores=9)", 1, None),
    ],
)
def test_check_says_where_a_requirement_leads(tmp_path: Path, spec: str, code: int, chosen: object) -> None:
    small = environment(TENUTO_SLOTS="2", PATH="/nowhere")
    found = call(["launchers", "check", spec, "--json"], tmp_path, small)
    assert found.returncode == code, found.stderr
    answer = json.loads(found.stdout)
    assert answer["requirement"] == spec
    assert answer["chosen"] == chosen
    first = answer["tried"][0]
    assert first == {
        "alternative": 1,
        "launcher": "warm",
        "fits": False,
        "why": "9 cores are asked for, and it offers 2",
    }


def test_check_points_at_what_it_cannot_read(tmp_path: Path) -> None:
    found = call(["launchers", "check", "duration=4 & cuda"], tmp_path, environment())
    assert found.returncode == 2
    lines = found.stderr.splitlines()
    assert lines[0] == "tenuto: duration=4 & cuda"
    assert lines[1].index("^") == lines[0].index(" & cuda")


@pytest.mark.slow
def test_check_asks_launchers_py_with_the_tags(tmp_path: Path) -> None:
    (tmp_path / "tenuto").mkdir()
    (tmp_path / "tenuto" / "launchers.py").write_text(
        "from tenuto.launchers.spawn import SpawnLauncher\n"
        "def find_launcher(requirement, tags):\n"
        "    return SpawnLauncher(slots=2) if 'big' in tags else None\n"
    )
    here = {"XDG_CONFIG_HOME": str(tmp_path)}
    found = run(tenuto("launchers", "check", "cpu(cores=2)", "--tag", "big", "--json"), tmp_path, **here)
    assert json.loads(found.stdout)["chosen"]["launcher"] == "spawn"
    found = run(tenuto("launchers", "check", "cpu(cores=2)"), tmp_path, **here)
    assert found.returncode == 1
    assert "it returned None" in found.stdout


@pytest.mark.slow
def test_a_probe_of_this_machine_leaves_nothing(tmp_path: Path) -> None:
    found = run(tenuto("launchers", "test", "spawn", "--json"), tmp_path)
    assert found.returncode == 0, found.stderr
    rows = {one["name"]: one for one in json.loads(found.stdout)}
    assert all(rows[name]["is_good"] for name in ("started", "python", "tenuto", "disk", "stop"))
    assert not list(tmp_path.glob(".tenuto-probe-*"))
    assert run(tenuto("launchers", "test", "nothing"), tmp_path).returncode == 2


@pytest.mark.slow
def test_a_probe_needs_no_workspace_yet(tmp_path: Path) -> None:
    found = run(tenuto("launchers", "test", "spawn", "-w", "sweeps/first", "--json"), tmp_path)
    assert found.returncode == 0, found.stderr
    rows = {one["name"]: one["found"] for one in json.loads(found.stdout)}
    assert rows["tenuto"].endswith(f", {Path(tenuto_package.__file__).parent}")
    assert list(tmp_path.iterdir()) == []
