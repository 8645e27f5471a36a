"""A runner that a cluster starts: claim, beats, exit codes, and what its cluster does to it."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tenuto import Task
from tenuto.errors import LaunchRefused
from tenuto.launchers.cluster.allocation import AllocationJob, AllocationOrder
from tenuto.launchers.instructions import Limits
from tenuto.launchers.manifest import Header, ManifestUnreadable, Order, encode_manifest, read_order
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner import claimed
from tenuto.launchers.runner.runner_protocol import BARE, ENTRY, PLAIN, STALE, UNMARKED
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.contracts.launchers import ENDLESS, FAILS_WITH_3, SUCCEEDS
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.attempt_files import read_pid, request_stop
from tenuto.workspace.claims import Claim, Claimer, claim, claimer, is_claimed
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import StopRecord

Until = Callable[..., Any]


class One(Task):
    def execute(self) -> int:
        return 1


PATIENT_ENTRY = """
import sys
del sys.argv[0]
entry = sys.argv[0]
source, start = open(entry).read().rsplit("\\nstart(", 1)
patience = "from tenuto.launchers.runner import supervisor; supervisor._SIGNALS_APART_S = 60.0"
names = {"__name__": "__main__", "__file__": entry}
exec(compile(f"{source}\\n{patience}\\nstart({start}", entry, "exec"), names)
"""
"""Begins a runner that waits a minute, and not two seconds, for a signal that its payload got first."""


@pytest.fixture
def bench(tmp_path: Path, machine: Machine) -> JobBench:
    return JobBench(str(tmp_path / "a work space's"), machine, launcher="far", external=True)


@pytest.fixture
def begin(tmp_path: Path, bench: JobBench) -> Any:
    """Starts a runner as a cluster would; all are ended with the test."""
    begun: list[subprocess.Popen[str]] = []

    def begin(
        *jobs: ReadyJob,
        index: int = 0,
        time_s: str = "-",
        beat_s: float = 30.0,
        reuse_s: float = 0.0,
        entry: tuple[str, ...] = (*PLAIN, ENTRY),
        variables: Mapping[str, str] | None = None,
    ) -> Any:
        manifest = tmp_path / f"submission-{len(begun)}" / "manifest"
        manifest.parent.mkdir()
        signals = tmp_path / "signals"
        signals.touch()
        orders = [Order(job.paths.directory, job.paths.script_name, job.launch.nonce) for job in jobs]
        header = Header(beat_s, str(signals), ("FAR_JOB", "FAR_TASK"), reuse_s)
        manifest.write_bytes(encode_manifest(header, orders))
        command = [sys.executable, *entry, "--claim", sys.executable]
        command += [str(manifest), str(index), time_s]
        environment = {**os.environ, "FAR_JOB": "17", "FAR_TASK": str(index), **(variables or {})}
        runner = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        begun.append(runner)
        return runner

    yield begin
    for runner in begun:
        if runner.poll() is None:
            runner.kill()
        runner.communicate()


def ended(runner: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = runner.communicate(timeout=60)
    return runner.returncode, said


def running(until: Until, bench: JobBench, job: ReadyJob) -> None:
    until(lambda: read_pid(bench.machine.files, job.paths, 1), "the pid record")


# The manifest


def test_each_runner_finds_its_own_line(machine: Machine, tmp_path: Path) -> None:
    orders = [Order(f"/ws/é {n}" * n, "Task", "f" * 32) for n in range(1, 30)]
    path = tmp_path / "manifest"
    path.write_bytes(encode_manifest(Header(2.5, "/signals", ("A",), 1.5), orders))
    for index, order in enumerate(orders):
        assert read_order(machine.files, str(path), index) == (
            Header(2.5, "/signals", ("A",), 1.5, 29),
            order,
        )
    with pytest.raises(ManifestUnreadable):
        read_order(machine.files, str(path), len(orders))
    header = json.loads(path.read_bytes().partition(b"\n")[0])
    assert path.stat().st_size == header["first"] + len(orders) * header["width"]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]\n", b'{"first": 1, "width": 0, "beat_s": 1}', b"\xff\n"]
)
def test_a_manifest_that_is_none_is_refused(machine: Machine, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "manifest"
    path.write_bytes(content)
    with pytest.raises(ManifestUnreadable):
        read_order(machine.files, str(path), 0)


# Running


def test_a_claimed_runner_runs_its_job_and_says_so(bench: JobBench, begin: Any, tmp_path: Path) -> None:
    other, job = bench.command(*SUCCEEDS), bench.command(*SUCCEEDS)
    assert ended(begin(other, job, index=1)) == (0, "")
    assert job.marker().reason is None
    assert not other.has_marker()
    made = claimer(bench.machine, job.paths, job.launch.nonce)
    assert isinstance(made, Claim)
    assert (made.by, made.job) == (Claimer.RUNNER, "17_1")
    assert (tmp_path / "signals").read_text() == f"{job.launch.nonce}+\n{job.launch.nonce}-\n"


@pytest.mark.parametrize(
    ("command", "shown"),
    [(FAILS_WITH_3, 3), (("sh", "-c", "exit 75"), 1), (("sh", "-c", "kill -KILL $$"), 1)],
)
def test_the_exit_code_of_a_failure_is_the_jobs_or_one(
    bench: JobBench, begin: Any, command: tuple[str, ...], shown: int
) -> None:
    job = bench.command(*command)
    assert ended(begin(job))[0] == shown
    assert job.marker().reason is JobFailureStatus.FAILED


def test_a_runner_whose_order_another_job_runs_has_not_failed(bench: JobBench, begin: Any) -> None:
    job = bench.command("sh", "-c", "echo run >> runs")
    assert claim(bench.machine, job.paths, job.launch.nonce, Claimer.RUNNER, "17_9")
    assert ended(begin(job)) == (0, "")
    assert not job.has_marker()
    assert not Path(job.paths.directory, "runs").exists()


def test_of_two_runners_of_one_attempt_one_begins(bench: JobBench, begin: Any) -> None:
    job = bench.command("sh", "-c", "echo run >> runs; sleep 0.5")
    runners = [begin(job), begin(job)]
    ends = [ended(runner) for runner in runners]
    assert sorted(code for code, _ in ends) == [0, STALE]
    assert "another runner has made the claim" in "".join(said for _, said in ends)
    assert Path(job.paths.directory, "runs").read_text() == "run\n"


def test_a_runner_of_a_revoked_attempt_touches_nothing(bench: JobBench, begin: Any) -> None:
    job = bench.command(*SUCCEEDS)
    claim(bench.machine, job.paths, job.launch.nonce, Claimer.SCHEDULER)
    code, said = ended(begin(job))
    assert code == STALE
    assert "given the attempt up" in said
    assert not job.has_marker()
    assert read_pid(bench.machine.files, job.paths, 1) is None


def test_a_runner_whose_attempt_was_given_up_and_followed_leaves_at_once(bench: JobBench, begin: Any) -> None:
    """A cluster may start it much later; it would hold its allocation for a minute."""
    job = bench.command(*SUCCEEDS)
    claim(bench.machine, job.paths, job.launch.nonce, Claimer.SCHEDULER)
    following = job.launch._replace(attempt=2, nonce="f" * 32)
    bench.machine.files.replace(job.paths.launch, following.encode(), durable=False)
    code, said = ended(begin(job))
    assert (code, "given the attempt up" in said) == (STALE, True)


def test_a_runner_waits_for_a_disk_that_shows_its_attempt_late(
    bench: JobBench, begin: Any, until: Until
) -> None:
    job = bench.command(*SUCCEEDS)
    late = bench.machine.files.read(job.paths.launch, 1 << 16)
    os.unlink(job.paths.launch)
    runner = begin(job)
    with pytest.raises(subprocess.TimeoutExpired):
        runner.wait(0.5)
    assert not is_claimed(bench.machine, job.paths, job.launch.nonce)
    bench.machine.files.replace(job.paths.launch, late, durable=False)
    assert ended(runner)[0] == 0


def test_a_runner_waits_for_the_lock_that_a_scheduler_has_for_a_moment(
    bench: JobBench, begin: Any, until: Until
) -> None:
    job = bench.command(*SUCCEEDS)
    lock = bench.machine.locks.try_lock(job.paths.lock)
    assert lock is not None
    runner = begin(job)
    until(lambda: is_claimed(bench.machine, job.paths, job.launch.nonce), "the claim")
    lock.close()
    assert ended(runner)[0] == 0


def test_a_runner_that_was_given_up_while_it_stood_still_leaves_the_marker_alone(
    bench: JobBench, begin: Any, until: Until
) -> None:
    """A scheduler saw no beat for as long as the fence takes, and marked the attempt: no other follows it."""
    job = bench.command("sh", "-c", "echo run >> runs")
    lock = bench.machine.locks.try_lock(job.paths.lock)
    assert lock is not None
    runner = begin(job)
    until(lambda: is_claimed(bench.machine, job.paths, job.launch.nonce), "the claim")
    now = bench.machine.clock.now()
    lost = Marker(1, job.launch.nonce, JobFailureStatus.LOST, "NODE_FAIL", endtime=now)
    bench.machine.files.replace(job.paths.failed, lost.encode(), durable=False)
    lock.close()
    assert ended(runner)[0] == STALE
    assert job.marker().message == "NODE_FAIL"
    assert not Path(job.paths.directory, "runs").exists()


# The interpreter of a task

SHOWS_INTERPRETER = """
    own, runner = (Path(f"/proc/{pid}/cmdline").read_bytes() for pid in ("self", os.getppid()))
    assert runner.split(b"\\0").count(b"--claim") == 1
    print("forked" if own == runner else "fresh", sys.flags.safe_path, sys.flags.no_site, sys.argv[1:])
