"""A program is changed by one job and evaluated by another: slots of their own, one evaluation of a tree."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click import UsageError

from tenuto.cli.commands import evolve
from tenuto.search import Repository
from tenuto.search.commits import EvolveCommit
from tenuto.search.opening import open_database
from tenuto.search.program_tasks import agent_for
from tenuto.search.programs import PROGRAM_TASK
from tenuto.search.source import SearchSource
from tenuto.search.store import Store
from tenuto.search.worker_loop import WorkerLoop
from tenuto.settings import load_settings
from tenuto.tasks.schema import schema_of
from tenuto.workspace.machine import this_machine
from tests.search.programs import EVALUATOR, git, programs, repository
from tests.search.terminal import tenuto

CANNED = """
import os, re
from pathlib import Path
value = 2 + int(os.environ["EVOLVE_SEED"]) % 2
print("canned", value)
text = Path("program.py").read_text()
Path("program.py").write_text(re.sub("A = .*", f"A = {value}.0", text))
"""
COUNTING = EVALUATOR + "open({log!r}, 'a').write('%s\\n' % values['A'])\n"


def slots(agents: int) -> Any:
    settings = load_settings()
    return dataclasses.replace(settings, search=dataclasses.replace(settings.search, agent_slots=agents))


def test_the_task_of_programs_has_its_name() -> None:
    assert schema_of(EvolveCommit).id == PROGRAM_TASK


def test_9_a_tree_is_evaluated_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    repository(tmp_path, COUNTING.replace("{log!r}", repr(str(log))))
    result = programs(tmp_path, CANNED, max_total_jobs=10, confine="none").run(slots=2)
    rows = result.rows()
    assert result.succeeded >= 3, rows
    assert max(Counter(log.read_text().split()).values()) == 1
    failed = [row for row in rows if row["status"] == "FAILED"]
    assert all(row["message"].startswith("the agent changed nothing: canned") for row in failed)
    trees = Counter(row["directory"] for row in rows if row["status"] == "SUCCEEDED")
    assert result.reused == sum(trees.values()) - len(trees)
    for row in rows:
        if row["reused"]:
            assert row["cost"] == 0  # the agent reports none, and the evaluation was another's
    reused = next((row for row in rows if row["reused"]), rows[0])
    paid = [row for row in rows if row["directory"] == reused["directory"] and not row["reused"]]
    assert [row["objective"] for row in paid] == [reused["objective"]]


def test_what_the_evaluation_of_a_program_logs_is_news(tmp_path: Path) -> None:
    repository(tmp_path, EVALUATOR)
    evolution = programs(tmp_path, CANNED, max_total_jobs=2, confine="none")
    result = evolution.run(slots=2)
    number = next(row["number"] for row in result.rows() if row["status"] == "SUCCEEDED")
    opened = evolution.open()
    source = SearchSource(opened.store.database, str(opened.workspace))
    key = f"search:{evolution.name}/{number}"
    directory = Path(source.detail(key).fields["directory"])
    (directory / "metrics.jsonl").write_text('{"name": "seen", "value": 1.0}\n')
    assert [*source.metrics(key)] == ["seen"]
    assert source.metrics_stamp(key) is not None


def test_a_tree_is_evaluated_once_by_workers_of_two_workspaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgresql_url: str
) -> None:
    log = tmp_path / "log"
    counting = COUNTING.replace("{log!r}", repr(str(log)))
    repository(tmp_path, f"import time\ntime.sleep(1)\n{counting}")
    monkeypatch.setenv("TENUTO_DATABASE__URL", postgresql_url)
    monkeypatch.setenv("TENUTO_SEARCH__WORKER_POLL_S", "0.2")
    evolution = programs(tmp_path, CANNED, max_total_jobs=10, confine="none")
    opened, machine = evolution.open(), this_machine()
    workers = [
        WorkerLoop(Store(opened.store.database), evolution.settings, tmp_path / name, machine, slots=2)
        for name in ("one", "two")
    ]
    ticking = evolution.scheduler()
    for worker in workers:
        worker.start()
    ticking.run_forever()
    for worker in workers:
        worker.drain()
        assert worker.join(90)
    assert max(Counter(log.read_text().split()).values()) == 1
    assert evolution.result().reused >= 3
    evolution.close()


def test_agents_have_slots_of_their_own_and_never_keep_an_evaluation_waiting(tmp_path: Path) -> None:
    """Three agents wait for each other, with one slot of evaluations: with one kind of slots, for ever."""
    meet = tmp_path / "meet"
    meet.mkdir()
    agent = f"""
