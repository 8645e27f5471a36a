"""Outcomes as rows keep them: JSON text, written when a candidate ends and read when it is told.
A row keeps what its search makes of what the task returned, and enough for another search to read it anew.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tenuto.database import clean
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.search.outcome import Outcome, as_outcome, directions_in, is_feasible, plain, point, read_outcome

_MESSAGE = 4000


read_json = json.JSONDecoder().raw_decode
"""Reads a text that this program wrote, in half of the time of `json.loads`; with the length that it read."""
_ANY = ("metrics", "artifacts", "solution")
_MORE = ("objectives", "constraints")


class Judgement(NamedTuple):
    """The columns of a row that what its task returned decides."""

    status: EvolutionStatus
    outcome: str
    objective: float | None
    cost: float
    failure: str | None
    message: str | None


def judge(returned: Any, definition: Mapping[str, Any]) -> Judgement:
    """Reads what a task returned as the search of that definition does."""
    given = as_outcome(returned)
    measures, count = definition.get("measures") or (), definition.get("measure_count")
    outcome = read_outcome(given, measures, count, len(directions_in(definition)))
    if outcome.failure is not None:
        outcome = outcome._replace(objective=None)  # it counts nowhere, so no reader gets it
    kept = {"objective": outcome.objective, "measures": list(point(outcome)), "cost": outcome.cost}
    try:
        kept |= {key: plain_data(getattr(outcome, key), key) for key in _ANY}
        measures = plain_data(given.measures, "measures")
    except ValueError as error:
        kept |= dict.fromkeys(_ANY)
        outcome = outcome._replace(objective=None, failure=outcome.failure or str(error))
        kept["objective"], measures = None, kept["measures"]
    kept |= {key: list(found) for key in _MORE if (found := getattr(outcome, key))}
    if measures != kept["measures"]:  # this search took some by name, or found them in the metrics
        kept["given"] = measures
    text = json.dumps(clean(kept))  # JSON escapes what no row could keep, and a reader would meet it
    if outcome.failure is None:
        # A candidate that is not feasible, or has several objectives, is the best of nothing.
        counted = outcome.objective if is_feasible(outcome) and not outcome.objectives else None
        return Judgement(EvolutionStatus.SUCCEEDED, text, counted, outcome.cost, None, None)
    failure, message = JobFailureStatus.FAILED.name, outcome.failure[:_MESSAGE]
    return Judgement(EvolutionStatus.FAILED, text, outcome.objective, outcome.cost, failure, message)


def plain_data(value: Any, name: str) -> Any:
    """A value as JSON has it, numbers and arrays of numpy as Python's; `ValueError` for what it has not."""
    value = plain(value)
    if isinstance(value, Mapping):
        return {str(key): plain_data(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item, name) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"{name} is {value!r:.60}, which is no plain data: numbers, texts, lists and mappings")


OTHER_CODE = "OTHER_CODE"
"""In the column `failure` of a row that SUCCEEDED: other code made its outcome, so no other search has it."""


def doubted(found: Judgement) -> Judgement:
    """A judgement of what other code returned, which says so."""
    if found.status is not EvolutionStatus.SUCCEEDED:
        return found
    return found._replace(failure=OTHER_CODE, message="its code has changed since it was evaluated")


def mean_of(outcomes: Sequence[Outcome], definition: Mapping[str, Any]) -> Judgement:
    """What several evaluations of one candidate are worth together: means, the spread, and all values."""
    first = outcomes[0]
    several = [one.objectives or (one.objective,) for one in outcomes]
    numbers = [name for name, value in first.metrics.items() if _is_number_in(outcomes, name)]
    together = first._replace(
        objective=_mean([one.objective for one in outcomes]),
        objectives=_means(outcomes, "objectives"),
        constraints=_means(outcomes, "constraints"),
        measures=_means(outcomes, "measures"),
        cost=math.fsum(one.cost for one in outcomes),
        metrics={
            **first.metrics,
            **{name: _mean([one.metrics[name] for one in outcomes]) for name in numbers},
        },
    )
    found = judge(together, definition)
    spread = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in zip(*several, strict=True)]
    repeats = [list(values) if len(values) > 1 else values[0] for values in several]
    more = {"repeats": repeats, "spread": spread if len(spread) > 1 else spread[0]}
    return found._replace(outcome=json.dumps({**json.loads(found.outcome), **more}))


def _mean(values: Sequence[Any]) -> float:
    return math.fsum(values) / len(values)


def _means(outcomes: Sequence[Outcome], field: str) -> tuple[float, ...]:
    return tuple(map(_mean, zip(*(getattr(one, field) for one in outcomes), strict=False)))


def _is_number_in(outcomes: Sequence[Outcome], name: str) -> bool:
    values = [one.metrics.get(name) for one in outcomes]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def judge_anew(text: str, definition: Mapping[str, Any]) -> Judgement:
    """Reads what a row of another search keeps as the search of that definition does."""
    return judge(as_given(text), definition)


def as_given(text: str) -> Outcome:
    """The outcome that a row keeps, with the measures that the task returned."""
    outcome = read_kept(text)
    return outcome._replace(measures=json.loads(text).get("given", list(outcome.measures)))


def read_kept(text: str) -> Outcome:
    """The outcome that a row keeps; a restart reads hundreds of thousands of them."""
    found = read_json(text)[0].get
    return Outcome(
        found("objective"),
        tuple(found("measures", ())),
        found("cost", 0.0),
        found("metrics", {}),
        found("artifacts", {}),
        found("solution"),
        None,
        tuple(found("objectives", ())),
        tuple(found("constraints", ())),
    )