"""


def out_of(job: ReadyJob) -> str:
    return Path(job.paths.out).read_text()


def test_a_task_is_forked_from_the_interpreter_of_its_runner(task: Any, begin: Any) -> None:
    job = task(SHOWS_INTERPRETER)
    assert ended(begin(job)) == (0, "")
    assert out_of(job) == "forked True 0 []\n"


@pytest.mark.parametrize("why", ["bare", "variable", "thread", "file"])
@pytest.mark.slow
def test_a_task_has_a_fresh_interpreter_where_a_fork_is_not_as_good(
    task: Any, begin: Any, tmp_path: Path, why: str
) -> None:
    """A runner without packages, a variable read at the start, and what the environment itself loads."""
    site = tmp_path / "site"
    site.mkdir()
    thread = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    file = "kept = open(__file__)\n"
    (site / "sitecustomize.py").write_text({"thread": thread, "file": file}.get(why, ""))
    job = task(SHOWS_INTERPRETER, environment={"PYTHONHASHSEED": "7"} if why == "variable" else {})
    flags = BARE if why == "bare" else PLAIN
    assert ended(begin(job, entry=(*flags, ENTRY), variables={"PYTHONPATH": str(site)})) == (0, "")
    assert out_of(job) == "fresh True 0 []\n"


def test_a_runner_does_not_import_what_hides_the_standard_library(
    task: Any, begin: Any, tmp_path: Path
) -> None:
    for name in ("resource", "select", "datetime"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the module that was asked for')\n")
    job = task("print('done')")
    assert ended(begin(job, variables={"PYTHONPATH": str(tmp_path)})) == (0, "")
    assert out_of(job) == "done\n"


@pytest.mark.parametrize(
    ("body", "shown", "reason"),
    [
        ("sys.exit(3)", 3, JobFailureStatus.FAILED),
        ("raise ValueError('no')", 1, JobFailureStatus.FAILED),
        ("os.kill(os.getpid(), 9)", 1, JobFailureStatus.FAILED),
        ("return 7", 0, None),
    ],
)
def test_the_end_of_a_forked_task_is_told(
    task: Any, begin: Any, body: str, shown: int, reason: JobFailureStatus | None
) -> None:
    job = task(body)
    assert ended(begin(job))[0] == shown
    assert job.marker().reason is reason
    assert job.marker().signal == (9 if "kill" in body else None)


def test_a_forked_task_ends_with_its_runner(task: Any, begin: Any, until: Until) -> None:
    job = task("Path('pid').write_text(f'{os.getpid()} ')\ntime.sleep(1000)")
    runner = begin(job)
    file = Path(job.paths.directory, "pid")
    payload = int(until(lambda: file.exists() and file.read_text().endswith(" ") and file.read_text()))
    runner.kill()
    until(lambda: not Path(f"/proc/{payload}").exists(), "the payload's end")
    assert not job.has_marker()


@pytest.mark.parametrize("is_full", [True, False])
def test_a_forked_task_has_a_full_end_if_it_says_so(task: Any, begin: Any, is_full: bool) -> None:
    before = f"""
        import atexit

        class Kept:
            def __del__(self, write=os.write):
                write(1, b"taken apart\\n")

        class Ends(Task):
            __full_end__ = {is_full}
    """
    body = """
        sys.modules[__name__].kept = Kept()
        atexit.register(print, "exits")
        print("runs")
    """
    job = task(body, before=before, base="Ends")
    assert ended(begin(job)) == (0, "")
    assert out_of(job).splitlines() == ["runs", "exits", *(["taken apart"] if is_full else [])]


# Beats


def test_a_runner_beats_until_it_is_given_up_and_then_ends_without_a_word(
    bench: JobBench, begin: Any, until: Until
) -> None:
    job = bench.command(*ENDLESS)
    runner = begin(job, beat_s=0.1)
    running(until, bench, job)
    for _ in range(3):
        seen = bench.machine.files.modified(job.paths.pid)
        until(lambda seen=seen: bench.machine.files.modified(job.paths.pid) != seen, "a beat")
    given_up = job.launch._replace(attempt=2, nonce="e" * 32)
    bench.machine.files.replace(job.paths.launch, given_up.encode(), durable=False)
    assert ended(runner)[0] == STALE
    assert not job.has_marker()


def test_a_runner_whose_beats_nobody_can_see_ends_its_payload(
    bench: JobBench, begin: Any, until: Until
) -> None:
    job = bench.command(*ENDLESS)
    runner = begin(job, beat_s=0.3)
    running(until, bench, job)
    os.unlink(job.paths.pid)
    assert ended(runner)[0] == STALE
    assert not job.has_marker()


# What a cluster does


def test_a_stop_needs_no_cluster(bench: JobBench, begin: Any, until: Until) -> None:
    job = bench.command(*ENDLESS)
    runner = begin(job)
    running(until, bench, job)
    stop = StopRecord(1, JobFailureStatus.CANCELLED, bench.machine.clock.now(), "no longer wanted")
    request_stop(bench.machine.files, job.paths, stop)
    assert ended(runner)[0] == 1
    assert (job.marker().reason, job.marker().message) == (JobFailureStatus.CANCELLED, "no longer wanted")


def test_what_a_cluster_ends_without_a_reason_has_no_marker(
    bench: JobBench, begin: Any, until: Until
) -> None:
    job = bench.command(*ENDLESS)
    runner = begin(job)
    running(until, bench, job)
    runner.send_signal(signal.SIGTERM)
    assert ended(runner)[0] == UNMARKED
    assert not job.has_marker()


HEARS_FIRST = "Path('pid').write_text(f'{os.getpid()}\\n'); any(time.sleep(0.05) for _ in range(20_000))"
"""In short sleeps: Python hears of a signal that comes right before a sleep only after it."""


@pytest.fixture
def hears_first(bench: JobBench, begin: Any, until: Until, tmp_path: Path) -> Any:
    """Has a cluster signal a payload, and its runner once that payload has ended; returns the runner."""

    def hears_first(job: ReadyJob) -> subprocess.Popen[str]:
        patient = tmp_path / "patient.py"
        patient.write_text(PATIENT_ENTRY)
        runner: subprocess.Popen[str] = begin(job, entry=(*PLAIN, str(patient), ENTRY))
        file = Path(job.paths.directory, "pid")
        payload = int(until(lambda: file.exists() and file.read_text().endswith("\n") and file.read_text()))
        os.kill(payload, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{payload}").exists(), "the runner to see its end")
        runner.send_signal(signal.SIGTERM)
        return runner

    return hears_first


def test_a_payload_that_hears_of_the_end_before_its_runner_has_no_marker_either(
    bench: JobBench, hears_first: Any
) -> None:
    job = bench.command("sh", "-c", "echo $$ > pid; exec sleep 1000")
    assert ended(hears_first(job))[0] == UNMARKED
    assert not job.has_marker()


@pytest.mark.parametrize(
    "body",
    [
        f"import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); {HEARS_FIRST}",
        f"try: {HEARS_FIRST}\nexcept BaseException: sys.exit(0)",
    ],
)
def test_a_task_that_ends_well_when_its_cluster_ends_it_is_not_done(
    task: Any, hears_first: Any, body: str
) -> None:
    job = task(body)
    assert ended(hears_first(job))[0] == UNMARKED
    assert not job.has_marker()


def test_a_command_that_ends_well_after_a_request_to_stop_is_cancelled(
    bench: JobBench, begin: Any, until: Until
) -> None:
    """The cluster signals it before the runner has read the request."""
    job = bench.command("sh", "-c", "trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done")
    runner = begin(job)
    file = Path(job.paths.directory, "pid")
    payload = int(until(lambda: file.exists() and file.read_text().endswith("\n") and file.read_text()))
    runner.send_signal(signal.SIGSTOP)
    stop = StopRecord(1, JobFailureStatus.CANCELLED, bench.machine.clock.now(), "no longer wanted")
    request_stop(bench.machine.files, job.paths, stop)
    os.kill(payload, signal.SIGTERM)
    until(lambda: " Z " in Path(f"/proc/{payload}/stat").read_text(), "the end of the payload")
    runner.send_signal(signal.SIGCONT)
    assert ended(runner)[0] == 1
    assert (job.marker().reason, job.marker().message) == (JobFailureStatus.CANCELLED, "no longer wanted")


def test_a_warning_of_the_cluster_ends_a_job_as_timed_out(bench: JobBench, begin: Any, until: Until) -> None:
    job = bench.command(*ENDLESS)
    runner = begin(job)
    running(until, bench, job)
    runner.send_signal(signal.SIGUSR1)
    assert ended(runner)[0] == 1
    assert job.marker().reason is JobFailureStatus.TIMEOUT


def test_a_resumable_task_that_is_warned_has_no_time_left(task: Any, begin: Any, until: Until) -> None:
    body = """
        assert self.remaining_time() is None
        print("begun", flush=True)
        while self.remaining_time() is None:
            time.sleep(0.01)
        print(self.remaining_time(), flush=True)
        raise GracefulTimeout("saved")
    """
    job = task(body, base="ResumableTask")
    runner = begin(job)
    out = Path(job.paths.out)
    until(lambda: out.exists() and "begun" in out.read_text(), "the task")
    runner.send_signal(signal.SIGUSR1)
    assert ended(runner)[0] == 1
    assert job.marker().reason is JobFailureStatus.TIMEOUT
    assert out.read_text().splitlines() == ["begun", "0.0"]


def test_a_job_gets_the_time_that_it_asked_for(bench: JobBench, begin: Any) -> None:
    job = bench.command(*ENDLESS, limits=Limits(walltime_s=1000.0, grace_s=1.0))
    assert ended(begin(job, time_s="2"))[0] == 1
    assert job.marker().reason is JobFailureStatus.TIMEOUT
    limit_s = re.fullmatch(r"it ran longer than ([\d.]+) s", job.marker().message or "")
    assert limit_s is not None
    assert float(limit_s[1]) == 2, "its cluster was asked for more"


# Further orders of its submission


def begun_in(signals: Path, jobs: list[ReadyJob]) -> list[int]:
    """The positions of the jobs that runners began, in that order."""
    nonces = [line[:-1] for line in signals.read_text().splitlines() if line.endswith("+")]
    return [[job.launch.nonce for job in jobs].index(nonce) for nonce in nonces]


def taker(bench: JobBench, job: ReadyJob) -> str | None:
    """The cluster's id of the process that made the claim."""
    made = claimer(bench.machine, job.paths, job.launch.nonce)
    return made.job if isinstance(made, Claim) else None


