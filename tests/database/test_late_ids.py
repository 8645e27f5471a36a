"""Ids that commit out of order: a reader sees each row once, whatever the order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenuto.database.row_table import LATEST_S, LateIds
from tenuto.testing.clock import FakeClock


def test_a_gap_is_asked_for_until_it_is_filled_or_too_old() -> None:
    clock = FakeClock()
    ids = LateIds([5, 3, 6], clock)
    assert (ids.last, ids.missing) == (6, (4,))
    ids.saw([4, 8, 10])
    assert (ids.last, ids.missing) == (10, (7, 9))
    ids.saw([9])
    assert ids.missing == (7,)
    clock.advance(LATEST_S)
    ids.saw([])
    assert (ids.last, ids.missing) == (10, ())


@given(st.permutations(range(1, 30)), st.lists(st.integers(1, 5), min_size=1))
def test_a_reader_sees_each_row_once_in_whatever_order_rows_commit(
    order: list[int], steps: list[int]
) -> None:
    ids = LateIds(clock=FakeClock())
    committed: set[int] = set()
    read: list[int] = []
    place = 0
    while place < len(order):
        step = steps[place % len(steps)]
        committed.update(order[place : place + step])
        place += step
        found = sorted(one for one in committed if one > ids.last or one in ids.missing)
        ids.saw(found)
        read += found
    assert sorted(read) == list(range(1, 30))
