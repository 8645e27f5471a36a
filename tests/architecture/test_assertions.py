"""Owns a rule of the tests: each asserts something that can fail, itself or by a function of the tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = ("tests", "proof", "src/tenuto/testing")
BY_NAME = {"raises", "warns", "fail", "expect"}
"""Calls that assert: pytest's, and Playwright's."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def called(function: Function) -> set[str]:
    """The names of what a function calls, or hands over to be called; of a fixture it is the argument's."""
    nodes = list(ast.walk(function))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.func.attr for node in nodes if isinstance(node, ast.Call) and is_method(node.func)}


def is_method(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute)


def asserts_itself(function: Function) -> bool:
    return any(
        isinstance(node, ast.Assert)
        or (
            isinstance(node, ast.Raise) and node.exc is not None and "AssertionError" in ast.unparse(node.exc)
        )
        or (isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in BY_NAME)
        for node in ast.walk(function)
    )


def idle(texts: dict[str, str]) -> list[str]:
    """The tests, among sources by path, of which nothing could fail but what they call."""
    trees = {path: ast.parse(text) for path, text in texts.items()}
    known = [function for tree in trees.values() for function in functions(tree)]
    asserting = {function.name for function in known if asserts_itself(function)}
    calls = [(function.name, called(function)) for function in known if function.name not in asserting]
    while more := {name for name, names in calls if names & asserting} - asserting:
        asserting |= more
    return [
        f"{path}:{function.lineno} {function.name}"
        for path, tree in trees.items()
        for function in functions(tree)
        if function.name.startswith("test_")
        and not asserts_itself(function)
        and not (called(function) - (VAGUE - {one.name for one in functions(tree)})) & asserting
    ]


VAGUE = set("name text run list read close event main value kill print draw wait settings prepare".split())
"""Names of functions that assert somewhere, and of others that do not: they count in their own file only."""


def test_every_test_asserts_something() -> None:
    texts = {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for place in PLACES
        for path in sorted((ROOT / place).rglob("*.py"))
    }
    assert not (found := idle(texts)), "\n".join(found)


def test_the_rule_sees_helpers_and_what_only_calls() -> None:
    helper = "def checked(x):\n    assert x\n"
    assert idle({"a.py": f"{helper}def test_a():\n    checked(1)\n"}) == []
    assert idle({"a.py": f"{helper}def test_a():\n    len([])\n"}) == ["a.py:3 test_a"]
    assert idle({"a.py": "def test_a():\n    with pytest.raises(OSError):\n        open('')\n"}) == []
