"""The pure part of a search: outcomes, spaces, variations, samplers, studies."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import SearchError
from tenuto.search import (
    Choice,
    Gaussian,
    GridSearch,
    Integer,
    IsoLine,
    MapElites,
    Mixed,
    OptunaSampler,
    Outcome,
    RandomSearch,
    Real,
    Repository,
    Study,
    Verdict,
)
from tenuto.search.outcome import read_outcome
from tenuto.search.proposals import Proposal
from tenuto.search.spaces import Space
from tests.search import oracle

SPACE: dict[str, Any] = {
    "x": Real(-2, 2, shape=3),
    "rate": Real(1e-4, 1, log=True),
    "layers": Integer(1, 9),
    "kind": Choice(["a", "b", None]),
}
SAMPLER = MapElites(cells=[8, 8], ranges=[(-2, 2), (-2, 2)], start=8)


def evaluate(values: dict[str, Any]) -> Outcome:
    x = values["x"]
    return Outcome(-sum(part**2 for part in x) + values["layers"] / 10, [x[0], x[1]])


def told(study: Study, count: int, in_flight: int = 4) -> list[object]:
    """The proposals of a study whose candidates end in an order of their own, some badly."""
    proposals, flying = [], []
    order = random.Random(7)
    while len(proposals) < count:
        candidate = study.ask()
        assert candidate is not None
        proposals.append(candidate)
        flying.append(candidate)
        if len(flying) >= in_flight:
            ended = flying.pop(order.randrange(len(flying)))
            study.tell(ended.number, None if ended.number % 9 == 0 else evaluate(ended.values))
    return list(proposals)


# -- 17: the same seed, the same proposals ---------------------------------------------------------


def test_17_the_same_seed_and_outcomes_give_the_same_proposals() -> None:
    assert told(Study(SPACE, SAMPLER, seed=3), 100) == told(Study(SPACE, SAMPLER, seed=3), 100)
    assert told(Study(SPACE, SAMPLER, seed=3), 100) != told(Study(SPACE, SAMPLER, seed=4), 100)


def test_17_proposals_do_not_depend_on_the_process() -> None:
    script = "from tests.search.test_pure import *; print(told(Study(SPACE, SAMPLER, seed=3), 60))"
    root = Path(__file__).parents[2]
    printed = {
        subprocess.check_output(
            [sys.executable, "-c", script], cwd=root, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_17_proposals_are_golden() -> None:
    """A new version must go on where a stored search stopped."""
    first, last = (told(Study(SPACE, SAMPLER, seed=3), 40)[number] for number in (0, -1))
    assert first.values == {  # type: ignore[attr-defined]
        "x": [-0.666932547864048, 1.8709067392059406, -1.639532473307038],
        "rate": pytest.approx(0.005677394455273523),
        "layers": 1,
        "kind": "a",
    }
    assert (last.parent, last.inspirations) == (31, (3, 14, 4))  # type: ignore[attr-defined]


def test_islands_evolve_apart_until_they_migrate() -> None:
    sampler = MapElites([4], [(0, 1)], start=4, islands=2, migrate_every=10, migrants=1)
    study = Study({"x": Real(0, 1)}, sampler, seed=1)
    parents: dict[int, set[int | None]] = {0: set(), 1: set()}
    for _ in range(9):
        candidate = study.ask()
        assert candidate is not None
        parents[candidate.number % 2].add(candidate.parent)
        study.tell(candidate.number, Outcome(candidate.values["x"], [candidate.values["x"]]))
    for island, found in parents.items():
        assert all(parent is None or parent % 2 == island for parent in found)
    for _ in range(60):
        candidate = study.ask()
        assert candidate is not None
        parents[candidate.number % 2].add(candidate.parent)
        study.tell(candidate.number, Outcome(candidate.values["x"], [candidate.values["x"]]))
    assert any(parent is not None and parent % 2 for parent in parents[0])


def test_inspirations_are_the_nearest_other_elites() -> None:
    study = Study({"x": Real(0, 1)}, MapElites([20], [(0, 1)], start=20, inspirations=2), seed=1)
    values: dict[int, float] = {}
    for _ in range(60):
        candidate = study.ask()
        assert candidate is not None
        x = candidate.values["x"]
        values[candidate.number] = x
        if candidate.parent is not None:
            assert len(set(candidate.inspirations)) == 2
            assert candidate.parent not in candidate.inspirations
            cell = int(values[candidate.parent] * 20)
            assert min(abs(int(values[n] * 20) - cell) for n in candidate.inspirations) <= 3
        study.tell(candidate.number, Outcome(x, [x]))


def test_objects_are_made_and_changed_by_functions() -> None:
    def change(parent: list[int], inspirations: list[list[int]], rng: random.Random) -> list[int]:
        return [*parent, rng.randrange(10)]

    study = Study(
        sampler=MapElites([10], [(0, 10)], start=2), start=lambda rng: [rng.randrange(10)], vary=change
    )
    for _ in range(30):
        candidate = study.ask()
        assert candidate is not None
        study.tell(candidate.number, Outcome(sum(candidate.values), [len(candidate.values)]))
    assert study.best is not None
    assert len(study.best.values) > 2


def test_an_own_sampler_needs_only_ask_and_tell() -> None:
    class Own:
        def __init__(self) -> None:
            self.told: list[int] = []

        def ask(self, number: int, rng: random.Random, in_flight: object) -> Proposal:
            return Proposal({"x": number / 10})

        def tell(self, number: int, proposal: Proposal, outcome: object) -> tuple[Verdict, None]:
            self.told.append(number)
            return Verdict.NEW, None

    mine = Own()
    study = Study({"x": Real(0, 1)}, mine)
    candidate = study.ask()
    assert candidate is not None
    study.tell(candidate.number, 1.0)
    assert mine.told == []  # a search begins with a copy, so that it can be rebuilt
    with pytest.raises(SearchError, match="no sampler"):
        Study({"x": Real(0, 1)}, object())


# -- 19: nothing twice -----------------------------------------------------------------------------


class Stubborn:
    """A sampler that has one idea."""

    def ask(self, number: int, rng: random.Random, in_flight: object) -> Proposal:
        return Proposal({"n": 2, "flag": True})

    def tell(self, number: int, proposal: Proposal, outcome: object) -> tuple[Verdict, None]:
        return Verdict.NEW, None


def asked_out(study: Study, flying: int = 1) -> list[Any]:
    """All candidates of a study with so many in flight, each worth its n."""
    seen: list[Any] = []
    waiting: list[Any] = []
    while True:
        candidate = study.ask()
        if candidate is not None:
            seen.append(candidate.values)
            waiting.append(candidate)
        if len(waiting) >= flying or candidate is None:
            if not waiting:
                return seen
            told = waiting.pop(0)
            n = told.values["n"]
            study.tell(told.number, None if len(seen) % 5 == 0 else Outcome(n, [n]))


@pytest.mark.parametrize("flying", [1, 5])
@pytest.mark.parametrize(
    "sampler",
    [RandomSearch(), GridSearch(), MapElites([3], [(0, 3)], start=2), OptunaSampler("tpe"), Stubborn()],
    ids=lambda sampler: type(sampler).__name__,
)
def test_19_a_small_space_is_tried_whole_and_nothing_comes_twice(sampler: Any, flying: int) -> None:
    space = {"n": Integer(0, 3), "flag": Choice([True, False, True])}
    seen = list(map(repr, asked_out(Study(space, sampler, seed=1), flying)))
    assert len(seen) == len(set(seen)) == 8
    assert seen == list(map(repr, asked_out(Study(space, sampler, seed=1), flying)))


@pytest.mark.parametrize("sampler", [RandomSearch(), MapElites([9], [(0, 9)])], ids=["random", "map"])
def test_19_two_hundred_and_seventy_combinations_are_all_tried(sampler: Any) -> None:
    space = {
        "n": Integer(1, 9),
        "size": Integer(1, 1024, log=True),
        "kind": Choice(["a", "b", "c"]),
        "flag": Choice([True, False, None, 1, 1.5]),
    }
    space["size"] = Choice([16, 64])
    seen = asked_out(Study(space, sampler, seed=2), 4)
    assert len({repr(values) for values in seen}) == len(seen) == 270


def test_19_the_untried_point_is_the_nearest_to_the_proposal() -> None:
    seen = asked_out(Study({"n": Integer(0, 6), "flag": Choice([True, False])}, Stubborn()))
    assert [values["n"] for values in seen if values["flag"]] == [2, 1, 3, 0, 4, 5, 6]
    assert seen[1] == {"n": 1, "flag": True}


def test_19_a_proposal_beside_the_space_is_followed_by_points_inside() -> None:
    seen = asked_out(Study({"n": Integer(3, 6), "flag": Choice([True, False])}, Stubborn()))
    assert seen[0] == {"n": 2, "flag": True}
    assert len({repr(values) for values in seen[1:]}) == 8


def test_19_a_large_space_of_whole_numbers_goes_on_by_chance() -> None:
    study = Study({"n": Integer(0, 5), "flag": Choice([True, False]), "m": Integer(1, 10**9)}, Repeats())
    seen = [study.ask() for _ in range(50)]
    assert len({repr(candidate.values) for candidate in seen if candidate}) == 50


def test_19_a_large_space_is_tried_to_its_end() -> None:
    study = Study({"n": Integer(0, 10_002)}, Repeats())
    seen = asked_out(study)
    assert sorted(values["n"] for values in seen) == list(range(10_003))


class Repeats(Stubborn):
    def ask(self, number: int, rng: random.Random, in_flight: object) -> Proposal:
        return Proposal({"n": 0, "flag": True, "m": 1})


def test_a_grid_tries_every_combination() -> None:
    study = Study({"x": Real(0, 1, shape=2), "kind": Choice(["ab", "b", "c"])}, GridSearch(3))
    seen = []
    while (candidate := study.ask()) is not None:
        seen.append((*candidate.values["x"], candidate.values["kind"]))
    assert len(seen) == 27
    assert seen[0] == (0.0, 0.0, "ab")
    assert seen[-1] == (1.0, 1.0, "c")


@pytest.mark.parametrize("flying", [1, 4])
def test_a_grid_has_each_option_and_each_whole_number_once(flying: int) -> None:
    space: dict[str, Any] = {"n": Integer(1, 30), "kind": Choice([1, 1, 2])}
    seen = [(values["n"], values["kind"]) for values in asked_out(Study(space, GridSearch()), flying)]
    assert seen == [(n, kind) for n in range(1, 31) for kind in (1, 2)]
    fewer = asked_out(Study(space, GridSearch(steps=3)), flying)
    assert [(values["n"], values["kind"]) for values in fewer] == [
        (n, kind) for n in (6, 16, 26) for kind in (1, 2)
    ]


# -- spaces and variations -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dimension", [Real(-3, 5), Real(1e-6, 10, log=True), Integer(-4, 9), Integer(1, 1000, log=True)]
)
def test_values_and_units_correspond(dimension: Any) -> None:
    rng = random.Random(1)
    for _ in range(200):
        value = dimension.draw(rng)
        assert dimension.low <= value <= dimension.high
        [unit] = dimension.to_units(value)
        assert 0 <= unit <= 1
        assert dimension.from_units([unit]) == pytest.approx(value)
    assert dimension.from_units([0.0]) == dimension.low
    assert dimension.from_units([1.0]) == dimension.high


def test_integers_are_equally_likely() -> None:
    rng = random.Random(1)
    counts = [0] * 3
    for _ in range(3000):
        counts[Integer(0, 2).draw(rng)] += 1
    assert min(counts) > 900


@pytest.mark.parametrize(
    "variation", [IsoLine(), Gaussian(0.3), Mixed(IsoLine(), Gaussian(), weights=[1, 3])]
)
def test_a_child_stays_in_its_space(variation: Any) -> None:
    rng = random.Random(1)
    space = Space(SPACE)
    for _ in range(200):
        child = space.vary(variation, space.draw(rng), space.draw(rng), [], rng)
        assert all(-2 <= part <= 2 for part in child["x"])
        assert 1e-4 <= child["rate"] <= 1
        assert child["layers"] in range(1, 10)
        assert child["kind"] in ("a", "b", None)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Real(1, 0), "below"),
        (lambda: Real(0, math.inf), "finite"),
        (lambda: Real(0, 1, log=True), "above 0"),
        (lambda: Real(0, 1, shape=0), "shape"),
        (lambda: Integer(0, 1.5), "whole"),  # type: ignore[arg-type]
        (lambda: Choice([]), "list"),
        (lambda: Choice("abc"), "list"),
        (lambda: Choice([object()]), "plain"),
        (lambda: MapElites([5], [(0, 1), (0, 1)]), "measure"),
        (lambda: MapElites([5], [(1, 0)]), "empty"),
        (lambda: MapElites(0, [(0, 1)]), "above 0"),
        (lambda: MapElites([5], [(0, 1)], islands=0), "islands"),
        (lambda: MapElites([5], [(0, 1)], measures=["a", "b"]), "measures"),
        (lambda: GridSearch(0), "steps"),
        (lambda: Study({}, RandomSearch()), "space"),
        (lambda: Study({"x": 3}, RandomSearch()), "'x'"),  # type: ignore[dict-item]
        (lambda: Study({"x": Real(0, 1)}), "sampler"),
        (lambda: Study({"x": Real(0, 1)}, RandomSearch(), direction="up"), "max"),
        (lambda: Study(sampler=RandomSearch()), "either"),
        (lambda: IsoLine(-1), "deviation"),
        (Mixed, "variations"),
        (lambda: Mixed(IsoLine(), weights=[math.nan]), "weights"),
        (lambda: Real(-1.7e308, 1.7e308), "finite"),
        (lambda: Integer(0, 2**62), "give a Real"),
        (lambda: Integer(1, 2**1100, log=True), "a number"),
        (lambda: MapElites([5], [(0, 1)], offset=math.nan), "offset"),
        (lambda: MapElites([5], [(0, 1)], epsilon=-1), "epsilon"),
        (lambda: MapElites([5, 5], [(0, 1)] * 2, measures=["a", "a"]), "own"),
        (lambda: Repository(".", agent="a 'b", evaluate="c"), "quotation"),
        (lambda: Repository(".", agent="a", evaluate="c", agent_s=math.inf), "agent_s"),
        (lambda: Repository(".", agent="a", evaluate="c", pass_variables=["A B"]), "pass_variables"),
        (
            lambda: Repository(".", agent="a", evaluate=[["b"], ["c"]], thresholds=[math.nan]),
            "thresholds",
        ),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused_at_the_call(make: Any, words: str) -> None:
    with pytest.raises(SearchError, match=words):
        make()


def test_the_largest_range_of_whole_numbers_is_drawn_from_and_tried() -> None:
    study = Study({"n": Integer(-(2**60), 2**60)}, GridSearch(3))
    found = [candidate.values["n"] for _ in range(3) if (candidate := study.ask()) is not None]
    assert len(set(found)) == 3
    assert study.ask() is None


# -- outcomes --------------------------------------------------------------------------------------


def test_a_task_may_return_a_number_a_mapping_or_an_outcome() -> None:
    assert read_outcome(3).objective == 3.0
    found = read_outcome({"combined_score": 0.5, "measures": [1, 2], "cost": 0.1, "accuracy": 0.9})
    assert (found.objective, found.measures, found.cost) == (0.5, (1.0, 2.0), 0.1)
    assert found.metrics == {"accuracy": 0.9}
    by_name = {"objective": 1, "measures": {"b": 2.0, "a": 1.0}}
    assert read_outcome(by_name, ["a", "b"], 2).measures == (1.0, 2.0)
    assert read_outcome({"objective": 1, "a": 4, "b": 5}, ["a", "b"], 2).measures == (4.0, 5.0)


@pytest.mark.parametrize(
    "returned",
    [
        None,
        "text",
        math.nan,
        math.inf,
        True,
        [1, 2],
        {},
        {"objective": "1"},
        {"objective": math.nan, "cost": 0.5},
        {"objective": 1, "measures": [math.nan, 1]},
        {"objective": 1, "measures": [1]},
        {"objective": 1, "measures": {"a": 1}},
        {"objective": 1, "measures": "ab"},
        {"objective": 1, "measures": [1, 2], "failure": "no"},
    ],
)
def test_a_value_that_is_no_outcome_is_a_failure_with_words(returned: Any) -> None:
    found = read_outcome(returned, ["a", "b"], 2)
    assert found.failure
    if isinstance(returned, dict):
        assert found.cost == returned.get("cost", 0.0)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"x": [0.5, 1.5], "n": 2, "kind": "a"}, "x.*1.5"),
        ({"x": [0.5, math.nan], "n": 2, "kind": "a"}, "x.*nan"),
        ({"x": 0.5, "n": 2, "kind": "a"}, "x=0.5.*lengths"),
        ({"x": [0.5], "n": 2, "kind": "a"}, "x.*lengths"),
        ({"x": [0.5, "1"], "n": 2, "kind": "a"}, "x.*'1'"),
        ({"x": [0.5, 1], "n": 2.5, "kind": "a"}, "n=2.5"),
        ({"x": [0.5, 1], "n": True, "kind": "a"}, "n=True"),
        ({"x": [0.5, 1], "n": 10, "kind": "a"}, "n=10"),
        ({"x": [0.5, 1], "n": 2, "kind": "b"}, "kind='b'"),
        ({"x": [0.5, 1], "n": 2}, "'kind' is missing"),
        ({"x": [0.5, 1], "n": 2, "kind": "a", "more": 1}, "'more' is not varied"),
        (3, "mapping"),
    ],
)
def test_values_outside_the_space_are_refused_by_name(values: Any, words: str) -> None:
    space = Space({"x": Real(0, 1, shape=2), "n": Integer(1, 9), "kind": Choice(["a", None, 1])})
    with pytest.raises(SearchError, match=words):
        space.checked(values)


def test_values_inside_the_space_are_of_its_kind() -> None:
    space = Space({"x": Real(0, 1, shape=2), "n": Integer(1, 9), "kind": Choice(["a", None, 1, True])})
    numpy = oracle.np
    found = space.checked({"x": numpy.array([0, 1]), "n": numpy.int64(3), "kind": True})
    assert repr(found) == repr({"x": [0.0, 1.0], "n": 3, "kind": True})
    assert repr(space.checked({"x": (1, 0.5), "n": 3.0, "kind": None})["x"]) == "[1.0, 0.5]"


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = oracle.np
    made = [
        Outcome(numpy.float32(1), numpy.array([0.5]), cost=numpy.float64(2)),
        Outcome(numpy.int64(1), [numpy.float32(0.5)], cost=2),
        Outcome(numpy.array(1.0), (numpy.array(0.5),), cost=numpy.array(2)),
        {"objective": numpy.float32(1), "measures": numpy.array([0.5]), "cost": numpy.int8(2)},
    ]
    for outcome in made:
        study = Study({"x": Real(0, 1)}, MapElites([2], [(0, 1)]))
        candidate = study.ask()
        assert candidate is not None
        assert study.tell(candidate.number, outcome) is Verdict.NEW
        assert repr(read_outcome(outcome, (), 1)[:3]) == "(1.0, (0.5,), 2.0)"
    assert read_outcome(numpy.float32(3)).objective == 3


@pytest.mark.parametrize(
    "outcome",
    [(1.0, [0.5]), "1", Outcome("1"), Outcome(1.0), Outcome(1.0, "ab"), Outcome(), Outcome(1, ["a"])],
)
def test_a_study_refuses_what_is_no_outcome_with_words(outcome: Any) -> None:
    study = Study({"x": Real(0, 1)}, MapElites([2], [(0, 1)]))
    candidate = study.ask()
    assert candidate is not None
    with pytest.raises(SearchError, match=f"candidate {candidate.number}"):
        study.tell(candidate.number, outcome)
    assert study.tell(candidate.number, Outcome(1.0, [0.5])) is Verdict.NEW


@pytest.mark.parametrize(
    "outcome", [None, math.nan, Outcome(math.inf), Outcome(1, [math.nan]), {"failure": "no"}]
)
def test_a_study_takes_a_failure_for_one(outcome: Any) -> None:
    study = Study({"x": Real(0, 1)}, MapElites([2], [(0, 1)]))
    candidate = study.ask()
    assert candidate is not None
    assert study.tell(candidate.number, outcome) is Verdict.FAILED


@pytest.mark.parametrize(
    ("returned", "words"),
    [(Outcome(1, cost=-0.5), "below 0"), (Outcome(1, cost=math.nan), "nan"), (Outcome(10**400), "finite")],
)
def test_a_cost_below_0_and_a_number_without_end_are_failures(returned: Outcome, words: str) -> None:
    found = read_outcome(returned)
    assert words in str(found.failure)
    assert found.cost == 0


def test_smaller_is_better_where_the_direction_says_so() -> None:
    study = Study({"x": Real(0, 1)}, MapElites([2], [(0, 1)]), direction="min", seed=1)
    for _ in range(30):
        candidate = study.ask()
        assert candidate is not None
        study.tell(candidate.number, Outcome(candidate.values["x"], [0.5]))
    assert study.archive is not None
    assert study.best == study.archive.best
    assert study.best is not None
    assert study.best.objective < 0.1
    assert study.archive.qd_score == -study.best.objective


def test_telling_twice_or_what_was_not_asked_is_refused() -> None:
    study = Study({"x": Real(0, 1)}, RandomSearch())
    candidate = study.ask()
    assert candidate is not None
    study.tell(candidate.number, 1.0)
    for number in (candidate.number, 99):
        with pytest.raises(SearchError, match=str(number)):
            study.tell(number, 1.0)


@pytest.mark.parametrize(
    ("method", "answer", "words"),
    [("ask", {"x": 1}, "give a Proposal"), ("tell", None, "give a Verdict"), ("tell", (1, 2), "a Verdict")],
)
def test_a_sampler_of_the_user_that_answers_otherwise_is_told_so(
    method: str, answer: Any, words: str
) -> None:
    class Own:
        def ask(self, number: int, rng: Any, in_flight: Any) -> Any:
            return Proposal({"x": 0.5})

        def tell(self, number: int, proposal: Any, outcome: Any) -> Any:
            return Verdict.NEW, None

    own = Own()
    setattr(own, method, lambda *_: answer)
    study = Study({"x": Real(0, 1)}, own)
    with pytest.raises(SearchError, match=words):
        study.tell(study.ask().number, 1.0)  # type: ignore[union-attr]
    del study._sampler.__dict__[method]
    if method == "tell":  # it is still in flight
        assert study.tell(1, 1.0) is Verdict.NEW
