"""The loop of a search, tick after tick: recover what was lost, tell what ended, decide, propose, dispatch.
What the sampler makes of it is in `replica`; the rows are in `store`. A stage that raises stops no other.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sqlalchemy import Connection

from tenuto.clock import Clock, SystemClock
from tenuto.database import Database, MemberKind, leave, listed
from tenuto.lifecycle.evolution import SearchEnd, SearchState
from tenuto.search.candidate_rows import SEARCH
from tenuto.search.candidates import Candidates, add_given, with_outcome
from tenuto.search.claimed_rows import has_lost_rows, is_dead
from tenuto.search.opening import default_workspace, open_database
from tenuto.search.points import Pruning
from tenuto.search.programs import ProgramRun
from tenuto.search.pruning import Pruner
from tenuto.search.queues import Queue, open_queue
from tenuto.search.replica import Replica, Tally
from tenuto.search.rows import Added, Caps, LogRow, NewCandidate, Refusal, SearchRow, SearchView, Sent, Told
from tenuto.search.store import Store
from tenuto.settings import Settings
from tenuto.settings.urls import without_secrets
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine, Processes

if TYPE_CHECKING:
    from tenuto.search.worker_loop import WorkerLoop

T = TypeVar("T")
_RECOVER_EVERY_S = 1.0
_SAVE_EVERY_S = 5.0
"""How much of the time that `max_seconds` counts a kill may lose."""
_MOST_RACES = 100
_SENDS_S = 5.0
_PROBE_S = 2.0
_BACKOFF_MS = 1000
"""Before a message that could not be sent is sent again; doubles each time, up to a minute."""
_TOLD_AT_ONCE = 256
STAGES = ("ingested", "recovered", "unfinished", "scheduled", "dispatched")

# -- recover ---------------------------------------------------------------------------------------


class Recovery:
    """Takes back the rows of workers that are gone, for all searches of a database."""

    def __init__(self, store: Store, processes: Processes, workspace: str, max_attempts: int) -> None:
        self._store = store
        self._processes = processes
        self._workspace = workspace
        self._max_attempts = max_attempts

    def is_due(self) -> bool:
        """Whether a row may have to be taken back; a look, which changes nothing."""
        return self._store.database.read(lambda c: has_lost_rows(c) or bool(self._dead(c)))

    def _dead(self, connection: Connection) -> list[str]:
        """The workers of this workspace that are known to be dead."""
        return [
            member.id
            for member in listed(connection, MemberKind.WORKER)
            if member.workspace == self._workspace and is_dead(self._processes, member)
        ]

    def recover(self) -> int:
        """Takes back what can be; how many rows. Costs a row no attempt if its worker died here."""
        database = self._store.database
        dead = database.read(self._dead)
        count = self._store.recover(self._max_attempts, dead)
        if dead:
            database.write(lambda connection: leave(connection, *dead))
        return count


# -- tell ------------------------------------------------------------------------------------------


class Ingestion:
    """Tells the candidates of one search."""

    def __init__(
        self, store: Store, replica: Replica, name: str, *, maximize: bool, window: int | None = None
    ) -> None:
        """`window`: of a reproducible search, whose candidates are told in the order of their numbers."""
        self._store = store
        self._replica = replica
        self._name = name
        self._maximize = maximize
        self._window = window

    def ingest(self, *, is_asked_out: bool) -> int:
        """Tells what ended and was not told; how many. `is_asked_out`: no number can be asked now."""
        replica = self._replica
        if not replica.is_read:
            replica.read_on()
        rows = self._next(is_asked_out)
        while any(row.number > replica.scheduled for row in rows):
            # Another process added them, and may have told them since this one looked: with the counter of
            # now, and rows of before, a candidate was told twice, and its cost counted twice.
            replica.read_on()
            rows = self._next(is_asked_out)
        if not rows:
            return 0

        def tell() -> Sequence[Told]:
            told = []
            for row in rows:
                told.append(replica.tell(row))
                if not replica.is_read:  # set apart: the sampler was begun anew, so the rest waits
                    break
            return told

        try:
            count = self._store.tell(self._name, replica.told, tell, self._maximize)
        except BaseException:
            replica.rebuild()  # whatever was told to it may not be stored
            raise
        if count is None:
            replica.rebuild() if replica.has_unconfirmed else replica.read_on()
            return 0
        if replica.is_read:
            replica.confirm(count)
        return count

    def _next(self, is_asked_out: bool) -> list[LogRow]:
        if self._window is None:
            return self._store.to_tell(self._name, _TOLD_AT_ONCE)
        replica = self._replica
        number = replica.told + 1
        if replica.scheduled < number - 1 + self._window and not is_asked_out:
            return []
        return self._store.to_tell(self._name, 1, number)


# -- decide: functions of values, which read no clock and no row -------------------------------------

MOST_SURROUNDINGS = 5
"""Failures in a row that are the surroundings': more would burn the budget for nothing."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a search ends, and how much may be in flight; None: no bound."""

    max_unfinished: int
    max_total: int | None = None
    batch: int | None = None
    max_seconds: float | None = None
    max_cost: float | None = None
    target: float | None = None
    stall: int | None = None
    seed_population: int = 16
    maximize: bool = True


