"""Fields by column: a filter that asks them finds what it finds by reading row after row."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenuto.jobs import columns
from tenuto.jobs.columns import Columns, ColumnsWriter, NotKept
from tenuto.jobs.query import Question, find, read_question
from tenuto.jobs.row import Row
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobFailureStatus, JobState

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
FILTERS = """
state=done | state!=done | not state=error | reason=failed | reason=none | reason!=timeout | state=DONE
lr=0.1 | lr!=0.1 | lr<0.5 | lr>=1 | lr=1 | lr=1.0 | lr="1" | lr~1 | lr=none | lr!=none | lr<5s | lr=nan
word=b | word>b | word<=c | word~B | word~/^[ab]/ | word=1 | word=01 | word<2 | word="2" | word=none
flag=true | flag=True | flag!=false | flag<1 | mixed=1 | mixed<2 | mixed~1 | mixed=true | mixed>a
shade=red | shade!=red | shade~e | shade=none | shade=3 | started>2026-11-20T12:01 | ended<2026-11-20T12:00:30
started=none | duration<20 | duration>=20s | duration=none | attempt=2 | attempt>1 | message~boom
state=done and lr<0.5 | state=error or lr=1 | not (word=a or shade=red) and attempt=1 | nosuch=4 | nosuch=none
where=node1 | owner=none | eta=none | result.loss<0.3 | result.loss=none | task=my.Train | run=none
"""


def rows(count: int, seed: int) -> list[tuple[Row, dict[str, Any]]]:
    rng, made = random.Random(seed), []
    for number in range(count):
        started = NOW + timedelta(seconds=rng.randrange(90), microseconds=rng.choice([0, 7]))
        is_done = rng.random() < 0.7
        row = Row(
            key=f"experiments:my.Train/{number:04x}",
            group="experiments:fits/1",
            door=Door.EXPERIMENTS,
            task="my.Train",
            id=f"{number:04x}",
            state=JobState.DONE if is_done else JobState.ERROR,
            reason=None if is_done else rng.choice([JobFailureStatus.FAILED, JobFailureStatus.TIMEOUT]),
            message=None if is_done else f"boom {rng.randrange(3)}",
            attempt=rng.choice([1, 1, 2]),
            started=rng.choice([started, started, None]),
            ended=started + timedelta(seconds=rng.randrange(40)),
            where=rng.choice(["node1", ""]),
            tags={"shade": rng.choice(["red", "green", 3])} if rng.random() < 0.5 else {},
        )
        values: dict[str, Any] = {
            "lr": rng.choice([0.1, 1, 1.0, 2, None, float("nan"), -3, 10**30]),
            "word": rng.choice(["a", "B", "c", "1", "2.0", "", None]),
            "flag": rng.choice([True, False]),
            "mixed": rng.choice([1, 1.0, True, "1", "a", None]),
        }
        if is_done:
            values["result.loss"] = rng.random()
        made.append((row, values))
    return made


def kept(made: list[tuple[Row, dict[str, Any]]]) -> Columns:
    writer = ColumnsWriter()
    for place, (row, values) in enumerate(made):
        writer.add(place * 10, row, values, NOW)
    data = writer.encoded({"": [1]}, 10 * len(made))
    return Columns(lambda start, length: data[start : start + length])


@pytest.mark.parametrize("most_codes", [4, 1 << 16])
def test_a_filter_finds_by_columns_what_it_finds_row_by_row(
    most_codes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_MOST_CODES", most_codes)
    made = rows(300, most_codes)
    values = {row.key: parameters for row, parameters in made}
    found = kept(made)
    for text in [one.strip() for one in FILTERS.replace("\n", "|").split("|") if one.strip()]:
        tree = read_question(text, regex=True)
        assert tree is not None
        mask = found.matching(tree, found.names("t:"))
        wanted = find([row for row, _ in made], Question(None, text, regex=True), NOW, values.__getitem__)
        assert [row.id for (row, _), holds in zip(made, mask, strict=True) if holds] == [
            row.id for row in wanted.rows
        ], text


@pytest.mark.parametrize("text", ["id~0a", "name2=a or id=1", "group=fits", "several=a", "key~x"])
def test_a_field_that_has_no_column_is_refused(text: str) -> None:
    made = rows(20, 1)
    made[3] = made[3][0]._replace(tags={"several": ["a", "b"]}), made[3][1]
    tree = read_question(text)
    assert tree is not None
    found = kept(made)
    with pytest.raises(NotKept):
        found.matching(tree, found.names("t:"))


def test_columns_that_are_torn_or_garbled_are_not_believed() -> None:
    made, tree = rows(50, 2), read_question("lr<1")
    assert tree is not None
    writer = ColumnsWriter()
    for place, (row, values) in enumerate(made):
        writer.add(place, row, values, NOW)
    data = writer.encoded({}, len(made))
    whole = kept(made).matching(tree, ())
    for at in range(0, len(data), 97):
        for torn in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            try:
                found = Columns(lambda start, length, torn=torn: torn[start : start + length])  # type: ignore[misc]
                mask = found.matching(tree, ())
            except NotKept:
                continue
            assert mask == whole
