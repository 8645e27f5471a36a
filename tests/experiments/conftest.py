"""Places for the scripts of these tests; no job outlives its test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .scripts import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """An empty directory; jobs that a failed test left running are ended."""
    made = Place(tmp_path)
    yield made
    made.release.touch()
    for record in made.workspace.glob("jobs/*/*/*.pid"):
        if not list(record.parent.glob("*.done")) and not list(record.parent.glob("*.failed")):
            with contextlib.suppress(OSError, ValueError, KeyError):
                os.kill(int(json.loads(record.read_text())["pid"]), signal.SIGTERM)
