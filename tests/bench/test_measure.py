"""Owns the measuring of processes: statistics, what a tree of them costs, and that nothing is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.measure import Broken, Cost, Measured, child, pairs, reason, spread, summarise, tree
from bench.scratch import clear, file_system, fresh, last_changes


def test_a_summary_is_of_medians_and_the_spread_between_extremes() -> None:
    found = summarise([Cost(1.0, 5.0), Cost(4.0, 10.0), Cost(2.0, 20.0)])
    assert (found.cpu_s, found.wall_s) == (2.0, 10.0)
    assert (found.cpu_spread, found.wall_spread) == (1.5, 1.5)
    assert len(found.raw) == 3


def test_nothing_has_no_spread() -> None:
    assert spread([0.0, 0.0]) == 0.0


def test_a_cost_in_references_is_that_of_one_job() -> None:
    found = Measured(summarise([Cost(30.0, 10.0)]), summarise([Cost(0.01, 0.005)]), load=0.0)
    assert found.x_wall(1_000) == pytest.approx(2.0)
    assert found.x_cpu(1_000) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("Traceback\n  x\nKeyError: 'a|b'\n\n", "KeyError: 'a/b'"),
        ("", "exit code 3"),
        ("x" * 999, "x" * 160),
        (f"no {Path.home()}/x", "no .../x"),
    ],
)
def test_a_failure_is_one_line_that_a_table_can_hold(stderr: str, expected: str) -> None:
    assert reason(stderr, 3) == expected


def test_the_cpu_time_of_children_counts(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    ran = tree([sys.executable, "-c", nested], directory=tmp_path, timeout_s=60)
    assert ran.cost.cpu_s >= 0.2
    assert ran.cost.wall_s >= 0.2
    assert ran.peak_kb > 1_000


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    """A process in a session of its own, whose parent is gone."""
    leave = (
        "import subprocess; print('{\"pid\": %d}' % "
        "subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    )
    pid = tree([sys.executable, "-c", leave], directory=tmp_path, timeout_s=60).report()["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_command_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="stopped after"):
        tree(["sleep", "600"], directory=tmp_path, timeout_s=0.2)


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="ValueError: no"):
        tree([sys.executable, "-c", "raise ValueError('no')"], directory=tmp_path, timeout_s=60)
    with pytest.raises(Broken, match="printed no result"):
        tree(["true"], directory=tmp_path, timeout_s=60).report()
    with pytest.raises(Broken, match="exit code 1"):
        child(["false"])
    with pytest.raises(Broken, match="exit code 1"):
        pairs(["false"], 2)


def test_fresh_directories_go_when_all_is_measured(tmp_path: Path) -> None:
    work = tmp_path / "work"
    with fresh(work) as first, fresh(work) as second:
        assert first != second
        (first / "file").touch()
    assert first.exists()
    (work / "of-somebody-else").touch()
    clear(work)
    assert [place.name for place in work.iterdir()] == ["of-somebody-else"]


def test_a_change_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    before = last_changes(tmp_path)
    assert last_changes(tmp_path) == before
    (tmp_path / "a" / "b" / "c").touch()
    assert last_changes(tmp_path) != before


def test_the_nearest_mount_tells_the_file_system() -> None:
    mounts = "d / ext4 rw 0 0\nt /tmp tmpfs rw 0 0\nx /tmpfoo xfs rw 0 0\n"
    assert file_system(Path("/tmp/a"), mounts) == "tmpfs"
    assert file_system(Path("/tmpf"), mounts) == "ext4"
