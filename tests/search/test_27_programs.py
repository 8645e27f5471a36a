"""27 to 29: searches of programs, with real git, agents and evaluators."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tenuto.cli.commands.evolve import write_demo
from tenuto.errors import SearchDiffers, SearchError
from tenuto.search import MapElites, Repository
from tests.search.programs import AGENT, EVALUATOR, PROGRAM, git, programs, repository, state_of
from tests.search.terminal import tenuto

ROOT = Path(__file__).parents[2]


def test_27_children_are_commits_of_their_parents_and_the_users_work_stays_as_it_is(tmp_path: Path) -> None:
    path = repository(tmp_path)
    before = state_of(path)
    root = git(path, "rev-parse", "HEAD")
    evolution = programs(tmp_path, max_total_jobs=6)
    result = evolution.run(slots=2)
    rows = result.rows()
    assert (result.reason, result.succeeded, result.failed) == ("TOTAL", 6, 0), rows
    assert (rows[0]["solution"], rows[0]["parent"], rows[0]["cost"]) == (root, None, 0.25)
    assert result.cost == pytest.approx(5 * 1.25 + 0.25)
    commits = {row["number"]: row["solution"] for row in rows}
    for row in rows[1:]:
        commit = row["solution"]
        assert git(path, "rev-parse", f"{commit}^") == commits[row["parent"]] == row["values"]["parent"]
        assert git(path, "rev-parse", f"refs/tenuto/stir/{commit[:12]}") == commit
        message = git(path, "log", "-1", "--format=%B", commit)
        assert message.startswith("stirred")
        assert f"Tenuto-Search: stir\nTenuto-Parent: {row['values']['parent']}" in message
        assert f"A = {row['objective']:.5f}" in git(path, "show", f"{commit}:program.py") or row["parent"]
    assert result.best is not None
    assert git(path, "rev-parse", "tenuto/stir/best") == result.best.values["commit"]
    assert result.best.objective == max(row["objective"] for row in rows)
    assert state_of(path) == before
    git(path, "fsck", "--strict")
    job = next((tmp_path / "w" / "jobs").glob(f"*/{rows[-1]['job']}"))
    prompt = (job / "prompt.md").read_text()
    assert "a is " in prompt  # the parent's artifact
    assert "# The best so far" in prompt
    assert not (job / "checkout").exists()
    again = programs(tmp_path, max_total_jobs=6).run(slots=2)  # goes on: nothing to do
    assert (again.scheduled, again.state) == (6, "ENDED")
    other = programs(tmp_path, protect=["evaluate.py"])
    with pytest.raises(SearchDiffers, match="protect"):
        other.open()
    reused = programs(tmp_path, name="again", max_total_jobs=1).run(slots=1)
    assert (reused.reused, reused.best.values) == (1, {"commit": root})  # type: ignore[union-attr]


def test_27_a_failure_has_a_reason_and_an_artifact_and_its_cost_counts(tmp_path: Path) -> None:
    repository(tmp_path)
    agent = (
        "import json, os, sys\nfrom pathlib import Path\n"
        "Path(os.environ['EVOLVE_REPORT']).write_text(json.dumps({'cost': 2.0}))\n"
        "kind = int(os.environ['EVOLVE_SEED']) % 4\n"
        "if kind == 0: sys.exit('no idea')\n"
        "if kind == 1: Path('program.py').write_text('A = 99.0\\nB = 0.0\\n')\n"
        "if kind == 2: Path('evaluate.py').write_text('print(1)')\n"
        "if kind == 3: Path('program.py').write_text('syntax error')\n"
    )
    result = programs(tmp_path, agent, max_total_jobs=14).run(slots=2)
    rows = result.rows()[1:]
    words = {
        0: ("the agent ended with exit code 1: no idea", "agent stderr"),
        1: ("the evaluator ended with exit code 1: too large", "evaluator stderr"),
        2: ("the agent changed nothing", None),  # `protect`: only the evaluator was changed
        3: ("SyntaxError", "evaluator stderr"),
    }
    assert {row["values"]["draw"] % 4 for row in rows} == {0, 1, 2, 3}
    assert result.cost == pytest.approx(0.25 + 13 * 2.0)  # 29: of agents whose candidates failed
    opened = programs(tmp_path, agent, max_total_jobs=14).open()
    for row in rows:
        assert row["status"] == "FAILED"
        reason, artifact = words[row["values"]["draw"] % 4]
        assert reason in row["message"]
        kept = opened.store.database.read(
            lambda c, number=row["number"]: c.exec_driver_sql(
                f"select outcome from evolution_jobs where number = {number}"
            ).scalar()
        )
        assert artifact is None or artifact in json.loads(kept)["artifacts"]
    opened.close()


@pytest.mark.parametrize(
    "leave",
    [
        "os.mkfifo(report)",
        "os.symlink('/dev/zero', report)",
        "os.mkdir(report)",
        "Path(report).write_bytes(b' ' * 2_000_000)",
        "Path(report).write_text('[' * 200_000)",
        "Path(report).write_text('{\"cost\": 1' + '0' * 400 + '}')",
        "Path(report).write_text(json.dumps({'notes': chr(0) + chr(0xDC80) + 'stirred'}))",
    ],
    ids=["pipe", "device", "directory", "long", "deep", "large", "notes"],
)
def test_27_a_report_of_any_form_ends_no_candidate(tmp_path: Path, leave: str) -> None:
    path = repository(tmp_path)
    agent = "import json, os\nfrom pathlib import Path\nreport = os.environ['EVOLVE_REPORT']\n"
    agent += f"Path('program.py').write_text('A = 2.0\\nB = 0.0\\n')\n{leave}\n"
    result = programs(tmp_path, agent, max_total_jobs=2, walltime_s=30).run(slots=1)
    assert (result.succeeded, result.cost) == (2, 0.5), result.rows()
    if "notes" in leave:
        said = git(path, "log", "-1", "--format=%s", result.rows()[1]["solution"])
        assert said == "\ufffd\ufffdstirred"


def test_27_a_root_that_cannot_be_evaluated_ends_the_search_with_the_evaluators_words(tmp_path: Path) -> None:
    repository(tmp_path, program="A = 99.0\nB = 0.0\n")
    result = programs(tmp_path, max_total_jobs=6).run(slots=2)
    assert (result.reason, result.scheduled) == ("FAILING", 1)
    assert "too large" in (result.message or "")


def test_27_a_path_that_is_no_repository_is_refused_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(SearchError, match="no git repository"):
        programs(tmp_path, path=tmp_path).open()
    with pytest.raises(SearchError, match="no such directory"):
        programs(tmp_path, path=tmp_path / "none").open()
    path = repository(tmp_path)
    with pytest.raises(SearchError, match="names nothing"):
        programs(tmp_path, protect=["tests"]).open()
    (path / ".git" / "config").write_text("no configuration\n")
    with pytest.raises(SearchError, match="bad config line"):
        programs(tmp_path).open()
    for wrong in ({"agent": []}, {"evaluate": []}, {"protect": "a"}, {"thresholds": [1]}, {"agent_s": 0}):
        with pytest.raises(SearchError):
            Repository(tmp_path, **{"agent": "a", "evaluate": "b", **wrong})


@pytest.mark.slow
def test_28_eight_at_once_and_killed_leave_a_sound_repository(tmp_path: Path) -> None:
    path = repository(tmp_path)
    before = state_of(path)
    slow = AGENT + "import time; time.sleep(0.2)\n"
    (tmp_path / "agent.py").write_text(slow)
    (tmp_path / "go.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.search.programs import programs\n"
        "if __name__ == '__main__':\n"
        "    here = Path(sys.argv[1])\n"
        "    agent = (here / 'agent.py').read_text()\n"
        "    programs(here, agent, max_total_jobs=16, max_unfinished_jobs=8).run(slots=8)\n"
    )
    command = [sys.executable, str(tmp_path / "go.py"), str(tmp_path)]
    for wanted in (3, 8):
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 60
        while len(git(path, "for-each-ref", "refs/tenuto/stir").splitlines()) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    result = programs(tmp_path, slow, max_total_jobs=16, max_unfinished_jobs=8).run(slots=8)
    assert (result.succeeded, result.scheduled) == (16, 16)
    git(path, "fsck", "--strict")
    assert state_of(path) == before
    assert not list((path / ".git").rglob("*.lock"))
    assert not list((tmp_path / "w" / "jobs").glob("*/*/checkout"))


def test_28_an_agent_that_edits_the_evaluator_gains_nothing(tmp_path: Path) -> None:
    path = repository(tmp_path)
    cheat = AGENT + (
        "Path('evaluate.py').write_text('print(1e9)')\n"
        "Path('sitecustomize.py').write_text('')\n"
        "import subprocess\n"
        "subprocess.run(['git', '-c', 'user.name=x', '-c', 'user.email=x', 'commit', '-qam', 'mine'])\n"
    )
    result = programs(tmp_path, cheat, max_total_jobs=4).run(slots=2)
    rows = result.rows()
    assert result.succeeded == 4
    for row in rows[1:]:
        assert row["objective"] <= 10
        assert git(path, "show", f"{row['solution']}:evaluate.py") == EVALUATOR.strip()
        assert git(path, "rev-parse", f"{row['solution']}^") == row["values"]["parent"]  # not the agent's own


def test_29_a_stage_below_its_threshold_ends_the_candidate_there(tmp_path: Path) -> None:
    path = repository(tmp_path, program="A = 5.0\nB = 0.0\n")
    (path / "second.py").write_text(
        "import json\nvalues = {}\nexec(open('program.py').read(), values)\n"
        "a, b = values['A'], values['B']\n"
        "print(json.dumps({'objective': 100 + a, 'a': a, 'b': b, 'cost': 0.5}))\n"
    )
    git(path, "add", "second.py")
    git(path, "commit", "-q", "-m", "two stages")
    git(path, "tag", "high")
    (path / "program.py").write_text("A = 4.0\nB = 0.0\n")
    git(path, "commit", "-q", "-a", "-m", "low")
    git(path, "tag", "low")
    (path / "program.py").write_text("A = 1.0\nB = 0.0\n")
    git(path, "commit", "-q", "-a", "-m", "root")
    stages = [[sys.executable, "evaluate.py"], [sys.executable, "second.py"]]
    evolution = programs(tmp_path, evaluate=stages, thresholds=[5.0], max_total_jobs=3)
    assert [evolution.enqueue({"commit": name}) for name in ("high", "low")] == [2, 3]
    with pytest.raises(SearchError, match="no commit"):
        evolution.enqueue({"commit": "none"})
    evolution.close()
    root, high, low = evolution.run(slots=1).rows()
    assert root["objective"] == 1.0  # candidate 1, also where a person gave others before
    assert (high["objective"], high["metrics"]["stage"], high["cost"]) == (105.0, 2, 0.75)
    assert (low["objective"], low["metrics"]["stage"], low["cost"]) == (4.0, 1, 0.25)


def test_a_commit_of_a_person_is_compared_with_the_root_and_judged_as_any_other(tmp_path: Path) -> None:
    path = repository(tmp_path)
    git(path, "checkout", "-q", "-b", "mine")
    (path / "program.py").write_text(PROGRAM.replace("1.0", "7.0") + "# as long again\n# as it was\n")
    (path / "evaluate.py").write_text("print(99)\n")
    git(path, "add", "program.py", "evaluate.py")
    git(path, "commit", "-q", "-m", "mine", "program.py", "evaluate.py")
    git(path, "checkout", "-q", "main")
    sampler = MapElites([5, 5], [(0, 9), (0, 9)], measures=["complexity", "diversity"])
    evolution = programs(tmp_path, sampler=sampler, max_total_jobs=3)
    assert evolution.enqueue({"commit": "mine"}) == 2
    evolution.close()
    first = git(path, "rev-parse", "main")
    (path / "program.py").write_text(PROGRAM.replace("1.0", "8.0"))
    git(path, "commit", "-q", "-m", "third", "program.py")
    for words, given in (("no commit 'none'", "commit=none"), ("is no program", "x=1")):
        assert words in tenuto(tmp_path, "search", "add", "stir", "-c", given, "-w", "w").stderr
    said = tenuto(tmp_path, "search", "add", "stir", "-c", "commit=main", "-w", "w").stderr
    assert "candidate 3 is added" in said, said
    root, mine, third = evolution.run(slots=1).rows()
    assert (root["values"]["parent"], root["objective"], root["complexity"]) == (first, 1.0, 1.0)
    assert (mine["objective"], mine["complexity"] > 1.5, mine["diversity"] > 0.3) == (7.0, True, True)
    assert (third["objective"], third["complexity"], 0 < third["diversity"] < 1) == (8.0, 1.0, True)
    assert git(path, "show", f"{mine['solution']}:evaluate.py") == EVALUATOR.strip()


@pytest.mark.parametrize("which", ["agent", "evaluator"])
def test_29_a_command_that_runs_over_its_time_is_killed_with_all_it_started(
    tmp_path: Path, which: str
) -> None:
    repository(tmp_path)
    pids = tmp_path / "pids"
    # A shell is there at once: a busy machine may need seconds to start Python, and the time is short.
    hanging = f"sleep 300 & echo $$ $! >> {pids}\nwait\n"
    report = """printf '{"cost": 1.0}' > "$EVOLVE_REPORT"\n"""
    change = "echo '# changed' >> program.py\n"
    options: dict[str, Any] = {"agent_s" if which == "agent" else "evaluate_s": 4.0}
    (tmp_path / "agent.sh").write_text(report + change + (hanging if which == "agent" else ""))
    (tmp_path / "evaluate.sh").write_text(
        ("if grep -q changed program.py; then\n" + hanging + "fi\n" if which == "evaluator" else "")
        + """echo '{"objective": 1.0, "measures": {"a": 1.0, "b": 0.0}}'\n"""
    )
    options["evaluate"] = ["sh", str(tmp_path / "evaluate.sh")]
    options["command"] = ["sh", str(tmp_path / "agent.sh")]
    result = programs(tmp_path, max_total_jobs=2, confine="none", **options).run(slots=1)
    row = result.rows()[1]
    assert (row["status"], row["cost"]) == ("FAILED", 1.0)  # what the agent reported counts
    assert f"the {which} ran over its time and was killed" in row["message"]
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    for pid in started:
        assert not Path(f"/proc/{pid}").exists()


def test_27_the_offline_example_runs(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        script = write_demo("program")
    (tmp_path / script).write_text((tmp_path / script).read_text().replace("TOTAL = 60", "TOTAL = 4"))
    done = tenuto(tmp_path, "evolve", str(script))
    assert done.returncode == 0, done.stderr
    assert "curve: ended (TOTAL): 4 candidates, 4 succeeded" in done.stderr
    path = tmp_path / script.parent / "repository"
    assert len(git(path, "for-each-ref", "refs/tenuto/curve").splitlines()) == 3
    assert git(path, "status", "--porcelain") == ""


def test_27_a_repository_is_evolved_from_the_command_line(tmp_path: Path) -> None:
    path = repository(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "goal.txt").write_text("more")
    agent = f"{sys.executable} {tmp_path / 'agent.py'} {{parent}}"
    words = ["--repo", "repository", "--agent", agent, "--evaluate", f"{sys.executable} evaluate.py"]
    words += [
        "--goal",
        "@goal.txt",
        "--measures",
        "a,b",
        "--ranges",
        "0:10,0:10",
        "--cells",
        "4,4",
        "-w",
        "w",
    ]
    done = tenuto(
        tmp_path, "evolve", "--json", *words, "--slots", "2", "--max-total", "19", "--max-cost", "2"
    )
    assert done.returncode == 0, done.stderr
    (summary,) = json.loads(done.stdout)
    assert (summary["reason"], summary["cells"]) == ("COST", 16)
    assert 2 <= summary["cost"] <= 2 + 8 * 1.25  # two slots and four agents
    assert "the best program is the branch tenuto/repository/best of repository" in done.stderr
    exported = tenuto(tmp_path, "search", "export", "repository", "-w", "w").stdout.splitlines()
    best = json.loads(exported[summary["best"]["number"] - 1])
    assert git(path, "rev-parse", "tenuto/repository/best") == best["solution"]
    script = ["agent.py"]
    for wrong in (words[:2], [*words, *script], ["--goal", "x", *script], ["--program", "goal.txt"]):
        assert tenuto(tmp_path, "evolve", *wrong).returncode == 2


def test_27_two_searches_of_one_name_do_not_share_a_branch(tmp_path: Path) -> None:
    path = repository(tmp_path)
    first = programs(tmp_path, max_total_jobs=4).run(slots=1)
    assert first.best is not None
    best = git(path, "rev-parse", "tenuto/stir/best")
    assert best == first.best.values["commit"]
    other = programs(tmp_path, workdir=tmp_path / "other", max_total_jobs=1)
    with pytest.raises(SearchError, match=f"is that of the search stir in {tmp_path / 'w'} .*another name"):
        other.run(slots=1)
    assert git(path, "rev-parse", "tenuto/stir/best") == best
    assert programs(tmp_path, max_total_jobs=5).run(slots=1).scheduled == 5  # its own goes on
    shutil.rmtree(tmp_path / "w")
    assert programs(tmp_path, max_total_jobs=1).run(slots=1).scheduled == 1  # begun anew, in the same place
    assert git(path, "rev-parse", "tenuto/stir/best") == git(path, "rev-parse", "HEAD")
    shutil.rmtree(tmp_path / "w")
    programs(tmp_path, workdir=tmp_path / "other", max_total_jobs=1).run(slots=1)  # the other is gone
    with pytest.raises(SearchError, match="is that of the search stir in"):
        programs(tmp_path, max_total_jobs=1).run(slots=1)


def test_27_commits_of_another_search_stay_when_that_one_is_forgotten(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = repository(tmp_path)
    first = programs(tmp_path, name="a", max_total_jobs=4).run(slots=1)
    second = programs(tmp_path, name="b", max_total_jobs=4).run(slots=1)
    assert (first.reused, second.reused) == (0, 4)
    forget(path, "a")
    for row in second.rows():
        assert git(path, "cat-file", "-t", row["solution"]) == "commit"
    assert programs(tmp_path, name="b", max_total_jobs=8).run(slots=1).failed == 0
    forget(path, "b")
    capfd.readouterr()
    programs(tmp_path, name="c", max_total_jobs=4).run(slots=1)
    assert "which another search made" in capfd.readouterr().err


def forget(path: Path, name: str) -> None:
    """Does what the documentation says, and has git drop what nothing refers to."""
    for reference in git(path, "for-each-ref", "--format=%(refname)", f"refs/tenuto/{name}").splitlines():
        git(path, "update-ref", "-d", reference)
    git(path, "update-ref", "-d", f"refs/heads/tenuto/{name}/best")
    git(path, "reflog", "expire", "--expire=now", "--all")
    git(path, "gc", "-q", "--prune=now")


def test_27_a_branch_of_the_users_is_not_moved(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = repository(tmp_path)
    git(path, "branch", "tenuto/mine/best")
    mine = programs(tmp_path, name="mine", max_total_jobs=2)
    with pytest.raises(SearchError, match="git branch -m tenuto/mine/best"):
        mine.run(slots=1)
    result = programs(tmp_path, max_total_jobs=1).run(slots=1)
    assert result.succeeded == 1
    moved = git(path, "commit-tree", "-p", "HEAD", "-m", "the user's own", "HEAD^{tree}")
    git(path, "branch", "-f", "tenuto/stir/best", moved)
    seen = programs(tmp_path, max_total_jobs=8).run(slots=1)
    assert seen.best is not None
    assert seen.best.number > 1
    assert git(path, "rev-parse", "tenuto/stir/best") == moved
    assert "tenuto/stir/best is in use or was moved" in capfd.readouterr().err
