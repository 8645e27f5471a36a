"""30: evaluators and configurations of OpenEvolve, unchanged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto.cli.commands.evolve import ProgramOptions, command, declare
from tenuto.errors import SearchError
from tenuto.search.commits import changed_outside
from tenuto.search.openevolve import read_config, stages_of
from tests.search.programs import programs, repository
from tests.search.terminal import tenuto

PROGRAM = """import math
# EVOLVE-BLOCK-START
X = 1.0
# EVOLVE-BLOCK-END
def value():
    return math.floor(X * 1000) / 1000
"""
LOAD = """
import importlib.util, sys
from neighbour import LIMIT
def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    print("loaded", path)
    return module.value()
"""
EVALUATORS = {
    "dict": LOAD + "def evaluate(program_path):\n"
    "    x = load(program_path)\n    return {'combined_score': min(x, LIMIT), 'size': x, 'note': 'text'}\n",
    "result": LOAD + "from openevolve.evaluation_result import EvaluationResult\n"
    "async def evaluate(program_path):\n    x = load(program_path)\n"
    "    return EvaluationResult(metrics={'size': x, 'speed': x}, artifacts={'said': b'bytes'})\n",
    "stages": LOAD + "def evaluate_stage1(program_path):\n    return {'size': load(program_path)}\n"
    "def evaluate_stage2(program_path):\n    x = load(program_path)\n"
    "    return {'combined_score': 10 + x, 'size': x}\n"
    "def evaluate(program_path):\n    raise RuntimeError('stages come first')\n",
}
CONFIG = """
max_iterations: 3
random_seed: 7
early_stopping_patience: 50
llm: {primary_model: some-model, temperature: 0.7}
prompt: {num_top_programs: 3}
database:
  num_islands: 2
  migration_interval: 20
  feature_dimensions: [size, complexity]
  feature_bins: 5
evaluator: {timeout: 60, cascade_thresholds: [0.5], parallel_evaluations: 2, use_llm_feedback: false}
"""
AGENT = """
import os, random, re
rng = random.Random(os.environ["EVOLVE_SEED"])
text = open("program.py").read()
open("program.py", "w").write(re.sub("X = .*", f"X = {rng.random() * 2:.4f}", text))
"""


@pytest.mark.parametrize("form", EVALUATORS)
def test_30_an_evaluator_of_openevolve_runs_unchanged(tmp_path: Path, form: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "evaluator.py").write_text(EVALUATORS[form])
    (tmp_path / "neighbour.py").write_text("LIMIT = 1.5\n")
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "agent.py").write_text(AGENT)
    words = ["--program", "program.py", "--evaluator", "evaluator.py", "--config", "config.yaml"]
    agent = f"{sys.executable} {tmp_path / 'agent.py'}"
    done = tenuto(tmp_path, "evolve", *words, "--agent", agent, "-w", "w", "--json", "--name", form)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ignored of config.yaml: llm.primary_model, llm.temperature, ") == 1
    assert "use_llm_feedback" in done.stderr
    (summary,) = json.loads(done.stdout)
    assert (summary["scheduled"], summary["succeeded"], summary["cells"]) == (4, 4, 25)
    exported = tenuto(tmp_path, "search", "export", form, "-w", "w").stdout.splitlines()
    rows = [json.loads(line) for line in exported]
    for row in rows:
        size = row["metrics"]["size"]
        wanted = {"dict": min(size, 1.5), "result": size, "stages": 10 + size if size >= 0.5 else size}[form]
        assert row["objective"] == pytest.approx(wanted)
        assert row["measures"] == [size, row["metrics"]["complexity"]]
    assert {row["island"] for row in rows} == {0, 1}


def test_30_a_change_outside_the_marks_fails() -> None:
    assert changed_outside(PROGRAM, PROGRAM.replace("X = 1.0", "X = 2.0\nY = 3")) is None
    assert changed_outside(PROGRAM, PROGRAM.replace("floor", "ceil")) is not None
    assert changed_outside(PROGRAM, PROGRAM + "more\n") == "more"
    assert changed_outside(PROGRAM, "") == "import math"
    assert changed_outside(PROGRAM, PROGRAM.replace("# EVOLVE-BLOCK-END\n", "")) is not None


def test_30_a_configuration_is_read_or_refused_by_name() -> None:
    config = read_config(CONFIG)
    assert (config.max_iterations, config.random_seed, config.num_islands) == (3, 7, 2)
    assert (config.feature_dimensions, config.timeout) == (("size", "complexity"), 60)
    assert "prompt.num_top_programs" in config.ignored
    assert read_config("").cascade_thresholds == (0.5, 0.75)
    for wrong in ("max_iterations: many", "- a", "a: [", "random_seed: true"):
        with pytest.raises(SearchError):
            read_config(wrong, "c.yaml")
    assert [stages_of(source) for source in EVALUATORS.values()] == [0, 0, 2]


def test_30_the_goal_islands_and_seed_of_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("K = 1\n")
    (tmp_path / "evaluator.py").write_text("def evaluate(path):\n    return {'combined_score': 1.0}\n")
    (tmp_path / "c.yaml").write_text("prompt: {system_message: Pack circles.}\n")
    empty = {str(one.name): None for one in command.params}
    lists = dict.fromkeys(("evaluate", "protect", "threshold", "pass_variables"), ())
    given: dict[str, Any] = {**empty, **lists, "agent": ("true",), "workspace": str(tmp_path / "w")}
    given |= {"program": str(tmp_path / "program.py"), "evaluator": str(tmp_path / "evaluator.py")}
    config = {"config": str(tmp_path / "c.yaml")}
    plain = declare(ProgramOptions(**given)).evolution
    assert (plain.seed, plain.declared_sampler.islands, plain.task.goal) == (0, 1, "")
    theirs = declare(ProgramOptions(**{**given, **config})).evolution
    assert (theirs.seed, theirs.declared_sampler.islands, theirs.task.goal) == (42, 5, "Pack circles.")
    own = declare(ProgramOptions(**{**given, **config, "goal": "More.", "seed": 7, "islands": 2})).evolution
    assert (own.seed, own.declared_sampler.islands, own.task.goal) == (7, 2, "More.")
    both = declare(ProgramOptions(**{**given, **config, "goal": "More.", "seed_goal": True})).evolution
    assert both.task.goal == "Pack circles.\n\nMore."


def test_30_an_error_that_the_evaluator_caught_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    evaluator = (
        """print('{"objective": 0.0, "measures": {"a": 0, "b": 0}, "error": "No module named bs4"}')"""
    )
    repository(tmp_path, evaluator)
    programs(tmp_path, max_total_jobs=1).run(slots=1)
    assert "says that it failed: No module named bs4" in capfd.readouterr().err
