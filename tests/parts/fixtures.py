"""The fixtures of real parts: private servers, one a session, and what is made in them for one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.parts.postgresql import PostgreSQL
from tests.parts.rabbitmq import RabbitMQ
from tests.parts.redis import Redis
from tests.parts.tmux import Tmux


@pytest.fixture(scope="session")
def postgresql(require: Callable[[str], None]) -> Iterator[PostgreSQL]:
    """A private PostgreSQL."""
    require("postgresql")
    server = PostgreSQL()
    yield server
    server.end()


@pytest.fixture
def postgresql_url(postgresql: PostgreSQL) -> Iterator[str]:
    """A database of its own in the private PostgreSQL."""
    with postgresql.database() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind: the contract suites run on both."""
    if request.param == "sqlite":
        return str(tmp_path / "test.db")
    return str(request.getfixturevalue("postgresql_url"))


@pytest.fixture(scope="session")
def redis(require: Callable[[str], None]) -> Iterator[Redis]:
    """A private Redis."""
    require("redis")
    server = Redis()
    yield server
    server.end()


@pytest.fixture(scope="session")
def rabbitmq(require: Callable[[str], None]) -> Iterator[RabbitMQ]:
    """A private RabbitMQ; its tests belong into one `xdist_group`."""
    require("rabbitmq")
    server = RabbitMQ()
    yield server
    server.end()


@pytest.fixture
def tmux(require: Callable[[str], None], tmp_path: Path) -> Iterator[Tmux]:
    """A terminal of its own."""
    require("tmux")
    made = Tmux(tmp_path)
    yield made
    made.close()
