"""Jobs of real processes, from submission to their end."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from pathlib import Path

import pytest

from tenuto.errors import DirectoryUnusable, GraphError, UnsubmittedTask
from tenuto.launchers.instructions import Limits
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord, TransientMode
from tenuto.scheduler.intake import MOST_GATHERED
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.listeners import Listener
from tenuto.testing.jobs import FakeOwner

from .builders import WAIT_S, Bench, eventually, lines
from .tasks_for_tests import AfterAfterFailure, AfterFailure, Fail, Hold, Note, NoteAfter

S = JobState


def note(name: str, ledger: Path) -> Note:
    return Note.C(name=name, ledger=ledger)


def test_a_job_runs_once_and_its_result_is_kept(bench: Bench, tmp_path: Path) -> None:
    job = bench.submit(note("a", tmp_path / "ledger"))
    assert job.wait(WAIT_S) is S.DONE
    assert job.result() == "noted a"
    assert lines(tmp_path / "ledger") == ["a"]
    assert job.attempt == 1


def test_a_job_passes_through_its_states_in_order(bench: Bench, tmp_path: Path) -> None:
    job = bench.submit(note("a", tmp_path / "ledger"))
    bench.wait()
    bench.scheduler.drain()
    assert bench.owner.history[job.job_id] == [S.WAITING, S.READY, S.SCHEDULED, S.RUNNING, S.DONE]
    assert job.submittime <= job.starttime <= job.endtime  # type: ignore[operator]


def test_a_caller_that_submits_very_many_jobs_lets_them_be_taken_in(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.scheduler.scheduler.GATHER_S", 3600.0)  # nothing else has them taken in
    bench.launcher.slots = 0
    for number in range(MOST_GATHERED):
        assert len(bench.scheduler.waitingjobs) == 0
        bench.submit(note(str(number), tmp_path / "ledger"))
    assert len(bench.scheduler.waitingjobs) == MOST_GATHERED


def test_very_many_can_be_submitted_in_the_loop_itself(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.scheduler.scheduler.GATHER_S", 3600.0)
    bench.launcher.slots = 0
    jobs = [bench.job(note(str(number), tmp_path / "ledger")) for number in range(MOST_GATHERED)]
    for job in jobs[:-1]:
        bench.scheduler.submit(job, bench.owner)
    asyncio.run_coroutine_threadsafe(
        bench.scheduler.aio_registerJob(jobs[-1], bench.owner), bench.scheduler.loop
    ).result(WAIT_S)
    assert len(bench.scheduler.waitingjobs) == MOST_GATHERED


def test_the_same_identity_is_one_job_for_all_owners(bench: Bench, tmp_path: Path) -> None:
    other = FakeOwner("other")
    first = bench.submit(note("a", tmp_path / "ledger"))
    second = bench.scheduler.submit(bench.job(note("a", tmp_path / "ledger")), other)
    assert first is second
    bench.wait()
    bench.scheduler.wait(other, WAIT_S)
    assert lines(tmp_path / "ledger") == ["a"]


def test_a_job_starts_after_all_that_it_depends_on(bench: Bench, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    task = note("0", ledger)
    previous = bench.submit(task)
    for number in range(1, 5):
        task = NoteAfter.C(name=str(number), ledger=ledger, before=task)
        previous = bench.submit(task, previous)
    bench.wait()
    assert lines(ledger) == ["0", "1", "2", "3", "4"]


def test_a_failure_names_itself_and_strands_what_follows(bench: Bench) -> None:
    cause, middle = Fail.C(message="no luck"), None
    first = bench.submit(cause)
    middle = AfterFailure.C(before=cause)
    second = bench.submit(middle, first)
    third = bench.submit(AfterAfterFailure.C(before=middle), second)
    bench.wait()
    assert first.failure_status is JobFailureStatus.FAILED
    assert "no luck" in (first.state_record.message or "")
    for stranded in (second, third):
        assert stranded.failure_status is JobFailureStatus.DEPENDENCY
        assert first.job_id[:12] in (stranded.state_record.message or "")
        assert not Path(stranded.paths.failed).exists()
    assert bench.scheduler.counts(bench.owner).failed == 3
    assert bench.scheduler.counts(bench.owner).unfinished == 0


def test_a_dependent_of_a_job_that_already_failed_is_stranded_at_once(bench: Bench) -> None:
    cause = Fail.C(message="no")
    first = bench.submit(cause)
    bench.wait()
    second = bench.submit(AfterFailure.C(before=cause), first)
    assert second.wait(WAIT_S) is S.ERROR
    assert second.failure_status is JobFailureStatus.DEPENDENCY


def test_a_done_job_is_reused_and_nothing_is_written_in_its_directory(bench: Bench, tmp_path: Path) -> None:
    bench.submit(note("a", tmp_path / "ledger")).wait(WAIT_S)
    directory = bench.scheduler.jobs.popitem()[0]
    before = snapshot(directory)
    again = Bench(tmp_path / "ws")
    job = again.submit(note("a", tmp_path / "ledger"))
    again.wait()
    again.scheduler.drain()
    assert again.owner.history[job.job_id] == [S.DONE]
    assert job.result() == "noted a"
    again.close()
    assert snapshot(directory) == before
    assert lines(tmp_path / "ledger") == ["a"]


def snapshot(directory: str) -> dict[str, tuple[int, int]]:
    found = {}
    for folder, _, names in os.walk(directory):
        for name in [*names, "."]:
            status = os.lstat(os.path.join(folder, name))
            found[os.path.join(folder, name)] = (status.st_mtime_ns, status.st_ino)
    return found


def test_submitting_what_failed_tries_it_again(bench: Bench) -> None:
    job = bench.submit(Fail.C(message="no"))
    assert job.wait(WAIT_S) is S.ERROR
    assert bench.submit(Fail.C(message="no")) is job
    assert job.wait(WAIT_S) is S.ERROR
    assert job.attempt == 2
    assert bench.scheduler.counts(bench.owner).failed == 1


def test_a_waiting_job_can_be_cancelled(bench: Bench, tmp_path: Path) -> None:
    release = tmp_path / "release"
    held = Hold.C(name="held", ledger=tmp_path / "ledger", release=release)
    first = bench.submit(held)
    second = bench.submit(note("b", tmp_path / "ledger"), first)
    bench.scheduler.cancel(second, "not wanted")
    assert second.wait(WAIT_S) is S.ERROR
    assert second.failure_status is JobFailureStatus.CANCELLED
    release.touch()
    assert first.wait(WAIT_S) is S.DONE
    assert "b" not in lines(tmp_path / "ledger")


def test_a_running_job_can_be_cancelled(bench: Bench, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    job = bench.submit(Hold.C(name="held", ledger=ledger, release=tmp_path / "never"))
    eventually(lambda: lines(ledger), "the job to begin")
    bench.scheduler.cancel(job, "enough")
    assert job.wait(WAIT_S) is S.ERROR
    assert job.failure_status is JobFailureStatus.CANCELLED
    assert job.state_record.message == "enough"


def test_no_more_jobs_run_at_once_than_there_are_slots(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "ws", slots=2)
    ledger, release = tmp_path / "ledger", tmp_path / "release"
    for number in range(5):
        bench.submit(Hold.C(name=str(number), ledger=ledger, release=release))
    eventually(lambda: len(lines(ledger)) == 2, "two jobs to begin")
    assert sum(job.state.running() for job in bench.scheduler.jobs.values()) == 2
    release.touch()
    bench.wait()
    assert len(lines(ledger)) == 5
    bench.close()


def test_a_scheduler_that_is_closed_starts_no_other_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The slot of a job that goes on without its scheduler was given to the next one."""
    bench = Bench(tmp_path / "ws", slots=1)
    ledger, release = tmp_path / "ledger", tmp_path / "release"
    goes_on = bench.submit(Hold.C(name="a", ledger=ledger, release=release))
    eventually(lambda: lines(ledger), "the first job to begin")
    waiting = bench.submit(note("b", ledger))
    eventually(lambda: waiting.state is S.READY, "the second job to wait for a slot")
    bench.scheduler.close()
    gc.collect()
    assert not Path(waiting.paths.launch).exists()
    assert not caplog.records, "a coroutine that was started, and never ended"
    release.touch()
    eventually(Path(goes_on.paths.done).exists, "the first job to end")
    assert len(lines(ledger)) == 1
    bench.launcher.close()


