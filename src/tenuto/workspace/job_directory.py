"""The steps a scheduler and a runner take on a job's directory, each a small function over the ports.
Decides nothing: `derive` says what the evidence means, and the scheduler when to start.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tenuto.errors import DirectoryUnusable, FileTooLarge, LockLost
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace import journal as journals
from tenuto.workspace import packs, trash
from tenuto.workspace.attempt_files import (
    finish,
    has_its_params,
    keep_result,
    preserve,
    read_launch,
    read_locks,
    read_pid,
    read_result,
    read_status,
    read_stop,
    request_stop,
    rotate_logs,
    write_locks,
    write_params,
    write_pid,
    write_script,
    write_status,
)
from tenuto.workspace.claims import Claim, Claimer, claimer
from tenuto.workspace.derive import ClusterReport, Derived, Evidence, derive_state
from tenuto.workspace.derive_table import Action, Claimed
from tenuto.workspace.flags import STORED_RESULT_LIMIT
from tenuto.workspace.layout import JobPaths, JournalPlace, Layout
from tenuto.workspace.markers import (
    Marker,
    read_markers,
    reserve_marker,
    set_aside,
    write_marker,
)
from tenuto.workspace.ports import (
    DESCENDANTS_BYTE,
    RUNNER_BYTE,
    FileKind,
    Files,
    Liveness,
    LockHandle,
    Machine,
    is_temporary,
)
from tenuto.workspace.records import (
    RECORD_LIMIT,
    Corrupt,
    EarlierAttempt,
    LaunchRecord,
    PidRecord,
    StatusRecord,
    read_record,
)

__all__ = [
    "STORED_RESULT_LIMIT",
    "Ask",
    "Settled",
    "drop_aside",
    "finish",
    "has_its_params",
    "is_at_rest",
    "keep_result",
    "look",
    "mend_status",
    "open_attempt",
    "preserve",
    "read_evidence",
    "read_launch",
    "read_locks",
    "read_pid",
    "read_result",
    "read_status",
    "read_stop",
    "request_stop",
    "rotate_logs",
    "settle",
    "take_lock",
    "unpacked",
    "write_locks",
    "write_params",
    "write_pid",
    "write_script",
    "write_status",
]


Ask = Callable[[JobPaths, LaunchRecord], ClusterReport]
"""Asks the cluster of an attempt for its state; never waits for the answer."""


class Settled(NamedTuple):
    """The evidence in a directory, and the state that follows."""

    evidence: Evidence
    derived: Derived
    untouched: bool = False
    """No attempt left anything: there is nothing to read, and nothing to clear."""


_NOTHING = Settled(Evidence(), derive_state(Evidence()))
"""What the directory of a job shows that no scheduler has ever tried to run."""
_UNTOUCHED = _NOTHING._replace(untouched=True)


def take_lock(machine: Machine, paths: JobPaths, *, unpacks: bool = True) -> LockHandle | None:
    """Make the job's directory and try its lock; None if another process has it.

    A job that was packed lies there again then; unless `unpacks` is False, for who only takes it away.
    `DirectoryUnusable`, naming the path, if nothing can be written there; nothing else was changed then.
    """
    try:
        machine.files.make_directory(paths.private)
        try:
            lock = machine.locks.try_lock(paths.lock, RUNNER_BYTE)
        except FileNotFoundError:  # a remover or a packer has just taken it away
            machine.files.make_directory(paths.private)
            lock = machine.locks.try_lock(paths.lock, RUNNER_BYTE)
        if lock is not None and unpacks:
            try:
                packs.unpack(machine, paths)
            except BaseException:
                lock.close()
                raise
        return lock
    except OSError as error:
        raise DirectoryUnusable(
            f"{paths.directory} cannot be used: {error.strerror}; check its permissions and the disk"
        ) from error


def unpacked(machine: Machine, paths: JobPaths) -> bool:
    """Put a job that is packed back into its directory; False if another process has its lock."""
    if not packs.is_packed(machine.files, paths.directory):
        return True
    lock = take_lock(machine, paths)
    if lock is not None:
        with contextlib.closing(lock):
            machine.files.remove_directory(paths.private)  # no attempt begins
    return lock is not None


def read_evidence(
    machine: Machine, paths: JobPaths, *, lock: LockHandle | None = None, ask: Ask | None = None
) -> Evidence:
    """Read what the directory shows; changes nothing.

    `lock`: the caller's own, which is no evidence. `ask`: called for an attempt that a cluster has.
    """
    # Cluster, lock and claim are read before the markers: a runner writes its marker before its lock falls
    # and its job ends. The other way round, one that ends in between would show neither, and count as lost.
    launch = read_record(machine.files, paths.launch, LaunchRecord.decode)
    is_external = isinstance(launch, LaunchRecord) and launch.external
    cluster = ask(paths, launch) if ask is not None and is_external else _NO_REPORT  # type: ignore[arg-type]
    locked = lock is None and machine.locks.is_locked(paths.lock, RUNNER_BYTE)
    pid = read_record(machine.files, paths.pid, PidRecord.decode)
    liveness = machine.processes.liveness(pid.identity) if isinstance(pid, PidRecord) else Liveness.UNKNOWN
    descendants = machine.locks.is_locked(paths.lock, DESCENDANTS_BYTE)
    claimed = _claimed(machine, paths, launch.nonce) if is_external else Claimed.NONE  # type: ignore[union-attr]
    markers = read_markers(machine.files, paths)
    return Evidence(
        locked=locked,
        descendants=descendants,
        pid=pid,
        liveness=liveness,
        launch=launch or markers.launched,
        claimed=claimed,
        markers=markers,
        cluster=cluster,
    )


_NO_REPORT = ClusterReport()


def _claimed(machine: Machine, paths: JobPaths, nonce: str) -> Claimed:
    found = claimer(machine, paths, nonce)
    if found is None:
        return Claimed.NONE
    is_revoked = isinstance(found, Claim) and found.by is Claimer.SCHEDULER
    return Claimed.REVOKED if is_revoked else Claimed.BEGUN


def look(machine: Machine, paths: JobPaths, *, ask: Ask | None = None) -> Settled:
    """Evidence and state, without the lock: for monitors and for waiting schedulers.

    It may be stale at once: a caller that wants to act on it takes the lock and calls `settle`.
    """
    launch = read_record(machine.files, paths.launch, LaunchRecord.decode)
    if launch is None and machine.files.stat(paths.directory) is None:
        return _NOTHING  # it was never asked for: a dozen looks less
    # A marker of the current attempt is the last word: a finished job needs no look at locks and processes.
    markers = read_markers(machine.files, paths)
    marked = Evidence(launch=launch or markers.launched, markers=markers)
    final = derive_state(marked)
    if final.action is Action.KEEP:
        return Settled(marked, final)
    evidence = read_evidence(machine, paths, ask=ask)
    return Settled(evidence, derive_state(evidence))


def is_at_rest(machine: Machine, paths: JobPaths) -> bool:
    """Whether a job that was found done is still there, and no remover has its lock.

    For an owner that has just listed the job as used. In this order: a remover renames it under the lock.
    """
    return not machine.locks.is_locked(paths.lock) and machine.files.stat(paths.done) is not None


def settle(machine: Machine, paths: JobPaths, lock: LockHandle, *, ask: Ask | None = None) -> Settled:
    """Evidence and state, under the lock: sets unreadable markers aside and records that as a failure."""
    if _is_untouched(machine.files, paths):  # as nearly always: two looks instead of a dozen
        return _UNTOUCHED
    evidence = read_evidence(machine, paths, lock=lock, ask=ask)
    derived = derive_state(evidence)
    if not any(isinstance(marker, Corrupt) for marker in evidence.markers):
        return Settled(evidence, derived)
    # The record of the failure comes before its cause goes: without either, the job would count as lost.
    if isinstance(evidence.markers.failed, Corrupt):
        set_aside(machine.files, paths.failed)
    if derived.marker is None:
        write_marker(machine.files, paths, _marker_of_corruption(machine, evidence, derived))
    if isinstance(evidence.markers.done, Corrupt):
        set_aside(machine.files, paths.done)
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
    blameless_count: int = 0,
    memory_count: int = 0,
    failed_count: int = 0,
    earlier: tuple[EarlierAttempt, ...] = (),
    owner: str | None = None,
    instructions: Mapping[str, Any] | None = None,
    empties: bool = False,
) -> LaunchRecord:
    """Record the intent to run once more, then clear what older attempts left.

    `empties`: the attempt begins in an empty directory; its files are kept in `.tenuto/aside` until
    `drop_aside`.

    `owner`: the name of the owner that asks; that of an earlier attempt, which asked first, stays.
    Removes their markers, result, pid, stop and locks files, and the files of `journal`. Disk for the new
    marker is set aside before anything changes. Raises `LockLost` if the lock file was replaced meanwhile,
    and `FileTooLarge` if no reader would take the record.
    """
    if not lock.intact():
        raise LockLost(f"{paths.lock} was deleted or replaced; nothing was started")
    files = machine.files
    before = found.evidence.launch if isinstance(found.evidence.launch, LaunchRecord) else None
    # A process that was killed while it emptied the directory started no runner there: this one continues.
    how = None if found.untouched else _how_emptied(files, paths, anew=empties)
    launch = LaunchRecord(
        attempt=next_attempt(files, paths, found),
        nonce=machine.randomness.nonce(),
        begun=None if before is None or how is not None else before.life,
        aside=how is not None or (before is not None and before.aside),
        launcher=launcher,
        job_name=job_name,
        host=machine.processes.own().host,
        requested=machine.clock.now(),
        external=external,
        retry_count=retry_count,
        lost_count=lost_count,
        blameless_count=blameless_count,
        memory_count=memory_count,
        failed_count=failed_count,
        earlier=earlier,
        owner=_first_owner(found) or owner,
        instructions=instructions or {},
    )
    record = launch.encode()
    if len(record) > RECORD_LIMIT:
        raise FileTooLarge(
            f"{paths.launch} would have {len(record)} bytes, at most {RECORD_LIMIT} can be read again: "
            f"give the job a shorter command or environment"
        )
    reserve_marker(files, paths)
    if how is not None:
        files.replace(paths.emptying, how, durable=True)
    files.replace(paths.launch, record, durable=False)
    if how is not None:
        _empty(files, paths, how)
    if not found.untouched:
        _clear_older_attempts(files, paths)
    if journal is not None:
        journals.discard(files, journal)
    return launch


_MOVE, _DROP = b"move", b"drop"
"""The files in a directory that is emptied go aside, or are of attempts in vain since that was done."""


def _how_emptied(files: Files, paths: JobPaths, *, anew: bool) -> bytes | None:
    """How the directory is to be emptied; None: not at all."""
    try:
        return files.read(paths.emptying, len(_MOVE))
    except FileNotFoundError:
        if not anew:
            return None
    return _MOVE if files.stat(paths.aside) is None else _DROP


def _empty(files: Files, paths: JobPaths, how: bytes) -> None:
    """Empty a job's directory under its lock, but for what tells of the attempt that was just opened.

    Each entry is moved by one rename: killed in between, the next attempt continues, and nothing is lost.
    """
    kept = {path.rpartition("/")[2] for path in (paths.lock, paths.private, paths.reserve)}
    for path in (paths.failed, paths.pid, paths.locks):
        files.remove(path)
    entries = [f"{paths.directory}/{name}" for name in files.list(paths.directory) if name not in kept]
    entries += [path for path in (paths.result, paths.record, paths.task_outputs) if files.stat(path)]
    files.make_directory(paths.aside)
    for entry in entries:
        if is_temporary(entry.rpartition("/")[2]):
            files.remove(entry)
        elif how == _MOVE:
            files.rename(entry, f"{paths.aside}/{entry.rpartition('/')[2]}")
        else:
            found = files.stat(entry)
            is_directory = found is not None and found.kind is FileKind.DIRECTORY
            files.remove_tree(entry) if is_directory else files.remove(entry)
    # A power loss must not bring the word back when the files of the new attempt are there.
    for directory in (paths.aside, paths.directory):
        files.sync_directory(directory)
    files.remove(paths.emptying)
    files.sync_directory(paths.private)


def drop_aside(machine: Machine, layout: Layout, paths: JobPaths) -> None:
    """Remove what a job had before, once it is done again; unless another process has the lock."""
    lock = take_lock(machine, paths)
    if lock is None:
        return
    with contextlib.closing(lock):
        found = look(machine, paths)
        launch = found.evidence.launch
        if found.derived.state is JobState.DONE and isinstance(launch, LaunchRecord) and launch.aside:
            trash.discard(machine, layout, paths.aside)
            machine.files.remove_directory(paths.private)


def withdraw_attempt(files: Files, paths: JobPaths, launch: LaunchRecord) -> None:
    """Remember that nothing was started, under the lock: the attempt keeps its number, and was no try."""
    files.replace(paths.launch, launch._replace(withdrawn=True).encode(), durable=False)


def mend_status(machine: Machine, paths: JobPaths, lock: LockHandle | None = None) -> bool:
    """Write `status.json` as the marker says, if a runner was killed between the two; True if so.

    `lock`: the job's, if the caller has it.
    """
    status = read_status(machine.files, paths)
    if status is None or status.state_record.state.finished():
        return False
    taken = lock or take_lock(machine, paths)
    if taken is None:
        return False
    with contextlib.nullcontext() if lock is not None else contextlib.closing(taken):
        derived = look(machine, paths).derived
        marker = derived.marker
        if derived.action is not Action.KEEP or marker is None or marker.attempt != status.attempt:
            return False
        record = status.state_record._replace(
            state=derived.state,
            reason=derived.reason,
            message=derived.message,
            starttime=marker.starttime,
            endtime=marker.endtime,
        )
        write_status(machine.files, paths, status._replace(state_record=record, exit_code=marker.exit_code))
    return True


def _first_owner(found: Settled) -> str | None:
    launch = found.evidence.launch
    return launch.owner if isinstance(launch, LaunchRecord) else None


def _is_untouched(files: Files, paths: JobPaths) -> bool:
    """Whether there is nothing but what `take_lock` makes."""
    made = {path.rpartition("/")[2] for path in (paths.private, paths.lock)}
    return made.issuperset(files.list(paths.directory)) and not files.list(paths.private)


def _clear_older_attempts(files: Files, paths: JobPaths) -> None:
    for path in (paths.done, paths.failed, paths.pid, paths.stop, paths.locks, paths.result):
        files.remove(path)
    for directory in (paths.directory, paths.private):
        for name in files.list(directory):
            if is_temporary(name):
                files.remove(f"{directory}/{name}")


def next_attempt(files: Files, paths: JobPaths, found: Settled) -> int:
    """The number that the next attempt gets."""
    return 1 if found.untouched else _last_attempt(files, paths, found.evidence) + 1


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
