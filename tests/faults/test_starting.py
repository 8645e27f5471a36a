"""Jobs that cannot be started, and what is told to whom when they are (F26, F31, F33, F40, F42)."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tenuto import CommandTask
from tenuto.errors import GraphError, LaunchRefused, UnsubmittedTask
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.scheduler.entries import JobDependency
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.listeners import Listener
from tenuto.scheduler.loop import LoopThread
from tenuto.workspace.job_directory import look
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import Machine

from .builders import TASK_ID, WAIT_S, Bench, CommandWork, eventually, failure, ledger, lines, oracle

S = JobState


# -- what cannot be executed (F40) -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        (["/nowhere/at/all"], 127),
        (["no-such-program-anywhere"], 127),
        (["/etc/passwd"], 126),
        (["/tmp"], 126),
        (["/bin/echo", "x" * (1 << 18)], 126),
    ],
    ids=["missing", "not on the path", "not executable", "a directory", "too long"],
)
def test_a_command_that_cannot_be_run_fails_with_exec(
    tmp_path: Path, command: list[str], exit_code: int
) -> None:
    with Bench(tmp_path / "ws") as bench:
        job = bench.task(CommandTask.C(command=command))
        reason, message = failure(job)
        assert reason is JobFailureStatus.FAILED
        assert message.startswith("EXEC")
        marker = read_markers(bench.machine.files, job.paths).failed
        assert isinstance(marker, Marker)
        assert marker.exit_code == exit_code


def test_without_an_interpreter_the_job_is_rejected_and_says_so_for_good(tmp_path: Path) -> None:
    """The refusal is in the directory too, so that a monitor need not ask the scheduler."""
    launcher = SpawnLauncher(python=str(tmp_path / "no-python"))
    with Bench(tmp_path / "ws", launcher=launcher) as bench:
        job = bench.command("job", "true")
        reason, message = failure(job)
        assert reason is JobFailureStatus.REJECTED
        assert message.startswith("EXEC")
        found = look(bench.machine, job.paths).derived
        assert (found.state, found.reason) == (S.ERROR, JobFailureStatus.REJECTED)
    with Bench(tmp_path / "ws") as bench:
        assert bench.command("job", "true").wait(WAIT_S) is S.DONE


def test_an_environment_that_is_too_large_fails_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E2BIG, from the start of the runner."""
    with Bench(tmp_path / "ws") as bench:
        with monkeypatch.context() as patched:
            patched.setenv("TOO_LONG", "x" * (1 << 18))
            job = bench.command("job", "true")
            reason, message = failure(job)
        assert reason is JobFailureStatus.REJECTED
        assert message.startswith("EXEC")
        assert "Argument list too long" in message
        assert look(bench.machine, job.paths).derived.reason is JobFailureStatus.REJECTED
        bench.command("job", "true")
        assert job.wait(WAIT_S) is S.DONE


def test_an_order_that_is_too_large_to_be_read_again_is_refused(tmp_path: Path) -> None:
    with Bench(tmp_path / "ws") as bench:
        reason, message = failure(bench.command("job", "/bin/echo", "x" * (1 << 17)))
        assert reason is JobFailureStatus.FAILED
        assert "shorter command" in message


class Unwilling(SpawnLauncher):
    """A launcher that fails a few times before it starts anything."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(slots=2)
        self.errors = list(errors)
        self.tried = 0

    async def start(self, order: StartOrder) -> Any:
        self.tried += 1
        if self.errors:
            raise self.errors.pop(0)
        return await super().start(order)


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EMFILE, errno.ENOMEM])
def test_a_machine_that_is_short_of_something_gets_time_to_recover(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F41: nothing is lost."""
    monkeypatch.setattr("tenuto.scheduler.shell.BACK_OFF_S", 0.05)
    launcher = Unwilling(OSError(code, os.strerror(code)), OSError(code, os.strerror(code)))
    with Bench(tmp_path / "ws", launcher=launcher) as bench:
        jobs = [bench.command(f"job-{number}", *oracle(tmp_path / f"job-{number}")) for number in range(4)]
        bench.wait()
        assert {job.state for job in jobs} == {S.DONE}
        assert launcher.tried == 6
    assert all(ledger(tmp_path / job.job_id) == ["start", "end"] for job in jobs)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), LaunchRefused("never"), KeyError("x")])
def test_a_launcher_that_raises_fails_its_job_and_no_other(tmp_path: Path, error: Exception) -> None:
    with Bench(tmp_path / "ws", launcher=Unwilling(error)) as bench:
        first = bench.command("first", "true")
        assert first.wait(WAIT_S) is S.ERROR
        assert bench.command("second", "true").wait(WAIT_S) is S.DONE
        assert look(bench.machine, first.paths).derived.state is S.ERROR


