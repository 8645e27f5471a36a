"""Optuna's samplers as samplers of a search: a fresh one for each proposal, on a study that follows the log.
So a proposal depends on the seed, its number and the told outcomes, and on nothing that a restart would lose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tenuto.errors import SearchError
from tenuto.light import late
from tenuto.search.archive import Verdict
from tenuto.search.outcome import Outcome
from tenuto.search.plain_samplers import Remembering
from tenuto.search.proposals import InFlight, Proposal, Setup
from tenuto.search.spaces import IS, Choice, Integer, Numeric, Space, Sub
from tenuto.tasks.arguments import guarded_by

if TYPE_CHECKING:
    from random import Random

optuna: Any = late("optuna")
_STATEFUL = ("CmaEsSampler", "QMCSampler")
_KINDS = {"tpe": "TPESampler", "random": "RandomSampler", "gp": "GPSampler", "nsga2": "NSGAIISampler"}
_CONSTRAINTS = "constraints"
"""The attribute of a trial in which Optuna keeps them."""
_LATE = -1
"""The generation of a trial that ended after its generation was complete."""


@guarded_by(SearchError)
class OptunaSampler:
    """Optuna's TPE, random, NSGA-II or Gaussian-process sampler, or one of your own making.

    `kind`: "tpe", "random", "nsga2", "gp", or a function of a seed that returns a sampler; `options` are
    passed on to Optuna's. A sampler that keeps state of its own between proposals (QMC, CMA-ES) is refused.
    """

    def __init__(self, kind: str | Callable[[int], Any] = "tpe", **options: Any) -> None:
        if isinstance(kind, str) and kind not in _KINDS:
            raise SearchError(
                f"OptunaSampler({kind!r}): give one of {', '.join(_KINDS)}, or a function of a seed"
            )
        self._kind = kind
        self._options = options

    @property
    def has_front(self) -> bool:
        """Whether it takes several objectives."""
        return self._kind != "gp"

    def definition(self) -> dict[str, Any]:
        name = self._kind if isinstance(self._kind, str) else getattr(self._kind, "__qualname__", "own")
        return {"kind": "optuna", "sampler": name, "options": {k: repr(v) for k, v in self._options.items()}}

    def begin(self, setup: Setup) -> OptunaRun:
        if not isinstance(setup.domain, Space):
            raise SearchError("OptunaSampler needs a space: it cannot vary objects that functions make")
        try:
            if self._kind == "gp":
                for name in ("scipy", "torch"):  # Optuna imports them at the first proposal
                    import_module(name)
            made = self.make(0)
        except (TypeError, ValueError) as error:
            raise SearchError(f"OptunaSampler({self._kind!r:.80}): {error}") from error
        except ImportError as error:
            missing = error.name or "Optuna"
            remedy = "'tenuto[optuna]'" if missing == "optuna" else missing
            raise SearchError(f"OptunaSampler needs {missing}: pip install {remedy}") from None
        kind = type(made).__name__
        if not isinstance(made, optuna.samplers.BaseSampler):
            raise SearchError(f"OptunaSampler: {made!r:.80} is no sampler of Optuna")
        if kind in _STATEFUL:
            raise SearchError(
                f"OptunaSampler: {kind} keeps state between proposals, which a restart would lose; "
                f"take 'tpe', 'gp', or RibsSampler for CMA-ES"
            )
        return OptunaRun(self.make, setup, setup.domain)

    def make(self, seed: int) -> Any:
        """A fresh sampler of Optuna's."""
        if not isinstance(self._kind, str):
            return self._kind(seed)
        kinds = optuna.samplers
        options = {"constant_liar": True, **self._options} if self._kind == "tpe" else dict(self._options)
        if self._kind in ("tpe", "nsga2") and not hasattr(optuna.trial.Trial, "set_constraint"):
            options.setdefault("constraints_func", _constraints_of)  # of Optuna 4, which asks for it
        return getattr(kinds, _KINDS[self._kind])(seed=seed, **options)


