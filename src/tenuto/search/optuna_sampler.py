"""Optuna's samplers as samplers of a search: a fresh one for each proposal, on a study rebuilt from the log.
So a proposal depends on the seed, its number and what was told, and on nothing that a restart would lose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import SearchError
from tenuto.light import late
from tenuto.search.archive import Verdict
from tenuto.search.outcome import Outcome
from tenuto.search.plain_samplers import Remembering
from tenuto.search.proposals import InFlight, Proposal, Setup
from tenuto.search.spaces import Choice, Integer, Numeric, Space
from tenuto.tasks.arguments import guarded

if TYPE_CHECKING:
    from random import Random

optuna: Any = late("optuna")
_KINDS = {"tpe": "TPESampler", "random": "RandomSampler", "gp": "GPSampler"}


@guarded
class OptunaSampler:
    """Optuna's TPE, random or Gaussian-process sampler, or one of your own making.

    `kind`: "tpe", "random", "gp", or a function of a seed that returns a sampler; `options` are passed on to
    Optuna's. A sampler that keeps state of its own between proposals (QMC, CMA-ES) begins anew with each.
    """

    def __init__(self, kind: str | Callable[[int], Any] = "tpe", **options: Any) -> None:
        if isinstance(kind, str) and kind not in _KINDS:
            raise SearchError(
                f"OptunaSampler({kind!r}): give one of {', '.join(_KINDS)}, or a function of a seed"
            )
        self._kind = kind
        self._options = options

    def definition(self) -> dict[str, Any]:
        name = self._kind if isinstance(self._kind, str) else getattr(self._kind, "__qualname__", "own")
        return {"kind": "optuna", "sampler": name, "options": {k: repr(v) for k, v in self._options.items()}}

    def begin(self, setup: Setup) -> OptunaRun:
        if not isinstance(setup.domain, Space):
            raise SearchError("OptunaSampler needs a space: it cannot vary objects that functions make")
        return OptunaRun(self.make, setup, setup.domain)

    def make(self, seed: int) -> Any:
        """A fresh sampler of Optuna's."""
        if not isinstance(self._kind, str):
            return self._kind(seed)
        kinds = optuna.samplers
        options = {"constant_liar": True, **self._options} if self._kind == "tpe" else self._options
        return getattr(kinds, _KINDS[self._kind])(seed=seed, **options)


class OptunaRun(Remembering):
    """Optuna in the course of one search."""

    def __init__(self, make: Callable[[int], Any], setup: Setup, space: Space) -> None:
        super().__init__(setup.maximize)
        _check_installed()
        self._make = make
        self._space = space
        self._direction = "maximize" if setup.maximize else "minimize"
        self._distributions = {
            name: distribution
            for key, dimension in space.dimensions.items()
            for name, distribution in _distributions(key, dimension)
        }
        self._told: list[Any] = []
        self._asked: tuple[Any, Any, Any] | None = None
        """What was told and in flight at the last question, its study, and the trial that was the answer."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def ask(self, number: int, rng: Random, in_flight: Sequence[InFlight]) -> Proposal | None:
        states = optuna.trial.TrialState
        state = (number, len(self._told), [flying.number for flying in in_flight])
        if self._asked is None or self._asked[0] != state:
            study = optuna.create_study(direction=self._direction)
            study.add_trials(self._told)
            study.add_trials([self._trial(flying.proposal, states.RUNNING) for flying in in_flight])
        else:  # asked for another proposal: the study, of hundreds of trials, stays
            _, study, trial = self._asked
            study.tell(trial, state=states.FAIL)
        study.sampler = self._make(rng.getrandbits(32))
        trial = study.ask(self._distributions)
        self._asked = (state, study, trial)
        return Proposal(self._values(trial.params))

    def tell(self, number: int, proposal: Proposal, outcome: Outcome | None) -> tuple[Verdict, int | None]:
        states = optuna.trial.TrialState
        objective = None if outcome is None else outcome.objective
        state = states.FAIL if objective is None else states.COMPLETE
        self._told.append(self._trial(proposal, state, objective))
        return super().tell(number, proposal, outcome)

    def _trial(self, proposal: Proposal, state: Any, value: float | None = None) -> Any:
        return optuna.trial.create_trial(
            state=state, value=value, params=self._params(proposal.values), distributions=self._distributions
        )

    def _params(self, values: dict[str, Any]) -> dict[str, Any]:
        params: dict[str, Any] = {}
        for key, dimension in self._space.dimensions.items():
            entries = _entries(dimension, values[key])
            params |= dict(zip(_names(key, dimension), entries, strict=True))
        return params

    def _values(self, params: dict[str, Any]) -> dict[str, Any]:
        values = {}
        for key, dimension in self._space.dimensions.items():
            entries = [params[name] for name in _names(key, dimension)]
            values[key] = dimension.nested(entries) if isinstance(dimension, Numeric) else entries[0]
        return values


def _check_installed() -> None:
    try:
        assert optuna.samplers
    except ModuleNotFoundError:
        raise SearchError("OptunaSampler needs Optuna: pip install 'tenuto[optuna]'") from None


def _names(key: str, dimension: Numeric | Choice) -> list[str]:
    if isinstance(dimension, Numeric) and dimension.shape:
        return [f"{key}[{at}]" for at in range(dimension.size)]
    return [key]


def _entries(dimension: Numeric | Choice, value: Any) -> list[Any]:
    if isinstance(dimension, Numeric) and dimension.shape:
        return dimension.flat(value)
    return [value]


def _distributions(key: str, dimension: Numeric | Choice) -> list[tuple[str, Any]]:
    kinds = optuna.distributions
    if isinstance(dimension, Choice):
        return [(key, kinds.CategoricalDistribution(dimension.options))]
    kind = kinds.IntDistribution if isinstance(dimension, Integer) else kinds.FloatDistribution
    return [(name, kind(dimension.low, dimension.high, log=dimension.log)) for name in _names(key, dimension)]
