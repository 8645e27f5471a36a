"""Event loops of callers: they ask in the scheduler's loop, and await the answers on theirs.
Knows no job. A caller's loop gives the GIL away once for all that it asks in a step of its own, not for each.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from tenuto.errors import SchedulerClosed
from tenuto.scheduler.loop import CLOSED, Loop

T = TypeVar("T")

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
        """The caller goes on with this value."""
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
