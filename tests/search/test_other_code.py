"""An outcome that a search takes over is asked whether the code of its task has changed since."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto import experiment
from tenuto.database import Database
from tenuto.search import Evolution, GridSearch, Integer
from tenuto.search.opening import FILE_NAME
from tenuto.search.reporter import SearchResult
from tenuto.search.search_overview import overview
from tenuto.search.store import Store
from tenuto.settings import Settings

TASK = """
from tenuto import Param, Task


class Scaled(Task):
    n: Param[int]

    def execute(self) -> int:
        return self.n * {factor}
"""

Edit = Callable[[int], Any]


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edit]:
    """Writes the module of the task with another factor, and gives its class as a new process has it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def edited(factor: int) -> Any:
        (tmp_path / "scaled_task.py").write_text(TASK.format(factor=factor))
        sys.modules.pop("scaled_task", None)
        importlib.invalidate_caches()
        return importlib.import_module("scaled_task").Scaled

    yield edited
    sys.modules.pop("scaled_task", None)


def search(name: str, task: Any, tmp_path: Path, **settings: Any) -> SearchResult:
    return Evolution(
        name,
        task,
        space={"n": Integer(1, 3)},
        sampler=GridSearch(),
        workdir=tmp_path / "work",
        settings=Settings(**settings),
        max_total_jobs=3,
    ).run(slots=1)


def found(result: SearchResult) -> list[tuple[float, bool]]:
    rows = sorted(result.rows(), key=lambda row: int(row["values"]["n"]))
    return [(row["objective"], row["reused"]) for row in rows]


def doubted(name: str, tmp_path: Path) -> int:
    """How many outcomes of a search were made by other code, as `tenuto status NAME` tells."""
    database = Database(tmp_path / "work" / FILE_NAME)
    try:
        return overview(Store(database), name)["other_code"]
    finally:
        database.close()


def test_a_search_says_how_many_outcomes_of_another_one_were_made_by_other_code(
    edit: Edit, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    search("a", edit(1), tmp_path)
    assert found(search("b", edit(1), tmp_path)) == [(1, True), (2, True), (3, True)]
    assert "other code" not in capfd.readouterr().err
    assert found(search("c", edit(10), tmp_path)) == [(1, True), (2, True), (3, True)]
    assert capfd.readouterr().err.count("c: 3 of the outcomes were made by other code") == 1
    assert [doubted(name, tmp_path) for name in "abc"] == [0, 0, 3]


def test_outcomes_of_another_search_by_other_code_are_evaluated_anew_if_that_is_asked_for(
    edit: Edit, tmp_path: Path
) -> None:
    search("a", edit(1), tmp_path)
    changed = edit(10)
    search("b", changed, tmp_path)
    again = search("c", changed, tmp_path, rerun_changed=True)
    assert found(again) == [(10, False), (20, False), (30, False)]
    assert found(search("d", changed, tmp_path, rerun_changed=True)) == [(10, True), (20, True), (30, True)]
    assert found(search("e", changed, tmp_path)) == [(10, True), (20, True), (30, True)]
    assert [doubted(name, tmp_path) for name in "bcde"] == [3, 0, 0, 0]


def test_a_search_asks_the_same_of_jobs_that_an_experiment_ran(
    edit: Edit, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = edit(1)
    with experiment(tmp_path / "work", "first"):
        for n in (1, 2):
            task.C(n=n).submit()
    changed = edit(10)
    noted = search("a", changed, tmp_path)
    assert [objective for objective, _ in found(noted)] == [1, 2, 30]
    assert "a: 2 of the outcomes were made by other code" in capfd.readouterr().err
    again = search("b", changed, tmp_path, rerun_changed=True)
    assert [objective for objective, _ in found(again)] == [10, 20, 30]
    assert [doubted(name, tmp_path) for name in "ab"] == [2, 0]
