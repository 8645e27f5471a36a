"""Owns the checks of bench/walk.py: a real experiment is walked, and what a machine lacks is said aloud."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import walk
from bench.measure import Broken

ROOT = Path(__file__).parents[2]


def test_the_job_of_an_experiment_is_walked_through_all_its_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.walk", "--only", "experiment", "--json"]
    done = subprocess.run(
        [*command, "--directory", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)["experiment"]
    assert found["processes"] == 4  # the caller's, the warm parent, the runner, the payload
    assert 100 < found["calls"] < 5_000
    assert 10 < found["main_files"] < found["files"] < 200
    assert found["changes"] > 5
    assert found["threads"] >= found["main_threads"] >= 2
    assert list(tmp_path.iterdir()) == []


def test_a_walk_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(place: Path, trace: Path) -> walk.Walk:
        raise Broken("there is no Slurm")

    monkeypatch.setitem(walk.WALKS, "slurm", broken)
    found = {"slurm": walk.walk("slurm", tmp_path)}
    assert "| slurm | NOT WALKED: Broken: there is no Slurm |" in walk.walks_table(found)


def test_calls_are_counted_by_process_and_thread(tmp_path: Path) -> None:
    (tmp_path / "7").write_text("1 1 call a.py f\n5 1 call a.py f\n6 2 call b.py g\n9 1 call c.py h\n")
    (tmp_path / "8").write_text("6 3 call d.py f\n7 3 change os.rename x\n5 3 mark submit\n")
    events = walk.events_of(tmp_path)
    found = walk.walked("upload", events, walk.marks(events, "submit")[0], 8)
    assert (found.calls, found.files, found.changes, found.processes, found.threads) == (3, 3, 1, 2, 3)
    assert (found.main_files, found.main_threads) == (2, 2)
