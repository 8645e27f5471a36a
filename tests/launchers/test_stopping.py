"""Jobs that are stopped, and those that do not want to end (F24, F25)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.instructions import Limits
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.contracts.launchers import started, stopped
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.markers import Marker

Ended = Callable[[ReadyJob], Marker]
TaskBuilder = Callable[..., ReadyJob]
Until = Callable[..., Any]
Run = Callable[..., Any]
Printed = Callable[[ReadyJob], Coroutine[Any, Any, str]]
Pids = Callable[..., Coroutine[Any, Any, list[int]]]
Alive = Callable[[int], bool]


@pytest.fixture
def stop(launcher: Launcher, run: Run, printed: Printed) -> Ended:
    """Stops a job once it has printed a line, and returns its marker."""

    def stop(job: ReadyJob) -> Marker:
        async def scenario() -> None:
            process = await started(launcher, job)
            await printed(job)
            await stopped(job, process, message="enough of it")

        run(scenario())
        return job.marker()

    return stop


def test_f24_a_task_that_swallows_everything_is_killed_after_its_grace(
    task: TaskBuilder, stop: Ended
) -> None:
    body = """
    print('ready')
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass
    """
    job = task(body, limits=Limits(grace_s=0.3))
    marker = stop(job)
    assert (marker.reason, marker.signal) == (JobFailureStatus.CANCELLED, signal.SIGKILL)
    assert marker.message == "enough of it; it did not stop when asked and was killed"


def test_a_stopped_task_may_clean_up(task: TaskBuilder, stop: Ended) -> None:
    body = """
    try:
        print('ready')
        time.sleep(1000)
    except Exception:
        print('swallowed')
    finally:
        print('cleaned up')
    """
    job = task(body)
    marker = stop(job)
    assert marker.reason is JobFailureStatus.CANCELLED
    assert Path(job.paths.out).read_text() == "ready\ncleaned up\n"


def test_a_task_that_returns_because_it_was_asked_to_stop_is_cancelled(
    task: TaskBuilder, stop: Ended
) -> None:
    body = """
    from tenuto.errors import TaskCancelled
    try:
        print('ready')
        time.sleep(1000)
    except TaskCancelled:
        return 'finished all the same'
    """
    job = task(body)
    marker = stop(job)
    assert (marker.reason, marker.result) == (JobFailureStatus.CANCELLED, None)


HANDLER = "import signal; signal.signal(signal.SIGTERM, lambda *_: {}); print('ready', flush=True); "
SLEEP = "print('ready', flush=True); time.sleep(1000)"
WAIT = "while 'stopped' not in globals(): time.sleep(0.01)"
POLITE = {
    "catches and exits": f"try: {SLEEP}\nexcept BaseException: sys.exit(0)",
    "catches and returns": f"try: {SLEEP}\nexcept BaseException: return 'half'",
    "handles and exits": HANDLER.format("sys.exit(0)") + "time.sleep(1000)",
    "handles and returns": HANDLER.format("globals().update(stopped=True)") + f"\n{WAIT}\nreturn 'half'",
    "handles and leaves": HANDLER.format("os._exit(0)") + "time.sleep(1000)",
    "ends in a coroutine": "import asyncio\nprint('ready', flush=True)\n"
    "try: asyncio.run(asyncio.sleep(1000))\nexcept BaseException: raise SystemExit",
}
"""How a task may end well though it was told to stop."""
TRAPS = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done"


@pytest.mark.parametrize("base", ["Task", "ResumableTask"])
@pytest.mark.parametrize("ending", POLITE)
def test_a_task_that_was_told_to_stop_is_cancelled_however_politely_it_ends(
    task: TaskBuilder, stop: Ended, ending: str, base: str
) -> None:
    marker = stop(task(POLITE[ending], base=base))
    assert (marker.reason, marker.result) == (JobFailureStatus.CANCELLED, None)
    assert (marker.message or "").startswith("enough of it")


@pytest.mark.parametrize("base", ["Task", "ResumableTask"])
@pytest.mark.parametrize("ending", ["handles and exits", "handles and returns", "handles and leaves"])
def test_a_task_out_of_time_has_timed_out_however_politely_it_ends(
    task: TaskBuilder, ended: Ended, ending: str, base: str
) -> None:
    marker = ended(task(POLITE[ending], base=base, limits=Limits(walltime_s=2.0)))
    assert (marker.reason, marker.result) == (JobFailureStatus.TIMEOUT, None)


def test_a_resumable_task_that_returns_within_its_grace_has_timed_out(
    task: TaskBuilder, ended: Ended
) -> None:
    """Also if the task sees the end of its time before the runner does: both look at the same clock."""
    body = "while self.remaining_time() > 0: pass\nreturn 'half'"
    marker = ended(task(body, base="ResumableTask", limits=Limits(walltime_s=2.0)))
    assert (marker.reason, marker.result) == (JobFailureStatus.TIMEOUT, None)
    assert (marker.message or "").startswith("it ran longer than 2 s")


def test_a_command_that_exits_well_when_told_to_stop_is_cancelled(bench: JobBench, stop: Ended) -> None:
    assert stop(bench.command("sh", "-c", TRAPS)).reason is JobFailureStatus.CANCELLED


def test_a_task_that_had_returned_when_it_was_told_to_stop_is_done(task: TaskBuilder, stop: Ended) -> None:
    """The report is written; what is left is the end of the process, which a request does not disturb."""
    body = """
    import atexit
    atexit.register(lambda: (print('ready', flush=True), time.sleep(1.0)))
    return 'whole'
    """
    marker = stop(task(body))
    assert (marker.reason, marker.result) == (None, "whole")


@pytest.mark.parametrize("leaves", ["sys.exit(0)", "os._exit(0)"])
def test_a_module_that_ends_the_process_of_a_job_fails_it(
    task: TaskBuilder, ended: Ended, leaves: str
) -> None:
    marker = ended(task("return 1", before=f'if "pytest" not in sys.modules: {leaves}'))
    assert marker.reason is JobFailureStatus.FAILED
    assert "before execute()" in (marker.message or "")


# The signal may come while the task itself is loading what the handler needs; or there is no descriptor left.
HINDRANCES = (
    'sys.modules["tenuto.workspace.attempt_files"] = None',
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
)


@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_a_task_is_stopped_though_the_reason_cannot_be_read(
    task: TaskBuilder, stop: Ended, hindrance: str
) -> None:
    body = f"""
    {hindrance}
    try:
        print('ready')
        time.sleep(1000)
    except Exception:
        print('went on')
    finally:
        print('cleaned up')
    """
    job = task(body)
    marker = stop(job)
    assert (marker.reason, marker.message) == (JobFailureStatus.CANCELLED, "enough of it")
    assert Path(job.paths.out).read_text() == "ready\ncleaned up\n"


def test_a_suspended_job_can_be_stopped(task: TaskBuilder, launcher: Launcher, run: Run, pids: Pids) -> None:
    job = task("print(os.getpid()); time.sleep(1000)")

    async def scenario() -> None:
        process = await started(launcher, job)
        (payload,) = await pids(job)
        os.kill(payload, signal.SIGSTOP)
        await stopped(job, process)

    run(scenario())
    assert "killed" not in (job.marker().message or "")


def test_a_stop_before_the_task_began_is_not_lost(task: TaskBuilder, launcher: Launcher, run: Run) -> None:
    # Python looks for signals between two steps: one that comes just as a call begins waits for its end.
    job = task("while True: time.sleep(0.01)")

    async def scenario() -> None:
        process = await launcher.start(job.order)
        process.signal_stop()  # its interpreter has hardly started
        await process.confirmed()
        job.release()
        await process.wait()
        process.close()

    run(scenario())
    assert job.marker().reason is JobFailureStatus.CANCELLED
    assert job.marker().message == "its runner was sent SIGTERM"


CATCHES_ALL = """
if os.environ.get("_TENUTO_ATTEMPT"):
    try:
        Path("imports").touch()
        while True: time.sleep(0.01)
    except BaseException:
        pass
