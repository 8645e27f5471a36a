"""Owns rules of names: files and classes of the heart and door 1 have one each; pages name real files."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "tenuto"
ROOMS = (
    "cli",
    "experiments",
    "jobs",
    "launchers",
    "lifecycle",
    "scheduler",
    "settings",
    "tasks",
    "workspace",
)
SAME_FILES = {
    "__init__.py",
    "__main__.py",
    "clusters.py",  # the settings of a cluster, and the names of cluster systems
    "ports.py",  # what a room asks of its surroundings
    "service.py",  # the service's part of a room
    "source.py",  # the protocol, and what each door makes of it
}
SAME_CLASSES = {
    "Action",  # of a scheduler on a job, of a person on a row
    "ServiceState",  # of a service beside an experiment, of a service job
}


def files(rooms: tuple[str, ...]) -> list[Path]:
    """All but commands, whose files are called as a person calls them."""
    found = [path for room in rooms for path in sorted((SRC / room).rglob("*.py"))]
    return [path for path in found if "commands" not in path.parts]


METAPHORS = re.compile(
    r"sight|standing|playhead|stave|staff|pulse|cockpit|belongings|roster|wish|verdicts$|arrivals"
    r"|logbook|shortages|remedies|retirement|allotment|getter|places$|bell$",
    re.IGNORECASE,
)
"""Names that a newcomer does not understand; `one word for one thing` has the plain ones: the glossary."""


def twice(names: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Name -> where, of names that stand for several things."""
    places = defaultdict(list)
    for name, place in names:
        places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_a_file_name_means_one_thing() -> None:
    own = [
        path for path in files(ROOMS) if "cluster" not in path.relative_to(SRC).parts
    ]  # a launcher of its own
    found = twice([(path.name, str(path.relative_to(SRC))) for path in own])
    assert found.keys() <= SAME_FILES, found


def test_a_class_name_means_one_thing() -> None:
    found = twice(
        [
            (node.name, str(path.relative_to(SRC)))
            for path in files(ROOMS)
            for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        ]
    )
    assert found.keys() <= SAME_CLASSES, found


def test_a_page_names_files_that_exist() -> None:
    homes = (SRC, SRC / "launchers", ROOT, ROOT / "src", ROOT / "docs")
    missing = {
        f"{page.name}: {name}"
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
        for name in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page.read_text("utf-8"))
        if not any((home / name).exists() for home in homes)
    }
    assert not missing


def test_a_file_and_a_class_are_called_by_a_plain_noun() -> None:
    sources = [path for room in ("src", "bench") for path in sorted((ROOT / room).rglob("*.py"))]
    named = [(path.stem, path.relative_to(ROOT)) for path in sources]
    for path in sources:
        tree = ast.parse(path.read_text("utf-8"))
        named += [(node.name, path.relative_to(ROOT)) for node in tree.body if isinstance(node, ast.ClassDef)]
    assert not [f"{name} in {path}" for name, path in named if METAPHORS.search(name)]
