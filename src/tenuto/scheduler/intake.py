"""Submissions on their way to the core: the inbox that any thread fills, the intake that the loop empties.
The intake reads what the directory of a job shows and which owner has it; `core` decides what happens next.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple
from weakref import ref

from tenuto.errors import DirectoryUnusable, GraphError, UnsubmittedTask, WorkspaceError
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.scheduler.attempts import Attempts, drop_aside
from tenuto.scheduler.decisions import (
    NO_TRIES,
    Arrival,
    Look,
    Verdict,
    known_end,
    on_arrival,
    runs_once,
    shortage,
    tries_of,
    tries_to_come,
    worded,
)
from tenuto.scheduler.entries import Phase
from tenuto.scheduler.inputs import Adopted, Failed, Found, Input, Locked, Promoted, Submitted, Unlocked
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.loop import Loop
from tenuto.scheduler.owners import Owner, OwnerLedger
from tenuto.scheduler.token_queue import TokenQueues
from tenuto.workspace import job_directory
from tenuto.workspace.derive import Derived, ended_well
from tenuto.workspace.derive_table import Action
from tenuto.workspace.job_directory import Settled
from tenuto.workspace.marker_index import KnownEnd, MarkerIndex, MarkerStamp
from tenuto.workspace.ports import FileKind, Machine
from tenuto.workspace.records import LaunchRecord

GATHER_S = 0.002
"""Submissions are taken in together: two threads that take turns for each of them take twice as long."""
GATHER_DONE_S = 0.1
"""The same for jobs that are done: nothing waits to be started, so that there may be more of them."""
MOST_GATHERED = 256
"""A thread that submits more waits until the loop took these in: one thread at a time is faster."""


class Submission(NamedTuple):
    """An owner wants a job to be run."""

    job: Job
    """The job that counts: the first one with this identity."""
    given: Job
    owner: Owner
    is_new: bool
    """False for an identity that was known already."""
    look: Look | None
    """What its directory showed, if the caller looked: for a new job, and for a failed one."""


class Cancellation(NamedTuple):
    """An owner wants a job to end."""

    job: Job
    message: str


class Withdrawal(NamedTuple):
    """An owner no longer wants a job."""

    job: Job
    owner: Owner
    message: str


class Forgetting(NamedTuple):
    """An owner has no more use for a job that ended."""

    job: Job
    owner: Owner


InboxItem = Submission | Cancellation | Withdrawal | Forgetting


class Inbox:
    """Requests in the order they came: a cancellation ends only jobs submitted before it."""

    def __init__(self, loop: Loop, take_in: Callable[[], None]) -> None:
        """`take_in` is called in a step of the loop, soon after a request came and maybe others."""
        self._loop = loop
        self._take_in = take_in
        self._lock = threading.Lock()
        self._requests: deque[InboxItem] = deque()
        self._gathers_s = inf
        """After what time, at most, the loop takes in the requests; it is told when this falls."""
        self._round = 0
        """How often it was emptied."""

    def __len__(self) -> int:
        return len(self._requests)

    def put(self, request: InboxItem, gather_s: float = GATHER_S) -> None:
        """From any thread; returns at once."""
        with self._lock:
            self._requests.append(request)
            if gather_s < self._gathers_s:
                self._gathers_s = gather_s
                self._loop.post(self._loop.later, gather_s, self._take_in_round, self._round)

    def emptied(self) -> Iterator[InboxItem]:
        """Takes out one request after the other, also later ones."""
        while True:
            with self._lock:
                if not self._requests:
                    self._gathers_s = inf
                    self._round += 1
                    return
                request = self._requests.popleft()
            yield request

    def _take_in_round(self, number: int) -> None:
        """A round's time has come, unless it was taken in before; later requests have a time of their own."""
        if number == self._round:
            self._take_in()


REST_POLL_S = 0.05
_NOT_LOOKED = Look(Derived(JobState.UNSCHEDULED, Action.START, "not looked"), Arrival.RUN)


