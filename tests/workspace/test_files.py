"""The real disk and the fake one keep the same contract; what only a real one can show."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tenuto.errors import FileTooLarge, NotRegularFile
from tenuto.testing import FakeDisk
from tenuto.workspace.files import DiskFiles
from tenuto.workspace.ports import FileKind, Files, FileStat, is_temporary


class FilesContract:
    """What every `Files` must do. A subclass gives the fixtures `files` and `root` (an empty directory)."""

    def test_reads_back_what_was_written(self, files: Files, root: str) -> None:
        files.write(f"{root}/a", b"long content")
        files.write(f"{root}/a", b"short")
        assert files.read(f"{root}/a", 100) == b"short"

    def test_refuses_to_read_more_than_the_limit(self, files: Files, root: str) -> None:
        files.write(f"{root}/a", b"12345")
        assert files.read(f"{root}/a", 5) == b"12345"
        with pytest.raises(FileTooLarge):
            files.read(f"{root}/a", 4)

    def test_a_missing_file_is_file_not_found(self, files: Files, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            files.read(f"{root}/a", 5)
        with pytest.raises(FileNotFoundError):
            files.read(f"{root}/no/such/directory", 5)
        assert files.stat(f"{root}/a") is None
        assert files.stat(f"{root}/no/such/directory") is None

    def test_never_reads_through_a_link_or_a_directory(self, files: Files, root: str) -> None:
        files.write(f"{root}/secret", b"secret")
        files.symlink("secret", f"{root}/link")
        files.make_directory(f"{root}/directory")
        for name in ("link", "directory"):
            with pytest.raises(NotRegularFile):
                files.read(f"{root}/{name}", 100)
            with pytest.raises(NotRegularFile):
                files.read_range(f"{root}/{name}", 0, 100)

    def test_reads_ranges_up_to_the_end(self, files: Files, root: str) -> None:
        files.write(f"{root}/a", b"0123456789")
        assert files.read_range(f"{root}/a", 3, 4) == b"3456"
        assert files.read_range(f"{root}/a", 8, 100) == b"89"
        assert files.read_range(f"{root}/a", 50, 100) == b""

    @pytest.mark.parametrize("durable", [True, False])
    def test_replace_leaves_only_the_new_content(self, files: Files, root: str, durable: bool) -> None:
        files.replace(f"{root}/a", b"one", durable=durable)
        files.replace(f"{root}/a", b"two", durable=durable)
        assert files.read(f"{root}/a", 100) == b"two"
        assert files.list(root) == ["a"]

    @pytest.mark.parametrize("count", [0, 1, 30])
    def test_syncing_a_tree_changes_nothing(self, files: Files, root: str, count: int) -> None:
        files.make_directory(f"{root}/a/b")
        files.symlink("/no/such/place", f"{root}/a/link")
        for number in range(count):
            files.write(f"{root}/a/b/{number}", b"content")
        asked: list[str] = []

        def skip(name: str) -> bool:
            asked.append(name)
            return False

        files.sync_tree(root, skip)
        assert asked == ["a"]
        assert files.list(f"{root}/a") == ["b", "link"]
        assert len(files.list(f"{root}/a/b")) == count

    def test_syncing_what_is_not_there_is_file_not_found(self, files: Files, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            files.sync_tree(f"{root}/a", lambda name: False)

    def test_replace_uses_up_the_reserve(self, files: Files, root: str) -> None:
        files.preallocate(f"{root}/reserve", 4096)
        assert files.stat(f"{root}/reserve").size == 4096  # type: ignore[union-attr]
        files.replace(f"{root}/a", b"content", durable=True, reserve=f"{root}/reserve")
        assert files.read(f"{root}/a", 100) == b"content"
        assert files.list(root) == ["a"]

    def test_replace_does_without_a_missing_reserve(self, files: Files, root: str) -> None:
        files.replace(f"{root}/a", b"content", durable=True, reserve=f"{root}/reserve")
        assert files.read(f"{root}/a", 100) == b"content"

    def test_a_failed_replace_leaves_no_temporary_file(self, files: Files, root: str) -> None:
        files.make_directory(f"{root}/a/b")
        with pytest.raises((IsADirectoryError, FileExistsError)):
            files.replace(f"{root}/a", b"content", durable=False)
        assert not any(is_temporary(name) for name in files.list(root))

    def test_exclusive_creation_happens_once(self, files: Files, root: str) -> None:
        files.create_exclusive(f"{root}/a", b"first")
        with pytest.raises(FileExistsError):
            files.create_exclusive(f"{root}/a", b"second")
        with pytest.raises(FileExistsError):
            files.open_append(f"{root}/a", exclusive=True)
        assert files.read(f"{root}/a", 100) == b"first"

    def test_appends_after_what_is_there(self, files: Files, root: str) -> None:
        files.write(f"{root}/a", b"1")
        file = files.open_append(f"{root}/a")
        file.append(b"2")
        file.append(b"3")
        file.sync()
        assert file.size() == 3
        file.close()
        assert files.read(f"{root}/a", 100) == b"123"

    def test_makes_directories_with_their_parents_as_often_as_asked(self, files: Files, root: str) -> None:
        files.make_directory(f"{root}/a/b/c")
        files.make_directory(f"{root}/a/b/c")
        assert files.list(f"{root}/a/b") == ["c"]

    def test_a_file_in_the_way_of_a_directory_is_an_error(self, files: Files, root: str) -> None:
        files.write(f"{root}/a", b"")
        with pytest.raises(FileExistsError):
            files.make_directory(f"{root}/a")
        with pytest.raises(NotADirectoryError):
            files.make_directory(f"{root}/a/b")

    def test_removes_once(self, files: Files, root: str) -> None:
        files.write(f"{root}/a", b"")
        assert files.remove(f"{root}/a") is True
        assert files.remove(f"{root}/a") is False

    def test_removes_a_tree_without_following_links(self, files: Files, root: str) -> None:
        files.make_directory(f"{root}/outside")
        files.write(f"{root}/outside/kept", b"kept")
        files.make_directory(f"{root}/tree/a/b/c")
        files.write(f"{root}/tree/a/b/file", b"")
        files.symlink(f"{root}/outside", f"{root}/tree/a/link")
        files.symlink("nowhere", f"{root}/tree/dangling")
        files.remove_tree(f"{root}/tree")
        files.remove_tree(f"{root}/tree")
        assert files.list(root) == ["outside"]
        assert files.list(f"{root}/outside") == ["kept"]

    def test_rename_replaces_a_file_and_moves_a_directory(self, files: Files, root: str) -> None:
        files.write(f"{root}/a", b"a")
        files.write(f"{root}/b", b"b")
        files.rename(f"{root}/a", f"{root}/b")
        files.make_directory(f"{root}/d/inner")
        files.rename(f"{root}/d", f"{root}/e")
        assert files.read(f"{root}/b", 10) == b"a"
        assert files.list(root) == ["b", "e"]
        assert files.list(f"{root}/e") == ["inner"]
        with pytest.raises(FileNotFoundError):
            files.rename(f"{root}/a", f"{root}/c")

    def test_a_link_replaces_a_link_but_not_a_file(self, files: Files, root: str) -> None:
        files.symlink("one", f"{root}/link")
        files.symlink("two", f"{root}/link")
        files.write(f"{root}/file", b"")
        with pytest.raises(FileExistsError):
            files.symlink("two", f"{root}/file")
        assert files.read_link(f"{root}/link") == "two"
        assert files.stat(f"{root}/link").kind is FileKind.LINK  # type: ignore[union-attr]

    def test_a_second_name_of_a_link_outlives_the_first(self, files: Files, root: str) -> None:
        files.symlink("target", f"{root}/link")
        files.link(f"{root}/link", f"{root}/second")
        files.remove(f"{root}/link")
        assert files.read_link(f"{root}/second") == "target"
        for source in ("link", "second"):  # one is not there any more; the name of the other is taken
            with pytest.raises(OSError, match=r"second|link"):
                files.link(f"{root}/{source}", f"{root}/second")

    def test_a_renamed_file_keeps_its_inode_and_a_new_one_has_another(self, files: Files, root: str) -> None:
        files.write(f"{root}/a", b"")
        before = files.stat_file(f"{root}/a")
        files.rename(f"{root}/a", f"{root}/b")
        files.write(f"{root}/a", b"")
        assert before is not None
        assert files.stat(f"{root}/b")._replace(changed=before.changed) == before  # type: ignore[union-attr]
        assert files.stat(f"{root}/a").inode != before.inode  # type: ignore[union-attr]

    def test_a_change_is_seen_without_reading(self, files: Files, root: str) -> None:
        def shown() -> tuple[FileStat | None, ...]:
            time.sleep(0.02)  # a tick of the clock of any file system
            return files.stat(root), files.stat(f"{root}/a"), files.stat_file(f"{root}/a")

        files.write(f"{root}/a", b"one")
        changes: list[Callable[[], object]] = [
            lambda: files.write(f"{root}/b", b""),
            lambda: files.write(f"{root}/a", b"two"),
            lambda: files.replace(f"{root}/a", b"two", durable=False),
            lambda: files.rename(f"{root}/b", f"{root}/c"),
            lambda: files.touch(f"{root}/a"),
            lambda: files.remove(f"{root}/c"),
        ]
        seen = [shown()]
        for change in changes:
            change()
            seen.append(shown())
        assert len(set(seen)) == len(seen)
        assert shown() == seen[-1]
        files.symlink("a", f"{root}/link")
        assert [files.stat_file(f"{root}/{name}") for name in ("link", "none")] == [None, None]

    def test_what_it_creates_is_private(self, files: Files, root: str) -> None:
        files.make_directory(f"{root}/d")
        files.write(f"{root}/d/a", b"")
        files.replace(f"{root}/d/b", b"", durable=False)
        files.create_exclusive(f"{root}/d/c")
        files.open_append(f"{root}/d/e").close()
        files.preallocate(f"{root}/d/f", 10)
        assert files.stat(f"{root}/d").mode == 0o700  # type: ignore[union-attr]
        for name in files.list(f"{root}/d"):
            assert files.stat(f"{root}/d/{name}").mode == 0o600  # type: ignore[union-attr]

    def test_lists_nothing_where_there_is_no_directory(self, files: Files, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            files.list(f"{root}/a")

    def test_knows_how_much_room_is_left(self, files: Files, root: str) -> None:
        assert files.free_space(root).bytes > 0
        files.sync_directory(root)

    def test_a_change_and_a_touch_show(self, files: Files, root: str) -> None:
        path = f"{root}/a"
        assert files.modified(path) is None
        with pytest.raises(FileNotFoundError):
            files.touch(path)
        files.write(path, b"content")
        seen = [files.modified(path)]
        for _ in range(3):
            before = seen[-1]
            while files.modified(path) == before:  # the clock of a disk may tick slowly
                files.touch(path)
            seen.append(files.modified(path))
        assert None not in seen
        assert len(set(seen)) == 4
        assert files.read(path, 100) == b"content"


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
