"""Owns the model of starting and adopting: schedulers, runner, payload, and the death of any of them.
One step of the model is one system call that others can see. What a directory means is judged by the real
`derive_state`, what an ended attempt amounts to by the real `after_attempt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from proof.models.checker import Step
from proof.models.real import Launch, Mark, Pid, Shown, judge, next_try
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import Arrival, RetryLimits, answers, known_end, on_arrival
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.ports import Liveness

LIMITS = RetryLimits(max_lost_retries=1)

PLANTED = {
    "lock let go before the start": "the seed's order: unlock after the spawn, lock again in the runner",
    "lost without the lock": "`_judge` writes the marker of a lost job without having taken the job's lock",
    "old markers count": "`derive` forgets to compare a marker's attempt with that of launch.json",
    "no look under the lock": "`_start` opens an attempt on what it saw before it had the lock",
    "no sweep": "`_swept` does not end what a killed runner left before the next attempt",
    "leftovers keep the lock": "the payload does not close byte 0, and what it starts inherits it",
    "marker not synced": "`write_marker` without fsync of file and directory",
    "boot id ignored": "`liveness` compares pid and start time only",
    "a taken lock is a failure": "`run` gives up when `try_lock` fails, instead of watching",
    "no poll": "`until_ended` waits for the pid record of the attempt it saw, and for nothing else",
    "payload starts before the runner is known": "the runner forks before it wrote its pid record, "
    "and the scheduler takes a lock without a pid for a dead start",
}


class Scheduler(NamedTuple):
    pc: str = "submit"
    lock: bool = False
    """Has a copy of the descriptor of byte 0."""
    lock1: bool = False
    answered: int = 0
    lost: int = 0
    """How often the job was lost before the attempt it will open."""
    watched: int = 0
    """The nonce of the runner it has a pidfd of."""
    seen: Shown | None = None
    answer: JobState | None = None


class Work(NamedTuple):
    """A runner, its payload, and what the payload started."""

    attempt: int
    nonce: int
    runner: str = "start"
    """start, checked, known, wait, ended, marked, dead"""
    lock: bool = True
    lock1: bool = True
    payload: str = "none"
    """none, forked, running, ok, bad, dead"""
    leftover: str = "none"
    """none, holding (byte 1), hidden (descriptors closed)"""

    @property
    def is_alive(self) -> bool:
        return self.runner != "dead"

    @property
    def uses_task(self) -> bool:
        """Whether code of the task runs."""
        return self.payload == "running" or self.leftover != "none"

    @property
    def is_gone(self) -> bool:
        return self.runner == "dead" and self.payload not in ("forked", "running") and self.leftover == "none"


class State(NamedTuple):
    schedulers: tuple[Scheduler, ...]
    works: tuple[Work, ...] = ()
    launch: Launch | None = None
    before: Launch | None = None
    """What launch.json said before: it is not synced, so a power loss may bring that back."""
    done: Mark | None = None
    failed: Mark | None = None
    pid: Pid | None = None
    boot: int = 0
    faults: int = 0
    opened: int = 0
    """How often an attempt was opened; the next nonce."""
    runs: int = 0
    """How often the task's code began."""
    was_done: bool = False
    told: int = 0
    """The last attempt of whose end an owner was told."""
    wrong: str | None = None


Next = Callable[[State, int, Scheduler], Iterator[Step[State]]]


