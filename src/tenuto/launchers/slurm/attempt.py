"""What is known of one attempt that Slurm has; what that amounts to, the `Observer` of all clusters says.
Reads the job's directory; asks no command, and is used under the lock of its cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum, unique

from tenuto.launchers.instructions import Instructions
from tenuto.launchers.manifest import setup_failure, setup_path
from tenuto.launchers.observation import Observer, Seen, Sighting
from tenuto.launchers.runner.terms import SETUP_FAILED, STALE
from tenuto.launchers.slurm.commands import SlurmRow
from tenuto.launchers.slurm.states import EXITED, meaning_of, pending_text
from tenuto.launchers.slurm.submission import SubmittedAttempt, has_vanished, in_one_array
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace.attempt_files import read_launch, read_pid
from tenuto.workspace.claims import Claim, Claimer, claimer, keep_claim
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Durability, has_marker
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord

MISSING_ANSWERS = 2
"""How many answers of squeue must lack a job before it is looked for elsewhere."""
_SEEN = {
    ClusterSays.PENDING: Seen.PENDING,
    ClusterSays.RUNNING: Seen.RUNNING,
    ClusterSays.ENDED: Seen.ENDED,
}


@unique
class Wish(IntEnum):
    """What is to be done to a job, the strongest last."""

    NONE = 0
    STOP = 1
    KILL = 2


class SlurmAttempt:
    """One attempt; a thousand of them may wait, so that each is kept small."""

    __slots__ = (
        "_machine",
        "_observer",
        "beat_s",
        "found",
        "granted",
        "has_begun",
        "has_lost_id",
        "has_vanished",
        "is_forgotten",
        "is_marked",
        "is_new",
        "is_replaced",
        "is_submitting",
        "is_to_be_judged",
        "job",
        "launch",
        "listeners",
        "missing",
        "needless",
        "paths",
        "processes",
        "report",
        "row",
        "since",
        "wish",
    )

    def __init__(self, machine: Machine, paths: JobPaths, launch: LaunchRecord, beat_s: float) -> None:
        self._machine = machine
        self.paths = paths
        self.launch = launch
        self.report = ClusterReport()
        self.found: SubmittedAttempt | None = None
        """Its submission, once known."""
        self.job: str | None = None
        """Slurm's id of it, once known."""
        self.is_submitting = False
        """True while this process submits it."""
        self.is_new = True
        """True until it was looked for in the workspace."""
        self.since = machine.clock.monotonic()
        """When it was first seen, or submitted: what Slurm was asked before tells nothing of it."""
        self.row: SlurmRow | None = None
        self.missing = 0
        """Answers in a row that lacked it."""
        self.is_forgotten = False
        """True if Slurm has forgotten the job."""
        self.has_begun = False
        self.has_lost_id = False
        """True if another job was seen under its id: Slurm must not be told to end that."""
        self.is_marked = False
        self.has_vanished = False
        """True if its pilot says that its runner left no marker."""
        self.is_replaced = False
        """True if it was given up before it began, or another attempt has followed it."""
        self.is_to_be_judged = True
        """True if something changed since it was judged."""
        self.needless: str | None = None
        """Slurm's id of its own task, once another task of the array runs it."""
        self.wish = Wish.NONE
        self.granted = Wish.NONE
        """The wish that Slurm was told of."""
        self.processes = 0
        """How many `Process`es stand for it."""
        self.listeners: list[Callable[[], None]] = []
        self._observer = Observer(machine, beat_s)
        self.beat_s = beat_s

    @property
    def is_ended(self) -> bool:
        """True if Slurm confirmed the end, or the fence has passed."""
        return self.report.says is ClusterSays.ENDED

    @property
    def is_active(self) -> bool:
        """True while Slurm must be asked for it."""
        return not (self.is_marked or self.is_replaced or self.is_ended)

    @property
    def may_be_in_queue(self) -> bool:
        """True if Slurm may have its job: it has not ended, or it was given up before it began."""
        return self.is_active or not (self.has_begun or self.is_ended)

    @property
    def is_watched_closely(self) -> bool:
        """True while its end is believed and not yet certain."""
        is_over = self.row is not None and meaning_of(self.row.state).says is ClusterSays.ENDED
        is_over = is_over or self.has_vanished or self.missing > 0 or self.is_forgotten
        return is_over and self.is_active and not self.is_submitting

    @property
    def is_due(self) -> bool:
        """True if it is to be looked at, or judged, though its runner has not rung."""
        if self.is_submitting:
            return False
        return self.is_new or self.is_to_be_judged or self.is_watched_closely

    def take_found(self, found: SubmittedAttempt) -> None:
        """Takes the submission that names it."""
        self.found = found
        self.job = self.job or found.job
        if found.header.beat_s != self.beat_s:
            self.beat_s = found.header.beat_s
            self._observer = Observer(self._machine, self.beat_s)

    def own(self, row: SlurmRow | None) -> SlurmRow | None:
        """A row, if it is of this attempt: Slurm gives ids out again after its controller lost its state."""
        if row is None or self.found is None or row.name.endswith(self.found.place.suffix):
            return row
        self.has_lost_id = True
        return None

    def tell_listeners(self) -> None:
        """Tells every listener that something new may be known; to be called without the lock."""
        for tell in list(self.listeners):
            tell()

    def look(self) -> None:
        """Reads whether it has begun, and whether it has left its marker."""
        files = self._machine.files
        if not self.has_begun:
            self.has_begun = read_pid(files, self.paths, self.launch.attempt) is not None
        self.is_marked = has_marker(files, self.paths, self.launch.nonce)
        if not self.is_marked and self.found is not None and self.found.is_pilot:
            self.has_vanished = has_vanished(files, self.found, self.launch.nonce)
        made = claimer(self._machine, self.paths, self.launch.nonce)
        if isinstance(made, Claim) and self._is_run_by_another_task(made):
            self.needless = self.job
        if not self.is_marked:
            launch = read_launch(files, self.paths)
            is_revoked = isinstance(made, Claim) and made.by is Claimer.SCHEDULER
            self.is_replaced = is_revoked or (launch is not None and launch.nonce != self.launch.nonce)

    def keep_claim(self) -> None:
        """Syncs its claim; needless if its marker was synced, and if its directory is gone."""
        if self.is_marked and Instructions.of(self.launch).durability is Durability.MARKER:
            return
        with suppress(FileNotFoundError):
            keep_claim(self._machine, self.paths, self.launch.nonce)

    def _is_run_by_another_task(self, made: Claim) -> bool:
        """True if the runner of another task of the same array has the attempt: its own has nothing to do."""
        if made.job is None or self.job in (None, made.job) or self.has_lost_id:
            return False
        return self.found is not None and self.found.is_array and in_one_array(made.job, str(self.job))

    def take(self, row: SlurmRow | None) -> bool:
        """Takes what squeue, or whatever was asked after it, says; True if that is news."""
        if row is None:
            self.missing += 1
            self.is_to_be_judged = True
            return self.missing == 1
        is_news = self.row is None or row.state != self.row.state
        self.row, self.missing, self.is_forgotten = row, 0, False
        self.is_to_be_judged = True
        return is_news

    def judge(self) -> bool:
        """Renews the report; True if it says something new."""
        if self.is_ended or self.is_submitting:
            return False
        self.is_to_be_judged = False
        before = self.report
        self.report = self._observer.report(self.paths, self.launch, self._see)
        return self.report != before

    def _see(self, claimed: str | None) -> Sighting:
        """What Slurm's list says of it; `claimed` is the job whose runner began it."""
        if claimed is not None and claimed != self.job:
            # An answer of sbatch was lost, or the order came twice: that job is the one.
            self.job, self.row, self.missing = claimed, None, 0
            self.is_forgotten = self.has_lost_id = False
        if self.has_vanished:
            message = f"KILLED: its runner vanished in pilot {self.job} without leaving a marker"
            return Sighting(Seen.ENDED, message=message)
        if self.is_forgotten:
            return Sighting(Seen.MISSING, message=f"Slurm no longer knows job {self.job}", blameless=True)
        if self.row is None:
            if self.job is not None or not self.missing:
                return Sighting(Seen.NOTHING, message=self.report.message)
            message = "Slurm was never given it: its scheduler ended before it could"
            return Sighting(Seen.MISSING, message=message, blameless=True)
        meaning = meaning_of(self.row.state)
        if meaning.says is ClusterSays.PENDING:
            return Sighting(Seen.PENDING, message=pending_text(self.row.reason))
        is_exit = meaning is EXITED
        if is_exit and self.row.exit_code == SETUP_FAILED and self.found is not None:
            said = setup_path(self.found.place.manifest, self.found.position)
            message = setup_failure(self._machine.files, said).message
            return Sighting(Seen.ENDED, SETUP_FAILED, JobFailureStatus.FAILED, message)
        if self.found is not None and self.found.is_pilot and meaning.says is ClusterSays.ENDED:
            message = f"its pilot ended: {self._text(self.row)}"
            is_confirmed = meaning.confirmed
            return Sighting(Seen.ENDED, message=message, confirmed=is_confirmed, blameless=True, untried=True)
        return Sighting(
            _SEEN[meaning.says],
            self.row.exit_code if is_exit else None,
            meaning.reason,
            self._text(self.row) if meaning.says is ClusterSays.ENDED else None,
            meaning.confirmed,
            meaning.blameless or (is_exit and self.row.exit_code == STALE),
            self._ended_s_ago(self.row) if meaning.says is ClusterSays.ENDED else None,
        )

    def _ended_s_ago(self, row: SlurmRow) -> float | None:
        return None if row.ended is None else self._machine.clock.now().timestamp() - row.ended

    def _text(self, row: SlurmRow) -> str:
        state = row.state.partition(" ")[0]
        if meaning_of(state) is not EXITED:
            return f"Slurm says {state} of job {self.job}"
        ended = "" if row.exit_code is None else f" with exit code {row.exit_code}"
        seen = f": see {self.found.place.out}" if self.found is not None else ""
        return f"job {self.job} of Slurm ended{ended} and left no marker{seen}"