"""


def test_a_module_that_catches_its_stop_does_not_keep_the_task_going(
    task: TaskBuilder, bench: JobBench, run: Run, until: Until
) -> None:
    job = task("print('executed')", before=CATCHES_ALL)
    launcher = SpawnLauncher(bench.machine)

    async def scenario() -> None:
        process = await started(launcher, job)
        await asyncio.to_thread(until, Path(job.paths.directory, "imports").exists, "the import")
        await stopped(job, process)

    run(scenario())
    launcher.close()
    assert job.marker().reason is JobFailureStatus.CANCELLED
    assert Path(job.paths.out).read_text() == ""


def test_a_hangup_does_not_end_a_job(bench: JobBench, launcher: Launcher, run: Run) -> None:
    job = bench.command("sh", "-c", "while [ ! -e go ]; do sleep 0.01; done")

    async def scenario() -> None:
        process = await started(launcher, job)
        os.kill(process.describe()["pid"], signal.SIGHUP)
        (Path(job.paths.directory) / "go").touch()
        await process.wait()

    run(scenario())
    assert job.marker().reason is None


def test_user_signals_reach_the_payload(
    task: TaskBuilder, launcher: Launcher, run: Run, printed: Printed
) -> None:
    body = """
    import signal
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))
    print('ready')
    while True:  # Python hears of a signal that comes right before a system call only after that call
        time.sleep(0.05)
    """
    job = task(body)

    async def scenario() -> None:
        process = await started(launcher, job)
        await printed(job)
        os.kill(process.describe()["pid"], signal.SIGUSR1)
        await process.wait()

    run(scenario())
    assert job.marker().exit_code == 5


DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3, 100):
            try: os.close(fd)
            except OSError: pass
        Path("daemon").write_text(f"{os.getpid()}\\n")
        time.sleep(1000000)
    os._exit(0)
os.wait()
while not Path("daemon").exists() or not Path("daemon").read_text(): time.sleep(0.001)
"""


