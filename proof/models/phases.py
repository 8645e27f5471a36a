"""Owns the model of the scheduler's core: jobs that need each other, wishes of a person, attempts of any end.
Every step is taken by the real `Core`; the model only carries out effects, and chooses what happens next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from proof.models.checker import Step
from tenuto.lifecycle.states import TRANSITIONS, JobFailureStatus, JobState, TransientMode
from tenuto.scheduler import inputs
from tenuto.scheduler.core import Core
from tenuto.scheduler.decisions import Tries, Verdict
from tenuto.scheduler.entries import Entry, JobDependency, Phase
from tenuto.workspace.token_files import Need

DONE = Verdict(JobState.DONE)
FAILED = Verdict(JobState.ERROR, JobFailureStatus.FAILED)
AGAIN = Verdict(JobState.ERROR, JobFailureStatus.TIMEOUT, tries=Tries(1))
LATER = AGAIN._replace(after_s=1.0)

PLANTED = {
    "sleepers are not woken": "`_with_sleepers` returns the job that enters, and none that it needs",
    "a cancelled job still waits": "`_cancelled` forgets to unblock the job",
    "a failure releases": "`_ended` makes the jobs ready that waited for one that failed",
    "unneeded jobs run": "`_spare_unneeded_by` puts no job to sleep",
    "the slot is kept": "`_slot_free` does not take the slot back",
    "a retry keeps its phase": "`_attempt_ended` leaves a job running that gave its slot back",
    "a pause forgets its job": "`_short` does not queue the job whose start was refused",
    "a running job is ended": "`_cancelled` ends a job while an attempt of it runs",
    "unneeded jobs are tried again": "`_has_spared` puts no job to sleep",
    "a rest is no wait": "`_rested` makes a job ready that was cancelled while it rested",
}


class Plan(NamedTuple):
    """A job of the model."""

    name: str
    needs: tuple[int, ...] = ()
    transient: bool = False
    tokens: bool = False


PLANS = (
    Plan("t", transient=True),
    Plan("a", needs=(0,), tokens=True),
    Plan("b", needs=(1,)),
    Plan("c", needs=(0,), tokens=True),
)


class Seen(NamedTuple):
    """An entry, frozen."""

    phase: Phase = Phase.ASLEEP
    is_done: bool = False
    missing: int = 0
    dependents: tuple[int, ...] | None = None
    is_queued: bool = False
    state: JobState = JobState.UNSCHEDULED
    grant: int = 0
    """The units that it holds, by the number of their grant."""
    is_asked: bool = False
    """An owner submitted it again: it begins, whether a job needs it or not."""


class State(NamedTuple):
    entries: tuple[Seen, ...]
    queue: tuple[tuple[int, int, int, int], ...] = ()
    taken: tuple[int, ...] = ()
    has_changed: bool = False
    is_paused: bool = False
    starts: tuple[tuple[int, int], ...] = ()
    """Coroutines that have not begun: the job, and the number of its grant."""
    attempts: tuple[tuple[int, int, bool], ...] = ()
    """Job, grant, and whether the job was asked to stop."""
    settling: tuple[tuple[int, Verdict], ...] = ()
    waiting: tuple[int, ...] = ()
    """Jobs that wait for the token's only unit."""
    resting: tuple[int, ...] = ()
    """Jobs that wait before their next attempt; a timer knows nothing of a cancellation."""
    submitted: int = 0
    grants: int = 0
    wishes: int = 0
    """How often a person cancelled a job, or submitted it again."""
    faults: int = 0
    wrong: str | None = None


class Launcher:
    """As much of a launcher as slots need."""

    name = "model"

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.pool = "pool"


class Owner:
    """The one owner, which never stops."""


