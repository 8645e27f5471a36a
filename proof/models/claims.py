"""Owns the model of jobs that a cluster starts: drivers, runners, claims, and reads that come late.
What a directory means is judged by the real `derive_state`; the cluster may forget, lie and start an
order twice, and a runner may read a `launch.json` that is long replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proof.models.checker import Step
from proof.models.real import Launch, Mark, Shown, judge
from tenuto.workspace.derive_table import Action, Claimed, ClusterSays

PLANTED = {
    "no claim": "the runner begins without having made the claim",
    "claim cleared": "`_clear_older_attempts` removes the claims of earlier attempts",
    "no revoke": "`ExternalAttempts.give_up` does not make the claim before the next attempt is opened",
    "fence too short": "an attempt that the cluster cannot confirm counts as ended while its runner beats",
    "launch rewritten": "the launcher writes launch.json again once its submission was answered",
}
MOST_STARTS = 2
"""How often a cluster may start one order."""


class Driver(NamedTuple):
    pc: str = "look"
    """look, settle, revoke, open, submit, answered, wait, end, down"""
    nonce: int = 0
    """Of the attempt it opened, or is about to give up."""


class Runner(NamedTuple):
    nonce: int
    pc: str = "new"
    """new, seen, claimed, run, gone"""


class State(NamedTuple):
    drivers: tuple[Driver, ...]
    launch: int = 0
    """The nonce, and the attempt, in launch.json."""
    lock: int = -1
    """The driver that has the job's lock."""
    claims: tuple[Claimed, ...] = (Claimed.NONE,)
    """By nonce."""
    orders: frozenset[int] = frozenset()
    """The attempts that the cluster was given."""
    runners: tuple[Runner, ...] = ()
    done: int = 0
    """The nonce in .done."""
    was_done: bool = False
    faults: int = 0
    wrong: str | None = None


