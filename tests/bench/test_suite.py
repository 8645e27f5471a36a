"""Owns the whole suite, at its smallest: each workload runs, and prepared jobs are like real ones."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.__main__ import WORKLOADS, arguments, options_of
from bench.measure import Broken, driver
from bench.ours import DRIVERS
from bench.peers import many
from bench.peers.peer import Peer, PeerAbsent
from bench.peers.systems import dodo, makefile, snakefile
from bench.results import read
from bench.scale import Options, Scale, Sizes

ROOT = Path(__file__).parents[2]


def tiny(directory: Path) -> Options:
    given = ["--sizes", "tiny", "--peers", "make", "--repetitions", "1", "--directory", str(directory)]
    return options_of(arguments(given))


def test_workloads_and_peers_are_chosen_by_name() -> None:
    given = arguments(["--only", "w1,W3", "--only", "floor", "--peers", "dask,doit", "--quick"])
    assert given.only == ["W1", "W3", "floor"]
    options = options_of(given)
    assert options.peers == ("dask", "doit")
    assert options.scale is Scale.QUICK
    assert options_of(arguments(["--no-peers"])).peers == ()
    assert options_of(arguments(["--slots", "1,3"])).slots == (1, 3)


def test_a_name_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--only", "W99"])
    assert "W99 is not known; choose from floor, W1" in capsys.readouterr().err


def test_every_workload_of_the_core_is_there() -> None:
    assert list(WORKLOADS) == ["floor", *(f"W{n}" for n in range(1, 16))]


def broken_peer(title: str, problem: Exception) -> Peer:
    def argv(*_: object) -> list[str]:
        raise problem

    return Peer(title, "make", None, argv, start_s=0.0, job_s=0.0, hop_s=0.0)


def test_a_peer_that_does_not_run_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "bench.peers.PEERS",
        (broken_peer("gone", PeerAbsent("no wheel")), broken_peer("bad", Broken("exit code 1"))),
    )
    rows = list(many(tiny(tmp_path), "W1", "no-op job", "many", Sizes((2, 4), (), ())))
    assert [(row.system, row.note) for row in rows] == [
        ("gone", "absent: no wheel"),
        ("bad", "failed: exit code 1"),
    ]


@pytest.mark.parametrize("files", [makefile, snakefile, dodo])
@pytest.mark.parametrize("shape", ["many", "chain", "sleep"])
def test_the_files_of_a_tool_differ_by_shape(files: object, shape: str) -> None:
    (text, *_) = files(shape, 3).values()  # type: ignore[operator]
    assert ("sleep" in text) is (shape == "sleep")
    if files is makefile:
        assert ("out/2: out/1" in text) is (shape == "chain")


def test_make_is_measured_as_a_peer(tmp_path: Path) -> None:
    """The one peer that needs no installation."""
    rows = list(many(tiny(tmp_path), "W1", "no-op job", "many", Sizes((2, 4), (), ())))
    assert [(row.system, row.size) for row in rows] == [("make", 2), ("make", 4)]
    assert all(row.x_wall is not None for row in rows), rows


def test_prepared_jobs_are_like_real_ones(tmp_path: Path) -> None:
    real, prepared = tmp_path / "real", tmp_path / "prepared"
    for place, name, arguments_ in (
        (real, "throughput.py", ("warm", "noop", 3)),
        (prepared, "prepare.py", (3,)),
    ):
        place.mkdir()
        driver(DRIVERS / name, *arguments_, directory=place)

    def shape(place: Path) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in sorted((place / "ws" / "jobs").rglob("*")):
            known = json.loads(path.read_bytes()) if path.suffix in {".json", ".done", ".pid"} else None
            keys = sorted(known) if isinstance(known, dict) else None
            found[str(path.relative_to(place))] = keys
        return found

    assert shape(prepared) == shape(real)
    markers = [json.loads(path.read_bytes()) for path in prepared.rglob("*.done")]
    assert len({marker["nonce"] for marker in markers}) == 3
    assert len({marker["launch"]["job_name"] for marker in markers}) == 3


DEAR = ("W1", "W2", "W4", "W8", "W11")
"""Workloads that take half of the whole time; their drivers and servers are those of other tests, too."""


@pytest.mark.slow
@pytest.mark.watchdog(600)
def test_most_of_the_suite_runs_at_its_smallest_without_peers(
    tmp_path: Path, require: Callable[[str], None]
) -> None:
    require("slurm")
    workloads = [name for name in WORKLOADS if name not in DEAR]
    assert run_at_its_smallest(tmp_path, workloads) == set(workloads)


@pytest.mark.slow
@pytest.mark.watchdog(600)
@pytest.mark.prove("it takes a minute; most of it runs in the test before")
def test_the_whole_suite_runs_at_its_smallest_without_peers(
    tmp_path: Path, require: Callable[[str], None]
) -> None:
    require("slurm")
    assert run_at_its_smallest(tmp_path, list(WORKLOADS)) == set(WORKLOADS)


def run_at_its_smallest(place: Path, workloads: list[str]) -> set[str]:
    """The workloads that have a figure; the run itself went well, and left nothing."""
    command = [sys.executable, "-m", "bench", "--sizes", "tiny", "--no-peers", "--repetitions", "1"]
    places = ["--directory", str(place / "work"), "--results", str(place / "results")]
    chosen = ["--only", ",".join(workloads)]
    done = subprocess.run([*command, *chosen, *places], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (kept,) = (place / "results").glob("*.json")
    result = read(kept)
    assert [row for row in result.rows if row.value is None] == []
    assert [row.note for row in result.rows if row.workload == "W3" and "wrote nothing" not in row.note] == []
    assert result.left_out == ()
    assert kept.with_suffix(".md").read_text(encoding="utf-8").startswith("# A run of the benchmark")
    assert "MISSED" in done.stdout or "hit" in done.stdout
    assert list((place / "work").iterdir()) == []
    return {row.workload for row in result.rows}


@pytest.mark.parametrize("driver", sorted(DRIVERS.glob("*.py")), ids=lambda path: path.stem)
def test_a_driver_imports_names_that_exist(driver: Path) -> None:
    imports = [one for one in ast.walk(ast.parse(driver.read_text())) if isinstance(one, ast.ImportFrom)]
    missing = [
        f"{one.module}.{name.name}"
        for one in imports
        if (one.module or "").partition(".")[0] == "tenuto"
        for name in one.names
        if not is_there(str(one.module), name.name)
    ]
    assert not missing


def is_there(module: str, name: str) -> bool:
    """Whether a module has the name, or the package has that module."""
    try:
        return hasattr(import_module(module), name) or bool(find_spec(f"{module}.{name}"))
    except ModuleNotFoundError:
        return False
