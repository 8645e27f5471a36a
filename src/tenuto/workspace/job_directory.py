"""The steps a scheduler and a runner take on a job's directory, each a small function over the ports.
Decides nothing: what the evidence means is `derive`'s business, when to start is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto.workspace.derive import ClusterReport, Derived, Evidence
from tenuto.workspace.layout import JobPaths, JournalPlace
from tenuto.workspace.markers import Durability, Marker
from tenuto.workspace.ports import Files, LockHandle, Machine
from tenuto.workspace.records import LaunchRecord, LocksRecord, PidRecord, StatusRecord, StopRecord


class Settled(NamedTuple):
    """What was found in a directory, and what it amounts to."""

    evidence: Evidence
    derived: Derived


def create(files: Files, paths: JobPaths) -> None:
    """Make the job's directory; `DirectoryUnusable`, naming the path, before anything else was changed."""
    raise NotImplementedError


def read_evidence(
    machine: Machine, paths: JobPaths, *, lock: LockHandle | None = None, cluster: ClusterReport | None = None
) -> Evidence:
    """Read what the directory shows; changes nothing. `lock`: the caller's own, which is no evidence."""
    raise NotImplementedError


def look(machine: Machine, paths: JobPaths, *, cluster: ClusterReport | None = None) -> Settled:
    """Evidence and state, without the lock: for monitors and for whoever waits."""
    raise NotImplementedError


def settle(
    machine: Machine, paths: JobPaths, lock: LockHandle, *, cluster: ClusterReport | None = None
) -> Settled:
    """Evidence and state, under the lock: sets corrupt markers aside and records that as a failure."""
    raise NotImplementedError


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
    instructions: Mapping[str, Any] = {},
) -> LaunchRecord:
    """Record the intent to run once more (synced if `external`), then clear what older attempts left.

    Removes their markers, pid, stop, locks and reserve files, and the files of `journal`; sets disk aside for
    the new marker. Raises `LockLost` if the lock file was replaced meanwhile.
    """
    raise NotImplementedError


def write_external_id(files: Files, paths: JobPaths, launch: LaunchRecord, external_id: str) -> LaunchRecord:
    """Remember, durably, under which id the cluster runs the attempt."""
    raise NotImplementedError


def write_params(files: Files, paths: JobPaths, params: bytes) -> None:
    raise NotImplementedError


def write_script(files: Files, paths: JobPaths, script: bytes) -> None:
    raise NotImplementedError


def write_status(files: Files, paths: JobPaths, status: StatusRecord) -> None:
    raise NotImplementedError


def write_pid(files: Files, paths: JobPaths, pid: PidRecord) -> None:
    raise NotImplementedError


def write_locks(files: Files, paths: JobPaths, locks: LocksRecord) -> None:
    raise NotImplementedError


def request_stop(files: Files, paths: JobPaths, stop: StopRecord) -> None:
    raise NotImplementedError


def read_launch(files: Files, paths: JobPaths) -> LaunchRecord | None:
    raise NotImplementedError


def read_pid(files: Files, paths: JobPaths, attempt: int) -> PidRecord | None:
    raise NotImplementedError


def read_stop(files: Files, paths: JobPaths, attempt: int) -> StopRecord | None:
    """The wish to stop this attempt; None if there is none, or only for another attempt."""
    raise NotImplementedError


def read_locks(files: Files, paths: JobPaths, attempt: int) -> LocksRecord | None:
    raise NotImplementedError


def read_status(files: Files, paths: JobPaths) -> StatusRecord | None:
    raise NotImplementedError


def finish(files: Files, paths: JobPaths, marker: Marker, durability: Durability = Durability.MARKER) -> None:
    """Write the marker of an attempt: by the runner, or by a scheduler holding the lock with no runner alive."""
    raise NotImplementedError


def rotate_logs(files: Files, paths: JobPaths) -> int:
    """Keep the logs of the attempt before: `x.out` becomes `x.out.n`; returns n, 0 if there was nothing."""
    raise NotImplementedError
