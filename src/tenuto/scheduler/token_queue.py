"""The queue of one scheduler's jobs for the tokens of one directory, and the step that gives out free units.
It holds the protocol of docs/adr/0009; the rule which job is next is in `tokens`.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import NamedTuple

from tenuto.errors import TokenError
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import Verdict, failure, shortage, worded
from tenuto.scheduler.entries import Phase
from tenuto.scheduler.inputs import Ended, Granted, Input, Unwanted
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.loop import Loop
from tenuto.scheduler.shared_slots import TokenAlarm, TokenSlots
from tenuto.scheduler.tokens import (
    Absentees,
    Grant,
    Picks,
    beyond,
    decide,
    names_of,
    place_of,
    tokens_of,
    why_waiting,
)
from tenuto.workspace import job_directory
from tenuto.workspace.derive_table import Action
from tenuto.workspace.job_directory import Ask
from tenuto.workspace.ports import LockHandle, Machine
from tenuto.workspace.records import TokenUnits
from tenuto.workspace.token_files import (
    MOST_UNITS,
    Need,
    Ticket,
    TicketQueue,
    TokenFiles,
    TokenPlace,
    TokenState,
)

# The locks that a job with tokens starts with: its own and its units', all or none.
# `take` and `take_again` are to be called under the mutex of the tokens.


logger = logging.getLogger("tenuto.scheduler")


class GrantOutcome(NamedTuple):
    """What one look at a queue led to."""

    granted: list[tuple[Job, Grant]]
    refused: list[tuple[Job, Exception | str]]

    def jobs(self) -> set[Job]:
        """The jobs that wait no longer."""
        return {job for job, _ in (*self.granted, *self.refused)}


def take(machine: Machine, files: TokenFiles, job: Job, picks: Picks) -> Grant | None:
    """The job's lock, then the units, token by token; None if a unit is not to be had.

    The grant has no lock if another scheduler runs the job: then it is to be watched, and needs no units.
    """
    with ExitStack() as undo:
        lock = job_directory.take_lock(machine, job.paths)
        if lock is None:
            return Grant(None)
        undo.callback(lock.close)
        handles: list[LockHandle] = []
        for token in sorted(picks):
            taken = files.take(token, picks[token])
            if taken is None:
                return None
            for handle in taken:
                undo.callback(handle.close)
            handles += taken
        undo.pop_all()
    environment: dict[str, str] = {}
    for token_, _ in job.tokens:
        environment.update(token_.environment(picks[token_.name]))
    units = [TokenUnits(name, picks[name]) for name in sorted(picks)]
    return Grant(lock, units, handles, environment, files.place.directory)


def take_again(machine: Machine, files: TokenFiles, job: Job) -> Grant:
    """The units that `locks.json` says a job has, which another scheduler started on an external launcher."""
    recorded = job_directory.read_locks(machine.files, job.paths, job.attempt)
    handles: list[LockHandle] = []
    for name, units in recorded.tokens if recorded else ():
        for unit in units:
            taken = files.take(name, (unit,))
            if taken is None:
                logger.warning(
                    "unit %d of token %s is another job's, though %s still runs with it",
                    unit,
                    name,
                    job.job_id,
                    extra={"action": "token_lost"},
                )
            else:
                handles += taken
    return Grant(None, handles=handles)


def declare_missing(files: TokenFiles, job: Job) -> None:
    """Write the capacities of a job's tokens whose files a person removed."""
    for token, _ in job.tokens:
        if token.capacity and files.capacity(token.name) is None:
            files.declare(token.name, token.capacity)


def is_run_by_others(machine: Machine, job: Job, ask: Ask) -> bool:
    """True if another scheduler runs a job, or has run it: then it needs no tokens here.

    A `.done` alone does not say so: beside a `.failed` it does not count, and the job is to be run. Nor does
    that of the attempt which is to be made again: a job that was taken for run by others is looked at once
    more, found to be run, and asks for its tokens again, for ever.
    """
    files, paths = machine.files, job.paths
    if machine.locks.is_locked(paths.lock):
        return True
    if files.stat(paths.done) is not None:
        done = job_directory.look(machine, paths).derived
        is_again = done.marker is not None and done.marker.nonce == job.rerun_of
        if done.state is JobState.DONE and not is_again:
            return True
    if files.stat(paths.launch) is None:
        return False
    found = job_directory.look(
        machine, paths, ask=ask
    ).derived  # a job that a cluster has is run without a lock
    return found.external and found.action is Action.WATCH


