"""30: the worth of a program is what OpenEvolve takes it for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tenuto.search.openevolve_evaluator import fitness, outcome_of, stage_score
from tests.search.terminal import tenuto

NAN = float("nan")
METRICS: list[tuple[Mapping[str, Any], list[str], float]] = [
    ({"combined_score": 0.3, "a": 9.0}, [], 0.3),
    ({"combined_score": "0.4", "a": 9.0}, [], 0.4),
    ({"combined_score": True, "a": 9.0}, [], 1.0),
    ({"combined_score": 0.3}, ["combined_score"], 0.3),
    ({"combined_score": "none", "a": 9.0}, [], 9.0),
    ({"combined_score": None, "a": 9, "b": 1}, ["b"], 9.0),
    ({"accuracy": 0.5, "speed": 90.0}, ["speed", "complexity"], 0.5),
    ({"accuracy": 0.5, "recall": 1, "speed": 90.0}, ["speed"], 0.75),
    ({"speed": 90.0, "size": 10.0}, ["speed", "size"], 50.0),
    ({"a": 1.0, "flag": True, "text": "x", "none": None, "nan": NAN}, [], 1.0),
    ({"a": 1.0, "large": 10**400}, [], 1.0),
    ({"error": 0.0, "a": 1.0}, [], 0.5),
    ({"error": 0.0, "timeout": True}, [], 0.0),
    ({"flag": True, "text": "x"}, [], 0.0),
    ({}, ["a"], 0.0),
]
CASCADES = {
    "mean of two stages": ([{"a": 0.6, "b": 1.0}, {"c": 0.2}], (0.6 + 1.0 + 0.2) / 3),
    "later outranks": ([{"a": 0.6}, {"a": 0.9}], 0.9),
    "score of the first": ([{"combined_score": 0.6}, {"c": 0.1}], 0.6),
    "score of the last": ([{"a": 0.9, "combined_score": 0.6}, {"combined_score": 0.7}, {"b": 0.1}], 0.7),
    "features": ([{"a": 0.6, "speed": 80.0}, {"b": 1.0, "speed": 60.0}], 0.8),
    "flags": ([{"a": 0.5, "flag": True}, {"b": 0.0, "text": "x", "error": 7.0}], 0.5),
    "first is not passed": ([{"a": 0.2, "flag": False, "error": 0.0}, {"a": 9.0}], 0.1),
    "second is not passed": ([{"a": 0.6}, {"a": 0.1}, {"a": 9.0}], 0.1),
    "threshold counts features": ([{"a": 0.1, "speed": 80.0}, {"a": 0.3}], 0.3),
    "threshold counts both stages": ([{"a": 0.5}, {"b": 1.0}, {"c": 0.0}], 0.5),
    "nothing": ([{"text": "x"}], 0.0),
    "one": ([{"a": 0.4, "speed": 90.0, "flag": True}], 0.4),
}
FEATURES = ["speed", "complexity"]


def evaluator(stages: list[dict[str, Any]]) -> str:
    """An evaluator with these stages; a single one is `evaluate`."""
    names = ["evaluate"] if len(stages) == 1 else [f"evaluate_stage{n + 1}" for n in range(len(stages))]
    functions = [f"def {n}(program_path):\n    return {s!r}\n" for n, s in zip(names, stages, strict=True)]
    others = "" if len(stages) == 1 else "def evaluate(program_path):\n    return {}\n"
    return "\n".join(functions) + others


def objective(folder: Path, stages: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The row of a program that this evaluator scores."""
    (folder / "program.py").write_text("X = 1\n")
    (folder / f"{name}.py").write_text(evaluator(stages))
    (folder / "c.yaml").write_text(f"database: {{feature_dimensions: [{', '.join(FEATURES)}]}}\n")
    words = ["--program", "program.py", "--evaluator", f"{name}.py", "--config", "c.yaml", "--agent", "true"]
    words += ["--measures", "speed,complexity" if "speed" in str(stages) else "complexity,score"]
    done = tenuto(folder, "evolve", *words, "-w", "w", "--name", name, "--max-total", "1", "--slots", "1")
    assert done.returncode == 0, done.stderr
    (line,) = tenuto(folder, "search", "export", name, "-w", "w").stdout.splitlines()
    row: dict[str, Any] = json.loads(line)
    return row


