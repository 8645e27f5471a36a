"""Classes as options, with parameters that exist only where they are chosen."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tenuto import Config, Param
from tenuto.errors import SearchError
from tenuto.search import (
    Choice,
    Evolution,
    GridSearch,
    Integer,
    MapElites,
    OptunaSampler,
    Outcome,
    RandomSearch,
    Real,
    Study,
    Sub,
)
from tenuto.search.manual_candidate import add_candidate, add_table
from tenuto.search.proposals import Setup
from tenuto.search.spaces import Points, Space
from tenuto.workspace.layout import Layout
from tests.search.tasks_for_search import Fit, Forest, Svm

MODEL = Choice([Sub(Svm, C=Real(0.1, 10, log=True)), Sub(Forest, trees=Integer(5, 8))])


def told(sampler: Any, count: int = 60, space: Any = None) -> list[Any]:
    study = Study(space or {"model": MODEL, "seed": Integer(1, 3)}, sampler, seed=5)
    values = []
    for _ in range(count):
        one = study.ask()
        if one is None:
            break
        values.append(one.values["model"])
        worth = one.values["model"].trees if isinstance(one.values["model"], Forest) else 0.1
        study.tell(one.number, Outcome(worth, [worth]))
    return values


SAMPLERS = [
    RandomSearch(),
    MapElites([4], [(0, 10)], start=8),
    OptunaSampler("tpe"),
    OptunaSampler("random"),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda one: type(one).__name__)
def test_a_value_is_a_config_with_the_parameters_of_its_class(sampler: Any) -> None:
    values = told(sampler)
    assert {type(one) for one in values} == {Svm.C, Forest.C}
    assert all(0.1 <= one.C <= 10 for one in values if isinstance(one, Svm))
    assert all(5 <= one.trees <= 8 for one in values if isinstance(one, Forest))


def test_optuna_sees_conditional_parameters() -> None:
    run = OptunaSampler("tpe").begin(Setup(Space({"model": MODEL, "seed": Integer(1, 3)})))
    for number in range(1, 31):
        proposal = run.ask(number, Random(number), ())
        assert proposal is not None
        run.tell(number, proposal, Outcome(1.0))
    trials = run._study.get_trials()
    names = {frozenset(trial.params) for trial in trials}
    assert names == {
        frozenset({"model", "model.Svm.C", "seed"}),
        frozenset({"model", "model.Forest.trees", "seed"}),
    }
    wide = {"model": Choice([Sub(Svm, C=Real(0.1, 10)), Sub(Forest, trees=Integer(5, 5000))])}
    assert (
        sum(isinstance(one, Forest) for one in told(OptunaSampler("tpe"), 40, wide)[-20:]) > 12
    )  # it learns


def test_a_map_varies_within_a_branch() -> None:
    space = Space({"model": MODEL, "other": Real(0, 1, shape=4)})
    parent = {"model": {"is": "Svm", "C": 1.0}, "other": [0.5] * 4}
    rng = Random(1)
    children = [space.vary(_Step(), parent, parent, (), rng)["model"] for _ in range(50)]
    moved = [one["C"] for one in children if one["is"] == "Svm"]
    assert {one["is"] for one in children} == {"Svm", "Forest"}
    assert sum(abs(C - 10**0.2) < 1e-9 for C in moved) > len(moved) / 3


class _Step:
    def vary(self, parent: list[float], second: list[float], rng: Random) -> list[float]:
        return [one + 0.1 for one in parent]

    def definition(self) -> dict[str, Any]:
        return {}


def test_a_grid_tries_the_points_of_every_branch() -> None:
    finite = {"model": Choice([Sub(Forest, trees=Integer(5, 8)), Sub(Svm), None])}
    study = Study(finite, GridSearch(), seed=1)
    seen = []
    while (one := study.ask()) is not None:
        seen.append(one.values["model"])
        study.tell(one.number, 1.0)
    assert [getattr(one, "trees", type(one).__name__) for one in seen] == [
        5,
        6,
        7,
        8,
        "XPMConfig",
        "NoneType",
    ] or (len(seen) == 6 and seen[-1] is None)
    points = Points(Space(finite))
    assert points.count == 6
    assert [points.number(points.values(at)) for at in range(6)] == list(range(6))


def test_a_small_space_is_tried_to_its_end() -> None:
    space = {"model": Choice([Sub(Forest, trees=Integer(5, 20)), Sub(Svm)])}
    found = told(OptunaSampler("tpe"), 100, space)
    assert len(found) == 17


def test_nested_subs() -> None:
    class Inner(Config):
        model: Param[Config]
        depth: Param[int]

    space = Space({"a": Choice([Sub(Inner, model=MODEL, depth=Integer(1, 2)), 7])})
    values = list(space.examples(Random(0)))
    assert {repr(one["a"].get("model", {}).get("is")) for one in values if isinstance(one["a"], dict)} >= {
        "'Svm'",
        "'Forest'",
    }
    for one in values:
        assert space.checked(one) == one
        assert space.checked(space.realized(one)) == one


class Wide(Svm):
    """A class whose configs are configs of another one, too."""

    width: Param[int] = 1


def test_a_config_is_an_option_of_its_own_class_alone() -> None:
    space = Space({"model": Choice([Sub(Svm, C=Real(0.1, 10)), Sub(Wide, C=Real(0.1, 10))])})
    assert space.checked({"model": Wide.C(C=2.0)})["model"]["is"] == "Wide"
    with pytest.raises(SearchError, match="what does not vary has its default"):
        space.checked({"model": Wide.C(C=2.0, width=2)})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Sub(dict, a=Real(0, 1)), "class of configs"),
        (lambda: Sub(Svm, D=Real(0, 1)), "no parameter 'D'"),
        (lambda: Choice([Sub(Svm), Sub(Svm, C=Real(0.1, 1))]), "one name"),
        (lambda: Space({"m": MODEL}).checked({"m": {"is": "Svm", "C": 99}}), "C=99"),
        (lambda: Space({"m": MODEL}).checked({"m": {"is": "Svm"}}), "'C' is missing"),
        (lambda: Space({"m": MODEL}).checked({"m": {"is": "Tree"}}), "none of the options"),
        (lambda: Space({"m": MODEL}).checked({"m": "Svm"}), "none of the options"),
    ],
)
def test_an_option_that_is_none_is_refused(make: Any, words: str) -> None:
    with pytest.raises(SearchError, match=words):
        make()


def test_jobs_of_sub_spaces(tmp_path: Path) -> None:
    evolution = Evolution("fit", Fit, space={"model": MODEL}, workdir=tmp_path, max_total_jobs=12)
    first = evolution.enqueue({"model": Svm.C(C=2.0)})
    again = evolution.enqueue({"model": {"is": "Svm", "C": 2.0}}, skip_if_exists=True)
    assert first == again
    result = evolution.run(2)
    assert (result.succeeded, result.failed) == (12, 0)
    rows = result.rows()
    assert rows[0]["model"] == "Svm"
    assert rows[0]["model.C"] == 2.0
    assert {row["model"] for row in rows} == {"Svm", "Forest"}
    assert all((row["model.trees"] is None) == (row["model"] == "Svm") for row in rows)
    opened = evolution.open()
    search = opened.store.search("fit")
    assert search is not None
    evolution.max_total_jobs = None
    opened.store.redefine("fit", {**search.definition, "max_total": None})
    opened.store.reopen("fit")
    search = opened.store.search("fit")
    assert search is not None
    layout = Layout(str(tmp_path))
    number = add_candidate(opened.store, search, layout, {"model": {"is": "Forest", "trees": 5}}, 0)
    assert number == 13
    table = csv.DictReader(io.StringIO("model,model.C,objective\nSvm,3.5,0.25\nSvm,2.0,\n"))
    assert add_table(opened.store, search, layout, table, 0) == (1, 0, 1)
    evolution.close()
