"""Owns what an outsider sees of a workspace: states within a run, liveness, safety among hostile files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tenuto.errors import Ambiguous, NotFound
from tenuto.experiments.locking import lock_experiment
from tenuto.experiments.runs import CRASHED
from tenuto.experiments.standing import within_run
from tenuto.experiments.status import RunState, RunStatus, write_run_status
from tenuto.experiments.view import WorkspaceView
from tenuto.jobs.difference import changed
from tenuto.jobs.key import JobKey
from tenuto.jobs.log import Follower, read_tail
from tenuto.jobs.parameters import read_stored
from tenuto.jobs.progress import last_progress
from tenuto.jobs.sight import Sight
from tenuto.launchers.instructions import instruct
from tenuto.lifecycle.events import JobProgressEvent, ProcessStartedEvent
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.workspace import job_directory
from tenuto.workspace.jobslist import JobLine, JobLinks, JobsList
from tenuto.workspace.journal import EventWriter
from tenuto.workspace.layout import Layout, directory_name, name_of_directory
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Marker, write_marker
from tenuto.workspace.ports import LockHandle

MACHINE = this_machine()
NOW = MACHINE.clock.now()
RUN = "20260101_120000"


class Builder:
    """Writes a workspace as experiments would, file by file."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(str(root))
        self.view = WorkspaceView(self.layout, MACHINE)
        MACHINE.files.make_directory(self.layout.jobs)
        MACHINE.files.make_directory(self.layout.experiments)

    def run(
        self,
        *lines: JobLine,
        run_id: str = RUN,
        state: RunState = RunState.DONE,
        experiment: str = "sweep",
        pid: int | None = None,
    ) -> None:
        paths = self.layout.run(experiment, run_id)
        MACHINE.files.make_directory(paths.jobs)
        listed = JobsList(MACHINE.files, paths, MACHINE.clock)
        for line in lines:
            listed.append(line)
            JobLinks(MACHINE.files, paths).add(line.task_id, line.job_id)
        listed.close()
        own = MACHINE.processes.own()
        status = RunStatus(experiment, run_id, state, NOW, own.host, own.pid if pid is None else pid)
        write_run_status(MACHINE.files, paths, status)

    def job(
        self,
        job_id: str,
        task_id: str = "my.Train",
        *,
        ended: datetime | None = NOW,
        reason: JobFailureStatus | None = None,
        params: str | None = None,
    ) -> JobKey:
        """A job with one attempt, which has ended unless `ended` is None."""
        paths = self.layout.job(task_id, job_id)
        lock = job_directory.take_lock(MACHINE, paths)
        assert lock is not None
        found = job_directory.look(MACHINE, paths)
        launch = job_directory.open_attempt(
            MACHINE,
            paths,
            lock,
            found,
            launcher="spawn",
            job_name=job_id,
            instructions=instruct(task_id, job_id),
        )
        if params is not None:
            Path(paths.params).write_text(params)
        if ended is not None:
            marker = Marker(launch.attempt, launch.nonce, reason, starttime=ended, endtime=ended)
            write_marker(MACHINE.files, paths, marker)
        lock.close()
        return JobKey(task_id, job_id)

    def states(self, run: str = "sweep") -> dict[str, str]:
        return {job.job_id: job.state.name for job in self.view.jobs(self.view.run(run))}


@pytest.fixture
def workspace(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "ws")


@pytest.fixture
def live(workspace: Builder) -> Iterator[LockHandle]:
    lock = lock_experiment(MACHINE, workspace.layout, "sweep")
    yield lock
    lock.close()


def line(job_id: str, *depends_on: str, transient: TransientMode = TransientMode.NONE) -> JobLine:
    return JobLine(job_id, "my.Train", NOW, depends_on=depends_on, transient=transient)


def params(**values: object) -> str:
    objects = [{"type": "my.Train", "class": ["my", "Train", "/my.py"], "values": values}]
    return json.dumps({"format": "tenuto-config", "version": 1, "objects": objects, "value": {"$ref": 0}})


def document(objects: str, value: int) -> str:
    return (
        f'{{"format": "tenuto-config", "version": 1, "objects": [{objects}], "value": {{"$ref": {value}}}}}'
    )


# -- within a run ------------------------------------------------------------------------------------


def sights(**states: JobState) -> dict[str, Sight]:
    return {
        job_id: Sight(state, reason=JobFailureStatus.FAILED if state is JobState.ERROR else None)
        for job_id, state in states.items()
    }


def test_who_waits_who_is_ready_and_who_is_stranded_follows_from_the_dependencies() -> None:
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
    seen = sights(done=D, bad=E, busy=R, ready=U, waits=U, stranded=U, further=U)
    alive = {name: sight.state.name for name, sight in within_run(lines, seen, live=True).items()}
    assert alive == {
        "done": "DONE",
        "bad": "ERROR",
        "busy": "RUNNING",
        "ready": "READY",
        "waits": "WAITING",
        "stranded": "ERROR",
        "further": "ERROR",
    }
    over = within_run(lines, seen, live=False)
    assert over["waits"].state is JobState.UNSCHEDULED
    assert over["further"].reason is JobFailureStatus.DEPENDENCY
    assert over["further"].message == over["stranded"].message == "my.Train bad failed (FAILED)"


