"""The scheduler: takes submissions from any thread, and runs jobs in the order they become ready.
How one job is started and watched is in `attempts`; what may happen is in `lifecycle`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from tenuto.errors import JobNotEnded, SchedulerClosed, TenutoError
from tenuto.launchers.clusters import Clusters
from tenuto.launchers.instructions import Limits
from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing
from tenuto.scheduler.arrivals import Arrivals, Onward
from tenuto.scheduler.attempts import Attempts
from tenuto.scheduler.conditions import ExitCondition
from tenuto.scheduler.decisions import Arrival, Verdict, on_arrival
from tenuto.scheduler.departures import Departures, is_at_rest, owns
from tenuto.scheduler.following import Followers
from tenuto.scheduler.handover import Handovers
from tenuto.scheduler.inbox import (
    GATHER_DONE_S,
    GATHER_S,
    MOST_GATHERED,
    Cancellation,
    Forgetting,
    Inbox,
    Submission,
    Withdrawal,
)
from tenuto.scheduler.jobs import Job, JobDependency
from tenuto.scheduler.known import KnownJobs
from tenuto.scheduler.listeners import Announcer, Listener, Subscriber
from tenuto.scheduler.logbook import Step, is_logged, log_state, log_step
from tenuto.scheduler.loop import CLOSED, Loop, LoopThread, reached
from tenuto.scheduler.outputs import TaskOutputsWorker
from tenuto.scheduler.owners import Owner, OwnerCounts, OwnerLedger
from tenuto.scheduler.pauses import BACK_OFF_S, Pauses
from tenuto.scheduler.ready import ReadyQueue
from tenuto.scheduler.shared_slots import SharedSlots
from tenuto.scheduler.snapshot import MOST_WAITS, Snapshot, take
from tenuto.scheduler.token_desk import Floor
from tenuto.scheduler.token_desks import TokenDesks
from tenuto.scheduler.tokens import Grant
from tenuto.scheduler.troubles import failure, shortage, worded
from tenuto.scheduler.waiting import WaitingRoom
from tenuto.scheduler.workers import DoneHandlerWorker, NotificationWorker, SubmissionWorker, Worker, asked
from tenuto.workspace.inotify import DirectoryWatch, watch_directory
from tenuto.workspace.locks import keep_from_children
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import StopRecord

logger = logging.getLogger("tenuto.scheduler")

T = TypeVar("T")

STOP_GRACE_S = 5.0
"""How long a runner may take, beyond the grace of its job, before it is killed itself."""


class Scheduler:
    """Runs each job once, however many owners ask for it, in this process or another."""

    _instance: Scheduler | None = None
    _instance_lock = threading.Lock()

    @classmethod
    def instance(cls) -> Scheduler:
        """The scheduler of this process, made when first asked for."""
        with cls._instance_lock:
            if cls._instance is None:
                cls._instance = cls(this_machine())
            return cls._instance

    def __init__(
        self,
        machine: Machine,
        *,
        loop: Loop | None = None,
        completions: Worker | None = None,
        notifications: Worker | None = None,
        outputs: Worker | None = None,
        submissions: Worker | None = None,
        watch: Callable[[str], DirectoryWatch | None] = watch_directory,
        clusters: Clusters | None = None,
    ) -> None:
        keep_from_children()
        self.machine = machine
        self._runner: Loop = loop or LoopThread()
        self._completions = completions or DoneHandlerWorker()
        self._notifications = notifications or NotificationWorker()
        self._submissions = submissions or SubmissionWorker()
        handovers = Handovers(machine, clusters or Clusters())
        self._attempts = Attempts(machine, watch, handovers, self._count_behind)
        self._announcer = Announcer(self._notifications)
        self.tell = self._announcer.tell
        """Calls a function off the loop, after everything that was told before."""
        self._ledger = OwnerLedger()
        self._outputs = TaskOutputsWorker(machine.files, self._ledger, self.changed, outputs)
        self._followers = Followers(self._attempts, self._outputs, self._completions, self._runner)
        self._inbox = Inbox(self._runner, self._take_in)
        self._known = KnownJobs()
        self._shared_slots = SharedSlots(machine, self._runner, watch, self._slot_freed)
        self._ready = ReadyQueue(self._begin, self._shared_slots)
        self._pauses = Pauses(machine, self._ready, self._runner)
        floor = Floor(self._start_granted, self._refuse)
        self._tokens = TokenDesks(machine, floor, self._ready, self._runner, watch, handovers.ask)
        self._waiting = WaitingRoom(machine, self._ready, self._tokens, self._ask_again)
        self._arrivals = Arrivals(
            machine,
            self._known,
            self._waiting,
            self._ready,
            self._tokens,
            self._attempts,
            self._runner,
            Onward(self._complete, self._adopt_soon, self._fail, self._followers.call_completed),
        )
        self._departures = Departures(self._known, self._cancel, self._ask_again)
        self.jobs = self._known.current
        self.waitingjobs = self._waiting.jobs
        self.experiments: dict[str, Owner] = {}
        self.exitCondition = ExitCondition()
        self.dependencyLock = asyncio.Lock()
        """The seed's name. A try takes everything or nothing without waiting, so nobody ever waits for it."""
        self._is_asking = False
        """The waiting jobs are about to be asked whether what they wait for is done."""
        self._is_closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, which runs in a thread of its own."""
        return self._runner.loop

    # From any thread

    def submit(self, job: Job, owner: Owner, limits: Limits | None = None) -> Job:
        """Takes a job and returns at once: the job itself, or the one already known by its identity.

        `limits`: what the job may use, instead of what it was made with.

        Raises before anything has changed if the job's directory cannot be used, or a token never suffices.
        """
        if limits is not None:
            job.limits = limits
        counts = self._hand_in(job, owner)
        if len(self._inbox) >= MOST_GATHERED:
            self.call(self._take_in)
        return counts

    async def submit_async(self, job: Job, owner: Owner, limits: Limits | None = None) -> Job:
        """Like `submit`, awaited on any event loop, which it never blocks: a thread looks at the directory.

        Submissions are handed in in the order of the calls, so that a job may follow what it depends on
        without an `await` between them. A call that is cancelled before its turn submits nothing.
        """
        if self._is_closed:
            raise SchedulerClosed(CLOSED)
        return await asked(self._submissions, lambda: self.submit(job, owner, limits))

    def _hand_in(self, job: Job, owner: Owner) -> Job:
        if self._is_closed:
            raise SchedulerClosed(CLOSED)
        known = self._known
        with known.lock:
            before = known.get(job.key)
            if job.dependencies:
                # Two submissions may have been of one identity.
                needed = [JobDependency(known.needed_by(job, d.origin)) for d in job.dependencies]
                job.dependencies = tuple(dict.fromkeys(needed))
        is_to_run = before is None or before.state is JobState.ERROR
        found = self._arrivals.look(job) if is_to_run else None
        if before is not None and before.state is JobState.DONE and before.marker and job.reuse is not None:
            job.reruns = not job.reuse(job, before.marker)
        with known.lock:
            is_new = known.get(job.key) is None
            counts = known.keep(job)
            counts.scheduler = self
            is_done = found is not None and on_arrival(found, again=job.reruns) is Arrival.REUSE
            gather_s = GATHER_DONE_S if is_done else GATHER_S
            self._inbox.put(Submission(counts, job, owner, is_new, found), gather_s)
        return counts

    def cancel(self, job: Job, message: str = "cancelled") -> None:
        """Ends a job, waiting or running; a finished one is left alone."""
        self._inbox.put(Cancellation(job, message))

    async def withdraw(self, job: Job, owner: Owner, message: str = "withdrawn") -> JobState:
        """Takes a job back for one owner, awaited on any event loop; another owner's job goes on.

        If no other owner has the job it is cancelled, and its final state is returned; otherwise the state it
        is in, and the owner no longer has it.
        """
        self._inbox.put(Withdrawal(job, owner, message))
        return await reached(self._runner, self._aio_withdrawn(job, owner))

    def forget(self, job: Job, owner: Owner) -> None:
        """Lets go of a job that ended, in O(1), from any thread; returns at once.

        The owner's counts no longer include it. The job is forgotten when its last owner forgot it; submitted
        once more, it is looked up in its directory. Raises `JobNotEnded` if it still waits or runs.
        """
        if not is_at_rest(job):
            raise JobNotEnded(
                f"{job.task_id} {job.job_id[:12]} is {job.state.name}: withdraw it, or await its end"
            )
        self._inbox.put(Forgetting(job, owner), GATHER_DONE_S)

    async def finished(self, job: Job) -> JobState:
        """The final state of a job, once it has one; awaited on any event loop (see `Job.finished`)."""
        if job.state.finished() and not len(self._inbox):
            return job.state
        return await reached(self._runner, self.aio_final_state(job))

    def wait(self, owner: Owner, timeout_s: float | None = None) -> None:
        """Blocks until no job of this owner is unfinished, and outputs and callbacks are dealt with."""
        self._runner.wait(self.aio_wait(owner), timeout_s)

    def wait_until(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Blocks until something holds that jobs bring about; it is asked in the loop."""
        self._runner.wait(self._aio_wait_until(predicate), timeout_s)

    def changed(self) -> None:
        """An owner's wishes changed: the waiting jobs are asked again."""
        self._runner.post(self._ask_who_waits)

    def follow_outputs(self, job: Job) -> None:
        """An owner watches the outputs of a job: those that are there are handed over, and those to come."""
        self._runner.post(self._read_and_follow, job)

    def follow_completion(self, job: Job) -> None:
        """An owner wants to be called when a job is done: it may be done already."""
        self._runner.post(self._followers.call_completed, job)

    def release(self, owner: Owner) -> None:
        """The owner is no longer told of its jobs; what only it wanted is not started any more."""
        self._runner.wait(self._aio_release(owner))
        self.drain()

    def call(self, function: Callable[[], T]) -> T:
        """Calls a function in the loop, where nothing happens at the same time, and returns its result."""

        async def call() -> T:
            return function()

        result: T = self._runner.wait(call())
        return result

    def snapshot(self, most_waits: int = MOST_WAITS) -> Snapshot:
        """How many jobs are where, whose they are, and what they wait for, at one moment.

        Blocks for a moment, and looks at all jobs that are known; on an event loop, call it in a thread.
        `most_waits`: of how many jobs it says what they wait for.
        """
        return self.call(lambda: self._snapshot(most_waits))

    def _snapshot(self, most_waits: int) -> Snapshot:
        self._take_in()
        known, paused = self.jobs.values(), self._pauses.reason
        return take(known, self._ready, self._tokens, self._ledger, paused=paused, most_waits=most_waits)

    def drain(self) -> None:
        """Returns once everybody was told of everything that happened so far."""
        told = threading.Event()
        # In two steps: who is told of something may have the rest of it done in a step of its own.
        self._notifications.call(lambda: self._notifications.call(told.set))
        self._notifications.hurry()
        told.wait()

    def wait_for_job(self, job: Job, timeout_s: float | None = None) -> JobState:
        """Blocks until a job reached a final state."""
        state: JobState = self._runner.wait(self.aio_final_state(job), timeout_s)
        return state

    def counts(self, owner: Owner) -> OwnerCounts:
        """What an owner waits for and what failed: live values, also after the owner was released."""
        return self._ledger.of(owner)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tells a subscriber of every event of a job from now on: one for each owner of the job."""
        self._announcer.subscribe(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Tells the subscriber no more."""
        self._announcer.unsubscribe(subscriber)

    def add_listener(self, listener: Listener) -> None:
        """Tells a listener of every job from now on."""
        self._announcer.add_listener(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Tells the listener no more."""
        self._announcer.remove_listener(listener)

    def close(self) -> None:
        """Ends the scheduler; running jobs go on, and another scheduler adopts them."""
        self._is_closed = True
        self._submissions.close()
        self._runner.close()
        self._tokens.close()
        self._shared_slots.close()
        self._outputs.close()
        self._completions.close()
        self._notifications.close()

    # In the loop: the seed's pipeline

    async def aio_registerJob(self, job: Job, owner: Owner) -> Job:
        """Like `submit`, in the loop, and returns once the submission was taken in."""
        known = self._hand_in(job, owner)
        self._take_in()
        return known

    async def aio_submit(self, job: Job, grant: Grant | None = None) -> None:
        """Sees a ready job through to its final state, trying again where that is due."""
        try:
            verdict = await self.aio_submit_inner(job, grant)
            while verdict.tries is not None:
                job.tries = verdict.tries
                job.answered = max(job.answered, job.attempt)
                log_step(Step.RETRIED, job, message=verdict.message)
                job.set_state(JobState.WAITING, message=f"tried again: {verdict.message}")
                job.state = JobState.READY
                # Its tokens fell with the attempt; its slot was given back while another process ran it.
                if grant is not None or (getattr(job.launcher, "shares_slots", False) and not job.slot_units):
                    self._ready.add_first(job)
                    return
                verdict = await self.aio_submit_inner(job)
        except Exception as error:  # noqa: BLE001  whatever goes wrong, the job must not be left hanging
            passing = shortage(error)
            lasting = None if passing is None else self._pauses.begin(job, passing)
            if passing is not None and lasting is None:
                return
            verdict = failure(job.job_id, error)
            if lasting is not None:
                verdict = verdict._replace(message=lasting)
        self._complete(job, verdict)

    async def aio_submit_inner(self, job: Job, grant: Grant | None = None) -> Verdict:
        """One attempt, or the wait for another scheduler's."""
        return await self._attempts.run(job, grant)

    async def aio_start(self, job: Job, grant: Grant | None = None) -> None:
        """Runs a ready job, which has a slot of its launcher and its tokens, and gives the slot back."""
        try:
            # Between the start of this coroutine and its first step an owner may have cancelled the job, and
            # submitted it again: then it is ready, but has given back its tokens, and asks for others.
            if job.state is JobState.READY and self._tokens.holds(job, grant):
                await self.aio_submit(job, grant)
        finally:
            self._ready.vacate(job)
            self._tokens.given_back(job, grant)  # a job that is tried again may have got others by now
            self._ready.start_what_fits()

    async def aio_final_state(self, job: Job) -> JobState:
        """The final state of a job, once it has one; at once for a transient job that nobody needs."""
        self._take_in()
        if not job.state.finished() and not self._waiting.is_asleep(job):
            if job._final_state is None:
                job._final_state = self.loop.create_future()
            await asyncio.shield(job._final_state)
        return job.state

    async def _aio_withdrawn(self, job: Job, owner: Owner) -> JobState:
        self._take_in()
        return await self.aio_final_state(job) if owns(job, owner) else job.state

    async def aio_wait(self, owner: Owner) -> None:
        """Returns once no job of this owner is unfinished, and all that follows from their ends is done."""
        counts = self.counts(owner)
        await self._aio_wait_until(lambda: counts.at_rest)

    async def _aio_wait_until(self, predicate: Callable[[], bool]) -> None:
        self._take_in()
        await self.exitCondition.wait_for(predicate)

    async def _aio_release(self, owner: Owner) -> None:
        self._take_in()
        with self._known.lock:
            for job in self.jobs.values():
                job.disown(owner)
            self._known.let_go()

    # Taking in

    def _take_in(self) -> None:
        """To be called at the beginning of a step of the loop only.

        In the middle of one, a wish would change jobs that the step is just going through: they would be
        put to sleep twice, or stranded after they were cancelled.
        """
        for wish in self._inbox.emptied():
            if isinstance(wish, Submission):
                self._take_in_one(wish)
            elif isinstance(wish, Cancellation):
                self._cancel(*wish)
            elif isinstance(wish, Withdrawal):
                self._departures.withdraw(wish)
            else:
                self._departures.forget(wish)

    def _take_in_one(self, submission: Submission) -> None:
        job = submission.job
        try:
            is_news = self._arrivals.enter(submission)
            log_step(Step.SUBMITTED, job, submission.owner)
            self._announcer.submitted(job, submission.owner)
            self._arrivals.place(submission, is_news=is_news)
        except Exception as error:
            logger.exception("a submission failed", extra={"action": "submission_failed"})
            self._fail(job, worded(error))

    def _ask_again(self) -> None:
        """Has those asked who wait, in a step of its own."""
        if not self._is_asking:
            self._is_asking = True
            self._runner.post(self._ask_who_waits)

    def _ask_who_waits(self) -> None:
        """Asks the waiting jobs, once everything submitted is known: a callback may just have submitted more.

        A job that is found done ends while others are still to be taken in. An owner that was told then that
        nothing is unfinished left, and those others arrived at a run that was closed.
        """
        self._is_asking = False
        self._take_in()
        self.exitCondition.notify()

    # Starting

    def _count_behind(self) -> int:
        """How many jobs are to run and have no slot yet."""
        return max(len(self._waiting.jobs) - self._ready.started(), 0)

    def _begin(self, job: Job) -> None:
        """A ready job has a slot. One that needs tokens does not keep it while it waits for them."""
        if job.needs:
            self._ready.vacate(job)
            self._tokens.ask(job)
        else:
            self._runner.spawn(self.aio_start(job))

    def _slot_freed(self) -> None:
        """Another process may have given a slot back."""
        self._tokens.pump()
        self._ready.start_what_fits()

    def _start_granted(self, job: Job, grant: Grant) -> None:
        """Starts a job that has a slot and its tokens."""
        self._runner.spawn(self.aio_start(job, grant))

    def _refuse(self, job: Job, error: Exception | str) -> None:
        """Ends a job that can never have the tokens it asks for."""
        if isinstance(error, str):
            self._finalize(job, Verdict(JobState.ERROR, JobFailureStatus.FAILED, error))
        else:
            self._finalize(job, failure(job.job_id, error))

    def _adopt_soon(self, job: Job) -> None:
        self._runner.spawn(self._adopt(job))

    async def _adopt(self, job: Job) -> None:
        """Waits for a job that another scheduler started; it runs on, whatever goes wrong here."""
        verdict = None
        while verdict is None:
            try:
                verdict = await self._attempts.until_ended(job)
            except Exception as error:  # noqa: BLE001  as above
                if shortage(error) is None:
                    verdict = failure(job.job_id, error)
                else:
                    job.explain(f"cannot be watched until the machine recovers: {worded(error)}")
                    await asyncio.sleep(BACK_OFF_S)
        if verdict.tries is None:
            self._complete(job, verdict)
        else:
            job.tries = verdict.tries
            job.answered = max(job.answered, job.attempt)
            if job.needs:  # what was taken for it here is for the attempt that ended
                self._tokens.release(job)
            log_step(Step.RETRIED, job, message=verdict.message)
            self._waiting.enter(job)

    def _read_and_follow(self, job: Job) -> None:
        self._take_in()  # or nobody owns the job yet, and nobody waits for what its watchers do
        self._followers.read_and_follow(job)

    # Ending

    def _complete(self, job: Job, verdict: Verdict) -> None:
        """Has the end of a job processed off the loop, then settles it."""
        self._followers.after_outputs(job, lambda: self._finalize(job, verdict))

    def _finalize(self, job: Job, verdict: Verdict) -> None:
        if verdict.state is JobState.ERROR:
            job.set_state(JobState.ERROR, verdict.reason, verdict.message)
        else:
            job.set_state(verdict.state)
        self._waiting.leave(job)
        self._followers.call_completed(job)
        self._waiting.pass_on(job)
        self._ask_again()

    def _fail(self, job: Job, message: str) -> None:
        if not job.state.finished():
            if job.state is JobState.UNSCHEDULED:
                job.state = JobState.WAITING
            self._finalize(job, Verdict(JobState.ERROR, JobFailureStatus.FAILED, message))

    def _cancel(self, job: Job, message: str) -> None:
        if not job.state.finished():
            log_step(Step.CANCELLED, job, message=message)
        if job.state in (JobState.WAITING, JobState.READY):
            self._waiting.withdraw(job)
            try:
                self._attempts.cancel_waiting(job, JobFailureStatus.CANCELLED, message)
            except (OSError, TenutoError) as error:  # it is cancelled; only its directory does not say so
                message = f"{message}; this could not be recorded: {worded(error)}"
            self._finalize(job, Verdict(JobState.ERROR, JobFailureStatus.CANCELLED, message))
        elif job.state.running():
            now = self.machine.clock.now()
            job.stop = StopRecord(max(job.attempt, 1), JobFailureStatus.CANCELLED, now, message)
            self._attempts.request_stop(job)
            self._runner.later(job.limits.grace_s + STOP_GRACE_S, self._kill_runner, job, job.attempt)

    def _kill_runner(self, job: Job, attempt: int) -> None:
        if job.state.running() and job.attempt == attempt and job.process is not None:
            job.process.kill()

    # Telling

    def job_changed(self, job: Job, before: Standing, now: datetime, attempt: int | None) -> None:
        """A job moved on: the change is frozen as an event here, and told off the loop."""
        if job.state is JobState.RUNNING:
            self._pauses.end()
            if job.watched_outputs:
                self._followers.follow(job)
        if is_logged():
            log_state(job)
        self._announcer.changed(job, before, now, attempt)

    def job_explained(self, job: Job, now: datetime) -> None:
        """A job got another reason to be where it is."""
        self._announcer.explained(job, now)
