"""The queue of one scheduler's jobs for the tokens of one directory, and the step that gives out free units.
It holds the protocol of docs/adr/0009; the rule which job is next is in `token_decisions`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from contextlib import closing

from tenuto.lifecycle.states import JobState
from tenuto.scheduler.entries import Phase
from tenuto.scheduler.inputs import Ended, Granted, Input, Unwanted
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.loop import Loop
from tenuto.scheduler.shortages import shortage, worded
from tenuto.scheduler.token_alarm import Alarm
from tenuto.scheduler.token_decisions import Absentees, Picks, decide, names_of, tokens_of, why_waiting
from tenuto.scheduler.token_grants import (
    GrantOutcome,
    declare_missing,
    is_run_by_others,
    refusal,
    take,
    take_again,
)
from tenuto.scheduler.token_slots import TokenSlots
from tenuto.scheduler.tokens import Grant, beyond
from tenuto.workspace.inotify import DirectoryWatch
from tenuto.workspace.job_directory import Ask
from tenuto.workspace.ports import LockHandle, Machine
from tenuto.workspace.token_files import Need, Ticket, TicketQueue, TokenFiles, TokenPlace, TokenState

MOST_TICKETS = 100
"""Of one scheduler, for the same tokens, at a time."""


class TokenQueue:
    """Gives out the tokens of one directory; to be used in the loop's thread only."""

    def __init__(
        self,
        machine: Machine,
        slots: TokenSlots,
        loop: Loop,
        watch: Callable[[str], DirectoryWatch | None],
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
        self._alarm = Alarm(loop, watch, place.directory, told=self.pump, unsure=self._poll)
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
        """Whether the job still has what it was given."""
        return self._held.get(job) is grant

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def close(self) -> None:
        """Lets go of everything; its waiting jobs are forgotten by the other schedulers, too."""
        self._is_closed = True
        for grant in self._held.values():
            grant.close()
        self.sign_out()
        self._alarm.close()

    # One look at the queue

    def pump(self) -> None:
        """Gives out what can be given out now."""
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
        except Exception as error:  # noqa: BLE001  the one job is ended, and the others go on
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
        elif job.state is JobState.WAITING and job.standing.message != message:
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
        except OSError as error:  # it goes on waiting for its tokens; its start will say more
            self._tell(job, f"cannot be looked at: {worded(error)}")
            return False
