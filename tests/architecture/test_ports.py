"""Owns where the core may touch the machine: time, chance, files and processes have one reader each.

A simulator runs the core with other ports, so a module that reaches around them would escape it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "tenuto"

# -- the table -------------------------------------------------------------------------------------
# module of the machine -> the adapters that may import it. Everything else in the core goes through a port.

MACHINE: dict[str, set[str]] = {
    "os": {
        "clock",
        "workspace.files",
        "workspace.inotify",
        "workspace.locks",
        "workspace.modes",
        "workspace.processes",
        "workspace.tree_removal",
    },
    "time": {"clock"},
    "fcntl": {"workspace.locks"},
    "select": {"workspace.processes"},
    "signal": {"workspace.processes"},
    "stat": {"workspace.files", "workspace.locks", "workspace.modes"},
    "random": set(),
    "secrets": set(),
    "uuid": set(),
    "subprocess": set(),
    "socket": set(),
    "shutil": set(),
    "tempfile": set(),
    "pathlib": {"scheduler.jobs"},  # paths handed to people and tasks; nothing is read
    "io": set(),
}
OPENS_FILES = {"workspace.locks", "workspace.processes"}
READS_THE_TIME = {"clock"}
KNOWS_JSON = {"workspace.json_bytes"}

# What the process of a job must not pay for.
HEAVY = "asyncio dataclasses inspect logging subprocess socket concurrent multiprocessing pathlib".split()
NOT_IN_A_JOB = {"lifecycle.base_job"}


@cache
def core() -> dict[str, ast.Module]:
    """Dotted name below `tenuto` -> source, of everything that the simulator runs."""
    files = [SRC / "clock.py"]
    for room in ("lifecycle", "workspace", "scheduler"):
        files += sorted((SRC / room).rglob("*.py"))
    return {
        ".".join(file.relative_to(SRC).with_suffix("").parts): ast.parse(file.read_text(encoding="utf-8"))
        for file in files
    }


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "tenuto.light":  # stands for other modules
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0], node.lineno


def called(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def reaching_around(module: str, tree: ast.AST) -> list[str]:
    problems = [
        f"{module}:{line} imports {name}, which only {sorted(MACHINE[name]) or 'nobody'} may"
        for name, line in imported(tree)
        if name in MACHINE and module not in MACHINE[name]
    ]
    for call, line in called(tree):
        if call == "open" and module not in OPENS_FILES:
            problems.append(f"{module}:{line} opens a file instead of asking `Files`")
        of, _, method = call.rpartition(".")
        if (
            of in {"datetime", "date"}
            and method in {"now", "utcnow", "today"}
            and module not in READS_THE_TIME
        ):
            problems.append(f"{module}:{line} reads the time instead of asking `Clock`")
    return problems


@pytest.mark.parametrize("module", core())
def test_the_core_reaches_the_machine_only_through_its_ports(module: str) -> None:
    assert reaching_around(module, core()[module]) == []


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "import os.path",
        "from time import sleep",
        "def f():\n    import random",
        "open('x')",
        "from datetime import datetime\ndatetime.now()",
    ],
)
def test_the_rule_sees_a_module_that_reaches_around(code: str) -> None:
    assert reaching_around("workspace.journal", ast.parse(code))


def test_every_adapter_of_the_table_exists_and_needs_its_line() -> None:
    uses = {module: {name for name, _ in imported(tree)} for module, tree in core().items()}
    for name, adapters in MACHINE.items():
        for adapter in adapters:
            assert name in uses[adapter], f"{adapter} does not import {name} any more"


def test_only_one_module_knows_json() -> None:
    rooms = {module: tree for module, tree in core().items() if not module.startswith("scheduler")}
    users = {module for module, tree in rooms.items() if "json" in {name for name, _ in imported(tree)}}
    assert users == KNOWS_JSON


def test_what_a_job_imports_is_light() -> None:
    modules = [
        m for m in core() if m.startswith(("clock", "lifecycle", "workspace")) and m not in NOT_IN_A_JOB
    ]
    names = ", ".join(f"tenuto.{module.removesuffix('.__init__')}" for module in modules)
    base = set(_loaded_by("import tenuto"))
    loaded = set(_loaded_by(f"import tenuto, {names}")) - base
    assert [name for name in HEAVY if name in loaded] == []


def _loaded_by(code: str) -> list[str]:
    script = f"import sys; {code}; print(*sys.modules)"
    return subprocess.check_output([sys.executable, "-c", script], text=True).split()
