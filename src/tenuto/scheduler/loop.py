"""The event loop of the scheduler, in a thread of its own.
The only place that starts a loop; the simulator brings another.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from tenuto.errors import SchedulerClosed
from tenuto.workspace.inotify import DirectoryWatch, watch_directory

T = TypeVar("T")

CLOSED = "the scheduler was closed; its jobs continue, and another scheduler finds them"


class Loop(Protocol):
    """What the scheduler needs of its event loop; `LoopThread`, or the simulator's."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def post(self, callback: Callable[..., object], *arguments: Any) -> None: ...

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> None: ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None: ...

    def wait(self, coroutine: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any: ...

    def watch(self, directory: str) -> DirectoryWatch | None:
        """Tells of changes in a directory; None where the kernel cannot."""
        ...

    def close(self) -> None: ...


class LoopThread:
    """Runs an event loop in a daemon thread for as long as the process lives, or until `close`."""

    def __init__(self, watch: Callable[[str], DirectoryWatch | None] = watch_directory) -> None:
        self.watch = watch
        self.loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[Future[Any]] = set()
        """What other threads wait for: whatever the end of the loop leaves open is cancelled."""
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_woken = False
        """The loop was told that something is posted, and has not looked yet."""
        self._is_over = False
        """The loop was stopped: later calls are cancelled, and not begun."""
        self._thread = threading.Thread(target=self._run, name="tenuto-scheduler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self._is_over = True
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._take_posted()
        self.loop.run_until_complete(asyncio.sleep(0))  # calls posted meanwhile learn that it is over
        self.loop.close()

    def post(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Has the loop call back soon; from any thread. Only another's has to wake it up, once for many.

        To wake it is to write to a pipe, which gives the GIL away, and to wait up to 5 ms to get it back: ten
        times, if a server posted ten callbacks in one step of its own loop.
        """
        if threading.get_ident() == self._thread.ident:
            self.loop.call_soon(callback, *arguments)
            return
        self._posted.append((callback, arguments))
        if not self._is_woken:
            self._is_woken = True
            try:
                self.loop.call_soon_threadsafe(self._take_posted)
            except RuntimeError:  # it is closed
                self._is_woken = False
                raise

    def _take_posted(self) -> None:
        self._is_woken = False  # before the look: a later change wakes the loop again
        while self._posted:
            callback, arguments = self._posted.popleft()
            self.loop.call_soon(callback, *arguments)

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> None:
        """Has the loop call back after a while; from the loop's own thread."""
        self.loop.call_later(delay_s, callback, *arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Starts a coroutine, and holds on to it until it ends; from the loop's own thread.

        The loop that ends starts none: a job whose attempt it cancels gives back its slot to the next one.
        """
        if self._is_over:
            coroutine.close()
            return
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def wait(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs a coroutine in the loop and blocks this thread until it ends."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("this would wait for itself: use `await` inside the scheduler's own loop")
        future = self.ask(coroutine)
        try:
            return future.result(timeout_s)
        except CancelledError as error:
            raise SchedulerClosed(CLOSED) from error
        except BaseException:
            future.cancel()
            raise

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine in the loop, from any other thread; the future is cancelled if the loop ends."""
        if self.loop.is_closed():
            coroutine.close()
            raise SchedulerClosed(CLOSED)
        future: Future[T] = Future()
        self._asked.add(future)
        future.add_done_callback(self._asked.discard)
        with suppress(RuntimeError):
            self.post(self._answer, coroutine, future)
        if self.loop.is_closed():  # it ended meanwhile, and may not have looked at this any more
            future.cancel()
            coroutine.close()
        return future

    def _answer(self, coroutine: Coroutine[Any, Any, T], future: Future[T]) -> None:
        if self._is_over:
            future.cancel()
        if future.cancelled():
            coroutine.close()
            return
        task = self.loop.create_task(coroutine)

        def tell(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                future.cancel()
            elif future.set_running_or_notify_cancel():
                error = task.exception()
                if error is None:
                    future.set_result(task.result())
                else:
                    future.set_exception(error)

        def give_up(future: Future[T]) -> None:
            if future.cancelled() and not task.done() and not self.loop.is_closed():
                self.post(task.cancel)

        task.add_done_callback(tell)
        future.add_done_callback(give_up)

    def close(self) -> None:
        """Ends the loop; what still runs in it is cancelled."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            for future in list(self._asked):
                future.cancel()


# What keeps the event loop of a server free while a scheduler works in the same process.


SWITCH_S = 0.001
"""How long a busy thread keeps a loop from going on; it is 5 ms as Python comes."""
COLLECT = (200, 5, 1_000)
"""How often Python collects: as it comes, one of its smaller collections takes up to 10 ms under load."""


def keep_loops_free() -> None:
    """Keep event loops from blocking for more than a few milliseconds; once a server has started.

    A full collection goes through everything that was ever imported, and stops every thread for 15 to 60 ms:
    loaded objects are left out of all that follow, and there is one in a million new objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)
    sys.setswitchinterval(SWITCH_S)


# Event loops of callers: they ask in the scheduler's loop, and await the answers on theirs.


MOST_ANSWERS = 16
"""How many answers a caller's loop takes in one step: each wakes a task, and other tasks wait meanwhile."""


class PendingAnswer(Generic[T]):
    """The answer to one question; given at most once, in the scheduler's loop."""

    __slots__ = ("_caller", "_error", "_future", "_is_given", "_place", "_value")

    def __init__(self, caller: Caller | None, future: asyncio.Future[T]) -> None:
        """`caller`: the loop of the future; None: the scheduler's own."""
        self._caller = caller
        self._future = future
        self._place: dict[PendingAnswer[T], None] | None = None
        self._value: T | None = None
        self._error: BaseException | None = None
        self._is_given = False

    @property
    def is_wanted(self) -> bool:
        """False once the question was cancelled."""
        return not self._future.done()

    def give(self, value: T) -> None:
        """The caller continues with this value."""
        self._deliver(value, None)

    def fail(self, error: BaseException) -> None:
        """The caller has this error raised; unless the answer was given before."""
        self._deliver(None, error)

    def wait_in(self, place: dict[PendingAnswer[T], None]) -> None:
        """Waits among others, in their order, to be given; a question that is cancelled leaves the place."""
        self._place = place
        place[self] = None

    def leave(self) -> None:
        """Waits no more; in the scheduler's loop."""
        if self._place is not None:
            self._place.pop(self, None)

    def settle(self) -> None:
        """Wakes the task that awaits it; in the loop of its future."""
        if self._future.done():
            return
        if self._error is not None:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(self._value)  # type: ignore[arg-type]

    def _deliver(self, value: T | None, error: BaseException | None) -> None:
        if self._is_given:
            return
        self._is_given, self._value, self._error = True, value, error
        if self._caller is None:
            self.settle()
        else:
            self._caller.deliver(self)


Question = Callable[[PendingAnswer[T]], object]
"""Called in the scheduler's loop: gives the answer, or has it wait. Its error is the answer, too."""


class Caller:
    """One event loop that asks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, post: Callable[..., None]) -> None:
        """`post` has the scheduler's loop call back."""
        self._loop = loop
        self._post = post
        self._asked: list[tuple[Question[Any], PendingAnswer[Any]]] = []
        self._answered: deque[PendingAnswer[Any]] = deque()
        self._is_told = False
        """True while its loop knows of answers that it has not looked at."""

    def ask(self, question: Question[T], answer: PendingAnswer[T]) -> None:
        """Asks after what else happens in this step of its loop, and all that is asked in it together.

        To wake the scheduler is to write to a pipe, which gives the GIL away: a loop that asked ten questions
        one by one would stand still ten times, for as long as other threads keep the GIL.
        """
        if not self._asked:
            self._loop.call_soon(self._send)
        self._asked.append((question, answer))

    def deliver(self, answer: PendingAnswer[Any]) -> None:
        """From the scheduler's thread."""
        self._answered.append(answer)
        if not self._is_told:
            self._is_told = True
            with suppress(RuntimeError):  # its loop is closed, and awaits nothing
                self._loop.call_soon_threadsafe(self._take_answers)

    def _send(self) -> None:
        asked, self._asked = self._asked, []
        try:
            self._post(self._put, asked)
        except RuntimeError:  # the scheduler's loop is closed
            for _, answer in asked:
                answer.fail(SchedulerClosed(CLOSED))

    def _put(self, asked: list[tuple[Question[Any], PendingAnswer[Any]]]) -> None:
        for question, answer in asked:
            self._post(_put_one, question, answer)  # what else the scheduler has to do comes between them

    def _take_answers(self) -> None:
        self._is_told = False  # before the look: later changes are told again
        for _ in range(MOST_ANSWERS):
            if not self._answered:
                return
            self._answered.popleft().settle()
        self._is_told = True
        self._loop.call_soon(self._take_answers)


class Callers:
    """All event loops that ask a scheduler."""

    def __init__(self, loop: Loop) -> None:
        self._scheduler = loop
        self._callers: dict[asyncio.AbstractEventLoop, Caller] = {}
        self._lock = threading.Lock()
        self._open: set[PendingAnswer[Any]] = set()
        self._is_closed = False

    async def ask(self, question: Question[T]) -> T:
        """Asks in the scheduler's loop, and awaits the answer on the running one, which may be the same.

        A call that is cancelled before its turn asks nothing. `SchedulerClosed` if the scheduler is closed
        before the answer is given.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if loop is self._scheduler.loop:
            answer = PendingAnswer(None, future)
            _put_one(question, answer)
        else:
            caller = self._callers.get(loop) or self._add(loop)
            answer = PendingAnswer(caller, future)
            self._open.add(answer)
            if self._is_closed:
                self._open.discard(answer)
                raise SchedulerClosed(CLOSED)
            caller.ask(question, answer)
        try:
            return await future
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # the scheduler is closed
                self._scheduler.post(answer.leave)
            raise
        finally:
            self._open.discard(answer)

    def close(self) -> None:
        """Answers open calls, once the scheduler's loop has ended: `SchedulerClosed`."""
        self._is_closed = True
        for answer in list(self._open):
            answer.fail(SchedulerClosed(CLOSED))

    def _add(self, loop: asyncio.AbstractEventLoop) -> Caller:
        with self._lock:
            for other in [known for known in self._callers if known.is_closed()]:
                del self._callers[other]
            return self._callers.setdefault(loop, Caller(loop, self._scheduler.post))


def _put_one(question: Question[Any], answer: PendingAnswer[Any]) -> None:
    if answer.is_wanted:
        try:
            question(answer)
        except Exception as error:  # noqa: BLE001  it is the caller's
            answer.fail(error)
