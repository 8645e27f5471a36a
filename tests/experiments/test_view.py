"""Owns what an outsider sees of a workspace: states within a run, liveness, safety among hostile files."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.errors import Ambiguous, NotFound
from tenuto.experiments.run_record import RunState, lock_experiment
from tenuto.experiments.runs import CRASHED
from tenuto.experiments.workspace_view import WorkspaceView, resolved_readings
from tenuto.jobs.key import JobKey
from tenuto.jobs.view import JobReading
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.workspace.jobslist import JobLine
from tenuto.workspace.layout import directory_name, name_of_directory
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import LockHandle
from tests.jobs.workspaces import MACHINE, NOW, RUN, Builder, line, params


@pytest.fixture
def workspace(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "ws")


@pytest.fixture
def live(workspace: Builder) -> Iterator[LockHandle]:
    lock = lock_experiment(MACHINE, workspace.layout, "sweep")
    yield lock
    lock.close()


# -- runs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["abc", "cba", "bca"])
def test_runs_of_one_second_have_one_order(workspace: Builder, names: str) -> None:
    """It was that of their directories, so that the tags of a job came from this run or that."""
    for place, name in enumerate(names):
        began = NOW + timedelta(milliseconds=place)
        workspace.run(line("ab12")._replace(tags={"of": name}), experiment=name, started=began)
    workspace.run(run_id=f"{RUN}.10", experiment="z")
    workspace.run(run_id=f"{RUN}.2", experiment="a", started=NOW + timedelta(seconds=5))
    view = WorkspaceView(workspace.layout, MACHINE)
    runs = [run.name for run in view.all_runs()]
    assert runs == [f"z/{RUN}.10", f"a/{RUN}.2", *(f"{name}/{RUN}" for name in reversed(names))]
    assert [one.experiment_id for one in view.experiments()][:2] == ["z", "a"]
    key = workspace.job("ab12")
    assert view.runs_of(key)[0].experiment_id == names[-1]
    assert [row.tags for row in view.all_jobs()] == [{"of": names[-1]}]


# -- within a run ------------------------------------------------------------------------------------


def readings(**states: JobState) -> dict[str, JobReading]:
    return {
        job_id: JobReading(state, reason=JobFailureStatus.FAILED if state is JobState.ERROR else None)
        for job_id, state in states.items()
    }


def test_the_dependencies_of_a_job_decide_whether_it_waits_is_ready_or_stranded() -> None:
    U, D, E, R = JobState.UNSCHEDULED, JobState.DONE, JobState.ERROR, JobState.RUNNING
    lines = [
        line("done"),
        line("bad"),
        line("busy"),
        line("ready", "done"),
        line("waits", "done", "busy"),
        line("stranded", "bad"),
        line("further", "stranded"),
    ]
    seen = readings(done=D, bad=E, busy=R, ready=U, waits=U, stranded=U, further=U)
    alive = {name: reading.state.name for name, reading in resolved_readings(lines, seen, live=True).items()}
    assert alive == {
        "done": "DONE",
        "bad": "ERROR",
        "busy": "RUNNING",
        "ready": "READY",
        "waits": "WAITING",
        "stranded": "ERROR",
        "further": "ERROR",
    }
    over = resolved_readings(lines, seen, live=False)
    assert over["waits"].state is JobState.UNSCHEDULED
    assert over["further"].reason is JobFailureStatus.DEPENDENCY
    assert over["further"].message == over["stranded"].message == "my.Train bad failed (FAILED)"


def test_a_failure_of_an_earlier_run_is_to_be_run_again_while_the_run_lives() -> None:
    old = JobReading(JobState.ERROR, JobFailureStatus.FAILED, endtime=NOW - timedelta(hours=1))
    lines = [line("again"), line("after", "again")]
    seen = {"again": old, "after": JobReading(JobState.UNSCHEDULED)}
    alive = resolved_readings(lines, seen, live=True)
    assert (alive["again"].state, alive["after"].state) == (JobState.READY, JobState.WAITING)
    assert resolved_readings(lines, seen, live=False)["again"].state is JobState.ERROR
    fresh = {**seen, "again": old._replace(endtime=NOW + timedelta(seconds=1))}
    assert resolved_readings(lines, fresh, live=True)["after"].reason is JobFailureStatus.DEPENDENCY


def test_a_transient_job_waits_only_if_another_job_needs_it() -> None:
    lines = [
        line("idle", transient=TransientMode.TRANSIENT),
        line("used", transient=TransientMode.REMOVE),
        line("user", "used"),
    ]
    seen = readings(idle=JobState.UNSCHEDULED, used=JobState.UNSCHEDULED, user=JobState.UNSCHEDULED)
    found = resolved_readings(lines, seen, live=True)
    assert found["idle"].state is JobState.UNSCHEDULED
    assert found["used"].state is JobState.READY


def test_dependencies_that_are_unknown_or_in_a_circle_do_no_harm() -> None:
    lines = [line("a", "b"), line("b", "a"), line("c", "never-heard-of")]
    seen = readings(a=JobState.UNSCHEDULED, b=JobState.UNSCHEDULED, c=JobState.UNSCHEDULED)
    assert len(resolved_readings(lines, seen, live=True)) == 3


# -- runs --------------------------------------------------------------------------------------------


def test_states_come_from_the_directories_and_not_from_status_files(workspace: Builder) -> None:
    workspace.job("done")
    workspace.job("bad", reason=JobFailureStatus.MEMORY)
    workspace.job("lost", ended=None)
    workspace.unstarted("never")
    workspace.run(line("done"), line("bad"), line("lost"), line("never"))
    assert workspace.states() == {"done": "DONE", "bad": "ERROR", "lost": "ERROR", "never": "UNSCHEDULED"}
    counts = workspace.view.counts(workspace.view.run("sweep"))
    assert counts == {JobState.DONE: 1, JobState.ERROR: 2, JobState.UNSCHEDULED: 1}


def test_a_run_that_says_running_is_live_only_while_its_process_has_the_lock(
    workspace: Builder, live: LockHandle
) -> None:
    workspace.run(state=RunState.RUNNING)
    assert workspace.view.run("sweep").live
    live.close()
    crashed = workspace.view.run("sweep")
    assert (crashed.live, crashed.state, crashed.message) == (False, RunState.INTERRUPTED, CRASHED)


def test_a_crashed_run_does_not_come_alive_when_another_process_has_the_lock(
    workspace: Builder, live: LockHandle
) -> None:
    workspace.run(state=RunState.RUNNING, pid=1)
    assert not workspace.view.run("sweep").live


def test_only_the_newest_of_two_runs_is_live(workspace: Builder, live: LockHandle) -> None:
    workspace.run(state=RunState.RUNNING)
    workspace.run(state=RunState.RUNNING, run_id="20260101_120000.2")
    workspace.run(state=RunState.RUNNING, run_id="20260101_120000.10")
    assert [(run.run_id, run.live) for run in workspace.view.runs("sweep")] == [
        ("20260101_120000.10", True),
        ("20260101_120000.2", False),
        ("20260101_120000", False),
    ]


def test_runs_are_found_by_experiment_by_id_and_by_the_beginning_of_it(workspace: Builder) -> None:
    workspace.run(run_id="20260101_120000")
    workspace.run(run_id="20260102_120000")
    workspace.run(run_id="20260102_120000", experiment="other")
    assert workspace.view.run("sweep").run_id == "20260102_120000"
    assert workspace.view.run("20260101").run_id == "20260101_120000"
    assert workspace.view.run("other/20260102_120000").experiment_id == "other"
    with pytest.raises(Ambiguous, match="2 runs"):
        workspace.view.run("20260102")
    with pytest.raises(NotFound):
        workspace.view.run("2027")


# -- jobs --------------------------------------------------------------------------------------------


def test_jobs_are_found_by_id_by_task_and_by_path(workspace: Builder) -> None:
    one = workspace.job("abc1")
    two = workspace.job("abc2")
    other = workspace.job("abc1x", "my.Evaluate")
    find = workspace.view.find
    assert set(find("abc")) == {one, two, other}
    assert find("abc1") == [one]  # all of it, though another begins so
    assert set(find("Train")) == {one, two}
    assert find("Train/abc2") == find("my.Train/abc2") == find(workspace.layout.job(*two).directory) == [two]
    assert find("zzz") == []


def test_orphans_are_finished_jobs_that_no_run_lists(workspace: Builder) -> None:
    workspace.job("kept")
    orphan = workspace.job("orphan")
    workspace.run(line("kept"))
    assert [job.job_key for job in workspace.view.orphans()] == [orphan]


def test_a_job_whose_list_is_unreadable_but_linked_is_no_orphan(workspace: Builder) -> None:
    workspace.job("kept")
    workspace.run(line("kept"))
    Path(workspace.layout.run("sweep", RUN).jobs_list).write_bytes(b"garbage\n" * 3)
    assert workspace.view.orphans() == []


def test_a_job_of_an_ended_run_whose_directory_was_removed_is_deleted(workspace: Builder) -> None:
    workspace.run(line("gone"))
    (job,) = workspace.view.jobs(workspace.view.run("sweep"))
    assert (job.state, job.reason) == (JobState.ERROR, JobFailureStatus.DELETED)
    assert job.message == "its directory was removed"
    assert workspace.view.counts(workspace.view.run("sweep")) == {JobState.ERROR: 1}


# -- one job -----------------------------------------------------------------------------------------


class CountingFiles:
    """The files of this machine, and how often they were asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        asked = getattr(MACHINE.files, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            return asked(*arguments, **options)

        return counted


def test_one_job_of_a_large_run_is_looked_at_without_the_others(workspace: Builder) -> None:
    lines = [line(f"d{number}") for number in range(400)]
    for one in lines:
        workspace.job(one.job_id)
    workspace.job("failed", reason=JobFailureStatus.FAILED)
    workspace.unstarted("stranded")
    workspace.run(*lines, line("failed"), line("stranded", "failed"), line("gone"))
    files: Any = CountingFiles()
    view = WorkspaceView(workspace.layout, MACHINE._replace(files=files))
    for expected in [workspace.view.jobs(workspace.view.run("sweep"))[place] for place in (3, -3, -2, -1)]:
        files.calls = 0
        assert view.job(expected.job_key) == expected
        assert files.calls < 60, expected
        files.calls = 0
        assert view.detail(expected.job_key).job.state is expected.state
        assert files.calls < 120, expected


def test_a_transient_job_is_needed_through_a_transient_one_that_failed(workspace: Builder) -> None:
    transient = TransientMode.TRANSIENT
    for job_id, kind in (("first", "failed before"), ("second", "failed"), ("last", "failed")):
        _KINDS[kind](workspace, job_id)
    lines = [line("first", transient=transient), line("second", "first", transient=transient)]
    workspace.run(*lines, line("last", "second"), state=RunState.RUNNING)
    with contextlib.closing(lock_experiment(MACHINE, workspace.layout, "sweep")):
        everything = workspace.view.jobs(workspace.view.run("sweep"))
        assert everything[0].state is JobState.READY
        assert workspace.view.job(everything[0].job_key) == everything[0]


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_one_job_looks_as_it_does_among_all(data: st.DataObject) -> None:
    """In live and in ended runs, for every kind of job and any dependencies."""
    with tempfile.TemporaryDirectory() as root:
        workspace = Builder(Path(root, "ws"))
        kinds = data.draw(st.lists(st.sampled_from(sorted(_KINDS)), min_size=1, max_size=7))
        lines = []
        for number, kind in enumerate(kinds):
            earlier = [f"j{other}" for other in range(number)]
            needs = data.draw(st.lists(st.sampled_from(earlier), unique=True, max_size=2)) if earlier else []
            _KINDS[kind](workspace, f"j{number}")
            lines.append(line(f"j{number}", *needs, transient=data.draw(st.sampled_from(TransientMode))))
        is_live = data.draw(st.booleans())
        workspace.run(*lines, state=RunState.RUNNING if is_live else RunState.DONE)
        lock = lock_experiment(MACHINE, workspace.layout, "sweep") if is_live else None
        try:
            everything = workspace.view.jobs(workspace.view.run("sweep"))
            assert [workspace.view.job(job.job_key) for job in everything] == everything
            for job in everything:
                detail = workspace.view.detail(job.job_key)
                needed = [one for one in everything if one.id in job.depends_on]
                assert sorted(detail.dependencies, key=lambda one: one.id) == needed
                assert detail.job == job
                assert list(detail.dependents) == [one for one in everything if job.id in one.depends_on]
        finally:
            if lock is not None:
                lock.close()


_KINDS: dict[str, Callable[[Builder, str], object]] = {
    "done": lambda workspace, job_id: workspace.job(job_id),
    "failed": lambda workspace, job_id: workspace.job(
        job_id, reason=JobFailureStatus.FAILED, ended=NOW + timedelta(hours=1)
    ),
    "failed before": lambda workspace, job_id: workspace.job(
        job_id, reason=JobFailureStatus.FAILED, ended=NOW - timedelta(hours=1)
    ),
    "lost": lambda workspace, job_id: workspace.job(job_id, ended=None),
    "unstarted": lambda workspace, job_id: workspace.unstarted(job_id),
    "gone": lambda workspace, job_id: None,
}


def test_a_job_that_waited_for_one_that_was_removed_later_did_not_fail(workspace: Builder) -> None:
    workspace.unstarted("waited")
    workspace.run(line("gone"), line("waited", "gone"))
    assert workspace.states() == {"gone": "ERROR", "waited": "UNSCHEDULED"}


# -- hostile workspaces ------------------------------------------------------------------------------


def look_at_everything(workspace: Builder) -> None:
    view = workspace.view
    for experiment in view.experiments():
        for run in experiment.runs:
            view.counts(run)
            view.jobs(run)
            view.commits(run)
    view.all_jobs()
    view.orphans()
    view.unowned()
    for key in view.job_keys():
        view.detail(key)


@pytest.mark.parametrize(
    "name", ["launch", "pid", "lock", "done", "failed", "params", "status", "out", "err"]
)
@pytest.mark.parametrize("kind", ["pipe", "link", "directory", "huge", "garbage", "loop"])
def test_strange_files_in_a_job_neither_hang_nor_raise(workspace: Builder, name: str, kind: str) -> None:
    key = workspace.job("a")
    workspace.run(line("a"))
    path = getattr(workspace.layout.job(*key), name)
    if os.path.lexists(path):
        os.unlink(path)
    make(path, kind)
    look_at_everything(workspace)
    assert key in list(workspace.view.job_keys()), "it is shown all the same"


@pytest.mark.parametrize("name", ["status", "jobs_list", "environment", "jobs", "events"])
@pytest.mark.parametrize("kind", ["pipe", "link", "directory", "huge", "garbage", "loop"])
def test_strange_files_in_a_run_neither_hang_nor_raise(workspace: Builder, name: str, kind: str) -> None:
    key = workspace.job("a")
    workspace.run(line("a"))
    path = Path(getattr(workspace.layout.run("sweep", RUN), name))
    if path.is_dir():
        path.rename(path.with_name("moved"))
    path.unlink(missing_ok=True)
    make(str(path), kind)
    look_at_everything(workspace)
    assert key in list(workspace.view.job_keys()), "its jobs are shown all the same"


def make(path: str, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        os.symlink("/etc/passwd", path)
    elif kind == "loop":
        os.symlink(path, path)
    elif kind == "directory":
        os.mkdir(path)
    elif kind == "huge":
        with open(path, "wb") as file:
            file.truncate(100 << 30)  # a sparse file: a reader without a limit would need 100 GB
    else:
        Path(path).write_bytes(b'{"version": 1, "attempt": "\xff\x1b[31m"')


def test_links_do_not_lead_out_of_the_workspace(workspace: Builder, tmp_path: Path) -> None:
    outside = Builder(tmp_path / "outside")
    key = outside.job("secret", params=params(password="hunter2"))
    jobs = Path(workspace.layout.jobs)
    (jobs / "my.Linked").symlink_to(Path(outside.layout.jobs, "my.Train"))
    (jobs / "my.Train").mkdir()
    (jobs / "my.Train" / "secret").symlink_to(outside.layout.job(*key).directory)
    workspace.run(line("secret"), JobLine("secret", "my.Linked", NOW))
    Path(workspace.layout.experiments, "linked").symlink_to(workspace.layout.experiment("sweep"))
    assert [one.experiment_id for one in workspace.view.experiments()] == ["sweep"]
    assert all(job.state is JobState.UNSCHEDULED for job in workspace.view.all_jobs())
    assert "hunter2" not in str([workspace.view.detail(key) for key in workspace.view.job_keys()])
    assert JobKey("my.Linked", "secret") not in set(workspace.view.job_keys())


def test_names_that_tenuto_never_makes_are_passed_over(workspace: Builder) -> None:
    jobs = Path(workspace.layout.jobs)
    for name in ("~zz", "a~2", ".hidden", "~ff", "a b", "-x"):
        (jobs / name / "abc").mkdir(parents=True)
    (jobs / "my.Train" / "UPPER").mkdir(parents=True)
    assert list(workspace.view.job_keys()) == []


@pytest.mark.parametrize("name", ["my.Train", "a/b", "ü", "~", "a~2f", ".x", "-x", "x.", "日本"])
def test_a_directory_tells_the_id_it_was_named_for(name: str) -> None:
    assert name_of_directory(directory_name(name)) == name


# -- speed -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.prove("it measures time")
def test_ten_thousand_jobs_are_counted_in_a_part_of_a_second(workspace: Builder) -> None:
    lines = [line(f"{number:05}") for number in range(10_000)]
    marker = Marker(1, "0" * 32, endtime=NOW).encode()
    for one in lines:
        paths = workspace.layout.job(one.task_id, one.job_id)
        os.makedirs(paths.directory)
        Path(paths.done).write_bytes(marker)
    workspace.run(*lines)
    run = workspace.view.run("sweep")
    began = time.process_time()
    assert workspace.view.counts(run)[JobState.DONE] == 10_000
    assert time.process_time() - began < 1.0  # about 0.2 s; a shared machine may be slower
