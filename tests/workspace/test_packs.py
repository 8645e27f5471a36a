"""The file that has the packed jobs of a task: whole through any damage, by any number of writers."""

from __future__ import annotations

import os
import random
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tenuto.errors import DirectoryUnusable, NotRegularFile
from tenuto.jobs.view import JobsView
from tenuto.testing import FakeDisk, FakeHost
from tenuto.workspace import packs
from tenuto.workspace.job_directory import take_lock, unpacked
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.lines import seal
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import FileKind, FileStat, Machine


def layout(tmp_path: Path) -> Layout:
    return Layout(f"{tmp_path}/ws")


def made(place: Layout, job: str, content: bytes = b"left by the task") -> JobPaths:
    """A job with a file."""
    paths = place.job("mod.Task", job)
    Path(paths.directory, "deep").mkdir(parents=True)
    Path(paths.directory, "deep", "output").write_bytes(content)
    Path(paths.directory, "tool").write_bytes(b"#!/bin/sh\n")
    os.chmod(Path(paths.directory, "tool"), 0o755)
    os.utime(Path(paths.directory, "tool"), ns=(5, 7))
    return paths


def packed(machine: Machine, place: Layout, *jobs: str) -> list[JobPaths]:
    """Jobs that lie in the pack alone."""
    all_paths = [made(place, job, job.encode()) for job in jobs]
    records = [packs.record_of(machine.files, paths, 1) for paths in all_paths]
    packs.append(machine, place.pack("mod.Task"), [one for one in records if isinstance(one, bytes)])
    for paths in all_paths:
        machine.files.remove_tree(paths.directory)
    return all_paths


def test_a_packed_job_is_read_as_from_its_directory(tmp_path: Path) -> None:
    machine, place = this_machine(), layout(tmp_path)
    (job,) = packed(machine, place, "ab12")
    files, output = machine.files, f"{job.directory}/deep/output"
    assert files.read(output, 100) == b"ab12"
    assert files.read_range(output, 1, 2) == b"b1"
    assert files.list(place.task("mod.Task")) == ["ab12"]
    assert (files.list(job.directory), files.list(f"{job.directory}/deep")) == (["deep", "tool"], ["output"])
    found, tool = files.stat(job.directory), files.stat(f"{job.directory}/tool")
    assert found is not None
    assert tool is not None
    assert (found.kind, tool.kind, tool.size, tool.mode) == (FileKind.DIRECTORY, FileKind.FILE, 10, 0o755)
    assert files.modified(f"{job.directory}/tool") == 7
    assert files.stat(f"{job.directory}/none") is None
    assert files.stat_file(f"{job.directory}/deep") is None
    with pytest.raises(NotRegularFile):
        files.read(f"{job.directory}/deep", 100)
    with pytest.raises(FileNotFoundError):
        files.read(f"{job.directory}/none", 100)


def test_the_lock_of_a_packed_job_puts_it_back(tmp_path: Path) -> None:
    machine, place = this_machine(), layout(tmp_path)
    first, second = packed(machine, place, "ab12", "cd34")
    lock = take_lock(machine, first)
    assert lock is not None
    lock.close()
    tool = Path(first.directory, "tool")
    assert (tool.read_bytes(), tool.stat().st_mode & 0o777, tool.stat().st_mtime_ns) == (
        b"#!/bin/sh\n",
        0o755,
        7,
    )
    assert Path(first.directory, "deep", "output").read_bytes() == b"ab12"
    assert not packs.is_packed(machine.files, first.directory)
    assert packs.is_packed(machine.files, second.directory)
    # A person who removes the directory by hand does not get the old one back.
    machine.files.remove_tree(first.directory)
    assert this_machine().files.stat(first.directory) is None


def test_what_another_process_packs_is_seen(tmp_path: Path) -> None:
    mine, other, place = this_machine(), this_machine(), layout(tmp_path)
    (first,) = packed(other, place, "ab12")
    assert mine.files.stat(first.directory) is not None
    (second,) = packed(other, place, "cd34")
    assert mine.files.read(f"{second.directory}/deep/output", 100) == b"cd34"
    assert unpacked(other, first)
    assert not packs.is_packed(mine.files, first.directory)