@pytest.mark.parametrize(("metrics", "features", "wanted"), METRICS)
def test_30_the_fitness_is_that_of_openevolve(
    metrics: Mapping[str, Any], features: list[str], wanted: float
) -> None:
    assert fitness(metrics, features) == pytest.approx(wanted)
    outcome = outcome_of(metrics, features)
    assert outcome["objective"] == outcome["measures"]["score"] or "score" in features


def test_30_a_threshold_is_compared_with_the_score_of_openevolve() -> None:
    assert stage_score({"combined_score": 0.3, "a": 9.0}) == 0.3
    assert stage_score({"combined_score": "0.3", "a": 9.0}) == 9.0
    assert stage_score({"a": 1.0, "flag": True, "error": 9.0, "text": "x"}) == 1.0
    assert stage_score({"error": 9.0}) is None


@pytest.mark.parametrize("name", CASCADES)
def test_30_the_stages_of_a_cascade_are_put_together_as_openevolve_does(tmp_path: Path, name: str) -> None:
    stages, wanted = CASCADES[name]
    row = objective(tmp_path, stages, "s")
    assert row["objective"] == pytest.approx(wanted)
    if "speed" not in str(stages):
        assert row["measures"][1] == row["objective"]  # `score`


def test_30_a_stage_without_a_threshold_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("X = 1\n")
    (tmp_path / "e.py").write_text(evaluator([{"a": 0.6}, {"a": 0.8}, {"a": 9.0}]))
    (tmp_path / "c.yaml").write_text("evaluator: {cascade_thresholds: [0.5]}\n")
    words = ["--program", "program.py", "--evaluator", "e.py", "--config", "c.yaml", "--agent", "true"]
    done = tenuto(tmp_path, "evolve", *words, "-w", "w", "--max-total", "1", "--json")
    assert json.loads(done.stdout)[0]["best"]["objective"] == 0.8


THEIRS = """
import asyncio, json, sys
from openevolve.config import EvaluatorConfig
from openevolve.evaluator import Evaluator
from openevolve.utils.metrics_utils import get_fitness_score
features = json.loads(sys.argv[1])
found = []
for path in sys.argv[2:]:
    made = Evaluator(EvaluatorConfig(cascade_thresholds=[0.5, 0.75]), path)
    metrics = asyncio.run(made.evaluate_program("X = 1"))
    found.append(get_fitness_score(metrics, features))
nan = float("nan")
table = json.load(sys.stdin)
json.dump([found, [get_fitness_score(metrics, features) for metrics, features in table]], sys.stdout)
"""


@pytest.mark.prove("OpenEvolve is installed into an environment of its own")
def test_30_openevolve_itself_finds_the_same_fitness(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "theirs"], check=True)
    python = tmp_path / "theirs" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "openevolve"]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"OpenEvolve cannot be installed here: {installed.stderr[-300:]}")
    ours = []
    files = []
    for at, (stages, _) in enumerate(CASCADES.values()):
        ours.append(objective(tmp_path, stages, f"s{at}")["objective"])
        files.append(str(tmp_path / f"s{at}.py"))
    table = json.dumps([[metrics, features] for metrics, features, _ in METRICS])
    command = [python, "-c", THEIRS, json.dumps(FEATURES), *files]
    told = subprocess.run(command, input=table, capture_output=True, text=True, check=True).stdout
    theirs, scores = json.loads(told)
    assert ours == pytest.approx(theirs)
    assert [fitness(metrics, features) for metrics, features, _ in METRICS] == pytest.approx(scores)