class Intake:
    """Tells the core of submissions; in the loop's thread, but for `look`."""

    def __init__(
        self,
        machine: Machine,
        registry: Registry,
        ledger: OwnerLedger,
        tokens: TokenQueues,
        attempts: Attempts,
        feed: Callable[[Input], None],
        call_completed: Callable[[Job], None],
    ) -> None:
        """`feed` tells the core; `call_completed` calls the callbacks of a job, if that is done."""
        self._machine = machine
        self._registry = registry
        self._ledger = ledger
        self._tokens = tokens
        self._attempts = attempts
        self._feed = feed
        self._call_completed = call_completed
        self.index = MarkerIndex(machine)

    def look(self, job: Job) -> Look:
        """Look at the directory of a new job; raises if it can never be used. From any thread."""
        place = self._machine.files.stat(job.paths.directory)
        if place is not None and place.kind is FileKind.LINK:
            raise DirectoryUnusable(
                f"{job.paths.directory} is a link, which no directory of a job may be: every other command "
                f"passes it over; move what it leads to here, or remove the link"
            )
        look = _NOT_LOOKED
        try:
            stamp = None if job.once else self.index.stamp(place, job.paths)
            known = stamp and self.index.find(job.layout, job.task_id, job.job_id, stamp)
            settled = self._attempts.look(job) if known is None else None
            found = settled.derived if settled is not None else ended_well(known.marker)  # type: ignore[union-attr]
            if not self._attempts.at(job).mend(found):
                return look  # its start looks again, under the lock
            look = self._judged(job, found, settled and settled.evidence.launch)
            if known is not None:
                job.life = known.life
            elif settled and stamp is not None and look.found.state is JobState.DONE:
                self._note(job, stamp, settled)
            if look.arrival is Arrival.RUN:
                self._prepare(job, look.found)
        except (OSError, DirectoryUnusable) as error:
            if shortage(error) is None:
                raise
            # The job waits until the machine recovers; its start looks again.
        return look

    def _note(self, job: Job, stamp: MarkerStamp, settled: Settled) -> None:
        """Spare the next run to read a job that was found done, if its marker tells all there is to know."""
        launch, marker = settled.evidence.launch, settled.derived.marker
        if not isinstance(launch, LaunchRecord) or (
            launch.aside and self._machine.files.stat(job.paths.aside)
        ):
            return
        is_plain = tries_of(launch) == NO_TRIES
        is_plain = is_plain and settled.derived.alarm is None
        # A killed scheduler may have set disk aside: the next attempt would not change the directory.
        is_plain = is_plain and self._machine.files.stat(job.paths.reserve) is None
        if is_plain and marker is not None and job.life is not None:
            self.index.note(job.layout, job.task_id, job.job_id, stamp, KnownEnd(marker, job.life))

    def _judged(self, job: Job, found: Derived, launch: object) -> Look:
        job.tries = tries_of(launch if isinstance(launch, LaunchRecord) else None)
        arrival = on_arrival(found, once=runs_once(found, launch, job.retry))
        if isinstance(launch, LaunchRecord):
            job.life = launch.life
            if arrival is Arrival.REUSE and launch.aside:
                drop_aside(self._machine, job)
        job.marker = found.marker and found.marker.gist()  # for jobs judged before the loop has seen this one
        if arrival is Arrival.REUSE and job.reuse is not None and found.marker is not None:
            assert job.marker is not None
            if not job.reuse.is_valid(job, found.marker):
                job.rerun_of, job.empties, arrival = found.marker.nonce, True, Arrival.RUN
            elif job.marker.record.get("outputs"):  # the script may open them by their paths
                with contextlib.suppress(OSError, WorkspaceError):
                    job_directory.unpacked(self._machine, job.paths)
        elif job.reuse is not None and isinstance(launch, LaunchRecord):
            job.empties = job.reuse.begins_anew(job, launch, runs=arrival is Arrival.ADOPT)
        stop = None
        if arrival is Arrival.ADOPT:
            stop = job_directory.read_stop(self._machine.files, job.paths, found.attempt)
        return Look(found, arrival, stop)

    def _prepare(self, job: Job, found: Derived) -> None:
        """Count the try to come, and raise if it can never begin."""
        job.tries = tries_to_come(found, job.tries, job.retry)
        if job.needs:
            self._tokens.check(job)
        if job.transient is TransientMode.NONE:
            lock = job_directory.take_lock(self._machine, job.paths)
            if lock is not None:
                lock.close()

    def enter(self, submission: Submission) -> bool:
        """Enters a job for its owner; True if no owner had it until now."""
        job, given, owner, _, _ = submission
        if given is not job:
            self._merge(job, given)
        return self._own(job, owner)

    def place(self, submission: Submission, *, is_news: bool) -> None:
        """Tells the core of a job that was entered."""
        job, given, _, is_new, look = submission
        if is_new:
            assert look is not None
            self._place(job, look)
        elif not (is_news and self._is_gone(job)):
            self._submit_again(job, given, look)

    def _merge(self, job: Job, given: Job) -> None:
        transient, priority, tags = job.transient, job.priority, job.tags
        job.merge(given)
        if job.priority > priority:
            self._feed(Promoted(job))
        # A remover reads in the lists which owners want to keep the job; a reader, all tags of it.
        if job.transient is not transient or job.tags != tags:
            for owner in job.owners:
                self._ledger.list(owner, job)

    def _own(self, job: Job, owner: Owner) -> bool:
        """Enters a job for an owner, with all that it needs; True if no owner had the job until now.

        Its dependencies may have been submitted by an owner that is gone: it is listed for this owner, too,
        so that it is run, and so that it is not removed.
        """
        was_free = not job.owners
        pending = [job]
        while pending:
            needed = pending.pop()
            if needed.has_owner(owner):
                continue
            was_forgotten = needed is not job and not needed.owners
            if not needed.owners:
                self._attempts.unpacked.discard(needed)  # a packer may have had it meanwhile
            needed.add_owner(owner)
            with self._registry.lock:
                self._registry.keep(needed)
            self._ledger.list(owner, needed)
            pending.extend(dependency.origin for dependency in needed.dependencies)
            if was_forgotten and not self._is_gone(needed) and needed.is_passed_over:
                self._feed(Submitted(needed))
        return was_free

    def _place(self, job: Job, look: Look) -> None:
        """A new job is done, runs somewhere, or is to be run."""
        found, arrival, _ = look
        job.is_found = arrival in (Arrival.REUSE, Arrival.ADOPT)
        job.attempt = found.attempt
        job.answered = known_end(found)
        if arrival is Arrival.REUSE:
            # The job is listed by now; a remover takes the lock first, then looks which owners list the job.
            is_at_rest = job_directory.is_at_rest(self._machine, job.paths)
            self._feed(Found(job, Verdict(JobState.DONE)) if is_at_rest else Locked(job))
        elif arrival is Arrival.ADOPT and found.state is JobState.RUNNING:
            runner = job_directory.read_pid(self._machine.files, job.paths, found.attempt)
            job.set_state(JobState.RUNNING, since=runner.started if runner is not None else None)
            self._adopt(job, found)
        elif arrival is Arrival.ADOPT and found.external:  # it is pending, and needs no slot to be awaited
            _schedule(job)
            self._adopt(job, found)
        elif arrival is Arrival.TAKE and found.action is Action.KEEP:
            self._feed(Found(job, Verdict(found.state, found.reason, found.message)))
        elif arrival is Arrival.TAKE:
            # Its runner is gone without a marker: the loss is judged, and marked, under the lock of the job.
            job.state = JobState.RUNNING
            self._feed(Adopted(job))
        else:
            self._feed(Submitted(job, is_new=True))

    def _adopt(self, job: Job, found: Derived) -> None:
        if job.needs and found.external:  # its runner holds none of its tokens
            self._tokens.adopt(job)
        self._feed(Adopted(job))

    def _submit_again(self, job: Job, given: Job, look: Look | None) -> None:
        """A known identity is submitted: a failed job is tried again, a sleeping one may be needed now."""
        if job.has_failed:
            if job.once and self._is_answered(job, look):
                return
            job.tries = NO_TRIES
            # Another scheduler may have tried it in vain since: that is no answer to this submission either.
            is_end = look is not None and look.found.action is Action.KEEP
            job.answered = look.found.attempt if look is not None and is_end else job.attempt
            job.spent_stop = None if look is None else look.stop
            self._feed(Submitted(job))
        elif job.is_done and job.marker is not None and job.marker.nonce == given.rerun_of:
            job.tries, job.answered = NO_TRIES, job.attempt  # its code has changed, its files were removed
            job.rerun_of, job.is_doubtful, job.empties = given.rerun_of, given.is_doubtful, True
            self._feed(Submitted(job))
        elif job.is_passed_over or (job.phase is Phase.ASLEEP and job.transient is TransientMode.NONE):
            self._feed(Submitted(job))
        elif given is not job:
            # A submission now may differ from the stored one, under the same identity.
            job.is_found = job.is_found or job.is_done
            self._call_completed(job)

    def _is_answered(self, job: Job, look: Look | None) -> bool:
        """True if no attempt of a job that runs once may follow; one made elsewhere since is taken up.

        None: the job ended after this submission had looked at it, which makes that end its answer.
        """
        if look is None:
            return True
        found = look.found
        # The reason, too: what this scheduler could not read for a while it called FAILED.
        is_known = (found.attempt, found.reason) == (job.attempt, job.failure_status)
        if is_known and found.payload_may_have_run:
            return True
        if look.arrival not in (Arrival.TAKE, Arrival.ADOPT):
            return False
        _schedule(job)
        self._feed(Adopted(job))
        return True

    def _is_gone(self, job: Job) -> bool:
        """True if a remover may have the directory of a job that was done since its last owner left."""
        if not job.is_done or job_directory.is_at_rest(self._machine, job.paths):
            return False
        self._feed(Locked(job))
        return True

    async def await_lock(self, job: Job) -> None:
        """Wait until the lock of a directory is free, then tell the core whether its job is still done."""
        try:
            while self._machine.locks.is_locked(job.paths.lock):
                await self._attempts.changed(job.paths.directory, REST_POLL_S)
            is_done = job_directory.look(self._machine, job.paths).derived.state is JobState.DONE
        except Exception as error:  # noqa: BLE001  whatever goes wrong, the job must not be left hanging
            self._feed(Failed(job, worded(error)))
        else:
            self._feed(Unlocked(job, is_done))

    def look_again(self, job: Job) -> None:
        """See which end of a job that slept is known by now."""
        with contextlib.suppress(OSError):  # its start looks again, and names the error
            job.answered = known_end(job_directory.look(self._machine, job.paths).derived)


