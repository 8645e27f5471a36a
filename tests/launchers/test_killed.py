"""A runner or a payload is killed, at any step: nothing is lost, nothing runs on (F02, F03)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.protocols import Launcher, Process
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.contracts.launchers import finished, locked, started
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.derive import Action
from tenuto.workspace.inotify import DirectoryWatches, watch_directories
from tenuto.workspace.job_directory import read_launch, settle, take_lock
from tenuto.workspace.ports import DESCENDANTS_BYTE

TaskBuilder = Callable[..., ReadyJob]
Until = Callable[..., Any]
Run = Callable[..., Any]
Exited = Callable[..., bool]
Pids = Callable[..., Coroutine[Any, Any, list[int]]]
Alive = Callable[[int], bool]


def test_f03_a_killed_payload_gives_a_failure_and_its_tree_ends(
    task: TaskBuilder, launcher: Launcher, run: Run, pids: Pids, alive: Alive
) -> None:
    body = """
    import subprocess
    child = subprocess.Popen(["sleep", "1000000"])
    print(os.getpid()); print(child.pid)
    time.sleep(1000000)
    """
    job = task(body)

    async def scenario() -> None:
        process = await started(launcher, job)
        payload, child = await pids(job, 2)
        os.kill(payload, signal.SIGKILL)
        await process.wait()
        assert not alive(child)

    run(scenario())
    marker = job.marker()
    assert (marker.reason, marker.signal) == (JobFailureStatus.FAILED, signal.SIGKILL)
    assert marker.message == "was ended by SIGKILL"
    assert marker.flags == ("leftovers",)
    assert not locked(job)


def test_f02_a_killed_runner_takes_its_payload_along(
    task: TaskBuilder, launcher: Launcher, run: Run, until: Until, pids: Pids, alive: Alive
) -> None:
    job = task("print(os.getpid()); time.sleep(1000000)")

    async def scenario() -> None:
        process = await started(launcher, job)
        (payload,) = await pids(job)
        process.kill()
        await process.wait()
        await asyncio.to_thread(until, lambda: not alive(payload), "the end of the payload")

    run(scenario())
    assert not job.has_marker()
    until(lambda: not locked(job), "the fall of the locks")
    derived = job.derived()
    assert (derived.reason, derived.action) == (JobFailureStatus.LOST, Action.START)


def test_a_runner_whose_directory_is_deleted_ends_and_leaves_the_next_attempt_alone(
    task: TaskBuilder, launcher: Launcher, run: Run, pids: Pids, alive: Alive
) -> None:
    """It ran on beside the next attempt, and wrote its marker over that one's."""
    job = task("print(os.getpid()); time.sleep(1000000)")

    async def scenario() -> None:
        process = await started(launcher, job)
        (payload,) = await pids(job)
        shutil.rmtree(job.paths.directory)
        job.open_attempt()
        await process.wait()
        assert not alive(payload)

    run(scenario())
    assert not job.has_marker()
    assert job.launch.attempt == 1
    job.release()


def test_a_runner_waits_for_another_of_its_job_whose_directory_was_deleted(
    bench: JobBench, task: TaskBuilder, launcher: Launcher, run: Run, until: Until, pids: Pids, tmp_path: Path
) -> None:
    """Started before the older one has noticed, both ran at once; the second payload looks for the first."""
    older = tmp_path / "older"
    job = task(
        f"""
        print(os.getppid()); print(os.getpid())
        try:
            stat = Path("/proc", Path({str(older)!r}).read_text(), "stat").read_text()
        except OSError:
            print(0)
        else:
            print(int(stat.rpartition(")")[2].split()[0] not in "ZX"))
        time.sleep(1000000)
        """
    )

    async def scenario() -> None:
        first = await started(launcher, job)
        runner, payload, _ = await pids(job, 3)
        with standing_still(runner):  # it notices nothing
            older.write_text(str(payload))
            shutil.rmtree(job.paths.directory)
            job.open_attempt()
            with contextlib.closing(watched(bench.layout.root)) as turns:
                second = await started(launcher, job)
                await asyncio.to_thread(
                    until, lambda: refused(turns) or printed(job), "a runner without its turn"
                )
            assert not printed(job), "the second payload began beside the first"
        assert (await pids(job, 3))[2] == 0, "the second payload began beside the first"
        await first.wait()
        second.signal_stop()
        await second.wait()

    run(scenario())
    assert job.marker().reason is JobFailureStatus.CANCELLED


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Stops a process, and lets it go on whatever happens."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def watched(workspace: str) -> DirectoryWatches:
    found = watch_directories()
    assert found is not None
    assert found.add(workspace)
    return found


