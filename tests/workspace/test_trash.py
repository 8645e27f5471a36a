"""Removing directories: whole or not at all, and nothing beyond them."""

from __future__ import annotations

import pytest

from tenuto.testing import Crash, FakeHost
from tenuto.workspace import trash
from tenuto.workspace.layout import Layout

LAYOUT = Layout("/ws")
JOB = LAYOUT.job("task", "ab12")


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost()
    host.disk.make_directory(JOB.private)
    host.disk.write(JOB.params, b"{}")
    return host


def test_a_directory_is_gone_at_once_and_deleted_later(host: FakeHost) -> None:
    where = trash.discard(host.machine(), LAYOUT, JOB.directory)
    assert where is not None
    assert host.disk.stat(JOB.directory) is None
    assert host.disk.list(where) == [".tenuto", "params.json"]
    assert trash.empty(host.machine(), LAYOUT) == 1
    assert host.disk.list(LAYOUT.trash) == [".lock"]


def test_nothing_to_remove_is_fine(host: FakeHost) -> None:
    assert trash.empty(host.machine(), LAYOUT) == 0
    assert trash.discard(host.machine(), LAYOUT, "/ws/jobs/task/none") is None


def test_a_crash_at_any_step_leaves_the_directory_whole_or_in_the_trash(host: FakeHost) -> None:
    for steps in range(10):
        host.disk.make_directory(JOB.private)
        host.disk.write(JOB.params, b"{}")
        host.disk.crash_after(steps)
        try:
            trash.discard(host.machine(), LAYOUT, JOB.directory)
            trash.empty(host.machine(), LAYOUT)
        except Crash:
            pass
        host.disk.heal()
        if host.disk.stat(JOB.directory) is not None:
            assert host.disk.list(JOB.directory) == [".tenuto", "params.json"]
        trash.empty(host.machine(), LAYOUT)


def test_a_link_is_removed_and_not_followed(host: FakeHost) -> None:
    host.disk.symlink(JOB.directory, "/ws/link")
    trash.discard(host.machine(), LAYOUT, "/ws/link")
    trash.empty(host.machine(), LAYOUT)
    assert host.disk.stat(JOB.params) is not None


def test_a_process_that_waits_for_the_lock_of_a_removed_job_gets_no_dead_lock(host: FakeHost) -> None:
    machine = host.machine()
    held = machine.locks.try_lock(JOB.lock)
    assert held is not None
    trash.discard(host.machine(), LAYOUT, JOB.directory)
    assert not held.intact()
    host.disk.make_directory(JOB.private)
    fresh = machine.locks.try_lock(JOB.lock)
    assert fresh is not None
    assert fresh.intact()


def test_the_trash_is_emptied_by_one_process_at_a_time(host: FakeHost) -> None:
    trash.discard(host.machine(), LAYOUT, JOB.directory)
    other = host.machine().locks.try_lock(LAYOUT.trash_lock)
    assert other is not None
    assert trash.empty(host.machine(), LAYOUT) == 0
    other.close()
    assert trash.empty(host.machine(), LAYOUT) == 1


def test_a_directory_discarded_while_the_trash_is_emptied_is_deleted_too(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two experiments that ended together, the second left its trash to the first, which had looked."""
    other = LAYOUT.job("a.Task", "cd34")
    host.disk.make_directory(other.private)
    trash.discard(host.machine(), LAYOUT, JOB.directory)
    machine = host.machine()
    remove_tree = machine.files.remove_tree

    def meanwhile(path: str) -> None:
        if trash.discard(host.machine(), LAYOUT, other.directory) is not None:
            assert trash.empty(host.machine(), LAYOUT) == 0
        remove_tree(path)

    monkeypatch.setattr(machine.files, "remove_tree", meanwhile)
    assert trash.empty(machine, LAYOUT) == 2
    assert [name for name in host.disk.list(LAYOUT.trash) if name != ".lock"] == []
