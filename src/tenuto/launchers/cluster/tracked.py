"""The attempts that a batch system has and this process follows: the facts about each, and its `Process`.
Reads job directories and asks no command; used under the lock of the follower.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum, unique
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.launchers.cluster.dialect import EXITED, ClusterOptions, Dialect, QueueRow
from tenuto.launchers.cluster.submission import SubmittedAttempt, has_vanished
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.local import resolve
from tenuto.launchers.manifest import Order, setup_cut_off, setup_failure, setup_path
from tenuto.launchers.observation import ClusterEntry, Observer, Seen
from tenuto.launchers.runner.runner_protocol import NO_MARKER, SETUP_FAILED, STALE, STARVED
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace.attempt_files import read_launch, read_pid
from tenuto.workspace.claims import Claim, Claimer, claimer, keep_claim
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Durability, has_marker
from tenuto.workspace.ports import RUNNER_BYTE, Machine
from tenuto.workspace.records import LaunchRecord

if TYPE_CHECKING:
    from tenuto.launchers.cluster.follower import ClusterFollower

MISSING_ANSWERS = 2
"""How many answers of the list must lack a job before it is looked for elsewhere."""
_LONGEST_COMPLAINT = 400
"""Bytes of the end of what runners complain of that are looked at."""
_NOTHING = ClusterReport()


@unique
class EndRequest(IntEnum):
    """The action on a job, the strongest last."""

    NONE = 0
    STOP = 1
    KILL = 2


@dataclass(slots=True, eq=False)
class TrackedAttempt:
    """One attempt; a thousand of them may wait, so that each is kept small."""

    machine: Machine
    dialect: Dialect
    paths: JobPaths
    launch: LaunchRecord
    beat_s: float
    report: ClusterReport = _NOTHING
    found: SubmittedAttempt | None = None
    """Its submission, once known."""
    job: str | None = None
    """The system's id of it, once known."""
    is_submitting: bool = False
    """True while this process submits it."""
    is_new: bool = True
    """True until it was looked for in the workspace."""
    since: float = 0.0
    """When it was first seen, or submitted: what the system was asked before tells nothing of it."""
    row: QueueRow | None = None
    missing: int = 0
    """Answers in a row that lacked it."""
    missing_since: float = 0.0
    """When the first of them came."""
    is_forgotten: bool = False
    """True if the system has forgotten the job."""
    has_begun: bool = False
    has_lost_id: bool = False
    """True if another job was seen under its id: the system must not be told to end that."""
    is_marked: bool = False
    has_vanished: bool = False
    """True if its pilot says that its runner left no marker."""
    is_replaced: bool = False
    """True if it was given up before it began, or another attempt has followed it."""
    is_to_be_judged: bool = True
    """True if something changed since it was judged."""
    needless: str | None = None
    """The system's id of its own task, once another task of the array runs it."""
    ending: EndRequest = EndRequest.NONE
    told: EndRequest = EndRequest.NONE
    """The ending that the system was told of."""
    processes: int = 0
    """How many `Process`es stand for it."""
    listeners: list[Callable[[], None]] = field(default_factory=list)
    observer: Observer = field(init=False)

    def __post_init__(self) -> None:
        self.since = self.machine.clock.monotonic()
        self.observer = Observer(self.machine, self.beat_s)

    @property
    def shown_job(self) -> str:
        """The id of its job, as the system itself writes it."""
        return "" if self.job is None else self.dialect.shown_id(self.job)

    @property
    def is_ended(self) -> bool:
        """True if the system confirmed the end, or the fence has passed."""
        return self.report.says is ClusterSays.ENDED

    @property
    def is_active(self) -> bool:
        """True while the system must be asked for it."""
        return not (self.is_marked or self.is_replaced or self.is_ended)

    @property
    def may_be_in_queue(self) -> bool:
        """True if the system may have its job: it has not ended, or it was given up before it began."""
        return self.is_active or not (self.has_begun or self.is_ended)

    @property
    def is_watched_closely(self) -> bool:
        """True while its end is believed and not yet certain."""
        is_over = self.row is not None and self.dialect.meaning(self.row.state).says is ClusterSays.ENDED
        is_over = is_over or self.has_vanished or self.missing > 0 or self.is_forgotten
        return is_over and self.is_active and not self.is_submitting

    @property
    def is_due(self) -> bool:
        """True if it is to be looked at, or judged, though its runner has not signalled."""
        if self.is_submitting:
            return False
        return self.is_new or self.is_to_be_judged or self.is_watched_closely

    def take_found(self, found: SubmittedAttempt) -> None:
        """Takes the submission that names it."""
        self.found = found
        self.job = self.job or found.job
        if found.header.beat_s != self.beat_s:
            self.beat_s = found.header.beat_s
            self.observer = Observer(self.machine, self.beat_s)

    def own(self, row: QueueRow | None) -> QueueRow | None:
        """A row, if it is of this attempt: a system that lost its state gives ids out again."""
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
        files = self.machine.files
        if not self.has_begun:
            self.has_begun = read_pid(files, self.paths, self.launch.attempt) is not None
        self.is_marked = has_marker(files, self.paths, self.launch.nonce)
        if not self.is_marked and self.found is not None and self.found.is_pilot:
            self.has_vanished = has_vanished(files, self.found, self.launch.nonce)
        made = claimer(self.machine, self.paths, self.launch.nonce)
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
            keep_claim(self.machine, self.paths, self.launch.nonce)

    def _is_run_by_another_task(self, made: Claim) -> bool:
        """True if the runner of another task of the same array has the attempt: its own has nothing to do."""
        if made.job is None or self.job is None or self.has_lost_id:
            return False
        runs, own = self.dialect.normal(made.job), self.job
        is_of_array = runs != own and runs.rpartition("_")[0] == own.rpartition("_")[0]
        return self.found is not None and self.found.is_array and is_of_array

    def take(self, row: QueueRow | None) -> bool:
        """Takes what the list, or whatever was asked after it, says; True if that is news."""
        if row is None:
            if not self.missing:
                self.missing_since = self.machine.clock.monotonic()
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
        self.report = self.observer.report(self.paths, self.launch, self._see)
        return self.report != before

    def _see(self, claimed: str | None) -> ClusterEntry:
        """What the system's list says of it; `claimed` is the job whose runner began it."""
        claimed = claimed and self.dialect.normal(claimed)
        if claimed is not None and claimed != self.job:
            # The answer to a submission was lost, or the order came twice: that job is the one.
            self.job, self.row, self.missing = claimed, None, 0
            self.is_forgotten = self.has_lost_id = False
        if self.has_vanished:
            message = f"KILLED: its runner vanished in pilot {self.shown_job} without leaving a marker"
            return ClusterEntry(Seen.ENDED, message=message)
        title = self.dialect.title
        if self.is_forgotten:
            message = f"{title} no longer knows job {self.shown_job}"
            return ClusterEntry(Seen.MISSING, message=message, blameless=True)
        if self.row is None:
            if self.job is not None and not self.dialect.has_list:
                said = "" if self.has_begun else self._complaint()
                return ClusterEntry(
                    Seen.UNLISTED, message=f"{title} has it, and cannot be asked for it{said}"
                )
            if self.job is not None or not self.missing:
                return ClusterEntry(Seen.NOTHING, message=self.report.message)
            message = f"{title} was never given it: its scheduler ended before it could"
            return ClusterEntry(Seen.MISSING, message=message, blameless=True)
        meaning = self.dialect.meaning(self.row.state)
        if meaning.says is ClusterSays.PENDING:
            return ClusterEntry(Seen.PENDING, message=self.dialect.pending_text(self.row.reason))
        is_exit = meaning is EXITED
        if is_exit and (failed := self._failed_setup(self.row.exit_code, claimed)) is not None:
            return failed
        if is_exit and self.row.exit_code == STARVED:
            message = f"its runner was killed for want of memory (job {self.shown_job} of {title})"
            return ClusterEntry(Seen.ENDED, STARVED, JobFailureStatus.MEMORY, message)
        if meaning.says is not ClusterSays.ENDED:
            return ClusterEntry(Seen.RUNNING)
        if self.found is not None and self.found.is_pilot:
            message = f"its pilot ended: {self._text(self.row)}"
            is_confirmed = meaning.confirmed
            return ClusterEntry(
                Seen.ENDED, message=message, confirmed=is_confirmed, blameless=True, untried=True
            )
        exit_code, now = self.row.exit_code if is_exit else None, self.machine.clock.now().timestamp()
        return ClusterEntry(
            Seen.ENDED,
            exit_code,
            meaning.reason,
            self._text(self.row),
            meaning.confirmed,
            meaning.blameless or exit_code == STALE,
            None if self.row.ended is None else now - self.row.ended,
        )

    def _failed_setup(self, exit_code: int | None, claimed: str | None) -> ClusterEntry | None:
        """How the setup before its runner failed; None if it did not."""
        if self.found is None:
            return None
        files, said = self.machine.files, setup_path(self.found.place.manifest, self.found.position)
        message = None
        if exit_code == SETUP_FAILED:
            message = setup_failure(files, said).message
        elif claimed is None and exit_code not in NO_MARKER:
            message = setup_cut_off(files, said, exit_code)
        if message is None:
            return None
        # With a code of its own a late disk may hide that the job began: that has its patience.
        code = SETUP_FAILED if exit_code is None else exit_code
        return ClusterEntry(Seen.ENDED, code, JobFailureStatus.FAILED, message)

    def _text(self, row: QueueRow) -> str:
        if self.dialect.meaning(row.state) is not EXITED:
            state = row.state.partition(" by ")[0]  # such as `CANCELLED by 1000`
            return f"{self.dialect.title} says {state} of job {self.shown_job}"
        ended = "" if row.exit_code is None else f" with exit code {row.exit_code}"
        told = f"job {self.shown_job} of {self.dialect.title} ended{ended} and left no marker"
        return told if self.found is None else f"{told}{self._complaint()} (see {self.found.place.out})"

    def _complaint(self) -> str:
        """The last line that a runner of its submission, or the shell before it, complained of."""
        with suppress(OSError):
            if self.found is not None:
                files, path = self.machine.files, self.found.place.out
                status = files.stat(path)
                before = max(status.size - _LONGEST_COMPLAINT, 0) if status is not None else 0
                end = files.read_range(path, before, _LONGEST_COMPLAINT).decode(errors="replace")
                return f": {end.strip().splitlines()[-1].strip()}" if end.strip() else ""
        return ""