def refusal(job: Job, error: Exception | str) -> Verdict:
    """The end of a job that can never have the tokens it asks for."""
    if isinstance(error, str):
        return Verdict(JobState.ERROR, JobFailureStatus.FAILED, error)
    return failure(job.job_id, error)


MOST_TICKETS = 100
"""Of one scheduler, for the same tokens, at a time."""


class TokenQueue:
    """Gives out the tokens of one directory; to be used in the loop's thread only."""

    def __init__(
        self,
        machine: Machine,
        slots: TokenSlots,
        loop: Loop,
        ask: Ask,
        feed: Callable[[Input], None],
        place: TokenPlace,
    ) -> None:
        """`ask` asks the cluster of an attempt; `feed` tells the core."""
        self.files = TokenFiles(machine, place)
        self._machine = machine
        self._feed = feed
        self._slots = slots
        self._ask = ask
        self._alarm = TokenAlarm(loop, place.directory, told=self.pump, unsure=self._poll)
        self._waiting: set[Job] = set()
        self._lines: dict[tuple[str, ...], deque[Job]] = {}
        """The jobs that wait without a ticket, by the tokens they want, in the order they came."""
        self._tickets: dict[int, Job] = {}
        """The jobs that wait with a ticket, by its number."""
        self._own: LockHandle | None = None
        """The lock whose byte is this scheduler's number."""
        self._to_adopt: list[Job] = []
        self._held: dict[Job, Grant] = {}
        """What jobs got, until they gave it back."""
        self._others: dict[int, tuple[Need, ...]] = {}
        """What others waited for when this scheduler looked last, by the numbers of their tickets."""
        self._absentees = Absentees()
        self._is_pumping = False
        self._is_closed = False

    # What the scheduler does

    def ask(self, job: Job) -> None:
        """A job is ready, and has a slot if it gets its tokens now."""
        if job in self._waiting:  # it fell asleep, and was needed again before the desk looked
            self.pump()
            return
        if self._slots.has_room(job) and self._is_run_by_others(job):
            self._leave_to_others(job)
            return
        has_company = any(
            other.needs == job.needs and other.launcher is job.launcher for other in self._tickets.values()
        )
        self._waiting.add(job)
        self._lines.setdefault(names_of(job.needs), deque()).append(job)
        if has_company:  # one with the same needs waits before it: there is nothing to try
            self._alarm.soon()
            self._tell(job, "waits its turn")
        else:
            self.pump()

    def withdraw(self, job: Job) -> None:
        """A job no longer waits."""
        if job in self._waiting:
            self._waiting.discard(job)
            self._alarm.soon()

    def adopt(self, job: Job) -> None:
        """Takes the units of a job that another scheduler started on an external launcher."""
        self._to_adopt.append(job)
        self.pump()

    def release(self, job: Job, grant: Grant | None = None) -> None:
        """The job does not need its units any more; `grant`: only those, if it has got others meanwhile."""
        held = self._held.get(job)
        if held is not None and (grant is None or held is grant):
            del self._held[job]
            held.close()

    def holds(self, job: Job, grant: Grant) -> bool:
        """Whether the job still has its grant."""
        return self._held.get(job) is grant

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def close(self) -> None:
        """Releases everything; its waiting jobs are forgotten by the other schedulers, too."""
        self._is_closed = True
        for grant in self._held.values():
            grant.close()
        self.sign_out()
        self._alarm.close()

    # One look at the queue

    def pump(self) -> None:
        """Gives out the free units."""
        if self._is_pumping or self._is_closed:
            return
        if not self._waiting and not self._tickets and not self._to_adopt:
            self._alarm.rest()
            return
        self._is_pumping = True
        outcome = GrantOutcome([], [])
        try:
            mutex = self.files.try_mutex()
            if mutex is None:
                self._alarm.busy()
            else:
                self._alarm.got_through()
                with closing(mutex):
                    self._turn(outcome)
                self._alarm.recovered()
        except Exception as error:  # noqa: BLE001  whatever goes wrong, no job must be left hanging
            self._trouble(error, outcome)
        finally:
            self._is_pumping = False
        self._settle(outcome)

    def _settle(self, outcome: GrantOutcome) -> None:
        self._waiting -= outcome.jobs()
        for job, grant in outcome.granted:
            self._held[job] = grant
            self._feed(Granted(job, grant))
        for job, error in outcome.refused:
            self._feed(Ended(job, refusal(job, error)))
        if self._waiting:
            self._alarm.set()

    def _trouble(self, error: Exception, outcome: GrantOutcome) -> None:
        passing = shortage(error)
        if passing is not None:
            self._alarm.short()
        for job in sorted(self._waiting - outcome.jobs(), key=lambda job: job.key):
            if passing is None:
                outcome.refused.append((job, error))
            else:
                self._tell(job, f"waits until the machine recovers: {worded(passing)}")

    def _turn(self, outcome: GrantOutcome) -> None:
        """Steps P2 to P7, under the mutex."""
        before = self.files.queue()
        own = self._number()
        living = self.files.living()
        while self._to_adopt:
            self._take_again(self._to_adopt.pop())
        self._drop_unwanted()
        tickets = [
            ticket
            for ticket in before.tickets
            if ticket.scheduler in living and (ticket.scheduler != own or ticket.number in self._tickets)
        ]
        self._watch_what_others_got(tickets, own, outcome)
        next_number = self._draw_tickets(tickets, own, before.next_number)
        states = {token: self.files.state(token) for token in tokens_of(tickets)}
        self._refuse_impossible(states, outcome)

        def job_of(ticket: Ticket) -> Job | None:
            return self._tickets.get(ticket.number) if ticket.scheduler == own else None

        def is_parked(ticket: Ticket) -> bool:
            job = job_of(ticket)
            return ticket.parked if job is None else not self._slots.has_room(job)

        def claim(ticket: Ticket, picks: Picks) -> bool | None:
            job = job_of(ticket)
            if job is None:
                return None
            if job in outcome.jobs() or not self._slots.has_room(job):
                return False
            return self._grant(job, picks, outcome)

        decision = decide(
            tickets,
            {token: state.free() for token, state in states.items()},
            ignored=lambda ticket: is_parked(ticket) or ticket.number in self._absentees,
            claim=claim,
        )
        settled = outcome.jobs()
        left = tuple(
            ticket._replace(parked=is_parked(ticket))
            for ticket in decision.tickets
            if job_of(ticket) not in settled
        )
        self._tickets = {number: job for number, job in self._tickets.items() if job not in settled}
        self._absentees.note(decision.able, left, own, self._machine.clock.monotonic())
        for job in self._tickets.values():
            has_room = self._slots.has_room(job)
            self._tell(job, why_waiting(job.needs, states) if has_room else "waits for a slot")
        if left != before.tickets:  # a number that no scheduler has seen may be given once more
            self.files.write_queue(TicketQueue(next_number, left))

    def _number(self) -> int:
        """This scheduler's number. Tickets that bear it from before are a dead one's: no job has them."""
        if self._own is None or not self._own.intact():  # a person removed the files
            self.sign_out()
            self._own = self.files.sign_in()
        return self._own.byte

    def sign_out(self) -> None:
        """Gives the number back; tickets that bear it do not count any more."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def _take_again(self, job: Job) -> None:
        self.release(job)
        if not job.state.finished():
            self._held[job] = take_again(self._machine, self.files, job)

    def _drop_unwanted(self) -> None:
        for number, job in list(self._tickets.items()):
            if not self._still_waits(job):
                del self._tickets[number]

    def _still_waits(self, job: Job) -> bool:
        if job not in self._waiting:
            return False
        if job.phase is not Phase.WANTS_TOKENS:  # a transient job that no job needs any more
            self._waiting.discard(job)
            return False
        if not self._slots.is_wanted(job):
            self._waiting.discard(job)
            self._feed(Unwanted(job))
            return False
        return True

    def _draw_tickets(self, tickets: list[Ticket], own: int, next_number: int) -> int:
        """Appends tickets for those without, in the order they came, a limited number for the same tokens."""
        known = {ticket.number for ticket in tickets if ticket.scheduler == own}
        for number in sorted(self._tickets.keys() - known, reverse=True):  # the queue was lost
            job = self._tickets.pop(number)
            self._lines.setdefault(names_of(job.needs), deque()).appendleft(job)
        drawn = Counter(names_of(job.needs) for job in self._tickets.values())
        for names, line in list(self._lines.items()):
            while line and drawn[names] < MOST_TICKETS:
                job = line.popleft()
                if self._still_waits(job):
                    drawn[names] += 1
                    self._tickets[next_number] = job
                    tickets.append(Ticket(next_number, own, job.needs))
                    next_number += 1
            if not line:
                del self._lines[names]
        return next_number

    def _refuse_impossible(self, states: dict[str, TokenState], outcome: GrantOutcome) -> None:
        for job in self._tickets.values():
            for need in job.needs:
                if states[need.token].capacity is None:  # a person removed the file
                    declare_missing(self.files, job)
                    states[need.token] = self.files.state(need.token)
                problem = beyond(need, states[need.token].capacity or 0)
                if problem is not None:
                    outcome.refused.append((job, problem))
                    break

    def _grant(self, job: Job, picks: Picks, outcome: GrantOutcome) -> bool:
        try:
            grant = take(self._machine, self.files, job, picks)
        except Exception as error:  # noqa: BLE001  the one job is ended, and the others continue
            if shortage(error) is None:
                outcome.refused.append((job, error))
            return False
        if grant is None:
            return False
        if not self._slots.take(job, to_run=grant.lock is not None):
            grant.close()
            return False
        outcome.granted.append((job, grant))
        return grant.lock is not None

    # Telling

    def _tell(self, job: Job, message: str) -> None:
        if job.state is JobState.READY:
            job.set_state(JobState.WAITING, message=message)
        elif job.state is JobState.WAITING and job.state_record.message != message:
            job.explain(message)

    # What others run

    def _poll(self) -> None:
        self._watch_what_others_run()
        self.pump()

    def _watch_what_others_run(self) -> None:
        """A job that another scheduler runs, or has run, needs no tokens here."""
        for job in list(self._tickets.values()):
            if job in self._waiting and self._slots.has_room(job) and self._is_run_by_others(job):
                self._leave_to_others(job)

    def _leave_to_others(self, job: Job) -> None:
        self._slots.take(job, to_run=False)
        self._settle(GrantOutcome([(job, Grant(None))], []))

    def _watch_what_others_got(self, tickets: list[Ticket], own: int, outcome: GrantOutcome) -> None:
        """A ticket of another scheduler is gone: it may have been for a job that waits here, too."""
        others = {ticket.number: ticket.needs for ticket in tickets if ticket.scheduler != own}
        gone = {needs for number, needs in self._others.items() if number not in others}
        self._others = others
        for job in dict.fromkeys(self._tickets.values()) if gone else ():  # one may have two tickets
            if job.needs in gone and self._slots.has_room(job) and self._is_run_by_others(job):
                self._slots.take(job, to_run=False)
                outcome.granted.append((job, Grant(None)))

    def _is_run_by_others(self, job: Job) -> bool:
        try:
            return is_run_by_others(self._machine, job, self._ask)
        except OSError as error:  # it continues waiting for its tokens; its start will say more
            self._tell(job, f"cannot be looked at: {worded(error)}")
            return False


# The queues for tokens of one scheduler: one for each directory of tokens that its jobs use.
# A scheduler whose jobs need no tokens has none.


class TokenQueues:
    """All queues of one scheduler; a job goes to that of its tokens."""

    def __init__(self, machine: Machine, make: Callable[[TokenPlace], TokenQueue]) -> None:
        """`make` makes the queue of a directory of tokens."""
        self._make = make
        self._machine = machine
        self._queues: dict[str, TokenQueue] = {}

    def check(self, job: Job) -> None:
        """Raises `TokenError` if the job asks for more than there can be; from any thread."""
        files = TokenFiles(self._machine, _place(job))
        for need in job.needs:
            capacity = files.capacity(need.token)
            problem = beyond(need, MOST_UNITS if capacity is None else capacity)
            if problem is not None:
                raise TokenError(problem)

    def ask(self, job: Job) -> None:
        self._queue(job).ask(job)

    def adopt(self, job: Job) -> None:
        self._queue(job).adopt(job)

    def withdraw(self, job: Job) -> None:
        self._queue(job).withdraw(job)

    def release(self, job: Job, grant: Grant | None = None) -> None:
        """A job does not need its units any more; `grant`: only those, if it has got others meanwhile."""
        self._queue(job).release(job, grant)

    def holds(self, job: Job, grant: Grant | None) -> bool:
        """Whether a job still has its grant; a job without a grant needs none."""
        return grant is None or self._queue(job).holds(job, grant)

    def pump(self) -> None:
        """Jobs that wait with tokens may have a free slot, before jobs that are ready."""
        for queue in self._queues.values():
            if not queue.is_idle:
                queue.pump()

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()

    def _queue(self, job: Job) -> TokenQueue:
        place = _place(job)
        if place.directory not in self._queues:
            self._queues[place.directory] = self._make(place)
        return self._queues[place.directory]


def _place(job: Job) -> TokenPlace:
    """A launcher's lock alone is queued for in its workspace."""
    return place_of(job.tokens, job.layout.token_queue)
