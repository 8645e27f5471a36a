"""The shell: carries out the effects of the core in the loop, and tells the core their outcome.
It decides nothing: what happens next to a job is in `core`, how an attempt goes in `attempts`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime
from functools import partial
from math import inf

from tenuto.errors import TenutoError
from tenuto.launchers.clusters import Clusters
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.scheduler import inputs
from tenuto.scheduler.attempts import STOP_GRACE_S, Attempts
from tenuto.scheduler.core import Core
from tenuto.scheduler.decisions import Verdict, failure, has_recovered, shortage, worded
from tenuto.scheduler.entries import Phase
from tenuto.scheduler.external_attempts import ExternalAttempts
from tenuto.scheduler.inputs import Input, Recovered, Short
from tenuto.scheduler.intake import Cancellation, Forgetting, Inbox, InboxItem, Intake, Registry, Submission
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.listeners import Announcer, LogStep, is_logged, log_state, log_step
from tenuto.scheduler.loop import Loop
from tenuto.scheduler.owners import Owner, OwnerCounts, OwnerLedger
from tenuto.scheduler.shared_slots import SharedSlots, TokenSlots
from tenuto.scheduler.slots import Slots
from tenuto.scheduler.token_queue import TokenQueue, TokenQueues
from tenuto.scheduler.tokens import Grant
from tenuto.scheduler.workers import TaskOutputsWorker, Worker
from tenuto.workspace.ports import Machine

# The conditions that callers wait for in the loop, looked at after every change.
# Decides nothing: a caller brings its condition along.


class ExitCondition:
    """Wakes the callers whose condition holds; to be used in the loop's thread only, but for `changed`."""

    def __init__(self, loop: Loop, take_in: Callable[[], None]) -> None:
        """`take_in`: takes in the submissions."""
        self._loop = loop
        self._take_in = take_in
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.is_due = False
        """A job ended, or fell asleep, since the conditions were looked at."""
        self._is_asking = False
        """The conditions are about to be looked at."""

    async def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Returns once the predicate holds."""
        if predicate():
            return
        waiter = (predicate, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            await waiter[1]
        finally:
            self._waiters.remove(waiter)

    def changed(self) -> None:
        """Have the conditions looked at; from any thread."""
        self._loop.post(self._look)

    def notify_soon(self) -> None:
        """Have the conditions looked at in a step of its own."""
        self.is_due = False
        if not self._is_asking:
            self._is_asking = True
            self._loop.post(self._look)

    def _look(self) -> None:
        """Look at the conditions once everything submitted is known: a callback may just have submitted more.

        A job that is found done ends while others are still to be taken in. An owner that was told then that
        nothing is unfinished left, and those others arrived at a run that was closed.
        """
        self._is_asking = False
        self._take_in()
        for predicate, future in self._waiters:
            if not future.done() and predicate():
                future.set_result(None)


# Followers of a job: its outputs are handed over while it runs, and callbacks are called when it is done.
# The owners of the job wait for them; the loop does not.


class Followers:
    """To be used in the loop's thread only."""

    def __init__(
        self, attempts: Attempts, outputs: TaskOutputsWorker, completions: Worker, loop: Loop
    ) -> None:
        self._attempts = attempts
        self._outputs = outputs
        self._completions = completions
        self._loop = loop
        self._followed: set[Job] = set()
        """Running jobs whose outputs an owner watches."""

    def read_and_follow(self, job: Job) -> None:
        """An owner watches the outputs of a job: present and later ones."""
        self._outputs.read(job)
        self.follow(job)

    def follow(self, job: Job) -> None:
        """Hands over the outputs of a job while it runs, if an owner watches them."""
        if job.state.running() and job.watched_outputs and job not in self._followed:
            self._followed.add(job)
            self._loop.spawn(self._follow_while_running(job))

    async def _follow_while_running(self, job: Job) -> None:
        try:
            while job.state.running():
                await self._attempts.changed(job.paths.private)
                self._outputs.read(job)
        finally:
            self._followed.discard(job)

    def after_outputs(self, job: Job, then: Callable[[], None]) -> None:
        """Calls in the loop once the last outputs of a job, which an owner watches, were handed over."""
        # A job that was found done counts as nothing unfinished, so its owners would not wait for this.
        release = self._outputs.hold(job)

        def handle() -> None:
            self._outputs.read(job)
            self._loop.post(then)
            self._loop.post(release)

        self._completions.call(handle)

    def call_completed(self, job: Job) -> None:
        """Calls the callbacks of a job, once it is settled: they may ask for its result."""
        if job.state is not JobState.DONE or not job.completion_callbacks:
            return
        release = self._outputs.hold(job)

        def handle() -> None:
            try:
                problem = job.done_handler(JobState.DONE)
                if problem is not None:
                    self._outputs.failed(job.owners, problem)
            finally:
                release()

        # After the outputs that were handed over before, and yet not in their thread: it may take its time.
        self._outputs.call(job, lambda: self._completions.call(handle))


