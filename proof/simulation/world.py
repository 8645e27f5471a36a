"""Owns one world from its beginning to its end: a machine, its schedulers, and what goes wrong with them.
The same scenario gives the same world, always; whether it is as it should be is the judge's business.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from proof.simulation.disk import DeadAlready, SimulatedDisk
from proof.simulation.fairness import Fairness
from proof.simulation.judge import Judge
from proof.simulation.launcher import FarLauncher, SimulatedLauncher
from proof.simulation.locks import SimulatedLocks
from proof.simulation.loop import Actor, GoesRound, Process, ProcessLoop, Turns, VirtualClock
from proof.simulation.person import LAYOUT, PARAMS, TASK_ID, TOKENS, Person
from proof.simulation.scenario import Deed, DeedPlan, RunPlan, Scenario
from tenuto.launchers.protocols import StartOrder
from tenuto.lifecycle.states import JobState
from tenuto.testing.cluster import FakeCluster
from tenuto.testing.cluster_job import Fate
from tenuto.testing.disk import Crash
from tenuto.testing.host import FakeHost
from tenuto.testing.launcher import Step
from tenuto.workspace.inotify import DirectoryWatch

END_S = 10 * 3600.0
"""By then everything must have ended."""
PATIENCE_S = 2 * 3600.0
"""So long after the last deed everybody must have an answer; and once more for what is submitted again."""
AND_AGAIN = 50.0
CALM_S = 60.0
"""How long a world is watched after everything ended."""
MOST_STEPS = 100_000
"""More than any world needs: a world that reaches it goes round in circles."""
_DEEPEST = 3


class Outcome(NamedTuple):
    """What became of a world."""

    scenario: Scenario
    violations: tuple[str, ...]
    trace: list[tuple[Any, ...]]
    moves: int
    payloads: int
    virtual_s: float

    def trace_hash(self) -> str:
        """The same for the same seed, in every process."""
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()

    def story(self) -> str:
        """The trace, to be read: everything but the operations on the disk."""
        return "\n".join(
            f"{time:12.4f}  {who:16} {what}" for time, who, what, *path in self.trace if not path
        )

    def operations(self) -> str:
        """The whole trace."""
        return "\n".join(f"{time:12.4f}  {who:16} {' '.join(what)}" for time, who, *what in self.trace)


class _Watch(DirectoryWatch):
    """A descriptor that tells of changes, as long as it is open."""

    def __init__(self, world: World, directory: str, fd: int, loop: ProcessLoop) -> None:
        super().__init__(fd)
        self.loop = loop
        self.is_told = False
        self._world = world
        self._directory = directory
        world.watches.setdefault(directory, {})[fd] = self

    def close(self) -> None:
        self._world.watches.get(self._directory, {}).pop(self.fileno(), None)

    def tell(self) -> None:
        self.is_told = False
        self.loop.readable(self.fileno())

    def drain(self) -> None:
        """Nothing piles up."""


class World:
    """A virtual machine with everything on it."""

    def __init__(self, scenario: Scenario, *, is_hasty: bool = False) -> None:
        self.scenario = scenario
        self._is_hasty = is_hasty
        self.jobs = {job.name: job for job in scenario.jobs}
        self.random = Random(f"world {scenario.seed}")
        self.turns = Turns(self.random)
        self.turns.crashed = self._crashed
        self.clock = VirtualClock(self.turns)
        self.disk = SimulatedDisk()
        self.disk.interferes = self._interfere
        self.disk.changed = self.tell_watchers
        self.host = FakeHost(scenario.seed, disk=self.disk, clock=self.clock)
        paths = {name: LAYOUT.job(TASK_ID, name) for name in self.jobs}
        self.judge = Judge(self.jobs, paths, PARAMS, self.disk, self.host.processes)
        self.judge.tokens = dict(scenario.tokens)
        self.host.locks = self.locks = SimulatedLocks(self.disk, self.host.processes, self._locked)
        self._fairness = Fairness(
            self.jobs, paths, TOKENS, self.judge.tokens, self.disk.peek, self.locks.peek
        )
        self.launcher = SimulatedLauncher(self, scenario.slots)
        self.cluster = FakeCluster(
            self.host,
            fate=self._fate,
            pending_s=lambda: 0.5 + 3.0 * self.random.random(),
            has_locks=scenario.far_locks,
            answer_s=5.0,
        )
        self._met: set[str] = set()
        self.trace: list[tuple[Any, ...]] = []
        self.loops: list[ProcessLoop] = []
        self.watches: dict[str, dict[int, _Watch]] = {}
        self._watch_numbers = 0
        self._nature = Actor(self.turns, Process("nature", 0), "nature")
        self._slow_until = self._deaf_until = -1.0
        self._slowness = 0.0
        self._depth = 0
        self._is_over = False
        self._is_calm = False
        self._to_come = 0
        self._armed: dict[str, list[DeedPlan]] = {}
        self.persons = [Person(self, number, plan) for number, plan in enumerate(scenario.runs)]

    def note(self, what: str) -> None:
        actor = self.turns.actor
        self.trace.append((self.turns.time, actor.name if actor else "nature", what))

    def later(self, seconds: float, action: Callable[..., object], *arguments: Any) -> None:
        """Something happens that is nobody's doing."""
        self.turns.later(self._nature, seconds, action, *arguments)

    def watcher(self, loop: ProcessLoop) -> Callable[[str], DirectoryWatch | None]:
        def watch(directory: str) -> DirectoryWatch | None:
            if not self.scenario.hears or self.disk._find(directory) is None:
                return None
            self._watch_numbers += 1
            return _Watch(self, directory, self._watch_numbers, loop)

        return watch

    def far_launcher(self, pid: int) -> FarLauncher:
        """The launcher of a scheduler for the cluster, which observes for itself."""
        return FarLauncher(self, self.cluster.seen_by(self.host.machine(pid)))

    def _fate(self, order: StartOrder) -> Fate:
        """What the cluster does to an attempt: the first of a job has the fate of its plan, others none."""
        name = order.launch.job_name
        fate = self.jobs[name].fate
        if fate is None or name in self._met or self._is_calm:
            return Fate.ORDINARY
        self._met.add(name)
        return fate

    def payload_begins(self, name: str) -> None:
        """What was meant for this moment happens."""
        for plan in self._armed.pop(name, ()):
            self._to_come += 1
            self.later(plan.at_s, self._do, plan)

    # Its life

    def live(self) -> Outcome:
        """From the first submission to the last word."""
        for person in self.persons:
            self.later(person.plan.at_s, person.start)
        for plan in self.scenario.deeds:
            if plan.is_armed:
                self._armed.setdefault(plan.job, []).append(plan)
            else:
                self._to_come += 1
                self.later(plan.at_s, self._do, plan)
        try:
            self._live()
        except GoesRound as round_:
            self.judge.broken(str(round_))
        for loop in self.loops:
            for task in loop.tasks:
                error = task.exception() if task.done() and not task.cancelled() else None
                if error is not None and not isinstance(error, Crash):
                    self.judge.broken(f"a task of the scheduler raised {error!r}")
        self._forget()
        payloads = sum(map(len, self.judge.ledger.values()))
        violations = tuple(dict.fromkeys(self.judge.violations))
        return Outcome(self.scenario, violations, self.trace, self.turns.moves, payloads, self.turns.time)

    def _live(self) -> None:
        self.turns.run_until(PATIENCE_S, self._has_ended)
        self._calm_down()
        self.turns.run_until(2 * PATIENCE_S, self._has_ended)
        if not self._has_to_end() or (self._is_hasty and self.judge.violations):
            return
        self.note("everybody submits again what failed")
        for person in self.persons:
            person.submit_again(person.failed())
        self.turns.run_until(min(self.turns.time + PATIENCE_S, END_S), self._has_ended)
        if not self._has_to_end():
            return
        self.turns.run_until(self.turns.time + CALM_S)
        self._inspect()
        self._look_back()

    def _has_ended(self) -> bool:
        if self._is_hasty and self.judge.violations:
            return True
        return (
            not self._to_come
            and all(person.is_settled() for person in self.persons)
            and not any(actor.process.is_dead is False for actor in self.launcher.actors.values())
        )

    def _has_to_end(self) -> bool:
        if self._has_ended():
            return True
        for person in self.persons:
            if not person.is_settled():
                open_jobs = [
                    f"{name} {job.state.name} ({job.state_record.message})"
                    for name, job in person.jobs.items()
                    if not job.state.finished() and job.state is not JobState.UNSCHEDULED
                ]
                waits = ", ".join(open_jobs) or "nothing that it knows"
                self.judge.broken(
                    f"{person.name} has not ended after {self.turns.time / 3600:.0f} virtual hours: {waits}"
                )
        for name, runner in self.launcher.current.items():
            if runner.alive():
                self.judge.broken(
                    f"the runner of {name} is alive after {self.turns.time / 3600:.0f} virtual hours"
                )
        return False

    def _inspect(self) -> None:
        for person in self.persons:
            for name, job in person.jobs.items():
                expected = self.judge.expects(name)
                if (job.state, job.failure_status) == expected:
                    is_awaited = self.jobs[name].calls_back and name not in person.called_back
                    if expected[0] is JobState.DONE and is_awaited:
                        self.judge.broken(f"{name} is done, and who asked was not called back")
                elif job.state is not JobState.UNSCHEDULED or not self.jobs[name].transient:
                    reason = job.failure_status.name if job.failure_status else ""
                    wanted = expected[1].name if expected[1] else expected[0].name
                    self.judge.broken(f"{name} ended as {job.state.name} {reason}, not as {wanted}")
            if person.scheduler.waitingjobs:
                self.judge.broken(f"{person.name} counts finished jobs as waiting")
        signed_in = self.disk.stat(TOKENS.schedulers)
        for held in self.host.locks._open.values():
            if signed_in is not None and held.inode == signed_in.inode:
                continue  # that a scheduler lives
            for owner in held.owners:
                if self.host.processes.identify(owner.pid) == owner:
                    self.judge.broken(
                        f"lock {held.inode}:{sorted(held.numbers)} is still held by {owner.pid}"
                    )
        self.judge.inspects_the_machine()

    def _look_back(self) -> None:
        """A new owner submits what is done: nothing of it runs again."""
        done: list[str] = []
        for name, job in self.jobs.items():
            if name in self.judge.was_done and all(need in done for need in job.needs):
                done.append(name)
        late = Person(self, len(self.persons), RunPlan(tuple(done)))
        self.note("somebody new submits all that is done")
        late.start()
        self.turns.run_until(self.turns.time + CALM_S, late.is_settled)
        for name in done:
            if name not in late.jobs or late.jobs[name].state is not JobState.DONE:
                self.judge.broken(f"{name} was done, and somebody new finds it otherwise")

    def _forget(self) -> None:
        """Ends all coroutines while nothing they do can matter; else they would at an arbitrary moment."""
        self._is_over = True
        for loop in self.loops:
            loop._actor.process.is_dead = True
        for loop in self.loops:
            loop.forget()

    # What goes wrong

    def _interfere(self, operation: str, path: str) -> None:
        actor = self.turns.actor
        if actor is None:
            if self._is_over:
                raise DeadAlready("the world is over")
            return
        self.trace.append((self.turns.time, actor.name, operation, path))
        if len(self.trace) > MOST_STEPS:
            raise GoesRound(f"{actor.name} goes round in circles")
        process = actor.process
        if process.is_dead:
            raise DeadAlready("dead already")
        if process.dies_in is not None:
            process.dies_in -= 1
            if process.dies_in <= 0:
                self._count_kill(process)
                self._crashed(process)  # at once: a task of asyncio keeps what it raises to itself
                raise Crash(f"killed in {operation} {path}")
        # A fake runner looks at its lock's file where a real one only closes a descriptor.
        if process.fails_in is not None and (actor.loop is not None or not path.endswith(".lock")):
            process.fails_in -= 1
            if process.fails_in <= 0:
                process.fails_in = None
                self._blame(path)
                self.note(f"EIO in {operation} {path}")
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if self._depth < _DEEPEST and (pause_s := self._pause()):
            self._depth += 1
            try:
                self.turns.hold(actor, pause_s)
            finally:
                self._depth -= 1
            if process.is_dead:
                raise DeadAlready("killed meanwhile")

    def _locked(self, path: str, numbers: Sequence[int]) -> None:
        actor = self.turns.actor
        if actor is not None and self.judge.tokens:
            self.judge.overtakings(self._fairness.taken(actor.name, path, numbers))

    def _pause(self) -> float:
        """How long the operation that comes next is kept waiting."""
        if self._slow_until > self.turns.time and self.random.random() < 0.05:
            return self._slowness * self.random.random()
        if self.scenario.jitter and self.random.random() < self.scenario.jitter:
            return 0.004 * self.random.random()
        return 0.0

    def _blame(self, path: str) -> None:
        parts = path.split("/")
        for name in self.jobs:
            if name in parts or any(part.startswith(f"event-{name}-") for part in parts):
                self.judge.faulty.add(name)
                return
        self.judge.faulty.update(self.jobs)

    def _count_kill(self, process: Process) -> None:
        for runner, actor in self.launcher.actors.items():  # a cluster may have started two for one order
            if actor.process is process:
                self.judge.kills[runner.order.launch.job_name] += 1

    def _crashed(self, process: Process) -> None:
        for person in self.persons:
            if person.process is process:
                self.judge.excuses = self.judge.excuses._replace(crashes=self.judge.excuses.crashes + 1)
                person.die()
                return
        for runner in list(self.launcher.actors):
            if runner.identity.pid == process.pid:
                runner.kill()

    def tell_watchers(self, directory: str) -> None:
        watches = self.watches.get(directory)
        if watches and self._deaf_until <= self.turns.time:
            for watch in watches.values():
                if not watch.is_told:  # what was not read yet is read with the rest
                    watch.is_told = True
                    self.turns.later(watch.loop._actor, 0.0005, watch.tell)

    def _calm_down(self) -> None:
        """From now on nothing goes wrong."""
        self.note("nothing goes wrong any more")
        self._is_calm = True
        self._slow_until = self._deaf_until = -1.0
        self.disk.capacity = None
        self.launcher.refusals = 0
        self._armed.clear()
        for planned in (self.launcher.kill_at, self.launcher.kill_in, self.launcher.fail_in):
            planned.clear()
        for actor in [*self.launcher.actors.values(), *(loop._actor for loop in self.loops)]:
            actor.process.dies_in = actor.process.fails_in = None
            actor.process.is_stopped = False

    def _do(self, plan: DeedPlan) -> None:
        self._to_come -= 1
        self.note(f"{plan.deed.name} {plan.run} {plan.job} {plan.amount:g}")
        _DEEDS[plan.deed](self, plan, self.persons[plan.run % len(self.persons)])

    def _crash(self, plan: DeedPlan, person: Person) -> None:
        if person.process is not None and not person.process.is_dead:
            self._crashed(person.process)

    def _crash_in(self, plan: DeedPlan, person: Person) -> None:
        if person.process is not None:
            person.process.dies_in = int(plan.amount)

    def _kill_runner(self, plan: DeedPlan, person: Person) -> None:
        self.launcher.kill_at[plan.job] = Step(int(plan.amount))

    def _kill_runner_in(self, plan: DeedPlan, person: Person) -> None:
        self.launcher.kill_in[plan.job] = int(plan.amount)

    def _kill_payload(self, plan: DeedPlan, person: Person) -> None:
        self.launcher.kill_payload(plan.job)

    def _reuse_pid(self, plan: DeedPlan, person: Person) -> None:
        pid = self.launcher.kill_runner(plan.job)
        if pid is not None:
            self.host.processes.start(pid)
            stranger = self.host.processes.identify(pid)
            assert stranger is not None
            self.judge.strangers.append(stranger)

    def _power_loss(self, plan: DeedPlan, person: Person) -> None:
        excuses = self.judge.excuses
        self.judge.excuses = excuses._replace(power_losses=excuses.power_losses + 1)
        self.judge.strangers.clear()
        self.host.power_loss(lambda path: self.random.random() < plan.amount)
        self.watches.clear()
        self.disk.capacity = None
        for actor in self.launcher.actors.values():
            actor.process.is_dead = True
        self.cluster.power_loss()
        for each in self.persons:
            if each.process is not None:
                each.die()

    def _full_disk(self, plan: DeedPlan, person: Person) -> None:
        self.judge.excuses = self.judge.excuses._replace(full_disk=True)
        self.disk.fill(self.random.choice((0, self.random.randrange(40_000))))
        self.later(plan.amount, self._free_disk)

    def _free_disk(self) -> None:
        self.note("the disk has room again")
        self.disk.capacity = None

    def _eio(self, plan: DeedPlan, person: Person) -> None:
        if int(plan.amount) % 2 and person.process is not None:
            person.process.fails_in = int(plan.amount)
        else:
            self.launcher.fail_in[plan.job] = 1 + int(plan.amount) % 14

    def _slow(self, plan: DeedPlan, person: Person) -> None:
        self.judge.excuses = self.judge.excuses._replace(slow=True)
        self._slow_until = self.turns.time + 10 * plan.amount
        self._slowness = plan.amount

    def _stop(self, plan: DeedPlan, person: Person) -> None:
        self._freeze(person.process, plan.amount)

    def _stop_runner(self, plan: DeedPlan, person: Person) -> None:
        runner = self.launcher.current.get(plan.job)
        self._freeze(None if runner is None else self.launcher.actors[runner].process, plan.amount)

    def _freeze(self, process: Process | None, seconds: float) -> None:
        if process is not None and not process.is_dead:
            self.judge.excuses = self.judge.excuses._replace(slow=True)
            process.is_stopped = True
            self.later(seconds, self._thaw, process)

    def _thaw(self, process: Process) -> None:
        process.is_stopped = False

    def _jump(self, plan: DeedPlan, person: Person) -> None:
        self.clock.jump(plan.amount)

    def _deafen(self, plan: DeedPlan, person: Person) -> None:
        self._deaf_until = self.turns.time + 10 * plan.amount

    def _refuse(self, plan: DeedPlan, person: Person) -> None:
        self.launcher.refusals += 2

    def _cancel(self, plan: DeedPlan, person: Person) -> None:
        person.cancel(plan.job, and_again=plan.amount > AND_AGAIN)

    def _again(self, plan: DeedPlan, person: Person) -> None:
        if plan.job in person.jobs if person.process is not None else False:
            person.submit_again([plan.job])


