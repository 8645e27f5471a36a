"""The state of a job, derived from what its directory shows: one pure function over `derive_table`.
Reads nothing; `job_directory.read_evidence` collects the evidence.
"""

from __future__ import annotations

from typing import NamedTuple

from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.derive_table import (
    ROWS,
    Action,
    Claimed,
    ClusterSays,
    Facts,
    Launch,
    Mark,
    Runner,
    TableRow,
)
from tenuto.workspace.markers import Marker, MarkersFound
from tenuto.workspace.ports import Liveness
from tenuto.workspace.records import Corrupt, LaunchRecord, PidRecord


class ClusterReport(NamedTuple):
    says: ClusterSays = ClusterSays.NOTHING
    reason: JobFailureStatus = JobFailureStatus.LOST
    message: str | None = None
    blameless: bool = False
    """The cluster is to blame for the end, not the job: a node failed, the job was preempted or forgotten."""
    untried: bool = False
    """Nothing was run, for want of a machine: a node refused the runner something, or its pilot ended."""
    unsure: bool = False
    """The cluster says that the attempt is over, and its directory does not bear that out yet."""


class Evidence(NamedTuple):
    """Everything a directory shows at one moment."""

    markers: MarkersFound = MarkersFound()
    launch: LaunchRecord | Corrupt | None = None
    pid: PidRecord | Corrupt | None = None
    liveness: Liveness = Liveness.UNKNOWN
    """Of the process in the pid record; only looked at if there is one of this attempt."""
    locked: bool = False
    """Byte 0 is held by another process than the caller."""
    descendants: bool = False
    """Byte 1 is held."""
    claimed: Claimed = Claimed.NONE
    """Of the current attempt; only looked at if another system starts it."""
    cluster: ClusterReport = ClusterReport()


class Derived(NamedTuple):
    """What the evidence amounts to."""

    state: JobState
    action: Action
    row: str
    """The name of the table's row that decided."""
    reason: JobFailureStatus | None = None
    message: str | None = None
    alarm: str | None = None
    """Something a person should look at, though the state is clear."""
    attempt: int = 0
    """The current attempt; 0 if there was none."""
    marker: Marker | None = None
    """The marker that decided, if one did."""
    payload_may_have_run: bool = False
    """False if it is certain that the current attempt never reached the task's code."""
    blameless: bool = False
    """The cluster is to blame for the loss."""
    external: bool = False
    """Another system was to run the current attempt."""
    revoked: bool = False
    """A scheduler gave the current attempt up before it began."""
    untried: bool = False
    """Its cluster had no machine for it: the attempt is no try."""
    unsure: bool = False
    """The attempt may be over: a scheduler that watches its beats will know."""


def derive_state(evidence: Evidence) -> Derived:
    """The first row of the table that fits the evidence, with what the evidence adds to it."""
    current = _current(evidence)
    row = _BY_MARK.get(current.mark) or _first_that_fits(_facts(evidence, current))
    reason, message, blameless, untried, unsure = row.reason, row.message, False, False, False
    if current.marker is not None:
        reason = current.marker.reason
        message = _joined(row.message, current.marker.message)
    elif current.corrupt is not None:
        message = _joined(row.message, current.corrupt.problem)
    elif row.cluster == (ClusterSays.ENDED,):
        reason = evidence.cluster.reason
        message = evidence.cluster.message or row.message
        blameless, untried = evidence.cluster.blameless, evidence.cluster.untried
    elif row.cluster is not None:
        message = evidence.cluster.message or row.message
        unsure = evidence.cluster.unsure
    alarm = _joined(row.message if row.alarming else None, current.alarm)
    return Derived(
        state=row.state,
        action=row.action,
        row=row.name,
        reason=reason,
        message=message,
        alarm=alarm,
        attempt=current.attempt,
        marker=current.marker,
        payload_may_have_run=row.payload_may_have_run and not untried,
        blameless=blameless,
        external=isinstance(evidence.launch, LaunchRecord) and evidence.launch.external,
        revoked=row.claimed == (Claimed.REVOKED,),
        untried=untried,
        unsure=unsure,
    )


