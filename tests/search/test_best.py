"""The best of a search, and all that follows from it, count candidates that succeeded, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search import Evolution, Integer, MapElites
from tenuto.search.archive import Verdict
from tenuto.search.proposals import Proposal
from tenuto.search.replica import Replica
from tenuto.search.rows import End
from tenuto.search.search_overview import overview
from tenuto.search.search_run import BestBranch
from tenuto.search.store import Store
from tenuto.settings import load_settings
from tests.search.builders import added, claimed, execute, opened, succeeded
from tests.search.programs import git, repository
from tests.search.tasks_for_search import Cheats
from tests.search.terminal import tenuto

KINDS = ["failure", "measures", "cost", "nested"]


def failed_as_before(store: Store, objective: float) -> None:
    """A candidate that failed with an objective, as rows of before have it."""
    (row,) = claimed(store)
    end = End(row.id, row.attempt, EvolutionStatus.FAILED, '{"objective": 9}', objective, failure="FAILED")
    store.finish([end], 3)


class Anything:
    """A sampler and its candidates, for a replica that is only told."""

    domain = None

    def decode(self, row: Any) -> Proposal:
        return Proposal({})

    def tell(self, number: int, proposal: Any, outcome: Any) -> tuple[Any, None]:
        return (Verdict.FAILED if outcome is None else Verdict.NEW), None


@pytest.mark.parametrize("maximize", [True, False])
def test_a_stored_row_that_failed_has_no_objective_for_any_reader(store: Store, maximize: bool) -> None:
    opened(store)
    added(store, 3)
    store.dispatch("s", 10)
    store.finish([succeeded(claimed(store)[0], 2.0)], 3)
    failed_as_before(store, 99.0 if maximize else -99.0)
    store.finish([succeeded(claimed(store)[0], 3.0)], 3)
    replica = Replica(store, "s", Anything, Anything(), 1)  # type: ignore[arg-type]
    replica.read_on()
    rows = store.to_tell("s", 10)
    assert [row.objective for row in rows] == [2.0, None, 3.0]
    store.tell("s", 0, lambda: [replica.tell(row) for row in rows], maximize)
    found = store.search("s")
    assert found is not None
    assert (found.best_number, found.best_objective) == ((3, 3.0) if maximize else (1, 2.0))


@pytest.mark.parametrize("direction", ["max", "min"])
def test_a_stored_best_that_failed_is_found_again_among_those_that_succeeded(
    store: Store, direction: str
) -> None:
    definition = {"direction": direction}
    store.open("s", definition, 1)
    added(store, 3)
    store.dispatch("s", 10)
    for objective in (2.0, 3.0):
        store.finish([succeeded(claimed(store)[0], objective)], 3)
    failed_as_before(store, 99.0)
    execute(store, "UPDATE evolution_jobs SET told = number")
    execute(store, "UPDATE searches SET told = 3, best_number = 3, best_objective = 99")
    wanted = (2, 3.0) if direction == "max" else (1, 2.0)
    best = overview(store, "s")["best"]
    assert best is not None
    assert (best["number"], best["objective"]) == wanted
    row = store.open("s", definition, 1)
    assert (row.best_number, row.best_objective) == wanted
    assert (store.search("s") or row).best_number == wanted[0]
    execute(store, "UPDATE evolution_jobs SET status = 'FAILED'")
    row = store.open("s", definition, 1)
    assert (row.best_number, row.best_objective, overview(store, "s")["best"]) == (None, None, None)


def cheats(folder: Path, url: str, kind: str, **options: Any) -> Evolution:
    settings = load_settings({"database.url": url if "://" in url else f"sqlite:///{url}"})
    given: dict[str, Any] = {
        "space": {"n": Integer(1, 12)},
        "sampler": MapElites([1], [(0, 1)], start=12),
        "workdir": folder / "w",
        "settings": settings,
        "max_total_jobs": 12,
        **options,
    }
    return Evolution("cheats", Cheats.C(kind=kind), **given)


@pytest.mark.parametrize("kind", KINDS)
def test_a_candidate_that_fails_with_the_highest_objective_is_the_best_nowhere(
    tmp_path: Path, database_url: str, kind: str
) -> None:
    evolution = cheats(tmp_path, database_url, kind, target=50.0)
    result = evolution.run(slots=2)
    assert result.reason in ("TOTAL", "EXHAUSTED"), result.message
    assert result.failed > 0
    rows = result.rows()
    true = max(row["objective"] for row in rows if row["status"] == "SUCCEEDED")
    assert all(row["objective"] is None for row in rows if row["status"] == "FAILED")
    assert result.best is not None
    assert result.best.objective == true < 50
    opened_again = cheats(tmp_path, database_url, kind, target=50.0).open()
    shown = overview(opened_again.store, "cheats")["best"]
    assert shown is not None
    assert shown["objective"] == true
    again = opened_again.result()
    assert again.best is not None
    assert again.best.objective == true
    opened_again.close()


def test_a_search_stalls_by_candidates_that_succeeded_alone(tmp_path: Path, database_url: str) -> None:
    more = {"space": {"n": Integer(1, 400)}, "sampler": MapElites([1], [(0, 1)], start=200), "seed": 3}
    evolution = cheats(tmp_path, database_url, "failure", stall=4, max_total_jobs=200, **more)
    result = evolution.run(slots=1)
    assert result.reason == "STALL"
    rows = sorted((row for row in result.rows() if row["order"]), key=lambda row: row["order"])
    good = [row["objective"] for row in rows if row["status"] == "SUCCEEDED"]
    rises = [at for at, one in enumerate(good) if one == max(good[: at + 1])]
    assert len(good) - 1 - rises[-1] >= 4
    assert any(row["status"] == "FAILED" for row in rows)


def test_a_program_that_its_evaluator_calls_incorrect_is_not_the_best_branch(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("K = 0.5\n")
    (tmp_path / "evaluator.py").write_text(
        "import json\nfrom pathlib import Path\n"
        "def main(program_path, results_dir):\n"
        "    values = {}\n    exec(open(program_path).read(), values)\n    k = values['K']\n"
        "    Path(results_dir, 'metrics.json').write_text(json.dumps({'combined_score': k}))\n"
        "    correct = {'correct': k < 1, 'error': 'cheats'}\n"
        "    Path(results_dir, 'correct.json').write_text(json.dumps(correct))\n"
    )
    agent = "sh -c 'echo K = $(expr $EVOLVE_SEED % 3).7 > program.py'"
    words = [
        "--program",
        "program.py",
        "--evaluator",
        "evaluator.py",
        "--agent",
        agent,
        "-w",
        "w",
        "--slots",
        "1",
    ]
    done = tenuto(tmp_path, "evolve", *words, "--max-total", "8", "--name", "s", "--json")
    assert done.returncode == 0, done.stderr
    (summary,) = json.loads(done.stdout)
    assert summary["failed"] > 0
    assert summary["best"]["objective"] < 1
    for command in ("status s", "search best s"):
        found = json.loads(tenuto(tmp_path, *command.split(), "-w", "w", "--json").stdout)
        assert found.get("best", found)["objective"] == summary["best"]["objective"]
    program = git(tmp_path / "w" / "programs" / "s", "show", "tenuto/s/best:program.py")
    assert float(program.partition("=")[2]) == summary["best"]["objective"]


def test_the_branch_follows_no_candidate_that_failed(tmp_path: Path, store: Store) -> None:
    path = repository(tmp_path)
    commit = git(path, "rev-parse", "HEAD")
    opened(store)
    added(store, 1)
    store.dispatch("s", 10)
    failed_as_before(store, 9.0)
    store.database.write(
        lambda c: c.execute(
            text("UPDATE evolution_jobs SET outcome = :o"), {"o": json.dumps({"solution": commit})}
        )
    )
    search = store.search("s")
    assert search is not None
    BestBranch(store, search, str(path), workspace="w", host="h").follow(1)
    assert git(path, "branch", "--list", "tenuto/*") == ""