# -- what others do with what they are told (F31) ----------------------------------------------------


def test_callbacks_that_raise_change_nothing_for_jobs_and_owners(tmp_path: Path) -> None:
    class Broken(Listener):
        def job_submitted(self, job: Job) -> None:
            raise RuntimeError("broken listener")

        def job_state(self, job: Job, record: StateRecord) -> None:
            raise RuntimeError("broken listener")

    def broken(job: Job) -> None:
        raise SystemError("broken callback")

    heard: list[str] = []
    with Bench(tmp_path / "ws") as bench:
        bench.scheduler.add_listener(Broken())
        jobs = [
            bench.command(f"job-{number}", "true", callbacks=[broken, lambda job: heard.append(job.job_id)])
            for number in range(8)
        ]
        bench.wait()
        bench.scheduler.drain()
        assert {job.state for job in jobs} == {S.DONE}
        assert sorted(heard) == [job.job_id for job in jobs]
        assert bench.owner.history["job-0"][-1] is S.DONE


def test_a_list_that_raises_fails_its_own_job_and_no_other(tmp_path: Path) -> None:
    with Bench(tmp_path / "ws") as bench:

        def refuse(job: Job) -> None:
            raise RuntimeError("the list of jobs cannot be written")

        bench.scheduler.keep_list(bench.owner, refuse)
        first = bench.command("first", "true")
        assert failure(first)[1].endswith("the list of jobs cannot be written")
        bench.scheduler.keep_list(bench.owner, lambda job: None)
        assert bench.command("second", "true").wait(WAIT_S) is S.DONE


