"""The doors that a monitor opens: experiments always, others where they are used.
Opens and closes their databases; shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tenuto.cli.console import note
from tenuto.errors import NotFound
from tenuto.experiments.source import ExperimentSource
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.source import Source
from tenuto.light import late
from tenuto.settings import Settings, load_settings
from tenuto.settings.search import SEARCH_FILE
from tenuto.settings.service import ServiceSettings
from tenuto.settings.urls import Url

if TYPE_CHECKING:
    from tenuto.search import opening as searches
    from tenuto.search import source as search_source
    from tenuto.service import configuration, tables
    from tenuto.service import source as service_source
else:
    searches = late("tenuto.search.opening")
    search_source = late("tenuto.search.source")
    configuration = late("tenuto.service.configuration")
    service_source = late("tenuto.service.source")
    tables = late("tenuto.service.tables")

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Hosts that only this machine reaches."""
PATIENCE_S = 5.0
"""How long a monitor waits for a database that does not answer."""


def settings_with_service(database: str | None) -> Settings:
    """The settings, with this database of a service; `NotFound` if it is a file that is not there."""
    settings = load_settings({} if database is None else {"service.database": database})
    path = settings.service.database
    if database is not None and not isinstance(path, Url) and not Path(path).exists():
        raise NotFound(f"there is no database {database}: give the file or URL that `tenuto serve --db` has")
    return settings


@contextmanager
def open_doors(view: WorkspaceView, settings: Settings) -> Iterator[Sequence[Source]]:
    """The sources of the open doors; one whose extra is not installed is left out, and that is said."""
    sources: list[Source] = [ExperimentSource(view, settings)]
    with ExitStack() as databases:
        for extra, is_used, opened in (
            ("search", _has_searches, _search),
            ("service", _has_services, _service),
        ):
            if not is_used(view, settings):
                continue
            try:
                sources.append(opened(view, settings, databases))
            except ModuleNotFoundError as error:
                note(f"the door {extra} is not shown: {error.name} is missing: pip install 'tenuto[{extra}]'")
        yield sources


def _has_searches(view: WorkspaceView, settings: Settings) -> bool:
    return settings.database.url is not None or Path(view.layout.root, SEARCH_FILE).exists()


def _has_services(view: WorkspaceView, settings: Settings) -> bool:
    database = settings.service.database
    is_declared = bool(settings.services) or settings.service != ServiceSettings()
    return is_declared and (isinstance(database, Url) or Path(database).exists())


def _search(view: WorkspaceView, settings: Settings, databases: ExitStack) -> Source:
    root = view.layout.root
    database = searches.open_database(settings, Path(root))
    return search_source.SearchSource(databases.enter_context(closing(database)), root)


def _service(view: WorkspaceView, settings: Settings, databases: ExitStack) -> Source:
    database = tables.opened(configuration.database_of(settings.service), tables.MIGRATIONS, PATIENCE_S)
    place = str(settings.service.data)
    return service_source.ServiceSource(databases.enter_context(closing(database)), place, settings.services)
