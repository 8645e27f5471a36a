"""An outcome that another search found is what the task returned, read by the search that takes it over."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tenuto.search import Evolution, GridSearch, Integer, MapElites, RandomSearch
from tenuto.settings import Settings
from tenuto.settings.search import DatabaseSettings
from tenuto.settings.urls import Url
from tests.search.tasks_for_search import Judged


@pytest.fixture
def settings(database_url: str) -> Settings:
    return dataclasses.replace(Settings(), database=DatabaseSettings(url=Url(database_url)))


def search(name: str, sampler: Any, form: str, tmp_path: Path, settings: Settings) -> list[dict[str, Any]]:
    """The rows of a search of the numbers 1 to 4, in a workspace of its own: only rows are shared."""
    task = Judged.C(form=form, log=str(tmp_path / "log"))
    evolution = Evolution(
        name,
        task,
        space={"n": Integer(1, 4)},
        sampler=sampler,
        workdir=tmp_path / name,
        settings=settings,
        max_total_jobs=4,
    )
    result = evolution.run(slots=2)
    assert result.reason in ("TOTAL", "EXHAUSTED")
    return sorted(result.rows(), key=lambda row: int(row["values"]["n"]))


def by(*measures: str) -> MapElites:
    return MapElites([10] * len(measures), [(0, 1)] * len(measures), measures=measures, start=64)


def executions(tmp_path: Path) -> int:
    return len((tmp_path / "log").read_text().splitlines())


@pytest.mark.parametrize("form", ["mapping", "outcome", "metrics"])
def test_a_reused_outcome_has_the_measures_of_the_search_that_takes_it_over(
    form: str, tmp_path: Path, settings: Settings
) -> None:
    first = search("a", by("speed"), form, tmp_path, settings)
    assert [row["measures"] for row in first] == [[n / 10] for n in range(1, 5)]
    other = search("b", by("size"), form, tmp_path, settings)
    assert [(row["measures"], row["cell"]) for row in other] == [([1 - n / 10], 10 - n) for n in range(1, 5)]
    more = search("c", by("size", "speed"), form, tmp_path, settings)
    assert [row["measures"] for row in more] == [[1 - n / 10, n / 10] for n in range(1, 5)]
    plain = search("d", RandomSearch(), form, tmp_path, settings)
    again = search("e", by("speed"), form, tmp_path, settings)
    assert [row["measures"] for row in again] == [[n / 10] for n in range(1, 5)]
    for rows in (other, more, plain, again):
        assert {(row["status"], row["reused"], row["cost"]) for row in rows} == {("SUCCEEDED", True, 0.0)}
    assert executions(tmp_path) == 4


@pytest.mark.parametrize("form", ["mapping", "outcome", "metrics"])
def test_a_plain_search_keeps_what_a_later_map_needs(form: str, tmp_path: Path, settings: Settings) -> None:
    search("a", GridSearch(), form, tmp_path, settings)
    rows = search("b", by("size"), form, tmp_path, settings)
    assert [row["measures"] for row in rows] == [[1 - n / 10] for n in range(1, 5)]
    assert executions(tmp_path) == 4


def test_an_outcome_that_the_new_search_cannot_read_fails_as_an_evaluated_one_does(
    tmp_path: Path, settings: Settings
) -> None:
    search("a", by("speed"), "mapping", tmp_path, settings)
    rows = search("b", by("weight"), "mapping", tmp_path, settings)
    assert {(row["status"], row["message"]) for row in rows} == {
        ("FAILED", "the measure 'weight' is missing")
    }
    assert {(row["failure"], row["reused"]) for row in rows} == {("FAILED", True)}
    assert executions(tmp_path) == 4
    again = search("c", by("speed"), "mapping", tmp_path, settings)
    assert {row["status"] for row in again} == {"SUCCEEDED"}


def test_measures_without_names_fail_where_their_number_differs(tmp_path: Path, settings: Settings) -> None:
    search("a", RandomSearch(), "list", tmp_path, settings)
    pair = search("b", MapElites([10, 10], [(0, 1)] * 2, start=64), "list", tmp_path, settings)
    assert [row["measures"] for row in pair] == [[n / 10, 1 - n / 10] for n in range(1, 5)]
    one = search("c", MapElites([10], [(0, 1)], start=64), "list", tmp_path, settings)
    words = "2 measures came, and the sampler has ranges for 1"
    assert {(row["status"], row["message"]) for row in one} == {("FAILED", words)}


def test_a_failure_is_not_reused(tmp_path: Path, settings: Settings) -> None:
    search("a", RandomSearch(), "failure", tmp_path, settings)
    rows = search("b", by("speed"), "failure", tmp_path, settings)
    assert {(row["status"], row["message"], row["reused"]) for row in rows} == {("FAILED", "no", False)}
    assert executions(tmp_path) == 8
