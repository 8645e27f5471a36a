"""Owns `tenuto wait` on real runs and searches: woken in time, true after a kill of the driver."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tenuto import Catalogue
from tenuto.cli.commands.wait import Awaited, Waiting, WaitState
from tenuto.clock import SystemClock
from tenuto.workspace.layout import Layout
from tests.experiments.scripts import TASKS, Place, environment, eventually, python, run, tenuto

SWEEP = """
import sys
with experiment("ws", "sweep", raise_on_failure=False):
    held = Hold.C(name="held").submit()
    After.C(before=held).submit()
    Fail.C(name="bad").submit()
"""


@pytest.fixture
def place(tmp_path: Path) -> Any:
    made = Place(tmp_path)
    made.script(SWEEP)
    yield made
    made.release.touch()


def start(place: Place, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=place.directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait(place: Place, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = run(tenuto("wait", "--json", *arguments), place.directory)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}


def test_a_wait_ends_with_the_run_and_after_a_kill_of_its_driver(place: Place) -> None:
    driver = start(place, *python(place.directory / "script.py"))
    eventually(lambda: {"held", "bad"} <= set(place.ledger()), "the jobs")
    code, told = wait(place, "--timeout", "0.1")
    assert (code, told["state"], told["groups"][0].partition("/")[0]) == (6, "working", "sweep")
    code, told = wait(place, "state=error", "--any")
    assert (code, told["about"][0]["message"].partition(" (")[0]) == (1, "ValueError: bad is bad")
    driver.kill()
    driver.communicate()
    assert wait(place) == (0, {**told, **NOTHING})
    assert "no driver is at work for sweep/" in run(tenuto("wait"), place.directory).stderr
    waiting = start(place, *tenuto("wait", "--json", "sweep"))
    time.sleep(0.5)
    waiting.kill()  # a restart of the command loses nothing
    waiting.communicate()
    waiting = start(place, *tenuto("wait", "--json", "sweep"))
    time.sleep(0.5)
    place.release.touch()
    told = json.loads(waiting.communicate(timeout=60)[0])
    assert (waiting.returncode, told["state"]) == (1, "unattended")
    assert told["take_up"] == [f"tenuto run {place.directory / 'script.py'}"]
    assert (told["counts"]["done"], len(told["left"])) == (1, 1)
    shown = json.loads(run(tenuto("status", "--json"), place.directory).stdout)["groups"][0]
    assert (shown["state"], shown["take_up"]) == ("interrupted", told["take_up"][0])
    again = run(tenuto("run", "script.py"), place.directory)
    assert again.returncode == 0
    code, told = wait(place, "sweep")
    assert (code, told["counts"]["done"], [row["reason"] for row in told["failed"]]) == (1, 2, ["failed"])


def test_a_run_whose_failed_jobs_were_retried_is_done(place: Place) -> None:
    once = """
class Once(Task):
    def execute(self):
        assert (HERE / "release").exists(), "not yet"
"""
    place.script('with experiment("ws", "again"):\n    Once.C().submit()', tasks=TASKS + once)
    assert run(python(place.directory / "script.py"), place.directory).returncode == 1
    assert wait(place, "again")[0] == 1
    place.release.touch()
    assert run(tenuto("retry", "--failed"), place.directory).returncode == 0
    code, told = wait(place, "again")
    assert (code, told["state"], told["counts"]["done"], told["message"]) == (0, "done", 1, None)


def test_a_run_is_done_though_no_job_needed_one_of_its_transient_jobs(place: Place) -> None:
    place.script("""
with experiment("ws", "spare"):
    Hold.C(name="spare").submit(transient=TransientMode.TRANSIENT)