def refused(turns: DirectoryWatches) -> bool:
    """True if a runner asked for a turn in vain, and closed the file of the turns again."""
    return any(change.name == ".turns" for change in turns.read())


def printed(job: ReadyJob) -> str:
    return Path(job.paths.out).read_text()


def test_f02_what_a_killed_runner_left_is_swept_before_the_next_attempt(
    bench: JobBench, launcher: Launcher, run: Run, task: TaskBuilder, pids: Pids, alive: Alive
) -> None:
    """One child keeps the second byte; another, started with all descriptors closed, has only the stamp."""
    body = """
    import subprocess
    keeps = subprocess.Popen(["sleep", "1000000"], close_fds=False, start_new_session=True)
    closes = subprocess.Popen(["sleep", "1000000"], close_fds=True, start_new_session=True)
    print(keeps.pid); print(closes.pid)
    time.sleep(1000000)
    """
    job = task(body)

    async def scenario() -> None:
        process = await started(launcher, job)
        left = await pids(job, 2)
        process.kill()
        await process.wait()
        assert all(map(alive, left))
        assert job.derived().action is Action.SWEEP
        lock = take_lock(bench.machine, job.paths)
        assert lock is not None
        assert settle(bench.machine, job.paths, lock).derived.action is Action.SWEEP
        assert await launcher.sweep(job.paths, read_launch(bench.machine.files, job.paths)) == ()
        assert not any(map(alive, left))
        assert settle(bench.machine, job.paths, lock).derived.action is Action.START
        lock.close()

    run(scenario())


LEFT_BARE = {
    "to the logs": "env -i sleep 1000000",
    "to the logs, in a session of its own": "env -i setsid sleep 1000000",
    "elsewhere, in the directory of the job": "env -i sleep 1000000 >/dev/null 2>&1",
}


@pytest.mark.parametrize("left", LEFT_BARE)
def test_a_program_without_stamp_and_lock_is_swept_after_its_runner_was_killed(
    bench: JobBench, launcher: Launcher, run: Run, task: TaskBuilder, pids: Pids, alive: Alive, left: str
) -> None:
    """A program that was given another environment ran on beside the next attempt."""
    job = task(f"""
    import subprocess
    child = subprocess.Popen(["sh", "-c", "exec {LEFT_BARE[left]}"], env={{"PATH": os.environ["PATH"]}})
    print(child.pid)
    time.sleep(1000000)
    """)

    async def scenario() -> None:
        process = await started(launcher, job)
        (child,) = await pids(job)
        process.kill()
        await process.wait()
        assert alive(child)
        assert await launcher.sweep(job.paths, read_launch(bench.machine.files, job.paths)) == ()
        assert not alive(child)

    run(scenario())


def test_a_person_who_reads_the_logs_of_a_lost_job_is_not_swept(
    bench: JobBench, launcher: Launcher, run: Run, task: TaskBuilder, pids: Pids
) -> None:
    job = task("print(os.getpid()); time.sleep(1000000)")

    async def scenario() -> None:
        process = await started(launcher, job)
        await pids(job)
        process.kill()
        await process.wait()

    run(scenario())
    with open(job.paths.out, "rb") as log:
        reader = subprocess.Popen(["sleep", "1000000"], cwd=job.paths.directory, stdout=log)
    try:
        run(launcher.sweep(job.paths, read_launch(bench.machine.files, job.paths)))
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.wait()


def test_a_sweep_of_nothing_is_quick(bench: JobBench, launcher: Launcher, run: Run) -> None:
    job = bench.command("true")
    run(finished(launcher, job))
    assert run(launcher.sweep(job.paths, job.launch)) == ()


