"""Owns the promise that measuring a job's energy costs the job nothing, whatever the tracker does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tenuto.cli.commands import doctor as checks
from tenuto.launchers.carbon import carbon_plan
from tenuto.launchers.carbon.tracker import Usage, codecarbon_tracker, device_share, share
from tenuto.launchers.instructions import CODECARBON, CarbonPlan, Limits
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.events import CarbonMetricsData, CarbonMetricsEvent, Event
from tenuto.settings import CarbonSettings
from tenuto.testing.contracts.launchers import finished
from tenuto.testing.jobs import TASK_ID, JobBench, ReadyJob
from tenuto.workspace.carbon import Measured, job_total, metrics_of, read_carbon, total, write_carbon
from tenuto.workspace.journal import EventReader
from tenuto.workspace.markers import Marker

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TRACKERS = '''
import os, signal, subprocess, sys, time
from contextlib import suppress

class Steady:
    """A kilowatt, for as long as it is asked."""
    def __init__(self, runner, country):
        self.asked, self.country = 0, country
    def sample(self):
        self.asked += 1
        return {"co2_kg": self.asked * 0.5, "energy_kwh": self.asked, "duration_s": self.asked * 3600,
                "cpu_power_w": 1000, "region": self.country}

class Raising(Steady):
    def sample(self):
        raise RuntimeError("no sensor")

class Hanging(Steady):
    def sample(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
        while True:
            time.sleep(1000)

class Busy(Steady):
    def sample(self):
        while True:
            pass

class Slow(Steady):
    def sample(self):
        time.sleep(0.7)
        return super().sample()

class Flooding(Steady):
    def sample(self):
        os.write(1, b"x" * 1_000_000)
        return super().sample()

class Lying(Steady):
    def sample(self):
        return {"co2_kg": "much", "energy_kwh": float("nan"), "duration_s": -1}

class Seeing(Steady):
    def __init__(self, runner, country):
        super().__init__(runner, os.environ.get("CUDA_VISIBLE_DEVICES"))

class Parenting(Steady):
    """Leaves a process that does not end by itself."""
    def sample(self):
        self.child = subprocess.Popen(["sleep", "600"])
        return super().sample()

class Orphaning(Parenting):
    """Leaves it, and itself goes."""
    def sample(self):
        super().sample()
        raise RuntimeError("gone")

def unmade(runner, country):
    raise OSError("no such device")

def prompt_codecarbon(runner, country):
    """codecarbon takes seconds to import, for which a meter never gets the time on a busy machine."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    with suppress(OSError), open("/proc/self/autogroup", "w") as group:
        group.write("0")
    from tenuto.launchers.carbon.tracker import codecarbon_tracker
    return codecarbon_tracker(runner, country)
