"""The scheduler: takes submissions from any thread, and runs jobs in the order they become ready.
How one job is started and watched is in `attempts`; what may happen is in `lifecycle`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

from tenuto.errors import DirectoryUnusable, GraphError, TenutoError, UnsubmittedTask
from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing, TransientMode
from tenuto.scheduler.attempts import Attempts
from tenuto.scheduler.conditions import ExitCondition
from tenuto.scheduler.decisions import Arrival, Tries, Verdict, on_arrival
from tenuto.scheduler.dependencies import WaitingGraph
from tenuto.scheduler.jobs import Job, JobDependency, Owner
from tenuto.scheduler.listeners import Listener
from tenuto.scheduler.loop import LoopThread
from tenuto.scheduler.outputs import TaskOutputsWorker
from tenuto.scheduler.ready import ReadyQueue
from tenuto.scheduler.token_desk import Floor, TokenDesks
from tenuto.scheduler.tokens import Grant
from tenuto.scheduler.troubles import failure, has_recovered, shortage, worded
from tenuto.scheduler.workers import DoneHandlerWorker, NotificationWorker, Worker, call_safely
from tenuto.workspace import job_directory
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.inotify import DirectoryWatch, watch_directory
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import StopRecord

logger = logging.getLogger("tenuto.scheduler")

T = TypeVar("T")

BACK_OFF_S = 1.0
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
        self.jobs: dict[str, Job] = {}
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
        self._graph: WaitingGraph[Job] = WaitingGraph()
        self._dormant: set[Job] = set()
        """Transient jobs that nobody needs yet."""
        self._ready = ReadyQueue(self._begin)
        self._tokens = TokenDesks(
            machine, Floor(self._start_granted, self._refuse), self._ready, self._runner, watch
        )
        self._is_taking_in = False
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
            known = self.jobs.get(job.key)
            job.dependencies = tuple(JobDependency(self._origin(job, d.origin)) for d in job.dependencies)
        if job.needs:
            self._tokens.check(job)
        found = self._found(job) if known is None or known.state is JobState.ERROR else None
        with self._lock:
            is_new = job.key not in self.jobs
            known = self.jobs.setdefault(job.key, job)
            known.scheduler = self
            self._ask(_Submission(known, job, owner, is_new, found))
        return known

    def _ask(self, wish: _Submission | _Cancellation) -> None:
        self._inbox.append(wish)
        if len(self._inbox) == 1:
            self._runner.post(self._take_in)

    def _found(self, job: Job) -> Derived:
        """What the directory of a new job shows; raises if it can never be used."""
        try:
            found = job_directory.look(self.machine, job.paths).derived
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
        known = self.jobs.get(origin.key)
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
        self._outputs.read(job)
        self._runner.post(self._follow, job)

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
        for job in self.jobs.values():
            job.disown(owner)

    # Taking in

    def _take_in(self) -> None:
        if self._is_taking_in:
            return
        self._is_taking_in = True
        try:
            while True:
                with self._lock:
                    if not self._inbox:
                        return
                    wish = self._inbox.popleft()
                if isinstance(wish, _Submission):
                    self._take_in_one(wish)
                else:
                    self._cancel(*wish)
        finally:
            self._is_taking_in = False

    def _take_in_one(self, submission: _Submission) -> None:
        try:
            self._arrive(submission)
        except Exception as error:
            logger.exception("a submission failed", extra={"action": "submission_failed"})
            self._fail(submission.job, worded(error))

    def _ask_again(self) -> None:
        """Asks who waits, once everything submitted is known: a callback may just have submitted more."""
        self._take_in()
        self.exitCondition.notify()

    def _arrive(self, submission: _Submission) -> None:
        job, given, owner, is_new, found = submission
        if given is not job:
            job.merge(given)
        if all(known is not owner for known in job.owners):
            job.add_owner(owner)
            owner.accept(job)
        self.tell(owner.job_submitted, job)
        for listener in self.listeners:
            self.tell(listener.job_submitted, job)
        if is_new:
            assert found is not None
            self._place(job, found)
        else:
            self._submit_again(job, given, found)

    def _place(self, job: Job, found: Derived) -> None:
        """A new job finds its place: done, running somewhere, or waiting to run."""
        arrival = on_arrival(found)
        job.attempt = found.attempt
        job.answered = found.attempt if found.action is Action.KEEP else 0
        job.marker = found.marker
        if arrival is Arrival.REUSE:
            self._complete(job, Verdict(JobState.DONE))
        elif arrival is Arrival.ADOPT and found.state is JobState.RUNNING:
            job.state = JobState.RUNNING
            if job.needs and job.launcher.external:
                self._tokens.adopt(job)
            self._runner.spawn(self._adopt(job))
        elif job.transient is not TransientMode.NONE:
            self._dormant.add(job)
        else:
            self._enqueue(job)

    def _submit_again(self, job: Job, given: Job, found: Derived | None) -> None:
        """A known identity is submitted: what failed is tried again, what sleeps may be needed now."""
        if job.state is JobState.ERROR:
            job.tries = Tries()
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
        if not job.completion_callbacks and not job.watched_outputs:
            self._finalize(job, verdict)
            return
        # A job that was found done counts as nothing unfinished, so its owners would not wait for this.
        release = self._outputs.hold(job)

        def handle() -> None:
            self._outputs.read(job)
            call_safely(lambda: job.done_handler(verdict.state))
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
                self._make_ready(dependent)
        else:
            for stranded in self._graph.failed(job):
                self._strand(stranded, job)
        self._ask_again()

    def _call_completed(self, job: Job) -> None:
        """Calls those who asked since the end of the job was processed; its owners wait for that."""
        if job.state is JobState.DONE and job.completion_callbacks:
            self._outputs.call(job, lambda: job.done_handler(JobState.DONE))

    def _strand(self, job: Job, cause: Job) -> None:
        """A job that cannot run because another failed; the directory is not touched."""
        root = cause.standing.message if cause.failure_status is JobFailureStatus.DEPENDENCY else None
        message = root or f"{cause.task_id} {cause.job_id[:12]} failed ({_reason(cause)})"
        job.set_state(JobState.ERROR, JobFailureStatus.DEPENDENCY, message)
        self._release(job)
        for stranded in self._graph.failed(job):
            stranded.set_state(JobState.ERROR, JobFailureStatus.DEPENDENCY, message)
            self._release(stranded)
        self._ask_again()

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
            except (OSError, TenutoError) as error:
                # It is cancelled here all the same; only its directory does not say so.
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
