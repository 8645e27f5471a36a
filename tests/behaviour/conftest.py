"""The places of the behaviour tests, each built once, and the golden files that answers are held against."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.normal import written
from tests.behaviour.places import Monitor, Node, Place, Service, experiments, searches

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """``place("search")``: the place of a door; ``place("new search")``: a copy; ``place("empty")``."""
    builders: dict[str, Callable[[Path], Any]] = {
        "experiments": experiments,
        "search": searches,
        "service": Service,
        "node": Node,
    }
    built: dict[str, Any] = {}

    def place(door: str) -> Any:
        if door == "empty":
            return Place(tmp_path_factory.mktemp("empty"))
        name = door.removeprefix("new ")
        if name not in built:
            built[name] = builders[name](tmp_path_factory.mktemp(name))
        return built[name].copy(tmp_path_factory.mktemp("new") / "copy") if door != name else built[name]

    yield place
    for one in built.values():
        one.close()


@pytest.fixture(scope="session")
def monitor(place: Callable[[str], Place]) -> Iterator[Callable[[str], Monitor]]:
    """``monitor("search")``: `tenuto ui` of a place."""
    opened: dict[str, Monitor] = {}

    def monitor(door: str) -> Monitor:
        if door not in opened:
            opened[door] = Monitor(place(door))
        return opened[door]

    yield monitor
    for one in opened.values():
        one.close()


@pytest.fixture
def golden() -> Callable[[str, Any], tuple[str, str]]:
    """``golden(name, value)``: the text of a value, and that of its golden file (GOLDEN=write makes it)."""

    def golden(name: str, value: Any) -> tuple[str, str]:
        file, found = GOLDEN / f"{name}.json", written(value)
        if os.environ.get("GOLDEN") == "write":
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(found)
        return found, file.read_text() if file.exists() else "there is no golden file"

    return golden
