"""Owns the import rules of the house: which room may see which, no cycles, no imports hidden in functions.

Data flows down the table and imports point up it. A new room needs a line here before it needs code.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .statements import inside

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"

# -- the table -------------------------------------------------------------------------------------
# room -> what it may import besides itself: a room, or one module of a room ("service.source").

FACE = "tenuto"  # src/tenuto/__init__.py, the public names
GROUND = {"errors", "settings", "clock", "light", "version"}
CORE = GROUND | {"tasks", "lifecycle", "workspace", "launchers", "scheduler"}
DOORS = {"experiments", "service", "search"}
SOURCES = {f"{door}.source" for door in DOORS}
EVERY_ROOM = CORE | DOORS | {"jobs", "database", "catalogue", "client", "monitor", "web"}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "light": set(),
    "version": set(),
    "settings": {"errors", "light"},
    "clock": {"errors"},
    "tasks": {"errors", "light"},
    "lifecycle": {"errors", "light"},
    "workspace": GROUND | {"lifecycle"},
    "launchers": GROUND | {"lifecycle", "workspace", "tasks"},
    "scheduler": CORE - {"scheduler"},
    "jobs": CORE,
    "experiments": CORE | {"jobs"},
    "database": GROUND | {"lifecycle"},
    "web": {"light"},
    "client": {"errors"},  # a file that can be copied
    "service": CORE | {"jobs", "database", "web"},
    "search": CORE | {"jobs", "database"},
    "catalogue": CORE | DOORS | {"jobs"},
    "monitor": GROUND | {"lifecycle", "workspace", "jobs", "web"} | SOURCES,
    "compat": {FACE, "errors", "settings", "search"},
    "testing": EVERY_ROOM | {FACE},
    "examples": {FACE, "search"},
    FACE: EVERY_ROOM,
    "cli": EVERY_ROOM | {"compat", "testing", FACE},
    "__main__": {"cli"},
}

APART: dict[str, set[str]] = {
    "launchers.payload": {"launchers.runner", "launchers.warm", "launchers.cluster"},
}
"""Part of a room -> parts of it that it must not see: a payload's process knows nothing of its supervisor."""

FACES = {"database": 30, "web": 30}
"""Rooms that have a face, their `__init__.py` -> how many names it offers at most; all else is their own."""

# -- reading the source ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a Tenuto module by another, as written at a line."""

    importer: str
    imported: str
    where: str
    in_function: bool
    for_types_only: bool


def modules(src: Path) -> dict[str, Path]:
    """Dotted name -> file, of everything under src/tenuto."""
    return {
        ".".join(path.relative_to(src).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((src / "tenuto").rglob("*.py"))
    }


@functools.cache
def imports(src: Path) -> list[Import]:
    known = modules(src)
    return [found for name, path in known.items() for found in _imports_of(name, path, known)]


def _imports_of(module: str, path: Path, known: dict[str, Path]) -> Iterator[Import]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]

    left: list[tuple[ast.AST, bool, bool]] = [(parsed(path), False, False)]
    while left:
        node, in_function, types_only = left.pop()
        for target in _targets(node, package, known):
            where = f"{path.name}:{getattr(node, 'lineno', 0)}"
            yield Import(module, target, where, in_function, types_only)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            in_function = True
        checked = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for_types = node.body if checked else []
        left += ((child, in_function, types_only or child in for_types) for child in inside(node))


def parsed(path: Path) -> ast.Module:
    """The source of a module. Trees are not kept: every later collection of garbage would go through them."""
    return ast.parse(path.read_text(encoding="utf-8"))


def _targets(node: ast.AST, package: str, known: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "tenuto")
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *(node.module.split(".") if node.module else [])])
        if base.split(".")[0] == "tenuto":
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield submodule if submodule in known else base


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else FACE


# -- the rules -------------------------------------------------------------------------------------


