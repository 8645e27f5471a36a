"""Owns the promise that docs/why.md shows what was measured, of files that a person could run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bench.why import PAGE, SWEEPS, SYSTEMS, Place, fresh, kept, lines_of


def test_the_page_shows_what_was_measured() -> None:
    text = PAGE.read_text("utf-8")
    assert text == fresh(text), "run: python -m bench.why"
    assert set(kept()) == set(SYSTEMS)
    assert {name: one.lines for name, one in kept().items()} == {name: lines_of(name) for name in kept()}


def test_the_version_of_each_cited_system_is_the_one_that_was_measured() -> None:
    cited = PAGE.read_text("utf-8").partition("## On a cluster")[2].partition("## What the others")[0]
    measured = " ".join(one.versions for one in kept().values())
    for version in re.findall(r"\d+\.\d+", cited):
        assert f" {version}." in measured, version


def test_every_sweep_says_where_the_parameter_is_added_later() -> None:
    for name in SYSTEMS:
        assert any("# later: " in path.read_text() for path in (SWEEPS / name).iterdir() if path.is_file())


def test_the_sweep_in_tenuto_trains_once_whatever_happens(tmp_path: Path) -> None:
    place = Place(tmp_path / "sweep", "tenuto")
    (place.folder / "fail").touch()
    assert place.run()[1] == 30
    (place.folder / "fail").unlink()
    assert place.run() == (0, 1)
    assert place.is_best_known()
    place.add_the_parameter()
    assert "momentum: Param" in (place.folder / "sweep.py").read_text()
    assert place.run() == (0, 0)
    assert (
        subprocess.run(
            [sys.executable, "-m", "py_compile", "sweep.py"], cwd=place.folder, check=False
        ).returncode
        == 0
    )
