"""The table of `derive_state` as Markdown.
Only makes text; `docs/generate.py` puts it into the pages.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from tenuto.lifecycle.diagram import table
from tenuto.workspace.derive_table import ROWS, TableRow


def derive_table() -> str:
    header = (
        "row",
        "marker",
        "launch record",
        "lock",
        "runner",
        "descendants",
        "claim",
        "cluster",
        "state",
        "what next",
    )
    return table(header, [_cells(row) for row in ROWS])


def _cells(row: TableRow) -> tuple[str, ...]:
    state = f"`{row.state.name}`"
    if row.reason is not None:
        state += f" ({row.reason.name})"
    if row.alarming:
        state += ", alarm"
    return (
        row.name,
        _any_of(row.mark),
        _any_of(row.launch),
        _either(row.locked),
        _any_of(row.runner),
        _either(row.descendants),
        _any_of(row.claimed),
        _any_of(row.cluster),
        state,
        row.action.name.lower(),
    )


def _any_of(values: Iterable[Enum] | None) -> str:
    return "" if values is None else ", ".join(value.value for value in values)


def _either(held: bool | None) -> str:
    return {None: "", True: "held", False: "free"}[held]