import os, time
from pathlib import Path
Path("program.py").write_text(f"A = {{int(os.environ['EVOLVE_SEED']) % 89}}.5\\nB = 1.0\\n")
Path("{meet}", os.environ["EVOLVE_SEED"]).touch()
end = time.monotonic() + 40
while len(os.listdir("{meet}")) < 3:
    assert time.monotonic() < end, "the others never came"
    time.sleep(0.02)
"""
    repository(tmp_path)
    result = programs(tmp_path, agent, max_total_jobs=4, settings=slots(3), confine="none").run(slots=1)
    assert (result.succeeded, result.failed) == (4, 0), result.rows()


def test_agents_go_on_while_evaluations_wait(tmp_path: Path) -> None:
    """Three agents end together: the next three are at work before the first evaluation has ended."""
    meet = tmp_path / "meet"
    meet.mkdir()
    agent = f"""
import os
from pathlib import Path
Path("program.py").write_text(f"A = {{int(os.environ['EVOLVE_SEED']) % 89}}.5\\nB = 1.0\\n")
Path("{meet}", os.environ["EVOLVE_SEED"]).touch()
"""
    waiting = f"""
import os, sys, time
end = time.monotonic() + 60
while 0 < len(os.listdir("{meet}")) < 6:
    if time.monotonic() > end:
        sys.exit("the next agents never began")
    time.sleep(0.02)
"""
    repository(tmp_path, waiting + EVALUATOR)
    result = programs(tmp_path, agent, max_total_jobs=7, settings=slots(3), confine="none").run(slots=1)
    assert (result.succeeded, result.failed) == (7, 0), result.rows()


def test_logs_and_files_are_the_evaluations_and_with_agent_the_agents(tmp_path: Path) -> None:
    repository(tmp_path)
    programs(tmp_path, CANNED, max_total_jobs=2).run(slots=1)
    database = open_database(load_settings(), tmp_path / "w")
    source = SearchSource(database, str(tmp_path / "w"))
    (key,) = source.find("stir#2")
    (agent,) = source.find("stir#2/agent")
    assert source.find("stir#9/agent") == ()
    assert b"looked at" in source.log(key, "out", 0).read(0, 10_000)
    assert b"canned" in source.log(agent, "out", 0).read(0, 10_000)
    directories = [source.detail(one).fields["directory"] for one in (key, agent)]
    database.close()
    assert [(Path(one) / "prompt.md").is_file() for one in directories] == [False, True]
    shown = [tenuto(tmp_path, "logs", name, "-w", "w").stdout for name in ("stir#2", "stir#2/agent")]
    assert ["looked at" in shown[0], "canned" in shown[1]] == [True, True]
    for command in ("files", "why"):
        answers = [
            tenuto(tmp_path, command, name, "-w", "w", "--json") for name in ("stir#2", "stir#2/agent")
        ]
        assert [json.loads(answer.stdout)["directory"] for answer in answers] == directories


def test_several_agents_are_drawn_by_their_weights() -> None:
    several = Repository(".", agent=[["a"], ["b"]], evaluate="true", weights=[3, 1])
    drawn = Counter(agent_for(several, draw)[0] for draw in range(1, 2001))
    assert drawn["a"] == pytest.approx(1500, abs=100)
    assert several.definition()["weights"] == [3.0, 1.0]
    for weights in ([1], [1, 0], [1, -1], [1, float("nan")], [1, "x"], [1, True]):
        with pytest.raises(Exception, match="weights"):
            Repository(".", agent=[["a"], ["b"]], evaluate="true", weights=weights)  # type: ignore[arg-type]


@pytest.mark.prove("it measures time: agents of two seconds, evaluations of a fifth")
def test_evaluations_are_busy_while_agents_sleep(tmp_path: Path) -> None:
    """Agents that take ten times as long as evaluations: the slot of evaluations is busy 80 % of the time."""
    log = tmp_path / "log"
    agent = (
        "import os, time\nfrom pathlib import Path\ntime.sleep(4)\n"
        "Path('program.py').write_text('A = %s.5\\nB = 1.0\\n' % (int(os.environ['EVOLVE_SEED']) % 89))\n"
    )
    evaluator = EVALUATOR + (
        f"import time\nbegan = time.time()\ntime.sleep(0.4)\n"
        f"open({str(log)!r}, 'a').write(json.dumps([began, time.time()]) + '\\n')\n"
    )
    evaluator = evaluator.replace("print(json.dumps", "line = (json.dumps") + "print(line)\n"
    repository(tmp_path, evaluator)
    result = programs(tmp_path, agent, max_total_jobs=60, settings=slots(12), confine="none").run(slots=1)
    assert result.succeeded == 60, result.rows()
    spans = sorted(map(json.loads, log.read_text().splitlines()))[1:]
    busy = sum(end - began for began, end in spans) / (spans[-1][1] - spans[0][0])
    assert busy >= 0.8, busy


def test_the_lineage_of_the_best_has_scores_and_diffs(tmp_path: Path) -> None:
    path = repository(tmp_path)
    (path / "program.py").write_text("A = 1.0\nB = 0.5\n")  # not committed
    agent = """
