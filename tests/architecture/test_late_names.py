"""Owns names that are loaded late: each is where its table says, and there is one way to load them."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from tenuto.cli.main import COMMANDS, loaded

SRC = Path(__file__).parents[2] / "src"


def parsed() -> dict[str, ast.Module]:
    """Module -> its tree."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text("utf-8"))
    return found


TREES = parsed()


def assigned(tree: ast.Module, name: str) -> bool:
    """Whether a module has this name at its top."""
    return any(
        isinstance(node, ast.Name) and node.id == name
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        for node in ast.walk(target)
    )


PUBLIC = [name for name, tree in TREES.items() if assigned(tree, "__all__")]
LATE = {
    call.args[0].value
    for tree in TREES.values()
    for call in ast.walk(tree)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "late"
    if isinstance(call.args[0], ast.Constant)
}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_resolves(name: str) -> None:
    module = importlib.import_module(name)
    missing = [one for one in module.__all__ if not hasattr(module, one)]
    assert missing == []
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("name", [name for name in PUBLIC if assigned(TREES[name], "__getattr__")])
def test_a_star_imports_what_is_loaded_late(name: str) -> None:
    code = f"from {name} import *; import {name} as module; assert set(module.__all__) <= set(globals())"
    subprocess.run([sys.executable, "-c", code], check=True)
    tables = importlib.import_module(name)._ON_DEMAND
    assert set(tables) - {"__version__"} <= set(importlib.import_module(name).__all__)


def of_ours(name: str) -> bool:
    """Whether no package of others, such as Numba behind ribs, is imported to find a module."""
    return name.startswith("tenuto") or "." not in name


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if of_ours(one) else pytest.mark.slow) for one in sorted(LATE)]
)
def test_every_late_module_is_there(name: str) -> None:
    if not name.startswith("tenuto") and find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is an extra that is not installed")
    assert find_spec(name) is not None


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_is_where_it_is_looked_for(name: str) -> None:
    assert isinstance(loaded(name), click.Command)


def test_packages_load_names_late_in_one_way() -> None:
    own = [
        name
        for name, tree in TREES.items()
        for statement in tree.body
        if isinstance(statement, ast.FunctionDef) and statement.name == "__getattr__"
    ]
    assert own == [], "use tenuto.light.on_demand"