class OptunaRun(Remembering):
    """Optuna in the course of one search.

    The study is kept between proposals. Its trials stand in the order of the candidates' numbers, and a trial
    that became no candidate has failed, which no sampler counts: so a study that is built anew from the told
    outcomes and the rows in flight proposes the same.
    """

    def __init__(self, make: Callable[[int], Any], setup: Setup, space: Space) -> None:
        super().__init__(setup)
        self._make = make
        self._space = space
        directions = setup.directions or (setup.maximize,)
        self._directions = ["maximize" if is_larger else "minimize" for is_larger in directions]
        breeding = make(0)
        is_breeding = hasattr(breeding, "get_parent_population")
        self._size: int | None = breeding.population_size if is_breeding else None
        self._population: Counter[int] = Counter()
        self._late: set[int] = set()
        self._pruned: dict[int, tuple[int, float]] = {}
        self._told: dict[int, tuple[Proposal, Outcome | None]] = {}
        self._study: Any = None
        self._trials: dict[int, tuple[int, Any]] = {}
        """Candidate -> its trial in the study, and its values."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def ask(self, number: int, rng: Random, in_flight: Sequence[InFlight]) -> Proposal | None:
        if self._study is None:
            self._build(in_flight)
        states = optuna.trial.TrialState
        for other in [other for other in self._trials if other >= number]:  # it was not taken, or is anew
            self._study.tell(self._trials.pop(other)[0], state=states.FAIL)
        for flying in in_flight:
            known = self._trials.get(flying.number)
            if known is None or known[1] != flying.proposal.values:
                if known is not None:
                    self._study.tell(known[0], state=states.FAIL)
                self._append(flying.number, flying.proposal, states.RUNNING)
        self._study.sampler = self._fresh(rng.getrandbits(32))
        if self._size is not None and self._population:
            newest = max(self._population)
            grown = newest + (self._population[newest] >= self._size)
            # Optuna gives the parents in another order when it chooses them than when it finds them again.
            self._study.sampler.get_parent_population(self._study, grown)
        trial = self._study.ask()
        values = {key: _suggested(trial, key, one) for key, one in self._space.dimensions.items()}
        self._trials[number] = (trial.number, values)
        return Proposal(values, island=self._generation_of(trial))

    def tell(self, number: int, proposal: Proposal, outcome: Outcome | None) -> tuple[Verdict, int | None]:
        is_first = number not in self._told
        self._told[number] = (proposal, outcome)
        if is_first and outcome is not None:
            self._count(number, proposal.island)
        known = self._trials.get(number)
        if self._study is not None and is_first and known is not None and known[1] == proposal.values:
            storage, study = self._study._storage, self._study._study_id
            for name, value in self._attributes(number, proposal, outcome).items():
                trial_id = storage.get_trial_id_from_study_id_trial_number(study, known[0])
                storage.set_trial_system_attr(trial_id, name, value)
            if number in self._pruned:
                trial_id = storage.get_trial_id_from_study_id_trial_number(study, known[0])
                storage.set_trial_intermediate_value(trial_id, *self._pruned[number])
                self._study.tell(known[0], state=optuna.trial.TrialState.PRUNED)
            else:
                self._study.tell(known[0], **_end(outcome))
        else:
            self._study = None  # of another process, or tried again: it has its place among the others
        return super().tell(number, proposal, outcome)

    def tell_pruned(
        self, number: int, proposal: Proposal, value: float | None, step: int
    ) -> tuple[Verdict, int | None]:
        """Learns of a candidate that was stopped, with its last value (None: not finite)."""
        if value is not None:
            self._pruned[number] = (step, value)
        return self.tell(number, proposal, None)

    def _generation_of(self, trial: Any) -> int:
        """The generation of a trial, where its sampler breeds them; a proposal's `island` keeps it."""
        key = getattr(self._study.sampler, "_get_generation_key", lambda: None)()
        if key is None:
            return 0
        return int(self._study._storage.get_trial(trial._trial_id).system_attrs.get(key, 0))

    def _count(self, number: int, generation: int) -> None:
        """Notes a trial that came when its generation was complete, as it does not breed the next one.

        So its parents are the same in a study that is built anew, which knows later outcomes.
        """
        self._population[generation] += 1
        if self._size is not None and self._population[generation] > self._size:
            self._late.add(number)

    def _attributes(self, number: int, proposal: Proposal, outcome: Outcome | None) -> dict[str, Any]:
        """What Optuna keeps of a trial besides its values."""
        found: dict[str, Any] = {}
        key = getattr(self._study.sampler, "_get_generation_key", lambda: None)()
        if key is not None:
            found[key] = _LATE if number in self._late else proposal.island
        if outcome is not None and outcome.constraints:
            found[_CONSTRAINTS] = list(outcome.constraints)
        return found

    def _fresh(self, seed: int) -> Any:
        """A fresh sampler, which keeps from the one before what that read of all trials of the study."""
        made = self._make(seed)
        for name, value in vars(self._study.sampler).items():
            if isinstance(value, optuna.search_space.IntersectionSearchSpace) and name in vars(made):
                setattr(made, name, value)
        return made

    def _build(self, in_flight: Sequence[InFlight]) -> None:
        self._study = optuna.create_study(directions=self._directions, sampler=self._make(0))
        self._trials = {}
        flying = {one.number: (one.proposal, None) for one in in_flight if one.number not in self._told}
        for number, (proposal, outcome) in sorted({**self._told, **flying}.items()):
            running = {"state": optuna.trial.TrialState.RUNNING} if number in flying else _end(outcome)
            if number in self._pruned:
                step, value = self._pruned[number]
                running = {"state": optuna.trial.TrialState.PRUNED, "values": [value], "steps": {step: value}}
            self._append(number, proposal, **running, attributes=self._attributes(number, proposal, outcome))

    def _append(
        self,
        number: int,
        proposal: Proposal,
        state: Any,
        values: Any = None,
        attributes: Mapping[str, Any] | None = None,
        steps: Mapping[int, float] | None = None,
    ) -> None:
        entries = list(_all_entries("", self._space.dimensions, proposal.values))
        self._trials[number] = (len(self._study.get_trials(deepcopy=False)), proposal.values)
        self._study.add_trial(
            optuna.trial.create_trial(
                state=state,
                values=values,
                intermediate_values=steps,
                system_attrs=dict(attributes or self._attributes(number, proposal, None)),
                params={name: value for name, value, _ in entries},
                distributions={name: distribution for name, _, distribution in entries},
            )
        )


