"""Directories as ZIPs: everything regular is in them, and nothing else is ever opened."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from proof.descriptors import open_files
from tenuto.service import archive
from tenuto.service.archive import ArchiveSource, tree_bytes, write_zip, zip_stream


def packed(directory: Path, **more: object) -> zipfile.ZipFile:
    source = ArchiveSource(str(directory), {}, {"id": 7}, **more)  # type: ignore[arg-type]
    return zipfile.ZipFile(io.BytesIO(b"".join(zip_stream(source))))


def skipped(made: zipfile.ZipFile) -> dict[str, str]:
    return {entry["name"]: entry["why"] for entry in json.loads(made.read(".tenuto/job.json"))["skipped"]}


def test_files_are_packed_at_the_root(tmp_path: Path) -> None:
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "run.sh").write_text("echo\n")
    (tmp_path / "sub" / "deep" / "x.bin").write_bytes(os.urandom(300_000))
    (tmp_path / "zeros").write_bytes(bytes(500_000))
    (tmp_path / "empty").touch()
    made = packed(tmp_path)
    assert made.testzip() is None
    assert set(made.namelist()) == {"run.sh", "sub/deep/x.bin", "zeros", "empty", ".tenuto/job.json"}
    assert made.read("sub/deep/x.bin") == (tmp_path / "sub" / "deep" / "x.bin").read_bytes()
    assert made.read("zeros") == bytes(500_000)
    assert made.getinfo("sub/deep/x.bin").compress_type == zipfile.ZIP_STORED, "it does not shrink"
    assert made.getinfo("zeros").compress_size < 10_000
    assert json.loads(made.read(".tenuto/job.json")) == {"id": 7, "skipped": []}


def test_links_pipes_sockets_and_devices_are_named_and_never_opened(tmp_path: Path) -> None:
    """H08."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret").write_text("secret")
    (work / "ok").write_text("ok")
    (work / "link").symlink_to(tmp_path / "secret")
    (work / "linked-folder").symlink_to(tmp_path)
    os.mkfifo(work / "pipe")
    (work / "a\\..\\b").write_text("x")
    (work / "new\nline").write_text("x")
    os.link(tmp_path / "secret", work / "hard")
    with open(work / "sparse", "wb") as sparse:
        sparse.truncate(1 << 40)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(work / "socket"))
        made = packed(work, owners=frozenset({12345}))
    assert set(made.namelist()) == {"ok", ".tenuto/job.json"}
    why = skipped(made)
    assert why["link"] == why["linked-folder"] == "a symbolic link"
    assert why["pipe"] == "a pipe"
    assert why["socket"] == "a socket"
    assert why["hard"] == "a link to a file of another user"
    assert why["sparse"] == "the result would be too large"
    assert "could harm" in why["a\\..\\b"]
    assert len(why) == 8


def test_a_link_to_an_own_file_is_packed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    os.link(tmp_path / "a", tmp_path / "b")
    made = packed(tmp_path, owners=frozenset({os.getuid()}))
    assert made.read("b") == b"a"


def test_names_that_are_not_text_are_skipped(tmp_path: Path) -> None:
    with open(os.path.join(os.fsencode(tmp_path), b"\xff\xfe"), "w"):
        pass
    assert len(skipped(packed(tmp_path))) == 1


def test_directories_that_are_too_deep_are_skipped(tmp_path: Path) -> None:
    deep = tmp_path / "/".join("d" * 1 for _ in range(50))
    deep.mkdir(parents=True)
    (deep / "x").touch()
    made = packed(tmp_path)
    assert made.namelist() == [".tenuto/job.json"]
    assert "deeper" in next(iter(skipped(made).values()))


def test_extra_files_lie_in_their_own_folder_and_cannot_be_forged(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".tenuto").mkdir(parents=True)
    (work / ".tenuto" / "stdout").write_text("forged")
    (tmp_path / "out").write_text("true")
    source = ArchiveSource(
        str(work), {"stdout": str(tmp_path / "out"), "stderr": str(tmp_path / "missing")}, {}
    )
    made = zipfile.ZipFile(io.BytesIO(b"".join(zip_stream(source))))
    assert made.read(".tenuto/stdout") == b"true"
    assert set(made.namelist()) == {".tenuto/stdout", ".tenuto/job.json"}