import re
from pathlib import Path
text = Path("program.py").read_text()
Path("program.py").write_text(re.sub("A = (.*)", lambda m: f"A = {float(m[1]) + 1}", text))
"""
    inside = path / "work"
    result = programs(tmp_path, agent, max_total_jobs=4, workdir=inside).run(slots=1)
    assert result.best is not None
    assert "work" not in git(path, "status", "--porcelain")
    shown = tenuto(tmp_path, "search", "lineage", "stir", "-w", str(inside), "--json")
    rows = json.loads(shown.stdout)
    assert rows[0]["parent"] is None
    assert rows[-1]["number"] == result.best.number
    assert [row["objective"] for row in rows] == [1.0 + step for step in range(len(rows))]
    assert "+A = 2.0" in rows[1]["diff"]
    text = tenuto(tmp_path, "search", "lineage", "stir", "2", "-w", str(inside)).stdout
    assert "#1  1.0" in text
    assert "    +A = 2.0" in text
    assert tenuto(tmp_path, "search", "lineage", "stir", "99", "-w", str(inside)).returncode == 3


def test_a_search_says_what_it_leaves_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = repository(tmp_path)
    (path / "program.py").write_text("A = 1.0\nB = 0.5\n")
    programs(tmp_path, max_total_jobs=1).run(slots=1)
    assert "stir: what is not committed is left out: program.py" in capfd.readouterr().err


def test_a_script_that_runs_no_search_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("x = 1\n")
    assert "ran no search: call run()" in tenuto(tmp_path, "evolve", "nothing.py").stderr


@pytest.mark.parametrize("text", ["0:true", "-1:true", "nan:true", "inf:true", "2:", "", "1e999:true"])
def test_a_weight_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="give a command, or a weight above 0"):
        evolve._weighted(text)


def test_a_command_may_have_a_weight_or_a_colon() -> None:
    assert evolve._weighted("0.5:sh -c 'a:b'") == (["sh", "-c", "a:b"], 0.5)
    assert evolve._weighted("/opt/a:b --x") == (["/opt/a:b", "--x"], 1.0)
