"""Owns the promise that docs/events.md describes every event: each field, its type and its default."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tenuto.lifecycle import events
from tenuto.lifecycle.events import EVENT_TYPES, CarbonMetricsData, UnknownEvent, Value

PAGE = Path(__file__).parents[2] / "docs" / "events.md"
KINDS: dict[str, type[Value]] = {
    **EVENT_TYPES,
    "UnknownEvent": UnknownEvent,
    "CarbonMetricsData": CarbonMetricsData,
}


def sections(text: str) -> dict[str, str]:
    """Heading -> what is below it."""
    parts = re.split(r"^### (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def documented(section: str) -> dict[str, tuple[str, str]]:
    """Field -> type and default, of the rows that also have a meaning."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip().replace("\\|", "|") for cell in row] for row in rows]
    return {name.strip("`"): (kind, default.strip("`")) for name, kind, default, meaning in cells if meaning}


def declared(kind: type[Value]) -> dict[str, tuple[str, str]]:
    return {
        name: (annotation, _shown(kind.defaults[name]) if name in kind.defaults else "")
        for name, annotation in kind.fields.items()
        if name != "unknown"
    }


def _shown(default: Any) -> str:
    return default.name if isinstance(default, Enum) else repr(default)


@pytest.mark.parametrize("name", KINDS)
def test_every_event_is_documented_as_it_is_declared(name: str) -> None:
    page = sections(PAGE.read_text(encoding="utf-8"))
    assert name in page, f"docs/events.md does not describe {name}"
    assert documented(page[name]) == declared(KINDS[name])


def test_the_page_describes_nothing_else() -> None:
    assert sections(PAGE.read_text(encoding="utf-8")).keys() == KINDS.keys()


def test_the_page_says_which_events_are_ephemeral() -> None:
    page = sections(PAGE.read_text(encoding="utf-8"))
    said = {name for name in EVENT_TYPES if "`ephemeral`" in page[name]}
    assert said == {name for name, kind in EVENT_TYPES.items() if kind.ephemeral}


def test_every_class_of_events_is_of_a_known_type_or_a_base() -> None:
    made = {
        name: kind
        for name, kind in vars(events).items()
        if isinstance(kind, type) and issubclass(kind, events.Event)
    }
    assert made.keys() - KINDS.keys() == {"Event", "JobEvent", "OwnerEvent"}


def test_a_field_that_is_missing_or_different_is_seen() -> None:
    row = "| `progress` | float | | from 0 to 1 |"
    text = PAGE.read_text(encoding="utf-8")
    for other in ("", row.replace("float", "int"), row.replace("from 0 to 1", "")):
        page = sections(text.replace(row, other))
        assert documented(page["JobProgressEvent"]) != declared(KINDS["JobProgressEvent"])
