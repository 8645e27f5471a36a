"""The fake disk loses what a real one may lose: the simulator's verdicts rest on this."""

from __future__ import annotations

import pytest

from tenuto.testing import Crash, FakeClock, FakeDisk, FakeRandomness


@pytest.fixture
def disk() -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory("/d")
    disk.sync_directory("/d")
    return disk


def test_content_is_lost_unless_the_file_was_synced(disk: FakeDisk) -> None:
    file = disk.open_append("/d/a")
    file.append(b"kept")
    file.sync()
    disk.sync_directory("/d")
    file.append(b"lost")
    disk.power_loss()
    assert disk.read("/d/a", 100) == b"kept"


def test_a_name_is_lost_unless_its_directory_was_synced(disk: FakeDisk) -> None:
    file = disk.open_append("/d/a")
    file.append(b"content")
    file.sync()
    disk.power_loss()
    assert disk.list("/d") == []


def test_a_synced_name_of_unsynced_content_is_an_empty_file(disk: FakeDisk) -> None:
    disk.write("/d/a", b"content")
    disk.sync_directory("/d")
    disk.power_loss()
    assert disk.read("/d/a", 100) == b""


def test_an_unsynced_rename_and_removal_are_undone(disk: FakeDisk) -> None:
    disk.replace("/d/a", b"old", durable=True)
    disk.replace("/d/b", b"other", durable=True)
    disk.replace("/d/a", b"new", durable=False)
    disk.remove("/d/b")
    disk.power_loss()
    assert disk.read("/d/a", 100) == b"old"
    assert disk.list("/d") == ["a", "b"]


def test_syncing_a_directory_makes_the_way_to_it_durable(disk: FakeDisk) -> None:
    disk.make_directory("/x/y/z")
    disk.write("/x/other", b"")
    disk.sync_directory("/x/y/z")
    disk.power_loss()
    assert disk.list("/x") == ["y"]
    assert disk.list("/x/y") == ["z"]


def test_some_unsynced_things_may_survive(disk: FakeDisk) -> None:
    disk.write("/d/a", b"content")
    asked = []
    disk.power_loss(lambda path: asked.append(path) is None and path == "/d")
    assert disk.read("/d/a", 100) == b""
    assert asked == ["/d", "/d/a"]


def test_a_full_disk_takes_what_fits(disk: FakeDisk) -> None:
    disk.capacity = 5
    with pytest.raises(OSError, match="No space"):
        disk.write("/d/a", b"12345678")
    assert disk.read("/d/a", 100) == b"12345"
    assert disk.free_space("/d").bytes == 0
    with pytest.raises(OSError, match="No space"):
        disk.preallocate("/d/b", 10)
    assert disk.list("/d") == ["a"]


def test_a_planned_failure_and_a_planned_death_happen_once_and_half_way(disk: FakeDisk) -> None:
    file = disk.open_append("/d/a")
    disk.fail_after(0, 5)
    with pytest.raises(OSError, match="Input/output"):
        file.append(b"1234")
    disk.crash_after(1)
    file.append(b"5")
    with pytest.raises(Crash):
        file.append(b"67")
    assert disk.read("/d/a", 100) == b"1256"


def test_the_fake_clock_tells_a_jump_from_passing_time() -> None:
    clock = FakeClock()
    start = clock.now()
    clock.advance(5)
    clock.jump(-3600)
    assert clock.monotonic() == 5
    assert (clock.now() - start).total_seconds() == -3595


def test_fake_randomness_repeats_itself() -> None:
    one, two = FakeRandomness(7), FakeRandomness(7)
    assert [one.nonce(), one.uniform()] == [two.nonce(), two.uniform()]
    assert one.nonce() != one.nonce()


def test_syncing_a_tree_makes_durable_all_of_it_but_what_is_skipped(disk: FakeDisk) -> None:
    disk.make_directory("/d/deep/er")
    for path in ("/d/mine", "/d/yours", "/d/deep/er/file"):
        disk.write(path, b"content")
    disk.sync_tree("/d", lambda name: name == "yours")
    disk.power_loss()
    assert disk.read("/d/mine", 100) == disk.read("/d/deep/er/file", 100) == b"content"
    assert disk.read("/d/yours", 100) == b""
