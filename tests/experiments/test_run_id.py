"""Owns the form and the order of run ids."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.experiments.run_record import RunId, candidates, free_run_id, parse_run_id

NOON = datetime(2025, 3, 30, 12, 0, 5, 999_999, UTC)
instants = st.datetimes(timezones=st.just(UTC))
ids = st.builds(lambda now, n: next(itertools.islice(candidates(now), n, None)), instants, st.integers(0, 30))


def test_an_id_is_the_second_of_the_start_in_utc() -> None:
    assert str(free_run_id(NOON, [])) == "20250330_120005"
    east = NOON.astimezone(timezone(timedelta(hours=2)))
    assert str(free_run_id(east, [])) == "20250330_120005"


def test_a_taken_second_gets_a_number() -> None:
    taken = ["20250330_120005", "20250330_120005.1", "20250330_120005.3", "lock"]
    assert str(free_run_id(NOON, taken)) == "20250330_120005.4"
    assert [str(i) for i in itertools.islice(candidates(NOON), 2)] == ["20250330_120005", "20250330_120005.1"]


def test_ids_sort_by_time_then_number() -> None:
    texts = ["20250330_120005", "20250330_120005.2", "20250330_120005.10", "20250330_120006"]
    assert sorted(filter(None, map(parse_run_id, reversed(texts)))) == [parse_run_id(t) for t in texts]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lock",
        "20250330",
        "20250330_120005.",
        "20250330_120005.0",
        "20250330_120005.01",
        "20250330_120005.-1",
        "20250230_120005",
        "20250330_250005",
        " 20250330_120005",
        "20250330_120005\n",
        "٢٠٢٥٠٣٣٠_١٢٠٠٠٥",
        "20250330_120005.9999999999",
    ],
)
def test_other_texts_are_not_run_ids(text: str) -> None:
    assert parse_run_id(text) is None


def test_an_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        free_run_id(datetime(2025, 1, 1), [])  # noqa: DTZ001


def test_the_id_of_a_run_that_was_removed_is_not_used_again_before_a_later_one() -> None:
    assert str(free_run_id(NOON, ["20250330_120005.2"])) == "20250330_120005.3"


def test_ids_grow_though_the_clock_was_ahead() -> None:
    assert str(free_run_id(NOON, ["20250330_110000", "20260101_000000"])) == "20260101_000000.1"
    assert str(free_run_id(NOON, ["20250330_110000", "20260101_000000.9"])) == "20260101_000000.10"
    assert str(free_run_id(NOON, ["20250330_110000", "lock"])) == "20250330_120005"


@given(st.lists(instants, max_size=20))
def test_a_later_run_has_a_larger_id_whatever_the_clock_does(starts: list[datetime]) -> None:
    taken: list[RunId] = []
    for now in starts:
        taken.append(free_run_id(now, map(str, taken)))
    assert taken == sorted(taken)


@given(ids)
def test_text_and_id_say_the_same(run_id: RunId) -> None:
    assert parse_run_id(str(run_id)) == run_id


@given(st.lists(instants, max_size=20))
def test_no_two_runs_get_one_id(starts: list[datetime]) -> None:
    taken: list[str] = []
    for now in starts:
        taken.append(str(free_run_id(now, taken)))
    assert len(set(taken)) == len(starts)
