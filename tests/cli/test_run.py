"""Owns `tenuto run` and `tenuto plan`: what they do, what they say, and their exit codes."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tenuto import from_task_dir
from tenuto.errors import ClassNotFound
from tests.experiments.scripts import TASKS, Place, environment, eventually, python, run, tenuto, terminal

from .calls import call

BODY = """
with experiment(HERE / "ws", "sweep"):
    for number in range(3):
        Note.C(name=f"n{number}").tag("n", number).submit()
        After.C(before=Fail.C(name=f"f{number}").submit()).submit()
"""
YAML = """
imports: [tasks.py]
pre_experiment: setup.py
task: Note
workspace: ws
grid_search: {name: [a, b, c]}
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.release.touch()


def test_a_script_runs_as_python_would_run_it(place: Place) -> None:
    script = place.script(
        "print(sys.argv[1:], __name__, __file__ == str(HERE / 'script.py'), sys.path[0] == str(HERE))"
    )
    ours = run(tenuto("run", script, "-c", "x", "--json", "--", "-w"), place.directory)
    assert ours.stdout == "['-c', 'x', '--json', '--', '-w'] __main__ True True\n", ours.stderr
    theirs = run([*python(script), "-c", "x", "--json", "--", "-w"], place.directory)
    assert (ours.stdout, ours.returncode) == (theirs.stdout, theirs.returncode)


def test_without_a_terminal_each_event_is_a_line_and_failures_are_grouped(place: Place) -> None:
    script = place.script(BODY)
    result = run(tenuto("run", script), place.directory)
    assert result.returncode == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    when, job = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[0-9a-f]{12}"
    patterns = [
        rf"{when} begin sweep \d{{8}}_\d{{6}} workspace={re.escape(str(place.workspace))}",
        rf"{when} running script\.Note {job} n=0",
        rf"{when} done script\.Note {job} n=2 took=\S+ finished=\d/9",
        rf"{when} failed script\.Fail {job} reason=FAILED ValueError: f1 is bad \(.*script\.py:\d+\)",
        rf"{when} failed script\.After {job} reason=DEPENDENCY script\.Fail {job} failed \(FAILED\)",
        rf"{when} end sweep \d{{8}}_\d{{6}} failed",
        r"sweep \d{8}_\d{6}: 0 reused, 3 ran, 3 failed, 3 not run because of that, in \S+",
        r"3 jobs failed: ValueError: f\d is bad",
        r"  and 2 other messages from the same line",
        r"  at script\.py:\d+",
        rf"  script\.Fail {job} name=f\d",
        rf"  to see why: python -m tenuto why {job} -w ws",
        r"to try them again: python -m tenuto run .*script\.py",
    ]
    for pattern in patterns:
        assert any(re.fullmatch(pattern, line) for line in lines), f"no line {pattern} in\n{result.stderr}"
    assert "Traceback" not in result.stderr
    listed = call(["jobs", "state=error", "-w", "ws"], place.directory, environment())
    assert re.search(r"id +task +state +name +took", listed.stdout), listed.stdout
    assert re.search(r"script\.Fail +error +f1", listed.stdout), listed.stdout


def test_the_summary_as_json_is_alone_on_standard_output(place: Place) -> None:
    script = place.script(f'print("hello")\n{BODY}')
    result = run(tenuto("run", "--json", script), place.directory)
    summary = json.loads(result.stdout)
    assert "hello" in result.stderr
    assert {name: summary[name] for name in ("jobs", "reused", "ran", "failed", "not_run", "exit_code")} == {
        "jobs": 9,
        "reused": 0,
        "ran": 3,
        "failed": 3,
        "not_run": 3,
        "exit_code": 1,
    }
    (group,) = summary["failures"]
    assert len(group["jobs"]) == 3
    assert Path(group["jobs"][0]["stderr"]).exists()


def test_the_summary_says_which_jobs_were_not_forked_and_why(place: Place) -> None:
    main = 'with experiment(HERE / "ws", "x"):\n    Note.C(name="a").submit()'
    script = place.script(main, tasks=f"{TASKS}\nimport random\nrandom.seed(3)")
    result = run(tenuto("run", "--json", script), place.directory)
    (remark,) = json.loads(result.stdout)["remarks"]
    assert "starts in a fresh interpreter, since it seeds `random`" in remark
    assert "make generators in execute()" in remark


def test_a_job_that_was_done_before_is_reused_and_that_is_said(place: Place) -> None:
    script = place.script('with experiment(HERE / "ws", "x"):\n    Note.C(name="a").submit()')
    assert run(tenuto("run", script), place.directory).returncode == 0
    again = run(tenuto("run", script), place.directory)
    assert again.returncode == 0
    assert "its job was done before, and is reused; nothing had to run" in again.stderr
    assert place.ledger() == ["a"]


