"""What a job that ended well keeps: the files that say something, in few inodes, whatever dies in between."""

from __future__ import annotations

import pytest

from tenuto.experiments.workspace_view import owner_of
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.testing import Crash, FakeHost
from tenuto.workspace import job_directory as steps
from tenuto.workspace.attempt_files import read_launch
from tenuto.workspace.layout import Layout
from tenuto.workspace.markers import MARKER_LIMIT, Marker
from tenuto.workspace.ports import LockHandle, Machine
from tenuto.workspace.records import LaunchRecord, LocksRecord, PidRecord, StatusRecord

JOB = Layout("/ws").job("a.Task", "ab12")
KEPT = ["Task.done", "Task.lock", "params.json"]
ALL = {".tenuto", "Task.err", "Task.out", "Task.pid", "Task.py", "locks.json", *KEPT}


class Ran:
    """A job whose payload has ended, before its runner says so."""

    def __init__(self, *, external: bool = False, **options: object) -> None:
        host = FakeHost(seed=3)
        self.machine: Machine = host.machine(host.start())
        self.disk = host.disk
        self.launch = self.open(external=external, **options)
        files = self.machine.files
        steps.write_params(files, JOB, b"{}")
        steps.write_script(files, JOB, b"#")
        steps.write_status(files, JOB, self.status(JobState.RUNNING))
        steps.write_locks(files, JOB, LocksRecord(1))
        steps.write_pid(files, JOB, PidRecord(self.machine.processes.own(), 1, self.machine.clock.now()))
        for log in (JOB.out, JOB.err):
            files.write(log, b"")

    def open(self, **options: object) -> LaunchRecord:
        self.lock: LockHandle | None = steps.take_lock(self.machine, JOB)
        assert self.lock is not None
        found = steps.settle(self.machine, JOB, self.lock)
        return steps.open_attempt(
            self.machine, JOB, self.lock, found, launcher="warm", job_name="job", **options
        )  # type: ignore[arg-type]

    def status(self, state: JobState) -> StatusRecord:
        return StatusRecord("ab12", "a.Task", StateRecord(state), 1)

    def finish(self, reason: JobFailureStatus | None = None, **said: object) -> None:
        marker = Marker(1, self.launch.nonce, reason, record={"code": "c0de", "begun": self.launch.life})
        state = JobState.DONE if reason is None else JobState.ERROR
        steps.finish(self.machine.files, JOB, marker._replace(**said), self.status(state), launch=self.launch)

    def names(self) -> set[str]:
        return set(self.disk.list(JOB.directory))

    def read(self) -> LaunchRecord:
        found = steps.look(self.machine, JOB)
        assert found.derived.state is JobState.DONE
        launch = found.evidence.launch
        assert isinstance(launch, LaunchRecord)
        assert launch == read_launch(self.machine.files, JOB)
        return launch


def test_a_job_that_ended_well_keeps_its_marker_its_lock_and_its_parameters() -> None:
    ran = Ran(
        owner="experiments/lr/1", instructions={"limits": {"grace_s": 10.0}, "record": {"code": "c0de"}}
    )
    before = ran.launch
    ran.finish()
    assert sorted(ran.names()) == KEPT
    assert str(owner_of(ran.machine.files, JOB)) == "experiments/lr/1", "else it would count as an orphan"
    told = {**before.instructions, "record": {"code": "c0de", "begun": before.life}}
    assert ran.read() == before._replace(instructions=told)


@pytest.mark.parametrize("reason", list(JobFailureStatus))
def test_a_job_that_failed_keeps_what_a_person_needs(reason: JobFailureStatus) -> None:
    ran = Ran()
    ran.finish(reason)
    assert ran.names() >= (ALL - {"Task.done"}) | {"Task.failed"}
    assert ran.disk.stat(JOB.status) is not None
    assert read_launch(ran.machine.files, JOB) == ran.launch


def test_files_that_say_something_stay() -> None:
    ran = Ran()
    files = ran.machine.files
    files.write(JOB.out, b"epoch 1")
    files.write(JOB.task_outputs, b"{}\n")
    files.write(f"{JOB.directory}/model.pt", b"")
    ran.finish()
    assert sorted(ran.names()) == [".tenuto", "Task.done", "Task.lock", "Task.out", "model.pt", "params.json"]
    assert files.list(JOB.private) == ["task-outputs.jsonl"]


def test_a_launch_record_that_a_marker_has_no_room_for_stays_a_file() -> None:
    ran = Ran(instructions={"command": ["x" * MARKER_LIMIT]})
    ran.finish()
    assert ran.machine.files.list(JOB.private) == ["launch.json"]
    assert ran.read() == ran.launch


def test_an_attempt_of_a_cluster_keeps_what_a_late_runner_asks_for() -> None:
    ran = Ran(external=True)
    ran.finish()
    assert sorted(ran.names()) == [".tenuto", "Task.done", "Task.lock", "Task.pid", "params.json"]
    assert ran.machine.files.list(JOB.private) == ["launch.json"]


def test_the_next_attempt_goes_on_counting() -> None:
    ran = Ran(owner="experiments/lr/1", retry_count=2)
    first = ran.launch
    ran.finish()
    assert ran.lock is not None
    ran.lock.close()
    second = ran.open(owner="experiments/other/1")
    assert (second.attempt, second.owner, second.life) == (2, "experiments/lr/1", first.life)
    assert "Task.done" not in ran.names()


def test_a_runner_that_dies_at_any_step_of_its_end_leaves_a_job_that_is_done_or_lost() -> None:
    rows = []
    for step in range(60):
        ran = Ran(owner="experiments/lr/1")
        before = len(ran.disk.operations)
        ran.disk.crash_after(step)
        try:
            ran.finish()
        except Crash:
            ran.disk.heal()
        else:
            ran.disk.heal()
            break
        found = steps.look(ran.machine, JOB)
        if found.derived.marker is None:
            assert ran.names() >= ALL - {"Task.done"}
        else:
            assert ran.read().owner == "experiments/lr/1"
        rows.append(found.derived.marker is not None)
        began_to_remove = any(operation == "remove" for operation, _ in ran.disk.operations[before:])
        ran.disk.power_loss()
        if began_to_remove:
            assert ran.read().owner == "experiments/lr/1"
    assert rows == sorted(rows), "once it is done it stays done"
    assert {True, False} == set(rows)
    assert sorted(ran.names()) == KEPT


@pytest.mark.parametrize("step", range(25))
def test_a_disk_that_refuses_a_step_of_the_end_loses_no_result(step: int) -> None:
    ran = Ran()
    ran.disk.fail_after(step, 5)
    try:
        ran.finish()
    except OSError:
        assert steps.look(ran.machine, JOB).derived.marker is None or step < 8
    else:
        ran.disk.heal()
        assert ran.read().nonce == ran.launch.nonce
