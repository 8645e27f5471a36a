"""Owns the sizes of the house: how long a file and a function may be; longer ones are named, and shrink."""

from __future__ import annotations

import ast
from pathlib import Path

from .statements import statements

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "tenuto"
LONGEST_FILE = 600
LONGEST_FUNCTION = 50
"""Lines after the docstring."""

LONG_FILES: dict[str, int] = {}
"""File -> its lines, of files that are longer; a number may become smaller only.

Every job loads those of tasks, workspace and the runner: one more module costs each job a part of a
millisecond, so these shrink by losing code, or what few jobs load.
"""


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[1] if ast.get_docstring(function) and len(function.body) > 1 else function.body[0]
    return (function.end_lineno or 0) - first.lineno + 1


def sources() -> list[tuple[str, str]]:
    return [(str(path.relative_to(SRC)), path.read_text("utf-8")) for path in sorted(SRC.rglob("*.py"))]


def test_a_file_holds_one_idea() -> None:
    sizes = {name: len(text.splitlines()) for name, text in sources()}
    grown = {name: size for name, size in sizes.items() if size > LONG_FILES.get(name, LONGEST_FILE)}
    assert not grown, f"split by idea, one noun a file: {grown}"
    assert {name for name in LONG_FILES if sizes.get(name, 0) <= LONGEST_FILE} == set(), "no longer long"


def test_a_function_fits_a_screen() -> None:
    long = {
        f"{name}:{function.name}": lines_of(function)
        for name, text in sources()
        for function in statements(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and lines_of(function) > LONGEST_FUNCTION
    }
    assert not long, f"name the steps: {long}"


def test_a_function_is_seen_in_any_block() -> None:
    blocks = ("class A:", "if a:", "try:\n    a\nexcept B:", "try:\n    a\nfinally:", "match a:\n  case 1:")
    text = "\n".join(f"{block}\n    def f(): ..." for block in blocks)
    found = statements(ast.parse(text + "\nwhile a: ...\nelse:\n    async def g(): ..."))
    assert sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in found) == 6