def _end(outcome: Outcome | None) -> dict[str, Any]:
    """How a trial ended."""
    states = optuna.trial.TrialState
    if outcome is None or outcome.objective is None:
        return {"state": states.FAIL}
    return {"state": states.COMPLETE, "values": list(outcome.objectives or (outcome.objective,))}


def _constraints_of(trial: Any) -> Any:
    return trial.system_attrs.get(_CONSTRAINTS, ())


def _names(key: str, dimension: Numeric) -> list[str]:
    return [f"{key}[{at}]" for at in range(dimension.size)] if dimension.shape else [key]


def _suggested(trial: Any, key: str, dimension: Numeric | Choice) -> Any:
    """A value of a dimension, as a trial suggests it."""
    if isinstance(dimension, Choice):
        chosen = trial.suggest_categorical(key, _labels(dimension))
        sub = dimension.subs.get(chosen)
        if sub is None:
            return chosen
        inner = {
            name: _suggested(trial, f"{key}.{chosen}.{name}", one) for name, one in sub.dimensions.items()
        }
        return {IS: chosen, **inner}
    suggest = trial.suggest_int if isinstance(dimension, Integer) else trial.suggest_float
    names = _names(key, dimension)
    return dimension.nested(
        [suggest(name, dimension.low, dimension.high, log=dimension.log) for name in names]
    )


def _labels(choice: Choice) -> list[Any]:
    """The options as Optuna has them: the name of a class whose parameters are suggested apart."""
    return [one.name if isinstance(one, Sub) else one for one in choice.options]


def _all_entries(
    prefix: str, dimensions: Mapping[str, Numeric | Choice], values: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Those of all values; parameters of options that are not chosen do not exist."""
    for name, dimension in dimensions.items():
        yield from _entries(f"{prefix}{name}", dimension, values[name])


def _entries(key: str, dimension: Numeric | Choice, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """The parameters of a value, as a trial keeps them: name, value, distribution."""
    kinds = optuna.distributions
    if isinstance(dimension, Choice):
        sub = dimension.sub(value)
        yield key, value if sub is None else sub.name, kinds.CategoricalDistribution(_labels(dimension))
        if sub is not None:
            yield from _all_entries(f"{key}.{sub.name}.", sub.dimensions, value)
        return
    kind = kinds.IntDistribution if isinstance(dimension, Integer) else kinds.FloatDistribution
    distribution = kind(dimension.low, dimension.high, log=dimension.log)
    for name, number in zip(_names(key, dimension), dimension.flat(value), strict=True):
        yield name, number, distribution
