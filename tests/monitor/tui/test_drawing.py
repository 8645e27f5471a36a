"""Lines of cells: exactly as wide as they should be, at every size, whatever they hold."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenuto.jobs.row import plain_row
from tenuto.jobs.text import safe, width
from tenuto.lifecycle.states import JobState
from tenuto.monitor.tui.cells import bar, cells, fitted, rule, shares, span, spread, wrapped
from tenuto.monitor.tui.help import KEYS
from tenuto.monitor.tui.log import LogPane, settled
from tenuto.monitor.tui.table import Listing
from tenuto.monitor.tui.text import group_glyph
from tenuto.testing.fake_source import fake_row
from tests.monitor.hostile import HOSTILE

NOW = datetime(2026, 1, 1, tzinfo=UTC)
texts = st.one_of(st.text(max_size=30), st.sampled_from(HOSTILE))


@given(st.lists(texts, max_size=5), st.integers(0, 60))
def test_a_fitted_line_has_exactly_its_cells(parts: list[str], room: int) -> None:
    assert cells(fitted([span(part) for part in parts], room)) == room
    assert cells(rule(parts[0] if parts else "", room)) == room


@given(texts, texts, st.integers(1, 60))
def test_a_spread_line_has_exactly_its_cells(left: str, right: str, room: int) -> None:
    assert cells(spread([span(left)], [span(right)], room)) == room


@given(st.floats(-1, 2), st.integers(0, 40))
def test_a_bar_has_exactly_its_cells(fraction: float, room: int) -> None:
    assert cells(bar(fraction, room)) == room


@given(texts.map(safe), st.integers(2, 40))
def test_wrapped_lines_fit_and_lose_nothing_but_spaces(text: str, room: int) -> None:
    lines = wrapped(text, room)
    assert all(width(one) <= room for one in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 60))
def test_shares_use_the_room_and_give_no_part_more_than_it_wants(wanted: list[int], room: int) -> None:
    given_rows = shares(wanted, room)
    assert sum(given_rows) == min(room, sum(wanted))
    assert all(got <= want for got, want in zip(given_rows, wanted, strict=True))


@given(
    st.lists(st.sampled_from(["down", "up", "pagedown", "pageup", "g", "G"]), max_size=30), st.integers(1, 50)
)
def test_the_cursor_is_always_in_sight_and_what_is_in_sight_is_asked_for(
    keys: list[str], height: int
) -> None:
    listing: Listing[str] = Listing()
    total = 1_000

    def fetch() -> None:
        offset = listing.wanted()
        listing.take([str(number) for number in range(offset, min(offset + 200, total))], total, offset)

    fetch()
    for key in keys:
        assert listing.press(key)
        seen = listing.visible(height)
        assert listing.cursor in seen
        fetch()
        assert [listing.row(index) for index in seen] == [str(index) for index in seen]
        assert listing.chosen == str(listing.cursor)


def test_the_cursor_stays_on_its_row_when_others_come_before_it() -> None:
    listing: Listing[str] = Listing()
    listing.take(["a", "b", "c"], 3)
    listing.press("down")
    listing.take(["x", "y", "a", "b", "c"], 5)
    assert listing.chosen == "b"


def test_a_line_of_a_log_is_text() -> None:
    for text in HOSTILE:
        for piece in text.split("\n"):
            assert safe(settled(piece)) == settled(piece)


def test_a_long_log_and_a_long_line_are_bounded() -> None:
    pane = LogPane()
    pane.show("k")
    text = "x" * 1_000_000 + "\n" + "line\n" * 20_000
    part = {"key": "k", "stream": "out", "attempt": 1, "offset": 0, "next": len(text), "text": text}
    pane.take({**part, "whole": True, "ended": True})  # type: ignore[typeddict-item]
    assert pane.count == 5_000
    assert "20,001 lines" in pane.status()
    assert len(settled("x" * 1_000_000)) < 5_000


def test_every_key_is_in_the_documentation() -> None:
    page = Path(__file__).parents[3] / "docs" / "monitor.md"
    text = page.read_text(encoding="utf-8")
    assert all(f"| `{key.label}` | {key.meaning} |" in text for key in KEYS)
    named = [key for one in KEYS for key in one.keys]
    assert len(named) == len(set(named))


def test_a_log_of_a_failed_job_begins_with_its_errors_or_with_what_there_is() -> None:
    job = plain_row(fake_row("experiments:a/1", "my.Train", "k", JobState.ERROR, attempt=1), NOW)
    pane = LogPane()
    pane.begin(job)
    assert pane.stream == "err"
    part = {"key": job["key"], "attempt": 1, "offset": 0, "next": 0, "text": "", "whole": True, "ended": True}
    pane.take({**part, "stream": "err"})  # type: ignore[typeddict-item]
    assert pane.stream == "out"
    pane.press("e")
    pane.take({**part, "stream": "err"})  # type: ignore[typeddict-item]
    assert pane.stream == "err"  # a person wants to see that it is empty
    pane.begin({**job, "key": "other", "state": "done"})
    assert pane.stream == "out"


def test_candidates_that_failed_make_no_failure_of_a_search() -> None:
    ended: Any = {"live": False, "take_up": None, "state": "ENDED (TOTAL)", "counts": {"done": 9, "error": 3}}
    assert group_glyph({**ended, "kind": "search"}) == "✓"
    assert group_glyph({**ended, "kind": "experiment"}) == "✗"
    assert group_glyph({**ended, "kind": "search", "state": "ENDED (FAILING)"}) == "✗"
