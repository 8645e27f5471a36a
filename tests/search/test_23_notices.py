"""Owns what a person is told of a search: its first failure, each better best, and every end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tenuto.jobs import notify
from tenuto.search.search_run import SearchRun
from tests.search.terminal import tenuto

SCRIPT = """
from tenuto import Param, Task
from tenuto.search import Evolution, GridSearch, Integer, Outcome

class Two(Task):
    n: Param[int]
    def execute(self):
        if self.n in (2, 5):
            raise ValueError("two")
        return Outcome(float(self.n))

if __name__ == "__main__":
    Evolution("two", Two, space={"n": Integer(1, 6)}, sampler=GridSearch()).run()
"""
KEEP = """
import json, sys
with open("told", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose searches tell of each notice in the file ``told``."""
    folder = tmp_path
    (folder / "two.py").write_text(SCRIPT)
    (folder / "keep.py").write_text(KEEP)
    (folder / "tenuto.toml").write_text(
        f'[notify]\ncommand = [{json.dumps(sys.executable)}, "keep.py", "{{kind}}", "{{text}}"]\n'
    )
    monkeypatch.setattr(notify, "APART_S", 0.0)
    return folder


def told(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "told").read_text().splitlines()]


def test_23_a_failure_is_told_once_and_a_best_when_it_is_better(folder: Path) -> None:
    tenuto(folder, "evolve", "--slots", "2", "two.py")
    first = told(folder)
    assert [kind for kind, _ in first].count("first_failure") == 1
    bests = [float(text.partition(" ")[0]) for kind, text in first if kind == "best"]
    assert bests == sorted(set(bests))
    assert first[-1][0] == "ended"
    assert "succeeded" in first[-1][1]
    tenuto(folder, "evolve", "--slots", "2", "two.py")  # continued: there is no news
    assert [kind for kind, _ in told(folder)[len(first) :]] == ["ended"]


def test_23_a_search_that_breaks_is_told_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: SearchRun) -> None:
        raise RuntimeError("the disk is gone")

    monkeypatch.setattr(SearchRun, "_follow_best", broken)
    assert tenuto(folder, "evolve", "--slots", "1", "two.py").returncode == 1
    assert told(folder)[-1] == ["ended", "RuntimeError: the disk is gone"]