def _schedule(job: Job) -> None:
    """Tell that a job has an attempt, which this scheduler did not start."""
    for state in (JobState.WAITING, JobState.READY, JobState.SCHEDULED):
        job.state = state


# The registry of jobs: the wanted ones, and former ones that a caller still has.


_FEW_FORMER = 1_000
"""So many former jobs stay in a list before those that nothing has any more are taken out."""


class Registry:
    """One job for each key; a thread that reads or changes them has the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.current: dict[str, Job] = {}
        self._former: dict[str, ref[Job]] = {}
        """A process may run experiments for weeks. What they are done with can be read from its directory; it
        stays known only while a script has its task, or another job needs it, so that there are no two of it.
        """
        self._cleared_at = _FEW_FORMER

    def get(self, key: str) -> Job | None:
        job = self.current.get(key)
        if job is None and (former := self._former.get(key)) is not None:
            job = former()
        return job

    def keep(self, job: Job) -> Job:
        """The job that counts for this key, kept from now on: the known one, else this."""
        key = job.key
        if key not in self.current:
            self.current[key] = self.get(key) or job
            self._former.pop(key, None)
        return self.current[key]

    def needed_by(self, job: Job, origin: Job) -> Job:
        """The job that counts for a dependency: it must be known, so there can be no cycle."""
        if origin.key == job.key:
            raise GraphError(f"{job.task_id} {job.job_id[:12]} depends on itself")
        known = self.get(origin.key)
        if known is None:
            raise UnsubmittedTask(
                f"{job.task_id} {job.job_id[:12]} depends on {origin.task_id} {origin.job_id[:12]}, "
                f"which was not submitted: submit it first"
            )
        return known

    def let_go(self) -> None:
        """Keep no longer the jobs that no owner wants and that are at rest."""
        for job in list(self.current.values()):
            self.let_go_of(job)

    def let_go_of(self, job: Job) -> None:
        """Keep one job no longer, if no owner wants it and it is at rest."""
        if job.is_at_rest and not job.owners and self.current.get(job.key) is job:
            self._former[job.key] = ref(self.current.pop(job.key))
            if (
                len(self._former) > self._cleared_at
            ):  # by hand: a callback for each costs more than to keep it
                self._former = {key: one for key, one in self._former.items() if one() is not None}
                self._cleared_at = max(2 * len(self._former), _FEW_FORMER)
