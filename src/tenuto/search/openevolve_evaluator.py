"""Runs an evaluator file of OpenEvolve or ShinkaEvolve as the evaluate command of a search of programs.
A program of its own: `python -m tenuto.search.openevolve_evaluator EVALUATOR PROGRAM [STAGE]`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import math
import os
import sys
import tempfile
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class EvaluationResult:
    """What evaluators of OpenEvolve return: stands in for its class where it is not installed."""

    metrics: dict[str, Any]
    artifacts: dict[str, Any] = field(default_factory=dict)


def main(words: list[str]) -> int:
    """Evaluates a program and prints its outcome; the exit code."""
    evaluator, program = words[0], os.path.abspath(words[1])
    name = f"evaluate_stage{words[2]}" if len(words) > 2 else "evaluate"
    answers = os.dup(1)
    os.dup2(2, 1)  # what an evaluator prints is no outcome
    outcome = outcome_of(evaluate(load(evaluator), name, program))
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


def evaluate(module: Any, name: str, program: str) -> Any:
    """Calls an evaluator in the form it has."""
    function = getattr(module, name, None)
    if function is not None:
        returned = function(program)
        return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned
    if hasattr(module, "main"):  # ShinkaEvolve: leaves two files behind
        with tempfile.TemporaryDirectory() as results:
            module.main(program, results)
            return _left_in(Path(results))
    raise SystemExit(f"the evaluator has no function {name}(program_path)")


async def _awaited(value: Any) -> Any:
    return await value


def _left_in(results: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((results / "metrics.json").read_text("utf-8"))
    correct = json.loads((results / "correct.json").read_text("utf-8"))
    if not correct.get("correct", False):
        metrics["failure"] = str(correct.get("error") or "the program is not correct")
    return metrics


def outcome_of(returned: Any) -> dict[str, Any]:
    """What an evaluator returned, as the mapping of an outcome."""
    metrics = returned if isinstance(returned, Mapping) else getattr(returned, "metrics", None)
    artifacts = {} if isinstance(returned, Mapping) else getattr(returned, "artifacts", None) or {}
    if isinstance(returned, int | float) and not isinstance(returned, bool):
        metrics = {"combined_score": float(returned)}
    if not isinstance(metrics, Mapping):
        raise SystemExit(f"the evaluator returned {returned!r:.80}, not a dictionary of metrics")
    outcome = {str(key): _plain(value) for key, value in metrics.items()}
    if "combined_score" not in outcome and "objective" not in outcome:
        numbers = [v for v in outcome.values() if isinstance(v, int | float) and not isinstance(v, bool)]
        if numbers:
            outcome["combined_score"] = math.fsum(numbers) / len(numbers)
    outcome.setdefault("score", outcome.get("objective", outcome.get("combined_score")))
    if artifacts:
        outcome["artifacts"] = {str(key): str(text) for key, text in artifacts.items()}
    return outcome


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's."""
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
