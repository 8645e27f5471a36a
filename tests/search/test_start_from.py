"""A search that starts with what another one found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import SearchError
from tenuto.search import Evolution, GridSearch, Integer, MapElites, RandomSearch
from tests.search.tasks_for_search import Judged, Whole


def searched(tmp_path: Path, name: str, space: Any, **options: Any) -> Evolution:
    evolution = Evolution(name, Whole, space=space, workdir=tmp_path, sampler=GridSearch(), **options)
    evolution.run(2)
    return evolution


def test_outcomes_of_another_search_are_known_from_the_start(tmp_path: Path, capfd: Any) -> None:
    searched(tmp_path, "first", {"n": Integer(-2, 6)}).close()  # two of them fail
    second = searched(tmp_path, "second", {"n": Integer(3, 9)}, start_from="first")
    rows = second.result().rows()
    assert sorted(row["n"] for row in rows) == list(range(3, 10))
    assert [row["n"] for row in rows[:4]] == [3, 4, 5, 6]
    assert all(row["reused"] and row["cost"] == 0 for row in rows[:4])
    assert "begins with 4 outcomes of first; 3 of it do not fit" in capfd.readouterr().err
    second.close()
    again = searched(tmp_path, "second", {"n": Integer(3, 9)}, start_from="first")
    assert len(again.result().rows()) == 7
    assert "begins with 0 outcomes of first" in capfd.readouterr().err
    again.close()


def test_measures_are_read_as_the_new_search_has_them(tmp_path: Path) -> None:
    made = {"space": {"n": Integer(0, 9)}, "workdir": tmp_path}
    task = Judged.C(form="mapping")
    first = Evolution("plain", task, sampler=RandomSearch(), max_total_jobs=6, **made)
    first.run(2)
    first.close()
    ranges = {"cells": [10], "ranges": [(0, 1)], "measures": ["size"]}
    second = Evolution("map", task, sampler=MapElites(**ranges), start_from="plain", max_total_jobs=4, **made)
    second.run(2)
    rows = second.result().rows()
    assert len(rows) == 4  # the cap holds for them, too
    assert all(row["measures"] == [pytest.approx(1 - row["n"] / 10)] for row in rows)
    second.close()


@pytest.mark.parametrize("other", ["none", "self"])
def test_a_search_that_is_none_is_refused(tmp_path: Path, other: str) -> None:
    with pytest.raises(SearchError, match="start_from"):
        searched(tmp_path, "self", {"n": Integer(1, 2)}, start_from=other)
