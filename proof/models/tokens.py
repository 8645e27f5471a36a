"""Owns the model of tokens: schedulers share units, tickets order their requests, and any may die.
It follows `docs/adr/0009-tokens.md` step by step (P1 to P8). Who gets what is decided by the real `decide`,
for requests that were overtaken so often already that only `LIMIT` times are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proof.models.checker import Step
from proof.models.real import Asked, Units, give_out

LIMIT = 1
"""How often a request may still be overtaken on a token, of the ten times that the code allows."""
NEVER_DUE = 5
"""Patience that outlasts all requests of the model."""

PLANTED = {
    "no mutex": "a pump reads, decides and writes without having locked the mutex",
    "mutex let go before the units": "P8 before P6: somebody else decides on the same queue meanwhile",
    "units beyond the capacity not counted": "`free` is the unlocked units below the capacity, however many "
    "are in use above it",
    "tickets of the dead stay": "P3 does not drop the tickets of schedulers whose byte is free",
    "tickets of a predecessor stay": "P2 takes a number without removing the tickets that bear it",
    "no reservation": "what falls free is never kept for a request that was overtaken often enough",
    "reserved from the next pump on": "an overtaking that is one too many is counted, and the pump continues",
    "overtakings not saved": "P7 does not write the counts of the requests that were passed",
    "others ahead are ignored": "the decision looks at the own tickets only",
    "held while short": "a request takes what it can get and waits for the rest",
    "units stay with the payload": "the payload does not close the descriptors of the units",
    "copies kept": "the scheduler does not close its copies once the runner is confirmed",
    "job's end not noticed": "a request that was granted keeps its ticket",
}

Counts = tuple[int, ...]


class ClaimRequest(NamedTuple):
    """What a job needs of each token, and whose job it is."""

    scheduler: int
    needs: Counts


CAPACITY = (3, 1)
SMALL = (
    ClaimRequest(0, (1,)),
    ClaimRequest(0, (1,)),
    ClaimRequest(0, (1,)),
    ClaimRequest(1, (1,)),
    ClaimRequest(1, (3,)),
)
LARGE = (
    ClaimRequest(0, (1, 0)),
    ClaimRequest(0, (1, 1)),
    ClaimRequest(0, (1, 0)),
    ClaimRequest(1, (1, 1)),
    ClaimRequest(1, (3, 0)),
)


class Request(NamedTuple):
    status: str = "later"
    """later (not ready yet), waits, taking, granted, started, running, done, refused"""
    units: Units = ()
    passed: Counts = ()
    """How often it was really overtaken, by token; what no file knows."""


class Ticket(NamedTuple):
    """A line of queue.json; its number is its place."""

    number: int
    """Of the scheduler: its byte of schedulers.lock."""
    request: int
    overtaken: Counts


class Scheduler(NamedTuple):
    pc: str = "idle"
    """down, idle, pump, take, save, close"""
    number: int = -1
    plan: tuple[tuple[int, Units], ...] = ()
    queue: tuple[Ticket, ...] = ()
    """What it will write."""
    capacity: Counts = ()
    """What it read; a person may have lowered it since."""


class State(NamedTuple):
    schedulers: tuple[Scheduler, ...]
    requests: tuple[Request, ...]
    capacity: Counts
    queue: tuple[Ticket, ...] = ()
    arrived: tuple[int, ...] = ()
    """The requests that have, or had, a ticket and still wait, in the order of their first one."""
    mutex: int = -1
    leaked: Units = ()
    faults: int = 0
    changes: int = 0
    wrong: str | None = None


class TokensWithTickets:
    """Two schedulers on one machine; each has several jobs that need units."""

    name = "tokens with tickets"

    def __init__(
        self, *, faults: int = 1, tokens: int = 1, arrivals: int = 0, planted: str | None = None
    ) -> None:
        """`arrivals`: whether jobs become ready one by one, in any order, or all at the beginning."""
        assert planted is None or planted in PLANTED
        self._wishes = SMALL if tokens == 1 else LARGE
        self._tokens = tokens
        self._first = "later" if arrivals else "waits"
        self._faults = faults
        self._planted = planted

    def initial(self) -> State:
        nothing = (0,) * self._tokens
        return State(
            schedulers=(Scheduler(), Scheduler()),
            requests=tuple(Request(self._first, passed=nothing) for _ in self._wishes),
            capacity=CAPACITY[: self._tokens],
            leaked=(frozenset(),) * self._tokens,
        )

    def broken(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        if any(state.leaked):
            return "units are in use that no living job has"
        for request in state.requests:
            if any(count > LIMIT for count in request.passed):
                return "a request was overtaken more often than allowed"
        return None

    def at_rest(self, state: State) -> bool:
        """Nothing runs, and the living have nothing left to do; the living must not depend on a restart."""
        return (
            all(
                request.status in ("done", "refused")
                or (request.status in ("later", "waits") and state.schedulers[wish.scheduler].pc == "down")
                for request, wish in zip(state.requests, self._wishes, strict=True)
            )
            and state.mutex < 0
            and not any(self._used(state, token) for token in range(self._tokens))
        )

    def show(self, state: State) -> str:
        parts = [f"S{i}:{s.pc}{s.number if s.number >= 0 else ''}" for i, s in enumerate(state.schedulers)]
        parts += [
            f"j{i}:{r.status}{''.join(str(sorted(units)) for units in r.units)}"
            for i, r in enumerate(state.requests)
        ]
        tickets = " ".join(f"j{t.request}@{t.number}{'!' * sum(t.overtaken)}" for t in state.queue)
        return " ".join([*parts, f"queue({tickets})", f"capacity{state.capacity}"])

    # What can happen

    def steps(self, state: State) -> Iterator[Step[State]]:
        for i, scheduler in enumerate(state.schedulers):
            yield from self._scheduler(state, i, scheduler)
        for j, request in enumerate(state.requests):
            yield from self._job(state, j, request)
        if state.changes == 0 and state.capacity[0] > 1:
            less = (1, *state.capacity[1:])
            yield Step("somebody lowers the capacity", state._replace(capacity=less, changes=1), True)
        if state.faults < self._faults:
            yield from self._accidents(state)

    def _scheduler(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        mine = [j for j, wish in enumerate(self._wishes) if wish.scheduler == i]
        if s.pc == "down":
            yield Step(f"S{i} starts again", _with(state, i, Scheduler()), True)
        elif s.pc == "idle" and any(state.requests[j].status == "waits" for j in mine):
            if self._planted == "no mutex":
                yield Step(f"S{i} pumps", _with(state, i, s._replace(pc="pump")))
            elif state.mutex < 0:
                locked = state._replace(mutex=i)
                yield Step(f"S{i} locks the mutex", _with(locked, i, s._replace(pc="pump")))
        elif s.pc == "pump":
            yield Step(f"S{i} reads and decides", self._decided(state, i, s, mine))
        elif s.pc == "take":
            yield from self._take(state, i, s)
        elif s.pc == "save":
            yield Step(f"S{i} writes the queue", self._saved(state, i, s))
        elif s.pc == "close":
            free = state._replace(mutex=-1 if state.mutex == i else state.mutex)
            yield Step(f"S{i} closes the mutex", _with(free, i, Scheduler("idle", s.number)))

    # P2 to P5

    def _decided(self, state: State, i: int, s: Scheduler, mine: list[int]) -> State:
        alive = {each.number for each in state.schedulers}
        queue = list(state.queue)
        number = s.number
        if number < 0:
            number = next(k for k in range(len(state.schedulers)) if k not in alive)
            if self._planted != "tickets of a predecessor stay":
                queue = [ticket for ticket in queue if ticket.number != number]
        if self._planted != "tickets of the dead stay":
            queue = [ticket for ticket in queue if ticket.number in alive | {number}]
        requests = list(state.requests)
        for j in mine:
            needs = self._wishes[j].needs
            too_much = any(need > most for need, most in zip(needs, state.capacity, strict=True))
            if requests[j].status == "waits" and too_much:
                requests[j] = requests[j]._replace(status="refused")
        waiting = [j for j in mine if requests[j].status == "waits"]
        if self._planted != "job's end not noticed":
            queue = [t for t in queue if t.number != number or t.request in waiting]
        listed = {ticket.request for ticket in queue if ticket.number == number}
        queue += [Ticket(number, j, (0,) * self._tokens) for j in waiting if j not in listed]
        arrived = [j for j in state.arrived if requests[j].status == "waits"]
        arrived += [j for j in waiting if j not in arrived]
        plan, queue = self._decision(state, number, queue)
        decided = state._replace(requests=tuple(requests), arrived=tuple(arrived))
        for token, most in enumerate(state.capacity):
            given = sum(len(picks[token]) for _, picks in plan)
            if given and len(self._used(state, token)) + given > most:
                decided = decided._replace(wrong="more units are given out than there are")
        if self._planted == "mutex let go before the units":
            decided = decided._replace(mutex=-1)
        return _with(decided, i, Scheduler("take", number, tuple(plan), tuple(queue), state.capacity))

    def _decision(
        self, state: State, number: int, tickets: list[Ticket]
    ) -> tuple[list[tuple[int, Units]], list[Ticket]]:
        free: Units = tuple(self._free(state, token) for token in range(self._tokens))
        plan: list[tuple[int, Units]] = []
        if self._planted == "held while short":
            plan, free = self._holding(number, tickets, free)
        held = {request for request, _ in plan}
        heard = [
            place
            for place, ticket in enumerate(tickets)
            if ticket.request not in held
            and (ticket.number == number or self._planted != "others ahead are ignored")
        ]
        asked = tuple(self._asked(tickets[place], number) for place in heard)
        given = give_out(asked, free)
        plan += [(tickets[heard[place]].request, picks) for place, picks in given.picks]
        queue = list(tickets)
        for place, before, after in zip(heard, asked, given.patience, strict=True):
            suffered = [was - left for was, left in zip(before.patience, after, strict=True)]
            queue[place] = _overtaken(tickets[place], suffered)
        if self._planted == "job's end not noticed":
            return plan, queue
        granted = {request for request, _ in plan}
        kept = queue if self._planted != "overtakings not saved" else tickets
        return plan, [t for t in kept if not (t.number == number and t.request in granted)]

    def _asked(self, ticket: Ticket, number: int) -> Asked:
        patience = tuple(LIMIT - count for count in ticket.overtaken)
        if self._planted == "no reservation":
            patience = (NEVER_DUE,) * self._tokens
        elif self._planted == "reserved from the next pump on":
            patience = tuple(left and NEVER_DUE for left in patience)
        return Asked(ticket.number == number, self._wishes[ticket.request].needs, patience)

    def _holding(
        self, number: int, tickets: list[Ticket], free: Units
    ) -> tuple[list[tuple[int, Units]], Units]:
        """Planted: who is short takes what there is."""
        plan: list[tuple[int, Units]] = []
        for ticket in tickets:
            needs = self._wishes[ticket.request].needs
            picks = tuple(frozenset(sorted(units)[:need]) for units, need in zip(free, needs, strict=True))
            is_short = any(len(units) < need for units, need in zip(picks, needs, strict=True))
            if ticket.number == number and is_short and any(picks):
                plan.append((ticket.request, picks))
                free = tuple(units - picked for units, picked in zip(free, picks, strict=True))
        return plan, free

    # P6 to P8

    def _take(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        if not s.plan:
            yield Step(f"S{i} has taken all", _with(state, i, s._replace(pc="save")))
            return
        (j, picks), *rest = s.plan
        request = state.requests[j]
        token = len(request.units) if request.status == "taking" else 0
        if token == self._tokens:
            holding = request._replace(status="granted")
            short = any(len(units) < need for units, need in zip(picks, self._wishes[j].needs, strict=True))
            if short:  # planted: it keeps what it has, and waits on
                holding = request._replace(status="holds")
            done = s._replace(plan=tuple(rest))
            yield Step(f"S{i} grants j{j}", _with(_job(state, j, holding), i, done))
            return
        if request.status not in ("waits", "taking") or picks[token] & self._used(state, token):
            back = request._replace(status="waits", units=()) if request.status == "taking" else request
            gone = s._replace(plan=tuple(rest))
            yield Step(f"S{i} fails to lock units for j{j}", _with(_job(state, j, back), i, gone))
            return
        took = Request("taking", (*request.units, picks[token]), request.passed)
        yield Step(f"S{i} locks units {sorted(picks[token])} of token {token} for j{j}", _job(state, j, took))

    def _saved(self, state: State, i: int, s: Scheduler) -> State:
        """P7, and the judge's own count of who was overtaken."""
        saved = state._replace(queue=s.queue)
        granted = [
            j
            for j, request in enumerate(state.requests)
            if request.status == "granted" and j in state.arrived and self._wishes[j].scheduler == i
        ]
        requests = list(state.requests)
        for j in granted:
            for p in state.arrived[: state.arrived.index(j)]:
                if requests[p].status == "waits":
                    requests[p] = requests[p]._replace(
                        passed=self._really_passed(state, s, requests[p].passed, p, j)
                    )
        arrived = tuple(j for j in state.arrived if j not in granted)
        return _with(
            saved._replace(requests=tuple(requests), arrived=arrived), i, s._replace(pc="close", queue=())
        )

    def _really_passed(self, state: State, s: Scheduler, passed: Counts, p: int, j: int) -> Counts:
        wanted, taken = self._wishes[p].needs, self._wishes[j].needs
        free = [s.capacity[t] - len(self._used(state, t)) for t in range(self._tokens)]
        # Of several tokens it may be short of one that nobody takes from it: that is not limited.
        short = [t for t in range(self._tokens) if free[t] < wanted[t]]
        return tuple(
            count + (t in short and taken[t] > 0 and len(short) == 1) for t, count in enumerate(passed)
        )

    # Jobs

    def _job(self, state: State, j: int, request: Request) -> Iterator[Step[State]]:
        s = state.schedulers[self._wishes[j].scheduler]
        if request.status == "later" and s.pc != "down":
            yield Step(f"j{j} becomes ready", _job(state, j, request._replace(status="waits")))
        elif request.status == "granted" and s.pc == "idle":
            yield Step(f"runner {j} is started", _job(state, j, request._replace(status="started")))
        elif request.status == "started":
            kept = "kept" if self._planted == "copies kept" else "running"
            yield Step(f"runner {j} is confirmed", _job(state, j, request._replace(status=kept)))
        elif request.status == "running":
            ended = request._replace(status="done", units=())
            if self._planted == "units stay with the payload":
                leaked = tuple(a | b for a, b in zip(state.leaked, request.units, strict=True))
                yield Step(f"j{j} ends, its daemon continues", _job(state._replace(leaked=leaked), j, ended))
            yield Step(f"j{j} ends", _job(state, j, ended))
        elif request.status == "kept":
            leaked = tuple(a | b for a, b in zip(state.leaked, request.units, strict=True))
            ended = request._replace(status="done", units=())
            yield Step(f"j{j} ends", _job(state._replace(leaked=leaked), j, ended))

    def _accidents(self, state: State) -> Iterator[Step[State]]:
        worse = state._replace(faults=state.faults + 1)
        for i, s in enumerate(state.schedulers):
            if s.pc != "down":
                yield Step(f"S{i} is killed", self._killed(worse, i), True)
        for j, request in enumerate(state.requests):
            if request.status == "running":
                yield Step(f"runner {j} is killed", _job(worse, j, self._again()), True)

    def _killed(self, state: State, i: int) -> State:
        """Its descriptors close; what has a runner goes on, the rest is submitted again by its successor."""
        requests = list(state.requests)
        for j, request in enumerate(requests):
            if self._wishes[j].scheduler != i:
                continue
            if request.status == "started":
                requests[j] = request._replace(status="running")
            elif request.status in ("waits", "taking", "granted", "holds"):
                requests[j] = self._again()
        arrived = tuple(j for j in state.arrived if self._wishes[j].scheduler != i)
        dead = state._replace(
            requests=tuple(requests), arrived=arrived, mutex=-1 if state.mutex == i else state.mutex
        )
        return _with(dead, i, Scheduler("down"))

    def _again(self) -> Request:
        return Request("waits", passed=(0,) * self._tokens)

    # What can be seen

    def _used(self, state: State, token: int) -> frozenset[int]:
        held = [r.units[token] for r in state.requests if len(r.units) > token]
        return state.leaked[token].union(*held)

    def _free(self, state: State, token: int) -> frozenset[int]:
        used = self._used(state, token)
        free = [unit for unit in range(state.capacity[token]) if unit not in used]
        most = state.capacity[token] - len(used)
        if self._planted == "units beyond the capacity not counted":
            most = len(free)
        return frozenset(free[: max(most, 0)])


def _with(state: State, i: int, s: Scheduler) -> State:
    return state._replace(schedulers=(*state.schedulers[:i], s, *state.schedulers[i + 1 :]))


def _job(state: State, j: int, request: Request) -> State:
    return state._replace(requests=(*state.requests[:j], request, *state.requests[j + 1 :]))


def _overtaken(ticket: Ticket, suffered: list[int]) -> Ticket:
    # Beyond the limit nothing depends on the number.
    counts = zip(ticket.overtaken, suffered, strict=True)
    return ticket._replace(overtaken=tuple(min(count + more, LIMIT) for count, more in counts))
