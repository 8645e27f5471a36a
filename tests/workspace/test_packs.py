"""The file that has the packed jobs of a task: whole through any damage, by any number of writers."""

from __future__ import annotations

import os
import random
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tenuto.errors import NotRegularFile
from tenuto.workspace import packs
from tenuto.workspace.job_directory import take_lock, unpacked
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.lines import seal
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import FileKind, Machine


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
