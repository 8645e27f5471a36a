"""The loop of a worker: claims the candidates of searches and runs each as a job of the heart.
One thread with an event loop and a `Scheduler` of its own; runs none of the user's code itself.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import os.path
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection

from tenuto.database import Database, Member, MemberKind, join, leave, see
from tenuto.errors import DatabaseError, SchedulerClosed, SerializationError, WorkspaceError
from tenuto.jobs.metrics import MetricsReader
from tenuto.jobs.validity import StoredValidity
from tenuto.launchers.results import decoded, opened, readable
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.owners import PlainOwner
from tenuto.scheduler.scheduler import Scheduler
from tenuto.scheduler.tokens import GpuToken
from tenuto.search.candidate_jobs import LEASE_FILE, AgentChange, CandidateJobs, change_of
from tenuto.search.candidate_rows import WORK
from tenuto.search.claimed_rows import LOST, SURROUNDINGS, ClaimRequest
from tenuto.search.commits import SurroundingsFailed
from tenuto.search.kept_outcomes import as_given, doubted, judge, mean_of, read_kept
from tenuto.search.outcome import Outcome, as_outcome, plain
from tenuto.search.points import PointStore
from tenuto.search.programs import PROGRAM_TASK
from tenuto.search.rows import Claimed, End
from tenuto.search.store import Store
from tenuto.settings import Settings
from tenuto.workspace.attempt_files import read_result
from tenuto.workspace.flags import RESULT_NOT_KEPT
from tenuto.workspace.ports import Files, Machine
from tenuto.workspace.processes import process_text

# How a job of the heart ended, as the end of a candidate's row.
# Reads the job's result; writes nothing.


_MESSAGE = 4000
WITHDRAWN = "the search no longer wants it"
_SURROUNDINGS = f"{SurroundingsFailed.__name__}: "
_REPEATED = (JobFailureStatus.LOST, JobFailureStatus.DELETED)


def changed(files: Files, job: Job) -> AgentChange | None:
    """What the agent of a job changed; None if it failed."""
    return change_of(_returned(files, job)) if job.state is JobState.DONE else None


def known_end(row: Claimed, change: AgentChange, text: str) -> End:
    """The end of a row whose tree another row of the search has, with its outcome."""
    outcome = as_given(text)._replace(cost=change.cost, solution=change.commit)
    found = judge(outcome, row.definition)
    return End(row.id, row.attempt, *found, row.job_attempt, change.directory, reused=True)


def end_of(files: Files, job: Job, row: Claimed, change: AgentChange | None = None) -> End:
    """The end of a row whose job ended; `change`: what its agent made, if the job evaluated that."""
    directory = os.path.join("jobs", job.task_id, job.job_id)
    if job.state is JobState.DONE:
        returned, is_reused = _returned(files, job), False
        if change is not None:
            returned, is_reused = _evaluated(returned, change, row)
        found = judge(returned, row.definition)
        if isinstance(job.reuse, StoredValidity) and job.key in job.reuse.doubted:
            found = doubted(found)
        return End(row.id, row.attempt, *found, job.attempt, directory, is_reused)
    reason = job.state_record.reason or JobFailureStatus.FAILED
    status = EvolutionStatus.CANCELLED if reason is JobFailureStatus.CANCELLED else EvolutionStatus.FAILED
    failure = LOST if reason in _REPEATED else reason.name
    message = (job.state_record.message or reason.meaning)[-_MESSAGE:]
    if message.startswith(_SURROUNDINGS):
        failure, message = SURROUNDINGS, message.removeprefix(_SURROUNDINGS)
    return End(
        row.id,
        row.attempt,
        status,
        failure=failure,
        message=message,
        job_attempt=job.attempt,
        directory=directory,
    )


def mean_end(row: Claimed, ends: Sequence[End]) -> End:
    """The end of a row that was evaluated several times: their mean, or the first that is none."""
    bad = next((end for end in ends if end.status is not EvolutionStatus.SUCCEEDED), None)
    if bad is not None:
        return replace(bad, cost=math.fsum(end.cost or 0.0 for end in ends))
    found = mean_of([read_kept(end.outcome or "{}") for end in ends], row.definition)
    job_attempt = max(end.job_attempt for end in ends)
    return End(row.id, row.attempt, *found, job_attempt, ends[0].directory)


def _evaluated(returned: Any, change: AgentChange, row: Claimed) -> tuple[Outcome, bool]:
    """The outcome of a program, and whether another candidate of the same files paid for its evaluation."""
    if not isinstance(returned, dict) or not isinstance(returned.get("outcome"), dict):
        return as_outcome(returned)._replace(cost=change.cost, solution=change.commit), False
    outcome = as_outcome(returned["outcome"])
    is_reused = returned["candidate"] != row.job_id
    cost = change.cost if is_reused else change.cost + outcome.cost
    return outcome._replace(cost=cost, solution=change.commit), is_reused


def failed_end(row: Claimed, message: str) -> End:
    """The end of a row whose job could not be run."""
    failure = JobFailureStatus.REJECTED.name
    return End(
        row.id,
        row.attempt,
        EvolutionStatus.FAILED,
        failure=failure,
        message=message,
        job_attempt=row.job_attempt,
    )


def _returned(files: Files, job: Job) -> Any:
    """What the task of a job that is done returned; a failure if that cannot be read."""
    if job.marker is None:
        return Outcome(failure="the job is done, and left no marker")
    if RESULT_NOT_KEPT in job.marker.flags:
        return Outcome(failure=job.marker.message)
    try:
        raw = read_result(files, job.paths, job.marker)
        return readable(_with_measures(raw, job.paths.directory))
    except (OSError, WorkspaceError, SerializationError, ValueError) as error:
        return Outcome(failure=f"what the task returned cannot be read: {error}")


def _with_measures(raw: Any, directory: str) -> Any:
    """What a task returned, with measures that were an array of numpy, which lies in a file, as a list."""
    fields = opened(raw)
    measures = fields.get("measures") if isinstance(fields, dict) else None
    if isinstance(measures, dict) and measures.get("$file", {}).get("codec") == "numpy":
        return {**fields, "measures": plain(decoded(measures, directory))}
    return raw


# The membership of one worker: its line among the members of a database, and the file that its runners watch.
# Knows no rows.


class Membership:
    """A worker as others see it."""

    def __init__(
        self, database: Database, machine: Machine, workspace: Path, *, slots: int, is_leased: bool
    ) -> None:
        """`is_leased`: runners of the workspace end their payloads when the worker's file grows old."""
        own = machine.processes.own()
        self.name = f"{own.host[:32]}-{own.pid}-{machine.randomness.nonce()[:8]}"
        self._database = database
        self._file = workspace / LEASE_FILE if is_leased else None
        self._member = Member(
            self.name, MemberKind.WORKER, own.host, process_text(own), str(workspace), slots
        )

    def join(self) -> None:
        """Is listed among the members."""
        self._database.write(lambda connection: join(connection, self._member))
        self._touch()

    def be_seen(self) -> None:
        """Says that the worker lives and that its leases hold; called after each renewal that succeeded."""
        self._database.write(partial(_see, self._member))
        self._touch()

    def leave(self) -> None:
        """Is listed no more."""
        self._database.write(lambda connection: leave(connection, self.name))

    def _touch(self) -> None:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.touch()
            os.utime(self._file)


