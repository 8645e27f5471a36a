"""Owns the rule that the environment has one reader: settings, and launchers, which pass it on to jobs.

Every other room is handed what it needs as a value, so that a test, a service and a simulator can choose it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "tenuto"
READERS = (
    "settings/",
    "launchers/",
    "compat/",  # the import path of jobs is a variable
    "examples/program/agent.py",  # an agent is a program of its own
    "examples/openai_agent.py",
    "examples/circles/agent.py",
)
OF_OS = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
ANYWHERE = {"expanduser", "expandvars"}  # of os.path and of Path: they read HOME and the rest
MENTIONED = re.compile("|".join(("home", *OF_OS, *ANYWHERE)))
"""In a source without any of these there is nothing to find."""


def reads(source: str) -> Iterator[str]:
    """The places in a module that read or change the environment."""
    for node in ast.walk(ast.parse(source)) if MENTIONED.search(source) else ():
        if isinstance(node, ast.Attribute):
            of_os = isinstance(node.value, ast.Name) and node.value.id in {"os", "posix"}
            if (of_os and node.attr in OF_OS) or node.attr in ANYWHERE:
                yield f"line {node.lineno}: {ast.unparse(node)}"
            if node.attr == "home" and isinstance(node.value, ast.Name) and node.value.id == "Path":
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom) and node.module in {"os", "os.path", "posixpath", "posix"}:
            for alias in node.names:
                if alias.name in OF_OS | ANYWHERE:
                    yield f"line {node.lineno}: {ast.unparse(node)}"


def test_only_settings_and_launchers_read_the_environment() -> None:
    found = [
        f"{path.relative_to(SRC)} {place}"
        for path in sorted(SRC.rglob("*.py"))
        if not path.relative_to(SRC).as_posix().startswith(READERS)
        for place in reads(path.read_text(encoding="utf-8"))
    ]
    assert not found, "take the value as an argument, from tenuto.settings:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "statement",
    [
        "import os\nos.environ['A']",
        "import os\nos.getenv('A')",
        "from os import environ as e",
        "import os.path\nos.path.expanduser('~')",
        "from pathlib import Path\nPath('~').expanduser()",
        "from pathlib import Path\nPath.home()",
    ],
)
def test_a_reader_is_seen_however_it_is_written(statement: str) -> None:
    assert list(reads(statement))


def test_other_uses_of_os_pass() -> None:
    assert not list(reads("import os\nos.getpid()\nos.path.join('a')\nx.environ"))
