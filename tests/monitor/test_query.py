"""Line 5: filter, sort and window equal the same done on the whole list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import FilterError
from tenuto.jobs.filters import parse_filter
from tenuto.jobs.query import Answers, Question, find, order_key, read_question, row_fields, unknown_names
from tenuto.jobs.row import Row
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


def whole(rows: list[Row], filter: str, sort: str) -> list[Row]:
    """The same, done in the simplest way."""
    fields = {one.key: {**parameters(one.key), **one.tags, **row_fields(one, NOW)} for one in rows}
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


def test_line_05_a_filter_points_at_the_character() -> None:
    with pytest.raises(FilterError) as wrong:
        read_question("state=done and lr<<1")
    assert wrong.value.position == 18


def test_line_05_regular_expressions_are_refused() -> None:
    with pytest.raises(FilterError, match="regular expressions are not allowed"):
        read_question("task~/(a+)+b/")


def test_a_word_of_any_text_is_no_unknown_field() -> None:
    rows = [row(1, JobState.DONE, 0.1, 1)]
    assert unknown_names(rows, Question(None, "*~train and colour=red", ""), parameters) == ["colour"]
    assert [*find(rows, Question(None, f"*~{rows[0].task}", ""), NOW, parameters).rows] == rows


def test_an_answer_is_kept_until_something_changes() -> None:
    answers = Answers()
    question = Question(GROUP, "state=done", "")
    answer = find([row(1, JobState.DONE, 0.1, 1)], question, NOW, parameters)
    answers.put(question, 4, answer)
    assert answers.get(question, 4) is answer
    assert answers.get(question, 5) is None
    assert answers.get(question._replace(sort="lr"), 4) is None