""")
    assert run(python(place.directory / "script.py"), place.directory).returncode == 0
    code, told = wait(place, "spare")
    assert (code, told["state"], told["counts"]["unscheduled"]) == (0, "done", 1)


NOTHING = {
    "state": "idle",
    "event": "nothing",
    "exit": 0,
    "groups": [],
    "counts": dict.fromkeys("unscheduled waiting ready scheduled running done error".split(), 0),
    "about": [],
    "failed": [],
    "left": [],
    "take_up": [],
    "message": "nothing is at work",
}


def test_a_wait_is_woken_by_the_end_of_a_job(place: Place) -> None:
    driver = start(place, *python(place.directory / "script.py"))
    eventually(lambda: "held" in place.ledger(), "the job")
    with Catalogue(place.workspace) as catalogue:
        (row,) = catalogue.rows("task~Hold")
        group = catalogue.source(row.group).group(row.group)
        assert group is not None
        wait = Waiting(catalogue.source, [Awaited(group, frozenset([row.key]))], SystemClock())
        threading.Timer(0.3, place.release.touch).start()
        came = wait.run(timeout_s=60)
        late = time.time() - (place.workspace / "jobs" / row.task / row.id / "Hold.done").stat().st_mtime
    driver.communicate()
    assert (came.state, wait.is_told) == (WaitState.DONE, True)
    assert late < 1.0  # 60 ms where the machine is idle; a look without being woken comes after 2 s


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nothing"], 3, "no job, run, search or service is called 'nothing'"),
        (["state=running"], 3, "no job matches"),
        (["state=runing"], 2, "state is never"),
        (["--any", "--changes"], 2, "exclude each other"),
        (["--timeout", "-1"], 2, "range"),
    ],
)
def test_a_name_that_there_is_none_of_ends_the_wait_at_once(
    place: Place, arguments: list[str], code: int, said: str
) -> None:
    place.script('with experiment("ws", "quick"):\n    Note.C(name="a").submit()')
    assert run(python(place.directory / "script.py"), place.directory).returncode == 0
    done = run(tenuto("wait", *arguments), place.directory)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_run_is_taken_up_by_all_words_of_its_command(place: Place, tmp_path: Path) -> None:
    place.script(SWEEP)
    driver = start(
        place, *tenuto("run", "--notify", "true secret", "script.py", "--lr", "0.1 0.2", "--notify")
    )
    eventually(lambda: "held" in place.ledger(), "the job")
    driver.kill()
    driver.communicate()
    place.release.touch()
    command = "tenuto run script.py --lr '0.1 0.2' --notify"
    code, told = wait(place, "sweep")
    assert (code, told["take_up"]) == (1, [command])
    (tmp_path / "elsewhere").mkdir()
    done = run(tenuto("wait", "sweep", "-w", str(place.workspace)), tmp_path / "elsewhere")
    assert f"cd {place.directory} && {command}" in done.stderr


def test_a_few_jobs_are_named_and_not_their_group(place: Place) -> None:
    place.script('with experiment("ws", "quick"):\n    Note.C(name="a").submit()')
    assert run(python(place.directory / "script.py"), place.directory).returncode == 0
    (job,) = json.loads(run(tenuto("jobs", "--json"), place.directory).stdout)
    assert run(tenuto("wait", job["id"]), place.directory).stdout == f"{job['name']}: done (1 done)\n"
    assert run(tenuto("wait", "quick"), place.directory).stdout.startswith("quick/")


def test_a_waiting_job_is_cancelled_by_its_driver_and_no_running_one(place: Place) -> None:
    driver = start(place, *tenuto("run", "script.py"))
    eventually(lambda: {"held", "bad"} <= set(place.ledger()), "the jobs")
    (row,) = json.loads(run(tenuto("jobs", "--json", "state=waiting"), place.directory).stdout)
    asked = run(tenuto("kill", "state=waiting"), place.directory)
    assert "1 would be killed" in asked.stderr
    done = run(tenuto("kill", "--json", row["id"]), place.directory)
    assert [(one["outcome"], one["ended"]) for one in json.loads(done.stdout)] == [("asked", True)]
    (row,) = json.loads(run(tenuto("jobs", "--json", row["id"]), place.directory).stdout)
    assert (row["state"], row["reason"], row["started"]) == ("error", "cancelled", None)
    assert run(tenuto("kill", row["id"]), place.directory).returncode == 1
    place.release.touch()
    driver.communicate(timeout=60)
    code, told = wait(place, "sweep")
    assert (code, told["counts"]["done"], len(told["failed"])) == (1, 1, 2)


def test_a_job_that_began_since_a_person_cancelled_it_is_stopped(place: Place) -> None:
    place.script('with experiment("ws", "late", raise_on_failure=False):\n    Hold.C(name="late").submit()')
    driver = start(place, *tenuto("run", "script.py"))
    eventually(place.ledger, "the job")
    (row,) = json.loads(run(tenuto("jobs", "--json"), place.directory).stdout)
    asked = Path(Layout(str(place.directory / "ws")).run("late", row["run"]).cancellations)
    asked.mkdir(exist_ok=True)
    (asked / row["id"]).write_text("killed by ada")  # while it waited
    driver.communicate(timeout=60)
    (row,) = json.loads(run(tenuto("jobs", "--json"), place.directory).stdout)
    assert (row["state"], row["reason"], row["message"]) == ("error", "cancelled", "killed by ada")
