"""Ranges of measures that follow what was told, and measures that fixed ranges clip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import SearchError
from tenuto.search import Evolution, MapElites, Outcome, Real, Study
from tenuto.search.archive import is_scaling, scaled_ranges
from tenuto.search.search_overview import archive_panel, overview, told_cells
from tests.search.tasks_for_search import Square

SPACE = {"x": Real(0, 1), "y": Real(0, 1)}


def measures(values: dict[str, Any]) -> list[float]:
    """Of a size that nobody knows beforehand."""
    return [200 + 90 * values["x"], -5e-3 * values["y"]]


def filled(count: int, **options: Any) -> Study:
    study = Study(SPACE, MapElites([10, 10], **options), seed=3)
    for _ in range(count):
        one = study.ask()
        assert one is not None
        study.tell(one.number, Outcome(one.values["x"], measures(one.values)))
    return study


def test_ranges_follow_what_was_told() -> None:
    fixed = filled(64, ranges=[(0, 1), (0, 1)]).archive
    scaled = filled(64, ranges="auto").archive
    assert fixed is not None
    assert scaled is not None
    assert len(fixed) == 1
    assert len(scaled) > 20
    assert scaled.coverage > 0.2


def test_ranges_are_found_anew_after_16_32_64_outcomes() -> None:
    assert [count for count in range(200) if is_scaling(count)] == [16, 32, 64, 128]
    points = [(float(at), 1.0) for at in range(40)]
    assert scaled_ranges(points[:15], 2) == [(0.0, 1.0)] * 2
    assert scaled_ranges(points[:16], 2) == scaled_ranges(points[:31], 2)
    low, high = scaled_ranges(points, 2)[0]
    assert (low, high) == pytest.approx((0.62, 30.38))  # of the first 32
    assert scaled_ranges(points, 2)[1] == (0.5, 1.5)  # all the same: in the middle


@pytest.mark.parametrize("islands", [1, 3])
def test_every_outcome_is_in_the_archive_after_a_scaling(islands: int) -> None:
    study = filled(33, ranges="auto", islands=islands, migrate_every=5)
    again = filled(33, ranges="auto", islands=islands, migrate_every=5)
    assert study.archive is not None
    assert again.archive is not None
    assert study.archive.elites() == again.archive.elites()
    assert study.archive.best == max(study.archive.elites(), key=lambda one: one.objective)
    assert study.best is not None
    assert study.archive.best is not None
    assert study.archive.best.objective == study.best.objective


def test_ranges_that_are_no_ranges_are_refused() -> None:
    with pytest.raises(SearchError, match="auto"):
        MapElites([10], "wide")
    with pytest.raises(SearchError, match="names of the measures"):
        MapElites(10, "auto")
    assert MapElites(10, "auto", measures=["a", "b"]).measure_count == 2


def run(tmp_path: Path, ranges: Any) -> Evolution:
    evolution = Evolution(
        "wide",
        Square,
        space={"x": Real(0, 100)},
        sampler=MapElites([10], ranges),
        workdir=tmp_path,
        max_total_jobs=20,
    )
    evolution.run(2)
    return evolution


def test_clipped_measures_are_counted(tmp_path: Path) -> None:
    evolution = run(tmp_path, [(0, 1)])
    found = overview(evolution.open().store, "wide")
    assert found["clipped"] > 15
    evolution.close()


def test_screens_divide_the_archive_as_the_sampler_does(tmp_path: Path) -> None:
    evolution = run(tmp_path, "auto")
    opened = evolution.open()
    archive = opened.result().archive
    assert archive is not None
    found = overview(opened.store, "wide")
    assert (found["filled"], found["clipped"]) == (len(archive), 0)
    assert found["qd_score"] == pytest.approx(archive.qd_score)
    panel = archive_panel(opened.store.database, "wide")
    assert panel is not None
    assert panel["axes"][0]["high"] > 50
    assert {elite[0] for elite in panel["elites"]} == {elite.cell for elite in archive.elites()}
    _, told = told_cells(opened.store.database, "wide", opened.row.definition["sampler"])
    assert {one.cell for one in told} == {elite.cell for elite in archive.elites()}
    evolution.close()