def test_a_log_that_is_expected_is_an_empty_file_where_there_is_none(tmp_path: Path) -> None:
    """Of a job that is done an empty log is removed; scripts read both logs of every result."""
    (tmp_path / "out").write_text("printed")
    logs = {name: str(tmp_path / name) for name in ("out", "err", "metrics")}
    source = ArchiveSource(str(tmp_path / "none"), logs, {}, expected=("out", "err"))
    made = zipfile.ZipFile(io.BytesIO(b"".join(zip_stream(source))))
    assert sorted(made.namelist()) == [".tenuto/err", ".tenuto/job.json", ".tenuto/out"]
    assert (made.read(".tenuto/out"), made.read(".tenuto/err")) == (b"printed", b"")
    made.extractall(tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / ".tenuto" / "err").read_text() == ""


def test_a_directory_that_changes_while_it_is_packed_gives_a_valid_zip(tmp_path: Path) -> None:
    """H09: one file shrinks, one grows, one vanishes, one is made."""
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_bytes(os.urandom(3 * archive.CHUNK))
    pieces = []
    for number, piece in enumerate(zip_stream(ArchiveSource(str(tmp_path), {}, {}))):
        pieces.append(piece)
        if number == 1:
            os.truncate(tmp_path / "a", 10)
            (tmp_path / "b").unlink()
            with open(tmp_path / "c", "ab") as grown:
                grown.write(os.urandom(archive.CHUNK))
            (tmp_path / "new").touch()
    made = zipfile.ZipFile(io.BytesIO(b"".join(pieces)))
    assert made.testzip() is None
    assert {"a", "c", "d"} <= set(made.namelist())


def test_a_directory_that_is_not_there_is_an_empty_zip(tmp_path: Path) -> None:
    made = packed(tmp_path / "gone")
    assert made.namelist() == [".tenuto/job.json"]
    assert "." in skipped(made)


def test_an_abandoned_stream_leaves_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a", "sub/b"):
        (tmp_path / name).write_bytes(os.urandom(3 * archive.CHUNK))
    stream = zip_stream(ArchiveSource(str(tmp_path), {}, {}))
    next(stream)
    assert open_files(str(tmp_path))
    stream.close()  # type: ignore[attr-defined]
    assert not open_files(str(tmp_path))


def test_the_written_file_has_the_size_and_digest_it_says(
    tmp_path: Path, require: Callable[[str], None]
) -> None:
    require("unzip")
    work = tmp_path / "work"
    work.mkdir()
    (work / "x").write_bytes(os.urandom(100_000))
    with open(tmp_path / "result.zip", "wb") as target:
        done = write_zip(ArchiveSource(str(work), {}, {}), target)
    content = (tmp_path / "result.zip").read_bytes()
    assert done.bytes == len(content)
    assert done.sha256 == hashlib.sha256(content).hexdigest()
    listed = subprocess.run(
        ["unzip", "-t", tmp_path / "result.zip"], capture_output=True, text=True, check=False
    )
    assert listed.returncode == 0, listed.stdout


def test_memory_does_not_grow_with_files(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as large:
        large.truncate(64 << 20)
    longest = max(len(piece) for piece in zip_stream(ArchiveSource(str(tmp_path), {}, {})))
    assert longest <= 2 * archive.CHUNK


def test_the_size_of_a_tree_is_counted_as_far_as_needed(tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / f"d{n}").mkdir()
        (tmp_path / f"d{n}" / "x").write_bytes(os.urandom(100_000))
    assert tree_bytes(str(tmp_path), 1 << 30) >= 400_000
    assert tree_bytes(str(tmp_path), 150_000) > 150_000


@pytest.mark.parametrize("mode", [0o755, 0o644])
def test_modes_are_kept(tmp_path: Path, mode: int) -> None:
    (tmp_path / "x").touch()
    (tmp_path / "x").chmod(mode)
    assert packed(tmp_path).getinfo("x").external_attr >> 16 & 0o777 == mode