class StartAndAdopt:
    """One job, wanted by several schedulers."""

    name = "start and adopt"

    def __init__(self, *, schedulers: int = 2, faults: int = 2, planted: str | None = None) -> None:
        assert planted is None or planted in PLANTED
        self._schedulers = schedulers
        self._faults = faults
        self._planted = planted

    def initial(self) -> State:
        return State(schedulers=(Scheduler(),) * self._schedulers)

    def broken(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        if sum(work.uses_task for work in state.works) > 1:
            return "the job runs twice at the same time"
        if state.done and state.failed and state.done.attempt == state.failed.attempt:
            return "one attempt has both markers"
        if state.runs > 1 + state.faults:
            return "the task was run again, though nothing had happened to it"
        return None

    def at_rest(self, state: State) -> bool:
        if state.works or any(s.pc != "end" or s.lock or s.lock1 for s in state.schedulers):
            return False
        shown = Shown(state.launch, state.done, state.failed)
        return judge(shown).action is Action.KEEP

    def show(self, state: State) -> str:
        parts = [
            f"S{i}:{s.pc}{'+lock' * s.lock}{'=' + s.answer.name if s.answer else ''}"
            for i, s in enumerate(state.schedulers)
        ]
        parts += [
            f"R{w.attempt}:{w.runner}{'+lock' * w.lock} P{w.attempt}:{w.payload}"
            f"{' left:' + w.leftover if w.leftover != 'none' else ''}"
            for w in state.works
        ]
        records = {"launch": state.launch, "done": state.done, "failed": state.failed, "pid": state.pid}
        parts += [f"{name}#{record.attempt}" for name, record in records.items() if record is not None]
        return " ".join(parts)

    # What can happen

    def steps(self, state: State) -> Iterator[Step[State]]:
        for i, scheduler in enumerate(state.schedulers):
            yield from self._scheduler(state, i, scheduler)
        for i, work in enumerate(state.works):
            yield from self._runner(state, i, work)
            yield from self._payload(state, i, work)
        if state.faults < self._faults:
            yield from self._accidents(state)

    def _accidents(self, state: State) -> Iterator[Step[State]]:
        worse = state._replace(faults=state.faults + 1)
        for i, scheduler in enumerate(state.schedulers):
            if scheduler.pc not in ("down", "end"):
                yield Step(f"S{i} is killed", _with(worse, i, Scheduler("down")), True)
        for i, work in enumerate(state.works):
            if work.is_alive:
                dead = work._replace(runner="dead", lock=False, lock1=False)
                yield Step(f"runner {work.attempt} is killed", _work(worse, i, dead), True)
            if work.payload in ("forked", "running"):
                yield Step(
                    f"payload {work.attempt} is killed", _work(worse, i, work._replace(payload="dead")), True
                )
        yield from self._power_loss(worse)

    def _power_loss(self, state: State) -> Iterator[Step[State]]:
        """Everything dies; what was not synced may be as it was before."""
        dark = state._replace(
            schedulers=(Scheduler("down"),) * len(state.schedulers),
            works=(),
            boot=state.boot + 1,
            told=0,  # nobody lives who was told; launch.json may be lost, and attempts count from 1 again
        )
        for launch in dict.fromkeys((state.launch, state.before, None)):
            for pid in dict.fromkeys((state.pid, None)):
                lost = dark._replace(launch=launch, before=None, pid=pid)
                yield Step("power loss", lost, True)
                if self._planted == "marker not synced" and (state.done or state.failed):
                    yield Step("power loss", lost._replace(done=None, failed=None), True)

    # A scheduler

    def _scheduler(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        step = getattr(self, f"_{s.pc}", None)
        if step is not None:
            yield from step(state, i, s)

    def _down(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        yield Step(f"S{i} starts again and submits", _with(state, i, Scheduler("submit")))

    def _submit(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        # The look of a submission decides nothing that is not looked at again, so it is one step.
        found = judge(self._shown(state))
        s = s._replace(answered=known_end(found))
        arrival = on_arrival(found)
        if arrival is Arrival.REUSE:
            yield Step(f"S{i} finds it done", self._answer(state, i, s, found))
        elif arrival is Arrival.ADOPT and found.state is JobState.RUNNING:
            yield Step(f"S{i} adopts it", _with(state, i, s._replace(pc="look")))
        else:
            yield Step(f"S{i} wants to run it", _with(state, i, s._replace(pc="try")))

    def _try(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        if not self._held(state):
            pc = "open" if self._planted == "no look under the lock" else "settle"
            yield Step(f"S{i} takes the lock", _with(state, i, s._replace(pc=pc, lock=True)))
        elif self._planted == "a taken lock is a failure":
            lost = Derived(JobState.ERROR, Action.START, "given up", JobFailureStatus.LOST)
            yield Step(f"S{i} gives up", self._answer(state, i, s, lost))
        else:
            yield Step(f"S{i} finds the lock taken", _with(state, i, s._replace(pc="look")))

    def _settle(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        yield from self._settled(state, i, s, self._start)

    def _judge(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        """`Attempts._judge`: the lock, then the verdict under it."""
        if self._planted == "lost without the lock":
            yield from self._judged(state, i, s)
        elif self._held(state):
            yield Step(f"S{i} cannot judge: the lock is taken", _with(state, i, s._replace(pc="look")))
        else:
            yield Step(f"S{i} takes the lock to judge", _with(state, i, s._replace(pc="judging", lock=True)))

    def _judging(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        yield from self._settled(state, i, s, self._judged)

    def _settled(self, state: State, i: int, s: Scheduler, then: Next) -> Iterator[Step[State]]:
        found = judge(self._shown(state, own=True))
        lost = found.reason is JobFailureStatus.LOST and found.marker is None
        rebooted = state.pid is not None and state.pid.boot != state.boot
        left = [w for w in state.works if w.runner == "dead"]
        if lost and left and not rebooted and self._planted != "no sweep":
            swept = state._replace(works=tuple(w for w in state.works if w.runner != "dead"))
            yield Step(f"S{i} sweeps", swept)
            return
        yield from then(state, i, s)

    def _start(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        found = judge(self._shown(state, own=True))
        if answers(found, s.answered):
            yield Step(f"S{i} finds the answer", self._answer(state, i, s, found))
        elif found.action is Action.WATCH:
            yield Step(f"S{i} lets it be", _with(state, i, s._replace(pc="look", lock=False)))
        elif found.action is not Action.SWEEP or self._planted == "no sweep":
            yield from self._open(state, i, s)

    def _open(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        known = (state.launch, state.done, state.failed, state.pid)
        attempt = max((record.attempt for record in known if record), default=0) + 1
        launch = Launch(attempt, state.opened + 1, s.lost)
        s = s._replace(pc="clear_done", answered=attempt - 1)
        opened = state._replace(launch=launch, before=state.launch, opened=state.opened + 1)
        yield Step(f"S{i} opens attempt {attempt}", _with(opened, i, s))

    def _clear_done(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        yield Step(f"S{i} removes .done", _with(state._replace(done=None), i, s._replace(pc="clear_failed")))

    def _clear_failed(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        yield Step(f"S{i} removes .failed", _with(state._replace(failed=None), i, s._replace(pc="clear_pid")))

    def _clear_pid(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        yield Step(f"S{i} removes .pid", _with(state._replace(pid=None), i, s._replace(pc="spawn")))

    def _spawn(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        assert state.launch is not None
        if not s.lock1:
            if self._held1(state):
                wrong = "a scheduler gave a job up because something of an earlier attempt still ran"
                yield Step(f"S{i} cannot lock byte 1", state._replace(wrong=wrong))
            else:
                yield Step(f"S{i} locks byte 1", _with(state, i, s._replace(lock1=True)))
            return
        work = Work(state.launch.attempt, state.launch.nonce)
        if self._planted == "lock let go before the start":
            work = work._replace(lock=False)
            s = s._replace(lock=False, lock1=False)
        spawned = state._replace(works=(*state.works, work))
        yield Step(
            f"S{i} starts runner {work.attempt}",
            _with(spawned, i, s._replace(pc="confirm", watched=work.nonce)),
        )

    def _confirm(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        """Waits for the runner's word or its death; then only the runner has the lock."""
        mine = _of(state, s.watched)
        if mine is None or mine.runner not in ("start", "checked"):
            s = s._replace(pc="wait", lock=False, lock1=False)
            yield Step(f"S{i} closes its copies", _with(state, i, s))

    def _wait(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        mine = _of(state, s.watched)
        if mine is None or not mine.is_alive:
            yield Step(f"S{i} sees the runner's end", _with(state, i, s._replace(pc="look", watched=0)))

    # Looking without the lock: three reads, and anything may happen in between

    def _look(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        quick = judge(self._shown(state, marks_only=True))
        if quick.action is Action.KEEP:
            yield from self._ended(state, i, s, quick)
            return
        seen = Shown(locked=self._held(state))
        yield Step(f"S{i} looks at the lock", _with(state, i, s._replace(pc="look_pid", seen=seen)))

    def _look_pid(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        assert s.seen is not None
        seen = s.seen._replace(pid=state.pid, liveness=self._liveness(state), descendants=self._held1(state))
        yield Step(f"S{i} looks at the pid", _with(state, i, s._replace(pc="look_rest", seen=seen)))

    def _look_rest(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        assert s.seen is not None
        shown = self._mutated(s.seen._replace(launch=state.launch, done=state.done, failed=state.failed))
        s = s._replace(seen=None)
        found = judge(shown)
        if found.action is Action.KEEP:
            yield from self._ended(state, i, s, found)
        elif found.action is not Action.WATCH:
            yield Step(f"S{i} thinks it is free", _with(state, i, s._replace(pc="judge")))
        elif found.state is JobState.RUNNING and shown.pid and shown.pid.attempt == found.attempt:
            yield Step(
                f"S{i} watches the runner", _with(state, i, s._replace(pc="wait", watched=shown.pid.nonce))
            )
        elif self._planted != "no poll" or shown.pid is not None:
            yield Step(f"S{i} will look again", _with(state, i, s._replace(pc="look")))
        else:
            s = s._replace(pc="forever", watched=found.attempt)
            yield Step(f"S{i} waits for a pid record", _with(state, i, s))

    def _forever(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        if state.pid is not None and state.pid.attempt == s.watched:
            yield Step(f"S{i} sees the pid record", _with(state, i, s._replace(pc="look", watched=0)))

    def _ended(self, state: State, i: int, s: Scheduler, found: Derived) -> Iterator[Step[State]]:
        if answers(found, s.answered):
            yield Step(f"S{i} reads the answer", self._answer(state, i, s, found))
        else:
            yield Step(f"S{i} finds an old answer", _with(state, i, s._replace(pc="judge", seen=None)))

    def _judged(self, state: State, i: int, s: Scheduler) -> Iterator[Step[State]]:
        shown = self._shown(state, own=True)
        found = judge(shown)
        free = s._replace(lock=False)
        if found.action is Action.WATCH:
            yield Step(f"S{i} lets it be", _with(state, i, free._replace(pc="look")))
        elif found.action is Action.KEEP and not answers(found, s.answered):
            yield Step(f"S{i} tries it itself", _with(state, i, free._replace(pc="try")))
        elif found.action is Action.KEEP:
            yield Step(f"S{i} reads the answer", self._answer(state, i, s, found))
        else:
            tries = next_try(shown, LIMITS)
            if tries is not None:
                again = free._replace(
                    pc="try", lost=tries.lost_count, answered=max(s.answered, found.attempt)
                )
                yield Step(f"S{i} will try again", _with(state, i, again))
            elif state.launch is None:
                yield Step(f"S{i} calls it lost", self._answer(state, i, s, found))
            else:
                mark = Mark(state.launch.attempt, state.launch.nonce, JobFailureStatus.LOST)
                yield Step(f"S{i} marks it lost", self._answer(state._replace(failed=mark), i, s, found))

    def _answer(self, state: State, i: int, s: Scheduler, found: Derived) -> State:
        """A scheduler tells its owner: from now on nothing of that attempt may run."""
        wrong = None
        if any(w.uses_task and w.attempt <= max(found.attempt, 1) for w in state.works):
            wrong = f"a scheduler said {found.state.name} of a job that runs"
        elif found.state is JobState.DONE and state.done is None:
            wrong = "a scheduler said DONE of a job without a marker"
        ended = Scheduler("end", answer=found.state)
        told = max(state.told, found.attempt)
        return _with(state._replace(wrong=state.wrong or wrong, told=told), i, ended)

    # The runner and its payload

    def _runner(self, state: State, i: int, w: Work) -> Iterator[Step[State]]:
        name = f"runner {w.attempt}"
        early = self._planted == "payload starts before the runner is known"
        if w.runner == "start":
            if self._planted == "lock let go before the start":
                if self._held(state):
                    yield Step(f"{name} finds the lock taken", _work(state, i, _dead(w)))
                else:
                    yield Step(
                        f"{name} takes the lock", _work(state, i, w._replace(runner="checked", lock=True))
                    )
            elif state.launch is None or state.launch.nonce != w.nonce:
                yield Step(f"{name} is stale", _work(state, i, _dead(w)))
            else:
                yield Step(f"{name} checks its launch record", _work(state, i, w._replace(runner="checked")))
        elif w.runner == "checked":
            if early and w.payload == "none":
                yield Step(f"{name} forks", _work(state, i, w._replace(payload="forked", lock=False)))
                return
            known = _work(state, i, w._replace(runner="wait" if early else "known"))
            yield Step(f"{name} writes its pid", known._replace(pid=Pid(w.attempt, w.nonce, state.boot)))
        elif w.runner == "known":
            forked = w._replace(runner="wait", payload="forked", lock1=False)
            yield Step(f"{name} forks", _work(state, i, forked))
        elif w.runner == "wait" and w.payload in ("ok", "bad", "dead"):
            yield Step(f"{name} ends leftovers", _work(state, i, w._replace(runner="ended", leftover="none")))
        elif w.runner == "ended":
            marked = _work(state, i, w._replace(runner="marked"))
            if w.payload == "ok":
                marked = marked._replace(done=Mark(w.attempt, w.nonce), was_done=True)
            else:
                marked = marked._replace(failed=Mark(w.attempt, w.nonce, JobFailureStatus.FAILED))
            yield Step(f"{name} writes the marker", marked)
        elif w.runner == "marked":
            yield Step(f"{name} exits", _work(state, i, _dead(w)))

    def _payload(self, state: State, i: int, w: Work) -> Iterator[Step[State]]:
        name = f"payload {w.attempt}"
        if w.payload == "forked":
            if not w.is_alive:
                yield Step(f"{name} finds no parent", _work(state, i, w._replace(payload="dead")))
            else:
                began = _work(state, i, w._replace(payload="running"))._replace(runs=state.runs + 1)
                if state.was_done:
                    began = began._replace(wrong="a job that was done is run again")
                elif w.attempt <= state.told:
                    began = began._replace(wrong="an attempt begins of whose end an owner was told before")
                yield Step(f"{name} closes the lock and begins", began)
        elif w.payload == "running":
            yield Step(f"{name} succeeds", _work(state, i, w._replace(payload="ok")))
            if w.leftover == "none":
                yield Step(f"{name} starts a daemon", _work(state, i, w._replace(leftover="holding")))
                yield Step(f"{name} starts a hidden daemon", _work(state, i, w._replace(leftover="hidden")))
            if not w.is_alive:
                yield Step(f"{name} dies with its parent", _work(state, i, w._replace(payload="dead")))
            elif state.faults < self._faults:
                failed = _work(state, i, w._replace(payload="bad"))._replace(faults=state.faults + 1)
                yield Step(f"{name} fails", failed, True)

    # What can be seen

    def _held(self, state: State) -> bool:
        keeps = self._planted == "leftovers keep the lock"
        return (
            any(s.lock for s in state.schedulers)
            or any(w.lock or w.payload == "forked" for w in state.works)
            or (keeps and any(w.payload == "running" or w.leftover == "holding" for w in state.works))
        )

    def _held1(self, state: State) -> bool:
        return any(s.lock1 for s in state.schedulers) or any(
            w.lock1 or w.payload in ("forked", "running") or w.leftover == "holding" for w in state.works
        )

    def _liveness(self, state: State) -> Liveness:
        if state.pid is None:
            return Liveness.UNKNOWN
        if state.pid.boot != state.boot:
            return Liveness.ALIVE if self._planted == "boot id ignored" else Liveness.REBOOTED
        mine = _of(state, state.pid.nonce)
        return Liveness.ALIVE if mine is not None and mine.is_alive else Liveness.DEAD

    def _shown(self, state: State, *, own: bool = False, marks_only: bool = False) -> Shown:
        """What the directory shows at this moment; `own`: to the holder of the lock."""
        shown = Shown(state.launch, state.done, state.failed)
        if not marks_only:
            shown = shown._replace(
                pid=state.pid,
                liveness=self._liveness(state),
                locked=not own and self._held(state),
                descendants=self._held1(state),
            )
        return self._mutated(shown)

    def _mutated(self, shown: Shown) -> Shown:
        if self._planted == "old markers count" and shown.launch is not None:
            attempt, nonce, *_ = shown.launch
            return shown._replace(
                done=shown.done and shown.done._replace(attempt=attempt, nonce=nonce),
                failed=shown.failed and shown.failed._replace(attempt=attempt, nonce=nonce),
            )
        return shown


def _of(state: State, nonce: int) -> Work | None:
    return next((w for w in state.works if w.nonce == nonce), None)


def _dead(w: Work) -> Work:
    return w._replace(runner="dead", lock=False, lock1=False)


def _with(state: State, i: int, s: Scheduler) -> State:
    schedulers = state.schedulers
    return state._replace(schedulers=(*schedulers[:i], s, *schedulers[i + 1 :]))


def _work(state: State, i: int, w: Work) -> State:
    """The state with one piece of work changed; what is gone altogether is left out."""
    works = (*state.works[:i], w, *state.works[i + 1 :])
    return state._replace(works=tuple(each for each in works if not each.is_gone))