class Phases:
    """Up to four jobs in the real core."""

    name = "phases of jobs"

    def __init__(
        self, *, jobs: int = 4, slots: int = 1, wishes: int = 2, faults: int = 2, planted: str | None = None
    ) -> None:
        assert planted is None or planted in PLANTED
        self._plans = PLANS[:jobs]
        self._slots = slots
        self._wishes = wishes
        self._faults = faults
        self._core = Core if planted is None else _CORES[planted]

    def initial(self) -> State:
        return State((Seen(),) * len(self._plans))

    def broken(self, state: State) -> str | None:
        if len(state.taken) > self._slots:
            return "more jobs have slots than there are"
        return state.wrong

    def at_rest(self, state: State) -> bool:
        if state.submitted < len(self._plans) or state.is_paused or state.taken:
            return False
        if state.starts or state.attempts or state.settling or state.waiting or state.resting:
            return False
        return all(seen.phase in (Phase.ENDED, Phase.ASLEEP) and not seen.missing for seen in state.entries)

    def show(self, state: State) -> str:
        jobs = [
            f"{plan.name}:{seen.phase.name.lower()}" + (f"-{seen.missing}" if seen.missing else "")
            for plan, seen in zip(self._plans, state.entries, strict=True)
        ]
        running = [f"{self._plans[job].name} runs" for job, *_ in state.attempts]
        return " ".join([*jobs, *running])

    def steps(self, state: State) -> Iterator[Step[State]]:
        yield from self._coming(state)
        yield from self._running(state)
        if state.wishes < self._wishes:
            yield from self._wished(state)

    def _step(
        self, label: str, state: State, act: str, *arguments: Any, is_fault: bool = False
    ) -> Step[State]:
        """The real core, thawed, does what the method `act` of its stage says."""
        stage = Stage(self._core(), self._plans, self._slots, state)
        getattr(stage, act)(*arguments)
        return Step(label, stage.frozen(), is_fault)

    # What can happen

    def _coming(self, state: State) -> Iterator[Step[State]]:
        job = state.submitted
        if job < len(self._plans):
            later = state._replace(submitted=job + 1)
            yield self._step(f"{self._plans[job].name} is submitted", later, "submit", job)
        for job in state.waiting:
            if not any(seen.grant for seen in state.entries):
                yield self._step(f"{self._plans[job].name} gets the token", state, "grant", job)
        for job in state.resting:
            left = state._replace(resting=tuple(one for one in state.resting if one != job))
            yield self._step(f"{self._plans[job].name} has rested", left, "rested", job)
        if state.is_paused:
            yield self._step("the machine recovers", state, "feed", inputs.Recovered())

    def _running(self, state: State) -> Iterator[Step[State]]:
        if state.starts:
            (job, grant), *others = state.starts
            left = state._replace(starts=tuple(others))
            yield self._step(f"{self._plans[job].name} begins", left, "begin", job, grant)
        for place, (job, grant, is_stopped) in enumerate(state.attempts):
            name = self._plans[job].name
            left = state._replace(attempts=state.attempts[:place] + state.attempts[place + 1 :])
            if is_stopped:
                yield self._step(f"{name} stops", left, "end_attempt", job, grant, FAILED)
                continue
            yield self._step(f"{name} succeeds", left, "end_attempt", job, grant, DONE)
            if state.faults < self._faults:
                worse = left._replace(faults=state.faults + 1)
                ends = ("fails", FAILED), ("runs out of time", AGAIN), ("is to rest", LATER)
                for label, verdict in ends:
                    yield self._step(
                        f"{name} {label}", worse, "end_attempt", job, grant, verdict, is_fault=True
                    )
                yield self._step(
                    f"{name} finds the machine short", worse, "run_short", job, grant, is_fault=True
                )
        for place, (job, verdict) in enumerate(state.settling):
            left = state._replace(settling=state.settling[:place] + state.settling[place + 1 :])
            yield self._step(f"{self._plans[job].name} has settled", left, "settled", job, verdict)

    def _wished(self, state: State) -> Iterator[Step[State]]:
        more = state._replace(wishes=state.wishes + 1)
        for job in range(state.submitted):
            name, seen = self._plans[job].name, state.entries[job]
            yield self._step(f"{name} is cancelled", more, "cancel", job, is_fault=True)
            if seen.phase is Phase.ENDED and not seen.is_done:
                yield self._step(f"{name} is submitted again", more, "submit_again", job, is_fault=True)


