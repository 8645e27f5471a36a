"""31: what a script that names a search costs each of its jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.search.terminal import tenuto

NAMES = "Evolution, MapElites, Outcome, Real, Integer, Choice, IsoLine, RandomSearch, GridSearch, Study"
FORBIDDEN = (
    "sqlalchemy alembic psycopg rich asyncio numpy loguru dramatiq optuna ribs dataclasses json random"
)


def test_31_the_names_of_a_search_load_nothing_heavy() -> None:
    script = f"import sys\nfrom tenuto.search import {NAMES}\nprint(*sys.modules)"
    bare = set(
        subprocess.check_output([sys.executable, "-c", "import sys; print(*sys.modules)"], text=True).split()
    )
    loaded = set(subprocess.check_output([sys.executable, "-c", script], text=True).split()) - bare
    assert [name for name in FORBIDDEN.split() if name in loaded] == []


def test_31_the_names_of_a_search_load_few_modules() -> None:
    """Counted, not timed: a module costs some 0.2 ms, and the names are to cost at most 5 ms."""
    script = (
        "import sys, tenuto; before = set(sys.modules)\n"
        f"from tenuto.search import {NAMES}\nprint(*set(sys.modules) - before)"
    )
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert len(loaded) <= 25, sorted(loaded)


SCRIPT = f"""
import sys
from tenuto import Param, Task
from tenuto.search import {NAMES}

class Heavy(Task):
    n: Param[int]
    def execute(self):
        return {{"objective": 1.0, "loaded": sorted(name for name in sys.modules if "." not in name)}}

if __name__ == "__main__":
    Evolution("heavy", Heavy, space={{"n": Integer(1, 2)}}, sampler=GridSearch(), workdir="w").run(slots=1)
"""


def test_31_the_jobs_of_a_search_start_warm_and_load_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text(SCRIPT)
    said = tenuto(tmp_path, "evolve", "heavy.py")
    assert said.returncode == 0, said.stderr
    lines = tenuto(tmp_path, "search", "export", "heavy", "-w", "w").stdout.splitlines()
    light = {"dataclasses", "json", "random"}  # what the runner itself needs, or a task may ask for
    for row in map(json.loads, lines):
        loaded = set(row["metrics"]["loaded"])
        assert loaded & set(FORBIDDEN.split()) <= light, row
        (marker,) = (tmp_path / "w" / "jobs").glob(f"*/{row['job']}/*.done")
        assert json.loads(marker.read_text())["launch"]["launcher"] == "warm"
