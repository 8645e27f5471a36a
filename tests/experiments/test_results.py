"""Owns the rows of results: pandas and Polars take them, whatever tasks return."""

from __future__ import annotations

import json
from typing import Any

import pandas
import polars
import pytest

from tenuto.jobs.result_table import Finished, result_rows
from tenuto.launchers.results import readable
from tenuto.lifecycle.states import JobState

from .scripts import TASKS, Place, python, run, tenuto


def rows(*results: Any, tags: Any = ()) -> list[dict[str, Any]]:
    finished = [
        Finished("Task", f"job{number}", JobState.DONE, tags[number] if tags else {}, readable(result))
        for number, result in enumerate(results)
    ]
    return result_rows(finished)


def frames(made: list[dict[str, Any]]) -> tuple[pandas.DataFrame, polars.DataFrame]:
    return pandas.DataFrame(made), polars.DataFrame(made)


@pytest.mark.parametrize(
    ("results", "column", "expected"),
    [
        ([1, 0.5, None], "result", [1.0, 0.5, None]),
        ([True, 2], "result", [1, 2]),
        (["a", 1.5], "result", ["a", "1.5"]),
        ([[1, 2], [0.5]], "result", [[1.0, 2.0], [0.5]]),
        ([0.5, [1, [2]]], "result", [0.5, None]),
        ([0.5, [1, [2]]], "result.json", [None, "[1, [2]]"]),
        ([[1], ["a"]], "result.json", ["[1]", '["a"]']),
        ([{"accuracy": 1, "deep": {"x": 1}}, {"accuracy": 0.5}, 3], "result.accuracy", [1.0, 0.5, None]),
        ([{"accuracy": 1, "deep": {"x": 1}}, {"accuracy": 0.5}, 3], "result.deep.x", [1, None, None]),
        ([{"accuracy": 1}, {"accuracy": 0.5}, 3], "result", [None, None, 3]),
        ([{}, 1], "result", ["{}", "1"]),
        ([float("nan"), 1], "state", ["DONE", "DONE"]),
        ([10**30, 1], "result", [10**30, 1]),
    ],
)
def test_a_column_has_one_type(results: list[Any], column: str, expected: list[Any]) -> None:
    made = rows(*results)
    assert [row[column] for row in made] == expected
    assert len({tuple(row) for row in made}) == 1, "all rows have the same columns"
    in_pandas, in_polars = frames(made)
    assert in_polars[column].to_list() == expected
    assert len(in_pandas) == len(in_polars) == len(results)


def test_a_column_that_comes_late_is_shown_early_enough() -> None:
    made = rows(*[None] * 150, 0.5, *[None] * 100, {"loss": 1}, "text")
    _, frame = frames(made)
    assert frame.filter(polars.col("result.loss").is_not_null()).height == 1
    assert [row["job"] for row in made[:3]] == ["job150", "job251", "job0"]
    ordered = [row["job"] for row in made[2:]]
    assert ordered == sorted(ordered, key=lambda job: int(job[3:])), "the others keep their order"


def test_a_tag_does_not_hide_a_column() -> None:
    (row,) = rows(1, tags=[{"job": "mine", "lr": 0.1, "result.x": 2}])
    assert (row["job"], row["tag.job"], row["lr"], row["tag.result.x"]) == ("job0", "mine", 0.1, 2)


def test_no_rows_are_an_empty_table() -> None:
    assert [frame.shape for frame in frames(rows())] == [(0, 0), (0, 0)]


TRAIN = """
class Train(Task):
    lr: Param[float]
    def execute(self):
        return {"loss": self.lr * 2, "steps": [1, 2]}
"""
SWEEP = """
import pandas, polars
with experiment(HERE / "ws", "sweep", raise_on_failure=False) as xp:
    for lr in (0.5, 1):
        Train.C(lr=lr).tag("lr", lr).submit()
    Note.C(name="a").submit()
    Fail.C(name="b").submit()
table = polars.DataFrame(xp.results(Train))
print(table["lr"].to_list(), table["result.loss"].to_list(), table["result.steps"].to_list())
frame = pandas.DataFrame(xp.results())
print(frame[frame.state == "DONE"].groupby("task").size().to_dict())
print(polars.DataFrame(xp.results()).shape)
"""


