"""Owns the sizes of the house: a file is one topic, a class is one file, a name means one thing.

A number of this file may become smaller only; `python -m bench.walk --size` has them beside their budgets.
"""

from __future__ import annotations

import ast

import pytest

from .counts import SRC, divided_classes, lone_modules, shared_class_names, shared_file_names, sources
from .statements import statements

LONGEST_FUNCTION = 50
"""Lines after the docstring."""
RATCHETS = {
    "modules that one other module imports, and that are no seam: part of it": (lone_modules, 35),
    "classes that only divide another into files": (divided_classes, 3),
    "names of classes that mean two things": (shared_class_names, 10),
    "names of files that mean two things": (shared_file_names, 44),
}
"""What there is too much of -> how it is found, and how many there may be."""


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[1] if ast.get_docstring(function) and len(function.body) > 1 else function.body[0]
    return (function.end_lineno or 0) - first.lineno + 1


@pytest.mark.parametrize("what", RATCHETS)
def test_the_house_has_no_more_of_what_it_has_too_much_of(what: str) -> None:
    find, most = RATCHETS[what]
    found = find()
    assert len(found) <= most, f"{what}: {len(found)}, which were {most}: {found}"


def test_a_function_fits_a_screen() -> None:
    long = {
        f"{path.relative_to(SRC)}:{function.name}": lines_of(function)
        for path, (_, tree) in sources().items()
        for function in statements(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and lines_of(function) > LONGEST_FUNCTION
    }
    assert not long, f"name the steps: {long}"


def test_a_function_is_seen_in_any_block() -> None:
    blocks = ("class A:", "if a:", "try:\n    a\nexcept B:", "try:\n    a\nfinally:", "match a:\n  case 1:")
    text = "\n".join(f"{block}\n    def f(): ..." for block in blocks)
    found = statements(ast.parse(text + "\nwhile a: ...\nelse:\n    async def g(): ..."))
    assert sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in found) == 6
