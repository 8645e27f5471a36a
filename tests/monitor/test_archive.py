"""Line 23, the archive: at any instant it is a fold of the elites until then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.jobs.row import Group
from tenuto.jobs.source import Moment, Panels
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.monitor.archive import archive_at
from tenuto.monitor.provider import LocalProvider
from tenuto.testing.fake_source import FakeSource, fake_row

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def panel(elites: list[list[Any]], direction: str = "max") -> dict[str, Any]:
    axes = [{"name": name, "low": 0, "high": 1, "cells": 3} for name in ("a", "b")]
    return {
        "group": "search:s", "axes": axes, "elites": elites, "in_flight": [[0, 0, "search:s/9"]], "total": 9,
        "direction": direction, "offset": 0.0, "history": [[elite[4], 1, elite[2]] for elite in elites],
    }  # fmt: skip


def test_a_cell_says_how_often_it_was_replaced_and_by_how_much() -> None:
    elites = [
        [0, 1, 1.0, "search:s/1", at(1).isoformat()],
        [0, 1, 1.5, "search:s/2", at(5).isoformat()],
        [2, 2, 0.5, "search:s/3", at(6).isoformat()],
        [0, 1, 1.75, "search:s/4", at(9).isoformat()],
    ]
    now = archive_at(panel(elites), None)
    assert now["cells"] == [
        [0, 1, 1.75, "search:s/4", at(9).isoformat(), 2, 0.25],
        [2, 2, 0.5, "search:s/3", at(6).isoformat(), 0, None],
    ]
    assert (now["filled"], now["best"], now["qd_score"]) == (2, 1.75, 2.25)
    assert len(now["in_flight"]) == 1
    then = archive_at(panel(elites), at(5))
    assert then["cells"] == [[0, 1, 1.5, "search:s/2", at(5).isoformat(), 1, 0.5]]
    assert (then["filled"], then["best"], len(then["history"])) == (1, 1.5, 2)
    assert archive_at(panel(elites), at(0))["best"] is None


def test_the_best_of_a_search_for_the_least_is_the_least() -> None:
    elites = [[0, 0, 3.0, "search:s/1", at(1).isoformat()], [1, 0, 2.0, "search:s/2", at(2).isoformat()]]
    found = archive_at(panel(elites, "min"), None)
    assert (found["best"], found["qd_score"]) == (2.0, -5.0)


ELITES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.floats(-5, 5), st.integers(0, 30)), max_size=30
)


@pytest.mark.parametrize("second", [0, 10, 30])
@given(made=ELITES)
def test_line_23_an_archive_at_an_instant_is_the_archive_of_the_elites_until_then(
    second: int, made: list[tuple[int, int, float, int]]
) -> None:
    made.sort(key=lambda one: one[3])
    elites = [
        [x, y, value, f"search:s/{n}", at(when).isoformat()] for n, (x, y, value, when) in enumerate(made)
    ]
    until = [elite for elite, one in zip(elites, made, strict=True) if one[3] <= second]
    found, alone = archive_at(panel(elites), at(second)), archive_at(panel(until), None)
    assert found == alone


def test_line_23_an_archive_at_an_instant_shows_what_was_in_flight_then() -> None:
    source = FakeSource(Door.SEARCH)
    source.put_group(Group("search:s", Door.SEARCH, "s", live=True, started=at(0)))
    first, second = (fake_row("search:s", "s", str(number), JobState.DONE, attempt=1) for number in (1, 2))
    for row, cell in ((first, (0, 1)), (second, (2, 2))):
        source.put(row)
        source.cells[row.key] = cell
    moments = [
        Moment(at(1), first.key, JobState.RUNNING, 1),
        Moment(at(3), second.key, JobState.RUNNING, 1),
        Moment(at(5), first.key, JobState.WAITING, 1),
        Moment(at(7), first.key, JobState.RUNNING, 2),
        Moment(at(8), second.key, JobState.DONE, 1),
        Moment(at(9), first.key, JobState.DONE, 2),
    ]
    source.remember("search:s", moments)
    source.shown = Panels(archives=[panel([])])
    provider = LocalProvider([source])
    try:
        assert provider.wait_until_loaded(30)
        shown = {second: provider.archive("search:s", at(second).isoformat()) for second in range(11)}
        flying = {moment: [one[-1] for one in found["in_flight"]] for moment, found in shown.items()}
        table = {
            moment: [
                job["key"]
                for job in provider.jobs("search:s", "state=running", at=at(moment).isoformat())["jobs"]
            ]
            for moment in range(11)
        }
    finally:
        provider.close()
    one, two = first.key, second.key
    assert flying == {0: [], 1: [one], 2: [one], 3: [one, two], 4: [one, two], 5: [two], 6: [two],
                      7: [one, two], 8: [one], 9: [], 10: []}  # fmt: skip
    assert table == flying
    assert shown[3]["in_flight"] == [[0, 1, one], [2, 2, two]]
