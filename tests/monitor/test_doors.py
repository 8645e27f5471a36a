"""Which doors a monitor opens, by what the settings and the workspace hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenuto.catalogue import PATIENCE_S, Catalogue
from tenuto.cli.commands.ui import settings_with_service
from tenuto.errors import NotFound
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.source import Source
from tenuto.lifecycle.owner_names import Door
from tenuto.monitor import shapes
from tenuto.monitor.provider import LocalProvider
from tenuto.search.map_elites import MapElites
from tenuto.search.opening import open_database
from tenuto.search.store import Store
from tenuto.service.requests import NewJob, Requests
from tenuto.service.tables import MIGRATIONS, opened
from tenuto.settings import Settings, load_settings
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tests.search.builders import added, claimed, succeeded, tell_all


@contextmanager
def doors(root: Path, settings: Settings) -> Iterator[dict[Door, Source]]:
    view = WorkspaceView(Layout(str(root)), this_machine())
    with Catalogue(view, settings=settings) as catalogue:
        yield {source.door: source for source in catalogue.sources}


def test_a_workspace_without_searches_shows_experiments(tmp_path: Path) -> None:
    with doors(tmp_path, load_settings({})) as found:
        assert list(found) == [Door.EXPERIMENTS]


def test_a_workspace_with_searches_and_a_service_shows_all_three(tmp_path: Path) -> None:
    file = tmp_path / "db.sqlite"
    settings = load_settings({"service.database": str(file), "service.data": str(tmp_path / "data")})
    open_database(settings, tmp_path).close()
    database = opened(file, MIGRATIONS, PATIENCE_S)
    Requests(database, "me").add(NewJob("ada", "dock", "d0"))
    database.close()
    with doors(tmp_path, settings) as found:
        assert list(found) == [Door.EXPERIMENTS, Door.SEARCH, Door.SERVICE]
        assert found[Door.SEARCH].groups() == []
        assert [group.group for group in found[Door.SERVICE].groups()] == ["service:dock"]
        assert found[Door.SERVICE].parameters("service:dock/1") == {"user_id": "ada", "service": "dock"}


def test_what_a_search_and_a_service_show_has_the_shapes_of_the_monitor(tmp_path: Path) -> None:
    file = tmp_path / "db.sqlite"
    settings = load_settings(
        {"service.database": str(file), "service.data": str(tmp_path / "data"), "services.dock.max_runs": 3}
    )
    searches = open_database(settings, tmp_path)
    store = Store(searches)
    sampler = MapElites(cells=[2, 3], ranges=[(0, 1), (0, 1)], measures=["a", "b"]).definition()
    store.open("s", {"task": "t", "sampler": sampler}, 1)
    added(store, 2)
    store.dispatch("s", 2)
    first, _ = claimed(store, 2)
    store.finish([succeeded(first)], 3)
    tell_all(store)
    searches.close()
    database = opened(file, MIGRATIONS, PATIENCE_S)
    Requests(database, "me").add(NewJob("ada", "dock", "d0"))
    database.close()
    with doors(tmp_path, settings) as found:
        provider = LocalProvider(list(found.values()))
        try:
            assert provider.wait_until_loaded(30)
            archive = provider.archive("search:s")
            assert shapes.ArchiveJson.__annotations__.keys() <= archive.keys()
            assert [axis["name"] for axis in archive["axes"]] == ["a", "b"]
            candidate = provider.job("search:s/1")
            assert (candidate["id"], candidate["task"], candidate["state"]) == ("s#1", "s", "done")
            assert provider.results("search:s")["rows"][0]["objective"] == 1.0
            (service,) = provider.queue()["services"]
            assert (service["name"], service["queued"], service["max_runs"]) == ("dock", 1, 3)
            assert provider.nodes()["nodes"] == []
            assert provider.job("service:dock/1")["state"] == "waiting"
        finally:
            provider.close()


def test_a_service_is_shown_by_its_database_alone(tmp_path: Path) -> None:
    """`tenuto ui --service-db`: without a word about services in the settings."""
    file = tmp_path / "db.sqlite"
    with pytest.raises(NotFound, match="tenuto serve --db"):
        settings_with_service(str(file))
    database = opened(file, MIGRATIONS, PATIENCE_S)
    Requests(database, "me").add(NewJob("ada", "dock", "d0"))
    database.close()
    with doors(tmp_path, settings_with_service(str(file))) as found:
        assert [group.group for group in found[Door.SERVICE].groups()] == ["service:dock"]
