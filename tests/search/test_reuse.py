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
from tests.experiments.scripts import python, run
from tests.search.tasks_for_search import Judged, Whole


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


CONTINUED = """
import sys
from tenuto import Config, Param, Task
from tenuto.search import Choice, Evolution, GridSearch
class Part(Config):
    k: Param[int] = 0
class Ev(Task):
    x: Param[int]
    n: Param[int] = 1
    part: Param[Part] = Part.C()
    def execute(self):
        return 10.0 * self.x * self.n + self.part.k
if __name__ == "__main__":
    task = Ev if sys.argv[2:] == [] else Ev.C(n=int(sys.argv[2]))
    space = {"x": Choice([1, 2, 3])}
    evolution = Evolution("s", task, space=space, sampler=GridSearch(), max_total_jobs=int(sys.argv[1]))
    print([row["objective"] for row in evolution.run().rows()])
"""


def test_a_search_that_continues_with_other_values_is_refused(tmp_path: Path) -> None:
    """Its first candidates were of the old default, the others of the new one."""
    script = tmp_path / "script.py"
    script.write_text(CONTINUED)
    assert run([*python(script), "1"], tmp_path).stdout == "[10.0]\n"
    for old, new, words in (
        ("n: Param[int] = 1", "n: Param[int] = 2", "Ev.n was 1 and is 2 now"),
        ("k: Param[int] = 0", "k: Param[int] = 5", "Part.k was 0 and is 5 now"),
    ):
        script.write_text(CONTINUED.replace(old, new))
        refused = run([*python(script), "3"], tmp_path)
        assert "SearchDiffers" in refused.stderr
        assert words in refused.stderr
    script.write_text(CONTINUED)
    assert "Ev.n was 1 and is 4 now" in run([*python(script), "3", "4"], tmp_path).stderr
    script.write_text(CONTINUED.replace("n: Param", "new: Param[int] = 7\n    n: Param"))
    assert run([*python(script), "2", "1"], tmp_path).stdout == "[10.0, 20.0]\n", (
        "a new parameter is no other value"
    )
    script.write_text(CONTINUED.replace("10.0 *", "20.0 *"))
    mixed = run([*python(script), "3"], tmp_path)
    assert mixed.stdout == "[10.0, 20.0, 60.0]\n"
    assert "s: its first outcomes were made by other code" in mixed.stderr


def test_a_candidate_that_another_search_failed_at_is_evaluated(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for name in ("a", "b"):
        evolution = Evolution(
            name,
            Whole.C(log=str(log)),
            space={"n": Integer(-2, 2)},
            sampler=GridSearch(),
            workdir=tmp_path / "w",
        )
        result = evolution.run(slots=2)
        assert (result.reason, result.succeeded, result.failed) == ("EXHAUSTED", 3, 2)
    started = log.read_text().splitlines()
    assert [started.count(f"start {n}") for n in range(-2, 3)] == [2, 2, 1, 1, 1]
