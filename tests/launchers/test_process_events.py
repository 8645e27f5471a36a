"""Owns what a runner tells of its processes, and that a job which is over in a moment pays nothing for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tenuto.jobs.metrics import MetricsReader
from tenuto.launchers.instructions import Limits
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.runner.process_events import USAGE_EVERY_S, UsageSampler
from tenuto.lifecycle.events import Event, JobProgressEvent, ProcessStartedEvent, ProcessStateEvent
from tenuto.testing.jobs import OWNER, TASK_ID, JobBench, ReadyJob
from tenuto.workspace.job_directory import read_pid
from tenuto.workspace.journal import EventReader
from tenuto.workspace.markers import Marker

TaskBuilder = Callable[..., ReadyJob]
Ended = Callable[[ReadyJob], Marker]

UNTIL_TOLD = """
from glob import glob
events = "../../../.events/jobs/*/*.jsonl"
end = time.monotonic() + 30
while not any("ProcessStartedEvent" in Path(file).read_text() for file in glob(events)):
    assert time.monotonic() < end, "nobody tells of the process"
    time.sleep(0.01)
"""


@pytest.fixture
def told(bench: JobBench) -> Callable[[ReadyJob], list[Event]]:
    def told(job: ReadyJob) -> list[Event]:
        reader = EventReader(bench.machine.files, bench.layout.job_journal(TASK_ID, job.job_id))
        return [entry.event for entry in reader.read()]

    return told


def test_a_runner_tells_that_it_started_and_how_its_payload_ended(
    task: TaskBuilder, ended: Ended, told: Any, bench: JobBench
) -> None:
    job = task(UNTIL_TOLD + "sys.exit(3)")
    marker = ended(job)
    started, over = told(job)
    pid = read_pid(bench.machine.files, job.paths, 1)
    assert pid is not None
    assert isinstance(started, ProcessStartedEvent)
    assert (started.attempt, started.launcher) == (1, "bench")
    assert (started.host, started.pid) == (pid.identity.host, pid.identity.pid)
    assert abs(started.timestamp - pid.started) < timedelta(seconds=1)
    assert isinstance(over, ProcessStateEvent)
    assert (over.state, over.exit_code, over.signal) == ("ended", 3, None)
    assert marker.exit_code == 3


def test_the_signal_that_ended_a_payload_is_told(task: TaskBuilder, ended: Ended, told: Any) -> None:
    job = task(UNTIL_TOLD + "os.kill(os.getpid(), 9)")
    ended(job)
    over = told(job)[-1]
    assert (over.state, over.exit_code, over.signal) == ("ended", None, signal.SIGKILL)


def test_a_job_that_is_stopped_is_told_of_however_short_it_was(
    task: TaskBuilder, ended: Ended, told: Any
) -> None:
    job = task("time.sleep(600)", limits=Limits(walltime_s=0.3, grace_s=0.1))
    ended(job)
    assert [type(event) for event in told(job)] == [ProcessStartedEvent, ProcessStateEvent, ProcessStateEvent]
    assert [event.state for event in told(job)[1:]] == ["stopping", "ended"]


def test_runner_and_task_have_files_of_their_own(task: TaskBuilder, ended: Ended, told: Any) -> None:
    job = task("progress(0.25)" + UNTIL_TOLD + "progress(0.5)")
    ended(job)
    kinds = {type(event) for event in told(job)}
    assert kinds == {JobProgressEvent, ProcessStartedEvent, ProcessStateEvent}
    assert {event.owner for event in told(job)} == {OWNER}
    assert [event.progress for event in told(job) if isinstance(event, JobProgressEvent)] == [0.25, 0.5]


def test_a_job_that_is_over_in_a_moment_leaves_no_events_and_loads_nothing_for_them(
    task: TaskBuilder, ended: Ended, bench: JobBench
) -> None:
    """Its marker says it all; a machine may be too busy for a moment, and then the marker says so."""
    marker = ended(task("pass"))
    assert marker.starttime is not None
    assert marker.endtime is not None
    is_short = marker.endtime - marker.starttime < timedelta(seconds=1)
    assert not (is_short and os.path.exists(f"{bench.layout.root}/.events"))


def test_a_full_disk_takes_the_events_and_not_the_job(
    task: TaskBuilder, ended: Ended, bench: JobBench
) -> None:
    os.makedirs(bench.layout.root, exist_ok=True)
    with open(f"{bench.layout.root}/.events", "w") as in_the_way:
        in_the_way.write("no directory")
    marker = ended(task("time.sleep(1.3); return 7"))
    assert (marker.reason, marker.result, marker.flags) == (None, 7, ())


def test_what_a_supervisor_loads_for_a_short_job_has_no_events(launcher: Launcher) -> None:
    import subprocess
    import sys

    code = (
        "import sys; import tenuto.launchers.runner.attempt; "
        "print([name for name in sys.modules if name.endswith(('.events', '.journal', '.process_events'))])"
    )
    bare = (
        "import sys; from importlib.machinery import PathFinder\n"
        "spec = PathFinder.find_spec('tenuto', sys.path)\n"
        "package = type(sys)('tenuto'); package.__path__ = list(spec.submodule_search_locations)\n"
        "sys.modules['tenuto'] = package\n"
    )
    assert subprocess.check_output([sys.executable, "-c", bare + code], text=True) == "[]\n"


def test_a_deleted_workspace_does_not_rise_again(
    task: TaskBuilder,
    launcher: Launcher,
    run: Callable[..., Any],
    printed: Callable[..., Any],
    bench: JobBench,
) -> None:
    async def deleted() -> None:
        job = task("print('ready', flush=True); time.sleep(600)")
        process = await launcher.start(job.order)
        job.release()
        await printed(job)
        shutil.rmtree(bench.layout.root)
        await process.wait()
        process.close()

    run(deleted())
    assert not os.path.exists(bench.layout.root)


UNTIL_MEASURED = """
end = time.monotonic() + 60
while not Path(".tenuto/usage.jsonl").exists():
    assert time.monotonic() < end, "nobody measures what is used"
    sum(range(10_000))