def test_a_directory_that_cannot_be_used_is_refused_at_submit(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "jobs").write_text("a file where a directory should be")
    with pytest.raises(DirectoryUnusable, match="ws/jobs"):
        bench.submit(note("a", tmp_path / "ledger"))
    assert not bench.scheduler.jobs
    assert bench.scheduler.counts(bench.owner).unfinished == 0


def test_a_dependency_that_was_not_submitted_is_refused(bench: Bench, tmp_path: Path) -> None:
    unknown = bench.job(note("a", tmp_path / "ledger"))
    with pytest.raises(UnsubmittedTask, match="was not submitted"):
        bench.submit(note("b", tmp_path / "ledger"), unknown)


def test_a_job_that_depends_on_itself_is_refused(bench: Bench, tmp_path: Path) -> None:
    job = bench.job(note("a", tmp_path / "ledger"))
    with pytest.raises(GraphError, match="depends on itself"):
        bench.submit(note("a", tmp_path / "ledger"), job)


def test_callbacks_that_raise_change_nothing(bench: Bench, tmp_path: Path) -> None:
    heard: list[Job] = []
    job = bench.job(note("a", tmp_path / "ledger"))
    job.on_completed(lambda _: 1 / 0)
    job.on_completed(heard.append)
    bench.scheduler.submit(job, bench.owner)
    assert job.wait(WAIT_S) is S.DONE
    eventually(lambda: heard == [job], "the second callback")


