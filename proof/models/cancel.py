"""Owns the model of cancelling: a person's wish races with the job's end, its walltime and everybody's death.
What a marker says is up to the runner's real `judge`, what follows to `derive_state` and `after_attempt`.
Who may write a marker is the start model's business: here the scheduler's work under the lock is one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proof.models.checker import Step
from proof.models.real import Launch, Mark, Pid, Shown, judge, next_try, verdict
from tenuto.launchers.payload.report import Report
from tenuto.launchers.runner.verdict import Ending, PayloadStop
from tenuto.launchers.runner.verdict import judge as judge_ending
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import RetryLimits
from tenuto.workspace.derive_table import Action
from tenuto.workspace.ports import Liveness

LIMITS = RetryLimits(resumable=True, max_retries=1, max_lost_retries=1)
CANCELLED, TIMEOUT, LOST = JobFailureStatus.CANCELLED, JobFailureStatus.TIMEOUT, JobFailureStatus.LOST

PLANTED = {
    "signal before the wish": "`kill` sends TERM before it has written stop.json",
    "old wishes count": "`read_stop` does not compare the attempt",
    "wish kept from the attempt before": "`open_attempt` leaves stop.json, and `read_stop` does not compare",
    "scheduler marks at once": "`cancel` writes `.failed` itself while the runner lives",
    "wish lost while starting": "`_start` does not ask for `job.stop` again once the runner is there",
    "wish not taken over": "a scheduler that adopts a job does not look for a stop.json",
    "lost after a wish is retried": "`_explained` does not look at stop.json",
    "no KILL after the grace": "the supervisor sends TERM only",
    "the pid is signalled": "`kill` signals the pid of the record, without a pidfd checked after opening",
    "the walltime overwrites the wish": "`_time_is_up` replaces stop.json, whoever wrote it",
    "timed out, retried, though cancelled": "`_verdict` retries a timeout without asking for the wish",
    "a late wish replaces another": "`request_stop` replaces stop.json, also that of a later attempt",
    "a returned task is cancelled": "`judge` believes the signal rather than the task's own report",
    "an end that was asked for is good": "`judge` believes a good end, whatever was asked for before it",
}


class Scheduler(NamedTuple):
    pc: str = "submit"
    """down, submit, ready, open, clear, spawn, wait, telling, marking, end"""
    stop: int = 0
    """`job.stop`: the attempt that was asked to stop. It dies with the scheduler; stop.json does not."""
    told: bool = False
    """TERM was sent to the current runner."""
    answer: JobState | None = None


class Killer(NamedTuple):
    """`tenuto kill`, in another process."""

    pc: str = "idle"
    """idle, looked, opened, wrote, signalled, end"""
    attempt: int = 0
    nonce: int = 0


class Work(NamedTuple):
    attempt: int
    nonce: int
    runner: str = "start"
    """start, known, wait, ended, marked, dead"""
    term: bool = False
    """A TERM is pending: signals are blocked from the first moment."""
    stop: JobFailureStatus | None = None
    """Why the supervisor ends the payload."""
    late: bool = False
    """The payload had ended, or had reported its result, before the supervisor was to end it."""
    deaf: bool = False
    """Never ends by itself, and does not hear TERM."""
    payload: str = "none"
    """none, running, returned, ok, zero, bad, killed; zero: a command's, which reports nothing"""
    asked: bool = False
    """TERM was sent to the payload."""
    disturbed: bool = False
    """It was sent before the payload returned or ended."""


class State(NamedTuple):
    scheduler: Scheduler = Scheduler()
    killer: Killer = Killer()
    work: Work | None = None
    launch: Launch | None = None
    done: Mark | None = None
    failed: Mark | None = None
    pid: Pid | None = None
    wish: tuple[int, JobFailureStatus] | None = None
    """stop.json"""
    opened: int = 0
    faults: int = 0
    cancels: int = 0
    asked: frozenset[int] = frozenset()
    """The attempts that a person asked to stop."""
    promised: int = 0
    """The attempt of which a person was told that it would stop; nothing later may begin."""
    void: int = 0
    """The last attempt before the job was submitted again: what was promised of it counts no more."""
    stranger: bool = False
    """The pid of the last runner belongs to another process."""
    wrong: str | None = None


