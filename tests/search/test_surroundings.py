"""A search whose surroundings fail pauses and says so; a cancelled candidate ends also without a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenuto.errors import SearchError
from tenuto.lifecycle.evolution import SearchState
from tenuto.search.commits import PromptRules, prompt_text
from tenuto.search.program_commands import run_command
from tenuto.search.replica import Tally
from tenuto.search.rows import CandidateCounts, SearchRow, SearchView
from tenuto.search.search_loop import Bounds, plan
from tests.search.programs import AGENT, git, programs, repository
from tests.search.terminal import tenuto

ROOT = Path(__file__).parents[2]
EVALUATE = f"{sys.executable} evaluate.py"


def words(tmp_path: Path, agent: str, *more: str) -> list[str]:
    given = ["--repo", "repository", "--agent", agent, "--evaluate", EVALUATE, "--measures", "a,b"]
    given += ["--ranges", "0:10,0:10", "--confine", "none"]
    return ["evolve", *given, "-w", str(tmp_path / "w"), "--slots", "2", *more]


def test_an_agent_that_fails_at_once_pauses_the_search_with_its_words(tmp_path: Path) -> None:
    repository(tmp_path)
    key = tmp_path / "key"
    (tmp_path / "agent.py").write_text(AGENT)
    work = f"{sys.executable} {tmp_path / 'agent.py'} {{parent}}"
    agent = f"sh -c 'test -e {key} || {{ echo the key expired >&2; exit 1; }}; {work}'"
    given = words(tmp_path, agent, "--goal", "more", "--max-total", "40")
    paused = tenuto(tmp_path, *given, "--json")
    assert paused.returncode == 1, paused.stderr
    (summary,) = json.loads(paused.stdout)
    assert (summary["state"], summary["succeeded"]) == ("PAUSED", 1)
    assert 5 <= summary["failed"] <= 13
    assert "the agent ended with exit code 1: the key expired" in summary["message"]
    told = "5 candidates in a row could not be tried"
    assert f"repository: paused: {told}" in paused.stderr
    shown = tenuto(tmp_path, "status", "repository", "-w", "w").stdout
    assert "PAUSED" in shown
    assert told in shown
    key.touch()
    mended = tenuto(tmp_path, *words(tmp_path, agent, "--goal", "more", "--max-total", "17"), "--json")
    assert mended.returncode == 0, mended.stderr
    (summary,) = json.loads(mended.stdout)
    assert (summary["reason"], summary["message"], summary["scheduled"]) == ("TOTAL", None, 17)
    assert summary["succeeded"] >= 17 - 13


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("no-such-agent --yes", "no program 'no-such-agent'"),
        ("/nowhere/agent", "no file /nowhere/agent"),
        (f"{sys.executable} /nowhere/agent.py", "no file /nowhere/agent.py"),
        (f"{sys.executable} agent.py", "give its whole path"),
        (f"{sys.executable} tool.py", "tool.py is no file of the commit"),
        ("./tool", "./tool is no file of the commit"),
    ],
)
def test_an_agent_that_is_not_there_is_refused_before_anything_runs(
    tmp_path: Path, agent: str, said: str
) -> None:
    repository(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT)
    refused = tenuto(tmp_path, *words(tmp_path, agent, "--max-total", "3"))
    assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
    assert not (tmp_path / "w" / "jobs").exists()


def test_pausing_comes_after_five_in_a_row_and_before_the_end(tmp_path: Path) -> None:
    def of(count: int, state: SearchState = SearchState.RUNNING) -> bool:
        row = SearchRow("s", {}, state, None, None, 0, 6, 6, 0, 0.0, 0, None, None, None, 0, None)
        view = SearchView(row, CandidateCounts(), 0)
        return plan(view, Tally(1, 5), Bounds(2, max_total=6), surroundings=count).pauses

    assert [of(4), of(5), of(5, SearchState.PAUSED), of(5, SearchState.DRAINING)] == [
        False,
        True,
        False,
        False,
    ]


def test_a_command_of_a_candidate_runs_in_no_process_but_a_job(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        with pytest.raises(SearchError, match="inside of their jobs only"):
            run_command(["true"], tmp_path, {}, None)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_the_prompt_says_direction_marks_and_limits() -> None:
    rules = PromptRules(True, ["evaluate.py"], ["a.py"], 60.0, 2.5)
    text = prompt_text("less", {}, rules, lambda commit: "")
    assert "smaller is better" in text
    assert "EVOLVE-BLOCK-START" in text
    assert "- a.py" in text
    assert "stopped after 60 s; its evaluation is stopped after 2.5 s" in text
    plain = prompt_text("more", {}, PromptRules(), lambda commit: "")
    assert "larger is better" in plain
    assert "EVOLVE-BLOCK" not in plain
    assert "Limits" not in plain


def test_the_prompt_of_a_job_names_the_files_with_marks(tmp_path: Path) -> None:
    marked = "# EVOLVE-BLOCK-START\nA = 1.0\n# EVOLVE-BLOCK-END\nB = 0.0\n"
    repository(tmp_path, program=marked)
    result = programs(tmp_path, max_total_jobs=2, direction="min", agent_s=77).run(slots=1)
    job = next((tmp_path / "w" / "jobs").glob(f"*/{result.rows()[1]['job']}"))
    prompt = (job / "prompt.md").read_text()
    assert "fails the program.\n\n- program.py" in prompt
    assert "smaller is better" in prompt
    assert "stopped after 77 s" in prompt


def test_a_cancelled_candidate_ends_although_no_worker_is_left(tmp_path: Path) -> None:
    path = repository(tmp_path)
    agent = f"sh -c 'echo $$ > {tmp_path}/pid; exec sleep 300'"
    command = [sys.executable, "-m", "tenuto", *words(tmp_path, agent, "--max-total", "2", "--slots", "1")]
    driver = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < end
        time.sleep(0.05)
    pid = int((tmp_path / "pid").read_text())
    driver.kill()
    driver.wait()
    os.kill(pid, 0)
    killed = tenuto(tmp_path, "kill", "repository#2", "-w", "w", "--yes")
    assert killed.returncode == 0, killed.stderr
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    assert git(path, "status", "--porcelain").count("tenuto") == 0
