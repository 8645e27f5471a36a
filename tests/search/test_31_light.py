"""31: what a script that names a search costs each of its jobs."""

from __future__ import annotations

import subprocess
import sys

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
