"""Whatever text a task, an evaluator or a driver produces, its candidate ends, on each kind of database."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto.search import Choice, Evolution, GridSearch, Repository
from tenuto.settings import Settings
from tenuto.settings.search import DatabaseSettings
from tenuto.settings.urls import Url
from tests.search.builders import execute
from tests.search.tasks_for_search import Hostile

ROOT = Path(__file__).parents[2]


@pytest.fixture
def settings(database_url: str) -> Settings:
    return dataclasses.replace(Settings(), database=DatabaseSettings(url=Url(database_url)))


def ran(tmp_path: Path, settings: Settings, *forms: str) -> list[dict[str, Any]]:
    """The rows of a search of these forms; its search has ended."""
    evolution = Evolution(
        "hostile",
        Hostile,
        space={"form": Choice(forms)},
        sampler=GridSearch(),
        workdir=tmp_path / "w",
        settings=settings,
    )
    result = evolution.run(slots=2)
    assert result.reason in ("EXHAUSTED", "FAILING")
    return result.rows()


def test_a_failure_has_any_text(tmp_path: Path, settings: Settings) -> None:
    forms = ("failure \0", "failure \udc80", "raise \0", "raise \udc80", "prints")
    rows = ran(tmp_path, settings, *forms)
    assert [row["status"] for row in rows] == ["FAILED"] * 5
    for row in rows:
        row["message"].encode()
        assert "\0" not in row["message"]
    assert [row["message"] for row in rows[:2]] == ["a\ufffdz", "a\ufffdz"]
    assert all("a\ufffdz" in row["message"] or "\\" in row["message"] for row in rows[2:4])


def test_an_outcome_has_any_text(tmp_path: Path, settings: Settings) -> None:
    rows = ran(tmp_path, settings, "outcome \0", "outcome \udc80", "mapping \0")
    assert [row["status"] for row in rows] == ["SUCCEEDED"] * 3
    for row in rows:
        assert row["metrics"] == {"k\ufffd": "v\ufffd", "nested": [{"n\ufffd": ["\ufffd"]}]}
        json.dumps(
            {key: row[key] for key in ("metrics", "solution", "measures")}, ensure_ascii=False
        ).encode()
    assert [row["solution"] for row in rows] == ["s\ufffd"] * 3


def test_an_evaluator_that_prints_a_nul_fails_its_candidate(tmp_path: Path, settings: Settings) -> None:
    repository = tmp_path / "repo"
    repository.mkdir()
    (repository / "a.py").write_text("K = 1\n")
    judge = tmp_path / "judge.py"
    judge.write_text(r"import sys; sys.stderr.buffer.write(b'no \0 \xff\n'); sys.exit(3)")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", str(repository)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    declared = Repository(str(repository), agent=["true"], evaluate=[sys.executable, str(judge)])
    result = Evolution("program", declared, workdir=tmp_path / "w", settings=settings, max_total_jobs=3).run(
        slots=1
    )
    assert (result.reason, result.failed) == ("FAILING", 1)
    assert "no \ufffd" in result.rows()[0]["message"]


def test_an_end_that_cannot_be_stored_is_a_failure(tmp_path: Path) -> None:
    evolution = Evolution(
        "hostile",
        Hostile,
        space={"form": Choice(["plain 1", "plain 2", "plain 3"])},
        sampler=GridSearch(),
        workdir=tmp_path / "w",
    )
    store = evolution.open().store
    execute(store, REFUSING.format("NEW.status = 'SUCCEEDED' AND NEW.objective = 2"))
    evolution.close()
    result = evolution.run(slots=2)
    assert [row["status"] for row in result.rows()] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert "could not be stored" in result.rows()[1]["message"]
    assert "not this one" in result.rows()[1]["message"]


REFUSING = (
    "CREATE TRIGGER refusing BEFORE UPDATE ON evolution_jobs WHEN {} "
    "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
)
SCRIPT = """
from tenuto.search import Choice, Evolution, GridSearch
from tests.search.tasks_for_search import Hostile

evolution = Evolution("hostile", Hostile, space={"form": Choice(["plain 1"])}, sampler=GridSearch())
"""


def test_a_worker_that_cannot_go_on_ends_with_words_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(SCRIPT + "\nif __name__ == '__main__':\n    evolution.run()\n")
    (tmp_path / "make.py").write_text(
        SCRIPT
        + f"from tests.search.builders import execute\nexecute(evolution.open().store, {BROKEN!r})\n"
        + "evolution.sampler.schedule_job(experiment_id='hostile')\n"
        + "execute(evolution.open().store, \"UPDATE evolution_jobs SET status = 'QUEUED'\")\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment,
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )

    made = run("make.py")
    assert made.returncode == 0, made.stderr
    worker = run("-m", "tenuto", "worker", "-w", "./workspace")
    assert (worker.returncode, "nothing may run" in worker.stderr) == (1, True), worker.stderr
    evolved = run("-m", "tenuto", "evolve", "one.py")
    assert (evolved.returncode, "nothing may run" in evolved.stderr) == (1, True), evolved.stderr
    assert "Traceback" not in evolved.stderr.splitlines()[-1]


BROKEN = REFUSING.format("NEW.status = 'RUNNING'").replace("not this one", "nothing may run")