@dataclass(frozen=True, slots=True)
class DispatchPlan:
    """What to do next: how many candidates to make, and why to stop, if so."""

    to_schedule: int = 0
    stop: SearchEnd | None = None
    ends_now: bool = False
    """Nothing is in flight and everything was told: the search may end."""
    pauses: bool = False
    """The surroundings fail: a person has to repair them first."""


def plan(
    view: SearchView,
    tally: Tally,
    bounds: Bounds,
    *,
    active_s: float = 0.0,
    surroundings: int = 0,
    is_exhausted: bool = False,
) -> DispatchPlan:
    """What a search does next.

    `active_s`: how long it ran; `surroundings`: the failures of the surroundings, not of candidates, that
    came last, in a row; `is_exhausted`: the sampler has nothing to try.
    """
    search, counts = view.search, view.counts
    is_quiet = counts.unfinished == 0 and counts.to_tell == 0
    if search.state is SearchState.ENDED:
        return DispatchPlan()
    if search.state is SearchState.DRAINING:
        return DispatchPlan(ends_now=is_quiet)
    stop = _stop(search, tally, bounds, active_s)
    if stop is not None:
        return DispatchPlan(stop=stop, ends_now=is_quiet)
    if search.state is SearchState.PAUSED:
        return DispatchPlan()
    if surroundings >= MOST_SURROUNDINGS:
        return DispatchPlan(pauses=True)
    if is_quiet and bounds.max_total is not None and search.scheduled >= bounds.max_total:
        return DispatchPlan(stop=SearchEnd.TOTAL, ends_now=True)
    if is_quiet and is_exhausted:
        return DispatchPlan(stop=SearchEnd.EXHAUSTED, ends_now=True)
    return DispatchPlan(to_schedule=_room(search, counts.unfinished, bounds))


def _stop(search: SearchRow, tally: Tally, bounds: Bounds, active_s: float) -> SearchEnd | None:
    best = search.best_objective
    if bounds.target is not None and best is not None:
        is_reached = best >= bounds.target if bounds.maximize else best <= bounds.target
        if is_reached:
            return SearchEnd.TARGET
    if bounds.max_cost is not None and search.cost >= bounds.max_cost:
        return SearchEnd.COST
    if bounds.max_seconds is not None and active_s >= bounds.max_seconds:
        return SearchEnd.TIME
    if bounds.stall is not None and tally.since_better >= bounds.stall:
        return SearchEnd.STALL
    if tally.succeeded == 0 and tally.failed >= bounds.seed_population:
        return SearchEnd.FAILING
    return None


def _room(search: SearchRow, unfinished: int, bounds: Bounds) -> int:
    room = bounds.max_unfinished - unfinished
    if bounds.batch is not None:
        room = min(room, bounds.batch)
    if bounds.max_total is not None:
        room = min(room, bounds.max_total - search.scheduled)
    if bounds.max_cost is not None and search.told and search.cost > 0:
        mean = search.cost / search.told
        # As long as what is in flight is expected to leave something of the budget.
        affordable = int((bounds.max_cost - search.cost) / mean) - unfinished
        room = min(room, affordable if affordable > 0 else int(unfinished == 0))
    return max(room, 0)