logger = logging.getLogger("tenuto.scheduler")


class Shell:
    """The scheduler in its loop; every method is to be called in the loop's thread."""

    def __init__(
        self,
        machine: Machine,
        loop: Loop,
        *,
        completions: Worker,
        notifications: Worker,
        outputs: Worker | None,
        clusters: Clusters,
    ) -> None:
        self.machine = machine
        self._runner = loop
        self._core = Core()
        self._effects: deque[inputs.Effect] = deque()
        self._is_carrying = False
        self.waitingjobs: set[Job] = set()
        """The jobs that are to run, or run."""
        self.exitCondition = ExitCondition(loop, self._take_in)
        self._registry = Registry()
        self._ledger = OwnerLedger()
        self._announcer = Announcer(notifications)
        handovers = ExternalAttempts(machine, clusters)
        self._attempts = Attempts(machine, loop, handovers, self._count_behind)
        self._outputs = TaskOutputsWorker(machine.files, self._ledger, self.changed, outputs)
        self._followers = Followers(self._attempts, self._outputs, completions, loop)
        self._inbox = Inbox(loop, self._take_in)
        self._shared_slots = SharedSlots(machine, loop, lambda: self._feed(inputs.SlotFree()))
        self._pauses = Pauses(machine, self._core.slots, loop, self._feed)
        slots = TokenSlots(self._core.slots, self._shared_slots)
        self._tokens = TokenQueues(
            machine, partial(TokenQueue, machine, slots, loop, handovers.ask, self._feed)
        )
        call = self._followers.call_completed
        self._intake = Intake(
            machine, self._registry, self._ledger, self._tokens, self._attempts, self._feed, call
        )
        self._carriers = {kind: getattr(self, name) for kind, name in inputs.methods(inputs.Effect).items()}

    # The core

    def _feed(self, input: inputs.Input) -> None:
        """Tell the core an event, and carry out its effects.

        What happens while effects are carried out is told to the core at once; its effects come after those.
        """
        core, pending = self._core, self._effects
        pending += core.step(input)
        if self._is_carrying:
            return
        self._is_carrying = True
        try:
            while True:
                while pending:
                    effect = pending.popleft()
                    try:
                        self._carriers[type(effect)](*effect)
                    except Exception as error:  # noqa: BLE001  no job is left hanging, whatever went wrong
                        self._trouble(effect, error)
                job = core.next_start()
                if job is None:
                    break
                answer = inputs.Seated if self._shared_slots.take(job) else inputs.Unseated
                pending += core.step(answer(job))
        finally:
            self._is_carrying = False
        if self.exitCondition.is_due:
            self.exitCondition.notify_soon()

    def _trouble(self, effect: inputs.Effect, error: Exception) -> None:
        """End the job whose effect could not be carried out; a job about to start gives its slot back."""
        logger.error("a step of a job failed", extra={"action": "step_failed"}, exc_info=error)
        job: Job | None = getattr(effect, "job", None)
        if job is not None:
            self._feed(inputs.Failed(job, worded(error)))
        if isinstance(effect, inputs.Start):
            self._give_back(effect.job, effect.grant)

    # Requests of owners

    def _take_in(self) -> None:
        for request in self._inbox.emptied():
            try:
                self._take_in_one(request)
            except Exception as error:
                logger.exception("a submission failed", extra={"action": "submission_failed"})
                self._feed(inputs.Failed(request.job, worded(error)))

    def _take_in_one(self, request: InboxItem) -> None:
        job = request.job
        if isinstance(request, Submission):
            is_news = self._intake.enter(request)
            log_step(LogStep.SUBMITTED, job, request.owner)
            self._announcer.submitted(job, request.owner)
            self._intake.place(request, is_news=is_news)
            self._attempts.announce_wait(job)
        elif isinstance(request, Cancellation):
            self._feed(inputs.Cancelled(*request))
        elif isinstance(request, Forgetting):
            self._forget(job, request.owner)
        elif job.has_owner(request.owner):
            log_step(LogStep.WITHDRAWN, job, request.owner, request.message)
            self._feed(inputs.Withdrawn(*request))

    def _forget(self, job: Job, owner: Owner) -> None:
        """Release a job, in O(1). A job that was submitted again meanwhile is kept."""
        if job.is_at_rest:
            log_step(LogStep.FORGOTTEN, job, owner)
            job.remove_owner(owner)
            with self._registry.lock:
                self._registry.let_go_of(job)

    # Before an attempt

    def _tell(self, job: Job, state: JobState, message: str | None) -> None:
        if job.state is not state:
            job.set_state(state, message=message)
        self.waitingjobs.add(job)

    def _ask_for_tokens(self, job: Job) -> None:
        job.let_go_of_slots()
        self._tokens.ask(job)

    def _wake(self, job: Job) -> None:
        self._intake.look_again(job)

    def _sleep(self, job: Job) -> None:
        if job.needs:
            self._tokens.withdraw(job)
        if job.state is JobState.READY:
            job.state = JobState.WAITING
        job.state = JobState.UNSCHEDULED
        self._leave(job)

    def _await_lock(self, job: Job) -> None:
        job.set_state(JobState.WAITING, message="another process has the lock of its directory")
        self.waitingjobs.add(job)
        self._runner.spawn(self._intake.await_lock(job))

    def _give_out_tokens(self) -> None:
        self._tokens.pump()

    def _count_behind(self) -> int:
        """How many jobs are to run and have no slot yet."""
        return max(len(self.waitingjobs) - self._core.slots.started(), 0)

    # Attempts

    def _start(self, job: Job, grant: Grant | None) -> None:
        attempts = self.aio_start(job, grant)
        try:
            self._runner.spawn(attempts)
        except BaseException:
            attempts.close()
            raise

    async def aio_start(self, job: Job, grant: Grant | None = None) -> None:
        """Runs a ready job, which has a slot of its launcher and its tokens, and gives the slot back."""
        try:
            # Between the start of this coroutine and its first step an owner may have cancelled the job, and
            # submitted it again: then it is starting, but has given back its tokens, and got others.
            if job.phase is Phase.STARTING and self._tokens.holds(job, grant):
                self._feed(inputs.Begun(job))
                await self.aio_submit(job, grant)
        finally:
            self._give_back(job, grant)

    def _give_back(self, job: Job, grant: Grant | None) -> None:
        """Give back the slot and the tokens with which a job was started."""
        job.let_go_of_slots()
        if job.needs:  # a job that is tried again may have got others by now
            self._tokens.release(job, grant)
        self._feed(inputs.SlotFree(job))

    async def aio_submit(self, job: Job, grant: Grant | None = None) -> None:
        """Sees a ready job through to its final state, trying again where that is due."""
        keeps_slot = True
        while keeps_slot:
            try:
                verdict = await self.aio_submit_inner(job, grant)
            except Exception as error:  # noqa: BLE001  whatever goes wrong, the job must not be left hanging
                failed = self._pauses.verdict(job, error)
                if failed is None:
                    return
                verdict = failed
            # Its tokens fell with the attempt; its slot was given back while another process ran it.
            has_slot = not getattr(job.launcher, "shares_slots", False) or bool(job.slot_units)
            keeps_slot = verdict.tries is not None and not verdict.after_s and grant is None and has_slot
            self._feed(inputs.AttemptEnded(job, verdict, keeps_slot))
            keeps_slot = keeps_slot and job.phase is Phase.RUNNING

    async def aio_submit_inner(self, job: Job, grant: Grant | None = None) -> Verdict:
        """One attempt, or the wait for another scheduler's."""
        return await self._attempts.at(job).run(grant)

    def _watch(self, job: Job) -> None:
        self._runner.spawn(self._adopt(job))

    async def _adopt(self, job: Job) -> None:
        """Waits for a job that another scheduler started; it runs on, whatever goes wrong here."""
        verdict = None
        while verdict is None:
            try:
                verdict = await self._attempts.at(job).until_ended()
            except Exception as error:  # noqa: BLE001  as above
                if shortage(error) is None:
                    verdict = failure(job.job_id, error)
                else:
                    job.explain(f"cannot be watched until the machine recovers: {worded(error)}")
                    await asyncio.sleep(BACK_OFF_S)
        self._feed(inputs.AdoptedEnded(job, verdict))

    def _retry(self, job: Job, verdict: Verdict, was_adopted: bool) -> None:
        assert verdict.tries is not None
        job.tries = verdict.tries
        job.answered = max(job.answered, job.attempt)
        if was_adopted and job.needs:  # slots taken for it here are for the attempt that ended
            self._tokens.release(job)
        log_step(LogStep.RETRIED, job, message=verdict.message)
        if not was_adopted:
            when = f" in {verdict.after_s:g} s" if verdict.after_s else ""
            job.set_state(JobState.WAITING, message=f"tried again{when}: {verdict.message}")
            if not verdict.after_s:
                job.state = JobState.READY

    def _rest(self, job: Job, after_s: float) -> None:
        attempt = job.attempt

        def wake() -> None:
            if job.attempt == attempt:  # else it was cancelled and submitted again meanwhile
                self._feed(inputs.Rested(job))

        self._runner.later(after_s, wake)

    def _stop(self, job: Job, message: str) -> None:
        log_step(LogStep.CANCELLED, job, message=message)
        attempt = self._attempts.at(job)
        attempt.stop(message)
        self._runner.later(job.limits.grace_s + STOP_GRACE_S, attempt.kill_runner, job.attempt)

    # Ends

    def _settle(self, job: Job, verdict: Verdict) -> None:
        if job.watched_outputs:
            self._followers.after_outputs(job, lambda: self._feed(inputs.Ended(job, verdict)))
        else:
            self._feed(inputs.Ended(job, verdict))

    def _cancel(self, job: Job, message: str) -> None:
        log_step(LogStep.CANCELLED, job, message=message)
        if job.needs:
            self._tokens.withdraw(job)
        try:
            self._attempts.at(job).cancel_waiting(JobFailureStatus.CANCELLED, message)
        except (OSError, TenutoError) as error:  # it is cancelled; only its directory does not say so
            message = f"{message}; this could not be recorded: {worded(error)}"
        self._feed(inputs.Ended(job, Verdict(JobState.ERROR, JobFailureStatus.CANCELLED, message)))

    def _end(self, job: Job, verdict: Verdict) -> None:
        if verdict.state is JobState.ERROR:
            job.set_state(JobState.ERROR, verdict.reason, verdict.message)
        else:
            has_waited = job.is_found and job.submittime is not None and job.starttime is None
            job.set_state(verdict.state, since=job.marker.endtime if has_waited and job.marker else None)
        self._leave(job)
        self._followers.call_completed(job)

    def _strand(self, job: Job, cause: Job) -> None:
        job.set_state(JobState.ERROR, JobFailureStatus.DEPENDENCY, cause.failure_text())
        self._leave(job)

    def _leave(self, job: Job) -> None:
        """Tell the callers that wait for the end of a job, and free its tokens."""
        self.waitingjobs.discard(job)
        if job.needs:
            self._tokens.release(job)
        job.attach(None)
        answers, job._final_state = job._final_state, None
        for answer in answers or ():
            answer.give(job.state)

    def _disown(self, job: Job, owner: Owner) -> None:
        job.remove_owner(owner)

    # Conditions that callers wait for

    def changed(self) -> None:
        """An owner's requests changed: conditions that callers wait for are looked at. From any thread."""
        self.exitCondition.changed()

    def _notify(self) -> None:
        self.exitCondition.is_due = True

    # Telling

    def counts(self, owner: Owner) -> OwnerCounts:
        """The open jobs of an owner and the failed ones: live values, also after the owner was released."""
        return self._ledger.of(owner)

    def job_changed(self, job: Job, before: StateRecord, now: datetime, attempt: int | None) -> None:
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