class CancelAgainstFinish:
    """One job that may be retried, a scheduler, and two ways to cancel."""

    name = "cancel against finish"

    def __init__(self, *, faults: int = 2, planted: str | None = None) -> None:
        assert planted is None or planted in PLANTED
        self._faults = faults
        self._planted = planted

    def initial(self) -> State:
        return State()

    def broken(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        if state.done and state.failed and state.done.attempt == state.failed.attempt:
            return "one attempt has both markers"
        return None

    def at_rest(self, state: State) -> bool:
        s, work = state.scheduler, state.work
        if state.killer.pc not in ("idle", "end"):
            return False
        if work is not None and work.deaf and work.payload == "running" and s.pc == "wait":
            return work.attempt > max(state.promised, s.stop)  # nobody was told that it would end
        return work is None and s.pc == "end"

    def show(self, state: State) -> str:
        s, k, w = state.scheduler, state.killer, state.work
        parts = [f"S:{s.pc}{'+stop' * bool(s.stop)}{'=' + s.answer.name if s.answer else ''}"]
        if k.pc != "idle":
            parts.append(f"K:{k.pc}#{k.attempt}")
        if w is not None:
            stop = f"({w.stop.name})" if w.stop else ""
            parts.append(f"R{w.attempt}:{w.runner}{'+term' * w.term}{stop} P{w.attempt}:{w.payload}")
        records = {"launch": state.launch, "done": state.done, "failed": state.failed, "pid": state.pid}
        parts += [f"{name}#{record.attempt}" for name, record in records.items() if record is not None]
        if state.failed and state.failed.reason:
            parts.append(state.failed.reason.name)
        if state.wish:
            parts.append(f"stop.json#{state.wish[0]}:{state.wish[1].name}")
        return " ".join(parts)

    # What can happen

    def steps(self, state: State) -> Iterator[Step[State]]:
        step = getattr(self, f"_{state.scheduler.pc}", None)
        if step is not None:
            yield from step(state, state.scheduler)
        yield from self._cancel(state, state.scheduler)
        yield from self._killer(state, state.killer)
        if state.work is not None:
            yield from self._runner(state, state.work)
            yield from self._payload(state, state.work)
        if state.faults < self._faults:
            yield from self._accidents(state)

    def _accidents(self, state: State) -> Iterator[Step[State]]:
        worse = state._replace(faults=state.faults + 1)
        if state.scheduler.pc not in ("down", "end"):
            yield Step("S is killed", worse._replace(scheduler=Scheduler("down")), True)
        if state.killer.pc not in ("idle", "end"):
            yield Step("K is killed", worse._replace(killer=Killer("end")), True)
        work = state.work
        if work is not None:
            yield Step(f"runner {work.attempt} is killed", _gone(worse), True)
            if work.payload == "running":
                killed = work._replace(payload="killed")
                yield Step(f"payload {work.attempt} is killed", worse._replace(work=killed), True)

    # The scheduler

    def _down(self, state: State, s: Scheduler) -> Iterator[Step[State]]:
        yield Step("S starts again and submits", state._replace(scheduler=Scheduler()))

    def _submit(self, state: State, s: Scheduler) -> Iterator[Step[State]]:
        found = judge(self._shown(state))
        if found.state is JobState.DONE:
            yield Step("S finds it done", self._answer(state, JobState.DONE))
        elif found.action is Action.WATCH:
            wish = self._read_wish(state, found.attempt)
            if wish is CANCELLED and self._planted != "wish not taken over":
                s = s._replace(pc="telling", stop=found.attempt)
            else:
                s = s._replace(pc="wait")
            yield Step("S adopts it", state._replace(scheduler=s))
        else:
            # To submit is to try again, whatever was wished before.
            void = state.launch.attempt if state.launch else 0
            fresh = state._replace(scheduler=s._replace(pc="ready"), promised=0, void=void)
            yield Step("S wants to run it", fresh)

    def _ready(self, state: State, s: Scheduler) -> Iterator[Step[State]]:
        if state.work is None:  # else the lock is taken
            yield Step("S takes it up", state._replace(scheduler=s._replace(pc="open")))

    def _open(self, state: State, s: Scheduler) -> Iterator[Step[State]]:
        yield Step("S opens an attempt", self._opened(state, s._replace(pc="clear", told=False)))

    def _opened(self, state: State, s: Scheduler) -> State:
        known = (state.launch, state.done, state.failed, state.pid)
        attempt = max((record.attempt for record in known if record), default=0) + 1
        tries = next_try(self._shown(state), LIMITS) if state.launch else None
        launch = Launch(
            attempt, state.opened + 1, tries.lost_count if tries else 0, tries.retry_count if tries else 0
        )
        return state._replace(launch=launch, opened=state.opened + 1, scheduler=s)

    def _clear(self, state: State, s: Scheduler) -> Iterator[Step[State]]:
        clear = state._replace(done=None, failed=None, pid=None, scheduler=s._replace(pc="spawn"))
        if self._planted != "wish kept from the attempt before":
            clear = clear._replace(wish=None)
        yield Step("S clears what the last attempt left", clear)

    def _spawn(self, state: State, s: Scheduler) -> Iterator[Step[State]]:
        assert state.launch is not None
        for deaf in (False, True):
            work = Work(state.launch.attempt, state.launch.nonce, deaf=deaf)
            pc = "wait"
            if s.stop and self._planted != "wish lost while starting":
                pc = "telling"
            begun = state._replace(work=work, stranger=False, scheduler=s._replace(pc=pc))
            yield Step(f"S starts runner {work.attempt}{' of a deaf job' * deaf}", begun)

    def _telling(self, state: State, s: Scheduler) -> Iterator[Step[State]]:
        """`request_stop`: the wish, then the signal."""
        attempt = state.launch.attempt if state.launch else 0
        wished = state._replace(
            wish=(attempt, CANCELLED),
            promised=max(state.promised, s.stop),
            scheduler=s._replace(pc="signalling"),
        )
        yield Step("S writes stop.json", wished)

    def _signalling(self, state: State, s: Scheduler) -> Iterator[Step[State]]:
        told = state._replace(scheduler=s._replace(pc="wait", told=True))
        yield Step("S sends TERM", _signalled(told, state.work.nonce if state.work else 0))

    def _wait(self, state: State, s: Scheduler) -> Iterator[Step[State]]:
        if state.work is not None:
            if s.told:
                yield Step("S kills the runner that does not end", _gone(state))
            return
        shown = self._shown(state)
        found = judge(shown)
        wish = CANCELLED if s.stop else self._read_wish(state, found.attempt)
        ignored = "timed out, retried, though cancelled" if found.marker else "lost after a wish is retried"
        ended = verdict(shown, LIMITS, wish, heeded=self._planted != ignored)
        if found.state is JobState.DONE:
            yield Step("S reads .done", self._answer(state, JobState.DONE))
        elif ended.tries is not None:
            yield Step("S will try again", state._replace(scheduler=s._replace(pc="ready")))
        elif found.marker is not None:
            yield Step("S reads .failed, or heeds the wish", self._answer(state, JobState.ERROR))
        else:
            reason = ended.reason or LOST
            yield Step(f"S marks it {reason.name}", self._marked(state, reason))

    def _cancel(self, state: State, s: Scheduler) -> Iterator[Step[State]]:
        """`Scheduler.cancel`: called once, at any moment."""
        if state.cancels or s.pc not in ("ready", "open", "clear", "spawn", "wait"):
            return
        state = state._replace(cancels=1)
        attempt = state.launch.attempt if state.launch else 0
        if s.pc == "ready":
            found = judge(self._shown(state))
            if found.action is Action.START:  # also to say in the directory that it was cancelled
                opened = self._opened(state, s._replace(pc="marking"))
                assert opened.launch is not None
                opened = opened._replace(asked=state.asked | {opened.launch.attempt})
                yield Step("a person cancels the waiting job", opened)
            else:
                yield Step("a person cancels the waiting job", self._answer(state, JobState.ERROR))
            return
        asked = attempt + 1 if s.pc == "open" else attempt
        state = state._replace(asked=state.asked | {asked})
        if self._planted == "scheduler marks at once" and s.pc == "wait":
            yield Step("a person cancels, S marks", self._marked(state, CANCELLED))
        elif s.pc == "wait" and state.work is not None:
            yield Step("a person cancels", state._replace(scheduler=s._replace(pc="telling", stop=asked)))
        else:
            yield Step("a person cancels", state._replace(scheduler=s._replace(stop=asked)))

    def _marking(self, state: State, s: Scheduler) -> Iterator[Step[State]]:
        clear = state._replace(done=None, failed=None, pid=None, wish=None)
        yield Step("S marks it cancelled", self._marked(clear, CANCELLED))

    def _marked(self, state: State, reason: JobFailureStatus) -> State:
        assert state.launch is not None
        mark = Mark(state.launch.attempt, state.launch.nonce, reason)
        return self._answer(self._noted(state._replace(failed=mark), mark), JobState.ERROR)

    def _noted(self, state: State, mark: Mark) -> State:
        if mark.reason is CANCELLED and mark.attempt not in state.asked:
            return state._replace(wrong="an attempt is cancelled that nobody asked to stop")
        return state

    def _answer(self, state: State, answer: JobState) -> State:
        if (answer is JobState.DONE) != (judge(self._shown(state)).state is JobState.DONE):
            state = state._replace(wrong=f"the scheduler says {answer.name}, the directory does not")
        return state._replace(scheduler=Scheduler("end", answer=answer))

    # `tenuto kill`

    def _killer(self, state: State, k: Killer) -> Iterator[Step[State]]:
        if k.pc == "idle":
            found = judge(self._shown(state))
            running = found.state in (JobState.RUNNING, JobState.SCHEDULED)
            if running and state.pid and state.launch and state.pid.attempt == state.launch.attempt:
                looked = Killer("looked", state.pid.attempt, state.pid.nonce)
                yield Step("K looks", state._replace(killer=looked))
        elif k.pc == "looked":
            lives = state.work is not None and state.work.nonce == k.nonce
            if lives or self._planted == "the pid is signalled":
                yield Step("K opens the runner", state._replace(killer=k._replace(pc="opened")))
            else:
                yield Step("K finds the runner gone", state._replace(killer=Killer("end")))
        elif self._planted == "signal before the wish" and k.pc in ("opened", "wrote"):
            if k.pc == "opened":
                told = _signalled(state, k.nonce)
                if told == state:
                    yield Step("K finds the runner gone", state._replace(killer=Killer("end")))
                else:
                    asked = told._replace(asked=state.asked | {k.attempt}, killer=k._replace(pc="wrote"))
                    yield Step("K sends TERM", asked)
            else:
                yield Step("K writes stop.json", _promised(self._wished(state, k), k))
        elif k.pc == "opened":
            wished = self._wished(state, k)._replace(killer=k._replace(pc="wrote"))
            yield Step("K writes stop.json", wished)
        elif k.pc == "wrote":
            told = _signalled(state, k.nonce)
            if self._planted == "the pid is signalled" and state.stranger:
                yield Step("K sends TERM", state._replace(wrong="a process of somebody else was signalled"))
            elif told == state and (state.work is None or state.work.nonce != k.nonce):
                yield Step("K finds the runner gone", state._replace(killer=Killer("end")))
            else:
                yield Step("K sends TERM", _promised(told, k))

    def _wished(self, state: State, k: Killer) -> State:
        """`request_stop`, by one that may be late: it does not touch the wish for a later attempt.

        The look at the file and its replacement are one step here; in the code, microseconds lie between.
        """
        state = state._replace(asked=state.asked | {k.attempt})
        if self._planted != "a late wish replaces another" and state.wish and state.wish[0] > k.attempt:
            return state
        return state._replace(wish=(k.attempt, CANCELLED))

    # The runner and its payload

    def _runner(self, state: State, w: Work) -> Iterator[Step[State]]:
        name = f"runner {w.attempt}"
        if w.runner == "start":
            pid = Pid(w.attempt, w.nonce)
            yield Step(f"{name} writes its pid", state._replace(pid=pid, work=w._replace(runner="known")))
        elif w.runner == "known":
            begun = state._replace(work=w._replace(runner="wait", payload="running"))
            promised = max(state.promised, state.scheduler.stop)
            if promised and w.attempt > promised:
                begun = begun._replace(wrong="a job begins again that a person was told would stop")
            yield Step(f"{name} forks", begun)
        elif w.runner == "wait":
            yield from self._supervisor(state, w, name)
        elif w.runner == "ended":
            yield Step(f"{name} writes the marker", self._runner_marks(state, w))
        elif w.runner == "marked":
            yield Step(f"{name} exits", _gone(state))

    def _supervisor(self, state: State, w: Work, name: str) -> Iterator[Step[State]]:
        if w.payload not in ("running", "returned"):
            yield Step(f"{name} sees the end", state._replace(work=w._replace(runner="ended")))
        if w.term:
            stop = w.stop
            # The first reason counts, but a person's wish outranks the clock.
            if stop is None or (stop is TIMEOUT and self._planted != "the walltime overwrites the wish"):
                stop = self._read_wish(state, w.attempt) or w.stop or CANCELLED
            yield Step(f"{name} takes TERM", state._replace(work=_noted(w, stop)._replace(term=False)))
        if w.stop is None and not w.deaf:
            yield Step(f"{name} finds the time is up", self._time_is_up(state, w))
        if w.asked and w.payload == "running" and self._planted != "no KILL after the grace":
            yield Step(f"{name} kills its payload", state._replace(work=w._replace(payload="killed")))

    def _time_is_up(self, state: State, w: Work) -> State:
        wish = self._read_wish(state, w.attempt)
        if wish is None or self._planted == "the walltime overwrites the wish":
            return state._replace(wish=(w.attempt, TIMEOUT), work=_noted(w, TIMEOUT))
        return state._replace(work=_noted(w, wish))

    def _runner_marks(self, state: State, w: Work) -> State:
        is_late = w.late or self._planted == "an end that was asked for is good"
        reason = judge_ending(_ENDINGS[w.payload, w.stop, is_late]).reason
        if self._planted == "a returned task is cancelled" and w.stop is not None:
            reason = w.stop
        mark = Mark(w.attempt, w.nonce, reason)
        state = state._replace(work=w._replace(runner="marked"))
        if w.payload in ("ok", "zero") and reason is not None and not w.disturbed:
            return state._replace(wrong="a task returned, and its work is thrown away")
        if reason is None and w.disturbed:
            return state._replace(wrong="a job was asked to end before its end, and is done")
        if reason is None:
            return state._replace(done=mark)
        return self._noted(state._replace(failed=mark), mark)

    def _payload(self, state: State, w: Work) -> Iterator[Step[State]]:
        name = f"payload {w.attempt}"

        def ends(how: str) -> State:
            return state._replace(work=w._replace(payload=how, disturbed=w.asked))

        if w.payload == "running" and not w.deaf:
            yield Step(f"{name} returns", ends("returned"))
            yield Step(f"{name} fails", ends("bad"))
            yield Step(f"{name} exits with 0", ends("zero"))
        elif w.payload == "returned":
            yield Step(f"{name} exits", state._replace(work=w._replace(payload="ok")))

    # What can be seen

    def _read_wish(self, state: State, attempt: int) -> JobFailureStatus | None:
        if state.wish is None:
            return None
        compares = self._planted not in ("old wishes count", "wish kept from the attempt before")
        return state.wish[1] if state.wish[0] == attempt or not compares else None

    def _shown(self, state: State) -> Shown:
        lives = state.work is not None and state.pid is not None and state.work.nonce == state.pid.nonce
        liveness = Liveness.UNKNOWN if state.pid is None else Liveness.ALIVE if lives else Liveness.DEAD
        held = state.work is not None
        return Shown(state.launch, state.done, state.failed, state.pid, liveness, held, held)


_ENDINGS = {
    (payload, stop, is_late): Ending(
        exit_code=None if payload == "killed" else 1 if payload == "bad" else 0,
        signal=9 if payload == "killed" else None,
        report=Report(done=payload == "ok"),
        stop=None if stop is None else PayloadStop(stop, "stopped"),
        is_stop_late=is_late,
    )
    for payload in ("ok", "zero", "bad", "killed")
    for stop in (None, CANCELLED, TIMEOUT)
    for is_late in (False, True)
}


def _noted(w: Work, stop: JobFailureStatus | None) -> Work:
    """The supervisor remembers why, and whether that is too late, which the first request decides."""
    late = w.late if w.stop else w.payload != "running"
    return w._replace(stop=stop, late=late, asked=True)


def _signalled(state: State, nonce: int) -> State:
    """TERM to exactly that process; nothing happens if it is gone."""
    work = state.work
    if work is None or work.nonce != nonce:
        return state
    return state._replace(work=work._replace(term=True))


def _promised(state: State, k: Killer) -> State:
    promised = k.attempt if k.attempt > state.void else 0
    return state._replace(promised=max(state.promised, promised), killer=Killer("end"))


def _gone(state: State) -> State:
    """The runner is dead, and what was below it; its pid may be another process's."""
    return state._replace(work=None, stranger=True)
