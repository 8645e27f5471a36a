"""Owns the model of candidates: two schedulers add, promote, recover and tell, two workers evaluate.
It follows `docs/search.md` and the stores of `tenuto.search`, one transaction a step; a broker loses and
repeats messages, each process may freeze or die, and a person cancels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proof.models.checker import Step

MOST_ATTEMPTS = 2

PLANTED = {
    "cap outside the transaction": "the cap is compared with what was read before the row is inserted",
    "no lease for the payload": "the runner does not end its payload when its worker is not heard of",
    "lease by the worker's clock": "a lease runs out although its worker renews it",
    "finish without attempt": "an end is written to any row that runs, whichever attempt it is of",
    "claim outside the transaction": "a worker reads what is queued, and takes it later without a look",
    "told without a comparison": "an outcome is told although another scheduler told it meanwhile",
    "recovery without a look": "a row whose lease was over is returned, whatever became of it since",
    "a message is the truth": "a worker claims only what a message names",
}


class Row(NamedTuple):
    status: str = "none"
    """none, PENDING, QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED"""
    attempt: int = 0
    is_over: bool = False
    """The lease of the row has run out."""
    told: int = 0


class Worker(NamedTuple):
    pc: str = "idle"
    """idle, seen (claim planted), claimed, running, done, lost"""
    row: int = -1
    attempt: int = 0
    is_frozen: bool = False
    is_stale: bool = False
    """Its lease was not renewed for so long that runners begin no payload."""


class Scheduler(NamedTuple):
    pc: str = "idle"
    """idle, asked, telling, recovering"""
    number: int = 0
    told: int = 0
    is_frozen: bool = False


class State(NamedTuple):
    rows: tuple[Row, ...]
    workers: tuple[Worker, ...]
    schedulers: tuple[Scheduler, ...]
    scheduled: int = 0
    told: int = 0
    payloads: frozenset[tuple[int, int]] = frozenset()
    """(row, attempt) of the payloads that live."""
    messages: frozenset[int] = frozenset()
    faults: int = 0
    cancels: int = 0
    wrong: str | None = None


_FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")


class CandidatesOfASearch:
    """The candidates of one search, with at most so many of them."""

    name = "candidates of a search"

    def __init__(
        self, *, candidates: int = 2, faults: int = 1, cancels: int = 1, planted: str | None = None
    ) -> None:
        assert planted is None or planted in PLANTED
        self._cap = candidates
        self._faults = faults
        self._cancels = cancels
        self._planted = planted

    def initial(self) -> State:
        return State((Row(),) * (self._cap + 1), (Worker(), Worker()), (Scheduler(), Scheduler()))

    def broken(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        if state.scheduled > self._cap:
            return "the cap is passed"
        rows = [row for row, _ in state.payloads]
        if len(set(rows)) < len(rows):
            return "a candidate has two payloads at once"
        if any(row.told > 1 for row in state.rows):
            return "an outcome was told twice"
        return None

    def at_rest(self, state: State) -> bool:
        """All candidates there may be were made, ended and told, and nothing runs."""
        made = state.rows[: state.scheduled]
        return (
            state.scheduled == self._cap
            and all(row.status in _FINAL and row.told == 1 for row in made)
            and not state.payloads
            and all(worker.pc == "idle" and not worker.is_frozen for worker in state.workers)
        )

    def show(self, state: State) -> str:
        rows = " ".join(
            f"{number}:{row.status}/{row.attempt}{'!' if row.is_over else ''}{'t' * row.told}"
            for number, row in enumerate(state.rows[: max(state.scheduled, 1)])
        )
        workers = " ".join(
            f"{w.pc}{f'({w.row},{w.attempt})' if w.row >= 0 else ''}{'*' if w.is_frozen else ''}"
            for w in state.workers
        )
        schedulers = " ".join(f"{s.pc}{'*' if s.is_frozen else ''}" for s in state.schedulers)
        return f"rows[{rows}] workers[{workers}] schedulers[{schedulers}] alive{sorted(state.payloads)}"

    def steps(self, state: State) -> Iterator[Step[State]]:
        for index, scheduler in enumerate(state.schedulers):
            if scheduler.is_frozen:
                yield Step(f"s{index} thaws", _scheduler(state, index, is_frozen=False))
            else:
                yield from self._scheduler(state, index, scheduler)
        for index, worker in enumerate(state.workers):
            if worker.is_frozen:
                yield Step(f"w{index} thaws", _worker(state, index, is_frozen=False))
            else:
                yield from self._worker(state, index, worker)
        yield from self._time(state)
        yield from self._accidents(state)

    # What schedulers do

    def _scheduler(self, state: State, index: int, scheduler: Scheduler) -> Iterator[Step[State]]:
        name = f"s{index}"
        if scheduler.pc == "asked":
            yield Step(f"{name} adds", self._added(state, index, scheduler))
        elif scheduler.pc == "telling":
            yield Step(f"{name} tells", self._told(state, index, scheduler))
        elif scheduler.pc == "recovering":
            yield Step(f"{name} returns {scheduler.number}", self._recovered(state, index, scheduler.number))
        else:
            if state.scheduled < self._cap:
                after = _scheduler(state, index, pc="asked", number=state.scheduled, told=state.told)
                yield Step(f"{name} asks", after)
            for number, row in enumerate(state.rows):
                if row.status == "PENDING":
                    sent = state._replace(messages=state.messages | {number})
                    yield Step(f"{name} promotes {number}", _row(sent, number, status="QUEUED"))
                if row.status == "RUNNING" and row.is_over:
                    if self._planted == "recovery without a look":
                        after = _scheduler(state, index, pc="recovering", number=number)
                        yield Step(f"{name} sees {number} lost", after)
                    else:
                        yield Step(f"{name} recovers {number}", self._recovered(state, index, number))
                if row.status in _FINAL and row.told == 0:
                    after = _scheduler(state, index, pc="telling", number=number, told=state.told)
                    yield Step(f"{name} reads {number}", after)

    def _added(self, state: State, index: int, scheduler: Scheduler) -> State:
        after = _scheduler(state, index, pc="idle", number=0, told=0)
        is_same = (state.scheduled, state.told) == (scheduler.number, scheduler.told)
        if not is_same and self._planted != "cap outside the transaction":
            return after
        number = state.scheduled
        return _row(after._replace(scheduled=number + 1), number, status="PENDING")

    def _told(self, state: State, index: int, scheduler: Scheduler) -> State:
        after = _scheduler(state, index, pc="idle", number=0, told=0)
        row = state.rows[scheduler.number]
        if state.told != scheduler.told and self._planted != "told without a comparison":
            return after
        return _row(after._replace(told=state.told + 1), scheduler.number, told=row.told + 1)

    def _recovered(self, state: State, index: int, number: int) -> State:
        after = _scheduler(state, index, pc="idle", number=0)
        row = state.rows[number]
        if row.status in _FINAL:
            return after._replace(wrong="a row that had ended was opened again")
        status = "PENDING" if row.attempt < MOST_ATTEMPTS else "FAILED"
        return _row(after, number, status=status, is_over=False)

    # What workers do

    def _worker(self, state: State, index: int, worker: Worker) -> Iterator[Step[State]]:
        name = f"w{index}"
        if worker.pc == "idle":
            yield from self._claims(state, index)
        elif worker.pc == "seen":
            yield Step(f"{name} claims {worker.row}", self._claimed(state, index, worker.row))
        elif worker.pc == "claimed":
            after = _worker(state, index, pc="lost" if worker.is_stale else "running")
            if not worker.is_stale:
                after = after._replace(payloads=state.payloads | {(worker.row, worker.attempt)})
            yield Step(f"{name} starts {worker.row}", after)
            yield from self._renews(state, index, worker)
        elif worker.pc == "running":
            yield from self._renews(state, index, worker)
        else:
            finished = self._finished(state, index, worker)
            yield Step(f"{name} finishes {worker.row}", finished)
            for claim in self._claims(finished, index):  # in the same transaction
                yield Step(f"{name} finishes {worker.row} and {claim.label}", claim.after)

    def _claims(self, state: State, index: int) -> Iterator[Step[State]]:
        queued = [number for number, row in enumerate(state.rows) if row.status == "QUEUED"]
        if self._planted == "a message is the truth":
            queued = [number for number in queued if number in state.messages]
        if queued:
            best = queued[0]
            if self._planted == "claim outside the transaction":
                yield Step(f"w{index} sees {best}", _worker(state, index, pc="seen", row=best))
            else:
                yield Step(f"w{index} claims {best}", self._claimed(state, index, best))

    def _claimed(self, state: State, index: int, number: int) -> State:
        attempt = state.rows[number].attempt + 1
        heard = state._replace(messages=state.messages - {number})
        after = _row(heard, number, status="RUNNING", attempt=attempt, is_over=False)
        return _worker(after, index, pc="claimed", row=number, attempt=attempt, is_stale=False)

    def _renews(self, state: State, index: int, worker: Worker) -> Iterator[Step[State]]:
        row = state.rows[worker.row]
        if row.status == "RUNNING" and row.attempt == worker.attempt:
            if row.is_over or worker.is_stale:
                after = _row(state, worker.row, is_over=False)
                yield Step(f"w{index} renews {worker.row}", _worker(after, index, is_stale=False))
        else:
            ended = state._replace(payloads=state.payloads - {(worker.row, worker.attempt)})
            yield Step(f"w{index} withdraws {worker.row}", _idle(ended, index))

    def _finished(self, state: State, index: int, worker: Worker) -> State:
        row = state.rows[worker.row]
        after = _idle(state, index)
        is_own = row.attempt == worker.attempt
        if row.status != "RUNNING" or not (is_own or self._planted == "finish without attempt"):
            return after
        if not is_own:
            return after._replace(wrong="an old attempt ended the row of a newer one")
        if worker.pc == "lost":
            status = "PENDING" if row.attempt < MOST_ATTEMPTS else "FAILED"
        else:
            status = "SUCCEEDED"
        return _row(after, worker.row, status=status, is_over=False)

    # What happens by itself

    def _time(self, state: State) -> Iterator[Step[State]]:
        for payload in sorted(state.payloads):
            number, attempt = payload
            gone = state._replace(payloads=state.payloads - {payload})
            holder = _holder(state, number, attempt)
            ended = gone if holder is None else _worker(gone, holder, pc="done")
            yield Step(f"the payload of {number} ends", ended)
            is_heard = holder is not None and not state.workers[holder].is_frozen
            if not is_heard and self._planted != "no lease for the payload":
                killed = gone if holder is None else _worker(gone, holder, pc="lost", is_stale=True)
                yield Step(f"the runner of {number} ends its payload for its lease", killed)
        for number, row in enumerate(state.rows):
            if row.status != "RUNNING" or row.is_over:
                continue
            holder = _holder(state, number, row.attempt)
            is_heard = holder is not None and not state.workers[holder].is_frozen
            lives = (number, row.attempt) in state.payloads
            if self._planted == "no lease for the payload":
                lives = False
            if self._planted == "lease by the worker's clock":
                is_heard = lives = False
            if not is_heard and not lives:
                after = _row(state, number, is_over=True)
                if holder is not None and state.workers[holder].pc == "claimed":
                    after = _worker(after, holder, is_stale=self._planted != "no lease for the payload")
                yield Step(f"the lease of {number} is over", after)

    def _accidents(self, state: State) -> Iterator[Step[State]]:
        if state.cancels < self._cancels:
            for number, row in enumerate(state.rows):
                if row.status in ("PENDING", "QUEUED", "RUNNING"):
                    after = _row(state, number, status="CANCELLED", is_over=False)
                    yield Step(f"a person cancels {number}", after._replace(cancels=state.cancels + 1), True)
        if state.faults >= self._faults:
            return
        worse = state._replace(faults=state.faults + 1)
        for index, scheduler in enumerate(state.schedulers):
            if not scheduler.is_frozen and scheduler.pc != "idle":
                yield Step(f"s{index} freezes", _scheduler(worse, index, is_frozen=True), True)
                yield Step(f"s{index} is killed", _scheduler(worse, index, pc="idle", number=0, told=0), True)
        for index, worker in enumerate(state.workers):
            if worker.pc != "idle":
                if not worker.is_frozen:
                    yield Step(f"w{index} freezes", _worker(worse, index, is_frozen=True), True)
                yield Step(f"w{index} is killed", _idle(worse, index), True)
        for number in sorted(state.messages):
            lost = worse._replace(messages=worse.messages - {number})
            yield Step(f"the message of {number} is lost", lost, True)
        for number in range(state.scheduled):
            if number not in state.messages:
                again = worse._replace(messages=worse.messages | {number})
                yield Step(f"the message of {number} comes again", again, True)


class OneCandidate(CandidatesOfASearch):
    """A single candidate, so that every process can freeze or die once."""

    name = "one candidate of a search"

    def __init__(self, *, faults: int = 1, cancels: int = 1, planted: str | None = None) -> None:
        super().__init__(candidates=1, faults=faults, cancels=cancels, planted=planted)


def _holder(state: State, number: int, attempt: int) -> int | None:
    """The worker that holds an attempt, and has not seen its end."""
    for index, worker in enumerate(state.workers):
        if (worker.row, worker.attempt) == (number, attempt) and worker.pc in ("claimed", "running"):
            return index
    return None


def _row(state: State, number: int, **changes: object) -> State:
    rows = list(state.rows)
    rows[number] = rows[number]._replace(**changes)  # type: ignore[arg-type]
    return state._replace(rows=tuple(rows))


def _worker(state: State, index: int, **changes: object) -> State:
    workers = list(state.workers)
    workers[index] = workers[index]._replace(**changes)  # type: ignore[arg-type]
    return state._replace(workers=tuple(workers))


def _idle(state: State, index: int) -> State:
    return _worker(state, index, pc="idle", row=-1, attempt=0, is_frozen=False, is_stale=False)


def _scheduler(state: State, index: int, **changes: object) -> State:
    schedulers = list(state.schedulers)
    schedulers[index] = schedulers[index]._replace(**changes)  # type: ignore[arg-type]
    return state._replace(schedulers=tuple(schedulers))
