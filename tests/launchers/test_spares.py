"""Spares: interpreters that import ahead of time what cannot be forked, each for one job."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tenuto import experiment
from tenuto.launchers.instructions import Limits
from tenuto.launchers.warm.launcher import Spare, WarmLauncher
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.contracts.launchers import finished, started, stopped
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import DESCENDANTS_BYTE, Machine

TaskBuilder = Callable[..., ReadyJob]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
Until = Callable[..., Any]
Alive = Callable[[int], bool]
Ended = Callable[[ReadyJob], Marker]

THREAD = """
import threading
if 'pytest' not in sys.modules:
    threading.Thread(target=time.sleep, args=(1e9,), daemon=True).start()
"""
"""What a module does on import that must not be forked."""


@pytest.fixture
def launcher(machine: Machine) -> Iterator[WarmLauncher]:
    launcher = WarmLauncher(machine, slots=2)
    yield launcher
    launcher.close()


@pytest.fixture
def ready(launcher: WarmLauncher, until: Until) -> Callable[[], Spare]:
    """Waits for the launcher's only spare to have imported everything."""

    def ready() -> Spare:
        (spare,) = launcher._spares._spares

        def said() -> bool:
            spare.hear()
            return spare.size is not None or not spare.usable

        until(said, "the word of the spare")
        return spare

    return ready


@pytest.fixture
def again(ended: Ended) -> Callable[[ReadyJob], Marker]:
    """Runs another attempt at a job."""

    def again(job: ReadyJob) -> Marker:
        job.open_attempt()
        return ended(job)

    return again


# Used once, by the next job.


def test_the_next_job_starts_from_a_spare_that_has_imported_its_module(
    task: TaskBuilder, ended: Ended, again: Ended, ready: Callable[[], Spare], launcher: WarmLauncher
) -> None:
    job = task("return [os.getpid(), os.getppid(), os.getcwd()]", before=THREAD, behind=1)
    first = ended(job)
    assert "spare" not in first.provenance
    spare = ready()
    second = again(job)
    assert second.provenance["spare"] == "ready"
    assert "starts threads" in second.provenance["fresh"]
    assert second.record["code"] == first.record["code"]
    assert second.result[1:] == [spare.pid, job.paths.directory]
    third = again(job)
    assert second.result[0] != third.result[0]
    assert "from a spare" in launcher.remarks()[0]


def test_a_job_that_comes_early_takes_a_spare_that_still_imports(
    task: TaskBuilder, ended: Ended, tmp_path: Path, launcher: WarmLauncher, run: Run, until: Until
) -> None:
    gate = f"""
go = Path({str(tmp_path / "go")!r})
while "--spare-payload" in Path("/proc/self/cmdline").read_text() and not go.exists():
    time.sleep(0.01)
"""
    job = task("return os.environ['_TENUTO_ATTEMPT']", before=THREAD + gate, behind=1)
    ended(job)
    (spare,) = launcher._spares._spares
    until(lambda: spare.hear() or spare.is_up, "the interpreter")
    job.open_attempt()

    async def scenario() -> None:
        process = await started(launcher, job)
        locks = job.machine.locks
        until(lambda: not locks.holders(job.paths.lock, DESCENDANTS_BYTE), "the order to be under way")
        (tmp_path / "go").touch()
        await process.wait()
        process.close()

    run(scenario())
    marker = job.marker()
    assert marker.provenance["spare"] == "late"
    assert marker.result == job.launch.nonce


def test_output_of_imports_is_in_the_log_of_the_job(
    task: TaskBuilder, ended: Ended, again: Ended, ready: Callable[[], Spare]
) -> None:
    job = task(
        "print('executed')", before=f"{THREAD}\nprint('imported')\nprint('oh', file=sys.stderr)", behind=1
    )
    ended(job)
    ready()
    again(job)
    assert Path(job.paths.out).read_text() == "imported\nexecuted\n" * 2  # both attempts
    assert Path(job.paths.err).read_text() == "oh\n" * 2


def test_there_are_no_spares_for_what_can_be_forked_or_if_no_job_waits(
    task: TaskBuilder, ended: Ended, launcher: WarmLauncher
) -> None:
    ended(task("pass", behind=5))
    assert len(launcher._spares) == 0
    ended(task("pass", before=THREAD))
    assert len(launcher._spares) == 0