def test_a_runner_whose_job_is_done_at_once_takes_further_orders_from_the_end(
    bench: JobBench, begin: Any, tmp_path: Path
) -> None:
    jobs = [bench.command(*SUCCEEDS) for _ in range(5)]
    assert ended(begin(*jobs, index=1, reuse_s=60.0)) == (0, "")
    assert begun_in(tmp_path / "signals", jobs) == [1, 4, 3, 2], (
        "the cluster has started those before its own"
    )
    assert [job.has_marker() for job in jobs] == [False, True, True, True, True]
    assert {taker(bench, job) for job in jobs[1:]} == {"17_1"}
    locks = bench.machine.locks
    assert not any(locks.is_locked(job.paths.lock) for job in jobs)


def test_a_runner_takes_no_further_order_unless_it_is_told_to(bench: JobBench, begin: Any) -> None:
    jobs = [bench.command(*SUCCEEDS) for _ in range(3)]
    assert ended(begin(*jobs)) == (0, "")
    assert [job.has_marker() for job in jobs] == [True, False, False]


def test_a_further_order_would_have_nearly_all_its_time(bench: JobBench, begin: Any) -> None:
    jobs = [bench.command("sleep", "0.3"), bench.command(*SUCCEEDS)]
    assert ended(begin(*jobs, reuse_s=60.0, time_s="25")) == (0, ""), "0.25 s is a hundredth"
    assert [job.has_marker() for job in jobs] == [True, False]


