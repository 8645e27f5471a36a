"""Owns that a reader of a job is told of changes, and polls where it cannot be told."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tenuto.cli.commands import logs as watching
from tenuto.cli.commands.logs import JobWatch, News

from .workspaces import Builder

WAIT_S = 30.0


def test_a_growing_log_and_a_marker_are_told_apart(workspace: Builder) -> None:
    paths = workspace.layout.job(*workspace.job("a", ended=None))
    with JobWatch(paths) as watch:
        assert watch.is_told
        with open(paths.out, "a") as log:
            log.write("line")
            log.flush()
            assert watch.wait(WAIT_S) is News.FILES
        Path(paths.directory, "x.tmp").write_text("{}")
        os.rename(Path(paths.directory, "x.tmp"), paths.done)
        assert watch.wait(WAIT_S) is News.STATE
        assert watch.wait(0.01) is News.NOTHING


def test_a_change_of_another_thread_ends_the_wait(workspace: Builder) -> None:
    paths = workspace.layout.job(*workspace.job("a", ended=None))
    with JobWatch(paths) as watch:
        writer = threading.Timer(0.1, lambda: Path(paths.failed).write_text("{}"))
        writer.start()
        began = time.monotonic()
        assert watch.wait(WAIT_S) is News.STATE
        assert time.monotonic() - began < WAIT_S / 2
        writer.join()


def test_a_directory_that_comes_later_is_watched_from_then_on(workspace: Builder) -> None:
    paths = workspace.layout.job("my.Train", "a")
    with JobWatch(paths) as watch:
        assert not watch.is_told
        assert watch.wait(0.01) is News.NOTHING
        workspace.job("a", ended=None)
        assert watch.wait(0.01) is News.STATE, "what was written before the watch was not told"
        assert watch.is_told
        Path(paths.directory, "model").write_text("x")
        assert watch.wait(WAIT_S) is News.FILES


def test_where_the_kernel_does_not_tell_the_wait_is_a_short_pause(
    workspace: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "watch_directories", lambda: None)
    with JobWatch(workspace.layout.job(*workspace.job("a"))) as watch:
        began = time.monotonic()
        assert watch.wait(600) is News.NOTHING
        assert time.monotonic() - began < 60


def test_a_watch_that_missed_a_change_is_not_asked_any_more(workspace: Builder) -> None:
    with JobWatch(workspace.layout.job(*workspace.job("a"))) as watch:
        watch.distrust()
        assert not watch.is_told
        assert watch.wait(0.01) is News.NOTHING
