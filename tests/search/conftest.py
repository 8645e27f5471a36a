"""Databases of searches for the tests, of both kinds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenuto.database import Database, migrate
from tenuto.search.opening import MIGRATIONS
from tenuto.search.store import Store


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """An empty database of searches, of each kind."""
    database = Database(database_url)
    migrate(database, MIGRATIONS)
    yield Store(database)
    database.close()
