"""The scheduler as its callers see it: takes submissions from any thread, and answers what became of them.
What happens next to a job is in `core`; how that is carried out, in `shell`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, unique
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from tenuto.errors import JobNotEnded, SchedulerClosed
from tenuto.launchers.clusters import Clusters
from tenuto.launchers.instructions import Limits
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.scheduler.core import WITHOUT_ATTEMPT
from tenuto.scheduler.decisions import Arrival
from tenuto.scheduler.entries import JobDependency, Phase
from tenuto.scheduler.intake import (
    GATHER_DONE_S,
    GATHER_S,
    MOST_GATHERED,
    Cancellation,
    Forgetting,
    Submission,
    Withdrawal,
)
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.listeners import Listener, Subscriber
from tenuto.scheduler.loop import CLOSED, Callers, Loop, LoopThread, PendingAnswer
from tenuto.scheduler.owners import ListJob, Owner, OwnerLedger
from tenuto.scheduler.shell import Shell
from tenuto.scheduler.slots import Slots, SlotUsage
from tenuto.scheduler.workers import DoneHandlerWorker, NotificationWorker, Worker
from tenuto.workspace.locks import keep_from_children
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine

# A scheduler at one moment: how many jobs are where, which slots are used, and what each job waits for.
# Values only; the scheduler takes them in its loop, where nothing changes meanwhile.


MOST_WAITS = 1_000
"""Of how many jobs a snapshot says what they wait for."""


@unique
class WaitsFor(Enum):
    """What keeps a job from being started."""

    JOBS = "jobs that it depends on"
    SLOT = "a slot of its launcher"
    TOKENS = "units of tokens"
    MACHINE = "the machine, which is short of something"
    OWNERS = "an owner: those that it has are stopping"
    DIRECTORY = "its directory, which another process has locked"


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """One job that is not started yet."""

    task_id: str
    job_id: str
    cause: WaitsFor
    what: tuple[str, ...]
    """The ids of the jobs, the launcher, the tokens, the ids of the owners; else the known state in words."""


@dataclass(frozen=True, slots=True)
class OwnerSnapshot:
    """What one owner has."""

    id: str
    jobs: int
    """All that it has not forgotten."""
    unfinished: int
    failed: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a scheduler had to say at one moment."""

    jobs: Mapping[JobState, int]
    """How many jobs are in each state; states without a job are left out."""
    launchers: tuple[SlotUsage, ...]
    owners: tuple[OwnerSnapshot, ...]
    waits: tuple[WaitingJob, ...]
    """What jobs wait for, in the order they were submitted."""
    waits_left_out: int
    """How many more wait."""
    paused: str | None
    """Why nothing is started at present: what the machine is short of."""


def take(
    jobs: Iterable[Job],
    slots: Slots,
    ledger: OwnerLedger,
    *,
    paused: str | None,
    most_waits: int,
) -> Snapshot:
    """The snapshot of these jobs; in the loop."""
    states: Counter[JobState] = Counter()
    owned: dict[Owner, int] = {}
    waiting: list[Job] = []
    for job in jobs:
        states[job.state] += 1
        for owner in job.owners:
            owned[owner] = owned.get(owner, 0) + 1
        if job.phase in WITHOUT_ATTEMPT:
            waiting.append(job)
    owners = []
    for owner, count in owned.items():
        counts = ledger.of(owner)
        owners.append(OwnerSnapshot(owner.id, count, counts.unfinished, counts.failed))
    return Snapshot(
        jobs=MappingProxyType(dict(sorted(states.items()))),
        launchers=tuple(slots.usage()),
        owners=tuple(sorted(owners, key=lambda owner: owner.id)),
        waits=tuple(
            WaitingJob(job.task_id, job.job_id, *_cause(job, slots, paused)) for job in waiting[:most_waits]
        ),
        waits_left_out=max(len(waiting) - most_waits, 0),
        paused=paused,
    )


def _cause(job: Job, slots: Slots, paused: str | None) -> tuple[WaitsFor, tuple[str, ...]]:
    if job.phase is Phase.WANTS_TOKENS:
        return WaitsFor.TOKENS, tuple(need.token for need in job.needs)
    if job.phase is not Phase.BLOCKED:
        if not slots.is_wanted(job):
            return WaitsFor.OWNERS, tuple(owner.id for owner in job.owners)
        return (WaitsFor.SLOT, (job.launcher.name,)) if paused is None else (WaitsFor.MACHINE, (paused,))
    if job.missing:
        return WaitsFor.JOBS, tuple(d.origin.job_id for d in job.dependencies if not d.origin.is_done)
    return WaitsFor.DIRECTORY, (job.state_record.message or "",)


T = TypeVar("T")


