"""Pruners: candidates that are stopped by what they and the others logged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import optuna
import pytest

from tenuto.errors import SearchError
from tenuto.lifecycle.evolution import EvolutionStatus, SearchEnd
from tenuto.search import (
    Evolution,
    EvolutionScheduler,
    GridSearch,
    Halving,
    Median,
    OptunaSampler,
    Outcome,
    RandomSearch,
    Real,
    Repository,
)
from tenuto.search.points import PRUNED, PointStore, Pruning
from tenuto.search.proposals import Proposal, Setup
from tenuto.search.pruning import Other
from tenuto.search.reporter import SearchProgress, last_line
from tenuto.search.search_overview import overview
from tenuto.search.spaces import Space
from tenuto.search.store import Store
from tenuto.testing.contracts.queues import FakeQueue
from tests.search.builders import Console, added, claimed, column, opened, status, succeeded, tell_all
from tests.search.tasks_for_search import Logging
from tests.search.terminal import tenuto

STEPS = 30


def curves(seed: int) -> list[list[float]]:
    rng = Random(seed)
    bases = [rng.random() for _ in range(25)]
    return [[base + rng.random() / 4 for _ in range(STEPS)] for base in bases]


def optunas(pruner: Any, direction: str, seed: int) -> list[int | None]:
    """The step at which Optuna stops each trial, one after the other."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction=direction, pruner=pruner)
    found: list[int | None] = []
    for curve in curves(seed):
        trial = study.ask()
        stopped = None
        for step, value in enumerate(curve):
            trial.report(value, step)
            if trial.should_prune():
                stopped = step
                break
        state = optuna.trial.TrialState.COMPLETE if stopped is None else optuna.trial.TrialState.PRUNED
        study.tell(trial, curve[-1] if stopped is None else None, state=state)
        found.append(stopped)
    return found


def ours(pruner: Any, direction: str, seed: int) -> list[int | None]:
    sign = 1 if direction == "maximize" else -1
    others: list[Other] = []
    found: list[int | None] = []
    for curve in curves(seed):
        mine: dict[int, float] = {}
        stopped = None
        for step, value in enumerate(curve):
            mine[step] = sign * value
            if pruner.verdict(dict(mine), step, others) is not None:
                stopped = step
                break
        others.append(Other(mine, stopped is None))
        found.append(stopped)
    return found


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["median", "halving"])
def test_the_pruners_of_optuna_decide_the_same(kind: str, seed: int, direction: str) -> None:
    if kind == "median":
        theirs: Any = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=3)
        mine: Any = Median(startup=4, warmup=3)
    else:
        theirs = optuna.pruners.SuccessiveHalvingPruner(min_resource=2, reduction_factor=3)
        mine = Halving(first=2, factor=3)
    found = ours(mine, direction, seed)
    assert found == optunas(theirs, direction, seed)
    assert 2 < sum(step is not None for step in found) < 25


def logged(store: Store, row: Any, values: list[float], maximize: bool = True) -> bool:
    return PointStore(store.database).add_points(row, list(enumerate(values)), maximize)


@pytest.mark.parametrize("maximize", [True, False])
def test_a_row_is_pruned_by_the_rows_alone(store: Store, maximize: bool) -> None:
    opened(store)
    added(store, 5)
    store.dispatch("s", 9)
    rows = claimed(store, 5)
    sign = 1 if maximize else -1
    for row in rows[:3]:
        assert logged(store, row, [sign * 1.0, sign * 2.0], maximize)
        assert logged(store, row, [sign * 1.0, sign * 2.0], maximize)  # twice: no harm
        store.finish([succeeded(row)], 3)
    tell_all(store)
    pruning = Pruning(store.database, "s", Median(startup=3, warmup=1), maximize)
    assert logged(store, rows[3], [sign * 0.5, sign * 0.5], maximize)
    assert logged(store, rows[4], [sign * 9.0, sign * 9.0], maximize)
    assert pruning.prune() == 1
    assert (
        Pruning(store.database, "s", Median(startup=3, warmup=1), maximize).prune() == 0
    )  # another scheduler reads it
    assert not logged(store, rows[3], [0, 0, 0], maximize)  # so its worker ends the payload
    assert logged(store, rows[4], [0, 0, 0], maximize)
    assert store.finish([succeeded(rows[3], 100.0)], 3) == set()
    assert status(store, 4) is EvolutionStatus.CANCELLED
    assert column(store, 4, "failure") == PRUNED
    assert json.loads(str(column(store, 4, "outcome"))) == {"objective": sign * 0.5, "pruned": 1}
    assert "pruned at step 1" in str(column(store, 4, "message"))
    assert column(store, 4, "objective") is None
    tell_all(store)
    assert store.search("s").best_number in (1, 2, 3)  # type: ignore[union-attr]
    found = overview(store, "s")
    assert (found["pruned"], found["cancelled"], found["succeeded"]) == (1, 0, 3)
    assert store.retry("s", None) == 0
    assert store.retry("s", [4]) == 1
    assert PointStore(store.database).curves("s", 0, maximize)[0].keys() == {5}


def test_a_point_that_is_no_number_is_the_worst(store: Store) -> None:
    opened(store)
    added(store, 2)
    store.dispatch("s", 9)
    first, second = claimed(store, 2)
    assert logged(store, first, [1.0])
    store.finish([succeeded(first)], 3)
    tell_all(store)
    assert PointStore(store.database).add_points(second, [(0, math.nan), (1 << 70, 5.0)], True)
    assert Pruning(store.database, "s", Median(startup=1, warmup=0), True).prune() == 1
    assert json.loads(str(column(store, 2, "outcome")))["objective"] is None


