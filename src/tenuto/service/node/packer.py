"""The result of a payload: its files, its logs and what became of it, packed once and kept.
Moves no row; `runner` does, once the result is on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto.service.archive import Packed, Source, write_zip
from tenuto.service.node.payloads import PayloadRow
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.modes import FILE_MODE

WORK = "work"
"""The directory of a payload's program, below the job's."""
RESULT = "result.zip"


class Place(NamedTuple):
    """Where the files of a payload lie."""

    paths: JobPaths

    @property
    def work(self) -> str:
        return f"{self.paths.directory}/{WORK}"

    @property
    def result(self) -> str:
        return f"{self.paths.directory}/{RESULT}"

    @property
    def part(self) -> str:
        return f"{self.paths.directory}/{RESULT}.part"

    @property
    def logs(self) -> dict[str, str]:
        return {"stdout": self.paths.out, "stderr": self.paths.err}


def source(place: Place, facts: Mapping[str, Any], uid: int | None, moment: float) -> Source:
    """What is packed of a payload."""
    owners = None if uid is None else frozenset({uid})
    return Source(place.work, place.logs, facts, moment, owners)


def facts_of(row: PayloadRow, status: str, message: str, exit_code: int | None) -> dict[str, Any]:
    """What `.tenuto/job.json` says of a payload."""
    return {
        "id": int(row.job_id) if row.job_id.isdecimal() else row.id,
        "user_id": row.user_id,
        "service": row.service,
        "status": status,
        "message": message,
        "exit_code": exit_code,
    }


def pack(place: Place, packed: Source) -> Packed:
    """Packs a result; it is on the disk when this returns. Raises `OSError` if there is no room."""
    try:
        with open(place.part, "wb", opener=private) as target:
            done = write_zip(packed, target)
            target.flush()
            os.fsync(target.fileno())
        os.rename(place.part, place.result)
        sync_directory(place.paths.directory)
    except OSError:
        remove_quietly(place.part)
        raise
    return done


def private(path: str, flags: int) -> int:
    """Opens a new file for this account alone, whatever the umask: the ``opener`` of `open`."""
    return os.open(path, flags, FILE_MODE)


def sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def remove_quietly(path: str) -> None:
    """Removes a file that may not be there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