def test_orders_that_others_have_are_passed_over(bench: JobBench, begin: Any, tmp_path: Path) -> None:
    jobs = [bench.command(*SUCCEEDS) for _ in range(6)]
    claim(bench.machine, jobs[5].paths, jobs[5].launch.nonce, Claimer.RUNNER, "17_5")
    claim(bench.machine, jobs[4].paths, jobs[4].launch.nonce, Claimer.SCHEDULER)
    other = jobs[3].launch._replace(nonce="0" * 32)  # the next attempt, which is another submission's
    bench.machine.files.replace(jobs[3].paths.launch, other.encode(), durable=False)
    assert ended(begin(*jobs, reuse_s=60.0)) == (0, "")
    assert begun_in(tmp_path / "signals", jobs) == [0, 2, 1]
    assert not is_claimed(bench.machine, jobs[3].paths, jobs[3].launch.nonce)


def test_a_runner_takes_nothing_after_a_job_that_failed(bench: JobBench, begin: Any, tmp_path: Path) -> None:
    jobs = [bench.command(*SUCCEEDS), bench.command(*SUCCEEDS), bench.command(*FAILS_WITH_3)]
    assert ended(begin(*jobs, reuse_s=60.0))[0] == 3
    assert begun_in(tmp_path / "signals", jobs) == [0, 2]