def test_a_script_that_raises_shows_its_own_traceback(place: Place) -> None:
    script = place.script('with experiment(HERE / "ws", "x"):\n    Note.C(name=3).submit()')
    result = run(tenuto("run", script), place.directory)
    assert result.returncode == 1
    trace = result.stderr[result.stderr.index("Traceback") :]
    assert trace.splitlines()[1].startswith(f'  File "{script}"')
    assert "cli/session.py" not in result.stderr
    assert "InvalidValue" in trace


@pytest.mark.parametrize(("code", "expected"), [("sys.exit(7)", 7), ("sys.exit()", 0), ("sys.exit('no')", 1)])
def test_the_exit_code_of_a_script_is_kept(place: Place, code: str, expected: int) -> None:
    assert run(tenuto("run", place.script(code)), place.directory).returncode == expected


def test_a_yaml_file_is_run_with_its_grid_and_overrides(place: Place) -> None:
    place.script("pass", "tasks.py")
    (place.directory / "setup.py").write_text("open(__file__ + '.ran', 'w').close()")
    file = place.directory / "sweep.yaml"
    file.write_text(YAML)
    result = run(tenuto("run", file), Path("/"))
    assert result.returncode == 0, result.stderr
    assert sorted(place.ledger()) == ["a", "b", "c"]
    assert place.state("sweep") == "done"
    assert (place.directory / "setup.py.ran").exists()
    again = run(
        tenuto("run", file, "-c", "name=z", "-c", "grid_search.name=[a,q]", "--name", "other", "--json"),
        place.directory,
    )
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["experiments"][0]["name"] == "other"


