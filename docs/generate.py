"""Renews the parts of the pages that are drawn from the code: `python -m docs.generate`.
A test fails while a page is stale.
"""

from pathlib import Path
from typing import Any

from docs import diagrams
from tenuto.jobs.row import PlainService
from tenuto.monitor import shapes
from tenuto.monitor.tui.help import keys_table

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
    return " ".join(f"`{name}`" for name in shape.__annotations__)


PAGES = {
    "lifecycle.md": {
        "states": diagrams.states_table,
        "transitions diagram": diagrams.transitions_diagram,
        "transitions": diagrams.transitions_table,
        "failures": diagrams.failures_table,
        "transient": diagrams.transient_table,
        "derive": diagrams.derive_table,
    },
    "monitor.md": {
        "answers": answers_table,
        "values": shapes_table,
        "keys": keys_table,
    },
    "service.md": {
        "service states": diagrams.service_states_table,
        "service diagram": diagrams.service_diagram,
        "payload states": diagrams.payload_states_table,
        "payload diagram": diagrams.payload_diagram,
    },
}


def fresh(page: str, text: str) -> str:
    """The page's text as it should be."""
    return diagrams.refreshed(text, {name: draw() for name, draw in PAGES[page].items()})


if __name__ == "__main__":
    for page in PAGES:
        path = Path(__file__).with_name(page)
        path.write_text(fresh(page, path.read_text(encoding="utf-8")), encoding="utf-8")