def bounds_of(settings: Settings, own: Bounds | None, maximize: bool) -> Bounds:
    """The bounds of a search whose caps the settings give; `own`: those that its `Evolution` declares."""
    search = settings.search
    own = own or Bounds(2 * settings.slots, seed_population=search.seed_population, maximize=maximize)
    return replace(
        own,
        max_unfinished=search.max_unfinished_jobs or own.max_unfinished,
        max_total=search.max_total_jobs,
        batch=search.schedule_batch_size,
    )


# -- propose ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A candidate that was added to the search."""

    job_id: str
    number: int
    values: Any
    parent: int | None
    inspirations: tuple[int, ...]
    reused: bool


class CandidateMaker:
    """Makes candidates of a search from the proposals of its sampler, and adds them.

    Any number of these, in any processes, work on one search.
    """

    def __init__(
        self,
        store: Store,
        replica: Replica,
        candidates: Candidates,
        *,
        caps: Caps,
        maximize: bool = True,
        default_priority: int = 0,
        window: int | None = None,
        bounds: Bounds | None = None,
        pruner: Pruner | None = None,
    ) -> None:
        """`window`: of a reproducible search, how many candidates are in flight, exactly.

        `bounds`, `pruner`: what an `Evolution` declares besides, for every loop that asks this maker.
        """
        self._store = store
        self.replica = replica
        self._candidates = candidates
        self.caps = caps
        self._default_priority = default_priority
        self.maximize = maximize
        self.window = window
        self.bounds = bounds
        self.pruner = pruner
        self.refusal: Refusal | None = None
        """Why the last call added nothing, where it was not the sampler that had nothing."""
        self.is_exhausted = False
        """True while the sampler, as far as the search has come, has nothing to try."""

    def make(self, priority: int | None = None) -> ScheduledJob | None:
        """Adds the next candidate; None if the sampler has none, or `refusal` says why not."""
        replica = self.replica
        priority = self._default_priority if priority is None else priority
        if not replica.is_read:
            replica.read_on()
        for _ in range(_MOST_RACES):
            if self.window is not None and replica.told < replica.scheduled + 1 - self.window:
                self.refusal = Refusal.UNFINISHED
                return None
            added = self._first_added(priority)
            if added is not None or self.refusal is not Refusal.MOVED:
                self.is_exhausted = added is None and self.refusal is None
                return added
            replica.read_on()
        return None

    def _first_added(self, priority: int) -> ScheduledJob | None:
        """Adds the first proposal that the search has not; None if there is none, or `refusal` forbids it."""
        self.refusal = None
        replica = self.replica
        for proposal in replica.proposals():
            new = self._candidates.make(proposal, replica.scheduled + 1, replica.told, priority)
            result = self._store.add(replica.name, new, self.caps)
            if isinstance(result, Added):
                replica.added(result.number, proposal)
                of = (proposal.values, proposal.parent, proposal.inspirations)
                return ScheduledJob(result.id, result.number, *of, result.reused)
            if result is not Refusal.DUPLICATE:
                self.refusal = result
                return None
        return None

    def enqueue(self, values: Any, priority: int = 0, *, skip_if_exists: bool = False) -> int:
        """Adds a candidate of the caller's choice, beyond the cap on unfinished ones; its number."""
        new, is_begun = self._given(values, priority)
        return add_given(self._store, self.replica.name, new, self.caps, skip_if_exists or is_begun)[0]

    def add(self, values: Any, outcome: Any, *, skip_if_exists: bool = False) -> int:
        """Adds a candidate whose outcome is known; its number."""
        name = self.replica.name
        new, _ = self._given(values, 0)
        search = self._store.search(name)
        new = with_outcome(new, outcome, search.definition if search is not None else {})
        return add_given(self._store, name, new, self.caps, skip_if_exists)[0]

    def _given(self, values: Any, priority: int) -> tuple[NewCandidate, bool]:
        """The row of what a person gives, and whether the root was made first, with which programs begin.

        A program is compared with the root, as any other.
        """
        replica = self.replica
        replica.read_on()
        root = replica.sampler.root if isinstance(replica.sampler, ProgramRun) else None
        is_begun = root is not None and not replica.scheduled and self.make() is not None
        proposal = self._candidates.given(values, root)
        return self._candidates.make(proposal, 0, replica.told, priority), is_begun


