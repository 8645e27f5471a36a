"""OpenEvolve's configuration, as far as a search understands it, and the stages of its evaluators.
Pure: reads texts; what is not understood is named, not refused.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tenuto.errors import SearchError

_THRESHOLDS = (0.5, 0.75)
_MOST_STAGES = 3
_READ = {
    "max_iterations": int,
    "random_seed": int,
    "early_stopping_patience": int,
    "database.num_islands": int,
    "database.migration_interval": int,
    "database.feature_dimensions": list,
    "database.feature_bins": (int, dict),
    "evaluator.timeout": (int, float),
    "evaluator.cascade_thresholds": list,
    "evaluator.cascade_evaluation": bool,
    "evaluator.parallel_evaluations": int,
}


@dataclass(frozen=True, slots=True)
class OpenEvolveConfig:
    """What a search takes from a configuration of OpenEvolve; `ignored` names the rest."""

    max_iterations: int | None = None
    random_seed: int | None = None
    early_stopping_patience: int | None = None
    num_islands: int | None = None
    migration_interval: int | None = None
    feature_dimensions: tuple[str, ...] = ()
    feature_bins: int | Mapping[str, int] | None = None
    timeout: float | None = None
    cascade_thresholds: tuple[float, ...] = _THRESHOLDS
    cascade_evaluation: bool = True
    parallel_evaluations: int | None = None
    ignored: tuple[str, ...] = ()


def read_config(text: str, name: str = "the configuration") -> OpenEvolveConfig:
    """The configuration in a YAML text; raises `SearchError` for what cannot be read."""
    try:
        found = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise SearchError(f"{name} is no YAML: {error}") from None
    if not isinstance(found, dict):
        raise SearchError(f"{name} is no mapping of names to values")
    known: dict[str, Any] = {}
    ignored = []
    for path, value in _leaves(found):
        if path not in _READ:
            ignored.append(path)
            continue
        if value is None:
            continue
        kind = _READ[path]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):  # type: ignore[arg-type]
            raise SearchError(f"{name}: {path} is {value!r:.60}, which is not understood")
        known[path.rpartition(".")[2]] = tuple(value) if isinstance(value, list) else value
    return OpenEvolveConfig(**known, ignored=tuple(ignored))


def _leaves(found: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in found.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and path not in _READ and value:
            leaves += _leaves(value, f"{path}.")
        else:
            leaves.append((path, value))
    return leaves


def stages_of(source: str, name: str = "the evaluator") -> int:
    """How many functions `evaluate_stage1`, `evaluate_stage2`, ... an evaluator defines; does not run it."""
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise SearchError(f"{name} is no Python: {error}") from None
    names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    count = 0
    while count < _MOST_STAGES and f"evaluate_stage{count + 1}" in names:
        count += 1
    return count