class ClaimsAndFence:
    """One job, two drivers, and a cluster that is not to be trusted."""

    name = "claims and fence"

    def __init__(self, *, drivers: int = 2, faults: int = 2, planted: str | None = None) -> None:
        assert planted is None or planted in PLANTED
        self._drivers = drivers
        self._faults = faults
        self._planted = planted

    def initial(self) -> State:
        return State((Driver(),) * self._drivers)

    def broken(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        if sum(runner.pc == "run" for runner in state.runners) > 1:
            return "the payload runs twice at the same time"
        if state.was_done and any(runner.pc == "run" for runner in state.runners):
            return "the payload runs again, though the job was done"
        if state.was_done and state.done != state.launch:
            return "the marker of a job that was done does not count any more"
        return None

    def at_rest(self, state: State) -> bool:
        return (
            all(driver.pc == "end" for driver in state.drivers)
            and state.was_done
            and not any(runner.pc == "run" for runner in state.runners)
        )

    def show(self, state: State) -> str:
        drivers = [f"D{i}:{d.pc}{d.nonce or ''}" for i, d in enumerate(state.drivers)]
        runners = [f"R{r.nonce}:{r.pc}" for r in state.runners if r.pc != "gone"]
        claims = [f"claim{n}:{c.name}" for n, c in enumerate(state.claims) if c is not Claimed.NONE]
        return " ".join([*drivers, *runners, *claims, f"launch#{state.launch}", f"done#{state.done}"])

    def steps(self, state: State) -> Iterator[Step[State]]:
        for i, driver in enumerate(state.drivers):
            yield from self._driver(state, i, driver)
            if driver.pc not in ("down", "end") and state.faults < self._faults:
                lock = -1 if state.lock == i else state.lock
                worse = state._replace(faults=state.faults + 1, lock=lock)
                yield Step(f"D{i} is killed", _with(worse, i, Driver("down")), True)
        for i, runner in enumerate(state.runners):
            yield from self._runner(state, i, runner)
            if runner.pc != "gone" and state.faults < self._faults:
                worse = state._replace(faults=state.faults + 1)
                yield Step(f"runner {runner.nonce} is killed", _run(worse, i, "gone"), True)
        for nonce in state.orders:
            started = sum(runner.nonce == nonce for runner in state.runners)
            if started < MOST_STARTS:
                if started and state.faults >= self._faults:
                    continue
                runners = tuple(sorted((*state.runners, Runner(nonce))))
                begun = state._replace(runners=runners, faults=state.faults + bool(started))
                yield Step(f"the cluster starts {nonce}", begun, started > 0)

    # A driver

    def _driver(self, state: State, i: int, d: Driver) -> Iterator[Step[State]]:
        step = getattr(self, f"_{d.pc}", None)
        if step is not None:
            yield from step(state, i, d)

    def _down(self, state: State, i: int, d: Driver) -> Iterator[Step[State]]:
        yield Step(f"D{i} starts again", _with(state, i, Driver()))

    def _look(self, state: State, i: int, d: Driver) -> Iterator[Step[State]]:
        if self._is_done(state):
            yield Step(f"D{i} finds it done", _with(state._replace(was_done=True), i, Driver("end")))
        elif state.lock < 0:
            yield Step(f"D{i} takes the lock", _with(state._replace(lock=i), i, Driver("settle")))

    def _settle(self, state: State, i: int, d: Driver) -> Iterator[Step[State]]:
        if not state.launch:
            yield Step(f"D{i} finds nothing", _with(state, i, Driver("open")))
            return
        for says, is_lie in self._words(state):
            if is_lie and state.faults >= self._faults:
                continue
            heard = state._replace(faults=state.faults + is_lie)
            found = judge(self._shown(state, says))
            if found.action is Action.START:
                after = _with(heard, i, Driver("revoke", state.launch))
            else:
                after = _with(heard._replace(lock=-1), i, Driver("look"))
            yield Step(f"D{i} hears {says.name.lower()}", after, is_lie)

    def _revoke(self, state: State, i: int, d: Driver) -> Iterator[Step[State]]:
        """C3: nothing is opened before the attempt is claimed, or its runner was known to have ended."""
        made = state.claims[d.nonce]
        if made is Claimed.NONE and self._planted != "no revoke":
            claimed = _claim(state, d.nonce, Claimed.REVOKED)
            yield Step(f"D{i} revokes {d.nonce}", _with(claimed, i, Driver("open")))
        elif made is Claimed.BEGUN and any(r.nonce == d.nonce and _is_alive(r) for r in state.runners):
            if self._planted in ("fence too short", "no revoke"):
                yield Step(f"D{i} gives {d.nonce} up", _with(state, i, Driver("open")))
            else:  # it began between the question and the claim
                yield Step(f"D{i} is too late", _with(state._replace(lock=-1), i, Driver("look")))
        else:
            yield Step(f"D{i} continues", _with(state, i, Driver("open")))

    def _open(self, state: State, i: int, d: Driver) -> Iterator[Step[State]]:
        if self._is_done(state):
            yield Step(f"D{i} lets it be", _with(state._replace(lock=-1), i, Driver("look")))
            return
        nonce = len(state.claims)
        kept = (Claimed.NONE,) * nonce if self._planted == "claim cleared" else state.claims
        opened = state._replace(launch=nonce, claims=(*kept, Claimed.NONE), lock=-1, done=0)
        yield Step(f"D{i} opens {nonce}", _with(opened, i, Driver("submit", nonce)))

    def _submit(self, state: State, i: int, d: Driver) -> Iterator[Step[State]]:
        taken = state._replace(orders=state.orders | {d.nonce})
        yield Step(f"D{i} submits {d.nonce}", _with(taken, i, d._replace(pc="answered")))

    def _answered(self, state: State, i: int, d: Driver) -> Iterator[Step[State]]:
        if self._planted == "launch rewritten":
            state = state._replace(launch=d.nonce)
        yield Step(f"D{i} is answered", _with(state, i, Driver("look")))

    def _shown(self, state: State, says: ClusterSays) -> Shown:
        made = state.claims[state.launch]
        done = Mark(state.done, state.done) if state.done else None
        return Shown(Launch(state.launch, state.launch), done, external=True, claimed=made, cluster=says)

    def _is_done(self, state: State) -> bool:
        return bool(state.done) and state.done == state.launch

    def _words(self, state: State) -> Iterator[tuple[ClusterSays, bool]]:
        """What the cluster may say of the current attempt, and whether that is a lie."""
        nonce = state.launch
        mine = [runner for runner in state.runners if runner.nonce == nonce]
        made = state.claims[nonce]
        if made is Claimed.BEGUN:
            # The fence, and the claim that names the job, leave no room for a lie here.
            is_alive = any(_is_alive(runner) for runner in mine)
            yield (ClusterSays.RUNNING if is_alive else ClusterSays.ENDED), False
            if is_alive and self._planted == "fence too short":
                yield ClusterSays.ENDED, True
            return
        is_coming = any(d.pc == "submit" and d.nonce == nonce for d in state.drivers)
        is_over = not is_coming and (nonce not in state.orders or (bool(mine) and not any(map(_waits, mine))))
        yield (ClusterSays.ENDED if is_over else ClusterSays.PENDING), False
        if not is_over:
            yield ClusterSays.ENDED, True

    # A runner

    def _runner(self, state: State, i: int, r: Runner) -> Iterator[Step[State]]:
        # Files show up late: a runner may read the launch.json of its own attempt, though it is replaced.
        if r.pc == "new":
            yield Step(f"runner {r.nonce} finds its attempt", _run(state, i, "seen"))
            if state.launch != r.nonce:
                yield Step(f"runner {r.nonce} finds another", _run(state, i, "gone"))
        elif r.pc == "seen":
            if self._planted == "no claim":
                yield Step(f"runner {r.nonce} makes no claim", _run(state, i, "claimed"))
            elif state.claims[r.nonce] is Claimed.NONE:
                claimed = _claim(state, r.nonce, Claimed.BEGUN)
                yield Step(f"runner {r.nonce} claims", _run(claimed, i, "claimed"))
            else:
                yield Step(f"runner {r.nonce} exits with 75", _run(state, i, "gone"))
        elif r.pc == "claimed":
            yield Step(f"runner {r.nonce} begins", _run(state, i, "run"))
        elif r.pc == "run":
            if state.launch == r.nonce:
                marked = _run(state._replace(done=r.nonce), i, "gone")
                yield Step(f"runner {r.nonce} is done", marked)
            else:
                yield Step(f"runner {r.nonce} sees that it was given up", _run(state, i, "gone"))


def _is_alive(runner: Runner) -> bool:
    return runner.pc in ("claimed", "run")


def _waits(runner: Runner) -> bool:
    return runner.pc in ("new", "seen")


def _claim(state: State, nonce: int, by: Claimed) -> State:
    return state._replace(claims=(*state.claims[:nonce], by, *state.claims[nonce + 1 :]))


def _with(state: State, i: int, driver: Driver) -> State:
    return state._replace(drivers=(*state.drivers[:i], driver, *state.drivers[i + 1 :]))


def _run(state: State, i: int, pc: str) -> State:
    runner = state.runners[i]._replace(pc=pc)
    others = (*state.runners[:i], *state.runners[i + 1 :])
    return state._replace(runners=tuple(sorted((*others, runner))))