# -- dispatch --------------------------------------------------------------------------------------


class Console(Protocol):
    """Where a scheduler tells a person something: rich's console, or any with its `print`."""

    def print(self, *objects: Any) -> None: ...


class Maker(Protocol):
    """What the dispatcher asks for new candidates."""

    @property
    def refusal(self) -> Refusal | None: ...

    def make(self, priority: int | None = None) -> Any: ...


class Dispatcher:
    """Has candidates of one search made, as many as may be, and sends out what is next."""

    def __init__(
        self,
        settings: Settings,
        console: Console,
        maker: Maker,
        search_name: str,
        *,
        store: Store | None = None,
        queue: Queue | None = None,
        clock: Clock | None = None,
        max_unfinished: int | None = None,
    ) -> None:
        """`store` and `queue`: by default where the settings say; so is the cap `max_unfinished`."""
        self._settings = settings.search
        own = settings.search.max_unfinished_jobs or 2 * settings.slots
        self._max_unfinished = own if max_unfinished is None else max_unfinished
        self._console = console
        self._maker = maker
        self._name = search_name
        self._opened: Database | None = None
        if store is None:
            self._opened = open_database(settings, default_workspace(settings))
            store = Store(self._opened)
        self._store = store
        self._queue: Queue = queue or open_queue(settings)
        self._clock: Clock = clock or SystemClock()
        self._is_total_told = False
        self.sampler_failures = 0
        """How often in a row the sampler raised, and with which words last."""
        self.sampler_error = ""
        self._failed_at: float | None = None
        """When a send failed last, while the broker is down."""

    def count_unfinished_jobs(self) -> int:
        """How many jobs are PENDING, QUEUED or RUNNING."""
        return self._store.count_unfinished(self._name)

    def schedule_jobs(self, unfinished_jobs: int, *, total_scheduled_jobs: int) -> int:
        """Has new jobs made, as many as both caps allow, and sends them; how many.

        The two numbers are the caller's bounds: the caps themselves are counted in the transaction that adds
        a job, so that numbers that are too low never pass them.
        """
        limit = self._max_unfinished - unfinished_jobs
        if self._settings.schedule_batch_size is not None:
            limit = min(limit, self._settings.schedule_batch_size)
        total = self._settings.max_total_jobs
        if total is not None:
            limit = min(limit, total - total_scheduled_jobs)
            if total_scheduled_jobs >= total:
                self._tell_total(total)
        made: list[Any] = []
        while len(made) < limit:
            job = self._schedule_one()
            if job is None:
                break
            made.append(job)
        self._enqueue_jobs([job.job_id for job in made if not job.reused])
        return len(made)

    def dispatch_pending_jobs(self) -> int:
        """Promotes jobs that wait to QUEUED, by priority and age, and sends them; how many were sent."""
        rows = self._store.dispatch(self._name, self._settings.dispatch_batch_size)
        now = self._clock.monotonic()
        if not rows and self._failed_at is not None and now - self._failed_at >= _PROBE_S:
            rows = self._store.dispatch(self._name, 1, is_probe=True)
        return self._send(rows)

    def close(self) -> None:
        """Closes the connection to the broker, and to a database that the scheduler opened itself."""
        self._queue.close()
        if self._opened is not None:
            self._opened.close()

    def _schedule_one(self) -> Any:
        try:
            job = self._maker.make()
        except Exception as error:  # noqa: BLE001  a sampler is the user's code: told, logged, tried again later
            self.tell_trouble("the sampler failed", error)
            self.sampler_failures += 1
            self.sampler_error = without_secrets(f"{type(error).__name__}: {error}")
            return None
        self.sampler_failures = 0
        if job is None:
            refusal = self._maker.refusal
            if refusal is None:
                self._console.print("[yellow]Sampler returned no job[/]")
            elif refusal is Refusal.TOTAL:
                self._tell_total(self._settings.max_total_jobs)
        return job

    def _tell_total(self, total: int | None) -> None:
        if not self._is_total_told:
            self._is_total_told = True
            self._console.print(f"{_escaped(self._name)}: all {total} candidates are scheduled")

    def _enqueue_jobs(self, ids: Sequence[str]) -> int:
        """Promotes new jobs to QUEUED and sends them."""
        return self._send(self._store.promote(self._name, ids)) if ids else 0

    def _send(self, rows: Sequence[Sent]) -> int:
        failed: list[str] = []
        trouble: Exception | None = None
        began = self._clock.monotonic()
        for row in rows:
            if failed and self._clock.monotonic() - began > _SENDS_S:
                failed.append(row.id)  # a broker that does not answer must not hold up the tick
                continue
            try:
                self._queue.send(row.id)
            except Exception as error:  # noqa: BLE001  whatever a broker's client raises; the others are sent
                trouble = trouble or error
                failed.append(row.id)
        if self._failed_at is not None and len(failed) < len(rows):
            self._failed_at = None
            self._store.forget_backoff(self._name)
        if trouble is not None:
            numbers = [row.number for row in rows if row.id in failed]
            more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
            if self._failed_at is None:  # told once, not every time that a broker which is down is tried
                self.tell_trouble(f"candidate {numbers[0]}{more} could not be sent", trouble)
            self._failed_at = self._clock.monotonic()
            self._store.send_failed(self._name, failed, _BACKOFF_MS)
        return len(rows) - len(failed)

    def tell_trouble(self, what: str, error: Exception) -> None:
        """Logs an error, and shows it to the person who watches."""
        words = without_secrets(f"{type(error).__name__}: {error}")
        log_trouble(f"{self._name}: {what}", error)
        self._console.print(f"[red]{_escaped(f'{self._name}: {what}: {words}')}[/]")