def ended_well(marker: Marker) -> Derived:
    """What follows of a marker of a good end, if nothing speaks against it."""
    state, action, row = _ENDED_WELL[:3]
    return Derived(state, action, row, None, marker.message, None, marker.attempt, marker, _ENDED_WELL[8])


def _first_that_fits(facts: Facts) -> TableRow:
    return next(row for row in ROWS if row.fits(facts))


_BY_MARK = {mark: row for row in ROWS for mark in row.mark if row.asks_for_mark_alone}
"""Of a finished job nothing else is asked."""


class _Current(NamedTuple):
    """What belongs to the current attempt; anything of an older one is left out."""

    attempt: int
    mark: Mark
    marker: Marker | None = None
    corrupt: Corrupt | None = None
    alarm: str | None = None


def _current(evidence: Evidence) -> _Current:
    launch = evidence.launch if isinstance(evidence.launch, LaunchRecord) else None
    plain = launch and _plain_marker(evidence.markers, launch)
    if plain:
        return _Current(plain.attempt, Mark.DONE, plain)
    alarm = None
    counted: list[Marker] = []
    for marker in evidence.markers:
        if not isinstance(marker, Marker) or (launch is not None and marker.attempt < launch.attempt):
            continue
        # `launch.json` of a local job is not synced, its marker is: after a power loss the marker can be of a
        # later attempt than the launch record, and counts. One of the same attempt with another nonce was
        # written by a runner that a scheduler had given up.
        if launch is not None and marker.attempt == launch.attempt and marker.nonce != launch.nonce:
            alarm = f"a marker of attempt {marker.attempt} was left by a runner that had been given up"
            continue
        counted.append(marker)
    attempts = [marker.attempt for marker in counted]
    if launch is not None:
        attempts.append(launch.attempt)
    elif isinstance(evidence.pid, PidRecord):
        attempts.append(evidence.pid.attempt)
    attempt = max(attempts, default=0)
    newest = [marker for marker in counted if marker.attempt == attempt]
    corrupt = next((marker for marker in evidence.markers if isinstance(marker, Corrupt)), None)
    failed = next((marker for marker in newest if marker.reason is not None), None)
    if len(newest) == 2:
        return _Current(attempt, Mark.BOTH, failed, alarm=alarm)
    if failed is not None:
        return _Current(attempt, Mark.FAILED, failed, alarm=alarm)
    if corrupt is not None:
        return _Current(attempt, Mark.CORRUPT, corrupt=corrupt, alarm=alarm)
    if newest:
        return _Current(attempt, Mark.DONE, newest[0], alarm=alarm)
    return _Current(attempt, Mark.NONE, alarm=alarm)


def _plain_marker(markers: MarkersFound, launch: LaunchRecord) -> Marker | None:
    """The one marker there is, if it ends well the attempt that was launched: as nearly always."""
    done, failed = markers
    if failed is not None or not isinstance(done, Marker) or done.reason is not None:
        return None
    return done if (done.attempt, done.nonce) == (launch.attempt, launch.nonce) else None


def _facts(evidence: Evidence, current: _Current) -> Facts:
    return Facts(
        mark=current.mark,
        launch=_launch(evidence.launch),
        locked=evidence.locked,
        runner=_runner(evidence, current.attempt),
        descendants=evidence.descendants,
        claimed=evidence.claimed,
        cluster=evidence.cluster.says,
    )


def _launch(launch: LaunchRecord | Corrupt | None) -> Launch:
    if isinstance(launch, LaunchRecord):
        return Launch.EXTERNAL if launch.external else Launch.LOCAL
    return Launch.NONE if launch is None else Launch.CORRUPT


def _runner(evidence: Evidence, attempt: int) -> Runner:
    if not isinstance(evidence.pid, PidRecord) or evidence.pid.attempt < attempt:
        return Runner.NONE
    return _RUNNERS[evidence.liveness]


_RUNNERS = {
    Liveness.ALIVE: Runner.ALIVE,
    Liveness.DEAD: Runner.DEAD,
    Liveness.REBOOTED: Runner.REBOOTED,
    Liveness.UNKNOWN: Runner.UNKNOWN,
}


def _joined(*parts: str | None) -> str | None:
    return "; ".join(filter(None, parts)) or None


_ENDED_WELL = derive_state(Evidence(markers=MarkersFound(Marker(attempt=1, nonce=""))))
