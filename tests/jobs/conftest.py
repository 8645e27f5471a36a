"""Workspaces and runners for the tests of single jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .runners import Runner
from .workspaces import Builder


@pytest.fixture
def workspace(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "ws")


@pytest.fixture
def runner(workspace: Builder) -> Iterator[Runner]:
    made = Runner(workspace)
    yield made
    made.close()