UNASKED_S = 300.0
"""How long an attempt without a `Process` is followed after the last question about it."""
_DROP_S = 10.0
"""How often such attempts are looked for."""


class Tracked:
    """Every attempt that is followed; for any thread."""

    def __init__(self, machine: Machine, dialect: Dialect) -> None:
        self._machine = machine
        self._dialect = dialect
        self.lock = threading.RLock()
        self._attempts: dict[str, TrackedAttempt] = {}
        self._asked: dict[str, float] = {}
        self._drop_due = 0.0

    def __len__(self) -> int:
        return len(self._attempts)

    def __contains__(self, nonce: str) -> bool:
        return nonce in self._attempts

    def all(self) -> list[TrackedAttempt]:
        """The attempts at this moment."""
        with self.lock:
            return list(self._attempts.values())

    def known(self, paths: JobPaths, launch: LaunchRecord, beat_s: float) -> TrackedAttempt:
        """The attempt of a launch record; followed from now on if it was not."""
        with self.lock:
            attempt = self._attempts.get(launch.nonce)
            if attempt is None:
                attempt = TrackedAttempt(self._machine, self._dialect, paths, launch, beat_s)
                self._attempts[launch.nonce] = attempt
            self._asked[launch.nonce] = self._machine.clock.monotonic()
            return attempt

    def let_go(self, attempt: TrackedAttempt) -> None:
        """A process of the attempt was closed; one without any, and with nothing to tell, is dropped."""
        with self.lock:
            attempt.processes -= 1
            if not attempt.processes and attempt.ending <= attempt.told:
                self._drop(attempt.launch.nonce)

    def drop_unasked(self, now: float) -> None:
        """Forgets the attempts that were not asked for in a while."""
        if now < self._drop_due:
            return
        self._drop_due = now + _DROP_S
        with self.lock:
            for nonce, asked in list(self._asked.items()):
                attempt = self._attempts.get(nonce)
                is_needed = attempt is not None and (attempt.processes or attempt.is_submitting)
                if attempt is None or (not is_needed and now - asked > UNASKED_S):
                    self._drop(nonce)

    def unsaid_endings(self) -> list[TrackedAttempt]:
        """The attempts whose end is wanted and of which the system was not told."""
        return [attempt for attempt in self.all() if attempt.ending > attempt.told]

    def end(self, attempt: TrackedAttempt, ending: EndRequest) -> None:
        """Records that an attempt is to end."""
        with self.lock:
            attempt.ending = max(attempt.ending, ending)
            self._attempts[attempt.launch.nonce] = attempt  # which may have been let go

    def end_again(self, attempt: TrackedAttempt) -> None:
        """Asks for the end of an attempt again: the system was told, and did not hear it."""
        with self.lock:
            attempt.told = EndRequest.NONE
            self._attempts[attempt.launch.nonce] = attempt  # which may have been let go

    @contextmanager
    def listening(self, attempt: TrackedAttempt, tell: Callable[[], None]) -> Iterator[None]:
        """Calls `tell`, in another thread, whenever something new is known of the attempt."""
        with self.lock:
            attempt.listeners.append(tell)
        try:
            yield
        finally:
            with self.lock:
                attempt.listeners.remove(tell)

    def _drop(self, nonce: str) -> None:
        self._attempts.pop(nonce, None)
        self._asked.pop(nonce, None)