def test_each_order_runs_once_with_many_runners(bench: JobBench, begin: Any, tmp_path: Path) -> None:
    jobs = [bench.command("sh", "-c", "echo run >> runs") for _ in range(12)]
    runners = [begin(*jobs, index=index, reuse_s=60.0) for index in range(3)]
    codes = [ended(runner)[0] for runner in runners]
    assert set(codes) <= {0, STALE}
    assert [Path(job.paths.directory, "runs").read_text() for job in jobs] == ["run\n"] * 12


def test_payloads_of_further_tasks_share_nothing_but_tenuto(task: Any, begin: Any) -> None:
    body = """
        import random
        seen = "left_by_one" in sys.modules or "LEFT_BY_ONE" in os.environ
        sys.modules["left_by_one"], os.environ["LEFT_BY_ONE"] = sys, "set"
        print(os.getppid(), seen, random.random(), sys.argv[1:])
    """
    jobs = [task(f"{body}        # {n}") for n in range(4)]
    assert ended(begin(*jobs, reuse_s=60.0)) == (0, "")
    lines = [out_of(job).split() for job in jobs]
    assert len({runner for runner, *_ in lines}) == 1
    assert len({number for _, _, number, _ in lines}) == 4, "each has random numbers of its own"
    assert {(seen, arguments) for _, seen, _, arguments in lines} == {("False", "[]")}


