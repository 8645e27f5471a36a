"""31: what a script that names a search costs each of its jobs."""

from __future__ import annotations

import subprocess
import sys

NAMES = "MapElites, Outcome, Real, Integer, Choice, IsoLine, RandomSearch, GridSearch, Study"
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


def test_31_the_names_of_a_search_load_within_5_ms() -> None:
    """On a loaded machine `import tenuto` (about 10 ms on a quiet one) is the yardstick."""
    script = (
        "import time; start = time.process_time(); import tenuto; before = time.process_time()\n"
        f"from tenuto.search import {NAMES}\nprint(time.process_time() - before, before - start)"
    )
    taken = [subprocess.check_output([sys.executable, "-c", script]).split() for _ in range(5)]
    ours, yardstick = (min(float(pair[at]) for pair in taken) for at in (0, 1))
    assert ours < max(0.005, 0.6 * yardstick)
