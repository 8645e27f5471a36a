"""Line 5: filter, sort and window equal the same done on the whole list."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import FilterError
from tenuto.jobs import query
from tenuto.jobs.filters import parse_filter
from tenuto.jobs.query import FIELDS, Answers, Question, find, order_key, read_question, sift
from tenuto.jobs.row import Row
from tenuto.jobs.source import newest_first
from tenuto.lifecycle.states import JobState
from tenuto.testing.fake_source import fake_row

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GROUP = "experiments:sweep/1"
FILTERS = ("", "state=done", "lr<0.5 or seed=3", "not (attempt>=2)", "epochs>4", "duration>1m", "task~b")
SORTS = ("", "lr", "-lr", "duration", "-epochs", "state", "nothing")


def row(number: int, state: JobState, lr: float | None, attempt: int) -> Row:
    tags = {} if lr is None else {"lr": str(lr), "seed": str(number % 5)}
    started = NOW - timedelta(seconds=40 * number) if attempt else None
    return fake_row(
        GROUP,
        "a.B" if number % 2 else "c.D",
        f"id{number}",
        state,
        attempt=attempt,
        tags=tags,
        started=started,
    )


ROWS = st.lists(
    st.tuples(st.sampled_from(JobState), st.none() | st.floats(0, 1), st.integers(0, 3)), max_size=30
).map(lambda made: [row(number, *one) for number, one in enumerate(made)])


def parameters(key: str) -> dict[str, Any]:
    number = int(key.rpartition("id")[2])
    return {"epochs": number} if number % 3 else {}


class Text(str):
    """A text of which can be told when it is gone."""


def fields_of(one: Row) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(one, name) for name in FIELDS if hasattr(one, name)}
    return {**fields, "duration": one.elapsed_s(NOW)}


def whole(rows: list[Row], filter: str, sort: str) -> list[Row]:
    """The same, done in the simplest way."""
    fields = {one.key: {**parameters(one.key), **one.tags, **fields_of(one)} for one in rows}
    if filter:
        tree = parse_filter(filter)
        rows = [one for one in rows if tree.matches(fields[one.key])]
    name = sort.removeprefix("-")
    if name:
        have = [one for one in rows if fields[one.key].get(name) is not None]
        have.sort(key=lambda one: order_key(fields[one.key][name]), reverse=sort.startswith("-"))
        rows = have + [one for one in rows if fields[one.key].get(name) is None]
    return rows


@given(ROWS, st.sampled_from(FILTERS), st.sampled_from(SORTS), st.integers(0, 30), st.integers(1, 10))
def test_line_05_a_window_is_a_slice_of_the_sorted_whole(
    rows: list[Row], filter: str, sort: str, offset: int, limit: int
) -> None:
    answer = find(rows, Question(GROUP, filter, sort), NOW, parameters)
    assert answer.total == len(rows)
    assert list(answer.rows[offset : offset + limit]) == whole(rows, filter, sort)[offset : offset + limit]


@given(ROWS, st.sampled_from(FILTERS), st.sampled_from(SORTS), st.integers(1, 9), st.integers(1, 9))
def test_rows_that_come_as_a_stream_are_sifted_as_the_whole_list(
    rows: list[Row], filter: str, sort: str, size: int, most: int
) -> None:
    """Also where a tag comes after rows that have a parameter of that name, or nothing."""

    def chunks() -> Iterator[list[Row]]:
        return (rows[at : at + size] for at in range(0, len(rows), size))

    with patch.object(query, "_MORE", 3):
        question = Question(None, filter, sort)
        found = sift(
            chunks,
            question,
            NOW,
            lambda one: {**parameters(one.key), "seed": 3},
            arranged=newest_first,
            most=most,
        )
    known = find(newest_first(rows), question, NOW, lambda key: {**parameters(key), "seed": 3}).rows
    assert found.rows == [*known][:most]
    assert (found.total, found.known) == (len(known), len(rows))


def test_rows_that_do_not_match_are_not_kept() -> None:
    """Nor those beyond the ones that were asked for."""
    alive = peak = 0

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def chunks() -> Iterator[list[Row]]:
        nonlocal alive, peak
        for at in range(0, 2_000, 10):
            part = []
            for number in range(at, at + 10):
                text = Text("a.B" if number % 2 else "c.D")
                weakref.finalize(text, gone)
                part.append(row(number, JobState.DONE, None, 1)._replace(message=text))
            alive += len(part)
            peak = max(peak, alive)
            yield part

    with patch.object(query, "_MORE", 20):
        for filter, sort in (("message=c.D", ""), ("epochs>=0", "-epochs"), ("", "epochs")):
            peak = 0
            asked = Question(None, filter, sort)
            found = sift(chunks, asked, NOW, lambda one: parameters(one.key), arranged=newest_first, most=5)
            assert len(found.rows) == 5
            del found
            gc.collect()
            assert peak < 150


def test_line_05_a_filter_points_at_the_character() -> None:
    with pytest.raises(FilterError) as wrong:
        read_question("state=done and lr<<1")
    assert wrong.value.position == 18


def test_line_05_regular_expressions_are_refused() -> None:
    with pytest.raises(FilterError, match="regular expressions are not allowed"):
        read_question("task~/(a+)+b/")


def test_a_word_of_any_text_is_no_unknown_field() -> None:
    rows = [row(1, JobState.DONE, 0.1, 1)]
    question = Question(None, "*~train and colour=red", "")
    found = sift(lambda: (rows,), question, NOW, lambda one: parameters(one.key), tells_unknown=True)
    assert found.unknown == ["colour"]
    assert [*find(rows, Question(None, f"*~{rows[0].task}", ""), NOW, parameters).rows] == rows


def test_an_answer_is_kept_until_something_changes() -> None:
    answers = Answers()
    question = Question(GROUP, "state=done", "")
    answer = find([row(1, JobState.DONE, 0.1, 1)], question, NOW, parameters)
    answers.put(question, 4, answer)
    assert answers.get(question, 4) is answer
    assert answers.get(question, 5) is None
    assert answers.get(question._replace(sort="lr"), 4) is None