def log_trouble(what: str, error: Exception) -> None:
    """Logs an error with its traceback, by Loguru."""
    from loguru import logger  # noqa: PLC0415  an extra

    # Not `opt(exception=...)`: Loguru would show the values of variables, and passwords among them.
    trace = "".join(traceback.format_exception(error))
    logger.error("{}\n{}", what, without_secrets(trace))


def _escaped(text: str) -> str:
    """Text for a console that reads markup."""
    return text.replace("[", r"\[")


# -- the loop --------------------------------------------------------------------------------------


class SearchLoop:
    """Runs one search, beside any number of others on the same one."""

    def __init__(
        self,
        settings: Settings,
        console: Console,
        maker: CandidateMaker,
        search_name: str,
        *,
        store: Store | None = None,
        queue: Queue | None = None,
        worker: WorkerLoop | None = None,
        workspace: Path | None = None,
        machine: Machine | None = None,
    ) -> None:
        """`store`: by default where the settings say."""
        machine = machine or this_machine()
        workspace = workspace or default_workspace(settings)
        store = store or Store(open_database(settings, workspace))
        self._settings = settings
        self._maker = maker
        self._name = search_name
        self._store = store
        self._bounds = bounds_of(settings, maker.bounds, maker.maximize)
        self._ingestion = Ingestion(
            store, maker.replica, search_name, maximize=maker.maximize, window=maker.window
        )
        self._recovery = Recovery(store, machine.processes, str(workspace), settings.search.max_attempts)
        self._pruning: Pruning | None = None
        if maker.pruner is not None:
            self._pruning = Pruning(store.database, search_name, maker.pruner, maker.maximize)
        self._worker = worker
        self._clock: Clock = machine.clock
        self.dispatcher = Dispatcher(
            settings,
            console,
            maker,
            search_name,
            store=store,
            queue=queue,
            max_unfinished=self._bounds.max_unfinished,
        )
        self._woken = threading.Event()
        self._is_stopping = threading.Event()
        self._is_left = False
        self._seen: tuple[object, ...] | None = None
        self._forgiven: int | None = None
        self._recovered_at = float("-inf")
        self._active_since = self._clock.monotonic()
        self._unsaved_s = 0.0
        self.view: SearchView | None = None
        self.on_tick: Callable[[dict[str, int]], None] | None = None

    # -- one tick ----------------------------------------------------------------------------------

    def tick(self) -> dict[str, int]:
        """Recover what was lost, tell what ended, decide, propose and dispatch; how many of each."""
        counts = dict.fromkeys(STAGES, 0)
        self._count_time()
        counts["recovered"] = self._stage("recovery", self._recover) or 0
        view = self._stage("look", lambda: self._store.view(self._name))
        self.view = view
        if view is None or view.search.state is SearchState.ENDED:
            return counts
        counts["unfinished"] = view.counts.unfinished
        if not self._is_anything_due(view):
            return counts
        if self._pruning is not None and view.counts.running and view.search.state is SearchState.RUNNING:
            self._stage("pruning", self._pruning.prune)
        if view.counts.to_tell:
            counts["ingested"] = self._stage("ingestion", self._ingest) or 0
        unfinished: int | None = view.counts.unfinished
        if counts["ingested"]:  # what was told moved the search: it is counted again
            unfinished = self._stage("count", self._count)
        if unfinished is not None:
            counts["unfinished"] = unfinished
            decided = self._stage("decision", self._decide)
            if decided is not None and decided.to_schedule and not self._is_stopping.is_set():
                counts["scheduled"] = self._stage("schedule", lambda: self._schedule(unfinished)) or 0
        if not self._is_stopping.is_set() and self._may_wait(unfinished):
            counts["dispatched"] = self._stage("dispatch", self.dispatcher.dispatch_pending_jobs) or 0
        self._remember(counts)
        return counts

    def _may_wait(self, unfinished: int | None) -> bool:
        """False if this tick saw that no candidate waits to be dispatched: asking again is a transaction."""
        return unfinished is None or self.view is None or self.view.counts.pending > 0

    def _is_anything_due(self, view: SearchView) -> bool:
        counts = view.counts
        is_same = self._seen == (view.search.changed, view.search.state, counts)
        is_late = self._bounds.max_seconds is not None and self._active_s(view) >= self._bounds.max_seconds
        return (
            not is_same
            or bool(counts.to_tell or counts.pending)
            or is_late
            or bool(self.dispatcher.sampler_failures)
        )

    def _remember(self, counts: dict[str, int]) -> None:
        """If this tick changed nothing, the next one need not look further until something moves."""
        is_still = not any(counts[stage] for stage in STAGES if stage != "unfinished")
        view = self.view
        self._seen = (view.search.changed, view.search.state, view.counts) if view and is_still else None

    def _stage(self, name: str, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except Exception as error:  # noqa: BLE001  told and logged; the other stages continue
            self.dispatcher.tell_trouble(f"{name} failed", error)
            return None

    def _recover(self) -> int:
        now = self._clock.monotonic()
        if now - self._recovered_at < _RECOVER_EVERY_S:
            return 0
        self._recovered_at = now
        if not self._recovery.is_due():
            return 0
        if self._worker is not None and self._worker.running:
            self._worker.renew()  # before rows are taken back: this machine may have slept
        return self._recovery.recover()

    def _ingest(self) -> int:
        asked_out = self._maker.is_exhausted or (
            self._bounds.max_total is not None and self._maker.replica.scheduled >= self._bounds.max_total
        )
        count = self._ingestion.ingest(is_asked_out=asked_out)
        if count:
            self._maker.is_exhausted = False
        return count

    # -- deciding ----------------------------------------------------------------------------------

    def _count(self) -> int:
        """How many candidates are unfinished, by a new look."""
        self.view = self._store.view(self._name)
        return self.view.counts.unfinished if self.view is not None else 0

    def _decide(self) -> DispatchPlan:
        view = self.view
        if view is None:
            return DispatchPlan()
        replica = self._maker.replica
        if not replica.is_read:
            replica.read_on()
        tally = replica.tally
        decided = plan(
            view,
            tally,
            self._bounds,
            active_s=self._active_s(view),
            surroundings=self._surroundings(view, tally.surroundings),
            is_exhausted=self._maker.is_exhausted,
        )
        if decided.to_schedule and not view.counts.unfinished and self._is_sampler_broken():
            return DispatchPlan()
        self._stop(view, decided)
        return decided

    def _is_sampler_broken(self) -> bool:
        """Pauses the search if its sampler raised again and again, and nothing can come to change that."""
        failed, name = self.dispatcher.sampler_failures, self._name
        if failed < MOST_SURROUNDINGS:
            return False
        self.dispatcher.sampler_failures = 0
        words = f"the sampler failed {failed} times in a row: {self.dispatcher.sampler_error}"
        self._store.set_state(name, SearchState.PAUSED, f"{words}; fix it, then run the search again")
        return True

    def _surroundings(self, view: SearchView, count: int) -> int:
        """The failures of the surroundings since a person last had the chance to repair them."""
        if self._forgiven is None or view.search.state is SearchState.PAUSED or count < self._forgiven:
            self._forgiven = count
        return count - self._forgiven

    def _stop(self, view: SearchView, decided: DispatchPlan) -> None:
        if decided.pauses:
            tally = self._maker.replica.tally
            words = f"{tally.surroundings} candidates in a row could not be tried: {tally.last_failure}"
            remedy = f"fix that, then run the search again, or: tenuto resume {self._name}"
            self._store.set_state(self._name, SearchState.PAUSED, f"{words}; {remedy}")
        elif decided.stop in (SearchEnd.TOTAL, SearchEnd.EXHAUSTED):
            self._store.end(self._name, decided.stop)
        elif decided.stop is not None:
            self._store.drain(self._name, decided.stop, self._maker.replica.tally.last_failure)
        elif decided.ends_now and view.search.state is SearchState.DRAINING:
            self._store.end(self._name)

    def _schedule(self, unfinished: int) -> int:
        view = self.view
        return self.dispatcher.schedule_jobs(
            unfinished, total_scheduled_jobs=view.search.scheduled if view else 0
        )

    def _active_s(self, view: SearchView) -> float:
        return view.search.active_ms / 1000 + self._unsaved_s

    def _count_time(self) -> None:
        now = self._clock.monotonic()
        self._unsaved_s += now - self._active_since
        self._active_since = now
        if self._unsaved_s >= _SAVE_EVERY_S:
            self._save_time()

    def _save_time(self) -> None:
        spent_ms = int(self._unsaved_s * 1000)
        if spent_ms and self._stage("clock", lambda: self._spend(spent_ms)):
            self._unsaved_s -= spent_ms / 1000

    def _spend(self, spent_ms: int) -> bool:
        self._store.spend_time(self._name, spent_ms)
        return True

    # -- the loop ----------------------------------------------------------------------------------

    def run_forever(self, once: bool = False) -> None:
        """Ticks until the search ended, was removed, or `stop` was called and its worker has nothing left.

        `once`: until nothing more can be done without waiting.
        """
        unlisten = self._store.database.wakeups.listen(SEARCH, self._woken.set)
        try:
            while True:
                self._woken.clear()
                counts = self.tick()
                if self.on_tick is not None:
                    self.on_tick(counts)
                if self._is_over(once, counts):
                    break
                if not any(counts[stage] for stage in ("ingested", "scheduled", "dispatched")):
                    self._woken.wait(self._settings.search.poll_interval_s)
        finally:
            unlisten()
            self._count_time()
            self._save_time()

    def _is_over(self, once: bool, counts: dict[str, int]) -> bool:
        if self._worker is not None and self._worker.error is not None:
            return True
        if self.view is None:
            return self._stage("look", lambda: self._store.search(self._name)) is None
        if self.view.search.state is SearchState.ENDED:
            return True
        if once:
            return not any(counts[stage] for stage in STAGES if stage != "unfinished")
        if self._is_left:
            return True
        is_idle = self._worker is None or self._worker.running == 0
        search = self.view.search
        if search.state is SearchState.PAUSED and search.message is not None and not self.view.counts.to_tell:
            return is_idle  # it paused by itself: a person has to do something
        return self._is_stopping.is_set() and is_idle and not self.view.counts.to_tell

    def stop(self, at_once: bool = False) -> None:
        """Makes and sends nothing more; `at_once`: does not wait for what runs."""
        self._is_left = self._is_left or at_once  # two interrupts may come here in any order
        self._is_stopping.set()
        self._woken.set()
