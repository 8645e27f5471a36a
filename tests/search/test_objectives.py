"""Several objectives, with a Pareto front, and constraints."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tenuto.database import Database
from tenuto.errors import SearchError
from tenuto.jobs.row import Result
from tenuto.lifecycle.states import JobState
from tenuto.monitor.panels import table
from tenuto.search import (
    Evolution,
    GridSearch,
    MapElites,
    OptunaSampler,
    Outcome,
    RandomSearch,
    Real,
    Study,
)
from tenuto.search.archive import ParetoFront, Verdict
from tenuto.search.export import minimized
from tenuto.search.opening import FILE_NAME
from tenuto.search.outcome import read_outcome
from tenuto.search.proposals import InFlight, Setup
from tenuto.search.source import SearchSource
from tenuto.search.spaces import Space
from tenuto.search.store import Store
from tests.search.tasks_for_search import Trade
from tests.search.terminal import tenuto

SPACE = {"x": Real(0, 1), "y": Real(0, 1)}
BOTH = ["max", "min"]


def worth(values: dict[str, Any], bound: float = 2.0) -> Outcome:
    x, y = values["x"], values["y"]
    return Outcome(objectives=[x, x * x + y], constraints=[x - bound])


def test_the_front_is_what_no_other_beats() -> None:
    rng = Random(3)
    points = [(rng.randrange(12), rng.randrange(12), rng.randrange(12)) for _ in range(200)]
    front = ParetoFront((True, False, True))
    for number, point in enumerate(points):
        front.add(number, None, point)

    def beats(one: Any, other: Any) -> bool:
        signed = [(one[0], other[0]), (-one[1], -other[1]), (one[2], other[2])]
        return all(a >= b for a, b in signed) and one != other

    best = {point for point in points if not any(beats(other, point) for other in points)}
    assert {elite.objectives for elite in front.elites()} == best
    assert front.add(500, None, (50, -50, 50)) is Verdict.BETTER
    assert len(front.elites()) == 1
    assert front.add(501, None, (50, -50, 50)) is Verdict.WORSE


SAMPLERS = [OptunaSampler("nsga2", population_size=10), OptunaSampler("tpe"), RandomSearch(), GridSearch()]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=["nsga2", "tpe", "random", "grid"])
def test_a_study_of_several_objectives_has_a_front(sampler: Any) -> None:
    study = Study(SPACE, sampler, direction=BOTH, seed=2)
    for _ in range(60):
        one = study.ask()
        assert one is not None
        study.tell(one.number, worth(one.values, 0.5))
    assert study.best is None
    assert len(study.front) > 2
    assert all(elite.values["x"] <= 0.5 for elite in study.front)  # the others are not feasible


@pytest.mark.parametrize("sampler", [MapElites([3], [(0, 1)]), OptunaSampler("gp")])
def test_a_sampler_of_one_objective_is_refused(sampler: Any) -> None:
    with pytest.raises(SearchError, match="knows one objective"):
        Study(SPACE, sampler, direction=BOTH)
    with pytest.raises(SearchError, match="knows one objective"):
        Evolution("two", Trade, space=SPACE, sampler=sampler, direction=BOTH)


@pytest.mark.parametrize(
    ("outcome", "count", "words"),
    [
        (Outcome(1.0), 2, "0 objectives came"),
        (Outcome(objectives=[1.0]), 2, "1 objectives came"),
        (Outcome(objectives=[1.0, float("nan")]), 2, "an objective is nan"),
        (Outcome(objectives=[1.0, 2.0]), 1, "2 objectives came"),
        (Outcome(objectives="ab"), 2, "objectives are 'ab'"),
        (Outcome(1.0, constraints=["a"]), 1, "a constraint is 'a'"),
        (Outcome(1.0, constraints=[float("inf")]), 1, "a constraint is inf"),
    ],
)
def test_objectives_that_do_not_fit_fail(outcome: Outcome, count: int, words: str) -> None:
    failure = read_outcome(outcome, (), None, count).failure
    assert failure is not None
    assert words in failure


def test_one_objective_in_a_list_is_that_objective() -> None:
    assert read_outcome({"objectives": [2]}).objective == 2.0


def run_of(sampler: Any) -> Any:
    return sampler.begin(Setup(Space(SPACE), True, 1, directions=(True, False)))


@pytest.mark.parametrize("kind", ["nsga2", "tpe"])
@pytest.mark.parametrize("bound", [2.0, 0.4])
def test_a_study_built_anew_proposes_the_same(kind: str, bound: float) -> None:
    """With eight in flight, told in any order, and every 13th ask in a study that was built anew."""
    options = {"population_size": 8} if kind == "nsga2" else {"n_startup_trials": 5}
    sampler = OptunaSampler(kind, **options)
    kept, rng = run_of(sampler), Random(4)
    flying: list[InFlight] = []
    log: list[tuple[int, Any, Outcome]] = []
    for number in range(1, 70):
        proposal = kept.ask(number, Random(number), flying)
        if number % 13 == 0:
            again = run_of(sampler)
            for told in log:
                again.tell(*told)
            assert again.ask(number, Random(number), flying) == proposal
        flying.append(InFlight(number, proposal))
        if len(flying) == 8:
            one = flying.pop(rng.randrange(8))
            outcome = read_outcome(worth(one.proposal.values, bound), (), None, 2)
            log.append((one.number, one.proposal, outcome))
            kept.tell(*log[-1])
    if kind == "nsga2":
        assert max(one.proposal.island for one in flying) >= 4


def searched(tmp_path: Path, **options: Any) -> Evolution:
    evolution = Evolution(
        "two", Trade, space=SPACE, workdir=tmp_path, max_total_jobs=12, direction=BOTH, **options
    )
    result = evolution.run(2)
    assert (result.succeeded, result.failed, result.best) == (12, 0, None)
    return evolution


def test_jobs_of_several_objectives(tmp_path: Path) -> None:
    evolution = searched(tmp_path, sampler=OptunaSampler("nsga2", population_size=6))
    front = evolution.result().front
    rows = evolution.result().rows()
    assert 0 < len(front) <= 12
    assert all(elite.values["x"] <= 0.8 for elite in front)
    assert rows[0]["objectives"] == [rows[0]["x"], pytest.approx(rows[0]["x"] ** 2 + rows[0]["y"])]
    evolution.close()
    other = Evolution("two", Trade, space=SPACE, workdir=tmp_path, direction=["max", "max"])
    with pytest.raises(SearchError, match="declared otherwise"):
        other.open()


def test_the_command_shows_the_front(tmp_path: Path) -> None:
    evolution = searched(tmp_path)
    wanted = [elite.number for elite in evolution.result().front]
    evolution.close()
    shown = json.loads(tenuto(tmp_path, "search", "best", "two", "--json", "-w", str(tmp_path)).stdout)
    assert [row["number"] for row in shown] == wanted
    text = tenuto(tmp_path, "search", "best", "two", "-w", str(tmp_path)).stdout
    assert text.count("objectives") == len(wanted)


def test_a_candidate_that_is_not_feasible_is_never_the_best(tmp_path: Path) -> None:
    evolution = Evolution(
        "one",
        Trade.C(single=True),
        space=SPACE,
        sampler=MapElites([5], [(0, 1)]),
        workdir=tmp_path,
        max_total_jobs=20,
    )
    result = evolution.run(2)
    rows = result.rows()
    assert any(row["x"] > 0.8 for row in rows)
    assert result.succeeded == 20
    assert result.best is not None
    assert result.best.objective == max(row["x"] for row in rows if row["x"] <= 0.8)
    assert evolution.open().store.search("one").best_objective == result.best.objective  # type: ignore[union-attr]
    evolution.close()


@pytest.mark.parametrize("direction", ["max", "min"])
def test_results_of_a_search_are_ordered_by_its_direction(tmp_path: Path, direction: str) -> None:
    evolution = Evolution(
        "one",
        Trade.C(single=True),
        space=SPACE,
        direction=direction,
        workdir=tmp_path / "w",
        max_total_jobs=6,
    )
    evolution.run(2)
    evolution.close()
    shown = json.loads(tenuto(tmp_path, "results", "--json", "-w", "w").stdout)
    values = [row["result"]["objective"] for row in shown]
    assert values == sorted(values, reverse=direction == "max")
    store = Store(Database(tmp_path / "w" / FILE_NAME))
    group = SearchSource(store.database, str(tmp_path / "w")).groups()[0]
    store.database.close()
    columns = table([Result("search:one/1", "one", JobState.DONE, {}, {"objective": 1.0})], less=group.less)
    assert [column.get("less") for column in columns.columns if column["name"] == "objective"] == [
        True if direction == "min" else None
    ]


def test_each_objective_has_a_direction() -> None:
    assert minimized((True, False, False)) == ("objective 1", "objective 2")


def test_equal_candidates_are_all_on_the_front_and_are_no_news() -> None:
    front = ParetoFront([True, False])
    verdicts = [front.add(number, {}, pair) for number, pair in enumerate([(1, 2), (0, 3), (1, 2), (2, 2)])]
    assert verdicts == [Verdict.NEW, Verdict.WORSE, Verdict.WORSE, Verdict.BETTER]
    assert [elite.number for elite in front.elites()] == [3]
    assert front.add(4, {}, (2, 2)) is Verdict.WORSE
    assert [elite.number for elite in front.elites()] == [3, 4]
