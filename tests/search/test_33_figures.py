"""33: what a search costs while it works for long, begins again, and waits; measured by the drivers of W9."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DRIVER = Path(__file__).parents[2] / "bench" / "drivers" / "search.py"


def measured(folder: Path, *arguments: str) -> dict[str, Any]:
    path = os.pathsep.join(filter(None, [str(DRIVER.parent), os.environ.get("PYTHONPATH")]))
    ran = subprocess.run(
        [sys.executable, str(DRIVER), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.prove("it measures memory, over ten thousand candidates")
def test_33_a_workers_memory_stays_within_two_megabytes(tmp_path: Path) -> None:
    assert measured(tmp_path, "steady", "10000")["grown_bytes"] <= 2e6


@pytest.mark.prove("it measures time")
def test_33_a_restart_on_two_hundred_thousand_rows_takes_ten_seconds(tmp_path: Path) -> None:
    assert measured(tmp_path, "tick", "200000")["restart_s"] < 10


@pytest.mark.prove("it measures CPU")
def test_33_an_idle_scheduler_and_worker_take_half_a_percent(tmp_path: Path) -> None:
    assert measured(tmp_path, "idle", "20")["percent"] < 0.5
