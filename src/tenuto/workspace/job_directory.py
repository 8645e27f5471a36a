"""The steps a scheduler and a runner take on a job's directory, each a small function over the ports.
Decides nothing: what the evidence means is `derive`'s business, when to start is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from tenuto.errors import DirectoryUnusable, FileTooLarge, LockLost
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace import journal as journals
from tenuto.workspace.derive import ClusterReport, Derived, Evidence, derive_state
from tenuto.workspace.derive_table import Action
from tenuto.workspace.layout import JobPaths, JournalPlace
from tenuto.workspace.markers import (
    RESULT_LIMIT,
    Durability,
    Marker,
    read_markers,
    reserve_marker,
    set_aside,
    write_marker,
)
from tenuto.workspace.ports import (
    DESCENDANTS_BYTE,
    RUNNER_BYTE,
    Files,
    Liveness,
    LockHandle,
    Machine,
    is_temporary,
)
from tenuto.workspace.records import (
    RECORD_LIMIT,
    Corrupt,
    LaunchRecord,
    LocksRecord,
    PidRecord,
    StatusRecord,
    StopRecord,
    from_json,
    read_record,
    to_json,
)

STORED_RESULT_LIMIT = 256 << 20

R = TypeVar("R")
A = TypeVar("A", PidRecord, StopRecord, LocksRecord)


class Settled(NamedTuple):
    """What was found in a directory, and what it amounts to."""

    evidence: Evidence
    derived: Derived


def take_lock(machine: Machine, paths: JobPaths) -> LockHandle | None:
    """Make the job's directory and try its lock; None if somebody has it.

    `DirectoryUnusable`, naming the path, if nothing can be written there; nothing else was changed then.
    """
    try:
        machine.files.make_directory(paths.private)
        return machine.locks.try_lock(paths.lock, RUNNER_BYTE)
    except OSError as error:
        raise DirectoryUnusable(
            f"{paths.directory} cannot be used: {error.strerror}; check its permissions and the disk"
        ) from error


def read_evidence(
    machine: Machine, paths: JobPaths, *, lock: LockHandle | None = None, cluster: ClusterReport | None = None
) -> Evidence:
    """Read what the directory shows; changes nothing. `lock`: the caller's own, which is no evidence."""
    # The lock is read before the markers: a runner writes its marker before its lock falls. The other way
    # round, a job that ends in between would show neither, and count as lost.
    locked = lock is None and machine.locks.is_locked(paths.lock, RUNNER_BYTE)
    pid = read_record(machine.files, paths.pid, PidRecord.decode)
    liveness = machine.processes.liveness(pid.identity) if isinstance(pid, PidRecord) else Liveness.UNKNOWN
    return Evidence(
        locked=locked,
        descendants=machine.locks.is_locked(paths.lock, DESCENDANTS_BYTE),
        pid=pid,
        liveness=liveness,
        launch=read_record(machine.files, paths.launch, LaunchRecord.decode),
        markers=read_markers(machine.files, paths),
        cluster=cluster or ClusterReport(),
    )


def look(machine: Machine, paths: JobPaths, *, cluster: ClusterReport | None = None) -> Settled:
    """Evidence and state, without the lock: for monitors and for whoever waits.

    It may be stale at once: whoever wants to act on it takes the lock and calls `settle`.
    """
    # A marker of the current attempt is the last word: a finished job needs no look at locks and processes.
    marked = Evidence(
        launch=read_record(machine.files, paths.launch, LaunchRecord.decode),
        markers=read_markers(machine.files, paths),
    )
    final = derive_state(marked)
    if final.action is Action.KEEP:
        return Settled(marked, final)
    evidence = read_evidence(machine, paths, cluster=cluster)
    return Settled(evidence, derive_state(evidence))


def settle(
    machine: Machine, paths: JobPaths, lock: LockHandle, *, cluster: ClusterReport | None = None
) -> Settled:
    """Evidence and state, under the lock: sets unreadable markers aside and records that as a failure."""
    evidence = read_evidence(machine, paths, lock=lock, cluster=cluster)
    derived = derive_state(evidence)
    if not any(isinstance(marker, Corrupt) for marker in evidence.markers):
        return Settled(evidence, derived)
    for path, marker in zip((paths.done, paths.failed), evidence.markers, strict=True):
        if isinstance(marker, Corrupt):
            set_aside(machine.files, path)
    if derived.marker is None:
        write_marker(machine.files, paths, _marker_of_corruption(machine, evidence, derived))
    return Settled(evidence, derived)