"""


def test_a_runner_keeps_the_use_of_a_job_and_its_host_over_time(
    task: TaskBuilder, ended: Ended, bench: JobBench
) -> None:
    job = task("taken = bytearray(200_000_000)" + UNTIL_MEASURED)
    ended(job)
    used = MetricsReader(bench.machine.files).of_job(job.paths)
    assert set(used) == {"system/cpu", "system/memory", "system/host_memory"}
    (cpu,), (memory,), (host,) = used["system/cpu"], used["system/memory"], used["system/host_memory"]
    assert cpu.attempt == 1
    assert cpu.time is not None
    assert abs(cpu.time - time.time()) < 60
    assert 0.01 < cpu.value < os.cpu_count()
    assert memory.value > 200e6
    assert 0 < host.value < 1


def test_the_use_of_a_job_is_the_sum_of_its_processes(task: TaskBuilder, bench: JobBench) -> None:
    job = task("pass")
    files = bench.machine.files
    files.make_directory(job.paths.private)
    payload = SimpleNamespace(
        machine=bench.machine,
        paths=job.paths,
        launch=SimpleNamespace(attempt=2),
        instructions=SimpleNamespace(environment={}),
    )
    began = time.monotonic()
    sampler = UsageSampler(payload, began, lambda pid: False)  # type: ignore[arg-type]
    sampler.look(began + 1)
    burning = (
        "import time\ntaken = bytearray(100_000_000)\n"
        "while time.process_time() < 0.5: pass\nprint(1, flush=True)\ninput()"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", burning], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline()
    sampler.look(began + 2)
    for child in children:
        child.communicate(b"\n")
    used = MetricsReader(files).of_job(job.paths)
    first, second = (point.value for point in used["system/memory"])
    assert second - first > 200e6
    assert used["system/cpu"][1].value >= 0.9  # a second, by the clock that it was given
    assert [point.attempt for point in used["system/host_cpu"]] == [2]
    assert 0 < used["system/host_cpu"][0].value <= 1
    assert sampler.due == began + 2 + USAGE_EVERY_S
    sampler.look(began + 86_400)
    assert sampler.due > began + 86_400 + 10 * USAGE_EVERY_S
