"""Owns `tenuto results`: what it shows, in which order, and as what."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.jobs.drawing import PlotPoint, bars, histogram, scatter
from tenuto.jobs.result_table import ResultRow, flat_result, less_is_better, sorted_rows, varying_parameters
from tenuto.jobs.row import Row
from tenuto.jobs.text import width
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState

from .conftest import ESCAPES, Shell

SWEEP = """
import sys
from tenuto import Param, Task, experiment

ESCAPES = "\\x1b[31mred"

class Train(Task):
    lr: Param[float]
    kind: Param[str] = "sgd"
    def execute(self):
        return {"accuracy": 1 - self.lr, "test": {"f1": self.lr}, ESCAPES: ESCAPES}

class Evaluate(Task):
    trained: Param[Train]
    def execute(self):
        return {"loss": 1 - self.trained.result()["accuracy"], "curve": list(range(1000))}

class Nothing(Task):
    n: Param[int]
    def execute(self):
        pass

if __name__ == "__main__":
    with experiment(sys.argv[1], "sweep"):
        for lr, kind in ((0.1, "sgd"), (0.3, "adam"), (0.2, "sgd")):
            Evaluate.C(trained=Train.C(lr=lr, kind=kind).submit()).submit()
        Nothing.C(n=1).submit()
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A workspace with the results of a sweep."""
    shell = Shell(tmp_path_factory.mktemp("swept"))
    shell.script.write_text(SWEEP, encoding="utf-8")
    assert shell.experiment("sweep") == 0
    return shell


def test_the_best_come_first_with_what_tells_them_apart(swept: Shell) -> None:
    shown = swept.run("results", "task~train")
    head, *lines = shown.stdout.splitlines()
    assert head.split()[:5] == ["id", "kind", "lr", "result.accuracy", "result.test.f1"]
    assert [line.split()[2] for line in lines] == ["0.1", "0.2", "0.3"]
    assert "sorted by result.accuracy, the largest first" in shown.stderr
    assert "\x1b" not in shown.stdout


def test_a_loss_is_best_when_it_is_small(swept: Shell) -> None:
    rows = swept.json("results", "task~evaluate")
    assert [row["result"]["loss"] for row in rows] == sorted(row["result"]["loss"] for row in rows)


def test_parameters_of_the_jobs_that_a_job_used_are_columns(swept: Shell) -> None:
    shown = swept.run("results", "trained.lr>0.15", "--columns", "trained.lr,result.loss")
    head, *lines = shown.stdout.splitlines()
    assert head.split() == ["id", "trained.lr", "result.loss"]
    assert [line.split()[1] for line in lines] == ["0.2", "0.3"]


def test_the_task_is_a_column_to_group_and_to_sort_by(swept: Shell) -> None:
    """The table shows it, but `--group task` knew no such column."""
    groups = swept.json("results", "--group", "task", "--agg", "count")
    assert {row["task"]: row["jobs"] for row in groups} == {
        row["task"]: sum(one["task"] == row["task"] for one in swept.json("results")) for row in groups
    }
    assert len(groups) == 2
    assert "task" in swept.run("results", "--columns", "task", "--sort=-task").stdout


def test_names_of_columns_may_come_in_several_options(swept: Shell) -> None:
    """Of `--group task --group lr` only the last counted, and an empty name was a traceback."""
    joined = swept.json("results", "--group", "task,lr", "--agg", "count,mean")
    assert swept.json("results", "-g", "task", "-g", "lr,task", "--agg", "count", "--agg", "mean") == joined
    for option in ("--group", "--columns", "--agg"):
        refused = swept.run("results", option, ",", check=2)
        assert "it names nothing" in refused.stderr


def test_results_choose_and_sort_jobs(swept: Shell) -> None:
    jobs = swept.json("jobs", "result.accuracy>0.75", "--sort=-result.accuracy")
    assert [job["result"]["accuracy"] for job in jobs] == [0.9, 0.8]
    assert swept.json("runs", "show", "sweep")["job_list"][0]["result"]["accuracy"] == 0.9
    assert "accuracy=0.9 test.f1=0.1" in swept.run("jobs", "task~train").stdout


def test_a_large_result_is_whole_in_results_and_why(swept: Shell) -> None:
    (row, *_) = swept.json("results", "task~evaluate", "--limit", "1")
    assert row["result"]["curve"][-1] == 999
    (job,) = [job for job in swept.json("jobs", "task~evaluate") if job["id"] == row["id"]]
    assert job["result"] is None
    assert swept.json("why", row["id"])["result"]["curve"][-1] == 999
    assert "result.loss = 0.09" in swept.run("why", row["id"]).stdout


def test_csv_has_every_column(swept: Shell) -> None:
    rows = list(csv.DictReader(io.StringIO(swept.run("results", "--csv").stdout)))
    assert len(rows) == 6
    best = next(row for row in rows if row["lr"] == "0.1")
    assert (best["task"], best["kind"], best["result.accuracy"]) == ("script.Train", "sgd", "0.9")


def test_jobs_without_a_result_are_told_of(swept: Shell) -> None:
    assert "1 other job returned nothing" in swept.run("results").stderr
    assert "none returned a result" in swept.run("results", "task~nothing").stderr
    assert swept.json("results", "task~nothing") == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--sort", "result.acuracy"], 3, "no result here has a column 'result.acuracy'; there are: kind"),
        (["--columns", "nope"], 3, "'nope'"),
        (["--plot", "nope"], 3, "'nope'"),
        (["--plot", "kind"], 3, "no numbers"),
        (["--plot", "a,b,c"], 2, "one or two columns"),
        (["--csv", "--json"], 2, "exclude each other"),
    ],
)
def test_a_result_that_cannot_be_shown_is_refused(
    swept: Shell, arguments: list[str], code: int, said: str
) -> None:
    found = swept.run("results", "task~train", *arguments, check=code)
    assert said in found.stderr
    assert "Traceback" not in found.stderr


def test_plots_are_drawn(swept: Shell) -> None:
    assert swept.run("results", "task~train", "--plot", "lr,result.accuracy").stdout.count("•") == 3
    assert "█" in swept.run("results", "task~train", "--plot", "result.accuracy").stdout
    assert (
        "mean of result.accuracy by kind"
        in swept.run("results", "task~train", "--plot", "kind,result.accuracy").stdout
    )


# -- pure parts --------------------------------------------------------------------------------------


def job(task: str, job_id: str, state: JobState, **more: Any) -> Row:
    return Row(f"experiments:{task}/{job_id}", "", Door.EXPERIMENTS, task, job_id, state, **more)


def row(result: object, tags: dict[str, Any] | None = None, **parameters: object) -> ResultRow:
    return ResultRow(job("T", "j", JobState.DONE, tags=tags or {}), parameters, result)


def test_nested_results_are_spread() -> None:
    assert flat_result({"a": {"b": 1, "c": [1]}, "d": {}}) == {
        "result.a.b": 1,
        "result.a.c": [1],
        "result.d": {},
    }
    assert flat_result(3) == {"result": 3}
    assert flat_result(None) == {}


@pytest.mark.parametrize("tagged", [str, float, lambda lr: lr + 1])
def test_a_parameter_that_a_tag_tells_is_no_second_column(tagged: Callable[[float], Any]) -> None:
    rows = [
        row(1, {"lr": tagged(lr)}, lr=lr, data="d", seed=seed) for lr, seed in ((0.1, 1), (0.2, 2), (0.3, 2))
    ]
    assert varying_parameters(rows) == ["seed"]


def test_numbers_come_before_texts_and_nothing_last() -> None:
    rows = [row(result) for result in ("b", 2, None, 10, "a")]
    assert [one.result for one in sorted_rows(rows, "result", largest_first=True)] == [10, 2, "b", "a", None]
    assert [one.result for one in sorted_rows(rows, "result", largest_first=False)] == [2, 10, "a", "b", None]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("result.val_loss", True),
        ("result.RMSE", True),
        ("result.accuracy", False),
        ("result.lossless", False),
        ("loss:min", True),
        ("accuracy:max", False),
    ],
)
def test_a_name_says_whether_less_is_better(name: str, expected: bool) -> None:
    assert less_is_better(name) is expected


@pytest.mark.parametrize("columns", [12, 40, 200])
def test_plots_fit_the_window(columns: int) -> None:
    points = [PlotPoint(10.0**-n, float(n)) for n in range(6)]
    lines = [
        *scatter(points, "lr", "y", columns),
        *scatter([PlotPoint(1, 1)], ESCAPES, ESCAPES, columns),
        *histogram([1.0, 2.0, 2.5], columns),
        *histogram([1.0], columns),
    ]
    assert max(map(width, lines)) <= max(columns, 40)
    assert "\x1b" not in "".join([*lines, *bars([(ESCAPES, -1.0), ("b", 3.0)], columns)])


def test_the_page_of_the_command_line_knows_the_fields() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert "`id`, `name`, `kind`, `task`, `state`, `experiment`, `run`, `tags`, `parameters`" in page


def test_numbers_that_differ_in_the_seventh_digit_stay_apart(tmp_path: Path) -> None:
    script = tmp_path / "close.py"
    script.write_text(
        "from tenuto import Param, Task, experiment, tag\n\n\n"
        "class Near(Task):\n    lr: Param[float]\n    seed: Param[int]\n\n"
        "    def execute(self):\n        return {'loss': self.lr / 3}\n\n\n"
        "if __name__ == '__main__':\n"
        "    for n, lr in enumerate((0.1, 0.10000001)):\n"
        "        with experiment('ws', f'close{n}'):\n"
        "            for seed in (1, 2):\n"
        "                Near.C(lr=tag(lr), seed=seed).submit()\n"
    )

    def said(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tenuto", *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    subprocess.run([sys.executable, script], cwd=tmp_path, check=True, capture_output=True)
    grouped = said("results", "-w", "ws", "--group", "lr")
    assert [line.split()[:2] for line in grouped.splitlines()[1:]] == [["0.1", "2"], ["0.10000001", "2"]]
    assert "lr=0.10000001" in said("diff", "-w", "ws", "close0", "close1")
    said("export", "-w", "ws", "close1", "out")
    assert repr(0.10000001 / 3) in (tmp_path / "out" / "results.csv").read_text()
