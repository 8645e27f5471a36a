"""The files of one attempt, written and read by small functions: what a runner needs of a job's directory.
Kept apart from `job_directory`, whose imports every job would pay for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from tenuto.errors import WorkspaceError
from tenuto.light import sha256
from tenuto.workspace.flags import RESULT_NOT_KEPT, STORED_RESULT_LIMIT
from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import (
    RESULT_LIMIT,
    Durability,
    Marker,
    brief_record,
    read_markers,
    write_marker,
)
from tenuto.workspace.ports import FileKind, Files, FileStat
from tenuto.workspace.records import (
    Corrupt,
    LaunchRecord,
    LocksRecord,
    PidRecord,
    StatusRecord,
    StopRecord,
    read_record,
)

R = TypeVar("R")
A = TypeVar("A", PidRecord, StopRecord, LocksRecord)


KEEPS_LOGS = "keeps_logs"
"""In the instructions of an attempt: its logs are paths of its task, which others open."""


def write_params(files: Files, paths: JobPaths, params: bytes) -> None:
    _put(files, paths.params, params)


def write_script(files: Files, paths: JobPaths, script: bytes) -> None:
    _put(files, paths.script, script)


def write_status(files: Files, paths: JobPaths, status: StatusRecord) -> None:
    _put(files, paths.status, status.encode())


def write_pid(files: Files, paths: JobPaths, pid: PidRecord) -> None:
    _put(files, paths.pid, pid.encode())


def write_locks(files: Files, paths: JobPaths, locks: LocksRecord) -> None:
    _put(files, paths.locks, locks.encode())


def request_stop(files: Files, paths: JobPaths, stop: StopRecord) -> None:
    """Say that an attempt is to end, and why; before the first signal is sent.

    The request for a later attempt stays: a latecomer with another one meant one that has ended meanwhile.
    """
    known = _readable(read_record(files, paths.stop, StopRecord.decode))
    if known is None or known.attempt <= stop.attempt:
        _put(files, paths.stop, stop.encode())


def read_launch(files: Files, paths: JobPaths) -> LaunchRecord | None:
    """The record of the last attempt, or the part that the marker of a good end has taken up."""
    found = read_record(files, paths.launch, LaunchRecord.decode)
    return read_markers(files, paths).launched if found is None else _readable(found)


def read_pid(files: Files, paths: JobPaths, attempt: int) -> PidRecord | None:
    """The runner of this attempt; None if it has not written its record."""
    return _of_attempt(files, paths.pid, PidRecord.decode, attempt)


def read_stop(files: Files, paths: JobPaths, attempt: int) -> StopRecord | None:
    """The request to stop this attempt; None if there is none, or only for another attempt."""
    return _of_attempt(files, paths.stop, StopRecord.decode, attempt)


def read_locks(files: Files, paths: JobPaths, attempt: int) -> LocksRecord | None:
    """The tokens this attempt holds."""
    return _of_attempt(files, paths.locks, LocksRecord.decode, attempt)


def read_status(files: Files, paths: JobPaths) -> StatusRecord | None:
    return _readable(read_record(files, paths.status, StatusRecord.decode))


def finish(
    files: Files,
    paths: JobPaths,
    marker: Marker,
    status: StatusRecord,
    durability: Durability = Durability.MARKER,
    launch: LaunchRecord | None = None,
) -> None:
    """Write the marker of an attempt, then the status: by its runner, or under the lock with no runner alive.

    Fails only if the marker cannot be written. Without the status (the disk is full) its readers derive it.
    `launch`: the record of an attempt that left nothing behind which still runs. If that ended well, its
    marker takes up the record, and what says nothing more goes.
    """
    if marker.reason is not None or launch is None:
        write_marker(files, paths, marker, durability)
        with suppress(OSError):
            files.replace(paths.status, status.encode(), durable=False)  # nearly always there, from the start
        return
    if not launch.external:
        marker = marker.with_launch(launch)
    write_marker(files, paths, marker, durability)
    with suppress(OSError):  # what stays does no harm
        _tidy(files, paths, launch, is_taken_up=bool(marker.launch))


def _tidy(files: Files, paths: JobPaths, launch: LaunchRecord, *, is_taken_up: bool) -> None:
    """Remove what says nothing of a job that is done, which is most of its files; the lock's stays.

    Of an attempt that a cluster ran its record and its beat stay: a runner that is late asks for them.
    """
    gone = [paths.script, paths.status, paths.locks]
    for log in () if launch.instructions.get(KEEPS_LOGS) else (paths.out, paths.err):
        found = files.stat(log)
        if found is not None and found.size == 0:
            gone.append(log)
    if not launch.external:
        gone.append(paths.pid)
    if is_taken_up:
        gone += (paths.launch, paths.stop)
    for path in gone:
        files.remove(path)
    if is_taken_up:
        files.remove_directory(paths.private)


def preserve(
    files: Files, paths: JobPaths, marker: Marker, result: object, durability: Durability = Durability.MARKER
) -> Marker:
    """Keep the files of a task that ended well, and return its marker with their facts.

    With `Durability.MARKER` all of it is on the disk on return: the files of the task in the job's directory,
    its outputs for watchers, and the result. Raises as `keep_result`, and `OSError` of the disk.
    """
    if durability is Durability.MARKER:
        _sync_outputs(files, paths)
    params = files.stat(paths.params)
    marker = marker._replace(params_bytes=None if params is None else params.size)
    if "outputs" in marker.record:
        marker = marker._replace(record={**marker.record, "outputs": _sizes(files, paths, marker)})
    return keep_result(files, paths, marker, result, durability)


def _sizes(files: Files, paths: JobPaths, marker: Marker) -> dict[str, int | None]:
    """The declared outputs that are there: the size of a file, None for a directory."""
    sizes: dict[str, int | None] = {}
    for name in marker.record["outputs"]:
        found = led_to(files, f"{paths.directory}/{name}")
        if found is not None:
            sizes[name] = found.size if found.kind is FileKind.FILE else None
    return sizes


def led_to(files: Files, path: str) -> FileStat | None:
    """The entry at a path, or that links there lead to; None if nothing."""
    for _ in range(_MOST_LINKS):
        found = files.stat(path)
        if found is None or found.kind is not FileKind.LINK:
            return found
        target = files.read_link(path)
        path = target if target[:1] == "/" else f"{path.rpartition('/')[0]}/{target}"
    return None


_MOST_LINKS = 40


def _sync_outputs(files: Files, paths: JobPaths) -> None:
    files.sync_tree(paths.directory, paths.is_own)
    if files.stat(paths.task_outputs) is not None:
        handed = files.open_append(paths.task_outputs)
        try:
            handed.sync()
        finally:
            handed.close()
        files.sync_directory(paths.private)


def has_its_params(files: Files, paths: JobPaths, marker: Marker) -> bool:
    """False if a power loss took the content of `params.json`: it is not synced, as every job would pay."""
    if marker.params_bytes is None:
        return True
    found = files.stat(paths.params)
    return found is not None and found.size == marker.params_bytes


def keep_result(
    files: Files, paths: JobPaths, marker: Marker, result: object, durability: Durability = Durability.MARKER
) -> Marker:
    """The marker with the result in it if it is small; a larger one is written to a file of its own first.

    A result that does not fit the disk is not kept, and its job is done. Raises `TypeError` or `ValueError`
    for a result that JSON cannot say.
    """
    if result is None:
        return marker
    data = to_json(result)
    record = {**marker.record, "result": sha256(data).hexdigest()[:16]} if marker.record else marker.record
    if len(data) <= RESULT_LIMIT:
        return marker._replace(result=result, result_stored=False, record=record)
    try:
        files.replace(paths.result, data, durable=durability is Durability.MARKER)
    except OSError as error:  # hours of work may be in the job's directory
        flags = (*marker.flags, RESULT_NOT_KEPT)
        return marker._replace(message=f"its result could not be written: {error}", flags=flags)
    return marker._replace(result=None, result_stored=True, record=record)


RECORD_IN_MARKER = 1000
"""A longer record of what a result was made of goes to `.tenuto/record.json`."""


def keep_record(
    files: Files, paths: JobPaths, marker: Marker, durability: Durability = Durability.MARKER
) -> Marker:
    """The marker with its record; a long one is written to a file first, with the nonce of the attempt.

    Of a record that the disk does not take, as much as the marker has room for is kept.
    """
    data = to_json({**marker.record, "nonce": marker.nonce})
    if len(data) <= RECORD_IN_MARKER:
        return marker
    try:
        files.replace(paths.record, data, durable=durability is Durability.MARKER)
    except OSError:
        return marker._replace(record={**marker.record, "files": {}})
    return marker._replace(record={**brief_record(marker.record), "stored": True})


def read_made_of(files: Files, paths: JobPaths, marker: Marker) -> Mapping[str, Any]:
    """What the result of a marker was made of, as far as that is known."""
    if marker.record.get("stored") is not True:
        return marker.record
    try:
        found = from_json(files.read(paths.record, STORED_RESULT_LIMIT))
    except (OSError, ValueError, WorkspaceError):
        return marker.record
    whole = isinstance(found, dict) and found.pop("nonce", None) == marker.nonce
    return {**found, **marker.record} if whole else marker.record


def read_result(files: Files, paths: JobPaths, marker: Marker) -> Any:
    """What the task returned. Raises `ValueError` or `OSError` if `.tenuto/result.json` was tampered with."""
    return read_large_result(files, paths) if marker.result_stored else marker.result


def read_large_result(files: Files, paths: JobPaths) -> Any:
    """What `.tenuto/result.json` holds: a result too large for a marker."""
    return from_json(files.read(paths.result, STORED_RESULT_LIMIT))


def rotate_logs(files: Files, paths: JobPaths) -> int:
    """Keep the logs of the attempt before: `x.out` becomes `x.out.n`; returns n, 0 if there was nothing."""
    logs = [log for log in (paths.out, paths.err) if files.stat(log) is not None]
    if not logs:
        return 0
    number = 1
    while any(files.stat(paths.rotated(log, number)) is not None for log in (paths.out, paths.err)):
        number += 1
    for log in logs:
        files.rename(log, paths.rotated(log, number))
    return number


def _put(files: Files, path: str, data: bytes) -> None:
    """Write a file that no reader relies on yet: create it, or replace an earlier one atomically.

    A rename costs several times as much as a creation, and each job has many of these files. A reader that
    finds one half created treats it as a missing one.
    """
    try:
        files.create_exclusive(path, data)
    except FileExistsError:
        files.replace(path, data, durable=False)


def _of_attempt(files: Files, path: str, decode: Callable[[bytes], A | Corrupt], attempt: int) -> A | None:
    record = _readable(read_record(files, path, decode))
    return record if record is not None and record.attempt == attempt else None


def _readable(record: R | Corrupt | None) -> R | None:
    return None if isinstance(record, Corrupt) else record