def test_a_failure_of_an_earlier_run_is_to_be_run_again_while_the_run_lives() -> None:
    old = Sight(JobState.ERROR, JobFailureStatus.FAILED, endtime=NOW - timedelta(hours=1))
    lines = [line("again"), line("after", "again")]
    seen = {"again": old, "after": Sight(JobState.UNSCHEDULED)}
    alive = within_run(lines, seen, live=True)
    assert (alive["again"].state, alive["after"].state) == (JobState.READY, JobState.WAITING)
    assert within_run(lines, seen, live=False)["again"].state is JobState.ERROR
    fresh = {**seen, "again": old._replace(endtime=NOW + timedelta(seconds=1))}
    assert within_run(lines, fresh, live=True)["after"].reason is JobFailureStatus.DEPENDENCY


def test_a_transient_job_waits_only_if_somebody_needs_it() -> None:
    lines = [
        line("idle", transient=TransientMode.TRANSIENT),
        line("used", transient=TransientMode.REMOVE),
        line("user", "used"),
    ]
    seen = sights(idle=JobState.UNSCHEDULED, used=JobState.UNSCHEDULED, user=JobState.UNSCHEDULED)
    found = within_run(lines, seen, live=True)
    assert found["idle"].state is JobState.UNSCHEDULED
    assert found["used"].state is JobState.READY


def test_dependencies_that_are_unknown_or_in_a_circle_do_no_harm() -> None:
    lines = [line("a", "b"), line("b", "a"), line("c", "never-heard-of")]
    seen = sights(a=JobState.UNSCHEDULED, b=JobState.UNSCHEDULED, c=JobState.UNSCHEDULED)
    assert len(within_run(lines, seen, live=True)) == 3


# -- runs --------------------------------------------------------------------------------------------


def test_states_come_from_the_directories_and_not_from_status_files(workspace: Builder) -> None:
    workspace.job("done")
    workspace.job("bad", reason=JobFailureStatus.MEMORY)
    workspace.job("lost", ended=None)
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
    with pytest.raises(NotFound):
        workspace.view.find_one("zzz")
    with pytest.raises(Ambiguous, match="2 jobs"):
        workspace.view.find_one("Train")


def test_orphans_are_finished_jobs_that_no_run_lists(workspace: Builder) -> None:
    workspace.job("kept")
    orphan = workspace.job("orphan")
    workspace.run(line("kept"))
    assert [job.key for job in workspace.view.orphans()] == [orphan]


def test_a_job_whose_list_is_unreadable_but_linked_is_no_orphan(workspace: Builder) -> None:
    workspace.job("kept")
    workspace.run(line("kept"))
    Path(workspace.layout.run("sweep", RUN).jobs_list).write_bytes(b"garbage\n" * 3)
    assert workspace.view.orphans() == []


def test_a_removed_directory_is_said_to_be_removed(workspace: Builder) -> None:
    workspace.run(line("gone"))
    (job,) = workspace.view.jobs(workspace.view.run("sweep"))
    assert job.message == "its directory was removed"


def test_stored_parameters_are_flat_and_compared_with_their_types(workspace: Builder) -> None:
    one = workspace.job("a", params=params(lr=1, shape={"$tuple": [1, 2]}, path={"$path": "/x"}))
    two = workspace.job("b", params=params(lr=True, shape={"$tuple": [1, 2]}, path={"$path": "/x"}))
    first, second = (read_stored(MACHINE.files, workspace.layout.job(*key)) for key in (one, two))
    assert first.parameters == {"lr": 1, "shape": [1, 2], "path": "/x"}
    assert [(found.path, found.here, found.there) for found in changed(first, second)] == [("lr", 1, True)]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        document('{"values": {"a": {"$ref": 0}}}', 0),
        document('{"values": {"a": {"$ref": 0}, "b": [{"$ref": true}]}}', 0),
        document('{"values": 1, "init_tasks": "x", "origin": 7}', 0),
        document('{"upstream": 3}', 0),
        document("", -5),
        '{"format": "tenuto-config", "version": 99, "objects": [], "value": 1}',
        "[" * 100_000,
    ],
)
def test_parameters_that_nobody_wrote_do_no_harm(workspace: Builder, content: str) -> None:
    key = workspace.job("a", params=content)
    read_stored(MACHINE.files, workspace.layout.job(*key))
    workspace.view.detail(key)
    assert key in list(workspace.view.job_keys()), "it is shown all the same"


# -- tails -------------------------------------------------------------------------------------------