def test_spares_are_never_more_than_slots_and_waiting_jobs(
    task: TaskBuilder, run: Run, launcher: WarmLauncher
) -> None:
    jobs = [task("pass", before=THREAD, behind=behind) for behind in (9, 9, 9, 1, 0)]
    counts = []

    async def scenario() -> None:
        for job in jobs:
            await finished(launcher, job)
            counts.append(len(launcher._spares))

    run(scenario())
    assert max(counts) <= 2
    for job in jobs:  # each of another module: the oldest spares made room
        assert job.marker().reason is None


def test_jobs_that_come_later_have_spares_never_more_than_slots(
    task: TaskBuilder, ended: Ended, again: Ended, ready: Callable[[], Spare], launcher: WarmLauncher
) -> None:
    job = task("pass", before=THREAD)
    launcher.expect(5)
    assert len(launcher._spares) == 0  # of which modules, no job has said
    ended(job)
    assert len(launcher._spares) == 0
    launcher.expect(1)
    launcher.expect(1)
    ready()  # there is one
    assert again(job).provenance["spare"] == "ready"
    for _ in range(4):
        launcher.expect(9)
    assert len(launcher._spares) == launcher.slots
    launcher.close()
    launcher.expect(9)
    assert len(launcher._spares) == 0


def test_a_job_that_comes_while_another_starts_has_a_spare(
    task: TaskBuilder, run: Run, launcher: WarmLauncher, tmp_path: Path, until: Until
) -> None:
    gate = f"""
Path({str(tmp_path / "importing")!r}).touch()
while 'pytest' not in sys.modules and not Path({str(tmp_path / "go")!r}).exists():
    time.sleep(0.01)
"""
    job = task("pass", before=THREAD + gate)
    (tmp_path / "importing").unlink()

    async def scenario() -> None:
        start = asyncio.ensure_future(finished(launcher, job))
        await asyncio.to_thread(until, (tmp_path / "importing").exists, "the import")
        launcher.expect(1)  # whether its modules can be forked is not known yet
        (tmp_path / "go").touch()
        await start

    run(scenario())
    assert len(launcher._spares) == 1


def test_the_surplus_ends_when_fewer_jobs_wait(
    task: TaskBuilder,
    ended: Ended,
    again: Ended,
    ready: Callable[[], Spare],
    launcher: WarmLauncher,
    alive: Alive,
    until: Until,
) -> None:
    job = task("pass", before=THREAD, behind=2)
    ended(job)
    again(job)
    spares = [spare.pid for spare in launcher._spares._spares]
    job._behind = 0
    again(job)
    assert len(launcher._spares) == 0
    until(lambda: not any(map(alive, spares)), "the end of the spares")


def test_a_file_that_a_module_keeps_open_is_written_out_at_the_end_of_the_job(
    task: TaskBuilder, ended: Ended, again: Ended, ready: Callable[[], Spare], tmp_path: Path
) -> None:
    place = str(tmp_path / "kept")
    opened = f"kept = open({place!r} + str(os.getpid()), 'w') if 'pytest' not in sys.modules else None"
    job = task("kept.write('all of it'); return kept.name", before=opened, behind=1)
    ended(job)
    ready()
    marker = again(job)
    assert marker.provenance["spare"] == "ready"
    assert Path(marker.result).read_text() == "all of it"


# The limits.


def test_spares_keep_to_the_memory_limit_of_the_launcher(
    task: TaskBuilder, run: Run, machine: Machine, until: Until
) -> None:
    launcher = WarmLauncher(machine, slots=2, memory_limit=48 << 20)
    kept = f"{THREAD}\nkept = b'x' * (64 << 20)"
    job = task("return len(kept)", before=kept, behind=2)
    run(finished(launcher, job))
    (spare,) = launcher._spares._spares

    def said() -> bool:
        spare.hear()
        return spare.size is not None

    until(said, "the word of the spare")
    for _ in range(2):
        job.open_attempt()
        run(finished(launcher, job))
        assert "spare" not in job.marker().provenance
        assert len(launcher._spares) == 0
    launcher.close()


def test_memory_that_a_spare_filled_counts_for_its_job(
    task: TaskBuilder, ended: Ended, again: Ended, ready: Callable[[], Spare]
) -> None:
    job = task(
        "more = b'x' * (150 << 20)",
        before=f"{THREAD}\nkept = b'x' * (150 << 20)",
        behind=1,
        limits=Limits(memory_bytes=256 << 20),
    )
    assert ended(job).reason is JobFailureStatus.MEMORY
    ready()
    marker = again(job)
    assert marker.provenance["spare"] == "ready"
    assert marker.reason is JobFailureStatus.MEMORY


# What is stale is thrown away.