'''


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CarbonPlan]:
    """A plan that uses a tracker of this file, at once and often."""
    (tmp_path / "planted_trackers.py").write_text(TRACKERS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")

    def measured(tracker: str, **options: Any) -> CarbonPlan:
        options = {"after_s": 0.05, "every_s": 0.05, **options}
        return CarbonPlan(**options, tracker=f"planted_trackers:{tracker}")

    return measured


@pytest.fixture
def events(bench: JobBench) -> Callable[[ReadyJob], list[Event]]:
    def events(job: ReadyJob) -> list[Event]:
        reader = EventReader(bench.machine.files, bench.layout.job_journal(TASK_ID, job.job_id))
        return [entry.event for entry in reader.read()]

    return events


UNTIL_MEASURED = """
from tenuto.workspace.files import DiskFiles
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.carbon import read_carbon
paths = JobPaths(os.getcwd(), "work")
end = time.monotonic() + 100
while not read_carbon(DiskFiles(), paths).get(self.job_attempt):
    assert time.monotonic() < end, "nothing was measured"
    time.sleep(0.01)
return 7
"""


def test_a_job_is_measured_while_it_runs_and_at_its_end(
    task: Callable[..., ReadyJob], ended: Callable[..., Marker], measured: Any, events: Any, bench: JobBench
) -> None:
    job = task(UNTIL_MEASURED, carbon=measured("Steady", country="FRA"))
    assert ended(job).result == 7
    found = [event for event in events(job) if isinstance(event, CarbonMetricsEvent)]
    assert found[0].metrics.co2_kg == found[0].metrics.energy_kwh / 2
    assert found[0].metrics.region == "FRA"
    assert [event.final for event in found] == [*([False] * (len(found) - 1)), True]
    assert found[-1].metrics.energy_kwh >= found[-2].metrics.energy_kwh
    assert job_total(bench.machine.files, job.paths).energy_kwh == found[-1].metrics.energy_kwh  # type: ignore[union-attr]


def test_the_attempts_of_a_job_are_added_up(
    task: Callable[..., ReadyJob], ended: Callable[..., Marker], measured: Any, bench: JobBench
) -> None:
    job = task(UNTIL_MEASURED, carbon=measured("Steady"))
    ended(job)
    first = job_total(bench.machine.files, job.paths)
    job.open_attempt()
    ended(job)
    found = read_carbon(bench.machine.files, job.paths)
    assert sorted(found) == [1, 2]
    both = job_total(bench.machine.files, job.paths)
    assert first is not None
    assert both is not None
    assert both.energy_kwh == first.energy_kwh + found[2].metrics.energy_kwh  # type: ignore[union-attr]
    assert job_total(bench.machine.files, job.paths, since=found[1].until.replace(year=2999)) is None


@pytest.mark.parametrize("tracker", ["Steady", "Hanging"])
def test_a_killed_runner_takes_its_meter_along_and_keeps_what_was_measured(
    task: Callable[..., ReadyJob],
    launcher: Launcher,
    run: Callable[..., Any],
    until: Callable[..., Any],
    measured: Any,
    bench: JobBench,
    tracker: str,
) -> None:
    job = task("time.sleep(600)", carbon=measured(tracker))

    async def killed() -> None:
        process = await launcher.start(job.order)
        job.release()
        assert await process.confirmed()
        runner = int(process.describe()["pid"])
        below = await asyncio.to_thread(until, lambda: meters(runner), "the meter")
        if tracker == "Steady":
            await asyncio.to_thread(until, lambda: read_carbon(bench.machine.files, job.paths), "a sample")
        os.kill(runner, signal.SIGKILL)
        await process.wait()
        await asyncio.to_thread(until, lambda: not any(map(is_alive, below)), "the meter's end")
        process.close()

    run(killed())
    lock = bench.machine.locks.try_lock(job.paths.lock)
    assert lock is not None, "somebody still has the lock"
    lock.close()
    if tracker == "Steady":
        assert read_carbon(bench.machine.files, job.paths)[1].metrics is not None


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def meters(runner: int) -> list[int]:
    """The meters below a runner."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_bytes()
            parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"carbon/meter.py" in command and parent == runner:
            found.append(int(directory.name))
    return found


@pytest.mark.parametrize(
    ("tracker", "problem"),
    [
        ("Raising", "RuntimeError: no sensor"),
        ("unmade", "OSError: no such device"),
        ("Orphaning", "RuntimeError: gone"),
        ("missing", "AttributeError"),
        ("Lying", "cannot be understood"),
    ],
)
def test_a_tracker_that_fails_is_told_of_and_changes_nothing(
    task: Callable[..., ReadyJob],
    ended: Callable[..., Marker],
    measured: Any,
    bench: JobBench,
    tracker: str,
    problem: str,
) -> None:
    job = task(UNTIL_MEASURED, carbon=measured(tracker))
    marker = ended(job)
    assert (marker.reason, marker.result, marker.flags) == (None, 7, ())
    (found,) = read_carbon(bench.machine.files, job.paths).values()
    assert found.metrics is None
    assert problem in str(found.problem)


def test_a_short_job_is_not_measured(
    task: Callable[..., ReadyJob], ended: Callable[..., Marker], measured: Any, bench: JobBench
) -> None:
    job = task("pass", carbon=measured("Steady", after_s=30.0))
    ended(job)
    assert read_carbon(bench.machine.files, job.paths) == {}


def test_a_command_is_measured_too(ended: Callable[..., Marker], measured: Any, bench: JobBench) -> None:
    script = "while [ ! -e .tenuto/carbon.json ]; do sleep 0.02; done"
    job = bench.command("/bin/sh", "-c", script, carbon=measured("Steady"))
    assert ended(job).reason is None
    assert job_total(bench.machine.files, job.paths) is not None


def test_a_meter_knows_the_devices_of_its_job(
    task: Callable[..., ReadyJob], ended: Callable[..., Marker], measured: Any, bench: JobBench
) -> None:
    job = task(UNTIL_MEASURED, carbon=measured("Seeing"), environment={"CUDA_VISIBLE_DEVICES": "2,3"})
    ended(job)
    assert job_total(bench.machine.files, job.paths).region == "2,3"  # type: ignore[union-attr]


def test_a_stopped_job_takes_its_meter_along(
    task: Callable[..., ReadyJob], ended: Callable[..., Marker], measured: Any, bench: JobBench
) -> None:
    limits = Limits(walltime_s=2.5, grace_s=0.1)
    marker = ended(task("time.sleep(600)", carbon=measured("Parenting"), limits=limits))
    assert str(marker.reason) == "JobFailureStatus.TIMEOUT"
    assert "leftovers_alive" not in marker.flags


@pytest.mark.prove("it measures time")
def test_no_tracker_makes_a_job_longer(
    task: Callable[..., ReadyJob], launcher: Launcher, run: Callable[..., Any], measured: Any
) -> None:
    """By a hundredth of ten seconds, at 300 times the usual rate. A meter begins after a second: what counts
    is how late a task wakes, and how long after its return the job has ended.

    A busy machine delays one job or another, never the same one over and over: the least of several counts.
    """
    trackers = ["Hanging", "Busy", "Slow", "Flooding", "Raising", "Parenting", "Orphaning", None]

    async def added(number: int, tracker: str | None) -> float:
        sleep_s = 1.5 + 0.2 * number  # so that they do not end all at once, and wait for each other
        body = f"""
        began = time.monotonic()
        time.sleep({sleep_s})
        return [time.monotonic() - began - {sleep_s}, time.time()]
        """
        job = task(body, carbon=measured(tracker) if tracker else None)
        process = await finished(launcher, job)
        process.close()
        marker = job.marker()
        assert (marker.reason, marker.flags) == (None, ())
        assert marker.endtime is not None
        overslept_s, returned = marker.result
        return float(overslept_s + marker.endtime.timestamp() - returned)

    async def at_once() -> list[float]:
        return list(await asyncio.gather(*(added(*each) for each in enumerate(trackers))))

    rounds = [run(at_once()) for _ in range(5)]
    *with_meter, without = (min(each) for each in zip(*rounds, strict=True))
    slower = {name: more - without for name, more in zip(trackers, with_meter, strict=False)}
    assert max(slower.values()) < 0.1, slower


def test_a_meter_does_not_count_as_the_jobs_own_use(
    task: Callable[..., ReadyJob], ended: Callable[..., Marker], measured: Any
) -> None:
    marker = ended(task("time.sleep(3)", carbon=measured("Busy")))
    assert marker.usage["user_s"] < 1.5


# The numbers


def test_a_job_is_charged_its_part_of_the_machines_work() -> None:
    assert share(Usage(10, 100), Usage(15, 110)) == 0.5
    assert share(Usage(10, 100), Usage(15, 103)) == 1.0
    assert share(Usage(10, 100), Usage(9, 110)) == 0.0
    assert share(Usage(10, 100), Usage(10, 100)) == 0.0


def test_devices_that_were_given_to_a_job_are_its_own() -> None:
    assert device_share("0,1", 0.2) == 1.0
    assert device_share("", 0.2) == 0.0
    assert device_share(None, 0.2) == 0.2


def test_sums_have_no_power_and_a_region_only_if_it_is_one() -> None:
    one = CarbonMetricsData(co2_kg=1.0, energy_kwh=2.0, duration_s=3.0, cpu_power_w=4.0, region="FRA")
    assert total([one, one]) == CarbonMetricsData(co2_kg=2.0, energy_kwh=4.0, duration_s=6.0, region="FRA")
    other = CarbonMetricsData(co2_kg=0, energy_kwh=0, duration_s=0, region="DEU")
    assert total([one, other]).region is None  # type: ignore[union-attr]
    assert total([]) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"attempts": 3}', b'{"attempts": {"x": {}}}', b'{"attempts": {"1": {"until": "noon"}}}'],
)
def test_a_garbled_record_is_no_record(bench: JobBench, content: bytes) -> None:
    job = bench.command("true")
    job.release()
    Path(job.paths.carbon).write_bytes(content)
    assert read_carbon(bench.machine.files, job.paths) == {}


def test_a_record_is_read_as_it_was_written(bench: JobBench) -> None:
    job = bench.command("true")
    job.release()
    written = {
        1: Measured(NOW, CarbonMetricsData(co2_kg=1.0, energy_kwh=2.0, duration_s=3.0, region="FRA")),
        3: Measured(NOW, None, "no sensor"),
    }
    write_carbon(bench.machine.files, job.paths, written)
    assert read_carbon(bench.machine.files, job.paths) == written


@pytest.mark.parametrize("value", ["much", -1, float("nan"), float("inf"), None])
def test_a_value_that_is_no_measurement_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        metrics_of({"co2_kg": value, "energy_kwh": 1, "duration_s": 1})


# Without anything to measure with


def test_without_the_extra_nothing_is_planned_unless_there_is_another_tracker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carbon_plan, "find_spec", lambda name: None)
    assert carbon_plan.carbon_plan(CarbonSettings()) is None
    own = carbon_plan.carbon_plan(CarbonSettings(tracker="my_lab:Meter", every_s=3.0))
    assert own is not None
    assert own._replace(beside="") == CarbonPlan(every_s=3.0, tracker="my_lab:Meter")
    check = checks._energy()
    assert check.verdict is checks.CheckResult.OK
    assert "tenuto[carbon]" in check.found


def test_with_the_extra_jobs_are_measured_unless_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carbon_plan, "find_spec", lambda name: object())
    assert carbon_plan.carbon_plan(CarbonSettings(country="FRA")) == CarbonPlan(country="FRA")
    assert carbon_plan.carbon_plan(CarbonSettings(enabled=False)) is None
    assert "carbon.enabled" in checks._energy().found


# The real one


@pytest.mark.slow
def test_codecarbon_charges_a_process_for_its_work(require: Callable[[str], None]) -> None:
    require("codecarbon")
    script = """
import json, os, time
from tenuto.launchers.carbon.tracker import codecarbon_tracker
tracker = codecarbon_tracker(os.getppid(), "FRA")
samples = []
for _ in range(2):
    time.sleep(0.3)
    samples.append(tracker.sample())
print(json.dumps(samples))
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            sum(range(100_000))
        assert process.stdout is not None
        first, second = map(metrics_of, json.loads(process.stdout.read()))
    assert first.region == "FRA"
    assert 0.25 < first.duration_s < second.duration_s < 60
    assert 0 < first.energy_kwh < second.energy_kwh < 0.1
    assert 0 < first.co2_kg < 0.1 * first.energy_kwh  # the electricity of France is nearly free of it


@pytest.mark.slow
def test_codecarbon_measures_a_job_offline(
    task: Callable[..., ReadyJob], bench: JobBench, measured: Any, require: Callable[[str], None]
) -> None:
    require("codecarbon")
    assert f"{codecarbon_tracker.__module__}:{codecarbon_tracker.__name__}" == CODECARBON
    job = task(UNTIL_MEASURED, carbon=measured("prompt_codecarbon", every_s=0.3, country="FRA"))
    asyncio.run(finished(SpawnLauncher(), job))
    assert job.marker().result == 7, Path(job.paths.err).read_text()
    (found,) = read_carbon(bench.machine.files, job.paths).values()
    assert found.problem is None
    assert found.metrics is not None
    assert found.metrics.region == "FRA"


def test_no_runner_and_no_job_loads_codecarbon(
    task: Callable[..., ReadyJob], ended: Callable[..., Marker], module: Callable[[str], ModuleType]
) -> None:
    body = "return [name for name in sys.modules if name.startswith(('codecarbon', 'pandas'))]"
    assert ended(task(body, carbon=CarbonPlan())).result == []
    assert "codecarbon" not in sys.modules
