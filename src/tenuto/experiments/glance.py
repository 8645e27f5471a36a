"""Where jobs stand, seen from outside: what each directory shows, and what that means within a run.
Reads only, and never raises for what it finds: a workspace may be half written, or made to do harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from tenuto.errors import TenutoError
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.workspace.job_directory import Settled, look
from tenuto.workspace.jobslist import JobLine
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
    alarm: str | None = None
    is_there: bool = True
    """False if the job has no directory."""

    @property
    def decided(self) -> datetime | None:
        """The last instant that the directory knows of the current attempt."""
        return self.endtime or self.starttime or self.requested


_ABSENT = Sight(JobState.UNSCHEDULED, is_there=False)


def glance(machine: Machine, paths: JobPaths) -> JobState:
    """The state of a job by as few looks as possible: for counting thousands of them.

    Markers are not opened, so it can be wrong where a crash left the marker of an older attempt.
    """
    files = machine.files
    try:
        if _kind(machine, paths.directory) is not FileKind.DIRECTORY:
            return JobState.UNSCHEDULED
        if _kind(machine, paths.failed) is FileKind.FILE:
            return JobState.ERROR
        if _kind(machine, paths.done) is FileKind.FILE:
            return JobState.DONE
        if files.stat(paths.launch) is None and not machine.locks.is_locked(paths.lock):
            return JobState.UNSCHEDULED
    except (OSError, TenutoError):
        return JobState.UNSCHEDULED
    return see(machine, paths).state


def see(machine: Machine, paths: JobPaths) -> Sight:
    """Where a job stands; one marker read for a job that is done, all the evidence for any other."""
    try:
        kind = _kind(machine, paths.directory)
        if kind is None:
            return _ABSENT
        if kind is not FileKind.DIRECTORY:
            return _ABSENT._replace(alarm=f"{paths.directory} is a {kind.value}, not a directory")
        if machine.files.stat(paths.failed) is None:
            done = read_record(machine.files, paths.done, Marker.decode)
            if isinstance(done, Marker) and done.reason is None:
                return _by_marker(JobState.DONE, done)
        return sight_of(look(machine, paths))
    except (OSError, TenutoError) as error:
        return Sight(JobState.UNSCHEDULED, alarm=f"it cannot be looked at: {error}")


def sight_of(found: Settled) -> Sight:
    """The sight of what `look` found."""
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
    )
    if derived.marker is None:
        return sight
    marked = _by_marker(derived.state, derived.marker)
    return marked._replace(message=derived.message, alarm=derived.alarm, requested=sight.requested)


def _by_marker(state: JobState, marker: Marker) -> Sight:
    return Sight(
        state,
        marker.reason,
        marker.message,
        marker.attempt,
        starttime=marker.starttime,
        endtime=marker.endtime,
        marker=marker,
    )


def _kind(machine: Machine, path: str) -> FileKind | None:
    found = machine.files.stat(path)
    return None if found is None else found.kind


# Within a run


def within_run(lines: Sequence[JobLine], seen: Mapping[str, Sight], *, live: bool) -> dict[str, Sight]:
    """What a run makes of the directories of its jobs: who waits, who is ready, who was stranded.

    A scheduler keeps this in memory; from outside it follows from what each job depends on.
    """
    needed = _needed(lines, seen)
    tasks = {line.job_id: line.task_id for line in lines}
    standing: dict[str, Sight] = {}
    for line in lines:
        sight = seen[line.job_id]
        if live and _failed_before(sight, line):
            reason = sight.reason.name if sight.reason else "FAILED"
            sight = sight._replace(
                state=JobState.UNSCHEDULED,
                reason=None,
                message=f"to be run again; it failed before ({reason})",
            )
        if sight.state is JobState.UNSCHEDULED:
            sight = _unstarted(line, sight, standing, tasks, live=live, needed=line.job_id in needed)
        standing[line.job_id] = sight
    return standing


def _unstarted(
    line: JobLine,
    sight: Sight,
    standing: Mapping[str, Sight],
    tasks: Mapping[str, str],
    *,
    live: bool,
    needed: bool,
) -> Sight:
    dependencies = [(other, standing[other]) for other in line.depends_on if other in standing]
    for other, found in dependencies:
        if found.state is JobState.ERROR:
            reason = found.reason.name if found.reason else "FAILED"
            stranded = found.reason is JobFailureStatus.DEPENDENCY and found.message
            message = stranded or f"{tasks[other]} {other[:12]} failed ({reason})"
            return sight._replace(state=JobState.ERROR, reason=JobFailureStatus.DEPENDENCY, message=message)
    if not live:
        was_removed = not sight.is_there and not sight.alarm and line.transient is TransientMode.NONE
        message = sight.message or (REMOVED if was_removed else "the run ended before it was started")
        return sight._replace(message=message)
    if not needed:
        return sight._replace(message="transient, and nobody needs it yet")
    waits_for = [other for other, found in dependencies if found.state is not JobState.DONE]
    if not waits_for:
        return sight._replace(state=JobState.READY, message=sight.message or "waits for a free slot")
    more = f" and {len(waits_for) - 1} more" if len(waits_for) > 1 else ""
    return sight._replace(
        state=JobState.WAITING,
        message=sight.message or f"waits for {tasks[waits_for[0]]} {waits_for[0][:12]}{more}",
    )


def _failed_before(sight: Sight, line: JobLine) -> bool:
    """Whether a failure is older than the wish to run the job, which then is only waiting for its turn."""
    return sight.state is JobState.ERROR and sight.decided is not None and sight.decided < line.submittime


def _needed(lines: Sequence[JobLine], seen: Mapping[str, Sight]) -> set[str]:
    """Jobs that run for their own sake, or because such a job that is not done depends on them."""
    needed: set[str] = set()
    for line in reversed(lines):  # what depends on a job was submitted after it
        if line.transient is TransientMode.NONE:
            needed.add(line.job_id)
        if line.job_id in needed and seen[line.job_id].state is not JobState.DONE:
            needed.update(line.depends_on)
    return needed