def test_a_callback_that_takes_its_time_holds_up_nobody_else(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    heard: list[str] = []
    with Bench(tmp_path / "ws") as bench:

        def slowly(job: Job) -> None:
            eventually(gate.exists)
            heard.append("slow")

        bench.command("slow", "true", callbacks=[slowly])
        other = bench.command("other", "true", callbacks=[lambda job: heard.append("other")])
        assert other.wait(WAIT_S) is S.DONE
        eventually(lambda: heard == ["other"])
        eventually(lambda: bench.scheduler.counts(bench.owner).outputs > 0, "the owner to wait")
        gate.touch()
        eventually(lambda: heard == ["other", "slow"])


# -- dependencies (F33) ------------------------------------------------------------------------------


def test_a_failure_reaches_all_that_need_it_and_names_its_root(tmp_path: Path) -> None:
    with Bench(tmp_path / "ws") as bench:
        root = bench.shell("root", "exit 3")
        chain = [root]
        for number in range(5):
            command = oracle(tmp_path / f"job-{number}")
            chain.append(bench.command(f"job-{number}", *command, needs=[chain[-1]]))
        bench.wait()
        for job in chain[1:]:
            reason, message = failure(job)
            assert reason is JobFailureStatus.DEPENDENCY
            assert "root" in message
            assert look(bench.machine, job.paths).derived.marker is None
        assert not any(ledger(tmp_path / job.job_id) for job in chain[1:])


def test_dependencies_that_cannot_be_met_are_refused_at_submit(tmp_path: Path) -> None:
    with Bench(tmp_path / "ws") as bench:

        def job(job_id: str, *needs: Job) -> Job:
            return Job(
                TASK_ID,
                job_id,
                layout=bench.layout,
                launcher=bench.launcher,
                work=CommandWork(["true"]),
                clock=bench.machine.clock,
                dependencies=[JobDependency(needed) for needed in needs],
            )

        with pytest.raises(UnsubmittedTask, match="was not submitted"):
            bench.scheduler.submit(job("one", job("two")), bench.owner)
        with pytest.raises(GraphError, match="depends on itself"):
            bench.scheduler.submit(job("one", job("one")), bench.owner)
        one = bench.scheduler.submit(job("one"), bench.owner)
        two = bench.scheduler.submit(job("two", one), bench.owner)
        # What is known keeps the dependencies it has, so no later submission can close a circle.
        assert bench.scheduler.submit(job("one", two), bench.owner) is one
        bench.wait()
        assert (one.state, two.state) == (S.DONE, S.DONE)


# -- without inotify (F42) ---------------------------------------------------------------------------


def test_without_inotify_changes_are_found_by_looking(tmp_path: Path) -> None:
    started, gate = tmp_path / "started", tmp_path / "gate"
    os.mkfifo(gate)
    command = ["/bin/sh", "-c", 'echo >> "$0"; cat < "$1"', str(started), str(gate)]
    with (
        Bench(tmp_path / "ws", loop=LoopThread(watch=lambda _: None)) as bench,
        Bench(tmp_path / "ws", loop=LoopThread(watch=lambda _: None)) as other,
    ):
        jobs = [bench.command("job", *command), other.command("job", *command)]
        eventually(lambda: lines(started), "the job to begin")
        with gate.open("w"):
            pass
        assert [job.wait(WAIT_S) for job in jobs] == [S.DONE, S.DONE]
    assert len(lines(started)) == 1


def test_a_scheduler_that_cannot_watch_a_job_it_adopted_does_not_lose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F41: for a while no descriptor is left for the pidfd of a runner that another scheduler started."""
    monkeypatch.setattr("tenuto.scheduler.shell.BACK_OFF_S", 0.05)
    started, gate = tmp_path / "started", tmp_path / "gate"
    os.mkfifo(gate)
    command = ["/bin/sh", "-c", 'echo >> "$0"; cat < "$1"', str(started), str(gate)]

    class Short:
        """The processes of this machine, on a bad day."""

        def __init__(self, machine: Machine) -> None:
            self._processes = machine.processes
            self.refused = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._processes, name)

        def open(self, identity: Any) -> Any:
            if self.refused < 3:
                self.refused += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return self._processes.open(identity)

    machine = this_machine()
    processes = Short(machine)
    with (
        Bench(tmp_path / "ws") as bench,
        Bench(tmp_path / "ws", machine=machine._replace(processes=processes)) as other,  # type: ignore[arg-type]
    ):
        first = bench.command("job", *command)
        eventually(lambda: lines(started), "the job to begin")
        eventually(lambda: first.state is S.RUNNING, "the job to run")
        second = other.command("job", *command)
        eventually(lambda: processes.refused == 3, "the refusals")
        with gate.open("w"):
            pass
        assert first.wait(WAIT_S) is S.DONE
        assert second.wait(WAIT_S) is S.DONE
    assert len(lines(started)) == 1


# -- many that end at once (F26) ---------------------------------------------------------------------


@pytest.mark.watchdog(600)
@pytest.mark.parametrize(
    "count", [100, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.prove("a hundred show the same")])]
)
def test_jobs_that_end_before_the_scheduler_looks_are_all_seen_to_end(tmp_path: Path, count: int) -> None:
    others = zombies()  # of earlier tests in this process
    with Bench(tmp_path / "ws", slots=8) as bench:
        jobs = [bench.command(f"job-{number}", "/bin/true") for number in range(count)]
        bench.wait(500)
        assert {job.state for job in jobs} == {S.DONE}
        assert {job.attempt for job in jobs} == {1}
        # A job is done by its marker, which its runner writes before it ends itself.
        eventually(lambda: not zombies() - others, "all runners to be waited for")


def zombies() -> set[str]:
    """The children of this process that have ended, and were not waited for."""
    found = set()
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it is waited for at this moment
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                found.add(child)
    return found


class Hungry(SpawnLauncher):
    """A launcher that needs more descriptors than are left if it starts two jobs at once."""

    def __init__(self) -> None:
        super().__init__(slots=16)
        self._starting = 0

    async def start(self, order: StartOrder) -> Any:
        self._starting += 1
        try:
            await asyncio.sleep(0.02)
            if self._starting > 1:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return await super().start(order)
        finally:
            await asyncio.sleep(0.02)
            self._starting -= 1


def test_jobs_that_take_descriptors_from_each_other_are_started_fewer_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All sixteen were tried together, over and over, and none was ever started."""
    monkeypatch.setattr("tenuto.scheduler.shell.BACK_OFF_S", 0.05)
    with Bench(tmp_path / "ws", launcher=Hungry()) as bench:
        jobs = [bench.command(f"job-{number}", "true") for number in range(16)]
        bench.wait()
        assert {job.state for job in jobs} == {S.DONE}
    assert [record.message for record in caplog.records if "starts are paused" in record.message][1:] == []


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EAGAIN])
def test_a_pause_has_an_end(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded waits: while it lasts the job says what it waits for; then it fails, and says that."""
    monkeypatch.setattr("tenuto.scheduler.shell.BACK_OFF_S", 0.02)
    longest = "OWN_S" if code == errno.EMFILE else "LONGEST_S"
    launcher = Unwilling(*(OSError(code, os.strerror(code)) for _ in range(10_000)))
    with Bench(tmp_path / "ws", launcher=launcher) as bench:
        job = bench.command("job", "true")
        eventually(lambda: "waits until the machine recovers" in str(job.state_record.message), "the reason")
        eventually(lambda: bench.scheduler.snapshot().paused is not None, "the pause")
        monkeypatch.setattr(f"tenuto.scheduler.shell.{longest}", 0.5)
        assert job.wait(WAIT_S) is S.ERROR
        assert os.strerror(code) in str(job.state_record.message)
        assert "did not change within 0.5 s" in str(job.state_record.message)
        launcher.errors.clear()
        assert bench.command("later", "true").wait(WAIT_S) is S.DONE
