"""Owns how jobs run in a world: runners are processes that take turns, payloads write the judge's ledger."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from proof.simulation.judge import Payload, left_by
from proof.simulation.loop import Actor, Process, Timer
from proof.simulation.person import TOKENS
from proof.simulation.scenario import Does
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.verdict import Ending
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.cluster import ClusterView, FakeClusterLauncher, FakeClusterProcess
from tenuto.testing.cluster_job import ClusterJob
from tenuto.testing.launcher import FakeLauncher, FakePayload, FakeProcess, FakeRunner, Step
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import DESCENDANTS_BYTE, Machine
from tenuto.workspace.records import LaunchRecord

if TYPE_CHECKING:
    from proof.simulation.world import World


class SimulatedLauncher(FakeLauncher):
    """The launcher of all schedulers of a world."""

    def __init__(self, world: World, slots: int) -> None:
        super().__init__(world.host, self._payload, slots=slots, delay=self._delay, dies_at=self._dies_at)
        self.world = world
        self.actors: dict[FakeRunner, Actor] = {}
        self.current: dict[str, FakeRunner] = {}
        """The runner of the last attempt of each job."""
        self.kill_at: dict[str, Step] = {}
        self.kill_in: dict[str, int] = {}
        self.fail_in: dict[str, int] = {}
        self.refusals = 0
        """How many of the next starts fail."""
        self._starters: dict[str, str] = {}

    async def start(self, order: StartOrder) -> FakeProcess:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        starter = self.world.turns.actor
        assert starter is not None
        self._starters[order.launch.nonce] = starter.process.name
        self.world.judge.starts(_name(order), starter.process.name, order.launch.attempt)
        if self.world.random.random() < 0.3:
            await asyncio.sleep(self._delay(Step.BEGIN))
        process = await super().start(order)
        self.world.note(
            f"starts {_name(order)} attempt {order.launch.attempt} as {process._runner.identity.pid}"
        )
        return process

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        for pid in self.host.locks.holders(paths.lock, DESCENDANTS_BYTE):
            self.host.end(pid)
            await asyncio.sleep(0.001)
        return ()

    def call_later(self, runner: FakeRunner, seconds: float, action: Callable[[], None]) -> Timer:
        return self.world.turns.later(self._actor(runner), seconds, action)

    def deliver(self, runner: FakeRunner, signal: Callable[[], None]) -> None:
        self.world.turns.later(self._actor(runner), 0.0002, signal)

    def gone(self, runner: FakeRunner) -> None:
        if runner in self.actors:
            self.actors[runner].process.is_dead = True
            self.world.judge.ended_abruptly |= runner.exit_code != 0
            self.world.tell_watchers(TOKENS.directory)  # whose units it closed
            self.world.note(f"runner {runner.identity.pid} is gone ({runner.exit_code})")

    def _actor(self, runner: FakeRunner) -> Actor:
        actor = self.actors.get(runner)
        if actor is None:
            name = _name(runner.order)
            process = Process(f"runner-{runner.identity.pid}", runner.identity.pid)
            process.dies_in = self.kill_in.pop(name, None)
            process.fails_in = self.fail_in.pop(name, None)
            actor = self.actors[runner] = Actor(self.world.turns, process, process.name)
            self.current[name] = runner
        return actor

    def _delay(self, step: Step) -> float:
        random = self.world.random.random()
        return 0.001 + (0.2 * random if random > 0.9 else 0.002 * random)

    def _dies_at(self, order: StartOrder) -> Step | None:
        step = self.kill_at.pop(_name(order), None)
        if step is not None:
            self.world.judge.kills[_name(order)] += 1
        return step

    def _payload(self, order: StartOrder) -> FakePayload:
        name = _name(order)
        plan = self.world.jobs[name]
        begun = len(self.world.judge.ledger[name])
        hangs = plan.does is Does.HANGS or (plan.does is Does.STALLS and begun < plan.stalls)
        starves = plan.does is Does.STARVES and memory_of(order) < plan.wants
        return FakePayload(
            duration_s=1e6 if hangs else plan.duration_s,
            exit_code=3 if plan.does is Does.BADLY or starves else 0,
            reason=JobFailureStatus.MEMORY if starves else None,
            stops_after_s=plan.stops_after_s,
            leaves_daemon=plan.lingers,
            on_start=self._begins,
            on_end=self._ends,
        )

    def _begins(self, machine: Machine, order: StartOrder) -> None:
        name, runner = _name(order), self.runners[machine.processes.own()]
        assert runner._payload_pid is not None
        identity = self.host.processes.identify(runner._payload_pid)
        assert identity is not None
        now = self.world.turns.time
        self.world.note(f"payload of {name} attempt {order.launch.attempt} begins")
        payload = Payload(
            self._starters[order.launch.nonce],
            runner.identity,
            order.launch.attempt,
            order.launch.nonce,
            identity,
            now,
            memory_of(order),
        )
        self.world.judge.begins(now, name, payload)
        self.world.payload_begins(name)
        if self.world.jobs[name].lingers:  # it ends by itself some day, even if nobody ends it
            self.world.later(1000.0, self.host.end, runner._payload_pid)

    def _ends(self, machine: Machine, order: StartOrder) -> None:
        name = _name(order)
        plan = self.world.jobs[name]
        if plan.does is not Does.BADLY and memory_of(order) >= plan.wants:
            payload = next(p for p in self.world.judge.ledger[name] if p.nonce == order.launch.nonce)
            self.world.note(f"payload of {name} attempt {order.launch.attempt} completes")
            self.world.disk.leave(*left_by(order.paths, order.launch.nonce))
            self.world.judge.completes(self.world.turns.time, name, payload)

    # What goes wrong.

    def kill_payload(self, name: str) -> None:
        runner = self.current.get(name)
        if runner is not None and runner.alive() and runner._payload_pid is not None:
            self.world.judge.payload_kills[name] += 1
            self.world.turns.soon(self._actor(runner), runner._conclude_with, Ending(signal=9))

    def kill_runner(self, name: str) -> int | None:
        """Kills the runner of a job now; its pid."""
        runner = self.current.get(name)
        if runner is None or not runner.alive():
            return None
        self.world.judge.kills[name] += 1
        runner.kill()
        return runner.identity.pid


class FarLauncher(FakeClusterLauncher):
    """The launcher of one scheduler for the cluster of a world; it shares its faults with the local one."""

    def __init__(self, world: World, view: ClusterView) -> None:
        near = world.launcher
        super().__init__(
            world.cluster, view, near._payload, slots=near.slots, delay=near._delay, dies_at=near._dies_at
        )
        self.world = world
        self.near = near
        self.runners = near.runners

    async def start(self, order: StartOrder) -> FakeClusterProcess:  # type: ignore[override]
        if self.near.refusals:
            self.near.refusals -= 1
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        starter = self.world.turns.actor
        assert starter is not None
        self.near._starters[order.launch.nonce] = starter.process.name
        self.world.judge.starts(_name(order), starter.process.name, order.launch.attempt)
        self.world.note(f"hands over {_name(order)} attempt {order.launch.attempt}")
        return await super().start(order)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.world.later(seconds, action)

    def call_later(self, runner: FakeRunner, seconds: float, action: Callable[[], None]) -> Timer:
        return self.near.call_later(runner, seconds, action)

    def deliver(self, runner: FakeRunner, signal: Callable[[], None]) -> None:
        self.near.deliver(runner, signal)

    def gone(self, runner: FakeRunner) -> None:
        self.near.gone(runner)
        super().gone(runner)

    def node_lost(self, job: ClusterJob) -> None:
        self.world.note(f"the node of {_name(job.order)} dies")
        self.world.judge.kills[_name(job.order)] += 1


def memory_of(order: StartOrder) -> int:
    """The memory that an attempt may use; 0: without limit."""
    return Instructions.of(order.launch).limits.memory_bytes or 0


def _name(order: StartOrder) -> str:
    return order.launch.job_name