def test_a_signal_for_an_earlier_job_does_not_end_a_later_one(
    bench: JobBench, begin: Any, until: Until
) -> None:
    first, second = bench.command(*SUCCEEDS), bench.command(*ENDLESS)
    runner = begin(first, second, reuse_s=60.0)
    running(until, bench, second)
    ask_to_stop(bench, first, "too late")
    runner.send_signal(signal.SIGTERM)
    until(lambda: not has_pending(runner.pid, signal.SIGTERM), "the runner to take the signal")
    ask_to_stop(bench, second, "in time")
    runner.send_signal(signal.SIGTERM)
    assert ended(runner)[0] == 1
    assert (second.marker().reason, second.marker().message) == (JobFailureStatus.CANCELLED, "in time")


def test_an_end_without_a_marker_says_nothing_of_the_jobs_before_it(
    bench: JobBench, begin: Any, until: Until
) -> None:
    first, second = bench.command(*SUCCEEDS), bench.command(*ENDLESS)
    runner = begin(first, second, reuse_s=60.0)
    running(until, bench, second)
    runner.send_signal(signal.SIGTERM)
    assert ended(runner)[0] == STALE, "and not 143, which is believed"
    assert (first.has_marker(), second.has_marker()) == (True, False)


def ask_to_stop(bench: JobBench, job: ReadyJob, why: str) -> None:
    record = StopRecord(1, JobFailureStatus.CANCELLED, bench.machine.clock.now(), why)
    request_stop(bench.machine.files, job.paths, record)


def has_pending(pid: int, number: int) -> bool:
    """Whether a signal waits for a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    waiting = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in waiting)


def test_a_pilot_waits_for_a_disk_that_shows_the_parameters_late(
    bench: JobBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = bench.task(One.C())
    params, late = Path(job.paths.params), tmp_path / "late"
    params.rename(late)
    seen: list[bool] = []

    class Refuses:
        async def start(self, order: StartOrder) -> None:
            seen.append(bench.machine.files.stat(str(params)) is not None)
            raise LaunchRefused

    monkeypatch.setattr(claimed, "time", SimpleNamespace(sleep=lambda _: late.rename(params)))
    order = AllocationOrder(job.paths.directory, job.paths.script_name, job.launch.nonce, 1, None)
    launcher: Any = Refuses()
    asyncio.run(AllocationJob(bench.machine, launcher, order, None, "/dev/null").run("17", math.inf))
    assert seen == [True]
    assert job.marker().reason is JobFailureStatus.REJECTED