class Stage:
    """A state, thawed: the real core with its entries, and a shell that carries effects out in the model."""

    def __init__(self, core: Core, plans: tuple[Plan, ...], slots: int, state: State) -> None:
        self.core = core
        self.state = state
        launcher: Any = Launcher(slots)
        self.jobs: list[Any] = []
        self.states = [seen.state for seen in state.entries]
        self.grants = [seen.grant for seen in state.entries]
        self.asked = [seen.is_asked for seen in state.entries]
        for plan in plans:
            self.jobs.append(_entry(plan, self.jobs, launcher))
        self._number = {job: number for number, job in enumerate(self.jobs)}
        for job, seen in zip(self.jobs, state.entries, strict=True):
            job.phase, job.is_done, job.missing = seen.phase, seen.is_done, seen.missing
            if seen.dependents is not None:
                job.dependents = {self.jobs[number]: None for number in seen.dependents}
            job.pool = "pool" if seen.is_queued else None
        self._thaw_slots(launcher)
        self._effects: deque[inputs.Effect] = deque()
        self._is_carrying = False

    def _thaw_slots(self, launcher: Any) -> None:
        slots = self.core.slots
        slots._queues["pool"] = [(*key, self.jobs[number]) for *key, number in self.state.queue]
        slots._launchers["pool"] = launcher
        slots._turn = len(self.state.queue)
        slots._has_changed, slots._is_paused = self.state.has_changed, self.state.is_paused
        for number in self.state.taken:
            slots.take(self.jobs[number])

    def frozen(self) -> State:
        slots = self.core.slots
        queue = slots._queues["pool"]
        turns = sorted(turn for _, _, turn, _ in queue)
        below = sum(turn < 0 for turn in turns)
        rank = {turn: place - below + (place >= below) for place, turn in enumerate(turns)}
        return self.state._replace(
            entries=tuple(
                Seen(
                    job.phase,
                    job.is_done,
                    job.missing,
                    None if job.dependents is None else tuple(self._number[one] for one in job.dependents),
                    job.pool is not None,
                    self.states[number],
                    self.grants[number],
                    self.asked[number],
                )
                for number, job in enumerate(self.jobs)
            ),
            queue=tuple((a, b, rank[turn], self._number[job]) for a, b, turn, job in queue),
            taken=tuple(sorted(self._number[job] for job, held in slots._taken.items() for _ in held)),
            has_changed=slots._has_changed,
            is_paused=slots._is_paused,
        )

    # The shell

    def feed(self, input: inputs.Input) -> None:
        self._effects += self.core.step(input)
        if self._is_carrying:
            return
        self._is_carrying = True
        while True:
            while self._effects:
                effect = self._effects.popleft()
                carrier = getattr(self, f"_{type(effect).__name__.lower()}", None)
                if carrier is not None:
                    carrier(self._number[effect.job], effect)  # type: ignore[union-attr]
            job = self.core.next_start()
            if job is None:
                break
            self._effects += self.core.step(inputs.Seated(job))
        self._is_carrying = False

    def submit(self, number: int) -> None:
        self.feed(inputs.Submitted(self.jobs[number], is_new=True))

    def cancel(self, number: int) -> None:
        self.feed(inputs.Cancelled(self.jobs[number], "cancelled"))

    def settled(self, number: int, verdict: Verdict) -> None:
        self.feed(inputs.Ended(self.jobs[number], verdict))

    def submit_again(self, number: int) -> None:
        self.asked[number] = True
        self.feed(inputs.Submitted(self.jobs[number]))

    def grant(self, number: int) -> None:
        """The queue for tokens: the unit is free, and so is a slot."""
        job = self.jobs[number]
        if not self.core.slots.has_room(job):
            return
        self.core.slots.take(job)
        waiting = tuple(one for one in self.state.waiting if one != number)
        self.state = self.state._replace(waiting=waiting, grants=self.state.grants + 1)
        self.grants[number] = self.state.grants
        grant: Any = self.state.grants
        self.feed(inputs.Granted(job, grant))

    def begin(self, number: int, grant: int) -> None:
        """`aio_start`: the first step of its coroutine."""
        job = self.jobs[number]
        if job.phase is not Phase.STARTING or (grant and self.grants[number] != grant):
            self._give_back(number, grant)
            return
        if not all(one.origin.is_done for one in job.dependencies):
            self._wrong("a job begins although one that it needs is not done")
        is_needed = job.transient is TransientMode.NONE or job.is_awaited()
        if not is_needed and not self.asked[number]:
            self._wrong("a transient job begins that no job needs")
        if any(number == other for other, *_ in self.state.attempts):
            self._wrong("a job runs twice at the same time")
        self.feed(inputs.Begun(job))
        self._move(number, JobState.SCHEDULED)
        self.state = self.state._replace(attempts=(*self.state.attempts, (number, grant, False)))

    def end_attempt(self, number: int, grant: int, verdict: Verdict) -> None:
        self.feed(inputs.AttemptEnded(self.jobs[number], verdict))
        self._give_back(number, grant)

    def rested(self, number: int) -> None:
        self.feed(inputs.Rested(self.jobs[number]))

    def run_short(self, number: int, grant: int) -> None:
        self.feed(inputs.Short(self.jobs[number], "short", of_descriptors=False))
        self._give_back(number, grant)

    def _give_back(self, number: int, grant: int) -> None:
        if grant and self.grants[number] == grant:
            self.grants[number] = 0
        self.feed(inputs.SlotFree(self.jobs[number]))

    # Effects, by their names

    def _tell(self, number: int, effect: inputs.Tell) -> None:
        if self.states[number] is not effect.state:
            self._move(number, effect.state)

    def _start(self, number: int, effect: inputs.Start) -> None:
        grant: Any = effect.grant or 0
        self.state = self.state._replace(starts=(*self.state.starts, (number, grant)))

    def _askfortokens(self, number: int, effect: inputs.AskForTokens) -> None:
        self.state = self.state._replace(waiting=(*self.state.waiting, number))

    def _sleep(self, number: int, effect: inputs.Sleep) -> None:
        if self.states[number] is JobState.READY:
            self._move(number, JobState.WAITING)
        self._move(number, JobState.UNSCHEDULED)
        self._leave(number)

    def _retry(self, number: int, effect: inputs.Retry) -> None:
        self._move(number, JobState.WAITING)
        if not effect.verdict.after_s:
            self._move(number, JobState.READY)

    def _rest(self, number: int, effect: inputs.Rest) -> None:
        self.state = self.state._replace(resting=(*self.state.resting, number))

    def _settle(self, number: int, effect: inputs.Settle) -> None:
        self.state = self.state._replace(settling=(*self.state.settling, (number, effect.verdict)))

    def _cancel(self, number: int, effect: inputs.Cancel) -> None:
        self.feed(inputs.Ended(effect.job, FAILED))

    def _stop(self, number: int, effect: inputs.Stop) -> None:
        attempts = tuple(
            (job, grant, is_stopped or job == number) for job, grant, is_stopped in self.state.attempts
        )
        self.state = self.state._replace(attempts=attempts)

    def _end(self, number: int, effect: inputs.End) -> None:
        if any(number == job for job, *_ in self.state.attempts):
            self._wrong("a job is said to have ended that runs")
        self._move(number, effect.verdict.state)
        self._leave(number)

    def _strand(self, number: int, effect: inputs.Strand) -> None:
        self._move(number, JobState.ERROR)
        self._leave(number)

    def _leave(self, number: int) -> None:
        self.grants[number], self.asked[number] = 0, False
        self.state = self.state._replace(waiting=tuple(one for one in self.state.waiting if one != number))

    def _move(self, number: int, state: JobState) -> None:
        if state not in TRANSITIONS[self.states[number]]:
            self._wrong(f"a job goes from {self.states[number].name} to {state.name}")
        self.states[number] = state

    def _wrong(self, what: str) -> None:
        self.state = self.state._replace(wrong=self.state.wrong or what)


