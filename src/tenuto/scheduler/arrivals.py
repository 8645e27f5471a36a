"""Submissions as they are taken in: whose a job is, and where it stands given what its directory shows.
How it is run then, and what its end leads to, is `base`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tenuto.errors import DirectoryUnusable
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.scheduler.attempts import Attempts
from tenuto.scheduler.decisions import (
    NO_TRIES,
    Arrival,
    Verdict,
    known_end,
    on_arrival,
    tries_of,
    tries_to_come,
)
from tenuto.scheduler.inbox import Submission
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.known import KnownJobs
from tenuto.scheduler.loop import Loop
from tenuto.scheduler.owners import Owner
from tenuto.scheduler.ready import ReadyQueue
from tenuto.scheduler.token_desks import TokenDesks
from tenuto.scheduler.troubles import shortage, worded
from tenuto.scheduler.waiting import WaitingRoom
from tenuto.workspace import job_directory
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord

REST_POLL_S = 0.05

_NOT_LOOKED = Derived(JobState.UNSCHEDULED, Action.START, "not looked")


class Onward(NamedTuple):
    """What the scheduler does with a job that need not wait."""

    complete: Callable[[Job, Verdict], None]
    """It was found at its end."""
    adopt: Callable[[Job], None]
    """Another scheduler runs it."""
    fail: Callable[[Job, str], None]
    """Something went wrong."""
    call_completed: Callable[[Job], None]
    """It may be done, and another owner wants to be called then."""


class Arrivals:
    """Finds a place for what is submitted; in the loop's thread, but for `look`."""

    def __init__(
        self,
        machine: Machine,
        known: KnownJobs,
        waiting: WaitingRoom,
        ready: ReadyQueue,
        tokens: TokenDesks,
        attempts: Attempts,
        loop: Loop,
        onward: Onward,
    ) -> None:
        self._machine = machine
        self._known = known
        self._waiting = waiting
        self._ready = ready
        self._tokens = tokens
        self._attempts = attempts
        self._loop = loop
        self._onward = onward

    def look(self, job: Job) -> Derived:
        """What the directory of a new job shows; raises if it can never be used. From any thread."""
        found = _NOT_LOOKED
        if self._machine.files.is_link(job.paths.directory):
            raise DirectoryUnusable(
                f"{job.paths.directory} is a link, which no directory of a job may be: every other command "
                f"passes it over; move what it leads to here, or remove the link"
            )
        try:
            settled = self._attempts.look(job)
            if not self._attempts.mend(job, settled):
                return found  # its start looks again, under the lock
            found, launch = settled.derived, settled.evidence.launch
            job.tries = tries_of(launch if isinstance(launch, LaunchRecord) else None)
            arrival = on_arrival(found, once=job.once)
            if arrival is Arrival.REUSE and job.reuse is not None and found.marker is not None:
                job.reruns = not job.reuse(job, found.marker)
            is_to_run = arrival is Arrival.RUN or job.reruns
            if is_to_run:
                job.tries = tries_to_come(found, job.tries, job.retry)
                if job.needs:
                    self._tokens.check(job)
            if is_to_run and job.transient is TransientMode.NONE:
                lock = job_directory.take_lock(self._machine, job.paths)
                if lock is not None:
                    lock.close()
        except (OSError, DirectoryUnusable) as error:
            if shortage(error) is None:
                raise
            # The job waits until the machine recovers; its start looks again.
        return found

    def enter(self, submission: Submission) -> bool:
        """Enters a job for its owner; True if nobody had it until now."""
        job, given, owner, _, _ = submission
        if given is not job:
            self._merge(job, given)
        return self._own(job, owner)

    def place(self, submission: Submission, *, is_news: bool) -> None:
        """A job that was entered goes where it belongs."""
        job, given, _, is_new, found = submission
        if is_new:
            assert found is not None
            self._place(job, found)
        elif not (is_news and self._is_gone(job)):
            self._submit_again(job, given, found)

    def _merge(self, job: Job, given: Job) -> None:
        transient, priority = job.transient, job.priority
        job.merge(given)
        if job.priority > priority:
            self._ready.promote(job)
        if job.transient is not transient:  # who removes jobs reads in the lists who wants to keep them
            for owner in job.owners:
                owner.accept(job)

    def _own(self, job: Job, owner: Owner) -> bool:
        """Enters a job for an owner, with all that it needs; True if nobody had the job until now.

        What it needs may have been submitted by an owner that is gone: it is listed for this owner, too,
        so that it is run, and so that nobody removes it.
        """
        was_free = not job.owners
        pending = [job]
        while pending:
            needed = pending.pop()
            if any(known is owner for known in needed.owners):
                continue
            was_forgotten = needed is not job and not needed.owners
            needed.add_owner(owner)
            with self._known.lock:
                self._known.keep(needed)
            owner.accept(needed)
            pending.extend(dependency.origin for dependency in needed.dependencies)
            if was_forgotten and not self._is_gone(needed):
                self._ready.want_again(needed)
        return was_free

    def _place(self, job: Job, found: Derived) -> None:
        """A new job finds its place: done, running somewhere, or waiting to run."""
        arrival = on_arrival(found, once=job.once, again=job.reruns)
        job.is_found = arrival in (Arrival.REUSE, Arrival.ADOPT)
        job.attempt = found.attempt
        job.answered = known_end(found)
        job.marker = found.marker and found.marker.gist()
        if arrival is Arrival.REUSE:
            # The job is listed by now; a remover takes the lock first, then looks which owners list the job.
            if job_directory.is_at_rest(self._machine, job.paths):
                self._onward.complete(job, Verdict(JobState.DONE))
            else:
                self._wait_for_rest(job)
        elif arrival is Arrival.ADOPT and found.state is JobState.RUNNING:
            runner = job_directory.read_pid(self._machine.files, job.paths, found.attempt)
            job.set_state(JobState.RUNNING, since=runner.started if runner is not None else None)
            self._adopt(job, found)
        elif arrival is Arrival.ADOPT and found.external:  # it is pending, and needs no slot to be awaited
            for state in (JobState.WAITING, JobState.READY, JobState.SCHEDULED):
                job.state = state
            self._adopt(job, found)
        elif arrival is Arrival.TAKE and found.action is Action.KEEP:
            self._onward.complete(job, Verdict(found.state, found.reason, found.message))
        elif arrival is Arrival.TAKE:
            # Its runner is gone without a marker: the loss is judged, and marked, under the lock of the job.
            job.state = JobState.RUNNING
            self._onward.adopt(job)
        elif job.transient is not TransientMode.NONE:
            self._waiting.enter_transient(job)
        else:
            self._waiting.enter(job)

    def _adopt(self, job: Job, found: Derived) -> None:
        if job.needs and found.external:  # its runner holds none of its tokens
            self._tokens.adopt(job)
        self._onward.adopt(job)

    def _submit_again(self, job: Job, given: Job, found: Derived | None) -> None:
        """A known identity is submitted: what failed is tried again, what sleeps may be needed now."""
        if job.state is JobState.ERROR and job.once and self._is_answered(job, found):
            return
        if job.state is JobState.ERROR:
            job.tries = NO_TRIES
            # Another scheduler may have tried it in vain since: that is no answer to this submission either.
            job.answered = found.attempt if found and found.action is Action.KEEP else job.attempt
            self._waiting.enter(job)
        elif job.state is JobState.DONE and given is not job and given.reruns:
            job.tries, job.answered, job.reruns = NO_TRIES, job.attempt, True  # its code has changed since
            self._waiting.enter(job)
        elif self._ready.want_again(job):
            return
        elif self._waiting.is_asleep(job) and job.transient is TransientMode.NONE:
            self._waiting.enter(job)
        elif given is not job:
            job.reruns = False
            # What is submitted now may say otherwise than what was stored, under the same identity.
            job.is_found = job.is_found or job.state is JobState.DONE
            self._onward.call_completed(job)

    def _is_answered(self, job: Job, found: Derived | None) -> bool:
        """True if no attempt may follow those of a job that runs once; one made elsewhere since is taken up.

        None: the job ended after this submission had looked at it, which makes that end its answer.
        """
        # The reason, too: what this scheduler could not read for a while it called FAILED.
        is_known = found is not None and (found.attempt, found.reason) == (job.attempt, job.failure_status)
        if found is None or (is_known and found.payload_may_have_run):
            return True
        if on_arrival(found, once=True) not in (Arrival.TAKE, Arrival.ADOPT):
            return False
        for state in (JobState.WAITING, JobState.READY, JobState.SCHEDULED):
            job.state = state
        self._onward.adopt(job)
        return True

    # Whose directory a remover may be about to remove

    def _is_gone(self, job: Job) -> bool:
        """Whether the directory of a job may be gone since the last one left who wanted it; then it waits."""
        if job.state is not JobState.DONE or job_directory.is_at_rest(self._machine, job.paths):
            return False
        self._wait_for_rest(job)
        return True

    def _wait_for_rest(self, job: Job) -> None:
        job.set_state(JobState.WAITING, message="somebody has the lock of its directory")
        self._waiting.jobs.add(job)
        self._loop.spawn(self._settle_at_rest(job))

    async def _settle_at_rest(self, job: Job) -> None:
        """Once nobody has the lock of a job that was done: is it still?"""
        try:
            while self._machine.locks.is_locked(job.paths.lock):
                await self._attempts.changed(job.paths.directory, REST_POLL_S)
            if job.state is JobState.WAITING:  # and not cancelled meanwhile
                self._settle(job)
        except Exception as error:  # noqa: BLE001  whatever goes wrong, the job must not be left hanging
            self._onward.fail(job, worded(error))

    def _settle(self, job: Job) -> None:
        if job_directory.look(self._machine, job.paths).derived.state is JobState.DONE:
            self._waiting.make_ready([job])  # whose start looks once more, under the lock
        else:
            self._waiting.enter_again(job)