def test_a_sweep_waits_for_a_lock_that_is_in_a_message_to_a_dead_process(
    bench: JobBench, launcher: Launcher, run: Run
) -> None:
    job = bench.command("true")
    run(finished(launcher, job))
    lock = bench.machine.locks.try_lock(job.paths.lock, DESCENDANTS_BYTE)
    assert lock is not None
    sender, receiver = socket.socketpair()
    with sender, receiver:
        socket.send_fds(sender, [b"job"], [lock.fileno()])
        lock.close()

        async def scenario() -> None:
            sweep = asyncio.create_task(launcher.sweep(job.paths, job.launch))
            done, _ = await asyncio.wait([sweep], timeout=0.2)
            assert not done
            receiver.close()
            assert await sweep == ()

        run(scenario())
    assert not locked(job)


STEPS = [
    "write_pid",  # no pid record, the scheduler is not told
    "os.close",  # of the ready pipe: the scheduler was told
    "fork_quietly",  # prepared, no payload
    "Supervisor",  # the payload runs
    "judge",  # the payload ended
    "finish",  # everything is known but not written
    "preserve",
]


@pytest.mark.parametrize("step", STEPS)
def test_f02_a_runner_killed_at_any_step_leaves_a_readable_directory(
    bench: JobBench, launcher: Launcher, run: Run, until: Until, step: str, tmp_path: Path, exited: Exited
) -> None:
    """The runner kills itself when it comes to the step; the next attempt then runs to its end."""
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    (stubs / "sitecustomize.py").write_text(SUICIDE)
    job = bench.command("sh", "-c", "echo ran >> ledger")
    params = dict(os.environ)
    os.environ.update({"PYTHONPATH": str(stubs), "DIE_AT": step})

    async def scenario() -> None:
        process = await plain_start(launcher, job)
        confirmed = await process.confirmed()
        assert confirmed is (step != "write_pid")
        job.release()
        await process.wait()
        assert exited(process, -signal.SIGKILL)
        process.close()

    try:
        run(scenario())
    finally:
        os.environ.clear()
        os.environ.update(params)
    assert not job.has_marker()
    run(launcher.sweep(job.paths, job.launch))
    until(lambda: not locked(job), "the fall of the locks")
    derived = job.derived()
    assert (derived.reason, derived.action) == (JobFailureStatus.LOST, Action.START)
    assert derived.payload_may_have_run is (step != "write_pid")
    launcher.close()  # its parent is struck, so that every runner would be
    job.open_attempt()
    run(finished(launcher, job))
    assert job.marker().attempt == 2


SUICIDE = """
import builtins, os, sys

def die(*args, **kwargs):
    os.kill(os.getpid(), 9)

step = os.environ.pop("DIE_AT", None)
if step:
    real_import = builtins.__import__
    def watching(name, globals=None, locals=None, fromlist=(), level=0):
        module = real_import(name, globals, locals, fromlist, level)
        attempt = sys.modules.get("tenuto.launchers.runner.attempt")
        if name == "tenuto.launchers.runner.attempt" and hasattr(attempt, "run"):
            builtins.__import__ = real_import
            if step.startswith("os."):
                fake = type(os)("os")
                fake.__dict__.update(os.__dict__)
                setattr(fake, step[3:], die)
                attempt.os = fake
            else:
                start = sys.modules["tenuto.launchers.runner.payload_start"]
                setattr(attempt if hasattr(attempt, step) else start, step, die)
        return module
    builtins.__import__ = watching
"""


async def plain_start(launcher: Launcher, job: ReadyJob) -> Process:
    """Start with `site`, which the runner of a command otherwise does without."""
    spawn = os.posix_spawn

    def with_site(path: str, argv: list[str], *args: Any, **kwargs: Any) -> int:
        return spawn(path, [a for a in argv if a not in ("-I", "-S")], *args, **kwargs)

    os.posix_spawn = with_site  # type: ignore[assignment]
    try:
        return await launcher.start(job.order)
    finally:
        os.posix_spawn = spawn
