"""Owns the totals of a job and of a run, and that without a tracker there is nothing at all."""

from __future__ import annotations

import json

import pytest

from tests.cli.calls import call

from .scripts import Place, environment, python, run, tenuto

TASKS = """
import sys, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

class Work(Task):
    name: Param[str]
    def execute(self):
        end = time.monotonic() + 30
        while not Path(".tenuto/carbon.json").exists() and (HERE / "tracker.py").exists():
            assert time.monotonic() < end, "nothing was measured"
            time.sleep(0.01)

class Quick(Task):
    def execute(self):
        pass
"""
TRACKER = '''
class Tracker:
    """A kilowatt hour a sample, and nothing in between."""
    def __init__(self, runner, country):
        self.used, self.country = 0, country
    def sample(self):
        self.used += 1
        return {"co2_kg": self.used / 4, "energy_kwh": self.used, "duration_s": 1, "region": self.country}
'''
SETTINGS = """
[carbon]
tracker = "tracker:Tracker"
after_s = 2
every_s = 0.1
country = "FRA"
"""
SHOW = """
import json
with experiment(HERE / "ws", "xp") as xp:
    tasks = [Work.C(name=name).submit() for name in {names}]
    Quick.C().submit()
    xp.wait()
    used = [job.carbon() for job in xp.jobs]
    of_run = xp.carbon()
print(json.dumps([[one and one.energy_kwh for one in used], of_run and [of_run.energy_kwh, of_run.co2_kg]]))
"""


@pytest.fixture
def tracked(place: Place) -> Place:
    (place.directory / "tracker.py").write_text(TRACKER)
    (place.directory / "tenuto.toml").write_text(SETTINGS)
    return place


def looked(place: Place, *arguments: str) -> str:
    """What a command that only looks prints."""
    return call([*arguments, "-w", "ws"], place.directory, environment()).stdout


def shown(place: Place, *names: str, **variables: str) -> tuple[list[float | None], list[float] | None]:
    result = run(python(place.script(SHOW.format(names=names), tasks=TASKS)), place.directory, **variables)
    assert result.returncode == 0, result.stderr
    (place.directory / "said").write_text(result.stderr)
    return tuple(json.loads(result.stdout))  # type: ignore[return-value]


def test_what_jobs_used_is_added_up_for_the_run(tracked: Place) -> None:
    (first, second, quick), total = shown(tracked, "a", "b")
    assert first is not None
    assert second is not None
    assert quick is None
    assert total == [first + second, (first + second) / 4]
    said = (tracked.directory / "said").read_text()
    assert "energy: 1 of the jobs ended before it was measured (carbon.after_s)" in said
    (found,) = json.loads(looked(tracked, "runs", "--json"))
    assert found["carbon"]["energy_kwh"] == total[0]
    assert f"used {total[0]:.3g} kWh" in looked(tracked, "runs", "show", "xp")
    assert json.loads(looked(tracked, "why", "Quick", "--json"))["carbon"] is None
    told = looked(tracked, "why", "Quick")
    assert "its energy was not measured: a job that runs for less than 2 s is not" in told


def test_a_reused_job_costs_the_second_run_nothing(tracked: Place) -> None:
    (first, _), _ = shown(tracked, "a")
    (again, new, _), total = shown(tracked, "a", "b")
    assert again == first
    assert total is not None
    assert total[0] == new


def test_carbon_can_be_switched_off(tracked: Place) -> None:
    (tracked.directory / "tracker.py").unlink()
    assert shown(tracked, "a", TENUTO_CARBON__ENABLED="false") == ([None, None], None)
    assert not list(tracked.workspace.glob("jobs/*/*/.tenuto/carbon.json"))


def test_a_tracker_that_fails_is_shown_by_why(tracked: Place) -> None:
    failing = "def Tracker(runner, country):\n    raise OSError('no sensor')\n"
    (tracked.directory / "tracker.py").write_text(failing)
    assert shown(tracked, "a") == ([None, None], None)
    assert "no sensor" in run(tenuto("why", "Work", "-w", tracked.workspace), tracked.directory).stdout
