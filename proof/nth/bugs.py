"""Owns the bugs planted in the workspace: plausible mistakes, each put in the place of a right function."""

from __future__ import annotations

import os
from typing import Any

from tenuto.errors import NotRegularFile
from tenuto.workspace import attempt_files, files, job_directory, journal
from tenuto.workspace.event_writer import EventWriter, file_numbers
from tenuto.workspace.files import DiskFiles
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker, write_marker
from tenuto.workspace.modes import FILE_MODE
from tenuto.workspace.ports import Files
from tenuto.workspace.records import StatusRecord

_files: Any = files
"""With the names that are its own business."""


def _write_once(fd: int, data: bytes) -> None:
    _files.os.write(fd, data)


def _replace_in_place(
    self: DiskFiles, path: str, data: bytes, *, durable: bool, reserve: str | None = None
) -> None:
    self.write(path, data)


def _replace_leaves_temporary(
    self: DiskFiles, path: str, data: bytes, *, durable: bool, reserve: str | None = None
) -> None:
    temporary = _files._temporary_name(path)
    fd = _files.os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with _files._closing(fd):
        _files._write_all(fd, data)
    _files.os.rename(temporary, path)


def _finish_quietly(
    files: Files, paths: JobPaths, marker: Marker, status: StatusRecord, *durability: Any
) -> None:
    try:
        write_marker(files, paths, marker, *durability)
    except OSError:
        return


def _append_without_seal(self: EventWriter, lines: list[bytes]) -> None:
    if self._file is not None and lines:
        self._file.append(b"".join(lines))


def _clear_first(files: Files, paths: JobPaths) -> int:
    """As if the numbers began anew: launch.json is removed with the rest."""
    for path in (paths.launch, paths.status, paths.done, paths.failed, paths.pid):
        files.remove(path)
    return 0


def _read_hides_errors(self: DiskFiles, path: str, limit: int) -> bytes:
    try:
        with _files._closing(_files._open(path)) as fd:
            _files._regular_size(fd, path)
            return bytes(_files._read_up_to(fd, limit))
    except NotRegularFile:
        raise
    except OSError as error:
        raise FileNotFoundError(path) from error


def _read_leaves_open(self: DiskFiles, path: str, limit: int) -> bytes:
    fd = _files._open(path)
    data = bytes(_files._read_up_to(fd, _files._regular_size(fd, path)))
    _files.os.close(fd)
    return data


def _archive_by_copy(disk: Files, place: Any, target: str) -> list[str]:
    disk.make_directory(target)
    for number in file_numbers(disk, place):
        data = disk.read(place.path(number), 1 << 20)
        disk.remove(place.path(number))
        disk.write(f"{target}/{place.file_name(number)}", data)
    return []


BUGS: list[tuple[str, str, object, str, Any, str]] = [
    (
        "a short write is believed",
        "`_write_all` does not look at what `write` returns",
        files,
        "_write_all",
        _write_once,
        "status.json, created",
    ),
    (
        "files are replaced in place",
        "`replace` without temporary file and rename",
        DiskFiles,
        "replace",
        _replace_in_place,
        "status.json, replaced",
    ),
    (
        "temporary files stay",
        "`replace` does not remove its temporary file when it fails",
        DiskFiles,
        "replace",
        _replace_leaves_temporary,
        "status.json, replaced",
    ),
    (
        "a marker that cannot be written is forgotten",
        "`finish` swallows the error of the marker, as it does that of the status",
        attempt_files,
        "finish",
        _finish_quietly,
        ".done with a large result",
    ),
    (
        "a torn line is not sealed",
        "`EventWriter._append` writes on after half a line",
        EventWriter,
        "_append",
        _append_without_seal,
        "journal",
    ),
    (
        "attempts are counted from what is left",
        "`open_attempt` clears the directory before it looks for the last attempt",
        job_directory,
        "_last_attempt",
        lambda files, paths, evidence: _clear_first(files, paths),
        "first attempt",
    ),
    (
        "an unreadable file is a missing one",
        "`read` turns every error into 'not found'",
        DiskFiles,
        "read",
        _read_hides_errors,
        "unreadable marker",
    ),
    (
        "a file that cannot be read stays open",
        "`read` closes the descriptor only if all went well",
        DiskFiles,
        "read",
        _read_leaves_open,
        "look at a running job",
    ),
    (
        "archived by copying",
        "`archive` removes a file before its copy is there",
        journal,
        "archive",
        _archive_by_copy,
        "journal archived and replayed",
    ),
]
"""Name, what it stands for, where it goes, and the scenario that finds it first."""