def test_a_callback_that_is_added_after_the_end_is_called_and_the_owner_waits_for_that(
    bench: Bench, tmp_path: Path
) -> None:
    job = bench.submit(note("a", tmp_path / "ledger"))
    assert job.wait(WAIT_S) is S.DONE
    may_end = threading.Event()
    heard: list[Job] = []

    def completed(job: Job) -> None:
        may_end.wait(WAIT_S)
        heard.append(job)

    job.on_completed(completed)
    assert bench.scheduler.call(lambda: bench.scheduler.counts(bench.owner).outputs) > 0
    may_end.set()
    bench.scheduler.wait_until(lambda: bench.scheduler.counts(bench.owner).outputs == 0, WAIT_S)
    assert heard == [job]


def test_a_listener_that_raises_is_left_alone(bench: Bench, tmp_path: Path) -> None:
    class Broken(Listener):
        def job_state(self, job: Job, record: StateRecord) -> None:
            raise RuntimeError("broken listener")

    bench.scheduler.add_listener(Broken())
    job = bench.submit(note("a", tmp_path / "ledger"))
    assert job.wait(WAIT_S) is S.DONE


def test_a_transient_job_runs_only_when_it_is_needed(bench: Bench, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    unneeded = bench.submit(note("unneeded", ledger), transient=TransientMode.TRANSIENT)
    task = note("needed", ledger)
    needed = bench.submit(task, transient=TransientMode.TRANSIENT)
    last = bench.submit(NoteAfter.C(name="last", ledger=ledger, before=task), needed)
    bench.wait()
    assert lines(ledger) == ["needed", "last"]
    assert unneeded.wait(WAIT_S) is S.UNSCHEDULED, "to wait for what will not run must not hang"
    assert needed.state is last.state is S.DONE


def test_two_schedulers_share_one_job(bench: Bench, tmp_path: Path) -> None:
    ledger, release = tmp_path / "ledger", tmp_path / "release"
    other = Bench(tmp_path / "ws")
    jobs = [b.submit(Hold.C(name="held", ledger=ledger, release=release)) for b in (bench, other)]
    eventually(lambda: lines(ledger), "the job to begin")
    release.touch()
    assert [job.wait(WAIT_S) for job in jobs] == [S.DONE, S.DONE]
    assert len(lines(ledger)) == 1
    other.close()


@pytest.mark.parametrize("removed", [True, False])
def test_a_done_job_whose_lock_is_held_is_looked_at_again(
    bench: Bench, tmp_path: Path, removed: bool
) -> None:
    bench.submit(note("a", tmp_path / "ledger")).wait(WAIT_S)
    other = Bench(tmp_path / "ws")
    paths = other.job(note("a", tmp_path / "ledger")).paths
    lock = bench.machine.locks.try_lock(paths.lock)
    assert lock is not None
    job = other.submit(note("a", tmp_path / "ledger"))
    eventually(lambda: job.has_owner(other.owner) and job.state is S.WAITING, "the job to wait for the lock")
    if removed:
        os.rename(paths.directory, tmp_path / "trash")
    lock.close()
    assert job.wait(WAIT_S) is S.DONE
    assert lines(tmp_path / "ledger") == ["a", "a"][: 1 + removed]
    other.close()


def test_a_job_that_was_removed_since_its_last_owner_left_is_run_again(bench: Bench, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    task = note("a", ledger)
    job = bench.submit(task)
    bench.wait()
    bench.scheduler.release(bench.owner)
    os.rename(job.paths.directory, tmp_path / "trash")
    bench.owner = FakeOwner("next")
    assert bench.submit(NoteAfter.C(name="b", ledger=ledger, before=task), job).wait(WAIT_S) is S.DONE
    assert lines(ledger) == ["a", "a", "b"]
    assert job.has_owner(bench.owner), "who needs a job owns it"


def test_a_transient_job_sleeps_again_when_the_job_that_needs_it_is_cancelled(
    bench: Bench, tmp_path: Path
) -> None:
    ledger, release = tmp_path / "ledger", tmp_path / "release"
    held = [bench.submit(Hold.C(name=str(number), ledger=ledger, release=release)) for number in range(2)]
    task = note("needed", ledger)
    needed = bench.submit(task, transient=TransientMode.TRANSIENT)
    last = bench.submit(NoteAfter.C(name="last", ledger=ledger, before=task), needed)
    eventually(lambda: needed.state is S.READY, "the transient job to be wanted")
    bench.scheduler.cancel(last)
    assert last.wait(WAIT_S) is S.ERROR
    assert needed.wait(WAIT_S) is S.UNSCHEDULED
    release.touch()
    bench.wait()
    assert all(job.state is S.DONE for job in held)
    assert len(lines(ledger)) == 2
    bench.submit(NoteAfter.C(name="last", ledger=ledger, before=task), needed)
    bench.wait()
    assert lines(ledger)[2:] == ["needed", "last"]


def test_a_process_that_only_looked_whether_a_job_can_be_removed_does_not_fail_it(
    bench: Bench, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    bench.submit(note("a", ledger)).wait(WAIT_S)
    other = Bench(tmp_path / "ws", slots=1)
    blocker = other.submit(Hold.C(name="held", ledger=ledger, release=tmp_path / "release"))
    paths = other.job(note("a", ledger)).paths
    lock = bench.machine.locks.try_lock(paths.lock)
    assert lock is not None
    job = other.submit(note("a", ledger))
    eventually(lambda: job.state is S.WAITING and blocker.state is S.RUNNING, "the job to wait for the lock")
    os.rename(paths.directory, tmp_path / "trash")
    lock.close()
    eventually(lambda: job.state is S.READY, "the job to be made again")
    assert job.attempt == 1, "of the directory that is gone"
    os.makedirs(paths.private)
    lock = bench.machine.locks.try_lock(paths.lock)
    assert lock is not None
    (tmp_path / "release").touch()
    eventually(lambda: job.state is S.SCHEDULED, "the job to find its lock taken")
    lock.close()
    assert job.wait(WAIT_S) is S.DONE
    other.close()


def test_an_owner_is_not_told_that_all_is_done_while_submissions_are_taken_in(
    bench: Bench, tmp_path: Path
) -> None:
    """Two jobs that are found done come together: after the first, nothing is unfinished, and yet not all."""
    names = ("a", "b")
    for name in names:
        bench.submit(Note.C(name=name, ledger=tmp_path / "ledger"))
    bench.wait()
    later = Bench(tmp_path / "ws")
    known: list[int] = []
    try:
        jobs = [later.job(Note.C(name=name, ledger=tmp_path / "ledger")) for name in names]

        def both() -> None:
            for job in jobs:
                later.scheduler.submit(job, later.owner)
            later.scheduler.exitCondition._waiters.append((watch, later.scheduler.loop.create_future()))
            later.scheduler._take_in()

        def watch() -> bool:
            known.append(sum(job.state is JobState.DONE for job in jobs))
            return False

        later.scheduler.call(both)
        later.scheduler.call(lambda: None)  # waiting jobs are asked in the step before this one
        assert set(known) == {2}
    finally:
        later.close()


def test_a_failed_job_is_run_again_as_its_newest_submission_wants(bench: Bench) -> None:
    """Found by the soak: the closed launcher of an experiment before was used, and its processes stayed."""
    job = bench.submit(Fail.C(message="no"))
    bench.wait()
    assert job.state is S.ERROR
    other = bench.job(Fail.C(message="no"), limits=Limits(walltime_s=77.0))
    other.launcher = SpawnLauncher(slots=1)
    known = bench.scheduler.submit(other, bench.owner)
    bench.wait()
    assert known is job
    assert (job.launcher, job.limits, job.work) == (other.launcher, other.limits, other.work)
    assert job.attempt == 2


def test_a_job_without_an_owner_is_forgotten_and_found_again(bench: Bench, tmp_path: Path) -> None:
    """Found by the soak: a process that runs one experiment after the other grew with each job."""
    task = note("a", tmp_path / "ledger")
    forgotten = weakref.ref(bench.submit(task))
    kept = bench.submit(note("b", tmp_path / "ledger"))
    bench.wait()
    bench.scheduler.release(bench.owner)
    assert not bench.scheduler.jobs
    task._state.job, bench.owner = None, FakeOwner()
    eventually(lambda: gc.collect() is not None and forgotten() is None, "the job to be collected")
    again = bench.submit(note("a", tmp_path / "ledger"))
    assert bench.submit(note("b", tmp_path / "ledger")) is kept
    bench.wait()
    assert (again.state, kept.state) == (S.DONE, S.DONE)
    assert sorted(lines(tmp_path / "ledger")) == ["a", "b"]
    assert len(bench.scheduler.jobs) == 2


def test_a_former_job_can_still_be_needed(bench: Bench, tmp_path: Path) -> None:
    """Also one that sleeps, because nobody has needed it yet."""
    sleeping = bench.submit(note("a", tmp_path / "ledger"), transient=TransientMode.TRANSIENT)
    bench.wait()
    bench.scheduler.release(bench.owner)
    assert not bench.scheduler.jobs
    gc.collect()
    bench.owner = FakeOwner()
    assert bench.submit(note("b", tmp_path / "ledger"), sleeping).wait(WAIT_S) is S.DONE
    assert lines(tmp_path / "ledger") == ["a", "b"]
