"""The answers of the monitor as tables for its page of documentation, drawn from the shapes.
Nothing here is needed to run the monitor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenuto.jobs.row import PlainService
from tenuto.monitor import shapes

_SHARED = (
    shapes.Job,
    shapes.Group,
    PlainService,
    shapes.Attempt,
    shapes.Failure,
    shapes.Token,
    shapes.Node,
    shapes.Edge,
    shapes.Lane,
    shapes.Column,
    shapes.Outcome,
    shapes.Delta,
    shapes.Reset,
)
_NAMES: dict[Any, str] = {shapes.Job: "job", shapes.Group: "group", PlainService: "service"}


def answers_table() -> str:
    """Route -> the fields of its answer."""
    rows = [f"| `{route}` | {_fields(shape)} |" for route, shape in shapes.ANSWERS.items()]
    return "\n".join(["| Route | Fields |", "|---|---|", *rows])


def shapes_table() -> str:
    """The values inside answers, and their fields."""
    rows = [f"| {_NAMES.get(shape) or shape.__name__.lower()} | {_fields(shape)} |" for shape in _SHARED]
    return "\n".join(["| Value | Fields |", "|---|---|", *rows])


def _fields(shape: Any) -> str:
    return " ".join(f"`{name}`" for name in _names(shape))


def _names(shape: Any) -> Iterator[str]:
    yield from shape.__annotations__
