"""What the directory of a job shows to a reader: its state, by as deep a look as the reader needs.
Reads only, and never raises for what it finds: a workspace may be half written, or made to do harm.
"""

from __future__ import annotations

import sys
from datetime import datetime
from enum import Enum, unique
from typing import Any, NamedTuple

from tenuto.errors import TenutoError
from tenuto.launchers.results import readable
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace import job_directory
from tenuto.workspace.derive import Evidence
from tenuto.workspace.job_directory import Ask
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import FileKind, Machine
from tenuto.workspace.records import LaunchRecord, PidRecord, read_record

REMOVED = "its directory was removed"


class Sight(NamedTuple):
    """What a list shows of a job."""

    state: JobState
    reason: JobFailureStatus | None = None
    message: str | None = None
    attempt: int = 0
    requested: datetime | None = None
    """When the current attempt was asked for; unknown where only a marker was read."""
    starttime: datetime | None = None
    endtime: datetime | None = None
    marker: Marker | None = None
    result: Any = None
    """What a job that is done gave, as plain JSON; None also for a result too large for its marker."""
    has_large_result: bool = False
    alarm: str | None = None
    is_there: bool = True
    """False if the job has no directory."""
    evidence: Evidence | None = None
    """What was read; only at that depth."""
    where: str = ""
    """The machine that runs or ran the current attempt; not known where only a marker was read."""

    @property
    def decided(self) -> datetime | None:
        """The last instant that the directory knows of the current attempt."""
        return self.endtime or self.starttime or self.requested


_ABSENT = Sight(JobState.UNSCHEDULED, is_there=False)


@unique
class Depth(Enum):
    """How much of a directory is read."""

    STATE = "state"
    """As few files as possible, to count thousands of jobs. Markers are not opened, so the state can be wrong
    where a crash left the marker of an older attempt. Only `state` is filled in."""
    ROW = "row"
    """What a list shows: one marker for a job that is done, all the evidence for any other."""
    EVIDENCE = "evidence"
    """All the evidence, for every job."""


def look(machine: Machine, paths: JobPaths, depth: Depth = Depth.ROW, ask: Ask | None = None) -> Sight:
    """What the directory of a job shows; `ask`: called for an attempt that a cluster has."""
    try:
        kind = _kind(machine, paths.directory)
        if kind is None:
            return _ABSENT
        if kind is not FileKind.DIRECTORY:
            return _ABSENT._replace(alarm=f"{paths.directory} is a {kind.value}, not a directory")
        if depth is Depth.STATE and (state := _state(machine, paths)) is not None:
            return Sight(state)
        if depth is not Depth.EVIDENCE and machine.files.stat(paths.failed) is None:
            done = read_record(machine.files, paths.done, Marker.decode)
            if isinstance(done, Marker) and done.reason is None:
                return _by_marker(JobState.DONE, done)
        sight = _settled(job_directory.look(machine, paths, ask=ask))
        return sight if depth is Depth.EVIDENCE else sight._replace(evidence=None)
    except (OSError, TenutoError) as error:
        return Sight(JobState.UNSCHEDULED, alarm=f"it cannot be looked at: {error}")


def _state(machine: Machine, paths: JobPaths) -> JobState | None:
    """The state of a job by its file names alone; None where they do not tell."""
    if _kind(machine, paths.failed) is FileKind.FILE:
        return JobState.ERROR
    if _kind(machine, paths.done) is FileKind.FILE:
        return JobState.DONE
    if machine.files.stat(paths.launch) is None and not machine.locks.is_locked(paths.lock):
        # A runner that ended well between the two looks has removed its launch record.
        return JobState.DONE if _kind(machine, paths.done) is FileKind.FILE else JobState.UNSCHEDULED
    return None


def _settled(found: job_directory.Settled) -> Sight:
    evidence, derived, _ = found
    pid = evidence.pid if isinstance(evidence.pid, PidRecord) else None
    launch = evidence.launch if isinstance(evidence.launch, LaunchRecord) else None
    sight = Sight(
        derived.state,
        derived.reason,
        derived.message,
        derived.attempt,
        requested=launch.requested if launch else None,
        starttime=pid.started if pid and pid.attempt == derived.attempt else None,
        alarm=derived.alarm,
        evidence=evidence,
        where=_where(launch, pid, derived.attempt),
    )
    if derived.marker is None:
        if launch is not None and launch.withdrawn and derived.state is JobState.ERROR:
            # The machine refused the start, and nothing was run: no failure, and no try.
            return sight._replace(state=JobState.UNSCHEDULED, reason=None, message=None)
        return sight
    marked = _by_marker(derived.state, derived.marker)
    return marked._replace(
        message=derived.message,
        alarm=derived.alarm,
        requested=sight.requested,
        evidence=evidence,
        where=sight.where,
    )


def _where(launch: LaunchRecord | None, pid: PidRecord | None, attempt: int) -> str:
    if pid is not None and pid.attempt == attempt:
        return sys.intern(pid.identity.host)  # one string for the rows of a machine
    return sys.intern(launch.host) if launch is not None and launch.attempt == attempt else ""


def _by_marker(state: JobState, marker: Marker) -> Sight:
    return Sight(
        state,
        marker.reason,
        marker.message,
        marker.attempt,
        starttime=marker.starttime,
        endtime=marker.endtime,
        marker=marker._replace(launch={}) if marker.launch else marker,  # a list keeps very many
        result=readable(marker.result) if state is JobState.DONE else None,
        has_large_result=marker.result_stored and state is JobState.DONE,
    )


def _kind(machine: Machine, path: str) -> FileKind | None:
    found = machine.files.stat(path)
    return None if found is None else found.kind
