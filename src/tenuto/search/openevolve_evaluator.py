"""Runs an evaluator file of OpenEvolve or ShinkaEvolve as the evaluate command of a search of programs.
A program of its own: `python -m tenuto.search.openevolve_evaluator EVALUATOR PROGRAM [STAGE] [--features A]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import inspect
import json
import math
import os
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenuto.settings import process_environment


@dataclass
class EvaluationResult:
    """What evaluators of OpenEvolve return: stands in for its class where it is not installed."""

    metrics: dict[str, Any]
    artifacts: dict[str, Any] = field(default_factory=dict)


def main(words: list[str]) -> int:
    """Evaluates a program and prints its outcome; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("evaluator")
    parser.add_argument("program")
    parser.add_argument("stage", nargs="?", type=int)
    parser.add_argument("--features", default="")
    given = parser.parse_args(words)
    name = "evaluate" if given.stage is None else f"evaluate_stage{given.stage}"
    answers = os.dup(1)
    os.dup2(2, 1)  # what an evaluator prints is no outcome
    returned, failure = evaluate(load(given.evaluator), name, os.path.abspath(given.program))
    before = None
    if given.stage is not None and given.stage > 1:
        before = json.loads(Path(process_environment()["EVOLVE_METRICS"]).read_text("utf-8"))
    outcome = {**outcome_of(returned, given.features.split(","), before), "failure": failure}
    if given.stage is None:
        del outcome["stage_score"]
    sys.stdout.flush()
    with os.fdopen(answers, "w") as stream:
        stream.write(f"{json.dumps(outcome, default=str)}\n")
    return 0


def load(path: str) -> Any:
    """The module of an evaluator file, which may import its neighbours."""
    _stand_in()
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("evaluator", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["evaluator"] = module
    spec.loader.exec_module(module)
    return module


def _stand_in() -> None:
    if importlib.util.find_spec("openevolve") is None:
        package = types.ModuleType("openevolve")
        module = types.ModuleType("openevolve.evaluation_result")
        module.EvaluationResult = EvaluationResult  # type: ignore[attr-defined]
        package.evaluation_result = module  # type: ignore[attr-defined]
        sys.modules |= {"openevolve": package, "openevolve.evaluation_result": module}


def evaluate(module: Any, name: str, program: str) -> tuple[Any, str | None]:
    """Calls an evaluator in the form it has: its result, and the cause of a failure, if it names one."""
    function = getattr(module, name, None)
    if function is not None:
        returned = function(program)
        return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned, None
    if hasattr(module, "main"):  # ShinkaEvolve: leaves two files behind
        with tempfile.TemporaryDirectory() as results:
            module.main(program, results)
            return _left_in(Path(results))
    raise SystemExit(f"the evaluator has no function {name}(program_path)")


async def _awaited(value: Any) -> Any:
    return await value


def _left_in(results: Path) -> tuple[Any, str | None]:
    metrics = json.loads((results / "metrics.json").read_text("utf-8"))
    correct = json.loads((results / "correct.json").read_text("utf-8"))
    failure = None if correct.get("correct", False) else correct.get("error") or "the program is not correct"
    return metrics, failure


def outcome_of(
    returned: Any, features: Sequence[str] = (), before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What an evaluator returned, as the mapping of an outcome.

    `features`: the dimensions of the archive; `before`: the metrics of the stages before this one.
    """
    metrics = returned if isinstance(returned, Mapping) else getattr(returned, "metrics", None)
    artifacts = {} if isinstance(returned, Mapping) else getattr(returned, "artifacts", None) or {}
    if isinstance(returned, int | float) and not isinstance(returned, bool):
        metrics = {"combined_score": float(returned)}
    if not isinstance(metrics, Mapping):
        raise SystemExit(f"the evaluator returned {returned!r:.80}, not a dictionary of metrics")
    merged: Mapping[str, Any] = metrics
    if before is not None:
        merged = {**_numbers(before), **_numbers(metrics)}
        merged.pop("error", None)
    objective = fitness(merged, features)
    return {
        "objective": objective,
        "measures": {"score": objective, **{key: _plain(merged[key]) for key in features if key in merged}},
        "metrics": {str(key): _plain(value) for key, value in metrics.items()},
        "artifacts": {str(key): str(text) for key, text in artifacts.items()},
        "stage_score": stage_score(merged),
    }


def fitness(metrics: Mapping[str, Any], features: Sequence[str] = ()) -> float:
    """What OpenEvolve takes for the worth of a program: its `combined_score`, else a mean of its metrics.

    Features do not count, unless there is nothing else; nor do flags, texts and NaN.
    """
    try:
        return float(metrics["combined_score"])
    except (KeyError, TypeError, ValueError):
        pass
    flags = {str(key) for key, value in metrics.items() if isinstance(value, bool)}
    counted = {
        key: value for key, value in _numbers(metrics).items() if key not in flags and not math.isnan(value)
    }
    numbers = [value for key, value in counted.items() if key not in features] or list(counted.values())
    return sum(numbers) / len(numbers) if numbers else 0.0


def stage_score(metrics: Mapping[str, Any]) -> float | None:
    """What OpenEvolve compares with the threshold of a stage; None: the stage is not passed."""
    score = metrics.get("combined_score")
    if isinstance(score, int | float):
        return float(score)
    numbers = [value for key, value in _numbers(metrics).items() if key != "error"]
    return sum(numbers) / len(numbers) if numbers else None


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are numbers, flags among them; none that no float holds."""
    found = {}
    for key, value in metrics.items():
        if isinstance(value, int | float):
            with contextlib.suppress(OverflowError):
                found[str(key)] = float(value)
    return found


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's."""
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
