"""Owns a person with a scheduler: submits jobs, waits, and starts over whenever the scheduler dies."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from proof.simulation.loop import Actor, Process, ProcessLoop
from proof.simulation.scenario import JobPlan, RunPlan
from tenuto.errors import TenutoError
from tenuto.launchers.clusters import Clusters
from tenuto.launchers.instructions import Command, Limits
from tenuto.lifecycle.events import Event, JobStateChangedEvent
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.scheduler.decisions import Allowance, Growth, RetryLimits, RetryRules, Rule
from tenuto.scheduler.entries import JobDependency
from tenuto.scheduler.inputs import Effect
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.listeners import state_record_of
from tenuto.scheduler.scheduler import Scheduler
from tenuto.scheduler.tokens import CounterToken, TokenDependency, declare
from tenuto.scheduler.workers import call_safely
from tenuto.workspace.inotify import DirectoryWatch
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.token_files import TokenPlace
from tests.parts.simulation import Inline

if TYPE_CHECKING:
    from proof.simulation.world import World

TASK_ID = "sim.Task"
PARAMS = b'{"parameters": "%s"}' % (b"long enough to be torn, " * 100)
LAYOUT = Layout("/ws")
TOKENS = TokenPlace("/tokens")
TRIES_AGAIN_S = 5.0


class Work:
    """Work that needs no task: what runs is up to the launcher."""

    environment: Mapping[str, str] = {}

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        return PARAMS

    def command(self) -> Command | None:
        return None

    def output(self, output: Any, method: Any) -> Any:
        return None


class LoopShare:
    """A `Loop` of the scheduler's, on the loop of its virtual process."""

    def __init__(self, loop: ProcessLoop, watch: Callable[[str], DirectoryWatch | None]) -> None:
        self.loop = loop
        self.watch = watch

    def post(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.loop.call_soon(callback, *arguments)

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> None:
        self.loop.call_later(delay_s, callback, *arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        if self.loop.is_closed():
            coroutine.close()
        else:
            self.loop.create_task(coroutine)

    def wait(self, coroutine: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        raise NotImplementedError("nobody blocks in a simulation")

    def close(self) -> None:
        """Nothing: the process is killed instead."""


class VirtualThread:
    """A `Worker` that is a thread of the virtual process."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def call(self, function: Callable[[], object]) -> None:
        self._actor.turns.soon(self._actor, call_safely, function)

    def hurry(self) -> None:
        """It never lets anything pile up."""

    def close(self) -> None:
        """Nothing is waited for."""


class Run:
    """The owner of what a person submits, for as long as the scheduler lives."""

    def __init__(self, world: World, scheduler: str) -> None:
        self.id = f"search/{scheduler}"
        self._world = world
        self._scheduler = scheduler

    def hear(self, event: Event) -> None:
        if isinstance(event, JobStateChangedEvent):
            reason = f" {event.reason.name}: {event.message}" if event.reason else ""
            self._world.note(f"{event.job_id} is {event.state.name}{reason}")
            self._world.judge.told(event.job_id, self._scheduler, state_record_of(event))


class StrictScheduler(Scheduler):
    """A scheduler of which no effect may fail, although that would end one job only."""

    def _trouble(self, effect: Effect, error: Exception) -> None:
        self.loop.call_exception_handler({"message": "an effect failed", "exception": error})
        super()._trouble(effect, error)


class Person:
    """One plan, carried out by one scheduler after another."""

    def __init__(self, world: World, number: int, plan: RunPlan) -> None:
        self.world = world
        self.plan = plan
        self.name = f"s{number}"
        self.lives = 0
        self.process: Process | None = None
        self.loop: ProcessLoop | None = None
        self.jobs: dict[str, Job] = {}
        self.tokens: dict[str, CounterToken] = {}
        self.called_back: set[str] = set()
        self._to_submit: list[str] = []
        self._is_submitting = False
        self._waits = 0

    def start(self) -> None:
        """A new scheduler, and everything is submitted to it."""
        world, turns = self.world, self.world.turns
        if self.process is not None and not self.process.is_dead:
            return
        self.lives += 1
        pid = world.host.start()
        self.process = Process(f"{self.name}.{self.lives}", pid)
        world.note(f"scheduler {self.process.name} starts as {pid}")
        self.user = Actor(turns, self.process, f"{self.process.name}.user")
        actor = Actor(turns, self.process, self.process.name)
        self.loop = ProcessLoop(actor, world.judge.broken)  # type: ignore[abstract]
        world.loops.append(self.loop)
        self.far = world.far_launcher(pid)
        self.scheduler = StrictScheduler(
            world.host.machine(pid),
            loop=LoopShare(self.loop, world.watcher(self.loop)),
            completions=VirtualThread(Actor(turns, self.process, f"{self.process.name}.done")),
            notifications=Inline(),
            outputs=VirtualThread(Actor(turns, self.process, f"{self.process.name}.outputs")),
            clusters=Clusters({self.far.name: self.far.view}),
        )
        self.owner = Run(world, self.process.name)
        self.jobs = {}
        self.tokens = {}
        self.called_back = set()
        self._to_submit = list(self.plan.jobs)
        self._is_submitting = True
        self._waits = 0
        turns.later(self.user, 0.0, self._submit_next)

    def die(self) -> None:
        """KILL; a person starts it again after a while."""
        assert self.process is not None
        if self.process.is_dead:
            return
        self.world.note(f"scheduler {self.process.name} dies")
        self.process.is_dead = True
        self.world.judge.dies(self.process.name)
        self.world.host.end(self.process.pid)
        self.world.tell_watchers(TOKENS.directory)
        self.world.later(self.world.random.choice((0.0, 0.01, 1.0, 30.0)), self.start)

    def submit_again(self, names: list[str]) -> None:
        """A person submits known jobs once more."""
        self._to_submit += names
        if not self._is_submitting and self._to_submit:
            self._is_submitting = True
            self.world.turns.soon(self.user, self._submit_next)

    def cancel(self, name: str, *, and_again: bool = False) -> None:
        job = self.jobs.get(name)
        if job is not None and self.process is not None and not self.process.is_dead:
            self.world.turns.soon(self.user, self._cancel, job)
            if and_again:
                self.submit_again([name])

    def is_settled(self) -> bool:
        return not (
            self.process is None
            or self.process.is_dead
            or self._is_submitting
            or self._waits
            or self.scheduler._inbox
            or not self.scheduler.counts(self.owner).at_rest
        )

    def _cancel(self, job: Job) -> None:
        assert self.loop is not None
        self.world.note(f"cancels {job.job_id}")
        self.world.judge.ever_cancelled.add(job.job_id)
        self.scheduler.cancel(job)
        submissions = self.world.judge.submissions[job.job_id]
        self.loop.call_soon(self._cancelled, job, submissions)

    def _cancelled(self, job: Job, submissions: int) -> None:
        """The scheduler has heard of it, unless it was submitted again; transient jobs may sleep."""
        assert self.process is not None
        assert self.loop is not None
        if self.scheduler._inbox:  # it has not heard of it yet
            self.loop.call_later(0.0005, self._cancelled, job, submissions)
            return
        is_current = self.world.judge.submissions[job.job_id] == submissions
        if is_current and not self.world.jobs[job.job_id].transient:
            self.world.judge.cancels(self.world.turns.time, job.job_id, self.process.name)

    def _submit_next(self) -> None:
        if not self._to_submit:
            self._wait()
            return
        name = self._to_submit[0]
        assert self.process is not None
        if name in self.jobs or all(need in self.jobs for need in self.world.jobs[name].needs):
            try:
                self._declare_tokens()
                self._submit(self.world.jobs[name])
            except (OSError, TenutoError) as error:
                self.world.note(f"{name} is not accepted: {error}")
                self.world.turns.later(self.user, TRIES_AGAIN_S, self._submit_next)
                return
        del self._to_submit[0]
        if self._to_submit:
            self.world.turns.later(self.user, self.plan.gap_s, self._submit_next)
        else:
            self._wait()

    def _wait(self) -> None:
        """As the end of a script does, once everything is submitted."""
        assert self.loop is not None
        self._is_submitting = False
        self._waits += 1
        self.loop.call_soon(self._spawn_wait, self.loop)

    def _spawn_wait(self, loop: ProcessLoop) -> None:
        loop.create_task(self._until_over(self.scheduler, self.owner))

    async def _until_over(self, scheduler: Scheduler, owner: Run) -> None:
        await scheduler._aio_wait_until(lambda: self._is_over(scheduler, owner))
        self._waits -= 1

    def _is_over(self, scheduler: Scheduler, owner: Run) -> bool:
        if not scheduler.counts(owner).at_rest:
            return False
        for name, job in self.jobs.items():
            is_called = name in self.called_back or not self.world.jobs[name].calls_back
            if job.state is JobState.DONE and not is_called:
                self.world.judge.broken(f"the wait is over, and who asked about {name} was not called back")
        return True

    def _declare_tokens(self) -> None:
        for name, units in self.world.scenario.tokens:
            if name not in self.tokens:
                token = CounterToken(name, units, TOKENS.directory)
                declare(self.scheduler.machine, token)
                self.tokens[name] = token

    def _submit(self, plan: JobPlan) -> None:
        assert self.process is not None
        job = Job(
            TASK_ID,
            plan.name,
            layout=LAYOUT,
            launcher=self.world.launcher if plan.fate is None else self.far,
            work=Work(),
            clock=self.world.clock,
            dependencies=[JobDependency(self.jobs[need]) for need in plan.needs],
            tokens=[TokenDependency(self.tokens[name], units) for name, units in plan.tokens],
            limits=Limits(walltime_s=plan.walltime_s),
            retry=_retry(plan),
            transient=TransientMode(plan.transient),
            once=plan.once,
        )
        self.world.note(f"submits {plan.name}")
        self.world.judge.submitted(plan.name, self.process.name)
        if plan.calls_back and plan.name not in self.jobs:
            job.on_completed(lambda done: self.called_back.add(done.job_id))
        try:
            self.jobs[plan.name] = self.scheduler.submit(job, self.owner)
        finally:
            self.world.judge.took(plan.name, self.process.name)

    def failed(self) -> list[str]:
        """What this person would submit again."""
        return [name for name in self.plan.jobs if self.jobs[name].state is JobState.ERROR]


def _retry(plan: JobPlan) -> RetryLimits:
    """How often the job of a plan is tried again, and what it grows to."""
    limits = RetryLimits(plan.max_retries > 0, plan.max_retries, plan.max_lost_retries)
    if plan.grows is None:
        return limits
    first, most, after_s = plan.grows
    rule = Rule(growth=Growth("memory_bytes", 2.0, most), after_s=after_s)
    return limits._replace(rules=RetryRules(memory=rule), needs=Allowance(memory_bytes=first))