@pytest.mark.parametrize("with_index", [True, False])
def test_a_torn_record_is_passed_over(tmp_path: Path, with_index: bool) -> None:
    machine, place = this_machine(), layout(tmp_path)
    packed(machine, place, "ab12")
    path = place.pack("mod.Task")
    if with_index:
        packs.keep_index(machine, path)
    record = packs.record_of(machine.files, made(place, "torn", random.Random(1).randbytes(900)), 1)
    assert isinstance(record, bytes)
    whole = Path(path).read_bytes()
    for length in (1, 30, len(record) // 2, len(record) - 1):
        Path(path).write_bytes(whole + record[:length])
        other = this_machine()
        (later,) = packed(other, place, f"later{length}")
        for reader in (other, this_machine()):
            assert reader.files.read(f"{later.directory}/deep/output", 100) == f"later{length}".encode()
            assert packs.is_packed(reader.files, place.job("mod.Task", "ab12").directory)
            assert not packs.is_packed(reader.files, place.job("mod.Task", "torn").directory)


def test_damage_is_never_read_as_content(tmp_path: Path) -> None:
    machine, place = this_machine(), layout(tmp_path)
    jobs = packed(machine, place, "ab12", "cd34", "ef56")
    path = Path(place.pack("mod.Task"))
    packs.keep_index(machine, str(path))
    whole, index = path.read_bytes(), Path(f"{place.packs}/mod.Task.index")
    kept = index.read_bytes()
    chance = random.Random(3)
    for _ in range(150):
        target, content = chance.choice([(path, whole), (index, kept)])
        at, bit = chance.randrange(len(content)), 1 << chance.randrange(8)
        target.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
        files = this_machine().files
        hurt = 0
        for job in jobs:
            name = job.directory.rpartition("/")[2]
            try:
                assert files.read(f"{job.directory}/deep/output", 100) == name.encode()
            except FileNotFoundError:
                hurt += 1
                if target is path and at > 60:  # its index knows of it: it is no job that never was
                    assert b"is damaged at byte" in files.read(job.done, 1000)
        assert hurt <= (1 if target is path and at > 60 else 3 if target is path else 0)
        target.write_bytes(content)


def test_a_damaged_job_is_put_back_as_one_with_an_unreadable_marker(tmp_path: Path) -> None:
    machine, place = this_machine(), layout(tmp_path)
    (job,) = packed(machine, place, "ab12")
    path = Path(place.pack("mod.Task"))
    packs.keep_index(machine, str(path))
    path.write_bytes(path.read_bytes()[:-3] + b"???")
    other = this_machine()
    lock = take_lock(other, job)
    assert lock is not None
    lock.close()
    assert "is damaged at byte" in Path(job.done).read_text()


@pytest.mark.parametrize("damage", ["gone", "empty", "of another pack", "too short"])
def test_the_index_is_never_needed(tmp_path: Path, damage: str) -> None:
    machine, place = this_machine(), layout(tmp_path)
    jobs = packed(machine, place, *(f"job{number}" for number in range(30)))
    packs.keep_index(machine, place.pack("mod.Task"))
    index = Path(f"{place.packs}/mod.Task.index")
    kept = index.read_bytes()
    if damage == "gone":
        index.unlink()
    elif damage == "of another pack":
        index.write_bytes(kept.replace(b"tenuto pack 1 ", b"tenuto pack 1 x"))
    else:
        index.write_bytes(b"" if damage == "empty" else kept[:-5])
    files = this_machine().files
    for job in jobs:
        assert files.read(f"{job.directory}/deep/output", 100) == job.directory.rpartition("/")[2].encode()


def test_a_pack_of_jobs_that_are_gone_gets_smaller(tmp_path: Path) -> None:
    machine, place = this_machine(), layout(tmp_path)
    noise = random.Random(5).randbytes(200_000)
    paths = [made(place, f"job{number}", noise) for number in range(5)]
    records = [packs.record_of(machine.files, one, 1) for one in paths]
    pack = place.pack("mod.Task")
    packs.append(machine, pack, [one for one in records if isinstance(one, bytes)])
    reader = this_machine()
    assert packs.is_packed(reader.files, paths[4].directory)
    for one in paths[:4]:
        packs.forget_job(machine, one)
    packs.keep_index(machine, pack)
    assert Path(pack).stat().st_size < 300_000
    machine.files.remove_tree(paths[4].directory)
    for files in (machine.files, reader.files, this_machine().files):
        assert files.read(f"{paths[4].directory}/deep/output", 1 << 20) == noise
        assert not packs.is_packed(files, paths[0].directory)


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    place = layout(tmp_path)

    def add(number: int) -> None:
        packed(this_machine(), place, *(f"w{number}n{one}" for one in range(10)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(8)))
    assert len(this_machine().files.list(place.task("mod.Task"))) == 80


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a//b", ".", "deep/../../x", "a\0b", "file/inside"])
def test_a_pack_made_to_do_harm_leads_nowhere(tmp_path: Path, name: str) -> None:
    machine, place = this_machine(), layout(tmp_path)
    job = place.job("mod.Task", "ab12")
    entries = [["", "d", 448, 0, 0, ""], ["file", "f", 384, 0, 0, ""], [name, "f", 384, 0, 4, ""]]
    payload = zlib.compress(b"harm")
    said = {"job": "ab12", "bytes": len(payload), "crc": zlib.crc32(payload), "at": 0, "entries": entries}
    packs.append(machine, place.pack("mod.Task"), [seal(said) + payload + b"\n"])
    lock = take_lock(machine, job)
    assert lock is not None
    lock.close()
    assert sorted(os.listdir(job.directory)) == [".tenuto", "Task.done", "Task.lock"]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda folder: os.truncate(folder / "tool", 2 << 20), "tool has more than 1 MB"),
        (lambda folder: os.mkfifo(folder / "pipe"), "pipe is no file"),
        (lambda folder: os.link(folder / "tool", folder / "other"), "a hard link"),
        (lambda folder: [(folder / f"f{n}").touch() for n in range(1001)], "1000 files"),
    ],
    ids=["large", "pipe", "hard link", "many"],
)
def test_what_no_pack_should_have_stays_in_its_directory(tmp_path: Path, spoil, why: str) -> None:
    machine, job = this_machine(), made(layout(tmp_path), "ab12")
    spoil(Path(job.directory))
    said = packs.record_of(machine.files, job, 1)
    assert isinstance(said, str)
    assert why in said