def test_f25_a_daemon_is_swept_though_it_hides_well(
    task: TaskBuilder, ended: Ended, pids: Pids, alive: Alive, run: Run
) -> None:
    job = task(DAEMON + "return 1")
    marker = ended(job)
    assert (marker.reason, marker.result, marker.flags) == (None, 1, ("leftovers",))
    (daemon,) = run(pids(job, 1, "daemon"))
    assert not alive(daemon)


def test_f25_a_command_in_the_background_is_swept(
    bench: JobBench, ended: Ended, pids: Pids, alive: Alive, run: Run
) -> None:
    job = bench.command("sh", "-c", "setsid sleep 1000000 & echo $! > daemon")
    assert ended(job).flags == ("leftovers",)
    (daemon,) = run(pids(job, 1, "daemon"))
    assert not alive(daemon)


def test_a_helper_that_ends_by_itself_is_no_leftover(bench: JobBench, ended: Ended) -> None:
    job = bench.command("sh", "-c", "(sleep 0.05; echo late) &")
    assert ended(job).flags == ()
    assert Path(job.paths.out).read_text() == "late\n"


def test_a_stopped_command_takes_its_children_along(
    bench: JobBench, launcher: Launcher, run: Run, pids: Pids, alive: Alive
) -> None:
    job = bench.command("sh", "-c", "setsid sleep 1000000 & echo $! > child; sleep 1000000")

    async def scenario() -> None:
        process = await started(launcher, job)
        (child,) = await pids(job, 1, "child")
        await stopped(job, process)
        assert not alive(child)

    run(scenario())
    assert job.marker().flags == ()