def test_a_tail_is_bounded_and_begins_with_a_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    tail = read_tail(MACHINE.files, str(log), limit=100)
    assert tail is not None
    assert not tail.is_whole
    assert tail.text.splitlines()[0].startswith("line ")
    assert tail.text.endswith("line 9999\n")


def test_the_hole_in_a_log_that_reached_its_limit_is_not_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"head\n" + b"\0" * 5000 + b"tail\n")
    tail = read_tail(MACHINE.files, str(log))
    assert tail is not None
    assert tail.text == "head\ntail\n"


def test_a_follower_goes_on_in_the_file_of_a_new_attempt(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\n")
    follower = Follower(MACHINE.files, str(log), read_tail(MACHINE.files, str(log)))
    assert follower.read() == b""
    log.rename(tmp_path / "log.1")
    assert follower.read() == b""
    log.write_text("second, and longer than the first\n")
    assert follower.read() == b"second, and longer than the first\n"
    assert follower.read() == b""


def test_the_last_progress_of_the_attempt_counts(workspace: Builder) -> None:
    place = workspace.layout.job_journal("my.Train", "a")
    writer = EventWriter(MACHINE.files, place, "0" * 32, rotate_bytes=2000)

    def report(attempt: int, value: float, level: int = 0) -> None:
        writer.write(
            JobProgressEvent(
                timestamp=NOW, job_id="a", task_id="my.Train", attempt=attempt, progress=value, level=level
            )
        )

    assert last_progress(MACHINE.files, place, 1) is None
    for number in range(40):
        report(1, number / 40)
    report(1, 0.1, level=1)
    report(2, 7.0)
    found = last_progress(MACHINE.files, place, 1)
    assert found is not None
    assert found.fraction == pytest.approx(39 / 40)
    newest = last_progress(MACHINE.files, place, 2)
    assert newest is not None
    assert newest.fraction == 1.0


def said(workspace: Builder, writer: EventWriter, seconds: float, value: float, level: int = 0) -> None:
    writer.write(
        JobProgressEvent(
            timestamp=NOW + timedelta(seconds=seconds),
            job_id="a",
            task_id="my.Train",
            attempt=1,
            progress=value,
            level=level,
            desc=f"loop {level}",
        )
    )


def test_the_time_that_is_left_counts_from_where_the_attempt_began(workspace: Builder) -> None:
    """A resumed task begins in the middle: what came before says nothing of its speed now."""
    place = workspace.layout.job_journal("my.Train", "a")
    writer = EventWriter(MACHINE.files, place, "0" * 32)
    said(workspace, writer, 0, 0.5)
    begun = last_progress(MACHINE.files, place, 1)
    assert begun is not None
    assert begun.left_s(NOW) is None
    said(workspace, writer, 60, 0.6)
    later = last_progress(MACHINE.files, place, 1)
    assert later is not None
    assert later.left_s(NOW + timedelta(seconds=60)) == pytest.approx(240)
    assert later.left_s(NOW + timedelta(seconds=100)) == pytest.approx(200)
    assert later.left_s(NOW + timedelta(days=1)) == 0


def test_the_first_attempt_began_with_nothing(workspace: Builder) -> None:
    place = workspace.layout.job_journal("my.Train", "a")
    said(workspace, EventWriter(MACHINE.files, place, "0" * 32), 60, 0.25)
    found = last_progress(MACHINE.files, place, 1, NOW)
    assert found is not None
    assert found.left_s(NOW + timedelta(seconds=60)) == pytest.approx(180)


def test_loops_inside_a_loop_are_told_in_words(workspace: Builder) -> None:
    place = workspace.layout.job_journal("my.Train", "a")
    writer = EventWriter(MACHINE.files, place, "0" * 32)
    for level in (0, 1, 2, 1):
        said(workspace, writer, 0, 0.25, level)
    found = last_progress(MACHINE.files, place, 1)
    assert found is not None
    assert found.words == "loop 0 > loop 1 25%"
    said(workspace, writer, 1, 0.5)
    again = last_progress(MACHINE.files, place, 1)
    assert again is not None
    assert again.words == "loop 0"


def test_progress_is_found_though_others_write_into_the_journal_later(workspace: Builder) -> None:
    place = workspace.layout.job_journal("my.Train", "a")
    writer = EventWriter(MACHINE.files, place, "0" * 32)
    for step in range(1001):
        said(workspace, writer, step, step / 2000)
    started = ProcessStartedEvent(
        timestamp=NOW, job_id="a", task_id="my.Train", attempt=1, launcher="spawn", host="here", pid=1
    )
    EventWriter(MACHINE.files, place, "1" * 32).write(started)
    found = last_progress(MACHINE.files, place, 1)
    assert found is not None
    assert found.fraction == 0.5
    assert found.left_s(NOW + timedelta(seconds=1000)) == pytest.approx(1000)


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
    view.strays()
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
