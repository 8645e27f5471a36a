from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .builders import Bench
from .servers import Server
from .worlds import World


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "ws")
    yield made
    made.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "ws")
    yield made
    made.scheduler.close()
