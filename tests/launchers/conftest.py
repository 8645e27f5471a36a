"""Owns what the tests of launchers share: a workspace, the local launchers, and tasks written on the spot."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tenuto.launchers.forking_launcher import DirectLauncher
from tenuto.launchers.leftovers import find_leftovers
from tenuto.launchers.protocols import Process
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.testing.contracts.launchers import finished
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.job_directory import read_pid
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import Machine
from tests.experiments.scripts import FEW
from tests.parts.spares import SpareLauncher

DEADLINE_S = 60.0

LocalLauncher = DirectLauncher | SpawnLauncher | WarmLauncher
LAUNCHERS: dict[str, type[LocalLauncher]] = {
    "direct": DirectLauncher,
    "spawn": SpawnLauncher,
    "warm": WarmLauncher,
    "spare": SpareLauncher,
}


@pytest.fixture
def machine() -> Machine:
    return this_machine()


@pytest.fixture
def bench(tmp_path: Path, machine: Machine) -> Iterator[JobBench]:
    bench = JobBench(str(tmp_path / "workspace"), machine)
    yield bench
    for job in bench.jobs:  # a test that failed half-way must not leave its job behind
        pid = read_pid(machine.files, job.paths, job.launch.attempt)
        runner = machine.processes.open(pid.identity) if pid else None
        if runner is not None:
            runner.send_signal(signal.SIGKILL)
            for left in find_leftovers(machine, job.paths, job.launch):
                left.send_signal(signal.SIGKILL)
                left.close()
            runner.close()


@pytest.fixture(params=["spawn", pytest.param("warm", marks=pytest.mark.slow)])
def launcher(request: pytest.FixtureRequest, machine: Machine) -> Iterator[LocalLauncher]:
    """Each of the launchers of this machine: what holds for one holds for the other.

    Slow is the one that imports a test's module in a parent first; its contract is part of `make check`.
    """
    launcher = LAUNCHERS[request.param](machine)
    yield launcher
    launcher.close()


@pytest.fixture
def exited(launcher: LocalLauncher) -> Callable[[Process, int], bool]:
    """Whether a runner ended with an exit code, as far as it is told: of a forked one its parent knows."""

    def exited(process: Process, expected: int) -> bool:
        return process.exit_code == expected or (process.exit_code is None and launcher.name != "direct")

    return exited


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(DEADLINE_S):
                return await coroutine

        return asyncio.run(bounded())

    return run


@pytest.fixture
def ended(
    launcher: LocalLauncher, run: Callable[..., Any], exited: Callable[..., bool]
) -> Callable[[ReadyJob], Marker]:
    """Runs a job to its end and returns its marker."""

    def ended(job: ReadyJob) -> Marker:
        process = run(finished(launcher, job))
        assert exited(process, 0), Path(job.paths.err).read_text()
        return job.marker()

    return ended


@pytest.fixture
def module(tmp_path: Path) -> Callable[[str], ModuleType]:
    """Writes a module of the user's, and imports it."""
    folder = tmp_path / "code"
    made: list[str] = []

    def module(source: str) -> ModuleType:
        folder.mkdir(exist_ok=True)
        name = f"code_{tmp_path.name.replace('-', '_')}_{len(made)}"
        made.append(name)
        file = folder / f"{name}.py"
        header = f"import os, sys, time\nfrom pathlib import Path\n{FEW}\n"
        file.write_text(header + textwrap.dedent(source))
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded
        spec.loader.exec_module(loaded)
        return loaded

    yield module
    for name in made:
        del sys.modules[name]


@pytest.fixture
def task(tmp_path: Path, module: Callable[[str], ModuleType], bench: JobBench) -> Callable[..., ReadyJob]:
    """A job whose ``execute()`` has the given lines."""

    def task(body: str, *, before: str = "", base: str = "Task", **options: Any) -> ReadyJob:
        lines = textwrap.indent(textwrap.dedent(body).strip() or "pass", " " * 8)
        source = f"{textwrap.dedent(before)}\nclass Work({base}):\n    def execute(self):\n{lines}\n"
        path = [str(tmp_path / "code"), *sys.path]
        return bench.task(module(source).Work.C(), import_path=path, **options)

    return task


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Any]:
    """Waits for a condition of the outside world, with a deadline; returns what made it true."""

    def until(condition: Callable[[], Any], what: str = "the condition") -> Any:
        give_up = time.monotonic() + DEADLINE_S / 2
        while time.monotonic() < give_up:
            if found := condition():
                return found
            time.sleep(0.005)
        pytest.fail(f"{what} did not come true")

    return until


@pytest.fixture
def printed(until: Callable[..., Any]) -> Callable[[ReadyJob], Coroutine[Any, Any, str]]:
    """Waits, without blocking the loop, until a job has printed a whole line."""

    def text(job: ReadyJob) -> str:
        file = Path(job.paths.out)
        found = file.read_text() if file.exists() else ""
        return found if found.endswith("\n") else ""

    async def printed(job: ReadyJob) -> str:
        return str(await asyncio.to_thread(until, lambda: text(job), "a printed line"))

    return printed


@pytest.fixture
def pids(until: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, list[int]]]:
    """Waits for the pids that a job writes, one a line, into a file of its directory."""

    def found(file: Path, count: int) -> list[int]:
        text = file.read_text() if file.exists() else ""
        lines = text.splitlines() if text.endswith("\n") else []
        return [int(line) for line in lines] if len(lines) == count else []

    async def pids(job: ReadyJob, count: int = 1, name: str = "work.out") -> list[int]:
        file = Path(job.paths.directory, name)
        return list(await asyncio.to_thread(until, lambda: found(file, count), "the pids"))

    return pids


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process runs; a zombie does not."""

    def alive(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False

    return alive
