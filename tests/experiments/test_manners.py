"""Owns the small things that a person meets in the first hour: words, plurals, and early refusals."""

from __future__ import annotations

import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from tenuto import JobState, Param, ProcessService, Task, experiment, load_xp_info
from tenuto.errors import DeclarationError, NotFound
from tenuto.experiments.display import Shown, ShownJob, rendered
from tenuto.experiments.environment import forget, git_state
from tenuto.jobs.model import Counts
from tenuto.jobs.screen import Size
from tenuto.jobs.text import counted
from tenuto.launchers.script import job_script

from .scripts import TASKS, Place, Terminal, eventually, python, run, tenuto


class Empty(Task):
    x: Param[int]


def test_a_state_prints_as_its_name() -> None:
    assert str(JobState.DONE) == f"{JobState.DONE}" == "DONE"
    assert f"{JobState.DONE:>6}|{int(JobState.DONE)}" == "  DONE|5"


def test_one_job_is_not_jobs() -> None:
    assert [counted(number, "job") for number in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]


def test_a_task_without_execute_is_refused_when_it_would_run(tmp_path: Path) -> None:
    with experiment(tmp_path / "ws", "x", run_mode="dry_run") as xp:
        Empty.C(x=1).submit()
    assert repr(xp) == f"<experiment 'x' in {tmp_path}/ws>"
    assert [one.intent.value for one in xp.plan] == ["to run"]
    with experiment(tmp_path / "ws", "x", run_mode="generate_only"):
        Empty.C(x=1).submit()
    with experiment(tmp_path / "ws", "x"):
        Empty.C(x=2).submit(transient="transient")
        with pytest.raises(
            DeclarationError, match=r"Empty has no execute\(\), so there is nothing to run, at .*: define"
        ):
            Empty.C(x=1).submit()


def test_a_long_name_is_whole_on_a_wide_terminal() -> None:
    name = "Train learning_rate=0.001 optimiser=adam layers=3 width=512"
    shown = Shown("x", Counts(running=1), running=[ShownJob(name, 0.5, 1.0, "")])
    assert name in rendered(shown, Size(200, 24))[2].text


def test_the_script_of_a_job_names_itself() -> None:
    assert b"python Train.py\n" in job_script("Train")


def test_a_service_takes_its_command_as_a_shell_would() -> None:
    assert ProcessService("sleep '100'").command == ("sleep", "100")


def test_a_script_that_was_never_added_is_an_uncommitted_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "a.txt").write_text("a")
    git("add", "a.txt")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    script = tmp_path / "script.py"
    script.write_text("")
    environ = {"PATH": "/usr/bin:/bin:/usr/local/bin"}
    forget()
    assert git_state(tmp_path, environ).dirty is False, "another program's file does not matter"
    described = git_state(script, environ)
    assert (described.path, described.dirty) == (str(tmp_path), True), "a file that describes the run does"
    monkeypatch.setattr("__main__.__file__", str(script), raising=False)
    forget()
    assert git_state(tmp_path, environ).dirty is True
    git("add", "script.py")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "second")
    forget()
    assert git_state(tmp_path, environ).dirty is False
    forget()


def test_a_yaml_file_that_was_never_added_is_an_uncommitted_change(place: Place) -> None:
    for command in ("init -q", "add script.py", "-c user.name=a -c user.email=a@b commit -qm first"):
        if command.startswith("add"):
            place.script("")
        subprocess.run(["git", *command.split()], cwd=place.directory, check=True, capture_output=True)
    (place.directory / "sweep.yaml").write_text(
        "workspace: ws\nimports: [script.py]\ntask: Note\nparameters: {name: a}\n"
    )
    first = run(tenuto("run", "sweep.yaml"), place.directory)
    assert first.returncode == 0, first.stderr
    assert "uncommitted changes in" in first.stderr


def test_a_removed_working_directory_is_said_in_a_sentence(place: Place) -> None:
    script = place.script('experiment(sys.argv[1], "x").__enter__()', tasks="import sys\n" + TASKS)
    for command in (tenuto("jobs"), [*python(script), "ws"], [*python(script), str(place.directory / "ws")]):
        gone = place.directory / "gone"
        gone.mkdir()
        shell = ["sh", "-c", 'rmdir ../gone && exec "$@"', "sh", *map(str, command)]
        found = run(shell, gone)
        assert found.returncode != 0
        assert "the working directory was removed: go to one that is there" in found.stderr.splitlines()[-1]


def test_a_workspace_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no workspace at"):
        load_xp_info(tmp_path / "ws", "x")


def test_a_script_at_a_terminal_says_what_came_of_it_and_an_early_exit_is_no_success(place: Place) -> None:
    tasks = TASKS + "\nclass Leaves(Task):\n    def execute(self):\n        os._exit(0)\n"
    body = """
        with experiment("ws", "x", raise_on_failure=False) as xp:
            Note.C(name="a").submit()
            left = Leaves.C().submit()
        print(left.job.state, left.job.state_record.message)
        """
    script = place.script(dedent(body), tasks=tasks)
    screen = Terminal(python(script), place.directory, size=(24, 200))
    try:
        assert screen.wait() == 0
        eventually(lambda: "to see results" in screen.seen, "the last words")
    finally:
        screen.close()
    assert "ERROR its process ended before execute() returned, as by os._exit(0)" in screen.seen
    said = "x: 2 jobs, 0 reused, 1 ran, 1 failed; to see results: tenuto results -w ws"
    assert said in screen.seen
    listed = run(tenuto("clean", "state=done", "-w", "ws"), place.directory)
    assert "1 job of 1 is done, with results" in listed.stderr