LAST_STEPS_S = 1.0
LAST_STEPS = 100
"""How long, and how often, the lock of a runner that has written its marker is looked at."""


class ClusterProcess:
    """A `Process`; pending or running."""

    __slots__ = ("_attempt", "_follower", "_is_closed")

    exit_code: int | None = None

    def __init__(self, follower: ClusterFollower, attempt: TrackedAttempt) -> None:
        self._follower = follower
        self._attempt = attempt
        self._is_closed = False

    async def confirmed(self) -> bool:
        await self._until(lambda: self._attempt.has_begun or not self._attempt.is_active)
        return self._attempt.has_begun

    async def wait(self) -> None:
        await self._until(lambda: not self._attempt.is_active)
        locks, lock = self._follower.machine.locks, self._attempt.paths.lock
        for _ in range(LAST_STEPS):  # its marker is written, and it exits in a moment
            if not locks.is_locked(lock, RUNNER_BYTE):
                return
            await asyncio.sleep(LAST_STEPS_S / LAST_STEPS)

    def signal_stop(self) -> None:
        self._follower.end(self._attempt, EndRequest.STOP)

    def kill(self) -> None:
        self._follower.end(self._attempt, EndRequest.KILL)

    def describe(self) -> dict[str, Any]:
        launch = self._attempt.launch
        described: dict[str, Any] = {"launcher": launch.launcher, "attempt": launch.attempt}
        pid = read_pid(self._follower.machine.files, self._attempt.paths, launch.attempt)
        if pid is not None:
            described |= {"host": pid.identity.host, "pid": pid.identity.pid}
        if self._attempt.job is not None:
            described["job"] = self._attempt.shown_job
        return described

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._follower.tracked.let_go(self._attempt)

    async def _until(self, condition: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while not condition():
            changed: asyncio.Future[None] = loop.create_future()  # an Event would take 700 bytes a job
            with self._follower.tracked.listening(self._attempt, partial(_wake, loop, changed)):
                if not condition():  # or it came true before anything listened
                    await changed


def _wake(loop: asyncio.AbstractEventLoop, changed: asyncio.Future[None]) -> None:
    """Called in the thread of the follower."""
    with suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(resolve, changed)


class Handed(NamedTuple):
    """An order, as it is submitted."""

    root: str
    """Of its workspace."""
    order: Order
    attempt: TrackedAttempt
    options: ClusterOptions
    answer: Callable[[ClusterProcess | Exception], None]
    """Called in a thread, once: with the process, or why there is none."""
