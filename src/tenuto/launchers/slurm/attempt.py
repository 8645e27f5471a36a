"""What is known of one attempt that Slurm has, and what that amounts to.
Reads the job's directory; asks no command, and is used by the thread of its cluster alone, but for `report`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, unique

from tenuto.launchers.fence import PATIENCE_S, Fence, marker_patience_s
from tenuto.launchers.runner.exits import STALE
from tenuto.launchers.slurm.commands import Row
from tenuto.launchers.slurm.states import FORGOTTEN, Meaning, meaning_of, pending_text
from tenuto.launchers.slurm.submission import Found
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace.attempt_files import read_pid, read_stop
from tenuto.workspace.claims import Claim, Claimer, claimer
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord

NEVER_SUBMITTED_S = 60.0
"""How long an attempt may be without a submission, before it counts as one whose scheduler died too early."""
MISSING_ANSWERS = 2
"""How many answers of squeue must lack a job before it is looked for elsewhere."""


@unique
class Wish(IntEnum):
    """What is to be done to a job, the strongest last."""

    NONE = 0
    STOP = 1
    KILL = 2


class Attempt:
    """One attempt."""

    def __init__(self, machine: Machine, paths: JobPaths, launch: LaunchRecord, beat_s: float) -> None:
        self._machine = machine
        self.paths = paths
        self.launch = launch
        self.beat_s = beat_s
        self.report = ClusterReport()
        self.found: Found | None = None
        """Its submission, once known."""
        self.job: str | None = None
        """Slurm's id of it, once known."""
        self.is_submitting = False
        """True while this process submits it."""
        self.since = machine.clock.monotonic()
        """When it was first seen, or submitted."""
        self.row: Row | None = None
        self.missing = 0
        self.is_forgotten = False
        self.is_looked_up = False
        self.has_begun = False
        self.is_marked = False
        self.wish = Wish.NONE
        self.granted = Wish.NONE
        """The wish that Slurm was told of."""
        self.processes = 0
        """How many `Process`es stand for it."""
        self.listeners: list[Callable[[], None]] = []
        self._ended_since: float | None = None
        self._fence: Fence | None = None

    @property
    def is_ended(self) -> bool:
        """True if Slurm confirmed the end, or the fence has passed."""
        return self.report.says is ClusterSays.ENDED

    @property
    def is_active(self) -> bool:
        """True while Slurm must be asked for it."""
        return not (self.is_marked or self.is_ended)

    @property
    def is_watched_closely(self) -> bool:
        """True while its end is believed and not yet certain."""
        return self.is_active and (self.missing > 0 or self._ended_since is not None)

    def look(self) -> None:
        """Reads whether it has begun, and whether it has left its marker."""
        files = self._machine.files
        if not self.has_begun:
            self.has_begun = read_pid(files, self.paths, self.launch.attempt) is not None
        markers = read_markers(files, self.paths)
        self.is_marked = any(
            isinstance(marker, Marker) and marker.nonce == self.launch.nonce
            for marker in (markers.done, markers.failed)
        )

    def take(self, row: Row | None) -> bool:
        """Takes what squeue, or whatever was asked after it, says; True if that is news."""
        if row is None:
            self.missing += 1
            return self.missing == 1
        is_news = self.row is None or row.state != self.row.state
        self.row, self.missing, self.is_forgotten, self.is_looked_up = row, 0, False, False
        return is_news

    def claimed_by(self) -> Claim | None:
        """The claim on it."""
        made = claimer(self._machine, self.paths, self.launch.nonce)
        return made if isinstance(made, Claim) else None

    def follow_claim(self) -> None:
        """Takes the id of the job whose runner began it: an answer of sbatch may be lost, or come twice."""
        made = self.claimed_by()
        if made is not None and made.by is Claimer.RUNNER and made.job is not None and made.job != self.job:
            self.job, self.row, self.missing = made.job, None, 0
            self._ended_since = None

    def judge(self) -> bool:
        """Renews the report; True if it says something new."""
        before = self.report
        self.report = self._judged()
        return self.report != before

    def _judged(self) -> ClusterReport:
        if self.is_ended:
            return self.report
        now = self._machine.clock.monotonic()
        if self.is_forgotten:
            return self._ended(FORGOTTEN, f"Slurm no longer knows job {self.job}", now, None)
        if self.row is None:
            return self._not_seen(now)
        meaning = meaning_of(self.row.state)
        if meaning.says is ClusterSays.PENDING:
            return ClusterReport(ClusterSays.PENDING, message=pending_text(self.row.reason))
        if meaning.says is ClusterSays.RUNNING:
            self._ended_since = self._fence = None
            return ClusterReport(ClusterSays.RUNNING)
        if self.row.exit_code == STALE and self.row.state == "FAILED":
            return self._stale(now)
        return self._ended(meaning, self._text(meaning), now, self.row.exit_code)

    def _not_seen(self, now: float) -> ClusterReport:
        """No row yet: nothing is known, unless it was never submitted."""
        made = self.claimed_by()
        if made is not None and made.by is Claimer.SCHEDULER:
            return ClusterReport(ClusterSays.ENDED, message="it was given up before it began")
        is_overdue = now - self.since >= NEVER_SUBMITTED_S
        if is_overdue and self.job is None and made is None and not self.is_submitting:
            message = "it was never handed over to Slurm: its scheduler ended before it could"
            return ClusterReport(ClusterSays.ENDED, message=message, blameless=True)
        return self.report

    def _stale(self, now: float) -> ClusterReport:
        """The runner found the attempt taken, or could not begin it: its own claim tells which."""
        made = self.claimed_by()
        if made is None or made.by is Claimer.SCHEDULER:
            message = f"the runner of job {self.job} could not begin: see {self._complaints()}"
            return ClusterReport(ClusterSays.ENDED, message=message, blameless=True)
        message = f"the runner of job {self.job} gave its attempt up"
        return self._ended(FORGOTTEN, message, now, STALE)

    def _ended(self, meaning: Meaning, message: str, now: float, exit_code: int | None) -> ClusterReport:
        """Slurm believes that it ended: a marker may be late; where Slurm cannot know, the fence decides."""
        if self._ended_since is None:
            self._ended_since = now
        if meaning.confirmed:
            is_over = now - self._ended_since >= marker_patience_s(exit_code)
        else:
            if self._fence is None:
                self._fence = Fence(self._machine, self.paths, self.beat_s)
            is_over = self._fence.has_passed()
        if not is_over:
            return ClusterReport(ClusterSays.RUNNING, message=f"{message}; its end is not certain yet")
        reason = meaning.reason
        if reason is JobFailureStatus.CANCELLED:
            stop = read_stop(self._machine.files, self.paths, self.launch.attempt)
            if stop is not None:
                reason, message = stop.reason, stop.message or message
        return ClusterReport(ClusterSays.ENDED, reason, message, meaning.blameless)

    def due_s(self) -> float:
        """How soon to judge it again while its end is not certain."""
        return min(PATIENCE_S / 5, self.beat_s / 2)

    def _text(self, meaning: Meaning) -> str:
        assert self.row is not None
        state = self.row.state.partition(" ")[0]
        if state in ("COMPLETED", "FAILED"):
            ended = "" if self.row.exit_code is None else f" with exit code {self.row.exit_code}"
            return f"job {self.job} of Slurm ended{ended} and left no marker: see {self._complaints()}"
        return f"Slurm says {state} of job {self.job}"

    def _complaints(self) -> str:
        return self.found.place.out if self.found is not None else "Slurm's output of the job"
