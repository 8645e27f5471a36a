"""Owns a rule of the tests: each asserts something that can fail, in its own lines and not in a helper's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("tests", "proof", "src/tenuto/testing")
ASSERTING = {"raises", "warns", "fail", "expect"}
"""Calls that assert: pytest's and Playwright's."""


def found_in(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The tests of a module and of its classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from found_in(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def asserts(node: ast.AST) -> bool:
    """Whether a statement can fail a test."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in ASSERTING
    return isinstance(node, ast.Assert)


def idle(text: str) -> list[str]:
    """The tests of a source that assert nothing themselves."""
    return [
        f"{test.lineno} {test.name}"
        for test in found_in(ast.parse(text))
        if not any(asserts(node) for node in ast.walk(test))
    ]


def test_every_test_asserts_something_itself() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{test}"
        for place in PLACES
        for path in sorted((ROOT / place).rglob("*.py"))
        if "def test_" in (text := path.read_text("utf-8"))
        for test in idle(text)
    ]
    assert not found, "let the helper return what the test asserts:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "assert checked(1)",
        "pytest.fail('no')",
        "with pytest.raises(OSError): open('')",
        "async def scenario():\n        assert await seen()",
    ],
)
def test_an_assertion_is_seen_however_it_is_written(line: str) -> None:
    assert idle(f"class A:\n  def test_a(self):\n    {line}\n") == []


@pytest.mark.parametrize("line", ["len([])", "checked(1)", "assert_all_is_well()"])
def test_a_test_that_leaves_it_to_a_helper_is_seen(line: str) -> None:
    helpers = "def checked(x):\n  assert x\ndef assert_all_is_well():\n  assert 0\n"
    assert idle(f"{helpers}def test_a():\n  {line}\n") == ["5 test_a"]
