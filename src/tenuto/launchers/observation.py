"""When an attempt elsewhere counts as ended: the fence, the patience with a late disk, its cluster's words.
Asks nothing itself; a launcher passes on what its cluster's own list says.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, unique
from typing import NamedTuple

from tenuto.launchers.runner.runner_protocol import NO_MARKER, REFUSED, STALE
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace.attempt_files import read_stop
from tenuto.workspace.claims import Claim, Claimer, claimer
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import RUNNER_BYTE, Machine
from tenuto.workspace.records import LaunchRecord

BEAT_S = 30.0
"""How often the runner of an external attempt touches its pid record, unless it is told otherwise."""
FENCE_BEATS = 3
"""How many beats must be missing: one more than after which a runner that cannot beat ends by itself."""
MARKER_PATIENCE_S = 60.0
"""How long a marker may stay unseen that the runner's exit code says was written."""
PATIENCE_S = 5.0
"""How long any other marker may."""


class Fence:
    """Counts the beats of one attempt, by the observer's own clock: clocks of two hosts may differ."""

    def __init__(self, machine: Machine, paths: JobPaths, beat_s: float = BEAT_S) -> None:
        self._machine = machine
        self._paths = paths
        self._beat_s = beat_s
        self._beat = machine.files.modified(paths.pid)
        self._since = machine.clock.monotonic()
        self._has_passed = False

    def silent_s(self) -> float:
        """How long no beat was seen, with byte 0 of the job's lock free; to be asked again."""
        self.has_passed()
        return self._machine.clock.monotonic() - self._since

    def has_passed(self) -> bool:
        """Whether no beat was seen for long enough, with byte 0 of the job's lock free; to be asked again."""
        beat = self._machine.files.modified(self._paths.pid)
        now = self._machine.clock.monotonic()
        if beat != self._beat:
            self._beat, self._since, self._has_passed = beat, now, False
        elif self._has_passed:
            return True  # the holder of the lock by now is no runner: perhaps the scheduler that asks here
        elif self._machine.locks.is_locked(self._paths.lock, RUNNER_BYTE):
            self._since = now
        self._has_passed = now - self._since >= FENCE_BEATS * self._beat_s
        return self._has_passed


def marker_patience_s(exit_code: int | None) -> float:
    """How long to wait for the marker of a runner that exited with this code; None if that is not known."""
    is_written = exit_code is not None and exit_code not in NO_MARKER
    return MARKER_PATIENCE_S if is_written else PATIENCE_S


CLOCKS_DIFFER_S = 60.0
"""How far the clocks of two hosts may be apart."""
AWAITED = "it counts once its runner was silent"
"""The words for an end that the cluster cannot confirm."""
TOLD_BEATS = 10
"""How many beats must be missing before a person is told of it."""
SUBMISSION_PATIENCE_S = 60.0
"""How long an attempt may be unknown to its cluster before it counts as never submitted."""


@unique
class Seen(Enum):
    """What the list of a cluster says of a job."""

    NOTHING = "it was not asked yet, or did not answer"
    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    MISSING = "it answered, and knows no such job"
    UNLISTED = "it has no list: claim and beats tell"


class ClusterEntry(NamedTuple):
    """The entry of a job in a cluster's list, with the words on its end."""

    seen: Seen
    exit_code: int | None = None
    reason: JobFailureStatus = JobFailureStatus.LOST
    message: str | None = None
    confirmed: bool = True
    """False if the cluster cannot know that nothing of the job runs any more: it lost the node."""
    blameless: bool = False
    ended_s_ago: float | None = None
    """How long ago it ended, by two clocks that may differ; None if that is not known."""
    untried: bool = False
    """True if an attempt that has not begun would be no try: there was no machine for it."""


See = Callable[[str | None], ClusterEntry]
"""The sighting of the job with this id, which the claim names; None: of the job submitted for it."""

_WORDS = {
    Seen.NOTHING: ClusterSays.NOTHING,
    Seen.PENDING: ClusterSays.PENDING,
    Seen.RUNNING: ClusterSays.RUNNING,
}