TAGGED = """
values = [0.001, True, None, "x", 10, 2]
with experiment(HERE / "ws", "tagged") as xp:
    for place, value in enumerate(values):
        Note.C(name=str(place)).tag("value", value).submit()
    for group in "AB":
        Note.C(name="base").tag("ablation", group).submit()
stored = load_xp_info(HERE / "ws", "tagged").results()
def rows(found):
    return sorted((row["job"], str(row["ablation"]), repr(row["value"])) for row in found)
print(rows(stored) == rows(xp.results()), len(stored))
print(sorted(row["ablation"] for row in stored if row["ablation"]))
"""


def test_stored_tags_are_the_values_that_they_were_and_a_shared_job_has_all(place: Place) -> None:
    result = run(python(place.script(TAGGED)), place.directory)
    assert result.stdout.splitlines() == ["True 8", "['A', 'B']"], result.stderr
    found = run(tenuto("jobs", "--json", "ablation=B", "-w", place.workspace), place.directory)
    (job,) = json.loads(found.stdout)
    assert job["tags"] == {"ablation": ["A", "B"]}
    listed = run(tenuto("results", "--json", "value=true", "-w", place.workspace), place.directory)
    assert [row["tags"] for row in json.loads(listed.stdout)] == [{"value": True}]
    both = run(tenuto("results", "--csv", "ablation=A", "-w", place.workspace), place.directory)
    assert sorted(line.split(",")[2] for line in both.stdout.splitlines()) == ["A", "B", "ablation"]


CROSSING = """
class Data(Config):
    noise: Param[float]
    train: Param[bool] = True

class Train(Task):
    data: Param[Data]
    def execute(self): return self.data.noise

class Evaluate(Task):
    fitted: Param[Train]
    test: Param[Data]
    def execute(self): return 10 * self.fitted.result() + self.test.noise
"""
CROSSED = """
with experiment(HERE / "ws", "crossed") as xp:
    for a in (0.1, 0.5):
        trained = Train.C(data=Data.C(noise=a).tag("noise", a)).submit()
        for b in (0.1, 0.5):
            Evaluate.C(fitted=trained, test=Data.C(noise=b, train=False).tag("noise", b)).submit()
for found in xp.results(Evaluate), load_xp_info(HERE / "ws", "crossed").results():
    found = [row for row in found if row["task"].endswith("Evaluate")]
    print(sorted((row["fitted.data.noise"], row["test.noise"]) for row in found))
    print({row.get("noise") for row in found})
"""


def test_a_table_of_crossed_tags_has_its_diagonal(place: Place) -> None:
    result = run(python(place.script(CROSSED, tasks=TASKS + CROSSING)), place.directory)
    assert result.stdout.splitlines() == ["[(0.1, 0.1), (0.1, 0.5), (0.5, 0.1), (0.5, 0.5)]", "{None}"] * 2
    found = run(
        tenuto("results", "--json", "test.noise=0.5", "fitted.data.noise=0.5", "-w", place.workspace),
        place.directory,
    )
    (row,) = json.loads(found.stdout)
    assert (row["tags"], row["result"]) == ({"fitted.data.noise": 0.5, "test.noise": 0.5}, 5.5)


def test_the_rows_of_an_experiment_make_a_table(place: Place) -> None:
    result = run(python(place.script(SWEEP, tasks=TASKS + TRAIN)), place.directory)
    assert result.stdout.splitlines() == [
        "[0.5, 1.0] [1.0, 2.0] [[1, 2], [1, 2]]",
        "{'script.Note': 1, 'script.Train': 2}",
        "(4, 7)",
    ], result.stderr
