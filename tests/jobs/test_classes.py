"""Task ids of scripts: one script each, unless it is the same one in another place."""

from __future__ import annotations

from tenuto.jobs.validity import claim_class
from tenuto.testing import FakeDisk
from tenuto.workspace.layout import Layout

LAYOUT = Layout("/ws")


def disk_with(**scripts: bytes) -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory("/code")
    for name, content in scripts.items():
        disk.write(f"/code/{name}.py", content)
    return disk


def claim(disk: FakeDisk, name: str) -> str | None:
    return claim_class(disk, LAYOUT, "train.Train", f"/code/{name}.py")


def test_a_script_may_claim_its_id_again_and_change() -> None:
    disk = disk_with(a=b"one")
    assert claim(disk, "a") is None
    disk.write("/code/a.py", b"two")
    assert claim(disk, "a") is None


def test_another_script_with_other_content_is_refused() -> None:
    disk = disk_with(a=b"one", b=b"two")
    assert claim(disk, "a") is None
    assert claim(disk, "b") == "/code/a.py"
    assert claim(disk, "a") is None


def test_a_copy_takes_the_id_along() -> None:
    disk = disk_with(a=b"one", b=b"one")
    assert claim(disk, "a") is None
    assert claim(disk, "b") is None


def test_a_moved_script_takes_the_id_along_even_when_it_changed() -> None:
    disk = disk_with(a=b"one", b=b"two")
    assert claim(disk, "a") is None
    disk.remove("/code/a.py")
    assert claim(disk, "b") is None


def test_an_unreadable_record_is_replaced() -> None:
    disk = disk_with(a=b"one")
    disk.make_directory("/ws/.classes")
    disk.write(LAYOUT.task_class("train.Train"), b"garbage")
    assert claim(disk, "a") is None
    assert claim(disk, "a") is None