class Scheduler(Shell):
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
        machine: Machine | None = None,
        *,
        loop: Loop | None = None,
        completions: Worker | None = None,
        notifications: Worker | None = None,
        outputs: Worker | None = None,
        clusters: Clusters | None = None,
    ) -> None:
        """`machine`: the clock, files, locks and processes to work with, by default this one's. The rest is
        for simulations and for launchers of one's own: `loop` runs the coroutines, and tells of changes in
        directories; `completions`, `notifications` and `outputs` do work that must not block it; `clusters`
        answer for attempts that other systems run.
        """
        keep_from_children()
        self._completions = completions or DoneHandlerWorker()
        self._notifications = notifications or NotificationWorker()
        super().__init__(
            machine or this_machine(),
            loop or LoopThread(),
            completions=self._completions,
            notifications=self._notifications,
            outputs=outputs,
            clusters=clusters or Clusters(),
        )
        self.tell = self._announcer.tell
        """Calls a function off the loop, after everything that was told before."""
        self.jobs = self._registry.current
        self.experiments: dict[str, Owner] = {}
        self.dependencyLock = asyncio.Lock()
        """experimaestro's name. A try takes all or nothing without waiting, so it is never contended."""
        self._callers = Callers(self._runner)
        self._is_closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, which runs in a thread of its own."""
        return self._runner.loop

    # From any thread

    def submit(self, job: Job, owner: Owner, limits: Limits | None = None) -> Job:
        """Takes a job and returns at once: the job itself, or the one already known by its identity.

        `owner`: the run, node or search that wants the job, and is told of it. `limits`: what the job may
        use, instead of the given ones.

        Raises before anything has changed: `DirectoryUnusable` if the job's directory cannot be used,
        `TokenError` if a token never suffices, `SchedulerClosed` after `close`.
        """
        if limits is not None:
            job.limits = limits
        counts = self._hand_in(job, owner)
        if len(self._inbox) >= MOST_GATHERED:
            self.call(self._take_in)
        return counts

    async def submit_async(self, job: Job, owner: Owner, limits: Limits | None = None) -> Job:
        """Like `submit`, awaited on any event loop, which it never blocks: its own looks at the disk.

        Submissions are handed in in the order of the calls, so that a job may follow its dependencies
        without an `await` between them. A call that is cancelled before its turn submits nothing. `owner`,
        `limits` and errors: as for `submit`.
        """

        def hand_in(answer: PendingAnswer[Job]) -> None:
            if limits is not None:
                job.limits = limits
            answer.give(self._hand_in(job, owner))

        return await self._callers.ask(hand_in)

    def _hand_in(self, job: Job, owner: Owner) -> Job:
        if self._is_closed:
            raise SchedulerClosed(CLOSED)
        known = self._registry
        with known.lock:
            before = known.get(job.key)
            if job.dependencies:
                # Two submissions may have been of one identity.
                needed = [JobDependency(known.needed_by(job, d.origin)) for d in job.dependencies]
                job.dependencies = tuple(dict.fromkeys(needed))
        look = self._intake.look(job) if before is None or before.state is JobState.ERROR else None
        if before is not None and look is None and job.reuse is not None:
            if before.state is JobState.DONE and before.marker:
                if not job.reuse.is_valid(job, before.marker):
                    before.rerun_of = job.rerun_of = before.marker.nonce
                    before.is_doubtful, before.empties = job.is_doubtful, True
            else:
                job.reuse.refuse_other(job, before)
        with known.lock:
            is_new = known.get(job.key) is None
            counts = known.keep(job)
            counts.scheduler = self
            is_done = look is not None and look.arrival is Arrival.REUSE
            gather_s = GATHER_DONE_S if is_done else GATHER_S
            runs = job.rerun_of is not None or (look is not None and look.arrival is Arrival.RUN)
            if runs and job.reuse is not None and job.transient is TransientMode.NONE:
                for upstream in job.reuse.dropped(job):
                    assert upstream.marker is not None
                    upstream.rerun_of = upstream.marker.nonce
                    self._inbox.put(Submission(upstream, upstream, owner, False, None), gather_s)
            self._inbox.put(Submission(counts, job, owner, is_new, look), gather_s)
        return counts

    def cancel(self, job: Job, message: str = "cancelled") -> None:
        """Ends a job, waiting or running, for all its owners; a finished one is left alone.

        `message`: the reason that the job and its marker give. Returns at once.
        """
        self._inbox.put(Cancellation(job, message))

    async def withdraw(self, job: Job, owner: Owner, message: str = "withdrawn") -> JobState:
        """Takes a job back for one owner, awaited on any event loop; another owner's job continues.

        If no other owner has the job it is cancelled with this `message`, and its final state is returned;
        otherwise the state it is in, and the owner no longer has it. Raises `SchedulerClosed` after `close`.
        """
        self._inbox.put(Withdrawal(job, owner, message))
        return await self._callers.ask(partial(self._answer_withdrawn, job, owner))

    def forget(self, job: Job, owner: Owner) -> None:
        """Releases a job that ended, in O(1), from any thread; returns at once.

        The owner's counts no longer include it. The job is forgotten when its last owner forgot it; submitted
        once more, it is looked up in its directory. Raises `JobNotEnded` if it still waits or runs.
        """
        if not job.is_at_rest:
            raise JobNotEnded(
                f"{job.task_id} {job.job_id[:12]} is {job.state.name}: withdraw it, or await its end"
            )
        self._inbox.put(Forgetting(job, owner), GATHER_DONE_S)

    async def finished(self, job: Job) -> JobState:
        """The final state of a job, once it has one; awaited on any event loop (see `Job.finished`)."""
        if job.state.finished() and not len(self._inbox):
            return job.state
        return await self.aio_final_state(job)

    def wait(self, owner: Owner, timeout_s: float | None = None) -> None:
        """Blocks until no job of this owner is unfinished, and outputs and callbacks are dealt with.

        Raises `TimeoutError` after `timeout_s`, and `SchedulerClosed` if the scheduler is closed meanwhile.
        """
        self._runner.wait(self.aio_wait(owner), timeout_s)

    def wait_until(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Blocks until `predicate` holds, which jobs bring about; it is called in the loop.

        Raises as `wait`, after `timeout_s`.
        """
        self._runner.wait(self._aio_wait_until(predicate), timeout_s)

    def follow_outputs(self, job: Job) -> None:
        """An owner watches the outputs of a job: present ones are handed over, and later ones."""
        self._runner.post(self._read_and_follow, job)

    def follow_completion(self, job: Job) -> None:
        """An owner wants to be called when a job is done: it may be done already."""
        self._runner.post(self._followers.call_completed, job)

    def keep_list(self, owner: Owner, list_job: ListJob) -> None:
        """Has each job of an owner listed before it can start, until `release`.

        Call it before the owner's first submission. `list_job` is called in the loop with each job that the
        owner submits, with its dependencies, and again with a job whose transient mode changes. If it
        raises, the submitted job ends in ERROR.

        In the loop, and not by the caller of `submit`: only there is it known which job counts for an
        identity, and that nothing refuses it. A remover takes the lock of a job and then reads the lists; the
        scheduler lists a job that is done and then looks at the lock. So one sees the other.
        """
        self._ledger.keep_list(owner, list_job)

    def stop_starting(self, owner: Owner) -> None:
        """Starts nothing more for an owner, from any thread, at once; running jobs continue.

        A job that another owner wants, too, is started all the same.
        """
        self._core.slots.stop(owner)
        self.changed()

    def release(self, owner: Owner) -> None:
        """The owner is no longer told of its jobs; what only it wanted is not started any more."""
        self._runner.wait(self._aio_release(owner))
        self.drain()
        self._intake.index.keep()

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
        return take(known, self._core.slots, self._ledger, paused=paused, most_waits=most_waits)

    def drain(self) -> None:
        """Returns once every subscriber was told of everything that happened so far."""
        told = threading.Event()
        # In two steps: a subscriber that is told of an event may have the rest done in a step of its own.
        self._notifications.call(lambda: self._notifications.call(told.set))
        self._notifications.hurry()
        told.wait()

    def wait_for_job(self, job: Job, timeout_s: float | None = None) -> JobState:
        """Blocks until a job reached a final state; raises as `wait`, after `timeout_s`."""
        state: JobState = self._runner.wait(self.aio_final_state(job), timeout_s)
        return state

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
        """Ends the scheduler; running jobs continue, and another scheduler adopts them."""
        self._is_closed = True
        self._runner.close()
        self._callers.close()
        self._tokens.close()
        self._shared_slots.close()
        self._outputs.close()
        self._completions.close()
        self._notifications.close()

    # In the loop: experimaestro's pipeline

    async def aio_registerJob(self, job: Job, owner: Owner) -> Job:
        """Like `submit` of a job for an owner, in the loop; returns once the submission was taken in."""
        known = self._hand_in(job, owner)
        self._take_in()
        return known

    async def aio_final_state(self, job: Job) -> JobState:
        """The final state of a job, once it has one; at once for a transient job that no other needs."""
        return await self._callers.ask(partial(self._answer_end, job))

    def _answer_end(self, job: Job, answer: PendingAnswer[JobState]) -> None:
        self._take_in()
        if job.is_at_rest:
            answer.give(job.state)
        else:
            if job._final_state is None:
                job._final_state = {}
            answer.wait_in(job._final_state)

    def _answer_withdrawn(self, job: Job, owner: Owner, answer: PendingAnswer[JobState]) -> None:
        self._take_in()
        if job.has_owner(owner):
            self._answer_end(job, answer)
        else:
            answer.give(job.state)

    async def aio_wait(self, owner: Owner) -> None:
        """Returns once no job of this owner is unfinished, and all that follows from their ends is done."""
        counts = self.counts(owner)
        await self._aio_wait_until(lambda: counts.at_rest)

    async def _aio_wait_until(self, predicate: Callable[[], bool]) -> None:
        self._take_in()
        await self.exitCondition.wait_for(predicate)

    async def _aio_release(self, owner: Owner) -> None:
        self._take_in()
        with self._registry.lock:
            for job in self.jobs.values():
                job.disown(owner)
            self._registry.let_go()
        self._ledger.close_list(owner)

    def _read_and_follow(self, job: Job) -> None:
        self._take_in()  # or no owner has the job yet, and none waits for what its watchers do
        self._followers.read_and_follow(job)
