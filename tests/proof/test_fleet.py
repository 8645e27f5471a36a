"""The fleet for a few seconds with one seed, and judges that see what is wrong."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from proof.fleet import run
from proof.fleet.judge import FleetJob, judged
from proof.report import Options, text


@pytest.mark.slow
@pytest.mark.watchdog(600)
def test_two_servers_and_three_nodes_lose_nothing_under_strikes(require: Callable[[str], None]) -> None:
    require("postgresql")
    report = run(Options(small=True, first_seed=7))
    assert report.good, text(report)
    assert report.cases[0].count > 3


def result(id: int, user: str, secret: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(".tenuto/job.json", json.dumps({"id": id, "user_id": user}))
        archive.writestr("secret", secret)
    return made.getvalue()


GOOD = FleetJob(1, "5", "good", "abc", "Completed", "", result(1, "5", "abc"))
ROWS = [(1, "5", "Completed", None)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data" / "jobs" / "x").mkdir(parents=True)
    (tmp_path / "data" / "jobs" / "x" / "result.zip").touch()
    (tmp_path / "node0" / "node" / "uploads").mkdir(parents=True)
    (tmp_path / "ledger").write_text("1:abc\n")
    return tmp_path


def test_a_play_that_went_well_is_no_problem(root: Path) -> None:
    assert judged(root, [GOOD], ROWS) == []


@pytest.mark.parametrize(
    ("job", "rows", "says"),
    [
        (GOOD._replace(status="Running"), ROWS, "lost"),
        (GOOD._replace(status="Failed"), ROWS, "lost"),
        (GOOD, [], "lost"),
        (GOOD._replace(result=b"half"), ROWS, "lost"),
        (GOOD, [(1, "6", "Completed", None)], "wrong owner"),
        (GOOD._replace(result=result(1, "6", "abc")), ROWS, "wrong owner"),
        (GOOD._replace(result=result(1, "5", "other")), ROWS, "wrong owner"),
        (GOOD, [*ROWS, (2, "5", "Completed", None)], "twice"),
    ],
)
def test_what_went_wrong_is_said(
    root: Path, job: FleetJob, rows: list[tuple[object, ...]], says: str
) -> None:
    assert any(problem.startswith(says) for problem in judged(root, [job], rows))


@pytest.mark.parametrize(
    ("ledger", "says"), [("", "twice"), ("1:abc\n1:abc\n", "twice"), ("1:abc\n1:xyz\n", "wrong owner")]
)
def test_the_ledger_says_what_was_started(root: Path, ledger: str, says: str) -> None:
    (root / "ledger").write_text(ledger)
    assert any(problem.startswith(says) for problem in judged(root, [GOOD], ROWS))


@pytest.mark.parametrize("left", ["data/jobs/x/files", "data/jobs/y", "node0/node/uploads/z"])
def test_a_process_left_over_is_a_leak(root: Path, left: str) -> None:
    (root / left).mkdir()
    assert any(problem.startswith("leak") for problem in judged(root, [GOOD], ROWS))