def open_attempt(
    machine: Machine,
    paths: JobPaths,
    lock: LockHandle,
    found: Settled,
    *,
    launcher: str,
    job_name: str,
    journal: JournalPlace | None = None,
    external: bool = False,
    retry_count: int = 0,
    lost_count: int = 0,
    instructions: Mapping[str, Any] | None = None,
) -> LaunchRecord:
    """Record the intent to run once more (synced if `external`), then clear what older attempts left.

    Removes their markers, result, pid, stop and locks files, and the files of `journal`. Disk for the new
    marker is set aside before anything changes. Raises `LockLost` if the lock file was replaced meanwhile,
    and `FileTooLarge` if nobody could read the record.
    """
    if not lock.intact():
        raise LockLost(f"{paths.lock} was deleted or replaced; nothing was started")
    files = machine.files
    launch = LaunchRecord(
        attempt=_last_attempt(files, paths, found.evidence) + 1,
        nonce=machine.randomness.nonce(),
        launcher=launcher,
        job_name=job_name,
        host=machine.processes.own().host,
        requested=machine.clock.now(),
        external=external,
        retry_count=retry_count,
        lost_count=lost_count,
        instructions=instructions or {},
    )
    record = launch.encode()
    if len(record) > RECORD_LIMIT:
        raise FileTooLarge(
            f"{paths.launch} would have {len(record)} bytes, at most {RECORD_LIMIT} can be read again: "
            f"give the job a shorter command or environment"
        )
    reserve_marker(files, paths)
    files.replace(paths.launch, record, durable=external)
    _clear_older_attempts(files, paths)
    if journal is not None:
        journals.discard(files, journal)
    return launch


def write_external_id(files: Files, paths: JobPaths, launch: LaunchRecord, external_id: str) -> LaunchRecord:
    """Remember, durably, under which id the cluster runs the attempt."""
    named = launch._replace(external_id=external_id)
    files.replace(paths.launch, named.encode(), durable=True)
    return named


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
    """Say that an attempt is to end, and why; before the first signal is sent."""
    _put(files, paths.stop, stop.encode())


def read_launch(files: Files, paths: JobPaths) -> LaunchRecord | None:
    return _readable(read_record(files, paths.launch, LaunchRecord.decode))


def read_pid(files: Files, paths: JobPaths, attempt: int) -> PidRecord | None:
    """The runner of this attempt; None if it has not written its record."""
    return _of_attempt(files, paths.pid, PidRecord.decode, attempt)


def read_stop(files: Files, paths: JobPaths, attempt: int) -> StopRecord | None:
    """The wish to stop this attempt; None if there is none, or only for another attempt."""
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
) -> None:
    """Write the marker of an attempt, then the status: by its runner, or under the lock with no runner alive.

    Fails only if the marker cannot be written. Without the status (the disk is full) its readers derive it.
    """
    write_marker(files, paths, marker, durability)
    with suppress(OSError):
        write_status(files, paths, status)


def keep_result(
    files: Files, paths: JobPaths, marker: Marker, result: object, durability: Durability = Durability.MARKER
) -> Marker:
    """The marker with the result in it if it is small; a larger one is written to `result.json` first.

    Raises `TypeError` or `ValueError` for what JSON cannot say.
    """
    data = to_json(result)
    if len(data) <= RESULT_LIMIT:
        return marker._replace(result=result, result_stored=False)
    files.replace(paths.result, data, durable=durability is Durability.MARKER)
    return marker._replace(result=None, result_stored=True)


def read_result(files: Files, paths: JobPaths, marker: Marker) -> Any:
    """What the task returned. Raises `ValueError` or `OSError` if `result.json` was tampered with."""
    if not marker.result_stored:
        return marker.result
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
    """Write a file that nobody relies on yet: create it, or replace an earlier one atomically.

    A rename costs several times as much as a creation, and each job has many of these files. A reader that
    finds one half created makes of it what it makes of a missing one.
    """
    try:
        files.create_exclusive(path, data)
    except FileExistsError:
        files.replace(path, data, durable=False)


def _clear_older_attempts(files: Files, paths: JobPaths) -> None:
    for path in (paths.done, paths.failed, paths.pid, paths.stop, paths.locks, paths.result):
        files.remove(path)
    for directory in (paths.directory, paths.private):
        for name in files.list(directory):
            if is_temporary(name):
                files.remove(f"{directory}/{name}")


def _last_attempt(files: Files, paths: JobPaths, evidence: Evidence) -> int:
    """The highest attempt that anything in the directory names, however stale: no number is used twice."""
    records = (
        evidence.launch,
        *evidence.markers,
        evidence.pid,
        read_record(files, paths.status, StatusRecord.decode),
    )
    return max((record.attempt for record in records if not isinstance(record, Corrupt | None)), default=0)


def _marker_of_corruption(machine: Machine, evidence: Evidence, derived: Derived) -> Marker:
    nonce = evidence.launch.nonce if isinstance(evidence.launch, LaunchRecord) else machine.randomness.nonce()
    return Marker(
        attempt=max(derived.attempt, 1),
        nonce=nonce,
        reason=JobFailureStatus.FAILED,
        message=derived.message,
        endtime=machine.clock.now(),
    )


def _of_attempt(files: Files, path: str, decode: Callable[[bytes], A | Corrupt], attempt: int) -> A | None:
    record = _readable(read_record(files, path, decode))
    return record if record is not None and record.attempt == attempt else None


def _readable(record: R | Corrupt | None) -> R | None:
    return None if isinstance(record, Corrupt) else record
