"""Outcomes: what the evaluation of a candidate found, in the forms in which a task may return it.
Loaded by every job of a search: it imports nothing.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tenuto.errors import SearchError


class Outcome(NamedTuple):
    """What a candidate is worth (`objective`), how it is (`measures`), and the cost of the evaluation."""

    objective: float | None = None
    measures: Sequence[float] | Mapping[str, float] = ()
    cost: float = 0.0
    metrics: Mapping[str, Any] = {}
    artifacts: Mapping[str, str] = {}
    solution: Any = None
    failure: str | None = None
    objectives: Sequence[float] = ()
    """Of a search with several directions: one for each, in their order."""
    constraints: Sequence[float] = ()
    """The candidate is feasible if none of these is above 0; another one is never the best."""


_OTHER_NAME = "combined_score"  # OpenEvolve's objective


def read_outcome(
    returned: Any, names: Sequence[str] = (), measure_count: int | None = None, objective_count: int = 1
) -> Outcome:
    """The outcome in what a task returned: an `Outcome`, its fields as a mapping, or a number.

    `names`: the order of measures that were given by name; `measure_count`: how many the sampler needs;
    `objective_count`: how many directions the search has. A value that cannot be used (no number, not finite,
    measures missing) has a `failure`, and keeps its cost.
    """
    outcome = as_outcome(returned)
    outcome = outcome._replace(objective=plain(outcome.objective), cost=plain(outcome.cost))
    objectives, many = _numbers(outcome.objectives, "an objective", "objectives")
    constraints, unmet = _numbers(outcome.constraints, "a constraint", "constraints")
    if many is None and len(objectives) != (objective_count if objective_count > 1 else len(objectives[:1])):
        many = f"{len(objectives)} objectives came, and the search has {objective_count}"
    if objectives and (objective_count > 1 or outcome.objective is None):
        outcome = outcome._replace(objective=objectives[0])
    cost = outcome.cost if is_finite(outcome.cost) and outcome.cost >= 0 else 0.0
    no_mapping = _no_mapping(outcome)
    if no_mapping is not None:
        outcome = outcome._replace(metrics={}, artifacts={})
    measures, problem = _measures(outcome, names, measure_count)
    problem = no_mapping or problem
    if outcome.failure is not None:
        problem = str(outcome.failure) or "failed"
    elif many is not None and (objective_count > 1 or outcome.objectives):
        problem = many
    elif not is_finite(outcome.objective):
        problem = f"the objective is {_short(outcome.objective)}, not {_wanted(outcome.objective)}"
    elif problem is None and not is_finite(outcome.cost):
        problem = f"the cost is {_short(outcome.cost)}, not {_wanted(outcome.cost)}"
    elif problem is None and outcome.cost < 0:
        problem = f"the cost is {outcome.cost!r}, below 0"
    elif problem is None:
        problem = unmet
    return outcome._replace(
        objective=float(outcome.objective) if is_finite(outcome.objective) else None,  # type: ignore[arg-type]
        measures=measures,
        cost=float(cost),
        failure=problem,
        objectives=objectives if objective_count > 1 else (),
        constraints=constraints,
    )


def as_outcome(returned: Any) -> Outcome:
    """What a task returned, as an `Outcome` whose values are not looked at yet."""
    if isinstance(returned, Outcome):
        return returned
    if isinstance(returned, Mapping):
        known = {name: returned[name] for name in Outcome._fields if returned.get(name) is not None}
        if "objective" not in known and _OTHER_NAME in returned:
            known["objective"] = returned[_OTHER_NAME]
        others = {
            str(name): value
            for name, value in returned.items()
            if name not in Outcome._fields and name != _OTHER_NAME
        }
        metrics = known.get("metrics", {})
        known["metrics"] = {**metrics, **others} if isinstance(metrics, Mapping) else metrics
        return Outcome(**known)
    if _is_number(plain(returned)):
        return Outcome(objective=plain(returned))
    return Outcome(failure=f"the task returned {_short(returned)}, not an Outcome, a mapping or a number")


def _no_mapping(outcome: Outcome) -> str | None:
    """What should be a mapping and is none, in words."""
    for name in ("metrics", "artifacts"):
        value = getattr(outcome, name)
        if not isinstance(value, Mapping):
            return f"{name} are {_short(value)}, not a mapping of names to values"
    return None


def _measures(
    outcome: Outcome, names: Sequence[str], count: int | None
) -> tuple[tuple[float, ...], str | None]:
    given: Any = plain(outcome.measures)
    if not given and names:
        given = {name: outcome.metrics[name] for name in names if name in outcome.metrics}
    if isinstance(given, Mapping):
        missing = [name for name in names if name not in given]
        if missing:
            return (), f"the measure {missing[0]!r} is missing"
        given = [given[name] for name in names] if names else list(given.values())
    numbers, problem = _numbers(given, "a measure", "measures")
    if problem is None and count is not None and len(numbers) != count:
        return (), f"{len(numbers)} measures came, and the sampler has ranges for {count}"
    return numbers, problem


def _numbers(given: Any, one: str, several: str) -> tuple[tuple[float, ...], str | None]:
    """A list of finite numbers, or its error."""
    given = plain(given)
    if isinstance(given, str) or not isinstance(given, Sequence):
        return (), f"{several} are {_short(given)}, not a list of numbers"
    values = [plain(value) for value in given]
    for value in values:
        if not is_finite(value):
            return (), f"{one} is {_short(value)}, not {_wanted(value)}"
    return tuple(float(value) for value in values), None


def plain(value: Any) -> Any:
    """A number of numpy's or torch's as Python's, an array of them as a list; all else as it is."""
    if getattr(value, "ndim", None) is None or not hasattr(value, "tolist"):
        return value
    return value.tolist()


FINITE = "a finite number"


def _wanted(value: Any) -> str:
    return FINITE if _is_number(value) else "a number"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Whether a value is a number that a row can keep."""
    try:
        return _is_number(value) and math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def point(outcome: Outcome) -> tuple[float, ...]:
    """The measures of an outcome that was read, in their order."""
    measures: Any = outcome.measures
    return tuple(measures)


def is_feasible(outcome: Outcome) -> bool:
    """Whether an outcome that was read keeps to all constraints."""
    return all(value <= 0 for value in outcome.constraints)


def check_directions(direction: str | Sequence[str]) -> tuple[bool, ...]:
    """Of each objective, whether larger is better; `SearchError` for a direction that is none."""
    directions = [direction] if isinstance(direction, str) else list(direction)
    if not directions or any(one not in ("max", "min") for one in directions):
        raise SearchError(f'direction={direction!r}: it is "max" or "min", or a list of these')
    return tuple(one == "max" for one in directions)


def directions_in(definition: Mapping[str, Any]) -> tuple[bool, ...]:
    """The values of a stored search."""
    return check_directions(definition.get("direction", "max"))
