"""What a launcher meets when it starts a job, and what a dead scheduler leaves (F40, F41)."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.protocols import Launcher
from tenuto.launchers.runner.runner_protocol import ENTRY, STALE
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.states import JobState
from tenuto.testing.contracts.launchers import finished, locked
from tenuto.testing.jobs import JobBench
from tenuto.workspace.job_directory import read_launch, read_pid
from tenuto.workspace.markers import Marker, read_markers

Until = Callable[..., Any]
Run = Callable[..., Any]


def test_two_schedulers_processes_do_not_share_a_lock_by_accident(
    bench: JobBench, launcher: Launcher, run: Run
) -> None:
    """A program that another thread starts while a job is being started must not keep the job's lock."""
    job = bench.command("true")
    fds = [lock.fileno() for lock in job.order.locks]
    run(finished(launcher, job))
    bystander = subprocess.Popen(["sleep", "1000000"], close_fds=False)
    try:
        assert not locked(job)
        assert all(fd > 2 for fd in fds)
    finally:
        bystander.kill()
        bystander.wait()


def test_out_of_descriptors_is_an_error_that_may_pass(bench: JobBench, launcher: Launcher, run: Run) -> None:
    """F41: nothing was started, nothing is left open, and the same order works later."""
    import resource

    job = bench.command("true")
    run(finished(launcher, bench.command("true")))

    async def scenario() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 10, hard))
        taken = []
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            for _ in range(2):  # no descriptor at all; one, but a pipe takes two
                with pytest.raises(OSError, match="Too many open files"):
                    await launcher.start(job.order)
                os.close(taken.pop())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in taken:
                os.close(fd)
        assert job.derived().state is JobState.SCHEDULED
        await finished(launcher, job)

    run(scenario())
    assert job.marker().reason is None


def test_a_scheduler_that_dies_before_it_was_told_harms_nothing(bench: JobBench, until: Until) -> None:
    """Nobody listens any more when the runner says that it is up."""
    code = f"""
import asyncio, os, signal
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.testing.jobs import JobBench
from tenuto.workspace.machine import this_machine
bench = JobBench({bench.layout.root!r}, this_machine())
job = bench.command("true")
asyncio.run(SpawnLauncher(bench.machine).start(job.order))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    paths = bench.layout.job("bench.work", "job-1")
    marker = until(lambda: read_markers(bench.machine.files, paths).done, "the marker")
    assert isinstance(marker, Marker)


def test_a_scheduler_that_dies_leaves_its_job_running(
    tmp_path: Path, bench: JobBench, launcher: Launcher, run: Run
) -> None:
    """The job outlives the process that started it, and is adopted, waited for and read by this one."""
    code = f"""
import asyncio, os, signal
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.testing.contracts.launchers import started
from tenuto.testing.jobs import JobBench
from tenuto.workspace.machine import this_machine
bench = JobBench({bench.layout.root!r}, this_machine())
job = bench.command("sh", "-c", "while [ ! -e go ]; do sleep 0.01; done; exit 6")
asyncio.run(started(SpawnLauncher(bench.machine), job))
os.kill(os.getpid(), signal.SIGKILL)
"""
    dead = subprocess.run([sys.executable, "-c", code], check=False)
    assert dead.returncode == -signal.SIGKILL
    paths = bench.layout.job("bench.work", "job-1")
    launch = read_launch(bench.machine.files, paths)
    assert launch is not None

    async def scenario() -> None:
        adopted = launcher.find(paths, launch, read_pid(bench.machine.files, paths, launch.attempt))
        assert adopted is not None
        waiting = asyncio.ensure_future(adopted.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        (Path(paths.directory) / "go").touch()
        await waiting
        assert adopted.exit_code is None
        adopted.close()

    run(scenario())
    marker = read_markers(bench.machine.files, paths).failed
    assert isinstance(marker, Marker)
    assert marker.exit_code == 6


def test_the_runner_itself_is_light() -> None:
    heavy = (
        "asyncio dataclasses subprocess logging inspect socket multiprocessing tenuto.tasks pathlib".split()
    )
    code = f"""
import os, runpy, sys
os._exit = sys.exit
sys.argv = ["runner", "/nonexistent", "script", "nonce", "python", "3", "4", "5"]
base = set(sys.modules)
try:
    runpy.run_path({ENTRY!r}, run_name="__main__")
except SystemExit as leaving:
    assert leaving.code == {STALE}, leaving.code
print(*(set(sys.modules) - base))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "tenuto.launchers.runner.attempt" in loaded
    assert [name for name in heavy if name in loaded] == []


def test_the_process_of_a_python_task_is_light(
    bench: JobBench, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pays for nothing that only a supervisor, or a task that asks for it, needs."""
    heavy = """
        signal datetime threading struct fcntl select resource importlib
        tenuto.lifecycle tenuto.workspace.layout tenuto.workspace.ports tenuto.workspace.records
        tenuto.launchers.payload.payload tenuto.launchers.payload.limits
        tenuto.launchers.runner.runner_protocol
        tenuto.launchers.instructions tenuto.launchers.outputs tenuto.launchers.results
    """.split()
    source = (
        "import sys\nfrom tenuto import Task\nclass Work(Task):\n def execute(self): return [*sys.modules]\n"
    )
    (tmp_path / "light_work.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    work: Any = importlib.import_module("light_work").Work
    job = bench.task(work.C(), import_path=sys.path)
    launcher = SpawnLauncher(bench.machine)
    run(finished(launcher, job))
    launcher.close()
    loaded = job.marker().result
    assert isinstance(loaded, list), (job.marker(), Path(job.paths.err).read_text())
    bare = subprocess.check_output([sys.executable, "-P", "-c", "import sys; print(*sys.modules)"], text=True)
    assert "tenuto.launchers.payload.python_task" in loaded
    assert [name for name in heavy if name in {*loaded} - {*bare.split()}] == []


def test_a_launcher_that_nobody_closes_lets_its_parent_go(bench: JobBench, run: Run, until: Until) -> None:
    launcher: SpawnLauncher | None = SpawnLauncher(bench.machine)
    assert launcher is not None
    run(finished(launcher, bench.command("true")))
    (parent,) = launcher._parents.values()
    launcher = None
    gc.collect()
    until(parent.reap, "the end of the parent")


def test_an_order_that_is_too_long_for_a_message_is_started_all_the_same(
    bench: JobBench, launcher: Launcher, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(finished(launcher, bench.command("true")))
    for number in range(3):
        monkeypatch.setenv(f"LONG_{number}", "x" * 40_000)
    job = bench.command("sh", "-c", 'test "${#LONG_2}" = 40000')
    run(finished(launcher, job))
    assert job.marker().reason is None


@pytest.mark.parametrize(
    "waits", ["tenuto.launchers.warm.parent_process", "tenuto.launchers.warm.spare_runner"]
)
def test_a_runner_has_loaded_what_it_runs_before_its_order_comes(waits: str) -> None:
    """Else each job pays for it: a third more page faults, seen once."""
    script = f"""
import sys, {waits}
before = set(sys.modules)
import tenuto.launchers.runner.attempt
print(*sorted(set(sys.modules) - before))
"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True).split() == []
