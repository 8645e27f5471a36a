"""Owns how the rules of the house walk through a source: by statements, a fifth of all that is in a tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator

BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def inside(node: ast.AST) -> list[ast.AST]:
    """The statements right inside a module or a statement: statements are in statements only."""
    return [child for block in BLOCKS for child in getattr(node, block, ())]


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements of a module, however deep."""
    left = inside(tree)
    while left:
        node = left.pop()
        yield node
        left += inside(node)