def test_jobs_are_found_where_a_copy_left_empty_directories_out(tmp_path: Path) -> None:
    machine, place = this_machine(), layout(tmp_path)
    (job,) = packed(machine, place, "ab12")
    os.rmdir(place.task("mod.Task"))
    os.rmdir(place.jobs)
    view = JobsView(place, this_machine())
    assert list(view.job_keys()) == [("mod.Task", "ab12")]
    assert unpacked(machine, job)
    assert Path(job.directory, "deep", "output").read_bytes() == b"ab12"


@pytest.mark.parametrize(
    "first_line", [b"x", b"tenuto pack 1", b"tenuto pack \n", b"\0" * 40, b"tenuto pack x1 y"]
)
def test_a_damaged_first_line_costs_no_job(tmp_path: Path, first_line: bytes) -> None:
    machine, place = this_machine(), layout(tmp_path)
    first, second = packed(machine, place, "ab12", "cd34")
    pack = Path(place.pack("mod.Task"))
    content = pack.read_bytes()
    end = content.index(b"\n")
    pack.write_bytes(first_line.ljust(end, b"?")[:end] + content[end:])
    other = this_machine()
    (third,) = packed(other, place, "ef56")
    packs.keep_index(other, str(pack))
    for files in (machine.files, other.files, this_machine().files):
        for job in (first, second, third):
            name = job.directory.rpartition("/")[2].encode()
            assert files.read(f"{job.directory}/deep/output", 100) == name


def test_a_pack_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    machine, place = this_machine(), layout(tmp_path)
    packed(machine, place, "ab12")
    pack = Path(place.pack("mod.Task"))
    later = pack.read_bytes().replace(b"tenuto pack 1 ", b"tenuto pack 2 ")
    pack.write_bytes(later)
    with pytest.raises(DirectoryUnusable, match="another version"):
        packed(this_machine(), place, "cd34")
    assert pack.read_bytes() == later


class PackedDisk(FakeDisk):
    """A disk in memory that loses what was not synced, and whose missing files may be in a pack."""

    def stat(self, path: str) -> FileStat | None:
        return super().stat(path) or ((found := packs.find(self, path)) and found[0].stat(found[1]))

    def read(self, path: str, limit: int) -> bytes:
        try:
            return super().read(path, limit)
        except FileNotFoundError:
            if (found := packs.find(self, path)) is None:
                raise
            return found[0].read(path, found[1], limit)

    def list(self, path: str) -> list[str]:
        here = FakeDisk.stat(self, path) is not None
        if not here and packs.find(self, path) is None:
            raise FileNotFoundError(path)
        return sorted({*(super().list(path) if here else ()), *packs.names(self, path)})


def test_a_power_loss_undoes_nothing_that_was_done_since_a_job_was_put_back() -> None:
    disk = PackedDisk()
    host = FakeHost(seed=1, disk=disk)
    machine, place = host.machine(), Layout("/ws")
    job = place.job("mod.Task", "ab12")
    disk.make_directory(job.directory)
    disk.write(job.done, b"of the first attempt")
    record = packs.record_of(disk, job, 1)
    assert isinstance(record, bytes)
    packs.append(machine, place.pack("mod.Task"), [record])
    disk.remove_tree(job.directory)
    lock = take_lock(machine, job)
    assert lock is not None
    disk.replace(job.done, b"of the second attempt", durable=True)
    lock.close()
    disk.power_loss()
    lock = take_lock(machine, job)
    assert lock is not None
    assert disk.read(job.done, 100) == b"of the second attempt"


def test_a_job_that_was_moved_to_a_new_name_is_packed(tmp_path: Path) -> None:
    machine, place = this_machine(), layout(tmp_path)
    job = made(place, "ab12")
    Path(job.directory, "Former.done").write_bytes(b"marker")
    os.link(f"{job.directory}/Former.done", job.done)
    record = packs.record_of(machine.files, job, 1)
    assert isinstance(record, bytes)
    packs.append(machine, place.pack("mod.Task"), [record])
    machine.files.remove_tree(job.directory)
    assert unpacked(machine, job)
    for marker in (job.done, f"{job.directory}/Former.done"):
        assert Path(marker).read_bytes() == b"marker"


def test_what_a_killed_packer_half_wrote_goes(tmp_path: Path) -> None:
    machine, place = this_machine(), layout(tmp_path)
    packed(machine, place, "ab12")
    left = Path(place.packs, "mod.Task.pack.4194305-anew.tenuto-tmp")
    left.write_bytes(b"half")
    packs.keep_index(machine, place.pack("mod.Task"))
    assert not left.exists()
