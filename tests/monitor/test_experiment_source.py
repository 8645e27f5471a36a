"""Lines 4, 9, 10 and 25 for the experiments: the picture of the command line, whatever the disk holds."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tenuto.experiments import followed_run
from tenuto.experiments.followed_run import FollowedRun
from tenuto.experiments.run_record import RunState
from tenuto.experiments.source import ExperimentSource
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.row import Row, plain_row
from tenuto.jobs.source import ActedAs, Action, Source, Target
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.monitor import panels
from tenuto.monitor.provider import LocalProvider
from tenuto.settings import Settings
from tenuto.testing.contracts.sources import SourceContract, all_rows
from tenuto.workspace.inotify import DirectoryWatches, remote_kind
from tenuto.workspace.jobslist import JobsList
from tenuto.workspace.layout import Layout
from tests.jobs.runners import Runner
from tests.jobs.workspaces import MACHINE, NOW, RUN, Builder, line, params

GROUP = f"experiments:sweep/{RUN}"


@pytest.fixture
def workspace(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "ws")


@pytest.fixture
def group() -> str:
    return GROUP


def filled(workspace: Builder) -> Builder:
    """A run that ended with jobs of every kind."""
    workspace.job("done1", params=params(lr=0.1))
    workspace.job("bad1", reason=JobFailureStatus.FAILED, params=params(lr=0.2))
    workspace.unstarted("after")
    workspace.unstarted("never")
    workspace.run(
        line("done1"), line("bad1"), line("after", "bad1"), line("never"), line("gone"),
        line("extra", transient=TransientMode.TRANSIENT), state=RunState.FAILED,
    )  # fmt: skip
    return workspace


@pytest.fixture
def source(workspace: Builder) -> ExperimentSource:
    return ExperimentSource(filled(workspace).view, Settings())


class TestLine25ExperimentSource(SourceContract):
    """The suite of every source."""


def test_line_04_rows_agree_with_the_command_line(workspace: Builder, source: Source) -> None:
    now = MACHINE.clock.now()
    run = workspace.view.run("sweep")
    expected = [plain_row(job, now) for job in workspace.view.jobs(run)]
    assert {one["state"] for one in expected} == {"done", "error", "unscheduled"}
    assert [plain_row(row, now) for row in all_rows(source, GROUP)] == expected


def test_line_04_a_look_after_a_hint_equals_a_fresh_load(workspace: Builder) -> None:
    filled(workspace)
    view, run = workspace.view, workspace.view.run("sweep")
    followed = FollowedRun(view, run)
    rows = {row.id: row for chunk in followed.load() for row in chunk}
    workspace.job("never", ended=NOW)
    workspace.job("bad1", ended=NOW + timedelta(seconds=1))  # tried again, well
    rows.update({row.id: row for row in followed.refresh(["never", "bad1"])})
    fresh = {row.id: row for chunk in FollowedRun(view, run).load() for row in chunk}
    assert rows == fresh
    assert rows["after"].state is JobState.UNSCHEDULED
    assert rows["bad1"].state is JobState.DONE


def test_line_04_a_job_that_is_done_again_untold_is_seen_though_no_launch_record_is_left(
    workspace: Builder,
) -> None:
    filled(workspace)
    launch = Path(workspace.layout.job("my.Train", "done1").launch)
    launch.unlink()
    followed = FollowedRun(workspace.view, workspace.view.run("sweep"))
    assert "done1" in {row.id for chunk in followed.load() for row in chunk}
    assert followed.check(100) == []
    workspace.job("done1", ended=NOW + timedelta(seconds=1))
    launch.unlink()
    (row,) = (row for row in followed.check(100) if row.id == "done1")
    assert row.ended == NOW + timedelta(seconds=1)


@pytest.mark.parametrize("chunk", [1, 2, 500])
@pytest.mark.parametrize("is_transient", [False, True])
def test_line_12_a_list_read_in_parts_gives_the_rows_of_the_whole(
    workspace: Builder, monkeypatch: pytest.MonkeyPatch, chunk: int, is_transient: bool
) -> None:
    monkeypatch.setattr(followed_run, "CHUNK_ROWS", chunk)
    workspace.job("bad1", reason=JobFailureStatus.FAILED, ended=NOW)
    workspace.job("done1")
    workspace.unstarted("after")
    transient = TransientMode.TRANSIENT if is_transient else TransientMode.NONE
    early = NOW - timedelta(hours=1)
    workspace.run(
        line("bad1")._replace(submittime=early), line("after", "bad1"), line("extra"),
        line("middle", transient=transient), line("done1", "middle"),
        line("bad1")._replace(submittime=NOW + timedelta(hours=1)), state=RunState.RUNNING, pid=1,
    )  # fmt: skip
    with Path(workspace.layout.run("sweep", RUN).jobs_list).open("ab") as listed:
        listed.write(b"torn\n")
    view, run = workspace.view, workspace.view.run("sweep")
    followed = FollowedRun(view, run)
    rows = {row.id: row for part in followed.load() for row in part}
    assert list(rows) == ["bad1", "after", "extra", "middle", "done1"]
    assert [row.state for row in rows.values()] == [job.state for job in view.jobs(run)]
    assert followed.bad_lines == 1


def test_a_feed_tells_of_a_job_that_was_removed(workspace: Builder, source: ExperimentSource) -> None:
    feed = source.feed()
    try:
        all_rows(source, GROUP)
        assert feed.fileno() is not None
        feed.read([GROUP], 100)
        (acted,) = source.act(Action.CLEAN, [Target(key("done1"), 1)], dry_run=False, by="a test")
        assert acted.outcome is ActedAs.DELETED
        told = {row.id: row for row in feed.read([GROUP], 100).rows}
        assert told["done1"].state is JobState.ERROR
        assert told["done1"].reason is JobFailureStatus.DELETED
    finally:
        feed.close()


@pytest.fixture
def network_disk(tmp_path: Path, require: Callable[[str], None]) -> Iterator[Path]:
    """A workspace as another machine sees it: what is done below the mount is not told above it."""
    require("bindfs")
    (tmp_path / "far").mkdir()
    (tmp_path / "ws").mkdir()
    mount = subprocess.run(
        ["bindfs", tmp_path / "ws", tmp_path / "far"], capture_output=True, text=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"no mount here: {mount.stderr}")
    yield tmp_path / "far"
    subprocess.run(["umount", tmp_path / "far"], check=True)


def test_on_a_network_disk_changes_are_found_by_looking(network_disk: Path, workspace: Builder) -> None:
    workspace.unstarted("never")
    workspace.run(line("never"), state=RunState.RUNNING, pid=1)
    assert remote_kind(str(network_disk)) == "fuse"
    assert remote_kind(str(network_disk.parent)) is None
    view = WorkspaceView(Layout(str(network_disk)), MACHINE)
    source = ExperimentSource(view, Settings())
    feed = source.feed()
    try:
        assert feed.fileno() is None
        all_rows(source, GROUP)
        workspace.job("late", ended=NOW)
        workspace.run(line("late"), state=RunState.RUNNING, pid=1)
        ends = time.monotonic() + 30
        told: list[Row] = []
        while not told and time.monotonic() < ends:
            told = [row for row in feed.read([GROUP], 100).rows if row.state is JobState.DONE]
            time.sleep(0.05)
        assert [row.id for row in told] == ["late"]
    finally:
        feed.close()


def test_a_watch_that_is_refused_is_made_up_for_by_looking(
    workspace: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DirectoryWatches, "add", lambda watches, path: False)
    monkeypatch.setattr("tenuto.experiments.source.POLL_S", 0.0)
    workspace.unstarted("never")
    workspace.run(line("never"), state=RunState.RUNNING, pid=1)
    source = ExperimentSource(workspace.view, Settings())
    feed = source.feed()
    try:
        all_rows(source, GROUP)
        workspace.job("late", ended=NOW)
        workspace.run(line("late"), state=RunState.RUNNING, pid=1)
        assert [row.id for row in feed.read([GROUP], 100).rows] == ["late"]
    finally:
        feed.close()


def key(job_id: str) -> str:
    return f"experiments:my.Train/{job_id}"


def test_line_11_actions_name_the_attempt_that_was_seen(workspace: Builder) -> None:
    source = ExperimentSource(workspace.view, Settings())
    runner = Runner(workspace)
    try:
        workspace.run(line("busy"), state=RunState.RUNNING, pid=1)
        busy = key("busy")

        def act(action: Action, attempt: int, *, dry_run: bool = False) -> ActedAs:
            (acted,) = source.act(action, [Target(busy, attempt)], dry_run=dry_run, by="a test")
            return acted.outcome

        assert act(Action.KILL, 7) is ActedAs.STALE
        assert act(Action.KILL, 1, dry_run=True) is ActedAs.WOULD_KILL
        assert act(Action.CLEAN, 1) is ActedAs.IN_USE
        assert act(Action.RETRY, 1) is ActedAs.IN_USE
        assert act(Action.PAUSE, 1) is ActedAs.REFUSED
        assert runner.process.poll() is None
        assert act(Action.KILL, 1) is ActedAs.ASKED
        runner.process.wait(30)
    finally:
        runner.close()


def test_line_10_a_hostile_workspace_does_not_stop_the_provider(
    workspace: Builder, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panels, "FRESH_S", {})
    layout = workspace.layout
    os.mkfifo(Path(layout.job("my.Train", "never").directory, "Train.done"))
    Path(layout.job("my.Train", "never").directory, "Train.failed").symlink_to("/etc/passwd")
    Path(layout.jobs, "my.Evil").symlink_to("/")
    deep = layout.job("my.Train", "done1")
    Path(deep.params).write_text("[" * 100_000)
    other = Path(layout.experiments, "evil", "20260101_130000")
    other.mkdir(parents=True)
    with (other / "status.json").open("wb") as file:
        file.truncate(100 << 20)
    (other / "jobs.jsonl").symlink_to("/dev/zero")
    long = "x" * 100_000
    jobs = JobsList(MACHINE.files, layout.run("sweep", RUN))
    jobs.append(line("long")._replace(tags={long: long}))
    jobs.append(line("longer")._replace(task_id=long))
    jobs.close()
    with Path(layout.run("sweep", RUN).jobs_list).open("ab") as listed:
        listed.write(b'{"torn": ')
    provider = LocalProvider([source], workspace=layout.root)
    try:
        assert provider.wait_until_loaded(60)
        assert {job["id"] for job in provider.jobs(GROUP)["jobs"]} >= {"done1", "bad1", "never", "long"}
        assert provider.jobs(GROUP, filter="id=long")["jobs"][0]["tags"] == {long: long}
        assert provider.job(key("done1"))["state"] == "done"
        assert provider.why(key("never"))["because"]
        json.dumps(provider.overview())
        assert provider.cleanup()["orphans"]["jobs"] == 0
        assert provider.cleanup()["bad_lines"] == 0
        with Path(layout.run("sweep", RUN).jobs_list).open("ab") as listed:
            listed.write(b"\nnot a line\n")
        ends = time.monotonic() + 30
        while provider.cleanup()["bad_lines"] != 2 and time.monotonic() < ends:
            time.sleep(0.1)  # the torn line is complete now, and both are counted
        assert provider.cleanup()["bad_lines"] == 2
    finally:
        provider.close()


def test_line_09_a_run_that_is_pruned_vanishes_and_others_stay(workspace: Builder, source: Source) -> None:
    workspace.run(line("done1"), run_id="20260101_130000", experiment="other")
    provider = LocalProvider([source], workspace=workspace.layout.root)
    try:
        assert provider.wait_until_loaded(60)
        assert provider.groups()["total"] == 2
        MACHINE.files.remove_tree(workspace.layout.run("other", "20260101_130000").directory)
        since = provider.changes(None, 0)
        while provider.groups()["total"] == 2:
            since = provider.changes(f"{since['epoch']}-{since['seq']}", 5.0)
        assert [group["group"] for group in provider.groups()["groups"]] == [GROUP]
    finally:
        provider.close()


def test_a_detail_has_attempts_and_commands(source: Source) -> None:
    fields = source.detail(key("bad1")).fields
    assert [one["attempt"] for one in fields["attempts"]] == [1]
    assert fields["attempts"][0]["reason"] == "failed"
    assert fields["runs"] == [f"sweep/{RUN}"]
    assert fields["parameters"] == {"lr": 0.2}
    assert any(command.startswith("tenuto retry") for command in fields["commands"])