def forbidden(found: list[Import]) -> list[str]:
    problems = []
    for i in found:
        home, target = room(i.importer), room(i.imported)
        allowed = MAY_IMPORT.get(home, set())
        inside = i.imported.removeprefix("tenuto.")
        if i.for_types_only and target == "compat":
            continue  # a name that another system gives: it is found there when it is first asked for
        if target != home and target not in allowed and not any(_within(inside, a) for a in allowed):
            problems.append(f"{i.importer} ({i.where}) imports {i.imported}: {home} may not see {target}")
        importer = i.importer.removeprefix("tenuto.")
        for part, others in APART.items():
            if _within(importer, part) and any(_within(inside, other) for other in others):
                problems.append(f"{i.importer} ({i.where}) imports {i.imported}: {part} may not see it")
    return problems


def _within(module: str, allowed: str) -> bool:
    return module == allowed or module.startswith(allowed + ".")


def hidden(found: list[Import]) -> list[str]:
    return [
        f"{i.importer} ({i.where}) imports {i.imported} inside a function" for i in found if i.in_function
    ]


def cycle(found: list[Import]) -> list[str]:
    """One cycle of imports that happen at run time, or nothing."""
    graph: dict[str, set[str]] = {}
    for i in found:
        if not i.for_types_only and i.importer != i.imported:
            graph.setdefault(i.importer, set()).add(i.imported)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_each_room_imports_only_what_the_table_allows() -> None:
    assert not forbidden(imports(SRC)), "\n".join(forbidden(imports(SRC)))


def test_imports_of_tenuto_are_at_the_top_of_a_module() -> None:
    assert not hidden(imports(SRC)), "\n".join(hidden(imports(SRC)))


def test_no_import_cycles() -> None:
    assert not cycle(imports(SRC)), " -> ".join(cycle(imports(SRC)))