class Observer:
    """Remembers, for each attempt, since when its cluster says that it is gone."""

    __slots__ = ("_beat_s", "_beats", "_fences", "_gone_since", "_machine")

    def __init__(self, machine: Machine, beat_s: float = BEAT_S) -> None:
        self._machine = machine
        self._beat_s = beat_s
        self._gone_since: dict[str, float] = {}
        """nonce -> when the end, or the absence, was first seen"""
        self._fences: dict[str, Fence] = {}
        self._beats: dict[str, Fence] = {}
        """The beats of runners that a cluster says run."""

    def report(self, paths: JobPaths, launch: LaunchRecord, see: See) -> ClusterReport:
        """What the sighting of an attempt amounts to: an end only once nothing of it can run any more."""
        made = claimer(self._machine, paths, launch.nonce)
        has_begun = made is not None and not (isinstance(made, Claim) and made.by is Claimer.SCHEDULER)
        # A cluster may have been given the attempt twice: the job whose runner made the claim is the one.
        found = see(made.job if has_begun and isinstance(made, Claim) else None)
        if found.seen is Seen.UNLISTED:
            if not has_begun:
                return ClusterReport(ClusterSays.PENDING, message=found.message)
            if not self._is_fenced(paths, launch.nonce):
                return ClusterReport(ClusterSays.RUNNING)
            message = f"its runner was silent for {FENCE_BEATS} beats of {self._beat_s:g} s"
            return ClusterReport(ClusterSays.ENDED, found.reason, message, blameless=True)
        if found.seen is Seen.PENDING and has_begun:
            # It was started, and waits again: a second runner would find the claim, and the first is gone.
            # The list may be of a moment before it began.
            if not self._has_waited(launch.nonce, PATIENCE_S, found):
                return ClusterReport(ClusterSays.RUNNING)
            found = found._replace(seen=Seen.ENDED, confirmed=False, message=found.message, blameless=True)
        if found.seen is Seen.RUNNING and has_begun and (silent := self._silence(paths, launch)) is not None:
            return silent
        if found.seen in _WORDS:
            self.forget(launch.nonce)
            return ClusterReport(_WORDS[found.seen], message=found.message)
        is_untried = found.exit_code == REFUSED if has_begun else found.untried
        ended = ClusterReport(ClusterSays.ENDED, found.reason, found.message, found.blameless, is_untried)
        is_missing = found.seen is Seen.MISSING
        if not has_begun:
            patience_s = SUBMISSION_PATIENCE_S if is_missing else PATIENCE_S
            return ended if self._has_waited(launch.nonce, patience_s, found) else _unsure(found.message)
        if is_missing or not found.confirmed or found.exit_code == STALE:
            if self._is_fenced(paths, launch.nonce):
                return ended._replace(blameless=True)
            return _unsure(f"{found.message or ''}; {AWAITED} for {FENCE_BEATS} beats of {self._beat_s:g} s")
        patience_s = marker_patience_s(found.exit_code)
        return ended if self._has_waited(launch.nonce, patience_s, found) else _unsure(found.message)

    def _silence(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport | None:
        """The words for a runner that its cluster believes to run, and that is silent for ten beats."""
        beats = self._beats.setdefault(launch.nonce, Fence(self._machine, paths, self._beat_s))
        silent_s = beats.silent_s()
        if silent_s < TOLD_BEATS * self._beat_s:
            return None
        told = f"its runner has been silent for {silent_s:.0f} s, though its cluster says that it runs"
        if read_stop(self._machine.files, paths, launch.attempt) is None:
            return ClusterReport(ClusterSays.RUNNING, message=f"{told}: `tenuto kill` ends it")
        return ClusterReport(ClusterSays.ENDED, JobFailureStatus.LOST, told, blameless=True)

    def forget(self, nonce: str) -> None:
        """Nothing is remembered of the attempt any more."""
        self._gone_since.pop(nonce, None)
        self._fences.pop(nonce, None)

    def _has_waited(self, nonce: str, patience_s: float, found: ClusterEntry) -> bool:
        """True if the disk had its time: since the end was first seen here, or since an end long ago."""
        if found.ended_s_ago is not None and found.ended_s_ago >= patience_s + CLOCKS_DIFFER_S:
            return True
        now = self._machine.clock.monotonic()
        return now - self._gone_since.setdefault(nonce, now) >= patience_s

    def _is_fenced(self, paths: JobPaths, nonce: str) -> bool:
        fence = self._fences.get(nonce)
        if fence is None:
            fence = self._fences[nonce] = Fence(self._machine, paths, self._beat_s)
        return fence.has_passed()


def _unsure(told: str | None) -> ClusterReport:
    return ClusterReport(message=f"its end is not certain yet: {told or 'it left no marker'}", unsure=True)
