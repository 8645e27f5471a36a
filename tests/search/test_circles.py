"""The example of circle packing: its evaluator believes nothing, and its agent packs well."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto.examples.circles.evaluator import COUNT, evaluate, worth
from tests.search.terminal import tenuto

EXAMPLE = Path(__file__).parents[2] / "src" / "tenuto" / "examples" / "circles"
GRID = [((x + 0.5) / 6, (y + 0.5) / 6) for x in range(6) for y in range(6)][:COUNT]


@pytest.mark.parametrize(
    ("radii", "claimed", "said"),
    [
        ([1 / 12 + 1e-3] * COUNT, None, "overlap"),
        ([float("nan")] * COUNT, None, "not finite"),
        ([-0.1] * COUNT, None, "below 0"),
        ([0.05] * 25, None, "25 radii"),
        ([0.05] * COUNT, 2.7, "claims"),
    ],
)
def test_a_packing_that_cheats_is_refused(radii: list[float], claimed: float | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        worth(GRID, radii, sum(radii) if claimed is None else claimed)


def test_a_packing_gains_nothing_by_the_tolerance() -> None:
    fair = [1 / 12] * COUNT
    wide = [radius + 4e-7 for radius in fair]
    assert worth(GRID, wide, sum(wide)) <= worth(GRID, fair, sum(fair)) + 1e-12


def test_an_evaluation_of_a_broken_program_scores_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("def run_packing():\n    raise OSError('no')\n")
    found: dict[str, Any] = evaluate(str(program))
    assert (found["combined_score"], found["error"]) == (0.0, "OSError: no")
    assert evaluate(str(EXAMPLE / "program.py"))["sum_radii"] == pytest.approx(1.3, abs=0.3)


@pytest.mark.prove("a search of some minutes: sum of radii >= 2.62 within 300 candidates")
def test_circles_are_packed(tmp_path: Path) -> None:
    if importlib.util.find_spec("scipy") is None:
        pytest.skip("scipy is not installed")
    words = ["--program", str(EXAMPLE / "program.py"), "--evaluator", str(EXAMPLE / "evaluator.py")]
    words += ["--agent", f"{sys.executable} {EXAMPLE / 'agent.py'}", "--max-total", "300"]
    target = ["--target", str(2.62 / 2.635), "-w", "w", "--slots", "2", "--json"]
    ran = tenuto(tmp_path, "evolve", *words, *target)
    (summary,) = json.loads(ran.stdout)
    assert (ran.returncode, summary["reason"]) == (0, "TARGET"), ran.stderr
