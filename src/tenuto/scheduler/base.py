"""The scheduler: takes submissions from any thread, and runs jobs in the order they become ready.
How one job is started and watched is in `attempts`; what may happen is in `lifecycle`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from tenuto.errors import DirectoryUnusable, GraphError, TenutoError, UnsubmittedTask
from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing, TransientMode
from tenuto.scheduler.attempts import Attempts
from tenuto.scheduler.conditions import ExitCondition
from tenuto.scheduler.decisions import NO_TRIES, Arrival, Verdict, on_arrival, tries_of, tries_to_come
from tenuto.scheduler.dependencies import WaitingGraph
from tenuto.scheduler.jobs import Job, JobDependency, Owner
from tenuto.scheduler.known import KnownJobs
from tenuto.scheduler.listeners import Listener
from tenuto.scheduler.loop import LoopThread
from tenuto.scheduler.outputs import TaskOutputsWorker
from tenuto.scheduler.ready import ReadyQueue
from tenuto.scheduler.token_desk import Floor
from tenuto.scheduler.token_desks import TokenDesks
from tenuto.scheduler.tokens import Grant
from tenuto.scheduler.troubles import failure, has_recovered, shortage, worded
from tenuto.scheduler.workers import DoneHandlerWorker, NotificationWorker, Worker
from tenuto.workspace import job_directory
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.inotify import DirectoryWatch, watch_directory
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord, StopRecord

logger = logging.getLogger("tenuto.scheduler")

T = TypeVar("T")

BACK_OFF_S = 1.0
GATHER_S = 0.002
"""Submissions are taken in together: two threads that take turns for each of them take twice as long."""
GATHER_DONE_S = 0.05
"""The same for jobs that are done: nothing waits to be started, so that there may be more of them."""
REST_POLL_S = 0.05
STOP_GRACE_S = 5.0
"""How long a runner may take, beyond the grace of its job, before it is killed itself."""


_NOT_LOOKED = Derived(JobState.UNSCHEDULED, Action.START, "not looked")


class Loop(Protocol):
    """What the scheduler needs of its event loop; `LoopThread`, or the simulator's."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def post(self, callback: Callable[..., object], *arguments: Any) -> None: ...

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> None: ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None: ...

    def wait(self, coroutine: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any: ...

    def close(self) -> None: ...


class _Submission(NamedTuple):
    job: Job
    """The job that counts: the first one with this identity."""
    given: Job
    owner: Owner
    is_new: bool
    """False for an identity that was known already."""
    found: Derived | None
    """What its directory showed, if it was looked at: for a new job, and for one that had failed."""


class _Cancellation(NamedTuple):
    job: Job
    message: str


class Scheduler:
    """Runs each job once, whoever asks for it, in this process or another."""

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
        watch: Callable[[str], DirectoryWatch | None] = watch_directory,
    ) -> None:
        self.machine = machine
        self._known = KnownJobs()
        self.jobs = self._known.current
        self.waitingjobs: set[Job] = set()
        self.experiments: dict[str, Owner] = {}
        self.exitCondition = ExitCondition()
        self.dependencyLock = asyncio.Lock()
        """The seed's name. A try takes everything or nothing without waiting, so nobody ever waits for it."""
        self.listeners: list[Listener] = []
        self._runner: Loop = loop or LoopThread()
        self._completions = completions or DoneHandlerWorker()
        self._notifications = notifications or NotificationWorker()
        self._attempts = Attempts(machine, watch)
        self._outputs = TaskOutputsWorker(machine.files, self.changed, outputs)
        self._lock = threading.Lock()
        self._inbox: deque[_Submission | _Cancellation] = deque()
        """What was asked for and not yet taken in, in order: a cancellation ends only what came before it."""
        self._gathers_s = inf
        """After what time, at most, the loop takes in what was asked for; it is told when this falls."""
        self._graph: WaitingGraph[Job] = WaitingGraph()
        self._dormant: WeakSet[Job] = WeakSet()
        """Transient jobs that nobody needs yet."""
        self._ready = ReadyQueue(self._begin)
        self._tokens = TokenDesks(
            machine, Floor(self._start_granted, self._refuse), self._ready, self._runner, watch
        )
        self._is_taking_in = False
        self._was_asked = False
        """Something changed while submissions were taken in: who waits is asked after the last of them."""
        self._followed: set[Job] = set()
        """Running jobs whose outputs somebody watches."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, which runs in a thread of its own."""
        return self._runner.loop

    # From any thread

    def submit(self, job: Job, owner: Owner) -> Job:
        """Takes a job and returns at once: the job itself, or the one already known by its identity.

        Raises before anything has changed if the job's directory cannot be used, or a token never suffices.
        """
        with self._lock:
            known = self._known.get(job.key)
            job.dependencies = tuple(JobDependency(self._origin(job, d.origin)) for d in job.dependencies)
        found = self._found(job) if known is None or known.state is JobState.ERROR else None
        with self._lock:
            is_new = self._known.get(job.key) is None
            known = self._known.keep(job)
            known.scheduler = self
            is_done = found is not None and on_arrival(found) is Arrival.REUSE
            self._ask(_Submission(known, job, owner, is_new, found), GATHER_DONE_S if is_done else GATHER_S)
        return known

    def _ask(self, wish: _Submission | _Cancellation, gather_s: float = GATHER_S) -> None:
        self._inbox.append(wish)
        if gather_s < self._gathers_s:
            self._gathers_s = gather_s
            self._runner.post(self._runner.later, gather_s, self._take_in)

    def _found(self, job: Job) -> Derived:
        """What the directory of a new job shows; raises if it can never be used."""
        try:
            settled = job_directory.look(self.machine, job.paths)
            found, launch = settled.derived, settled.evidence.launch
            job.tries = tries_of(launch if isinstance(launch, LaunchRecord) else None)
            if on_arrival(found) is Arrival.RUN:
                job.tries = tries_to_come(found, job.tries, job.retry)
                if job.needs:
                    self._tokens.check(job)
            if on_arrival(found) is Arrival.RUN and job.transient is TransientMode.NONE:
                lock = job_directory.take_lock(self.machine, job.paths)
                if lock is not None:
                    lock.close()
        except (OSError, DirectoryUnusable) as error:
            if shortage(error) is None:
                raise
            return _NOT_LOOKED  # the job waits until the machine recovers; its start looks again
        return found

    def _origin(self, job: Job, origin: Job) -> Job:
        """The job that counts for a dependency: it must be known, so there can be no cycle."""
        if origin.key == job.key:
            raise GraphError(f"{job.task_id} {job.job_id[:12]} depends on itself")
        known = self._known.get(origin.key)
        if known is None:
            raise UnsubmittedTask(
                f"{job.task_id} {job.job_id[:12]} depends on {origin.task_id} {origin.job_id[:12]}, "
                f"which was not submitted: submit it first"
            )
        return known

    def cancel(self, job: Job, message: str = "cancelled") -> None:
        """Ends a job, waiting or running; a finished one is left alone."""
        with self._lock:
            self._ask(_Cancellation(job, message))

    def wait(self, owner: Owner, timeout_s: float | None = None) -> None:
        """Blocks until no job of this owner is unfinished."""
        self._runner.wait(self.aio_wait(owner), timeout_s)

    def wait_until(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Blocks until something holds that jobs bring about; it is asked in the loop."""
        self._runner.wait(self._aio_wait_until(predicate), timeout_s)

    def changed(self) -> None:
        """Somebody's wishes changed: who waits is asked again."""
        self._runner.post(self._ask_again)

    def follow_outputs(self, job: Job) -> None:
        """Somebody watches the outputs of a job: those that are there are handed over, and those to come."""
        self._runner.post(self._read_and_follow, job)

    def follow_completion(self, job: Job) -> None:
        """Somebody wants to be called when a job is done: it may be done already."""
        self._runner.post(self._call_completed, job)

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

    def drain(self) -> None:
        """Returns once everybody was told of everything that happened so far."""
        told = threading.Event()
        self._notifications.call(told.set)
        told.wait()

    def wait_for_job(self, job: Job, timeout_s: float | None = None) -> JobState:
        """Blocks until a job reached a final state."""
        state: JobState = self._runner.wait(self.aio_final_state(job), timeout_s)
        return state

    def add_listener(self, listener: Listener) -> None:
        """Tells somebody of every job from now on."""
        self.listeners = [*self.listeners, listener]

    def remove_listener(self, listener: Listener) -> None:
        """Tells it no more."""
        self.listeners = [known for known in self.listeners if known is not listener]

    def close(self) -> None:
        """Ends the scheduler; running jobs go on, and another scheduler adopts them."""
        self._runner.close()
        self._tokens.close()
        self._outputs.close()
        self._completions.close()
        self._notifications.close()

    # In the loop: the seed's pipeline

    async def aio_registerJob(self, job: Job, owner: Owner) -> Job:
        """Like `submit`, in the loop, and returns once the submission was taken in."""
        known = self.submit(job, owner)
        self._take_in()
        return known

    async def aio_submit(self, job: Job, grant: Grant | None = None) -> None:
        """Sees a ready job through to its final state, trying again where that is due."""
        try:
            verdict = await self.aio_submit_inner(job, grant)
            while verdict.tries is not None:
                job.tries = verdict.tries
                job.answered = max(job.answered, job.attempt)
                job.set_state(JobState.WAITING, message=f"tried again: {verdict.message}")
                job.state = JobState.READY
                if grant is not None:  # its tokens fell with the attempt
                    self._ready.add(job, first=True)
                    return
                verdict = await self.aio_submit_inner(job)
        except Exception as error:  # noqa: BLE001  whatever goes wrong, the job must not be left hanging
            passing = shortage(error)
            if passing is not None:
                self._back_off(job, passing)
                return
            verdict = failure(job.job_id, error)
        self._complete(job, verdict)

    async def aio_submit_inner(self, job: Job, grant: Grant | None = None) -> Verdict:
        """One attempt, or the wait for somebody else's."""
        return await self._attempts.run(job, grant)

    async def aio_start(self, job: Job, grant: Grant | None = None) -> None:
        """Runs a ready job, which has a slot of its launcher and its tokens, and gives the slot back."""
        try:
            # Between the start of this coroutine and its first step somebody may have cancelled the job, and
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
        if not job.state.finished() and job not in self._dormant:
            if job._final_state is None:
                job._final_state = self.loop.create_future()
            await asyncio.shield(job._final_state)
        return job.state

    async def aio_wait(self, owner: Owner) -> None:
        """Returns once no job of this owner is unfinished."""
        await self._aio_wait_until(lambda: owner.unfinishedJobs == 0)

    async def _aio_wait_until(self, predicate: Callable[[], bool]) -> None:
        self._take_in()
        await self.exitCondition.wait_for(predicate)

    async def _aio_release(self, owner: Owner) -> None:
        self._take_in()
        with self._lock:
            for job in self.jobs.values():
                job.disown(owner)
            self._known.let_go()

    # Taking in

    def _take_in(self) -> None:
        if self._is_taking_in:
            return
        self._is_taking_in = True
        try:
            while wish := self._next_wish():
                if isinstance(wish, _Submission):
                    self._take_in_one(wish)
                else:
                    self._cancel(*wish)
        finally:
            self._is_taking_in = False
        if self._was_asked:
            self._was_asked = False
            self.exitCondition.notify()

    def _next_wish(self) -> _Submission | _Cancellation | None:
        with self._lock:
            if self._inbox:
                return self._inbox.popleft()
            self._gathers_s = inf
            return None

    def _take_in_one(self, submission: _Submission) -> None:
        try:
            self._arrive(submission)
        except Exception as error:
            logger.exception("a submission failed", extra={"action": "submission_failed"})
            self._fail(submission.job, worded(error))

    def _ask_again(self) -> None:
        """Asks who waits, once everything submitted is known: a callback may just have submitted more.

        A job that is found done ends while others are still to be taken in. Whoever was told then that
        nothing is unfinished left, and those others arrived at a run that was closed.
        """
        self._take_in()
        if self._is_taking_in:
            self._was_asked = True
        else:
            self.exitCondition.notify()

    def _arrive(self, submission: _Submission) -> None:
        job, given, owner, is_new, found = submission
        if given is not job:
            self._merge(job, given)
        is_news = self._own(job, owner)
        self.tell(owner.job_submitted, job)
        for listener in self.listeners:
            self.tell(listener.job_submitted, job)
        if is_new:
            assert found is not None
            self._place(job, found)
        elif not (is_news and self._is_gone(job)):
            self._submit_again(job, given, found)

    def _merge(self, job: Job, given: Job) -> None:
        transient = job.transient
        job.merge(given)
        if job.transient is not transient:  # who removes jobs reads in the lists who wants to keep them
            for owner in job.owners:
                owner.accept(job)  # type: ignore[attr-defined]

    def _own(self, job: Job, owner: Owner) -> bool:
        """Enters a job for an owner, with all that it needs; True if nobody had the job until now.

        What it needs may have been submitted by somebody else, who is gone: it is listed for this owner, too,
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
            with self._lock:
                self._known.keep(needed)
            owner.accept(needed)
            pending.extend(dependency.origin for dependency in needed.dependencies)
            if was_forgotten and not self._is_gone(needed):
                self._ready.want_again(needed)
        return was_free

    def _place(self, job: Job, found: Derived) -> None:
        """A new job finds its place: done, running somewhere, or waiting to run."""
        arrival = on_arrival(found)
        job.attempt = found.attempt
        job.answered = found.attempt if found.action is Action.KEEP else 0
        job.marker = found.marker
        if arrival is Arrival.REUSE:
            # The job is listed by now; whoever removes jobs takes the lock first, then looks who lists them.
            if job_directory.is_at_rest(self.machine, job.paths):
                self._complete(job, Verdict(JobState.DONE))
            else:
                self._wait_for_rest(job)
        elif arrival is Arrival.ADOPT and found.state is JobState.RUNNING:
            job.state = JobState.RUNNING
            if job.needs and job.launcher.external:
                self._tokens.adopt(job)
            self._runner.spawn(self._adopt(job))
        elif job.transient is not TransientMode.NONE:
            self._dormant.add(job)
        else:
            self._enqueue(job)

    def _is_gone(self, job: Job) -> bool:
        """Whether the directory of a job may be gone since the last one left who wanted it; then it waits."""
        if job.state is not JobState.DONE or job_directory.is_at_rest(self.machine, job.paths):
            return False
        self._wait_for_rest(job)
        return True

    def _wait_for_rest(self, job: Job) -> None:
        job.set_state(JobState.WAITING, message="somebody has the lock of its directory")
        self.waitingjobs.add(job)
        self._runner.spawn(self._settle_at_rest(job))

    async def _settle_at_rest(self, job: Job) -> None:
        """Once nobody has the lock of a job that was done: is it still?"""
        try:
            while self.machine.locks.is_locked(job.paths.lock):
                await self._attempts.changed(job.paths.directory, REST_POLL_S)
            if job.state is JobState.WAITING:  # and not cancelled meanwhile
                self._settle(job)
        except Exception as error:  # noqa: BLE001  as above
            self._fail(job, worded(error))

    def _settle(self, job: Job) -> None:
        if job_directory.look(self.machine, job.paths).derived.state is JobState.DONE:
            self._make_ready(job)  # which looks once more, under the lock
        elif job.transient is not TransientMode.NONE and not self._graph.is_awaited(job):
            self._fall_asleep(job)
        else:
            self._enqueue(job)

    def _fall_asleep(self, job: Job) -> None:
        """Nobody needs a transient job, now or any more; what only it needed sleeps, too."""
        pending = [job]
        while pending:
            unneeded = pending.pop()
            if unneeded.state not in (JobState.WAITING, JobState.READY):
                continue  # two that are over needed it: it sleeps already
            self._graph.withdraw(unneeded)
            if unneeded.needs:
                self._tokens.withdraw(unneeded)
            if unneeded.state is JobState.READY:
                unneeded.state = JobState.WAITING
            unneeded.state = JobState.UNSCHEDULED
            self._release(unneeded)
            unneeded._final_state = None
            self._dormant.add(unneeded)
            pending.extend(self._unneeded_by(unneeded))
        self._ask_again()

    def _unneeded_by(self, job: Job) -> list[Job]:
        """The transient jobs that wait, and that only a job needed which does not wait any more."""
        return [
            needed
            for needed in (dependency.origin for dependency in job.dependencies)
            if needed.transient is not TransientMode.NONE
            and needed.state in (JobState.WAITING, JobState.READY)
            and not self._graph.is_awaited(needed)
        ]

    def _submit_again(self, job: Job, given: Job, found: Derived | None) -> None:
        """A known identity is submitted: what failed is tried again, what sleeps may be needed now."""
        if job.state is JobState.ERROR:
            job.tries = NO_TRIES
            # Another scheduler may have tried it in vain since: that is no answer to this submission either.
            job.answered = found.attempt if found and found.action is Action.KEEP else job.attempt
            self._enqueue(job)
        elif self._ready.want_again(job):
            return
        elif job in self._dormant and job.transient is TransientMode.NONE:
            self._enqueue(job)
        elif given is not job:
            self._call_completed(job)

    def _enqueue(self, first: Job) -> None:
        """Has a job wait for what it depends on; wakes transient jobs that are needed now."""
        pending = [first]
        while pending:
            job = pending.pop()
            self._dormant.discard(job)
            if job.state is not JobState.WAITING:
                job.state = JobState.WAITING
            self.waitingjobs.add(job)
            failed = [d.origin for d in job.dependencies if d.origin.state is JobState.ERROR]
            if failed:
                self._strand(job, failed[0])
                continue
            unfinished = [d.origin for d in job.dependencies if d.origin.state is not JobState.DONE]
            for origin in unfinished:
                if origin in self._dormant:  # woken once, however many of those woken here need it
                    self._dormant.discard(origin)
                    pending.append(origin)
            if self._graph.add(job, unfinished):
                self._make_ready(job)

    # Starting

    def _make_ready(self, job: Job) -> None:
        job.state = JobState.READY
        self._ready.add(job)

    def _begin(self, job: Job) -> None:
        """A ready job has a slot. One that needs tokens does not keep it while it waits for them."""
        if job.needs:
            self._ready.vacate(job)
            self._tokens.ask(job)
        else:
            self._runner.spawn(self.aio_start(job))

    def _start_granted(self, job: Job, grant: Grant) -> None:
        """Starts a job that has a slot and its tokens."""
        self._runner.spawn(self.aio_start(job, grant))

    def _refuse(self, job: Job, error: Exception | str) -> None:
        """Ends a job that can never have the tokens it asks for."""
        if isinstance(error, str):
            self._finalize(job, Verdict(JobState.ERROR, JobFailureStatus.FAILED, error))
        else:
            self._finalize(job, failure(job.job_id, error))

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
            self._enqueue(job)

    def _read_and_follow(self, job: Job) -> None:
        self._take_in()  # or nobody owns the job yet, and nobody waits for what its watchers do
        self._outputs.read(job)
        self._follow(job)

    def _follow(self, job: Job) -> None:
        if job.state.running() and job.watched_outputs and job not in self._followed:
            self._followed.add(job)
            self._runner.spawn(self._follow_while_running(job))

    async def _follow_while_running(self, job: Job) -> None:
        try:
            while job.state.running():
                await self._attempts.changed(job.paths.private)
                self._outputs.read(job)
        finally:
            self._followed.discard(job)

    def _back_off(self, job: Job, error: OSError) -> None:
        """The machine is short of something: nothing is started for a while, and nothing is lost."""
        logger.warning("starts are paused: %s", worded(error), extra={"action": "starts_paused"})
        message = f"waits until the machine recovers: {worded(error)}"
        job.set_state(JobState.WAITING, message=message)
        job.set_state(JobState.READY, message=message)
        self._ready.pause()
        self._ready.add(job, first=True)
        self._runner.later(BACK_OFF_S, self._resume, job, error)

    def _resume(self, job: Job, error: OSError) -> None:
        if has_recovered(error, self.machine.files, job.layout.root):
            self._ready.resume()
        else:
            self._runner.later(BACK_OFF_S, self._resume, job, error)

    # Ending

    def _complete(self, job: Job, verdict: Verdict) -> None:
        """Has the end of a job processed off the loop, then settles it."""
        if not job.watched_outputs:
            self._finalize(job, verdict)
            return
        # A job that was found done counts as nothing unfinished, so its owners would not wait for this.
        release = self._outputs.hold(job)

        def handle() -> None:
            self._outputs.read(job)
            self._runner.post(self._finalize, job, verdict)
            self._runner.post(release)

        self._completions.call(handle)

    def _finalize(self, job: Job, verdict: Verdict) -> None:
        if verdict.state is JobState.ERROR:
            job.set_state(JobState.ERROR, verdict.reason, verdict.message)
        else:
            job.set_state(verdict.state)
        self._release(job)
        self._call_completed(job)
        if verdict.state is JobState.DONE:
            for dependent in self._graph.done(job):
                if dependent not in self._dormant:  # since the one before it was started
                    self._make_ready(dependent)
        else:
            for stranded in self._graph.failed(job):
                self._strand(stranded, job)
        self._ask_again()

    def _call_completed(self, job: Job) -> None:
        """Calls those who asked to be told, once the job is settled: they may ask for its result.

        The owners of the job wait for them.
        """
        if job.state is not JobState.DONE or not job.completion_callbacks:
            return
        release = self._outputs.hold(job)

        def handle() -> None:
            try:
                job.done_handler(JobState.DONE)
            finally:
                release()

        # After the outputs that were handed over before, and yet not in their thread: it may take its time.
        self._outputs.call(job, lambda: self._completions.call(handle))

    def _strand(self, job: Job, cause: Job) -> None:
        """A job that cannot run because another failed; the directory is not touched."""
        if job.state.finished():
            return  # cancelled by a wish that was taken in since its cause failed
        root = cause.standing.message if cause.failure_status is JobFailureStatus.DEPENDENCY else None
        message = root or f"{cause.task_id} {cause.job_id[:12]} failed ({_reason(cause)})"
        job.set_state(JobState.ERROR, JobFailureStatus.DEPENDENCY, message)
        self._release(job)
        ended = [job]
        for stranded in self._graph.failed(job):
            stranded.set_state(JobState.ERROR, JobFailureStatus.DEPENDENCY, message)
            self._release(stranded)
            ended.append(stranded)
        self._spare_unneeded(ended)
        self._ask_again()

    def _spare_unneeded(self, ended: Sequence[Job]) -> None:
        """Jobs ended without having run: a transient job that waits for their sake alone need not run."""
        for job in ended:
            for needed in self._unneeded_by(job):
                self._fall_asleep(needed)

    def _fail(self, job: Job, message: str) -> None:
        if not job.state.finished():
            if job.state is JobState.UNSCHEDULED:
                job.state = JobState.WAITING
            self._finalize(job, Verdict(JobState.ERROR, JobFailureStatus.FAILED, message))

    def _release(self, job: Job) -> None:
        self.waitingjobs.discard(job)
        if job.needs:
            self._tokens.release(job)
        job.attach(None)
        if job._final_state is not None and not job._final_state.done():
            job._final_state.set_result(job.state)

    def _cancel(self, job: Job, message: str) -> None:
        if job.state in (JobState.WAITING, JobState.READY):
            self._graph.withdraw(job)
            if job.needs:
                self._tokens.withdraw(job)
            try:
                self._attempts.cancel_waiting(job, JobFailureStatus.CANCELLED, message)
            except (OSError, TenutoError) as error:  # it is cancelled; only its directory does not say so
                message = f"{message}; this could not be recorded: {worded(error)}"
            self._finalize(job, Verdict(JobState.ERROR, JobFailureStatus.CANCELLED, message))
            self._spare_unneeded([job])
        elif job.state.running():
            now = self.machine.clock.now()
            job.stop = StopRecord(max(job.attempt, 1), JobFailureStatus.CANCELLED, now, message)
            self._attempts.request_stop(job)
            self._runner.later(job.limits.grace_s + STOP_GRACE_S, self._kill_runner, job, job.attempt)

    def _kill_runner(self, job: Job, attempt: int) -> None:
        if job.state.running() and job.attempt == attempt and job.process is not None:
            job.process.kill()

    # Telling

    def notify_state(self, job: Job, standing: Standing) -> None:
        """Tells owners and listeners, off the loop, where a job stands now."""
        if standing.state is JobState.RUNNING and job.watched_outputs:
            self._follow(job)
        for hearer in (*job.owners, *self.listeners):
            self.tell(hearer.job_state, job, standing)  # type: ignore[attr-defined]

    def tell(self, function: Callable[..., object], *arguments: Any) -> None:
        """Calls somebody off the loop, after all that was told before."""
        self._notifications.call(lambda: function(*arguments))


def _reason(job: Job) -> str:
    return job.failure_status.name if job.failure_status else job.state.name
