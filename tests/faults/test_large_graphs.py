"""Very many jobs (F43): a deep chain and a wide fan, without recursion, quadratic cost or descriptors.

The launcher ends each job on the spot, so that what is measured is the scheduler. Where there are too many
jobs for a real disk the machine is a fake one; descriptors are counted on a real one.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proof.descriptors import open_files
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job
from tenuto.testing.host import FakeHost
from tenuto.workspace.machine import this_machine
from tests.parts.instant import InstantLauncher
from tests.parts.simulation import Inline, SimulatedLoop, VirtualLoop

from .builders import Bench

S = JobState
FEW_DESCRIPTORS = 256


class Stage:
    """A bench whose jobs end at once, on a real machine or, without a directory, on a fake one."""

    def __init__(self, root: Path | None = None) -> None:
        self._loop: VirtualLoop | None = None
        if root is not None:
            machine, options = this_machine(), {}
        else:
            host = FakeHost()
            self._loop = VirtualLoop(host.clock)
            machine = host.machine()
            options = {
                "loop": SimulatedLoop(self._loop),
                "completions": Inline(),
                "notifications": Inline(),
            }
        self.launcher = InstantLauncher(machine, slots=8)
        self.bench = Bench(root or Path("/ws"), machine=machine, launcher=self.launcher, **options)

    def __enter__(self) -> Bench:
        return self.bench

    def __exit__(self, *error: object) -> None:
        self.bench.scheduler.close()
        if self._loop is not None:
            self._loop.close()


def seconds(action: Callable[[], object]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


def run_chain(length: int, root: Path | None = None) -> list[str]:
    """Runs jobs of which each needs the one before; the order in which they started."""
    with (stage := Stage(root)) as bench:
        previous: list[Job] = []
        for number in range(length):
            previous = [bench.command(f"job-{number}", "true", needs=previous)]
        bench.wait(500)
        assert {job.state for job in bench.scheduler.jobs.values()} == {S.DONE}
    return stage.launcher.started


def run_fan(width: int, root: Path | None = None) -> list[str]:
    """Runs one job, then all those that need it, then one that needs them all."""
    with (stage := Stage(root)) as bench:
        first = bench.command("first", "true")
        middle = [bench.command(f"job-{number}", "true", needs=[first]) for number in range(width)]
        bench.command("last", "true", needs=middle)
        bench.wait(500)
        assert {job.state for job in bench.scheduler.jobs.values()} == {S.DONE}
    return stage.launcher.started


def fail_chain(length: int) -> tuple[int, str]:
    """The first of a chain cannot be started, so none of it can: how many failed, and why the last did."""
    with Stage() as bench:
        job = bench.command("job-0", "x" * 100_000)
        for number in range(1, length):
            job = bench.command(f"job-{number}", "true", needs=[job])
        bench.wait(500)
        return bench.scheduler.counts(bench.owner).failed, job.state_record.message or ""


EACH = pytest.mark.parametrize("run", [run_chain, run_fan, fail_chain])


def calls(action: Callable[[], object]) -> int:
    """How many functions an action calls; the same each time, however busy the machine is."""
    count = 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


@EACH
def test_the_calls_for_a_job_do_not_grow_with_their_number(run: Callable[[int], object]) -> None:
    """Four times as many jobs take about four times as many calls; quadratic cost would make it sixteen."""
    run(10)
    assert calls(lambda: run(200)) < 5 * calls(lambda: run(50))


@pytest.mark.slow
@pytest.mark.prove("it measures time; calls are counted in the test before")
@EACH
def test_the_cost_of_a_job_does_not_grow_with_their_number(run: Callable[[int], object]) -> None:
    """Four times as many jobs take about four times as long; quadratic cost would make it sixteen."""
    run(50)
    small = min(seconds(lambda: run(300)) for _ in range(3))
    large = min(seconds(lambda: run(1200)) for _ in range(2))
    assert large < 9 * small


DEEP = 3 * sys.getrecursionlimit()
LARGE = pytest.mark.prove("very many jobs take a minute; a chain deeper than any recursion is tried always")


@pytest.mark.parametrize("length", [DEEP, pytest.param(10_000, marks=[LARGE, pytest.mark.slow])])
def test_the_jobs_of_a_chain_run_in_its_order(length: int) -> None:
    assert run_chain(length) == [f"job-{number}" for number in range(length)]


@pytest.mark.parametrize("length", [DEEP, pytest.param(10_000, marks=[LARGE, pytest.mark.slow])])
def test_the_first_of_a_long_chain_fails_all_of_it(length: int) -> None:
    failed, why = fail_chain(length)
    assert failed == length
    assert "job-0" in why


@pytest.mark.slow
@pytest.mark.watchdog(900)
@pytest.mark.parametrize("width", [5_000, pytest.param(100_000, marks=LARGE)])
def test_a_fan_of_very_many_jobs(width: int) -> None:
    order = run_fan(width)
    assert order[0] == "first"
    assert order[-1] == "last"
    assert len(set(order)) == len(order) == width + 2


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """A limit so low that a descriptor for each job, or each waiting job, would be noticed."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(open_files())  # by tests before this one
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + FEW_DESCRIPTORS, before[1]))
    yield len(open_files())
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("run", [run_chain, run_fan])
def test_waiting_and_finished_jobs_hold_no_descriptors(
    few_descriptors: int, tmp_path: Path, run: Callable[[int, Path], object]
) -> None:
    """On a real disk, with real locks."""
    run(2 * FEW_DESCRIPTORS, tmp_path / "ws")
    assert len(open_files()) < few_descriptors + FEW_DESCRIPTORS // 2  # other threads open some too


@pytest.mark.slow
def test_real_jobs_get_by_with_few_descriptors(tmp_path: Path) -> None:
    """More jobs than descriptors, with real runners; a shortage is waited out."""
    script = (
        "import resource, sys; from pathlib import Path; from builders import Bench\n"
        "from tenuto.scheduler import shell; shell.BACK_OFF_S = 0.05\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "with Bench(Path(sys.argv[1]), slots=32) as bench:\n"
        "    jobs = [bench.command(f'job-{number}', '/bin/true') for number in range(60)]\n"
        "    bench.wait(100)\n"
        "    print({job.state.name for job in jobs}, {job.attempt for job in jobs})\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "ws")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.stdout.startswith("{'DONE'}"), said
