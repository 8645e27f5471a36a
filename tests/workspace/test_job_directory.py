"""The steps on a job's directory, in order, and with every one of them failing."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tenuto.errors import DirectoryUnusable, LockLost
from tenuto.lifecycle.events import JobProgressEvent
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.testing import Crash, FakeHost
from tenuto.workspace import job_directory as steps
from tenuto.workspace.attempt_files import keep_record
from tenuto.workspace.claims import Claimer, claim, is_claimed
from tenuto.workspace.derive import ClusterReport, Derived
from tenuto.workspace.derive_table import Action, ClusterSays
from tenuto.workspace.event_writer import EventWriter
from tenuto.workspace.flags import RESULT_NOT_KEPT
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import RESULT_LIMIT, Durability, Marker, read_markers, write_marker
from tenuto.workspace.ports import LockHandle, Machine, temporary_name
from tenuto.workspace.records import (
    LaunchRecord,
    LocksRecord,
    PidRecord,
    StatusRecord,
    StopRecord,
    TokenUnits,
)

LAYOUT = Layout("/ws")
JOB = LAYOUT.job("a.Task", "ab12")
JOURNAL = LAYOUT.job_journal("a.Task", "ab12")


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


def taken(machine: Machine, paths: JobPaths = JOB) -> LockHandle:
    lock = steps.take_lock(machine, paths)
    assert lock is not None
    return lock


def opened(machine: Machine, lock: LockHandle, paths: JobPaths = JOB, **options) -> LaunchRecord:
    found = steps.settle(machine, paths, lock)
    return steps.open_attempt(machine, paths, lock, found, launcher="spawn", job_name="job", **options)


def pid_record(machine: Machine, attempt: int) -> PidRecord:
    return PidRecord(machine.processes.own(), attempt, machine.clock.now())


def status(state: JobState = JobState.DONE, attempt: int = 1) -> StatusRecord:
    return StatusRecord("ab12", "a.Task", StateRecord(state), attempt)


def row(machine: Machine) -> str:
    return steps.look(machine, JOB).derived.row


def test_a_job_from_nothing_to_done(host: FakeHost) -> None:
    """The start sequence of docs/lifecycle.md, seen by another process after each step."""
    scheduler, runner, watcher = host.start(), host.start(), host.machine()
    machine = host.machine(scheduler)
    assert row(watcher) == "untouched"
    lock = taken(machine)
    assert row(watcher) == "being prepared"
    launch = opened(machine, lock)
    steps.write_params(machine.files, JOB, b"{}")
    steps.write_script(machine.files, JOB, b"#")
    steps.write_status(machine.files, JOB, status(JobState.SCHEDULED))
    assert row(watcher) == "starting"
    inside = host.machine(runner)
    held = inside.locks.adopt(lock.fileno(), JOB.lock)
    lock.close()
    steps.write_pid(inside.files, JOB, pid_record(inside, launch.attempt))
    assert row(watcher) == "running"
    steps.finish(inside.files, JOB, Marker(launch.attempt, launch.nonce, exit_code=0), status())
    assert row(watcher) == "done"
    held.close()
    host.end(runner)
    done = steps.look(watcher, JOB).derived
    assert (done.state, done.action, done.attempt) == (JobState.DONE, Action.KEEP, 1)


def test_the_lock_is_had_by_one(host: FakeHost) -> None:
    taken(host.machine(host.start()))
    assert steps.take_lock(host.machine(host.start()), JOB) is None


def test_a_directory_that_cannot_be_made_is_named(host: FakeHost) -> None:
    host.disk.make_directory("/ws")
    host.disk.write("/ws/jobs", b"a file in the way")
    with pytest.raises(DirectoryUnusable, match=r"/ws/jobs/a\.Task/ab12"):
        steps.take_lock(host.machine(), JOB)
    assert host.disk.list("/ws") == ["jobs"]


def test_ones_own_lock_is_no_evidence(host: FakeHost) -> None:
    machine = host.machine(host.start())
    lock = taken(machine)
    assert steps.settle(machine, JOB, lock).derived.row == "untouched"
    assert steps.look(machine, JOB).derived.row == "being prepared"


def test_each_attempt_has_a_number_and_a_nonce_of_its_own(host: FakeHost) -> None:
    machine = host.machine(host.start())
    lock = taken(machine)
    first, second = opened(machine, lock), opened(machine, lock, lost_count=1)
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.nonce != second.nonce
    assert steps.read_launch(machine.files, JOB) == second


@pytest.mark.parametrize(
    "trace",
    [
        lambda m: write_marker(m.files, JOB, Marker(6, "old")),
        lambda m: write_marker(m.files, JOB, Marker(6, "old", JobFailureStatus.FAILED)),
        lambda m: steps.write_pid(m.files, JOB, pid_record(m, 6)),
        lambda m: steps.write_status(m.files, JOB, status(attempt=6)),
    ],
)
def test_no_attempt_number_is_used_twice(host: FakeHost, trace: Callable[[Machine], None]) -> None:
    machine = host.machine(host.start())
    lock = taken(machine)
    trace(machine)
    assert opened(machine, lock).attempt == 7


def test_an_attempt_clears_what_older_ones_left_and_keeps_what_is_the_users(host: FakeHost) -> None:
    machine = host.machine(host.start())
    lock = taken(machine)
    for path in (JOB.done, JOB.failed):
        write_marker(
            machine.files, JOB, Marker(1, "old", None if path == JOB.done else JobFailureStatus.LOST)
        )
    steps.write_pid(machine.files, JOB, pid_record(machine, 1))
    steps.request_stop(machine.files, JOB, StopRecord(1, JobFailureStatus.CANCELLED, machine.clock.now()))
    steps.write_locks(machine.files, JOB, LocksRecord(1))
    machine.files.write(JOB.result, b"1")
    machine.files.write(temporary_name(JOB.status, "9"), b"left by a crash")
    machine.files.write(temporary_name(JOB.params, "9"), b"left by a crash")
    for kept in ("checkpoint.pt", "mine.tmp"):
        machine.files.write(f"{JOB.directory}/{kept}", b"the user's")
    machine.files.write(JOB.task_outputs, b"")
    writer = EventWriter(machine.files, JOURNAL, "w")
    event = JobProgressEvent(
        timestamp=machine.clock.now(), job_id="ab12", task_id="a.Task", attempt=1, progress=0.5
    )
    writer.write(event)
    opened(machine, lock, journal=JOURNAL)
    assert machine.files.list(JOB.directory) == [
        ".tenuto",
        "Task.lock",
        "Task.reserve",
        "checkpoint.pt",
        "mine.tmp",
    ]
    assert machine.files.list(JOB.private) == ["launch.json", "task-outputs.jsonl"]
    assert machine.files.list(JOURNAL.directory) == []


def test_a_death_while_an_attempt_is_opened_leaves_the_old_end_or_the_new_attempt() -> None:
    """Intent comes before effect: a final state is never simply forgotten."""
    for step in range(30):
        host = FakeHost()
        process = host.start()
        machine = host.machine(process)
        lock = taken(machine)
        first = opened(machine, lock)
        steps.write_pid(machine.files, JOB, pid_record(machine, 1))
        write_marker(machine.files, JOB, Marker(1, first.nonce, JobFailureStatus.MEMORY))
        found = steps.settle(machine, JOB, lock)
        host.disk.crash_after(step)
        with suppress(Crash):
            steps.open_attempt(machine, JOB, lock, found, launcher="spawn", job_name="job")
        host.disk.heal()
        host.end(process)
        after = steps.look(host.machine(host.start()), JOB).derived
        assert (after.attempt, after.row) in ((1, "failed"), (2, "lost before it started")), step


def test_nothing_is_opened_when_the_lock_file_was_replaced(host: FakeHost) -> None:
    machine = host.machine(host.start())
    lock = taken(machine)
    found = steps.settle(machine, JOB, lock)
    machine.files.remove(JOB.lock)
    with pytest.raises(LockLost, match=r"Task\.lock"):
        steps.open_attempt(machine, JOB, lock, found, launcher="spawn", job_name="job")
    assert steps.read_launch(machine.files, JOB) is None


def test_the_cluster_is_asked_before_the_markers_are_read(host: FakeHost) -> None:
    """A job that ends between the two looks is done, and not lost."""
    machine = host.machine(host.start())
    lock = taken(machine)
    launch = opened(machine, lock, external=True)
    asked: list[str] = []

    def ask(paths: JobPaths, of: LaunchRecord) -> ClusterReport:
        asked.append(of.nonce)
        write_marker(machine.files, paths, Marker(of.attempt, of.nonce))
        return ClusterReport(ClusterSays.ENDED)

    assert steps.settle(machine, JOB, lock, ask=ask).derived.state is JobState.DONE
    assert asked == [launch.nonce]
    assert steps.look(machine, JOB, ask=ask).derived.state is JobState.DONE
    assert len(asked) == 1, "of a finished job nobody is asked"


def test_no_cluster_is_asked_about_a_local_attempt(host: FakeHost) -> None:
    machine = host.machine(host.start())
    lock = taken(machine)
    opened(machine, lock)

    def ask(paths: JobPaths, of: LaunchRecord) -> ClusterReport:
        raise AssertionError("a local attempt is no cluster's")

    assert steps.settle(machine, JOB, lock, ask=ask).derived.row == "lost before it started"


@pytest.mark.parametrize(
    ("by", "row"),
    [(None, "cluster silent"), (Claimer.RUNNER, "cluster silent"), (Claimer.SCHEDULER, "revoked")],
)
def test_a_claim_of_a_scheduler_gives_the_attempt_up(host: FakeHost, by: Claimer | None, row: str) -> None:
    machine = host.machine(host.start())
    lock = taken(machine)
    launch = opened(machine, lock, external=True)
    if by is not None:
        assert claim(machine, JOB, launch.nonce, by)
    lock.close()
    assert steps.look(machine, JOB).derived.row == row


def test_the_claims_of_earlier_attempts_stay(host: FakeHost) -> None:
    machine = host.machine(host.start())
    lock = taken(machine)
    first = opened(machine, lock, external=True)
    claim(machine, JOB, first.nonce, Claimer.SCHEDULER)
    opened(machine, lock, external=True)
    assert is_claimed(machine, JOB, first.nonce)
    assert not claim(machine, JOB, first.nonce, Claimer.RUNNER)


def test_a_power_loss_right_after_the_marker_keeps_the_job_done(host: FakeHost) -> None:
    machine = host.machine(host.start())
    launch = opened(machine, taken(machine))
    steps.finish(machine.files, JOB, Marker(launch.attempt, launch.nonce), status())
    host.power_loss()
    assert steps.look(host.machine(host.start()), JOB).derived.state is JobState.DONE


def test_a_second_attempt_done_before_a_power_loss_is_done_after_it(host: FakeHost) -> None:
    machine = host.machine(host.start())
    lock = taken(machine)
    first = opened(machine, lock, external=True)
    write_marker(machine.files, JOB, Marker(1, first.nonce, JobFailureStatus.LOST))
    second = opened(machine, lock)
    write_marker(machine.files, JOB, Marker(2, second.nonce))
    host.power_loss()
    assert steps.look(host.machine(host.start()), JOB).derived.state is JobState.DONE


def test_a_corrupt_marker_is_set_aside_and_stays_an_error(host: FakeHost) -> None:
    machine = host.machine(host.start())
    lock = taken(machine)
    opened(machine, lock)
    machine.files.write(JOB.done, b"")
    before = steps.look(machine, JOB).derived
    settled = steps.settle(machine, JOB, lock).derived
    after = steps.settle(machine, JOB, lock).derived
    for derived in (before, settled, after):
        assert (derived.state, derived.reason) == (JobState.ERROR, JobFailureStatus.FAILED)
        assert derived.message is not None
        assert derived.message.startswith("CORRUPT")
    assert machine.files.stat(f"{JOB.done}.corrupt-1") is not None
    assert after.alarm is None


def test_a_readable_failure_beside_a_corrupt_success_keeps_its_own_words(host: FakeHost) -> None:
    machine = host.machine(host.start())
    lock = taken(machine)
    launch = opened(machine, lock)
    write_marker(machine.files, JOB, Marker(1, launch.nonce, JobFailureStatus.MEMORY, "64 GB"))
    machine.files.write(JOB.done, b"")
    assert steps.settle(machine, JOB, lock).derived.message == "64 GB"
    assert steps.settle(machine, JOB, lock).derived.reason is JobFailureStatus.MEMORY
    assert machine.files.stat(JOB.done) is None


def test_looking_changes_nothing(host: FakeHost) -> None:
    machine = host.machine(host.start())
    opened(machine, taken(machine))
    machine.files.write(JOB.done, b"")
    host.disk.operations.clear()
    steps.look(host.machine(host.start()), JOB)
    assert {operation for operation, _ in host.disk.operations} <= {"read", "stat", "list"}


def test_a_job_that_nobody_asked_for_is_told_by_two_looks(host: FakeHost) -> None:
    host.disk.operations.clear()
    assert steps.look(host.machine(), JOB).derived.state is JobState.UNSCHEDULED
    assert len(host.disk.operations) == 2


def test_a_job_that_ends_during_a_look_is_never_taken_for_lost() -> None:
    """Whatever step of the look it ends in: the lock is read before the markers."""
    for moment in range(12):
        host = FakeHost()
        runner = host.start()
        machine = host.machine(runner)
        launch = opened(machine, taken(machine))
        steps.write_pid(machine.files, JOB, pid_record(machine, 1))

        def end(launch: LaunchRecord = launch, host: FakeHost = host, runner: int = runner) -> None:
            write_marker(host.disk, JOB, Marker(1, launch.nonce))
            host.end(runner)

        looker = host.machine(host.start())
        host.disk.before_step(moment, end)
        assert steps.look(looker, JOB).derived.state in (JobState.RUNNING, JobState.DONE), moment


def test_a_wish_to_stop_concerns_one_attempt(host: FakeHost) -> None:
    machine = host.machine(host.start())
    opened(machine, taken(machine))
    stop = StopRecord(1, JobFailureStatus.CANCELLED, machine.clock.now(), "by ada")
    steps.request_stop(machine.files, JOB, stop)
    assert steps.read_stop(machine.files, JOB, 1) == stop
    assert steps.read_stop(machine.files, JOB, 2) is None


def test_a_late_wish_does_not_replace_that_for_a_later_attempt(host: FakeHost) -> None:
    machine = host.machine(host.start())
    opened(machine, taken(machine))
    now = machine.clock.now()
    later = StopRecord(2, JobFailureStatus.CANCELLED, now, "by ada")
    steps.request_stop(machine.files, JOB, later)
    steps.request_stop(machine.files, JOB, StopRecord(1, JobFailureStatus.CANCELLED, now, "too late"))
    assert steps.read_stop(machine.files, JOB, 2) == later


def test_records_are_read_back_and_unreadable_ones_are_none(host: FakeHost) -> None:
    machine = host.machine(host.start())
    opened(machine, taken(machine))
    locks, pid = LocksRecord(1, (TokenUnits("gpu", (0, 2)),)), pid_record(machine, 1)
    steps.write_locks(machine.files, JOB, locks)
    steps.write_pid(machine.files, JOB, pid)
    steps.write_status(machine.files, JOB, status())
    assert steps.read_locks(machine.files, JOB, 1) == locks
    assert steps.read_pid(machine.files, JOB, 1) == pid
    assert steps.read_pid(machine.files, JOB, 2) is None
    assert steps.read_status(machine.files, JOB) == status()
    for path in (JOB.locks, JOB.pid, JOB.status, JOB.launch):
        machine.files.write(path, b"garbage")
    assert steps.read_locks(machine.files, JOB, 1) is None
    assert steps.read_pid(machine.files, JOB, 1) is None
    assert steps.read_status(machine.files, JOB) is None
    assert steps.read_launch(machine.files, JOB) is None


def test_a_job_is_done_though_the_disk_takes_neither_its_result_nor_its_record(host: FakeHost) -> None:
    """A disk that was full for the moment in which a result was written failed hours of work."""
    machine = host.machine(host.start())
    launch = opened(machine, taken(machine))
    host.disk.capacity = 0
    record = {
        "code": "c0de",
        "files": {f"/{n}.py": "d" for n in range(200)},
        "made_from": [["a/b", "1", "", ""]],
    }
    marker = steps.keep_result(
        machine.files, JOB, Marker(1, launch.nonce, record=record), list(range(5000)), Durability.NONE
    )
    marker = keep_record(machine.files, JOB, marker, Durability.NONE)
    host.disk.capacity = None
    steps.finish(machine.files, JOB, marker, status())
    found = read_markers(host.disk, JOB).done
    assert isinstance(found, Marker)
    assert (found.reason, found.result_stored, found.flags) == (None, False, (RESULT_NOT_KEPT,))
    assert "its result could not be written: [Errno 28] No space" in str(found.message)
    assert found.record["code"] == "c0de"
    assert found.record["made_from"] == [["a/b", "1", "", ""]], "what a check asks for first"


@pytest.mark.parametrize("result", [None, 3, {"loss": 0.5}, "x" * RESULT_LIMIT, list(range(5000))], ids=repr)
def test_a_result_of_any_size_is_kept(host: FakeHost, result: object) -> None:
    machine = host.machine(host.start())
    launch = opened(machine, taken(machine))
    marker = steps.keep_result(machine.files, JOB, Marker(1, launch.nonce), result)
    steps.finish(machine.files, JOB, marker, status())
    host.power_loss()
    found = read_markers(host.disk, JOB).done
    assert isinstance(found, Marker)
    assert steps.read_result(host.disk, JOB, found) == result


def test_a_full_disk_is_reported_even_if_the_status_cannot_be(host: FakeHost) -> None:
    machine = host.machine(host.start())
    launch = opened(machine, taken(machine))
    host.disk.capacity = 0
    failed = Marker(1, launch.nonce, JobFailureStatus.FAILED, "DISK_FULL")
    steps.finish(machine.files, JOB, failed, status(JobState.ERROR), Durability.NONE)
    assert steps.look(machine, JOB).derived.message == "DISK_FULL"
    assert steps.read_status(machine.files, JOB) is None


def test_logs_of_earlier_attempts_are_kept(host: FakeHost) -> None:
    machine = host.machine(host.start())
    taken(machine)
    assert steps.rotate_logs(machine.files, JOB) == 0
    for attempt in (b"one", b"two"):
        machine.files.write(JOB.out, attempt)
        steps.rotate_logs(machine.files, JOB)
    machine.files.write(JOB.err, b"three")
    assert steps.rotate_logs(machine.files, JOB) == 3
    assert machine.files.read(f"{JOB.out}.1", 10) == b"one"
    assert machine.files.read(f"{JOB.out}.2", 10) == b"two"
    assert machine.files.read(f"{JOB.err}.3", 10) == b"three"


MODEL = "models/best"
"""What the task leaves in its directory."""


def whole_life(machine: Machine) -> None:
    """Everything a scheduler and a runner write, from a failed first attempt to a done second one."""
    lock = taken(machine)
    for reason in (JobFailureStatus.TIMEOUT, None):
        launch = opened(machine, lock, journal=JOURNAL)
        steps.rotate_logs(machine.files, JOB)
        steps.write_params(machine.files, JOB, b"{}")
        steps.write_script(machine.files, JOB, b"#")
        steps.write_pid(machine.files, JOB, pid_record(machine, launch.attempt))
        steps.write_locks(machine.files, JOB, LocksRecord(launch.attempt))
        machine.files.write(JOB.out, b"hello")
        machine.files.make_directory(f"{JOB.directory}/{MODEL.rpartition('/')[0]}")
        machine.files.write(f"{JOB.directory}/{MODEL}", launch.nonce.encode())
        appender = machine.files.open_append(JOB.task_outputs)
        appender.append(launch.nonce.encode())
        marker = steps.preserve(machine.files, JOB, Marker(launch.attempt, launch.nonce, reason), "x" * 3000)
        steps.finish(machine.files, JOB, marker, status(attempt=launch.attempt))
    lock.close()


def every_step_of_a_life() -> range:
    host = FakeHost()
    whole_life(host.machine())
    return range(len(host.disk.operations))


def state_after(host: FakeHost) -> JobState:
    """The state to which a new scheduler brings what a death left; no attempt repeats a number."""
    machine = host.machine(host.start())
    lock = taken(machine)
    found = steps.settle(machine, JOB, lock)
    assert found.derived.alarm is None
    if found.derived.state is JobState.DONE:
        assert isinstance(found.derived.marker, Marker)
        marker = found.derived.marker
        kept = None if "result_not_kept" in marker.flags else "x" * 3000  # the disk did not take it
        assert steps.read_result(machine.files, JOB, marker) == kept
        return JobState.DONE
    assert found.derived.action in (Action.START, Action.KEEP)
    before = steps.read_launch(machine.files, JOB)
    launch = steps.open_attempt(machine, JOB, lock, found, launcher="spawn", job_name="job")
    assert before is None or launch.attempt > before.attempt
    assert steps.settle(machine, JOB, lock).derived.row == "lost before it started"
    write_marker(machine.files, JOB, Marker(launch.attempt, launch.nonce))
    return steps.settle(machine, JOB, lock).derived.state


def test_a_death_at_any_step_leaves_a_directory_that_can_be_taken_up() -> None:
    for step in every_step_of_a_life():
        host = FakeHost()
        process = host.start()
        host.disk.crash_after(step)
        with pytest.raises(Crash):
            whole_life(host.machine(process))
        host.end(process)
        assert state_after(host) is JobState.DONE


@pytest.mark.parametrize("survives", [lambda path: False, lambda path: len(path) % 2 == 0, lambda path: True])
def test_a_power_loss_at_any_step_leaves_a_directory_that_can_be_taken_up(
    survives: Callable[[str], bool],
) -> None:
    for step in every_step_of_a_life():
        host = FakeHost()
        host.disk.crash_after(step)
        with pytest.raises(Crash):
            whole_life(host.machine(host.start()))
        host.disk.power_loss(survives)
        host.processes.reboot()
        machine = host.machine(host.start())
        lock = taken(machine)
        found = steps.settle(machine, JOB, lock)
        assert found.derived.action in (Action.START, Action.KEEP)
        check_what_a_done_job_left(machine, found.derived)
        launch = steps.open_attempt(machine, JOB, lock, found, launcher="spawn", job_name="job")
        write_marker(machine.files, JOB, Marker(launch.attempt, launch.nonce))
        assert steps.settle(machine, JOB, lock).derived.state is JobState.DONE


def check_what_a_done_job_left(machine: Machine, derived: Derived) -> None:
    if derived.state is JobState.DONE:
        assert derived.marker is not None
        nonce = derived.marker.nonce.encode()
        assert machine.files.read(f"{JOB.directory}/{MODEL}", 100) == nonce
        assert machine.files.read(JOB.task_outputs, 1000).endswith(nonce)
        params = machine.files.read(JOB.params, 100)
        assert steps.has_its_params(machine.files, JOB, derived.marker) == (params == b"{}")


def test_without_durability_nothing_that_a_task_left_is_synced(host: FakeHost) -> None:
    machine, disk = host.machine(), host.disk
    lock = taken(machine)
    launch = opened(machine, lock)
    disk.write(f"{JOB.directory}/model", b"content")
    steps.preserve(disk, JOB, Marker(1, launch.nonce), None, Durability.NONE)
    assert not [path for operation, path in disk.operations if operation.startswith("sync")]


def test_a_task_that_leaves_nothing_costs_one_look(host: FakeHost) -> None:
    machine, disk = host.machine(), host.disk
    lock = taken(machine)
    launch = opened(machine, lock)
    steps.write_params(disk, JOB, b"{}")
    disk.write(JOB.out, b"hello")
    disk.write(f"{JOB.out}.1", b"hello")
    before = len(disk.operations)
    marker = steps.preserve(disk, JOB, Marker(1, launch.nonce), None)
    assert [operation for operation, _ in disk.operations[before:]] == ["list", "stat", "stat"]
    assert marker.params_bytes == 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failure_of_any_step_leaves_a_directory_that_can_be_taken_up(code: int) -> None:
    for step in every_step_of_a_life():
        host = FakeHost()
        process = host.start()
        host.disk.fail_after(step, code)
        with suppress(OSError, DirectoryUnusable):
            whole_life(host.machine(process))
        host.disk.heal()
        host.end(process)
        assert state_after(host) is JobState.DONE


def test_the_same_life_on_a_real_disk(tmp_path: Path) -> None:
    machine = this_machine()
    job = Layout(str(tmp_path)).job("a.Task", "ab12")
    lock = taken(machine, job)
    launch = opened(machine, lock, job)
    steps.write_pid(machine.files, job, pid_record(machine, launch.attempt))
    assert steps.look(machine, job).derived.row == "running"
    steps.finish(machine.files, job, Marker(launch.attempt, launch.nonce), status())
    assert steps.look(machine, job).derived.row == "done"
    lock.close()
    assert sorted(os.listdir(job.directory)) == [".tenuto", "Task.done", "Task.lock", "Task.pid"]


def test_of_many_real_schedulers_one_opens_the_attempt(tmp_path: Path) -> None:
    job = Layout(str(tmp_path)).job("a.Task", "ab12")
    go, start = os.pipe()
    children = []
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            os.close(start)
            os.read(go, 1)
            os._exit(_schedule_once(job))
        children.append(pid)
    os.close(go)
    os.close(start)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert set(codes) <= {0, 1}
    assert codes.count(1) == 1, "one of them ran it"
    launch = steps.read_launch(this_machine().files, job)
    assert launch is not None
    assert launch.attempt == 1


def _schedule_once(job: JobPaths) -> int:
    """1 if this scheduler ran the job, 0 if it found it done, 2 if anything went wrong."""
    try:
        machine = this_machine()
        while (lock := steps.take_lock(machine, job)) is None:
            if steps.look(machine, job).derived.state is JobState.DONE:
                return 0
        found = steps.settle(machine, job, lock)
        if found.derived.state is JobState.DONE:
            return 0
        launch = steps.open_attempt(machine, job, lock, found, launcher="spawn", job_name="job")
        steps.finish(machine.files, job, Marker(launch.attempt, launch.nonce), status())
        return 1
    except BaseException:  # noqa: BLE001 - a fork of the test run must not go on as the test run
        return 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=100", "tenuto-test", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount, so a real full disk is NOT tested here")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_really_full_disk_is_reported(small_disk: Path) -> None:
    machine = this_machine()
    job = Layout(str(small_disk)).job("a.Task", "ab12")
    lock = taken(machine, job)
    launch = opened(machine, lock, job)
    with pytest.raises(OSError, match="No space"):
        machine.files.write(f"{job.directory}/huge", b"x" * (1 << 20))
    failed = Marker(1, launch.nonce, JobFailureStatus.FAILED, "DISK_FULL " * 1000)
    steps.finish(machine.files, job, failed, status(JobState.ERROR))
    assert steps.look(machine, job).derived.reason is JobFailureStatus.FAILED
    machine.files.remove(f"{job.directory}/huge")
    assert opened(machine, lock, job).attempt == 2
    lock.close()


def test_a_disk_without_inodes_is_reported(small_disk: Path) -> None:
    machine = this_machine()
    job = Layout(str(small_disk)).job("a.Task", "ab12")
    lock = taken(machine, job)
    launch = opened(machine, lock, job)
    while machine.files.free_space(job.directory).inodes:
        machine.files.create_exclusive(f"{job.directory}/{machine.randomness.nonce()}")
    with pytest.raises(OSError, match="No space"):
        machine.files.write(f"{job.directory}/one-more", b"")
    steps.finish(machine.files, job, Marker(1, launch.nonce, JobFailureStatus.FAILED, "DISK_FULL"), status())
    assert steps.look(machine, job).derived.message == "DISK_FULL"
    lock.close()


def test_a_status_that_a_killed_runner_left_stale_is_mended(host: FakeHost) -> None:
    machine = host.machine()
    lock = taken(machine)
    launch = opened(machine, lock)
    running = StatusRecord("ab12", "a.Task", StateRecord(JobState.RUNNING), launch.attempt, 0)
    steps.write_status(machine.files, JOB, running)
    assert not steps.mend_status(machine, JOB), "its runner lives"
    now = machine.clock.now()
    marker = Marker(launch.attempt, launch.nonce, JobFailureStatus.FAILED, "no", 3, None, now, now)
    write_marker(machine.files, JOB, marker)
    assert not steps.mend_status(machine, JOB), "its runner lives, and is about to write it"
    lock.close()
    assert steps.mend_status(machine, JOB)
    mended = steps.read_status(machine.files, JOB)
    assert mended is not None
    assert mended.exit_code == 3
    assert mended.state_record == StateRecord(JobState.ERROR, JobFailureStatus.FAILED, "no", None, now, now)
    assert not steps.mend_status(machine, JOB)