def test_a_spare_that_imported_other_text_is_not_used(
    task: TaskBuilder, ended: Ended, again: Ended, ready: Callable[[], Spare], tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir(exist_ok=True)
    helper = tmp_path / "code" / f"helper_of_{tmp_path.name.replace('-', '_')}.py"
    helper.write_text("answer = 1\n")
    sys.path.insert(0, str(tmp_path / "code"))
    try:
        job = task(f"return {helper.stem}.answer", before=f"{THREAD}\nimport {helper.stem}", behind=1)
    finally:
        sys.path.remove(str(tmp_path / "code"))
        sys.modules.pop(helper.stem)
    os.utime(helper, (1e9, 1e9))
    assert ended(job).result == 1
    spare = ready()
    helper.write_text("answer = 22\n")
    time.sleep(0.12)  # how often the spare looks
    marker = again(job)
    assert marker.result == 22
    assert "spare" not in marker.provenance
    assert marker.provenance["fresh"]
    assert spare.usable is False


def test_a_changed_module_has_no_spare_any_more(
    task: TaskBuilder,
    ended: Ended,
    again: Ended,
    ready: Callable[[], Spare],
    tmp_path: Path,
    alive: Alive,
    until: Until,
) -> None:
    job = task("return 1", before=THREAD, behind=1)
    ended(job)
    spare = ready()
    (file,) = (tmp_path / "code").glob("code_*.py")
    # Longer, too: Python takes old byte code for that of a file of the same size and second.
    file.write_text(file.read_text().replace("return 1", "return 22"))
    assert again(job).result == 22
    until(lambda: not alive(spare.pid), "the end of the spare")


def test_variables_are_those_of_the_start_and_one_that_was_read_on_import_makes_a_spare_stale(
    task: TaskBuilder,
    ended: Ended,
    again: Ended,
    ready: Callable[[], Spare],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLOUR", "red")
    monkeypatch.setenv("SIZE", "small")
    job = task(
        "return [COLOUR, os.environ.get('COLOUR'), os.environ.get('SIZE'), os.environ.get('SHAPE')]",
        before=f"{THREAD}\nCOLOUR = os.environ.get('COLOUR')",
        behind=1,
    )
    ended(job)
    ready()
    monkeypatch.delenv("SIZE")
    monkeypatch.setenv("SHAPE", "round")
    marker = again(job)
    assert marker.provenance["spare"] == "ready"
    assert marker.result == ["red", "red", None, "round"]
    ready()
    monkeypatch.setenv("COLOUR", "blue")
    marker = again(job)
    assert "spare" not in marker.provenance
    assert marker.result == ["blue", "blue", None, "round"]


def test_a_module_that_asks_where_it_is_has_no_spare(
    task: TaskBuilder, ended: Ended, again: Ended, launcher: WarmLauncher
) -> None:
    job = task("return where == os.getcwd()", before=f"{THREAD}\nwhere = os.getcwd()", behind=1)
    assert ended(job).result is True
    assert again(job).result is True
    assert len(launcher._spares) == 0


# Deaths.


@pytest.mark.parametrize("who", ["runner", "payload"])
def test_a_spare_that_was_killed_costs_its_job_nothing(
    task: TaskBuilder,
    ended: Ended,
    again: Ended,
    ready: Callable[[], Spare],
    who: str,
    alive: Alive,
    until: Until,
) -> None:
    job = task("return os.getpid()", before=THREAD, behind=1)
    ended(job)
    spare = ready()
    (payload,) = map(int, Path(f"/proc/{spare.pid}/task/{spare.pid}/children").read_text().split())
    os.kill(spare.pid if who == "runner" else payload, signal.SIGKILL)
    until(lambda: not alive(payload), "the end of the payload")
    marker = again(job)
    assert marker.reason is None
    assert "spare" not in marker.provenance


def test_an_order_finds_a_runner_whose_payload_died_a_moment_ago(
    task: TaskBuilder, ended: Ended, again: Ended, ready: Callable[[], Spare], alive: Alive, until: Until
) -> None:
    job = task("return os.getppid()", before=THREAD, behind=1)
    ended(job)
    spare = ready()
    (payload,) = map(int, Path(f"/proc/{spare.pid}/task/{spare.pid}/children").read_text().split())
    os.kill(spare.pid, signal.SIGSTOP)
    os.kill(payload, signal.SIGKILL)
    until(lambda: not alive(payload), "the end of the payload")
    os.kill(spare.pid, signal.SIGCONT)
    marker = again(job)
    assert marker.reason is None
    assert "spare" not in marker.provenance


def test_a_job_of_a_spare_can_be_stopped_and_its_runner_killed(
    task: TaskBuilder,
    ended: Ended,
    ready: Callable[[], Spare],
    launcher: WarmLauncher,
    run: Run,
    until: Until,
    machine: Machine,
) -> None:
    job = task("if Path('wait').exists(): print('waits'); time.sleep(1e6)", before=THREAD, behind=1)
    ended(job)

    async def scenario(kill: bool) -> None:
        process = await started(launcher, job)
        waits = 2 if kill else 1  # the log has both attempts
        until(lambda: Path(job.paths.out).read_text().count("waits") == waits, "the work")
        if kill:
            process.kill()
            await process.wait()
            await launcher.sweep(job.paths, job.launch)
        else:
            await stopped(job, process)

    Path(job.paths.directory, "wait").touch()
    for kill in (False, True):
        ready()
        job.open_attempt()
        run(scenario(kill))
        if not kill:
            assert job.marker().reason is JobFailureStatus.CANCELLED
    assert not job.has_marker()
    assert job.derived().reason is JobFailureStatus.LOST
    assert not machine.locks.is_locked(job.paths.lock, 0)
    assert not machine.locks.is_locked(job.paths.lock, 1)


@pytest.mark.parametrize("how", ["closed", "killed", "killed, and a fork keeps the socket"])
def test_spares_end_with_their_launcher(
    bench: JobBench, tmp_path: Path, how: str, until: Until, alive: Alive
) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nfrom tenuto import Task\n"
        "threading.Thread(target=time.sleep, args=(1e9,), daemon=True).start()\n"
        "class Work(Task):\n    def execute(self): pass\n"
    )
    code = f"""
import asyncio, os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(tmp_path)!r})
from threaded import Work
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.testing.contracts.launchers import finished
from tenuto.testing.jobs import JobBench
from tenuto.workspace.machine import this_machine
bench = JobBench({bench.layout.root!r}, this_machine())
launcher = WarmLauncher(bench.machine, slots=2)
asyncio.run(finished(launcher, bench.task(Work.C(), import_path=sys.path, behind=1)))
(spare,) = launcher._spares._spares
children = Path(f"/proc/{{spare.pid}}/task/{{spare.pid}}/children")
while not children.read_text():
    time.sleep(0.01)
print(spare.pid, children.read_text(), flush=True)
if "fork" in {how!r} and os.fork() == 0:
    os.close(1)
    time.sleep(5)
    os._exit(0)
if {how!r} == "closed":
    launcher.close()
    while not spare.reap():
        time.sleep(0.01)
else:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    pids = list(map(int, done.stdout.split()))
    assert len(pids) == 2
    until(lambda: not any(map(alive, pids)), "the end of the spare")


# Under a scheduler.


@pytest.mark.parametrize(("submitted", "slots"), [("at once", 1), ("one by one", 2)])
def test_the_import_for_the_next_job_is_done_while_the_one_before_it_has_the_token(
    module: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    until: Until,
    submitted: str,
    slots: int,
) -> None:
    """By marks, not by time: each job holds the only unit until the next one's modules are imported."""
    monkeypatch.setenv("TENUTO_TOKENS_PATH", str(tmp_path / "tokens"))
    marks = tmp_path / "marks"
    found = module(
        f"""
import threading
def mark(what):
    with open({str(marks)!r}, "a") as stream: stream.write(f"{{what}} {{os.getpid()}}\\n")
def is_next_imported():
    text = Path({str(marks)!r}).read_text()
    return text.count("imported") >= text.count("began") + 2  # one was a parent, and found unfit to be forked
if 'pytest' not in sys.modules:
    threading.Thread(target=time.sleep, args=(1e9,), daemon=True).start()
    mark("imported")
class Train(Task):
    number: Param[int]
    def execute(self):
        mark("began")
        number = Path({str(marks)!r}).read_text().count("began")
        give_up = time.monotonic() + 60
        while number < 4 and not is_next_imported():
            assert time.monotonic() < give_up
            time.sleep(0.005)
        mark("ended")
"""
    )
    with experiment(tmp_path / "work", "overlap", launcher=WarmLauncher(slots=slots)) as xp:
        gpu = xp.token("gpu", 1)
        for number in range(4):
            gpu(1, found.Train.C(number=number)).submit()
            if submitted == "one by one":  # no job waits when another starts
                until(lambda n=number: marks.exists() and marks.read_text().count("began") > n, "the start")
    lines = [line.split() for line in marks.read_text().splitlines()]
    began = [pid for what, pid in lines if what == "began"]
    assert len(began) == 4
    for one, other in pairwise(began):
        assert lines.index(["imported", other]) < lines.index(["ended", one]), lines
