"""Opens the database of searches: where the settings say, else `search.db` in the workspace.
Makes its tables; knows no search.
"""

from __future__ import annotations

import os.path
from pathlib import Path

from tenuto.database import Database, Migrations, migrate
from tenuto.settings import Settings
from tenuto.settings.search import SEARCH_FILE

MIGRATIONS = Migrations(Path(__file__).with_name("migrations"), "search_version", "0002")
FILE_NAME = SEARCH_FILE


def open_database(settings: Settings, workspace: Path) -> Database:
    """The database of searches, with its tables up to date."""
    url = settings.database.url
    database = Database(url.reveal() if url is not None else workspace / FILE_NAME)
    try:
        migrate(database, MIGRATIONS)
    except BaseException:
        database.close()
        raise
    return database


def default_workspace(settings: Settings) -> Path:
    """The workspace of the settings, else `workspace` in the working directory."""
    if settings.default_workspace or len(settings.workspaces) == 1:
        return Path(os.path.abspath(settings.workspace()))
    return Path(os.path.abspath("workspace"))


def has_searches(settings: Settings, workspace: Path) -> bool:
    """Whether there is a database to look into; False for a workspace that never had a search."""
    return settings.database.url is not None or (workspace / FILE_NAME).exists()