# Pauses of all starts while the machine is short of something: processes, memory, descriptors, disk.


_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
BACK_OFF_S = 1.0
TELLS_EVERY_S = 60.0
"""How often, at most, a shortage that continues is worth a line: it stops a start each second."""
PAUSED = "waits until the machine recovers"
"""How the message of a job begins whose start the machine refused."""
LONGEST_S = 86_400.0
"""How long the machine may be short of something before the jobs that wait for it fail."""
OWN_S = 60.0
"""The same, where only this process could end the shortage, and nothing of it runs that will."""


class Pauses:
    """Has the core pause, and continue; to be used in the loop's thread only."""

    def __init__(self, machine: Machine, slots: Slots, loop: Loop, feed: Callable[[Input], None]) -> None:
        """`feed` tells the core."""
        self._machine = machine
        self._slots = slots
        self._loop = loop
        self._feed = feed
        self._told_at = -inf
        self._since: float | None = None
        """When the shortage began, of which no job has been started since."""
        self.reason: str | None = None
        """What the machine is short of, while starts are paused."""

    def verdict(self, job: Job, error: Exception) -> Verdict | None:
        """What an error in an attempt amounts to; None if its job waits until the machine recovers."""
        passing = shortage(error)
        lasting = None if passing is None else self.begin(job, passing)
        if lasting is not None:
            return failure(job.job_id, error)._replace(message=lasting)
        return failure(job.job_id, error) if passing is None else None

    def begin(self, job: Job, error: OSError) -> str | None:
        """A start was refused by the machine: its job is ready again, and nothing is started for a while.

        Returns why the job is to fail instead, if the shortage lasts too long.
        """
        now = self._machine.clock.monotonic()
        self._since = now if self._since is None else self._since
        is_own = error.errno == errno.EMFILE and self._slots.is_alone
        longest_s = OWN_S if is_own else LONGEST_S
        if now >= self._since + longest_s:
            hint = "raise the limit of open files (ulimit -n)" if is_own else "see to it, and run it again"
            return f"{worded(error)}; that did not change within {longest_s:g} s: {hint}"
        self.reason = worded(error)
        self._tell()
        self._feed(Short(job, f"{PAUSED}: {self.reason}", error.errno in _DESCRIPTORS))
        self._loop.later(BACK_OFF_S, self._resume, job, error)
        return None

    def end(self) -> None:
        """A job was started: whatever the machine was short of, there is some again."""
        self._since = None

    def _resume(self, job: Job, error: OSError) -> None:
        since = self._since or 0.0
        is_over = self._machine.clock.monotonic() >= since + LONGEST_S  # then the jobs find out, and fail
        if not is_over and not has_recovered(error, self._machine.files, job.layout.root):
            self._loop.later(BACK_OFF_S, self._resume, job, error)
            return
        if self.reason is not None:
            logger.info("starts are tried again", extra={"action": LogStep.STARTS_RESUMED.value})
        self.reason = None
        self._feed(Recovered())

    def _tell(self) -> None:
        now = self._machine.clock.monotonic()
        if now >= self._told_at + TELLS_EVERY_S:
            self._told_at = now
            said = "starts are paused until the machine recovers: %s"
            logger.warning(said, self.reason, extra={"action": LogStep.STARTS_PAUSED.value})