def behind_a_face(src: Path, *others: Path) -> list[str]:
    """The imports that pass a room's face: of other rooms, of proofs, of the tests of other rooms."""
    own = {f"{top}/{name}" for name in FACES for top in ("tenuto", "tests")}
    return [
        f"{path.relative_to(home.parent)}:{getattr(node, 'lineno', 0)} imports {node.module}"
        for home in (src / "tenuto", *others)
        for path in sorted(home.rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(tuple(f"tenuto.{name}." for name in FACES))
        and "/".join(path.relative_to(home.parent).parts[:2])
        not in own & {f"{home.name}/{room(node.module or '')}"}
    ]


def test_a_room_with_a_face_is_seen_by_its_face_alone() -> None:
    found = behind_a_face(SRC, *(ROOT / name for name in ("tests", "proof", "bench")))
    assert not found, "import the names of the room itself: " + ", ".join(found)


@pytest.mark.parametrize("name", FACES)
def test_a_face_offers_few_names(name: str) -> None:
    assert 0 < len(importlib.import_module(f"tenuto.{name}").__all__) <= FACES[name]


def test_every_room_is_in_the_table() -> None:
    assert {room(name) for name in modules(SRC)} <= MAY_IMPORT.keys()


def late_modules(tree: ast.AST) -> set[tuple[str, str]]:
    """The names that stand for a module until it is used, with that module: ``name = late("a.b.name")``."""
    return {
        (ast.unparse(node.targets[0]), ast.literal_eval(node.value.args[0]))
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "late"
    }


def typed_modules(tree: ast.AST) -> set[tuple[str, str]]:
    """The names that an import for the type checker gives, and their modules: ``(name, "a.b.name")``."""
    return {
        (alias.asname or alias.name, f"{node.module}.{alias.name}" if from_module else alias.name)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in branch.body
        if (from_module := isinstance(node, ast.ImportFrom)) or isinstance(node, ast.Import)
        for alias in node.names
    }


def test_a_module_that_is_loaded_late_is_imported_for_the_type_checker() -> None:
    trees = {name: parsed(path) for name, path in modules(SRC).items() if "late(" in path.read_text("utf-8")}
    found = {name: late_modules(tree) for name, tree in trees.items()}
    assert sum(map(len, found.values())) > 20
    assert not {name: wrong for name in trees if (wrong := found[name] - typed_modules(trees[name]))}


def test_a_module_of_a_known_name_is_loaded_by_late() -> None:
    loose = [
        f"{name}: {ast.unparse(node)}"
        for name, path in modules(SRC).items()
        if name != "tenuto.light" and "import_" in path.read_text("utf-8")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("import_module", "__import__", "importlib.import_module")
        and isinstance(node.args[0], ast.Constant)
    ]
    assert not loose, "\n".join(loose)


def test_the_table_itself_has_no_cycle() -> None:
    graph = {name: {a.split(".")[0] for a in allowed} for name, allowed in MAY_IMPORT.items()}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(graph)


# -- the rules can fail ----------------------------------------------------------------------------


def house(tmp_path: Path, **files: str) -> list[Import]:
    """A small tree; ``tasks__config="..."`` is tenuto/tasks/config.py."""
    for name, text in {"__init__": "", **files}.items():
        path = tmp_path / "tenuto" / (name.replace("__", "/") if name != "__init__" else name)
        path = path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    return imports(tmp_path)


@pytest.mark.parametrize(
    "statement",
    [
        "import tenuto.workspace",
        "from tenuto import workspace",
        "from tenuto.workspace import layout",
        "from .. import workspace",
        "from ..workspace.layout import Path",
        "if TYPE_CHECKING:\n    from tenuto.workspace import layout",
        "from tenuto import Config",
    ],
)
def test_a_forbidden_import_is_seen_however_it_is_written(tmp_path: Path, statement: str) -> None:
    assert forbidden(house(tmp_path, tasks__config=statement, workspace__layout=""))


def test_allowed_imports_pass(tmp_path: Path) -> None:
    found = house(
        tmp_path,
        errors="",
        tasks__types="from tenuto.errors import TenutoError",
        tasks__config="from . import types\nfrom tenuto.tasks.types import check",
        service__source="",
        monitor__page="from tenuto.service.source import ServiceSource",
    )
    assert len(found) == 4
    assert not forbidden(found)
    assert not cycle(found)


def test_the_monitor_sees_a_door_only_through_its_source(tmp_path: Path) -> None:
    assert forbidden(house(tmp_path, service__queue="", monitor__page="from tenuto.service import queue"))


def test_a_payload_sees_nothing_of_its_supervisor(tmp_path: Path) -> None:
    runner = "from tenuto.launchers.payload import report"
    payload = "from tenuto.launchers.runner import supervisor"
    assert not forbidden(
        house(tmp_path / "x", launchers__payload__report="", launchers__runner__supervisor=runner)
    )
    assert forbidden(
        house(tmp_path / "y", launchers__payload__report=payload, launchers__runner__supervisor="")
    )
    assert {f"tenuto.{part}" for parts in ({*APART}, *APART.values()) for part in parts} <= modules(
        SRC
    ).keys()


def test_an_import_that_passes_a_face_is_seen(tmp_path: Path) -> None:
    house(tmp_path, database__rows="", search__a="from tenuto.database.rows import Row")
    assert len(behind_a_face(tmp_path)) == 1
    house(tmp_path, search__a="", database__b="from tenuto.database.rows import Row")
    assert not behind_a_face(tmp_path)


def test_a_hidden_import_is_seen(tmp_path: Path) -> None:
    assert hidden(house(tmp_path, errors="", tasks__config="def f():\n    from tenuto import errors"))


def test_a_cycle_is_seen_unless_it_is_only_for_types(tmp_path: Path) -> None:
    b = "from tenuto.tasks import a"
    assert cycle(house(tmp_path / "x", tasks__a="from tenuto.tasks import b", tasks__b=b))
    a = "if TYPE_CHECKING:\n    from tenuto.tasks import b"
    assert not cycle(house(tmp_path / "y", tasks__a=a, tasks__b=b))
