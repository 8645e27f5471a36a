"""How much each parameter says of a result: a random forest in plain Python, and the splits that it makes.
Pure; a few hundred rows are looked at, however many there are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

TREES = 16
DEPTH = 6
FEWEST = 8
"""Rows below which nothing is said."""
MOST = 400
_LEAF = 3
_CUTS = 8

Example = tuple[Mapping[str, Any], float]
"""The parameters of a job, and the number that is to be explained."""


def importance(examples: Sequence[Example]) -> dict[str, float]:
    """The share of each parameter in what the splits of the forest explain, the largest first; sum 1.

    A parameter that a row does not have (it was not chosen) is a value of its own. Empty for few rows, and
    where nothing varies. The same rows give the same shares.
    """
    rng = random.Random(0)
    known = [one for one in examples if math.isfinite(one[1])]
    if len(known) > MOST:
        known = rng.sample(known, MOST)
    names = list(dict.fromkeys(name for values, _ in known for name in values))
    varying = [name for name in names if len({repr(values.get(name)) for values, _ in known}) > 1]
    if len(known) < FEWEST or not varying:
        return {}
    gains = dict.fromkeys(varying, 0.0)
    for _ in range(TREES):
        _grow([rng.choice(known) for _ in known], varying, gains, DEPTH, rng)
    total = math.fsum(gains.values())
    shares = {name: gain / total for name, gain in gains.items()} if total > 0 else {}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _grow(
    rows: list[Example], names: list[str], gains: dict[str, float], depth: int, rng: random.Random
) -> None:
    """One node of a tree: the best split of some of the parameters, and what lies below."""
    error = _error([target for _, target in rows])
    if depth == 0 or len(rows) < 2 * _LEAF or error <= 0:
        return
    best: tuple[float, str, list[Example], list[Example]] | None = None
    for name in rng.sample(names, max(1, math.ceil(len(names) / 2))):
        for left, right in _splits(rows, name):
            gain = error - _error([target for _, target in left]) - _error([target for _, target in right])
            if best is None or gain > best[0]:
                best = (gain, name, left, right)
    if best is None or best[0] <= 0:
        return
    gain, name, left, right = best
    gains[name] += gain
    _grow(left, names, gains, depth - 1, rng)
    _grow(right, names, gains, depth - 1, rng)


def _splits(rows: list[Example], name: str) -> list[tuple[list[Example], list[Example]]]:
    """The divisions of rows by one parameter: numbers by size, all else by one value against the others."""
    values = [values.get(name) for values, _ in rows]
    numbers = sorted({float(value) for value in values if value is not None and _is_number(value)})
    step = max(1, len(numbers) // _CUTS)
    tests: list[tuple[Any, bool]] = [(cut, True) for cut in numbers[:-1:step]]
    others = {repr(value): value for value in values if not _is_number(value)}
    tests += [(value, False) for value in list(others.values())[:_CUTS]]
    found = []
    for cut, is_number in tests:
        is_left = [
            _is_number(value) and value <= cut if is_number else repr(value) == repr(cut) for value in values
        ]
        left = [row for row, here in zip(rows, is_left, strict=True) if here]
        right = [row for row, here in zip(rows, is_left, strict=True) if not here]
        if len(left) >= _LEAF and len(right) >= _LEAF:
            found.append((left, right))
    return found


def _error(targets: list[float]) -> float:
    mean = math.fsum(targets) / len(targets)
    return math.fsum((target - mean) ** 2 for target in targets)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
