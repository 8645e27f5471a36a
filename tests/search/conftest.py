"""Databases of searches for the tests, of both kinds, and stages for processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenuto.database import Database, migrate
from tenuto.search.opening import MIGRATIONS
from tenuto.search.store import Store
from tests.search.terminal import SCRIPT, Evolving
from tests.search.theatre import Theatre


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """An empty database of searches, of each kind."""
    database = Database(database_url)
    migrate(database, MIGRATIONS)
    yield Store(database)
    database.close()


@pytest.fixture
def stage(tmp_path: Path, postgresql_url: str) -> Iterator[Callable[..., Theatre]]:
    """``stage(queue_url, SETTING="value")``: a theatre on PostgreSQL, ended with the test."""
    made: list[Theatre] = []

    def build(queue: str | None = None, **settings: str) -> Theatre:
        made.append(Theatre(tmp_path, postgresql_url, queue, **settings))
        return made[-1]

    yield build
    for theatre in made:
        theatre.end()


@pytest.fixture
def evolving(folder: Path) -> Iterator[Evolving]:
    """``evolving("one.py", "400", "0")``: `tenuto evolve` beside the test, ended with it."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tenuto", "evolve", *arguments],
            cwd=folder,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    (folder / "gate").unlink(missing_ok=True)
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.py").write_text(SCRIPT)
    return tmp_path