def _entry(plan: Plan, jobs: list[Any], launcher: Any) -> Any:
    clock: Any = None
    entry = Entry(
        "task",
        plan.name,
        clock=clock,
        launcher=launcher,
        dependencies=[JobDependency(jobs[number]) for number in plan.needs],
        needs=(Need("token", 1),) if plan.tokens else (),
        transient=TransientMode.TRANSIENT if plan.transient else TransientMode.NONE,
    )
    owner: Any = Owner()
    entry.owners = (owner,)
    return entry


# The core with a bug in it


class _Sleeping(Core):
    def _with_sleepers(self, first: Any) -> list[Any]:
        return [first]


class _StillWaiting(Core):
    def _cancelled(self, job: Any, message: str) -> None:
        missing = job.missing
        super()._cancelled(job, message)
        job.missing = missing


class _Releasing(Core):
    def _ended(self, job: Any, verdict: Verdict) -> None:
        released = job.released() if verdict.state is JobState.ERROR else []
        super()._ended(job, verdict)
        self._make_ready(released)


class _Sparing(Core):
    def _spare_unneeded_by(self, ended: Any) -> None:
        """Put no job to sleep."""


class _Keeping(Core):
    def _slot_free(self, job: Any) -> None:
        super()._slot_free(None)


class _Staying(Core):
    def _attempt_ended(self, job: Any, verdict: Verdict, keeps_slot: bool) -> None:
        super()._attempt_ended(job, verdict, keeps_slot=True)


class _Forgetting(Core):
    def _short(self, job: Any, message: str, of_descriptors: bool) -> None:
        super()._short(job, message, of_descriptors)
        job.pool = None


class _Ending(Core):
    def _cancelled(self, job: Any, message: str) -> None:
        if job.phase is Phase.RUNNING:
            job.phase = Phase.STARTING
        super()._cancelled(job, message)


class _Insisting(Core):
    def _has_spared(self, job: Any, message: str | None = None) -> bool:
        return False


class _Hasty(Core):
    def _rested(self, job: Any) -> None:
        self._enter(job)


_CORES: dict[str, type[Core]] = dict(
    zip(
        PLANTED,
        (
            _Sleeping,
            _StillWaiting,
            _Releasing,
            _Sparing,
            _Keeping,
            _Staying,
            _Forgetting,
            _Ending,
            _Insisting,
            _Hasty,
        ),
        strict=True,
    )
)
