"""Owns what a runner tells of its processes, and that a job which is over in a moment pays nothing for it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tenuto.launchers.instructions import Limits
from tenuto.launchers.protocols import Launcher
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
