"""21: Optuna as a sampler: the same as a study driven by hand, also after a rebuild."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from tenuto.errors import SearchError
from tenuto.search import Choice, Integer, OptunaSampler, Outcome, Real, Study
from tenuto.search.proposals import InFlight, Setup, chance
from tenuto.search.spaces import Space
from tests.search import oracle

SPACE: dict[str, Any] = {
    "x": Real(-2, 2, shape=2),
    "rate": Real(1e-4, 1, log=True),
    "n": Integer(1, 9),
    "kind": Choice(["a", "b"]),
}


def objective(values: dict[str, Any]) -> float:
    return -sum(x**2 for x in values["x"]) - values["rate"] + values["n"] / 10


def proposals(kind: str, count: int) -> list[Any]:
    study = Study(SPACE, OptunaSampler(kind), seed=3)
    found = []
    for _ in range(count):
        candidate = study.ask()
        assert candidate is not None
        found.append(candidate.values)
        study.tell(
            candidate.number, None if candidate.number % 7 == 0 else Outcome(objective(candidate.values))
        )
    return found


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_21_proposals_are_those_of_the_study_driven_by_hand(kind: str) -> None:
    count = 25
    found = proposals(kind, count)
    assert found == proposals(kind, count)
    make = {"random": oracle.optuna.samplers.RandomSampler, "tpe": oracle.optuna.samplers.TPESampler}[kind]
    more = {"constant_liar": True} if kind == "tpe" else {}
    kinds = oracle.optuna.distributions
    space = {
        "x[0]": kinds.FloatDistribution(-2, 2),
        "x[1]": kinds.FloatDistribution(-2, 2),
        "rate": kinds.FloatDistribution(1e-4, 1, log=True),
        "n": kinds.IntDistribution(1, 9),
        "kind": kinds.CategoricalDistribution(["a", "b"]),
    }
    study = oracle.optuna.create_study(direction="maximize")
    for number, values in enumerate(found, 1):
        study.sampler = make(seed=chance(3, number, 0).getrandbits(32), **more)
        trial = study.ask(space)
        mine = {
            "x": [trial.params["x[0]"], trial.params["x[1]"]],
            **{k: trial.params[k] for k in ("rate", "n", "kind")},
        }
        assert mine == values, number
        if number % 7 == 0:
            study.tell(trial, state=oracle.optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, objective(mine))


def test_21_twenty_in_flight_are_twenty_different_points() -> None:
    study = Study({"x": Real(0, 1)}, OptunaSampler("tpe", n_startup_trials=3), seed=1)
    for _ in range(6):
        candidate = study.ask()
        assert candidate is not None
        study.tell(candidate.number, Outcome(candidate.values["x"]))
    flying = [study.ask() for _ in range(20)]
    assert len({candidate.values["x"] for candidate in flying if candidate}) == 20


def test_21_what_optuna_has_not_is_refused() -> None:
    with pytest.raises(SearchError, match="tpe"):
        OptunaSampler("magic")
    with pytest.raises(SearchError, match="space"):
        Study(sampler=OptunaSampler(), start=lambda rng: 1, vary=lambda p, i, rng: 2)
    for wrong in (OptunaSampler("tpe", bogus=1), OptunaSampler(lambda seed: 3)):
        with pytest.raises(SearchError, match="OptunaSampler"):
            Study({"x": Real(0, 1)}, wrong)


def test_21_a_study_is_kept_between_proposals_and_equals_one_built_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []
    library = importlib.import_module("optuna")
    create = library.create_study
    monkeypatch.setattr(library, "create_study", lambda **options: made.append(1) or create(**options))
    declared = OptunaSampler("tpe", n_startup_trials=4)
    setup = Setup(Space(SPACE), True, 3)
    kept, flying, told = declared.begin(setup), [], []
    for number in range(1, 40):
        anew = declared.begin(setup)
        for one, outcome in told:
            anew.tell(one.number, one.proposal, outcome)
        for attempt in (0, 1):  # the second is the proposal of a candidate whose first was tried already
            expected = anew.ask(number, chance(3, number, attempt), flying)
            proposal = kept.ask(number, chance(3, number, attempt), flying)
            assert proposal == expected
        assert proposal is not None
        flying.append(InFlight(number, proposal))
        if len(flying) == 3:
            one = flying.pop(number % 3)
            outcome = None if number % 5 == 0 else Outcome(objective(one.proposal.values))
            kept.tell(one.number, one.proposal, outcome)
            told.append((one, outcome))
    assert len(made) == 39 + 1


@pytest.mark.filterwarnings("ignore:QMCSampler is experimental")
@pytest.mark.parametrize("kind", ["CmaEsSampler", "QMCSampler"])
def test_21_a_sampler_with_state_of_its_own_is_refused(kind: str) -> None:
    made = OptunaSampler(lambda seed: getattr(oracle.optuna.samplers, kind)(seed=seed))
    with pytest.raises(SearchError, match=kind):
        Study({"x": Real(0, 1)}, made)


def test_21_a_sampler_whose_library_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SearchError, match="needs torch: pip install torch"):
        Study({"x": Real(0, 1)}, OptunaSampler("gp"))
