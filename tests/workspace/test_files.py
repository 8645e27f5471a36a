"""The real disk and the fake one keep the same contract; what only a real one can show."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tenuto.errors import NotRegularFile
from tenuto.testing import FakeDisk
from tenuto.testing.contracts.files import FilesContract
from tenuto.workspace.files import DiskFiles
from tenuto.workspace.ports import Files


class TestDiskFiles(FilesContract):
    @pytest.fixture
    def files(self) -> Files:
        return DiskFiles()

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path)


class TestFakeDisk(FilesContract):
    @pytest.fixture
    def files(self) -> Files:
        disk = FakeDisk()
        disk.make_directory("/root")
        return disk

    @pytest.fixture
    def root(self) -> str:
        return "/root"


def test_a_pipe_a_socket_and_a_device_do_not_hang_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path in (str(tmp_path / "pipe"), str(tmp_path / "socket"), "/dev/zero"):
            with pytest.raises(NotRegularFile):
                DiskFiles().read(path, 100)


def test_a_tree_deeper_than_any_recursion_limit_is_removed(tmp_path: Path) -> None:
    home = os.open(".", os.O_RDONLY)
    try:
        os.mkdir(tmp_path / "deep")
        os.chdir(tmp_path / "deep")
        for _ in range(3000):
            os.mkdir("0")
            os.chdir("0")
    finally:
        os.fchdir(home)
        os.close(home)
    DiskFiles().remove_tree(str(tmp_path / "deep"))
    assert os.listdir(tmp_path) == []


def test_a_tree_with_read_only_directories_and_numbered_names_is_removed(tmp_path: Path) -> None:
    for name in ("0/0/0", "0/1", "1/0", "a/0/1"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "1").write_text("")
    (tmp_path / "tree" / "2").write_text("")
    (tmp_path / "tree" / "a" / "0").chmod(0o500)
    (tmp_path / "tree").chmod(0o500)
    DiskFiles().remove_tree(str(tmp_path / "tree"))
    assert os.listdir(tmp_path) == []


def test_a_temporary_name_left_by_a_dead_process_is_stepped_over(tmp_path: Path, monkeypatch) -> None:
    names = iter([f"{tmp_path}/taken", f"{tmp_path}/free"])
    (tmp_path / "taken").write_text("of another")
    monkeypatch.setattr("tenuto.workspace.files._temporary_name", lambda path: next(names))
    DiskFiles().replace(f"{tmp_path}/a", b"mine", durable=False)
    assert (tmp_path / "a").read_bytes() == b"mine"
    assert (tmp_path / "taken").read_text() == "of another"


def synced(monkeypatch: pytest.MonkeyPatch, tree: Path) -> list[str]:
    """What `sync_tree` brings to the disk, by the names of descriptors; `all` for the whole file system."""
    found = []

    def fsync(fd: int) -> None:
        found.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), tree))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr("tenuto.workspace.files._sync_file_system", lambda path: found.append("all"))
    DiskFiles().sync_tree(str(tree), lambda name: name == "ours")
    return sorted(found)


def test_few_files_are_synced_one_by_one_with_their_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ours").write_text("")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc")
    assert synced(monkeypatch, tmp_path) == [".", "deep", "deep/file"]


def test_nothing_is_synced_where_nothing_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "file").write_text("")
    assert synced(monkeypatch, tmp_path) == []


def test_many_files_are_synced_with_the_whole_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        (tmp_path / str(number)).write_text("")
    assert synced(monkeypatch, tmp_path) == ["all"]


def test_a_file_that_may_not_be_opened_is_synced_with_the_whole_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("")

    def refuse(path: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr("tenuto.workspace.files._sync", refuse)
    assert synced(monkeypatch, tmp_path) == ["all"]


def test_processes_that_make_a_directory_together_all_succeed(tmp_path: Path) -> None:
    """One took a directory above that another had just made for one in which nothing can be made."""
    for number in range(30):
        began = Barrier(4)

        def make(path: str, began: Barrier = began) -> None:
            began.wait(30)
            DiskFiles().make_directory(path)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(make, [f"{tmp_path}/{number}/a/b/{leaf}" for leaf in range(4)]))
        assert len(os.listdir(f"{tmp_path}/{number}/a/b")) == 4
