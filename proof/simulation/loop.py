"""Owns how virtual processes take turns: their event loops, one clock, and a seeded choice of who moves next.
Knows nothing of jobs; reads no real time and starts no thread.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from tenuto.testing.clock import FakeClock
from tenuto.testing.disk import Crash

START = datetime(2030, 1, 1, tzinfo=UTC)
MOST_MOVES = 3_000_000
"""More than any world needs: a world that reaches it goes round in circles."""


class GoesRound(BaseException):
    """A process works for ever without letting time pass."""


class Process:
    """A process of the virtual machine, as far as taking turns goes."""

    __slots__ = ("dies_in", "fails_in", "is_dead", "is_stopped", "name", "pid")

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self.is_dead = False
        self.is_stopped = False
        """Between SIGSTOP and SIGCONT."""
        self.dies_in: int | None = None
        """It is killed in the middle of this operation on the disk, counted from now."""
        self.fails_in: int | None = None
        """This operation on the disk fails, counted from now."""


class Actor:
    """A thread of a process: what it does next, in order."""

    __slots__ = ("is_held", "loop", "name", "process", "ready", "turns")

    def __init__(self, turns: Turns, process: Process, name: str) -> None:
        self.turns = turns
        self.process = process
        self.name = name
        self.ready: deque[Timer] = deque()
        self.is_held = False
        """In the middle of an operation that takes its time."""
        self.loop: ProcessLoop | None = None

    def can_move(self) -> bool:
        return not (self.is_held or self.process.is_stopped or self.process.is_dead)


class Timer:
    """Something that an actor will do; a handle of asyncio, as far as asyncio cares."""

    __slots__ = ("_when", "action", "actor", "arguments", "context", "is_cancelled")

    def __init__(
        self, actor: Actor, action: Callable[..., object], arguments: tuple[Any, ...], when: float
    ) -> None:
        self.actor = actor
        self.action = action
        self.arguments = arguments
        self.context: Context | None = None
        self.is_cancelled = False
        self._when = when

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when


class Turns:
    """Who moves when. Each choice is drawn from one `Random`, so that a seed decides everything."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.time = 0.0
        self.actor: Actor | None = None
        self.moves = 0
        self._numbers = 0
        self._timers: list[tuple[float, int, Timer]] = []
        self._awake: dict[Actor, None] = {}
        self.crashed: Callable[[Process], None] = lambda process: None
        """Told when a process died in the middle of an operation."""

    def soon(self, actor: Actor, action: Callable[..., object], *arguments: Any) -> Timer:
        """After all that this actor has to do already."""
        timer = Timer(actor, action, arguments, self.time)
        if not actor.process.is_dead:
            actor.ready.append(timer)
            self._awake[actor] = None
        return timer

    def later(self, actor: Actor, seconds: float, action: Callable[..., object], *arguments: Any) -> Timer:
        return self.at(actor, self.time + seconds, action, *arguments)

    def at(self, actor: Actor, when: float, action: Callable[..., object], *arguments: Any) -> Timer:
        timer = Timer(actor, action, arguments, when)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, timer))
        return timer

    def run_until(self, end: float, is_over: Callable[[], bool] | None = None) -> None:
        """Everybody who can moves, until this instant, or until it is over."""
        while is_over is None or not is_over():
            movers = [actor for actor in self._awake if actor.can_move()]
            if movers:
                self._move(movers[int(self.random.random() * len(movers))] if len(movers) > 1 else movers[0])
            elif not self._let_time_pass(end):
                return

    def hold(self, actor: Actor, seconds: float) -> None:
        """The actor is in the middle of something that takes long: meanwhile all others move on."""
        actor.is_held = True
        try:
            self.run_until(self.time + seconds)
            while actor.process.is_stopped and not actor.process.is_dead:
                self.run_until(self.time + 1.0)
        finally:
            actor.is_held = False

    def _let_time_pass(self, end: float) -> bool:
        timers = self._timers
        while timers and (timers[0][2].is_cancelled or timers[0][2].actor.process.is_dead):
            heapq.heappop(timers)
        if not timers or timers[0][0] > end:
            self.time = max(self.time, end)
            return False
        self.time = max(self.time, timers[0][0])
        while timers and timers[0][0] <= self.time:
            timer = heapq.heappop(timers)[2]
            if not timer.is_cancelled and not timer.actor.process.is_dead:
                timer.actor.ready.append(timer)
                self._awake[timer.actor] = None
        return True

    def _move(self, actor: Actor) -> None:
        """One actor does the first thing it has to do, or several."""
        self.moves += 1
        if self.moves > MOST_MOVES:
            raise GoesRound(f"{actor.name} goes round in circles")
        before, loop = self.actor, events._get_running_loop()
        self.actor = actor
        events._set_running_loop(actor.loop)
        ready = actor.ready
        try:
            for _ in range(1 if self.random.random() < 0.3 else len(ready)):
                if not ready:
                    break
                timer = ready.popleft()
                if timer.is_cancelled:
                    continue
                if timer.context is None:
                    timer.action(*timer.arguments)
                else:
                    timer.context.run(timer.action, *timer.arguments)
                if not actor.can_move():
                    break
        except Crash:
            self.crashed(actor.process)
        except (Exception, asyncio.CancelledError) as error:
            if actor.loop is None:
                raise
            actor.loop.call_exception_handler({"message": "a callback raised", "exception": error})
        finally:
            self.actor = before
            events._set_running_loop(loop)
            if not ready or actor.process.is_dead:
                ready.clear()
                self._awake.pop(actor, None)


class VirtualClock(FakeClock):
    """The machine's clock: its time is the turns', and its wall clock can be set."""

    def __init__(self, turns: Turns) -> None:
        super().__init__(START)
        self._turns = turns
        self._jumped = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self._turns.time + self._jumped)

    def uptime(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        return self._turns.time

    def jump(self, seconds: float) -> None:
        self._jumped += seconds


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one virtual process: only what schedulers and launchers use."""

    def __init__(self, actor: Actor, unhandled: Callable[[str], None]) -> None:
        self._actor = actor
        self._turns = actor.turns
        self._unhandled = unhandled
        self.readers: dict[int, Callable[[], object]] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        """All there ever were: a task that nobody holds would be torn down at an arbitrary moment."""
        actor.loop = self

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> Timer:
        timer = self._turns.soon(self._actor, callback, *arguments)
        timer.context = context
        return timer

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> Timer:
        timer = self._turns.later(self._actor, delay, callback, *arguments)
        timer.context = context
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> Timer:
        timer = self._turns.at(self._actor, when, callback, *arguments)
        timer.context = context
        return timer

    def time(self) -> float:
        return self._turns.time

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name)
        self.tasks.append(task)
        return task

    def add_reader(self, fd: int, callback: Callable[..., object], *arguments: Any) -> None:  # type: ignore[override]
        self.readers[fd] = lambda: callback(*arguments)

    def remove_reader(self, fd: int) -> bool:  # type: ignore[override]
        return self.readers.pop(fd, None) is not None

    def readable(self, fd: int) -> None:
        """The kernel says that there is something to read."""
        reader = self.readers.get(fd)
        if reader is not None:
            reader()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self._actor.process.is_dead and not isinstance(error, Crash):
            self._unhandled(f"{self._actor.name}: {context.get('message')}: {error!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._actor.process.is_dead

    def forget(self) -> None:
        """Ends what was under way, once nothing it still does can matter."""
        for task in self.tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(Crash):  # it still wants to tidy up
                    task.get_coro().close()
        self.tasks.clear()
