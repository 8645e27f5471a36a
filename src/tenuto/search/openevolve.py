"""OpenEvolve's configuration, as far as a search understands it, the stages of its evaluators, its programs.
A key that is not understood is named, not refused.
"""

from __future__ import annotations

import ast
import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tenuto.errors import SearchError
from tenuto.search.git import Git
from tenuto.search.programs import AGENT_S, EVALUATE_S, Repository

_THRESHOLDS = (0.5, 0.75)
_MOST_STAGES = 3
ISLANDS = 5
SEED = 42
"""What OpenEvolve takes where its configuration does not say."""
_READ = {
    "max_iterations": int,
    "random_seed": int,
    "early_stopping_patience": int,
    "prompt.system_message": str,
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
    system_message: str | None = None
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
    """The configuration in a YAML text; raises `SearchError` for a text that cannot be read."""
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


# One program file as a repository, so that a search can vary it: kept in the workspace, made once.
# Leaves the file itself as it is.


_ADAPTER = ("{python}", "-m", "tenuto.search.openevolve_evaluator")


def program_repository(
    program: Path,
    evaluator: Path,
    directory: Path,
    *,
    agent: Sequence[Sequence[str]],
    weights: Sequence[float] = (),
    goal: str,
    config: OpenEvolveConfig,
    features: Sequence[str],
    agent_s: float | None = AGENT_S,
    evaluate_s: float | None = None,
    **others: Any,
) -> Repository:
    """A repository in `directory` that holds the program, evaluated by a file in OpenEvolve's form.

    `features`: the names of the measures, which are no part of the fitness; `evaluate_s`: by default the
    timeout of the configuration; `others`: as for `Repository`.
    Raises `SearchError` if the directory holds another program: its search began with that one.
    """
    _commit(program, directory)
    stages = stages_of(evaluator.read_text("utf-8"), str(evaluator)) if config.cascade_evaluation else 0
    stages = min(stages, len(config.cascade_thresholds) + 1)  # OpenEvolve runs no stage without a threshold
    words: tuple[str, ...] = (*_ADAPTER, os.path.abspath(evaluator), f"{{directory}}/{program.name}")
    last = ("--features", ",".join(features))
    commands = [(*words, str(stage), *last) for stage in range(1, stages + 1)] or [(*words, *last)]
    return Repository(
        directory,
        agent=agent,
        weights=weights,
        evaluate=commands,
        goal=goal,
        agent_s=agent_s,
        evaluate_s=evaluate_s if evaluate_s is not None else config.timeout or EVALUATE_S,
        **others,
        thresholds=config.cascade_thresholds[: len(commands) - 1],
    )


def _commit(program: Path, directory: Path) -> None:
    text = program.read_bytes()
    git = Git(directory)
    if (directory / ".git").exists() and git.ask("rev-parse", "--verify", "--quiet", "HEAD"):
        if (directory / program.name).is_file() and (directory / program.name).read_bytes() == text:
            return
        raise SearchError(
            f"{program} changed since its search began with what lies in {directory}: "
            f"give the search another name (--name)"
        )
    directory.mkdir(parents=True, exist_ok=True)
    git("init", "--quiet")
    (directory / program.name).write_bytes(text)
    git("add", "--", program.name)
    git("commit", "--quiet", "--no-verify", "--message", f"Begin with {program.name}")
