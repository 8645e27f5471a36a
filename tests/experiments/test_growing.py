"""Needs that grow by cause, in real processes: memory, time, failures after a while, and a killed driver."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tenuto import RequirementError, RunMode, Task, experiment
from tenuto.errors import ParameterError

from .scripts import Place, environment, eventually, python, run, tenuto

TASKS = """
import os, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

class Hungry(Task):
    __requires__ = "cpu(mem=200M)"
    __retry__ = "memory: mem*2 to 800M"
    megabytes: Param[int]
    def execute(self):
        return len(bytearray(self.megabytes << 20))

class Slow(Task):
    __requires__ = "duration=0.5s"
    seconds: Param[float]
    def execute(self):
        time.sleep(self.seconds)
        return self.seconds

class Flaky(Task):
    times: Param[int]
    def execute(self):
        flags = HERE / f"failed-{self.times}"
        with flags.open("a") as failures:
            failures.write("x")
        if len(flags.read_text()) <= self.times:
            raise ValueError("not yet")
        return len(flags.read_text())
"""


class Plain(Task):
    """Never asked to run."""

    def execute(self) -> None:
        pass


def launches(place: Place) -> dict[str, dict[str, Any]]:
    """task -> its launch record"""
    jobs = place.directory / "ws" / "jobs"
    found = [json.loads(path.read_text()) for path in jobs.glob("*/*/.tenuto/launch.json")]
    for path in jobs.glob("*/*/*.done"):  # a job that is done has it in its marker
        marker = json.loads(path.read_text())
        found += [{"attempt": marker["attempt"], **marker["launch"]}] * ("launch" in marker)
    return {one["instructions"]["task_id"].split(".")[-1]: one for one in found}


def test_each_cause_grows_what_its_rule_names(place: Place) -> None:
    place.script(
        """
with experiment(HERE / "ws", "grow"):
    hungry = Hungry.C(megabytes=300).submit()
    slow = Slow.C(seconds=1.2).submit(retry="timeout: duration*2 to 4s")
    flaky = Flaky.C(times=1).submit(retry="failed: 1 after 0.2s")
assert hungry.result() == 300 << 20
assert slow.result() == 1.2
assert flaky.result() == 2
""",
        tasks=TASKS,
    )
    done = run(python(place.directory / "script.py"), place.directory)
    assert done.returncode == 0, done.stderr
    found = launches(place)
    assert [one["memory_bytes"] for one in found["Hungry"]["earlier"]] == [200 << 20]
    assert found["Hungry"]["instructions"]["limits"]["memory_bytes"] == 400 << 20
    assert [one["walltime_s"] for one in found["Slow"]["earlier"]] == [0.5, 1.0]
    assert found["Slow"]["instructions"]["limits"]["walltime_s"] == 2.0
    assert [one["reason"] for one in found["Flaky"]["earlier"]] == ["FAILED"]
    why = run(tenuto("why", found["Hungry"]["job_name"], "-w", "ws"), place.directory)
    assert "attempt 1: out of memory at 200M; attempt 2: with 400M, done" in why.stdout
    assert re.search(r"memory: \d+M of 400M \(\d+%\)", why.stdout), why.stdout
    told = json.loads(run(tenuto("results", "--usage", "--json", "-w", "ws"), place.directory).stdout)
    used = {one["task"].split(".")[-1]: one for one in told}
    assert used["Hungry"]["asked_bytes"] == 400 << 20 >= used["Hungry"]["used_bytes"] >= 300 << 20
    assert used["Slow"]["asked_s"] == 2.0 >= used["Slow"]["used_s"] >= 1.2
    assert used["Flaky"]["asked_s"] is None
    assert used["Flaky"]["attempt"] == 2


def test_a_job_that_starves_at_the_bound_fails_and_the_next_run_begins_anew(place: Place) -> None:
    place.script(
        """
with experiment(HERE / "ws", "grow"):
    Hungry.C(megabytes=3000).submit()
""",
        tasks=TASKS,
    )
    for attempts in (3, 6):
        assert run(python(place.directory / "script.py"), place.directory).returncode == 1
        found = launches(place)["Hungry"]
        assert found["attempt"] == attempts
        assert [one["memory_bytes"] >> 20 for one in found["earlier"]] == [200, 400]
        assert found["instructions"]["limits"]["memory_bytes"] == 800 << 20


def test_a_driver_that_is_killed_while_a_job_rests_is_followed_by_one_that_counts_on(place: Place) -> None:
    place.script(
        """
with experiment(HERE / "ws", "grow"):
    Flaky.C(times=2).submit(retry="failed: 2 after 1h" if os.environ.get("SLOWLY") else "failed: 2")
""",
        tasks=TASKS,
    )
    script = python(place.directory / "script.py")
    slowly = environment(SLOWLY="1")
    with subprocess.Popen(script, cwd=place.directory, env=slowly, stderr=subprocess.DEVNULL) as driver:
        try:
            eventually(lambda: list(place.directory.glob("ws/jobs/*/*/Flaky.failed")), "its first failure")
        finally:
            driver.kill()
    done = run(script, place.directory)
    assert done.returncode == 0, done.stderr
    found = launches(place)["Flaky"]
    assert (found["attempt"], found["failed_count"]) == (3, 2)


def test_a_job_that_rests_can_be_cancelled(place: Place) -> None:
    place.script(
        """
from tenuto import JobState
with experiment(HERE / "ws", "grow") as xp:
    job = Flaky.C(times=5).submit(retry="failed: 5 after 1h").job
    end = time.monotonic() + 60
    while not list(HERE.glob("ws/jobs/*/*/Flaky.failed")) or job.state is not JobState.WAITING:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert "in 3600 s" in job.state_record.message, job.state_record.message
    job.scheduler.cancel(job, "not wanted any more")
    assert job.wait() is JobState.ERROR
""",
        tasks=TASKS,
    )
    done = run(python(place.directory / "script.py"), place.directory)
    assert done.returncode == 1, done.stderr
    assert "CANCELLED" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("given", "error", "problem"),
    [
        ({"retry": "oom: 1"}, RequirementError, "submit(retry=) cannot be read"),
        ({"retry": 3}, RequirementError, "submit(retry=) is a text"),
        ({"retry": "memory: mem*2 to 8G"}, RequirementError, "no limit of its memory yet"),
        ({"retry": "memory: mem*2 to 8G", "requires": "cpu(mem=8G)"}, RequirementError, "begins with 8G"),
        ({"retry": "timeout: 2", "max_retries": 3}, ParameterError, "leave one of them out"),
    ],
)
def test_a_rule_that_cannot_hold_is_refused_at_submit(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], problem: str
) -> None:
    with experiment(tmp_path, "refused", run_mode=RunMode.DRY_RUN):
        with pytest.raises(error) as caught:
            Plain.C().submit(**given)
        assert problem in str(caught.value)
    assert not list(tmp_path.glob("jobs/*/*"))
