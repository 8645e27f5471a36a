"""Text drawn from the tables."""

from __future__ import annotations

import pytest

from docs.generate import refreshed, transitions_diagram, transitions_table


def test_the_diagram_shows_every_transition() -> None:
    lines = transitions_diagram().splitlines()
    assert lines[0] == "```mermaid"
    assert "    RUNNING --> WAITING: retry" in lines
    assert len(lines) == 4 + transitions_table().count("\n") - 1


def test_a_part_of_a_page_is_replaced_and_the_rest_stays() -> None:
    page = "before\n<!-- begin x -->\nold\n<!-- end x -->\nafter\n"
    fresh = refreshed(page, {"x": "new"})
    assert fresh == "before\n<!-- begin x -->\nnew\n<!-- end x -->\nafter\n"
    assert refreshed(fresh, {"x": "new"}) == fresh


def test_a_page_without_the_place_for_a_part_is_refused() -> None:
    with pytest.raises(KeyError):
        refreshed("before <!-- begin x --> after", {"x": "new"})