def _see(member: Member, connection: Connection) -> None:
    if not see(connection, member.id):
        join(connection, member)


T = TypeVar("T")
_AFTER_TROUBLE_S = 1.0
_POINTS_S = 0.5

log = logging.getLogger("tenuto.search")


class Held:
    """A row that the worker runs; the row changes if it is claimed again."""

    def __init__(self, row: Claimed, now: float) -> None:
        self.row = row
        self.is_with_agent = row.task_id == PROGRAM_TASK
        """An agent changes it: it needs no slot of evaluations yet."""
        self.is_withdrawn = False
        self.submissions: list[asyncio.Task[Job]] = []
        """The submissions of its jobs that have not ended, from the moment at which a job may begin."""
        self.steps: set[int] = set()
        """Its points that are rows already."""
        self.claimed_at = now
        """On the monotonic clock."""

    @property
    def jobs(self) -> list[Job]:
        """Its jobs that were submitted and have not ended."""
        done = [one for one in self.submissions if one.done() and not one.cancelled()]
        return [one.result() for one in done if not one.exception()]


class WorkerLoop:
    """Evaluates candidates of all running searches of a database, or of some of them."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        workspace: Path,
        machine: Machine,
        *,
        slots: int,
        only: Collection[str] | None = None,
        is_leased: bool = False,
        is_passing: bool = False,
        gpus: GpuToken | None = None,
    ) -> None:
        """`only`: the searches to work for. `is_leased`: payloads end when the worker cannot renew its
        leases, since another machine may take their rows; not needed where all share one workspace.
        `is_passing`: it ends when nothing is left to claim. `gpus`: each candidate has one to itself."""
        self._store = store
        self._settings = settings
        self._machine = machine
        self._slots = slots
        self._only = only
        self._is_leased = is_leased
        self._is_passing = is_passing
        self._lease_ms = int(settings.search.lease_s * 1000)
        self._jobs = CandidateJobs(
            settings, workspace, machine.clock, slots=slots, is_leased=is_leased, gpus=gpus
        )
        self._points = PointStore(store.database)
        self._metrics = MetricsReader(machine.files)
        self._membership = Membership(store.database, machine, workspace, slots=slots, is_leased=is_leased)
        self.name = self._membership.name
        self._held: dict[str, Held] = {}
        self._ends: list[End] = []
        self._owners: dict[str, PlainOwner] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._is_leaving = False
        self._is_abandoning = False
        self._is_suspicious = False
        """After an error of the database: which rows are ours is read back."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="worker", daemon=True)
        self._calls = ThreadPoolExecutor(2, "worker-database")
        self._guard = threading.Lock()
        self.evaluated = 0
        self.error: Exception | None = None
        """Why the worker ended, if it could not continue."""

    # -- from any thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Joins the database's members, and begins to claim."""
        self._membership.join()
        self._thread.start()

    def drain(self) -> None:
        """Claims nothing more; ends when the running jobs have ended."""
        self._is_draining = True
        self.wake()

    def leave(self) -> None:
        """Ends at once: running jobs continue, and are adopted by the next worker of the workspace."""
        self._is_leaving = self._is_draining = True
        self.wake()

    def abandon(self) -> None:
        """Stops the running jobs, gives the rows back, in this order, and ends."""
        self._is_abandoning = self._is_draining = True
        self.wake()

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits for the end; whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def wake(self) -> None:
        """Has the worker look for something to claim."""
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(wake.set)
            except RuntimeError:
                return  # it ended meanwhile

    def renew(self) -> set[tuple[str, int]]:
        """Prolongs the leases of what runs; returns what is no longer this worker's."""
        with self._guard:
            keys = {held.row.key for held in list(self._held.values())}
            kept = self._store.renew(self.name, keys, self._lease_ms)
            self._membership.be_seen()
        return keys - kept

    @property
    def running(self) -> int:
        """How many candidates it runs."""
        return len(self._held)

    # -- the thread --------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:
            log.exception("the worker ended")
            self.error = error
        finally:
            self._calls.shutdown(wait=False)
            self._jobs.close()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._wake.set()
        self._evaluations = asyncio.Semaphore(self._slots)
        unlisten = self._store.database.wakeups.listen(WORK, self.wake)
        self._scheduler = Scheduler(self._machine)
        renewal = asyncio.create_task(self._renew_always())
        try:
            while not self._is_leaving:
                try:
                    if renewal.done():
                        renewal.result()
                    if self._is_abandoning:
                        await self.stop_payloads()
                        break
                    await self._step()
                except DatabaseError as error:
                    log.warning("the worker waits for its database: %s", error)
                    self._is_suspicious = True
                    await asyncio.sleep(_AFTER_TROUBLE_S)
                    continue
                if self._is_draining and not self._held and not self._ends:
                    break
                await self._wait()
        finally:
            unlisten()
            renewal.cancel()
            await self._end()

    async def _step(self) -> None:
        self._wake_event.clear()
        if self._is_suspicious:
            await self._read_back()
        await self._finish_and_claim()
        if self._is_passing and not self._held:
            self._is_draining = True

    @property
    def _wake_event(self) -> asyncio.Event:
        assert self._wake is not None
        return self._wake

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(self._wake_event.wait(), self._settings.search.worker_poll_s)
        except TimeoutError:
            return

    async def _end(self) -> None:
        if not self._is_leaving:
            try:
                await self._call(self._membership.leave)
            except DatabaseError as error:  # it is taken for gone once it has not been seen for a while
                log.warning("the worker could not take its leave: %s", error)
        await asyncio.to_thread(self._scheduler.close)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls a function that blocks, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._calls, partial(function, *arguments))

    # -- rows --------------------------------------------------------------------------------------

    def _begin(self, row: Claimed) -> None:
        held = self._held.get(row.id)
        if held is not None:  # it runs here already: its lease was lost and found
            held.row = row
            held.is_withdrawn = False
            held.steps.clear()
            return
        held = self._held[row.id] = Held(row, self._machine.clock.monotonic())
        task = asyncio.create_task(self._evaluate(held))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _evaluate(self, held: Held) -> None:
        try:
            if await self._is_lost(held):
                self._held.pop(held.row.id, None)
                return
            end = await self._row_end(held)
        except SchedulerClosed:
            return
        except Exception as error:  # whatever goes wrong, the row must not hang
            log.exception("a candidate could not be run")
            end = failed_end(held.row, f"{type(error).__name__}: {error}")
        if self._is_abandoning and end.status is not EvolutionStatus.SUCCEEDED:
            return  # stopped by ourselves: the row is given back
        self._ends.append(end)
        self._wake_event.set()

    async def _row_end(self, held: Held) -> End:
        """Runs the jobs of a candidate: of a program the agent's, then the evaluation of its changes."""
        change: AgentChange | None = None
        if held.is_with_agent:
            job = await self._answered(held)
            change = await self._call(changed, self._machine.files, job)
            if change is None:
                return await self._call(end_of, self._machine.files, job, held.row)
            held.is_with_agent = False
            self._wake_event.set()  # the next agent may begin
            known = await self._known(held, change)
            if known is not None:
                return known_end(held.row, change, known)
        count = held.row.definition.get("repeats", 1)
        further = held.row.definition.get("repeat_best", 0)
        if count + further == 1:
            return await self._evaluation(held, change)
        ends = await asyncio.gather(*(self._evaluation(held, None, repeat) for repeat in range(count)))
        if further and await self._would_be_best(held.row, mean_end(held.row, ends)):
            more = range(count, count + further)
            ends += await asyncio.gather(*(self._evaluation(held, None, repeat) for repeat in more))
        return mean_end(held.row, ends)

    async def _known(self, held: Held, change: AgentChange) -> str | None:
        """The outcome of another candidate of the same files, also if another worker evaluates that now."""
        begin = self._store.begin_evaluation
        known, is_elsewhere = await self._call(begin, held.row.key, change.directory)
        while is_elsewhere and not held.is_withdrawn:
            await asyncio.sleep(self._settings.search.worker_poll_s)
            known, is_elsewhere = await self._call(begin, held.row.key, change.directory)
        return known

    async def _evaluation(self, held: Held, change: AgentChange | None, repeat: int = 0) -> End:
        async with self._evaluations:
            if held.is_withdrawn:
                return failed_end(held.row, WITHDRAWN)
            job = await self._answered(held, change, repeat)
        return await self._call(end_of, self._machine.files, job, held.row, change)

    async def _would_be_best(self, row: Claimed, end: End) -> bool:
        search = await self._call(self._store.search, row.search_id)
        best = None if search is None else search.best_objective
        if end.objective is None or best is None:
            return end.objective is not None
        return (
            end.objective > best if row.definition.get("direction", "max") == "max" else end.objective < best
        )

    async def _answered(self, held: Held, change: AgentChange | None = None, repeat: int = 0) -> Job:
        """A job of a candidate, once it shows an end that the row does not know.

        At its first claim only DONE may be older: another search found the rest, and may have pruned the job.
        A row whose worker died was claimed before: what its job shows is its own end.
        """
        is_first = held.row.attempt == 1 and held.row.deaths == 0 and change is None
        began = self._machine.clock.now()
        job, owner = await self._submitted(held, change, repeat, once=True)
        ended = None if job.marker is None else job.marker.endtime
        is_old = is_first and ended is not None and ended < began
        if job.state is not JobState.DONE and (is_old or job.attempt <= held.row.job_attempt):
            self._scheduler.forget(job, owner)
            job, owner = await self._submitted(held, change, repeat, once=False)
        self._scheduler.forget(job, owner)
        return job

    async def _is_lost(self, held: Held) -> bool:
        """Whether the row went to another worker between its claim and its start: this process was frozen."""
        late = self._machine.clock.monotonic() - held.claimed_at > self._settings.search.lease_s / 2
        if not self._is_leased or not late:
            return False
        try:
            return held.row.key in await self._call(self.renew)
        except DatabaseError:
            self._is_suspicious = True  # the row is given back, if it is ours, once the database answers
            return True

    async def _submitted(
        self, held: Held, change: AgentChange | None, repeat: int, *, once: bool
    ) -> tuple[Job, PlainOwner]:
        row = held.row
        owner = self._owners.get(row.search_id)
        if owner is None:
            owner = self._owners[row.search_id] = PlainOwner(f"search/{row.search_id}")
        if self._is_abandoning:
            raise SchedulerClosed("the agent gives its rows back")
        made = self._jobs.make(row, change, once=once, repeat=repeat)
        submission = asyncio.create_task(self._scheduler.submit_async(made, owner))
        held.submissions.append(submission)
        try:
            job = await submission
            await self._finished(held, job)
        finally:
            held.submissions.remove(submission)
        return job, owner

    async def _finished(self, held: Held, job: Job) -> None:
        """Waits for the end of a job, and keeps its metrics meanwhile if a pruner is set."""
        if held.row.definition.get("pruner") is None:
            await job.finished()
            return
        ended = asyncio.create_task(job.finished())
        try:
            while not ended.done():
                await asyncio.wait([ended], timeout=_POINTS_S)
                await self._keep_points(held, job, ended.done())
        finally:
            ended.cancel()

    async def _keep_points(self, held: Held, job: Job, has_ended: bool) -> None:
        """Writes what a candidate logged since; one that was pruned is stopped."""
        row = held.row
        curves = await self._call(self._metrics.read, job.paths.metrics)
        points = [(one.step, one.value) for one in curves.get(row.definition["metric"], ())]
        new = [point for point in points if point[0] not in held.steps]
        is_max = row.definition.get("direction", "max") == "max"
        try:
            add = partial(self._points.add_points, has_ended=has_ended)
            is_own = await self._call(add, row, new, is_max)
        except DatabaseError as error:
            log.warning("what a candidate logged could not be stored: %s", error)
            return
        held.steps.update(step for step, _ in new)
        if not is_own and not held.is_withdrawn:
            await self._withdraw([row.key])

    async def _finish_and_claim(self) -> None:
        """Writes all ends that came together and claims what their slots may run next, in one transaction."""
        ends = self._ends[:]
        free, agents = (0, 0) if self._is_draining else self._free({end.id for end in ends})
        if not ends and free <= 0 and agents <= 0:
            return
        request = (
            ClaimRequest(self.name, free, self._lease_ms, self._only, agents)
            if free > 0 or agents > 0
            else None
        )
        most = self._settings.search.max_attempts
        try:
            _, rows = await self._call(self._store.finish_and_claim, ends, most, request)
        except DatabaseError:
            raise
        except Exception:
            if not ends:
                raise
            rows = []  # claimed once the ends are stored
            await self._finish_one_by_one(ends, most)
        del self._ends[: len(ends)]
        for end in ends:
            self._held.pop(end.id, None)
        self.evaluated += len(ends)
        for row in rows:
            self._begin(row)

    def _free(self, ended: Collection[str]) -> tuple[int, int]:
        """How many more rows it may hold: of those that are evaluated, and of those that an agent changes."""
        held = [one for one in self._held.values() if one.row.id not in ended]
        with_agents = sum(one.is_with_agent for one in held)
        evaluated = len(held) - with_agents
        # A row that waits here was proposed long ago: no more of them than keep the slots busy while
        # all agents, which may end at the same time, are at work again.
        is_enough = evaluated >= self._slots + self._settings.search.agent_slots
        agents = 0 if is_enough else self._settings.search.agent_slots - with_agents
        return self._slots - evaluated, agents

    async def _finish_one_by_one(self, ends: Sequence[End], most: int) -> None:
        """Writes ends of which the database refuses one: a row that cannot have its end has failed."""
        for end in ends:
            try:
                await self._call(self._store.finish, [end], most)
            except DatabaseError:
                raise
            except Exception as error:
                log.exception("an end could not be stored")
                words = f"its end could not be stored: {type(error).__name__}: {error}"
                await self._call(self._store.finish, [failed_end(self._held[end.id].row, words)], most)

    async def _read_back(self) -> None:
        own = await self._call(self._store.own, self.name)
        self._is_suspicious = False
        ended = {end.id for end in self._ends}
        known = {held.row.key for held in self._held.values()}
        await self._withdraw(known - own - {key for key in known if key[0] in ended})
        forgotten = own - known  # claimed by a transaction whose answer was lost
        if forgotten:
            await self._call(self._store.give_back, forgotten)

    async def _renew_always(self) -> None:
        while True:
            await asyncio.sleep(self._settings.search.lease_s / 4)
            try:
                await self._withdraw(await self._call(self.renew))
            except DatabaseError as error:
                log.warning("the leases could not be renewed: %s", error)
                self._is_suspicious = True

    async def _withdraw(self, keys: Collection[tuple[str, int]]) -> None:
        """Ends the jobs of rows that are no longer ours: cancelled by a person, or given to another."""
        for row_id, attempt in keys:
            held = self._held.get(row_id)
            if held is None or held.row.attempt != attempt:
                continue
            held.is_withdrawn = True
            for job in held.jobs:
                task = asyncio.create_task(self._withdraw_one(job, self._owners[held.row.search_id]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _withdraw_one(self, job: Job, owner: PlainOwner) -> None:
        try:
            await self._scheduler.withdraw(job, owner, WITHDRAWN)
        except SchedulerClosed:
            return

    async def stop_payloads(self) -> int:
        """Ends the running jobs and gives the rows back, in this order; how many rows."""
        # A job that is being submitted now would begin after its row was given back, beside another's.
        begun = [submission for one in self._held.values() for submission in one.submissions]
        await asyncio.gather(*begun, return_exceptions=True)
        jobs = [(job, self._owners[one.row.search_id]) for one in self._held.values() for job in one.jobs]
        await asyncio.gather(*(self._withdraw_one(job, owner) for job, owner in jobs))
        await self._finish_and_claim()  # nothing is claimed any more
        return await self._call(self._store.give_back, {one.row.key for one in self._held.values()})
