"""22: each of the eight ends of a search, with its exit code and its last line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.search.tasks_for_search import Square
from tests.search.terminal import Evolving, tenuto, until
from tests.search.test_embedded import square

ENDS = """
import sys
from tenuto import Param, Task
from tenuto.search import Evolution, GridSearch, Integer, MapElites, Outcome

class End(Task):
    n: Param[int]
    def execute(self):
        if 1000 < self.n < 10_000:
            return Outcome(failure="too large")
        return Outcome(float(self.n), [0.5], cost=1.0)

OPTIONS = {
    "TOTAL": {"max_total_jobs": 3},
    "TIME": {"max_seconds": 0.001},
    "COST": {"max_cost": 3.0},
    "TARGET": {"target": 0.0},
    "STALL": {"stall": 2},
    "FAILING": {"space": {"n": Integer(2000, 9000)}},
    "EXHAUSTED": {"space": {"n": Integer(1, 3)}, "sampler": GridSearch()},
    "STOPPED": {"space": {"n": Integer(10_000, 10**9)}},
}
if __name__ == "__main__":
    name, reason = sys.argv[1:]
    given = {"space": {"n": Integer(0, 1000)}, "sampler": MapElites([1], [(0, 1)], start=99)}
    given |= OPTIONS[reason]
    Evolution(name, End, max_unfinished_jobs=2, seed=2, **given).run()
"""
FIGURE = r"-?\d+(\.\d+)?(e[+-]?\d+)?"


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a script whose searches end for each reason."""
    monkeypatch.setenv("TENUTO_SEARCH__SEED_POPULATION", "2")
    (tmp_path / "ends.py").write_text(ENDS)
    return tmp_path


def candidates(folder: Path, name: str) -> list[dict[str, Any]]:
    said = tenuto(folder, "search", "export", name, "-w", "workspace").stdout
    return [json.loads(line) for line in said.splitlines()]


def is_last_line(line: str, found: dict[str, Any]) -> bool:
    """Whether a line is the last one of a search that came to this."""
    counts = (
        f"{found['scheduled']} candidates, {found['succeeded']} succeeded, {found['failed']} failed, "
        f"{found['reused']} reused(, \\d+ (pruned|cancelled))*"
    )
    best = ""
    if found["best"] is not None:
        best = rf"; best {FIGURE} \(#{found['best']['number']}\)"
    start = rf"{found['name']}: ended \({found['reason']}\): {counts}{best}"
    return re.fullmatch(rf"{start}; \d+ s", line) is not None


@pytest.mark.parametrize("reason", ["TOTAL", "TIME", "COST", "TARGET", "STALL", "FAILING", "EXHAUSTED"])
def test_22_each_end_has_its_exit_code_and_its_last_line(ends: Path, evolving: Evolving, reason: str) -> None:
    """In a process of its own: other tests' threads write to the standard error of this one."""
    if reason == "TIME":  # which is over at once, with candidates of before
        tenuto(ends, "evolve", "--slots", "2", "ends.py", "search", "TOTAL")
    process = evolving("--slots", "2", "--json", "ends.py", "search", reason)
    printed, said = process.communicate(timeout=90)
    (summary,) = json.loads(printed)
    assert process.returncode == (1 if reason == "FAILING" else 0), said
    assert (summary["state"], summary["reason"]) == ("ENDED", reason)
    assert is_last_line(said.splitlines()[-1], summary), said
    rows = candidates(ends, "search")
    assert all(row["order"] for row in rows), "nothing untold is left"
    if reason == "COST":
        ended = [row for row in rows if row["status"] != "CANCELLED"]
        assert 3.0 <= sum(row["cost"] for row in ended) <= 3.0 + 2, "no more than what was in flight"


@pytest.mark.slow
def test_22_a_search_that_a_person_drains_ends_stopped(ends: Path, evolving: Evolving) -> None:
    process = evolving("--slots", "2", "--json", "ends.py", "one", "STOPPED")
    until(ends, lambda found: found["told"] >= 1)
    assert tenuto(ends, "search", "drain", "one", "-w", "workspace").returncode == 0
    printed, said = process.communicate(timeout=90)
    assert process.returncode == 0, said
    (summary,) = json.loads(printed)
    assert (summary["state"], summary["reason"]) == ("ENDED", "STOPPED")
    assert is_last_line(said.splitlines()[-1], summary), said
    assert all(row["order"] for row in candidates(ends, "one"))


def test_22_time_counts_over_restarts(tmp_path: Path) -> None:
    first = square(tmp_path, task=Square.C(), max_total_jobs=3).run(slots=2)
    assert first.reason == "TOTAL"
    opened = square(tmp_path, task=Square.C())
    spent = opened.open().store.search("square")
    opened.close()
    assert spent is not None
    assert spent.active_ms > 0
    allowed_s = spent.active_ms / 1000  # all of which the first run took
    second = square(tmp_path, task=Square.C(), max_seconds=allowed_s, max_total_jobs=9).run(slots=2)
    assert (second.reason, second.scheduled) == ("TIME", 3)
    third = square(tmp_path, task=Square.C(), max_seconds=allowed_s + 600, max_total_jobs=4).run(slots=2)
    assert (third.reason, third.scheduled) == ("TOTAL", 4)