def test_optuna_learns_of_what_was_pruned() -> None:
    space = Space({"x": Real(0, 1)})
    runs = [OptunaSampler("tpe", n_startup_trials=3).begin(Setup(space)) for _ in range(2)]
    for number in range(1, 25):
        asked = [run.ask(number, Random(number), ()) for run in runs[: 1 + (number == 20)]]
        assert len(set(map(str, asked))) == 1  # the second one is built from what was told alone
        proposal: Proposal = asked[0]
        for run in runs:
            if number % 3:
                run.tell(number, proposal, Outcome(proposal.values["x"]))
            else:
                run.tell_pruned(number, proposal, 0.1, number)
    states = [trial.state.name for trial in runs[0]._study.get_trials()]
    assert states.count("PRUNED") == 8


def test_a_scheduler_made_by_hand_prunes_and_ends_as_its_search_says(tmp_path: Path) -> None:
    evolution = Evolution(
        "byhand",
        Logging.C(log=str(tmp_path / "log")),
        space={"x": Real(0, 1)},
        sampler=RandomSearch(),
        pruner=Median(startup=1, warmup=0),
        metric="score",
        target=5.0,
        max_unfinished_jobs=2,
        workdir=tmp_path,
    )
    store = evolution.open().store
    ticking = EvolutionScheduler(
        evolution.settings, Console(), evolution.sampler, "byhand", store=store, queue=FakeQueue()
    )
    ticking.tick()
    first, second = claimed(store, 2)
    assert logged(store, first, [4.0])
    store.finish([succeeded(first, 4.0)], 3)
    ticking.tick()
    assert logged(store, second, [1.0])
    ticking.tick()
    assert not logged(store, second, [1.0])  # it was pruned, so its worker ends it
    (third, *_) = claimed(store, 1)
    store.finish([succeeded(third, 6.0)], 3)
    ticking.tick()
    assert ticking.tick()["scheduled"] == 0
    search = store.search("byhand")
    assert search is not None
    assert search.reason is SearchEnd.TARGET
    evolution.close()


@pytest.mark.parametrize("pruner", [Median(startup=3, warmup=2), Halving(first=2, factor=2)])
def test_jobs_are_pruned_while_they_run(tmp_path: Path, pruner: Any) -> None:
    evolution = Evolution(
        "prune",
        Logging.C(log=str(tmp_path / "log")),
        space={"x": Real(0, 1)},
        sampler=GridSearch(steps=8),
        pruner=pruner,
        metric="score",
        direction="min",
        workdir=tmp_path,
    )
    result = evolution.run(2)
    rows = result.rows()
    stopped = [row for row in rows if row["pruned"] is not None]
    assert result.pruned == len(stopped) > 0
    assert result.succeeded == 8 - len(stopped)
    assert result.failed == 0
    ends = (tmp_path / "log").read_text().count("end")
    assert result.succeeded <= ends < 8  # what was pruned did not run to its end
    assert result.best is not None
    assert result.best.objective == min(row["objective"] for row in rows if row["pruned"] is None)
    for row in stopped:
        assert row["objective"] is not None
        assert (row["status"], row["failure"]) == ("CANCELLED", PRUNED)
    evolution.close()
    number = stopped[0]["number"]
    why = tenuto(tmp_path, "why", f"prune#{number}", "-w", str(tmp_path)).stdout
    assert "pruned at step" in why
    shown = json.loads(tenuto(tmp_path, "status", "prune", "--json", "-w", str(tmp_path)).stdout)
    assert shown["pruned"] == len(stopped)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pruner": Median}, "no pruner"),
        ({"pruner": "median"}, "no pruner"),
        ({"pruner": Median(), "reproducible": True}, "reproducible"),
        ({"pruner": Median(), "direction": ["max", "min"], "sampler": RandomSearch()}, "one objective"),
    ],
)
def test_a_pruner_that_has_no_use_is_refused(options: Any, words: str) -> None:
    with pytest.raises(SearchError, match=words):
        Evolution("no", Logging, space={"x": Real(0, 1)}, **options)


def test_numbers_of_pruners_are_checked(tmp_path: Path) -> None:
    for make in (
        lambda: Median(startup=0),
        lambda: Median(warmup=-1),
        lambda: Halving(factor=1),
        lambda: Halving(0),
    ):
        with pytest.raises(SearchError, match="whole number"):
            make()
    with pytest.raises(SearchError, match="needs a task"):
        Evolution("no", Repository(tmp_path, agent="a", evaluate="b"), pruner=Median())


def test_the_last_line_counts_every_candidate(tmp_path: Path) -> None:
    evolution = Evolution("counted", Logging, space={"x": Real(0, 1)}, workdir=tmp_path, max_total_jobs=3)
    numbers = [evolution.enqueue({"x": value}) for value in (0.25, 0.5)]
    assert evolution.open().store.cancel("counted", numbers) == 2
    result = evolution.run(2)
    assert (result.scheduled, result.succeeded, result.cancelled) == (3, 1, 2)
    assert "1 succeeded, 0 failed, 0 reused, 2 cancelled" in last_line(_progress(evolution), result)
    evolution.close()


def _progress(evolution: Evolution) -> SearchProgress:
    return SearchProgress(evolution.name, "ENDED", 3, 3, 3, 0, 0, 1, 0, 0, 0.0, 1.0, None, None)
