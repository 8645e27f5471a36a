"""Candidates that a person gives, with outcomes or without, tables of them, and columns of what came."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto import Param, Task
from tenuto.errors import CapReached, SearchError
from tenuto.search import Choice, Evolution, Integer, JobScheduler, MapElites, Outcome, Real
from tenuto.search.export import COLUMNS, candidate_rows
from tenuto.search.opening import FILE_NAME
from tests.search.builders import Console
from tests.search.terminal import tenuto


class Slope(Task):
    x: Param[float]
    n: Param[int]
    kind: Param[str]
    pair: Param[list[float]]

    def execute(self) -> Any:
        return {"objective": self.x, "size": self.n / 10, "loss": 1 - self.x, "cost": 0.5}


SPACE = {"x": Real(0, 1), "n": Integer(0, 9), "kind": Choice(["a", "b"]), "pair": Real(0, 1, shape=2)}


def values(x: float = 0.5, n: int = 3) -> dict[str, Any]:
    return {"x": x, "n": n, "kind": "b", "pair": [0.1, 0.2]}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str) -> Path:
    """A working directory whose searches lie in a database of each kind."""
    monkeypatch.chdir(tmp_path)
    if database_url.startswith("postgresql"):
        monkeypatch.setenv("TENUTO_DATABASE__URL", database_url)
    return tmp_path


@pytest.fixture
def search(place: Path) -> Iterator[Evolution]:
    made = declared("one", place)
    yield made
    made.close()


def declared(name: str, place: Path, total: int = 6) -> Evolution:
    sampler = MapElites(cells=[5], ranges=[(0, 1)], measures=["size"])
    return Evolution(name, Slope, space=SPACE, sampler=sampler, workdir=place / "ws", max_total_jobs=total)


def test_a_job_scheduler_with_the_settings_of_a_search_works_on_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = Evolution("s", Slope, space=SPACE, workdir="ws", max_total_jobs=4, max_unfinished_jobs=3)
    scheduler = JobScheduler(made.settings, Console(), made.sampler, made.experiment_id)
    assert scheduler.schedule_jobs(0, total_scheduled_jobs=0) == 3
    assert scheduler.count_unfinished_jobs() == 3
    assert (tmp_path / "ws" / FILE_NAME).exists()
    assert not (tmp_path / "workspace").exists()
    scheduler.close()
    monkeypatch.chdir(tmp_path.parent)
    scheduler = JobScheduler(made.settings, Console(), made.sampler, made.experiment_id)
    assert scheduler.count_unfinished_jobs() == 3
    scheduler.close()
    made.close()


def test_a_candidate_that_exists_is_skipped_whatever_the_caps(search: Evolution) -> None:
    number = search.enqueue(values(), skip_if_exists=True)
    with pytest.raises(SearchError, match="skip_if_exists"):
        search.enqueue(values())
    for at in range(5):
        search.enqueue(values(at / 10))
    assert search.enqueue(values(), skip_if_exists=True) == number
    with pytest.raises(CapReached):
        search.enqueue(values(0.9), skip_if_exists=True)


def test_a_known_outcome_is_told_and_never_evaluated_nor_handed_on(place: Path, search: Evolution) -> None:
    number = search.add(values(), Outcome(7.0, {"size": 0.9}, cost=3, metrics={"loss": 0}))
    result = search.run(slots=2)
    row = next(row for row in result.rows() if row["number"] == number)
    assert (row["status"], row["objective"], row["worker"], row["cost"]) == ("SUCCEEDED", 7.0, None, 0.0)
    assert result.best is not None
    assert (result.best.objective, result.best.number) == (7.0, number)
    assert result.cost == 2.5
    other = declared("two", place, total=1)
    other.enqueue(values())
    taken = other.run(slots=1)
    other.close()
    assert taken.best is not None
    assert (taken.best.objective, taken.reused) == (0.5, 0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (float("nan"), "finite"),
        (1.0, "measure"),
        (Outcome(1.0, [0.1, 0.2]), "2 measures"),
        (Outcome(1.0, [0.1], failure="bad"), "bad"),
        ("much", "not an Outcome"),
        (None, "not an Outcome"),
        (Outcome(1.0, [0.1], metrics={"o": object()}), "metrics.o is <object"),
        (Outcome(1.0, [0.1], metrics={"deep": [{"s": {1}}]}), r"metrics.deep.s is \{1\}"),
        (Outcome(1.0, [0.1], artifacts={"a": b"x"}), "artifacts.a is b'x'"),  # type: ignore[dict-item]
        (Outcome(1.0, [0.1], solution=complex(1)), "solution is"),
        ({"objective": 1, "size": 0.1, "metrics": 5}, "metrics are 5, not a mapping"),
        (Outcome(1.0, [0.1], artifacts=5), "artifacts are 5, not a mapping"),  # type: ignore[arg-type]
        (Outcome(1.0, [0.1], cost=-1), "below 0"),
    ],
)
def test_an_outcome_that_cannot_be_used_leaves_nothing_behind(
    search: Evolution, given: Any, words: str
) -> None:
    with pytest.raises(SearchError, match=words):
        search.add(values(), given)
    with pytest.raises(SearchError, match="'x'"):
        search.add({"n": 1}, 1.0)
    assert search.result().scheduled == 0


def test_a_known_outcome_of_numpy_is_kept_as_numbers_and_lists(search: Evolution) -> None:
    numpy = pytest.importorskip("numpy")
    metrics = {"loss": numpy.float32(0.5), "curve": numpy.zeros(2), "deep": {"n": numpy.int64(3)}}
    search.add(values(0.1), Outcome(numpy.float64(1), numpy.array([0.1]), metrics=metrics))
    search.add(values(0.2), Outcome(1.0, {"size": numpy.float32(0.5)}, solution=numpy.ones(2)))
    first, second = search.result().rows()
    assert first["metrics"] == {"loss": 0.5, "curve": [0.0, 0.0], "deep": {"n": 3}}
    assert (first["measures"], second["measures"], second["solution"]) == ([0.1], [0.5], [1.0, 1.0])


@pytest.mark.parametrize("priority", [1 << 31, -(1 << 31) - 1, 1 << 70])
def test_a_priority_that_no_database_keeps_is_refused(search: Evolution, priority: int) -> None:
    with pytest.raises(SearchError, match="32 bits"):
        search.enqueue(values(), priority=priority)
    search.enqueue(values())
    with pytest.raises(SearchError, match="32 bits"):
        search.open().store.set_priority("one", 1, priority)
    assert search.open().store.set_priority("one", 1, (1 << 31) - 1)
    assert search.result().scheduled == 1


def test_rows_and_csv_have_a_column_for_each_parameter_metric_and_measure(
    place: Path, search: Evolution
) -> None:
    rows = search.run(slots=2).rows()
    assert tuple(candidate_rows(search.open().store, "one")[0]) == COLUMNS
    assert all(row["x"] == row["values"]["x"] == row["objective"] for row in rows)
    assert all([row["pair[0]"], row["pair[1]"]] == row["values"]["pair"] for row in rows)
    assert all(row["size"] == row["measures"][0] and row["loss"] == row["metrics"]["loss"] for row in rows)
    printed = tenuto(place, "search", "export", "one", "--format", "csv", "-w", "ws").stdout
    table = list(csv.DictReader(io.StringIO(printed)))
    assert [float(row["x"]) for row in table] == [row["x"] for row in rows]
    assert not {"values", "metrics", "measures"} & set(table[0])


def test_a_table_is_added_whole_or_not_at_all(place: Path, search: Evolution) -> None:
    search.run(slots=2)
    exported = tenuto(place, "search", "export", "one", "--format", "csv", "-w", "ws").stdout
    (place / "known.csv").write_text(exported)
    (place / "wrong.csv").write_text(
        'x,n,kind,pair,objective,size\n0.1,1,a,"[0, 0]",1,0\n0.1,77,a,"[0, 0]",1,0\n'
    )
    (place / "mixed.csv").write_text(
        'x,n,kind,pair,objective,size\n0.11,1,a,"[0, 0]",9,0.1\n0.12,1,a,"[0, 0]",,\n'
    )
    other = declared("two", place, total=20)
    other.enqueue(values())

    def add(file: str) -> Any:
        return tenuto(place, "search", "add", "two", "--csv", file, "-w", "ws")

    refused = add("wrong.csv")
    assert refused.returncode != 0
    assert "line 3" in refused.stderr
    assert "n=77" in refused.stderr
    (place / "wide.csv").write_text("x,n\n1,2,3\n")
    assert "line 2 has more cells" in add("wide.csv").stderr
    assert other.result().scheduled == 1
    assert "added 6 with their outcomes, 0 to be evaluated, 0 skipped" in add("known.csv").stderr
    assert "added 0 with their outcomes, 0 to be evaluated, 6 skipped" in add("known.csv").stderr
    assert "added 1 with their outcomes, 1 to be evaluated, 0 skipped" in add("mixed.csv").stderr
    result = other.run(slots=2)
    other.close()
    assert result.best is not None
    assert result.best.objective == 9


def test_a_table_that_passes_the_cap_adds_nothing(place: Path, search: Evolution) -> None:
    search.enqueue(values())
    lines = [f'0.{at},1,a,"[0, 0]",1,0' for at in range(1, 8)]
    (place / "many.csv").write_text("\n".join(["x,n,kind,pair,objective,size", *lines]))
    done = tenuto(place, "search", "add", "one", "--csv", "many.csv", "-w", "ws")
    assert (done.returncode, "all 6 candidates" in done.stderr) == (2, True), done.stderr
    assert search.result().scheduled == 1


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (b"", "a name of its own"),
        (b"x,n,kind,pair\n\xff,1,a,b\n", "no table in UTF-8"),
        (b"x,x,n,kind,pair\n0.1,0.2,1,a,b\n", "a name of its own"),
        (b'\xef\xbb\xbfx, n ,kind,pair\r\n0.1,1,a,"[0, 0]"\r\n', "1 to be evaluated"),
    ],
)
def test_a_table_of_any_editor_is_read_or_refused_with_words(
    place: Path, search: Evolution, table: bytes, words: str
) -> None:
    search.enqueue(values())
    (place / "table.csv").write_bytes(table)
    done = tenuto(place, "search", "add", "one", "--csv", "table.csv", "-w", "ws")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


class Clashing(Task):
    cost: Param[float]
    status: Param[bool]
    size: Param[int]
    kind: Param[str | None]

    def execute(self) -> Any:
        return Outcome(self.cost, {"size": self.size / 10}, cost=7, metrics={"order": 1})


def test_an_export_whose_parameters_are_called_as_columns_is_read_again(place: Path) -> None:
    space = {
        "cost": Real(0, 1),
        "status": Choice([True, False]),
        "size": Integer(0, 9),
        "kind": Choice([None, "1", "b"]),
    }

    def declared(name: str) -> Evolution:
        sampler = MapElites(cells=[5], ranges=[(0, 1)], measures=["size"])
        return Evolution(
            name,
            Clashing,
            space=space,
            sampler=sampler,
            workdir=place / "ws",
            max_total_jobs=9 + (name == "other"),
        )

    first = declared("first").run(slots=2)
    (place / "table.csv").write_text(
        tenuto(place, "search", "export", "first", "--format", "csv", "-w", "ws").stdout
    )
    other = declared("other")
    other.enqueue({"cost": 0.5, "status": True, "size": 3, "kind": "b"})
    other.close()
    done = tenuto(place, "search", "add", "other", "--csv", "table.csv", "-w", "ws")
    assert "added 9 with their outcomes, 0 to be evaluated, 0 skipped" in done.stderr, done.stderr
    rows = [row for row in other.result().rows() if row["number"] > 1]
    assert [row["values"] for row in rows] == [row["values"] for row in first.rows()]
    assert [(row["objective"], row["measures"]) for row in rows] == [
        (row["objective"], row["measures"]) for row in first.rows()
    ]
    other.close()


def test_a_candidate_is_given_to_a_search_that_ended_if_its_bounds_allow_it(place: Path) -> None:
    search = declared("one", place, total=3)
    assert search.run(slots=2).reason == "TOTAL"
    with pytest.raises(CapReached):
        search.enqueue(values(0.9))
    search.close()
    larger = declared("one", place, total=4)
    assert larger.enqueue(values(0.9)) == 4
    result = larger.run(slots=2)
    assert (result.reason, result.scheduled, result.succeeded) == ("TOTAL", 4, 4)
    larger.close()
    done = tenuto(
        place, "search", "add", "one", "-w", "ws", *"-c x=0.1 -c n=1 -c kind=a -c pair=[0,0]".split()
    )
    assert (done.returncode, "raise max_total_jobs" in done.stderr) == (2, True), done.stderr


def test_an_export_is_json_whatever_the_numbers_are(place: Path) -> None:
    search = declared("one", place)
    search.add(values(), Outcome(1.0, {"size": 0.1}, metrics={"loss": float("nan"), "all": [float("inf")]}))
    search.close()
    for words in (["export", "one"], ["best", "one", "--json"]):
        said = tenuto(place, "search", *words, "-w", "ws").stdout
        if said:
            assert json.loads(said, parse_constant=pytest.fail)["metrics"] == {"loss": "nan", "all": ["inf"]}