def test_an_override_of_the_grid_and_another_workspace(place: Place) -> None:
    place.script("pass", "tasks.py")
    (place.directory / "setup.py").write_text("open(__file__ + '.ran', 'w').close()")
    file = place.directory / "sweep.yaml"
    file.write_text(YAML)
    result = run(
        tenuto("run", "-c", "parameters.name=q", file, "-w", place.directory / "elsewhere", "--json"),
        place.directory,
    )
    assert json.loads(result.stdout)["ran"] == 1, result.stderr
    assert place.ledger() == ["q"]
    assert (place.directory / "elsewhere" / "jobs").is_dir()
    assert not place.workspace.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nowhere.py"], "does not exist"),
        (["run", "-w", "x", "script.py"], "only for YAML files"),
        (["run", "sweep.yaml", "more"], "takes no arguments"),
        (["run", "sweep.yaml", "-c", "name"], "name=value"),
        (["run", "sweep.yaml", "-c", "tusk=3"], "has no parameter 'tusk'"),
        (["run", "--dry-run", "--generate-only", "script.py"], "not several"),
        (["plan", "broken.yaml"], "there is no such key; did you mean 'task'?"),
        (["run", "homeless.yaml"], "no workspace was given"),
        (["frobnicate"], "No such command"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_leaves_nothing(place: Place, arguments: list[str], said: str) -> None:
    place.script("pass")
    place.script("pass", "tasks.py")
    (place.directory / "setup.py").write_text("open(__file__ + '.ran', 'w').close()")
    (place.directory / "sweep.yaml").write_text(YAML)
    (place.directory / "broken.yaml").write_text("tosk: x")
    (place.directory / "homeless.yaml").write_text("imports: [tasks.py]\ntask: Note\nparameters: {name: a}")
    result = run(tenuto(*arguments), place.directory)
    assert result.returncode == 2, result.stderr
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not place.workspace.exists()


def test_what_jobs_say_cannot_act_on_the_terminal(place: Place) -> None:
    hostile = "\\x1b]52;c;aGk=\\x07\\x1b[2J\\r\\x9b1m\\u202e"
    script = place.script(
        f"""
with experiment(HERE / "ws", "hostile"):
    Fail.C(name="{hostile}").tag("{hostile}", "{hostile}").submit()
"""
    )
    result = run(tenuto("run", script), place.directory)
    assert "1 failed" in result.stderr
    assert "\\x1b]52;c;aGk=\\x07" in result.stderr
    again = run(tenuto("plan", script), place.directory)
    assert "1 to run again" in again.stdout
    for said in (result.stderr, again.stdout):
        assert not set(said) & set("\x1b\x07\x9b\u202e\r")


# -- plan --------------------------------------------------------------------------------------------


def paths(directory: Path) -> dict[str, int]:
    return {
        str(path): path.lstat().st_mtime_ns
        for path in [directory, *directory.rglob("*")]
        if "__pycache__" not in str(path)
    }


def plan(place: Place, script: Path, *options: str) -> Any:
    before = paths(place.directory)
    result = run([sys.executable, "-B", *tenuto("plan", "--json", *options, script)[1:]], place.directory)
    assert paths(place.directory) == before, "a plan changes nothing"
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["experiments"][0]


SWEEP = """
with experiment(HERE / "ws", "sweep"):
    for name in {names}:
        After.C(before=Note.C(name=name).submit()).submit()
"""


def test_a_plan_creates_nothing_not_even_the_workspace(place: Place) -> None:
    found = plan(place, place.script(SWEEP.format(names=["a", "b"])))
    assert [job["intent"] for job in found["jobs"]] == ["RUN"] * 4
    assert {job["why"] for job in found["jobs"]} == {"the first of its task here"}
    assert found["unpredicted"] == 4
    assert not place.workspace.exists()


def test_a_plan_says_what_is_reused_and_which_parameter_is_new(place: Place) -> None:
    script = place.script(SWEEP.format(names=["a", "b"]))
    assert run(python(script), place.directory).returncode == 0
    found = plan(place, place.script(SWEEP.format(names=["a", "c"])))
    assert [job["intent"] for job in found["jobs"]] == ["REUSE", "REUSE", "RUN", "RUN"]
    assert re.fullmatch(r"name is 'c', was '[ab]' in [0-9a-f]{12}", found["jobs"][2]["why"])
    assert re.fullmatch(r"before\.name is 'c', was '[ab]' in [0-9a-f]{12}", found["jobs"][3]["why"])
    assert found["predicted_s"] > 0
    assert found["unpredicted"] == 0
    text = run(tenuto("plan", script), place.directory)
    assert "2 to run, 2 reused" in text.stdout
    assert "predicted time: " in text.stdout


def test_a_plan_and_a_why_run_nothing_that_a_stored_file_names(place: Place) -> None:
    script = place.script(SWEEP.format(names=["a"]))
    assert run(python(script), place.directory).returncode == 0
    trace = place.directory / "trace"
    planted = place.directory / "elsewhere" / "planted.py"
    planted.parent.mkdir()
    planted.write_text(
        f"open({str(trace)!r}, 'w')\nfrom tenuto import Task\nclass Planted(Task):\n    pass\n"
    )
    (params,) = place.workspace.glob("jobs/*.Note/*/params.json")
    document = json.loads(params.read_bytes())
    document["objects"][-1]["class"] = ["planted", "Planted", str(planted)]
    for number in range(3):
        copy = params.parent.with_name(f"{number:064x}")
        shutil.copytree(params.parent, copy)
        (copy / "params.json").write_text(json.dumps(document))
    shutil.rmtree(params.parent)
    found = plan(place, place.script(SWEEP.format(names=["c"])))
    assert re.fullmatch(r"name is 'c', was 'a' in [0-9a-f]{12}", found["jobs"][0]["why"])
    why = run(tenuto("why", "-w", place.workspace, "Note/" + "0" * 63 + "1"), place.directory)
    assert why.returncode == 0, why.stderr
    assert not trace.exists()
    with pytest.raises(ClassNotFound, match=r"not on the import path.*PYTHONPATH"):
        from_task_dir(copy)
    assert not trace.exists()


SIZED = f"""{TASKS}
from tenuto import Meta

class Sized(Task):
    size: Param[int]
    device: Meta[str]
    def execute(self): pass
"""


def test_a_plan_names_no_difference_that_does_not_count(place: Place) -> None:
    body = 'with experiment(HERE / "ws", "x"):\n    Sized.C(size={}, device="{}").submit()'
    script = place.script(body.format(1, "cpu"), tasks=SIZED)
    assert run(python(script), place.directory).returncode == 0
    (job,) = plan(place, place.script(body.format(2, "gpu"), tasks=SIZED))["jobs"]
    assert job["nearest"]["differences"] == [{"path": "size", "new": 2, "old": 1}]


def test_a_plan_says_what_failed_before(place: Place) -> None:
    script = place.script('with experiment(HERE / "ws", "x"):\n    Fail.C(name="a").submit()')
    assert run(python(script), place.directory).returncode == 1
    (job,) = plan(place, script)["jobs"]
    assert (job["intent"], job["why"]) == ("RETRY", "failed before (FAILED)")


def test_the_plan_of_a_script_that_uses_its_results_afterwards_ends_well(place: Place) -> None:
    """As the example of the README does."""
    body = """
        with experiment(HERE / "ws", "x") as xp:
            Note.C(name="a").submit()
        assert [row["result"] for row in xp.results()] == ["a"]
        """
    script = place.script(dedent(body))
    result = run(tenuto("plan", script), place.directory)
    assert result.returncode == 0, result.stderr
    assert "1 to run" in result.stdout
    assert (
        "after its experiments the script stopped (AssertionError: ): a plan has no results" in result.stderr
    )


POLYMORPHIC = (
    TASKS
    + """
class Model(Config):
    pass

class Linear(Model):
    width: Param[int]

class Tree(Model):
    depth: Param[int]

class Train(Task):
    model: Param[Model]
    lr: Param[float]
    def execute(self):
        return 1
"""
)


def test_a_plan_names_the_class_of_a_parameter_that_takes_several(place: Place) -> None:
    body = "with experiment(HERE / 'ws', 'x'):\n    Train.C(model={}, lr=0.1).submit()"
    script = place.script(body.format("Linear.C(width=3)"), tasks=POLYMORPHIC)
    assert run(python(script), place.directory).returncode == 0
    place.script(body.format("Tree.C(depth=2)"), tasks=POLYMORPHIC)
    (job,) = plan(place, script)["jobs"]
    assert job["why"].startswith("model is ")
    assert "Tree" in job["why"].partition(", was ")[0]
    assert "Linear" in job["why"].partition(", was ")[2]


def test_a_script_that_needs_results_is_planned_as_far_as_it_goes(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "x") as xp:
    note_ = Note.C(name="a").submit()
    xp.wait()
    Note.C(name=note_.job.result() + "b").submit()
"""
    )
    result = run(tenuto("plan", script), place.directory)
    assert result.returncode == 1
    assert "x in " in result.stdout
    assert "1 to run" in result.stdout
    assert "the script stopped there (NoResult" in result.stderr
    assert not place.workspace.exists()


def test_a_plan_can_read_the_results_of_what_is_reused(place: Place) -> None:
    body = """
with experiment(HERE / "ws", "x"):
    first = Note.C(name="a").submit()
print("read", first.job.result())
"""
    script = place.script(body)
    assert run(python(script), place.directory).returncode == 0
    planned = run(tenuto("plan", script), place.directory)
    assert planned.returncode == 0, planned.stderr
    assert "read a" in planned.stderr
    assert "nothing would run" in planned.stdout


def test_an_experiment_that_was_left_and_then_finished_is_done(place: Place) -> None:
    script = place.script(
        """
for leave in (True, False):
    with experiment(HERE / "ws", "x"):
        Note.C(name="a").submit()
        if leave:
            raise GracefulExperimentExit("later")
if len(sys.argv) > 1:
    with experiment(HERE / "ws", "y"):
        raise GracefulExperimentExit("for good")
"""
    )
    assert run(tenuto("run", script), place.directory).returncode == 0
    left = run(tenuto("run", script, "leave"), place.directory)
    assert left.returncode == 5
    assert "y was left" in left.stderr
    assert "x was left" not in left.stderr


def test_generate_only_says_how_to_run_a_job_by_hand(place: Place) -> None:
    script = place.script('with experiment(HERE / "ws", "x"):\n    Note.C(name="a").submit()')
    result = run(tenuto("run", "--generate-only", script), place.directory)
    assert "1 job directory is written" in result.stderr
    (said,) = re.findall(r"by hand: python (\S+)", result.stderr)
    assert run([sys.executable, said], place.directory).stdout == "a\n"


# -- on a terminal -----------------------------------------------------------------------------------


@pytest.mark.parametrize("started_by", ["tenuto run", "python"])
def test_on_a_terminal_the_display_shows_progress_and_then_gives_way(place: Place, started_by: str) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "shown"):
    Hold.C(name="a").tag("t", "\\x1b]0;title\\x07").submit()
    print("printed by the script")
    child = os.fork()
    if child == 0:
        print("printed by its child", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    )
    command = tenuto("run", script) if started_by == "tenuto run" else python(script)
    with terminal(command, place.directory) as screen:
        eventually(lambda: "0/1" in screen.seen and "Hold t=" in screen.seen, "the display")
        screen.resize(10, 40)
        place.release.touch()
        assert screen.wait() == 0
        eventually(lambda: "1 ran" in screen.seen, "the summary")
        assert "printed by the script" in screen.seen
        assert "printed by its child" in screen.seen
        assert "\x1b]0;" not in screen.seen
        assert "\\x1b]0;title" in screen.seen
