"""19: a search ends EXHAUSTED when no point of its space is untried, whatever was added by hand."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

from tenuto.search import Choice, Evolution, GridSearch, Integer, MapElites, OptunaSampler, RandomSearch, Real
from tenuto.search.rows import Refusal
from tenuto.settings import Settings
from tenuto.settings.search import DatabaseSettings
from tenuto.settings.urls import Url
from tests.search.tasks_for_search import Judged, Square


def whole(tmp_path: Path, sampler: Any, high: int = 10, **options: Any) -> Evolution:
    given: dict[str, Any] = {"space": {"n": Integer(1, high)}, "workdir": tmp_path / "w", **options}
    return Evolution("whole", Judged.C(form="mapping"), sampler=sampler, **given)


def tried(result: Any) -> list[int]:
    return sorted(row["values"]["n"] for row in result.rows())


@pytest.mark.parametrize("enqueued", [[5], [10], [1], [2, 1, 7, 3]])
def test_a_grid_tries_every_point_once_whatever_was_enqueued(enqueued: list[int], tmp_path: Path) -> None:
    evolution = whole(tmp_path, GridSearch())
    for n in enqueued:
        evolution.enqueue({"n": n})
    evolution.close()
    first = whole(tmp_path, GridSearch(), max_total_jobs=6).run(slots=2)
    assert first.reason == "TOTAL"
    result = whole(tmp_path, GridSearch()).run(slots=2)
    assert (result.reason, result.succeeded, tried(result)) == ("EXHAUSTED", 10, list(range(1, 11)))


def test_a_grid_of_real_numbers_knows_a_point_that_was_enqueued_as_a_whole_one(tmp_path: Path) -> None:
    evolution = Evolution(
        "reals", Square, space={"x": Real(0, 2)}, sampler=GridSearch(3), workdir=tmp_path / "w"
    )
    evolution.enqueue({"x": 1})
    evolution.enqueue({"x": 0.25})
    evolution.close()
    result = evolution.run(slots=2)
    assert sorted(row["values"]["x"] for row in result.rows()) == [0, 0.25, 1, 2]
    assert result.reason == "EXHAUSTED"


def test_a_grid_passes_points_that_are_one_to_the_task(tmp_path: Path) -> None:
    space = {"x": Choice([1, 1.0, 2, 2.0, 3.0])}
    result = Evolution("same", Square, space=space, sampler=GridSearch(), workdir=tmp_path / "w").run(slots=2)
    assert (result.reason, [row["values"]["x"] for row in result.rows()]) == ("EXHAUSTED", [1, 2, 3.0])


@pytest.mark.parametrize(
    "sampler",
    [RandomSearch(), MapElites([5], [(0, 3)], measures=["speed"]), OptunaSampler("tpe")],
    ids=["random", "map", "tpe"],
)
def test_a_search_is_exhausted_when_its_space_is(sampler: Any, tmp_path: Path) -> None:
    evolution = whole(tmp_path, sampler, 30)
    evolution.enqueue({"n": 7})
    evolution.close()
    first = whole(tmp_path, sampler, 30, max_total_jobs=20).run(slots=2)
    assert (first.reason, first.scheduled) == ("TOTAL", 20)
    result = whole(tmp_path, sampler, 30).run(slots=2)
    assert (result.reason, tried(result)) == ("EXHAUSTED", list(range(1, 31)))


def test_tpe_with_a_cap_of_its_space_tries_all_of_it(tmp_path: Path) -> None:
    result = whole(tmp_path, OptunaSampler("tpe"), 100, max_total_jobs=100).run(slots=2)
    assert (result.reason, tried(result)) == ("TOTAL", list(range(1, 101)))


def test_schedulers_that_race_for_the_last_points_try_each_once(tmp_path: Path, database_url: str) -> None:
    settings = dataclasses.replace(Settings(), database=DatabaseSettings(url=Url(database_url)))
    searches = [whole(tmp_path, RandomSearch(), 60, settings=settings, max_unfinished_jobs=200) for _ in "ab"]
    refusals: list[Refusal | None] = []

    def schedule(evolution: Evolution) -> None:
        maker = evolution.open().maker
        while maker.make() is not None or maker.refusal is Refusal.MOVED:
            pass
        refusals.append(maker.refusal)

    for evolution in searches:
        evolution.open()
    threads = [threading.Thread(target=schedule, args=[evolution]) for evolution in searches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert refusals == [None, None]
    assert all(evolution.open().maker.is_exhausted for evolution in searches)
    assert tried(searches[0].result()) == list(range(1, 61))
    for evolution in searches:
        evolution.close()