_DEEDS: dict[Deed, Callable[[World, DeedPlan, Person], None]] = {
    Deed.CRASH: World._crash,
    Deed.CRASH_IN: World._crash_in,
    Deed.KILL_RUNNER: World._kill_runner,
    Deed.KILL_RUNNER_IN: World._kill_runner_in,
    Deed.KILL_PAYLOAD: World._kill_payload,
    Deed.REUSE_PID: World._reuse_pid,
    Deed.POWER_LOSS: World._power_loss,
    Deed.FULL_DISK: World._full_disk,
    Deed.EIO: World._eio,
    Deed.SLOW: World._slow,
    Deed.STOP: World._stop,
    Deed.STOP_RUNNER: World._stop_runner,
    Deed.JUMP: World._jump,
    Deed.DEAF: World._deafen,
    Deed.REFUSE: World._refuse,
    Deed.CANCEL: World._cancel,
    Deed.AGAIN: World._again,
}


def simulate(scenario: Scenario, *, is_hasty: bool = False) -> Outcome:
    """Live through a scenario; if hasty, only until a promise is broken."""
    logger = logging.getLogger("tenuto")
    before, was_on = logger.level, gc.isenabled()
    logger.setLevel(logging.CRITICAL + 1)
    gc.disable()  # its moments depend on the process, and what it tears down could act
    try:
        return World(scenario, is_hasty=is_hasty).live()
    except Exception as error:
        error.add_note(f"in the world of seed {scenario.seed}")
        raise
    finally:
        logger.setLevel(before)
        if was_on:
            gc.enable()
