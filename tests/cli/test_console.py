"""Owns that tables fit any window and that what commands say reads well."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.cli.console import json_text
from tenuto.jobs.drawing import GAP, NARROWEST, Column, fitting, table_lines
from tenuto.jobs.text import size_text, width

COLUMNS = st.lists(
    st.builds(Column, st.text(max_size=8), st.booleans(), st.integers(0, 12), st.integers(0, 5)),
    min_size=1,
    max_size=8,
)


@given(columns=COLUMNS, room=st.integers(1, 120), data=st.data())
def test_a_table_fits_the_window_unless_nothing_can_be_cut(
    columns: list[Column], room: int, data: st.DataObject
) -> None:
    cells = st.lists(st.text(max_size=30), min_size=len(columns), max_size=len(columns))
    rows = data.draw(st.lists(cells, max_size=4))
    lines = table_lines(columns, rows, room)
    least = sum(NARROWEST + GAP for column in columns if not column.rank)
    assert len(lines) == len(rows) + 1
    assert max(map(width, lines)) <= max(room, least)


def test_the_column_that_matters_least_is_left_out_first() -> None:
    columns = [Column("id"), Column("task", least=4), Column("tags", rank=2), Column("took", rank=1)]
    assert fitting(columns, [8, 10, 10, 5], None) == [8, 10, 10, 5]
    assert fitting(columns, [8, 10, 10, 5], 35) == [8, 6, 10, 5]
    assert fitting(columns, [8, 10, 10, 5], 27) == [8, 10, 0, 5]
    assert fitting(columns, [8, 10, 10, 5], 15) == [8, 5, 0, 0]


def test_a_column_that_says_nothing_is_left_out() -> None:
    columns = [Column("id"), Column("progress", rank=1), Column("took", rank=1)]
    assert table_lines(columns, [["a", "", "–"], ["b", "", "1s"]], None) == ["id  took", "a   –", "b   1s"]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (3_210_000_000, "3.2 GB"),
        (999_999, "1.0 MB"),
        (10**18, "1000 PB"),
    ],
)
def test_sizes_are_short(size: int, text: str) -> None:
    assert size_text(size) == text


def test_json_is_read_by_every_reader() -> None:
    given = {"a": [math.nan, {"b": math.inf}, -math.inf, 1.5, None, "NaN"], "c": (1,), "d": math}
    read = json.loads(json_text(given), parse_constant=pytest.fail)
    assert read["a"] == ["nan", {"b": "inf"}, "-inf", 1.5, None, "NaN"]
    assert read["c"] == [1]
