"""Owns how event loops ask the scheduler's: together, in order, and with an answer whatever happens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tenuto.errors import SchedulerClosed
from tenuto.scheduler.loop import MOST_ANSWERS, Callers, LoopThread, PendingAnswer

from .builders import WAIT_S
from .servers import run


class Asked:
    """A loop in a thread, and the callers that ask it."""

    def __init__(self) -> None:
        self.loop = LoopThread()
        self.callers = Callers(self.loop)
        self.wakes = 0
        self.place: dict[PendingAnswer[int], None] = {}
        wake = self.loop.loop.call_soon_threadsafe

        def woken(callback: Any, *arguments: Any) -> Any:
            self.wakes += 1
            return wake(callback, *arguments)

        self.loop.loop.call_soon_threadsafe = woken  # type: ignore[method-assign, assignment]

    def wait(self, answer: PendingAnswer[int]) -> None:
        """A question that is not answered yet."""
        answer.wait_in(self.place)

    async def until_waiting(self, number: int) -> None:
        """Until so many questions wait for their answers."""
        while len(self.place) != number:  # noqa: ASYNC110  another thread puts them there
            await asyncio.sleep(0)

    def close(self) -> None:
        self.loop.close()
        self.callers.close()


@pytest.fixture
def asked() -> Iterator[Asked]:
    asked = Asked()
    yield asked
    asked.close()


def seven(answer: PendingAnswer[int]) -> None:
    answer.give(7)


def test_what_a_loop_asks_in_one_step_wakes_the_scheduler_once(asked: Asked) -> None:
    order: list[int] = []

    def note(number: int) -> Any:
        return lambda answer: (order.append(number), answer.give(number))

    async def ask() -> list[int]:
        return await asyncio.gather(*(asked.callers.ask(note(number)) for number in range(50)))

    assert run(ask()) == list(range(50)) == order
    assert asked.wakes == 1


def test_other_tasks_go_on_between_answers(asked: Asked) -> None:
    """What many tasks wait for comes at once: each step of the loop wakes only some of them."""
    number = 10 * MOST_ANSWERS

    async def serve() -> int:
        waiting = [asyncio.create_task(asked.callers.ask(asked.wait)) for _ in range(number)]
        await asked.until_waiting(number)

        def give_all() -> None:
            for answer in list(asked.place):
                answer.give(7)

        asked.loop.post(give_all)
        most = before = 0
        while before < number:
            await asyncio.sleep(0)
            done = sum(task.done() for task in waiting)
            most, before = max(most, done - before), done
        return most

    assert 0 < run(serve()) <= 2 * MOST_ANSWERS


def test_what_a_question_raises_is_its_answer(asked: Asked) -> None:
    def fail(answer: PendingAnswer[int]) -> None:
        raise ValueError("no such job")

    with pytest.raises(ValueError, match="no such job"):
        run(asked.callers.ask(fail))


def test_a_question_that_is_cancelled_before_its_turn_is_not_asked(asked: Asked) -> None:
    calls: list[int] = []

    async def serve() -> None:
        late = asyncio.create_task(asked.callers.ask(lambda answer: calls.append(1)))
        await asyncio.sleep(0)
        late.cancel()
        assert await asked.callers.ask(seven) == 7

    run(serve())
    assert calls == []


def test_a_question_that_is_cancelled_while_it_waits_leaves_its_place(asked: Asked) -> None:
    async def serve() -> None:
        waiting = asyncio.create_task(asked.callers.ask(asked.wait))
        await asked.until_waiting(1)
        waiting.cancel()
        await asked.until_waiting(0)

    run(serve())
    assert asked.callers._open == set()


def test_the_scheduler_asks_itself_without_waiting_for_a_step(asked: Asked) -> None:
    async def ask() -> tuple[int, bool]:
        steps: list[int] = []
        asyncio.get_running_loop().call_soon(steps.append, 1)
        return await asked.callers.ask(seven), bool(steps)

    assert asked.loop.wait(ask(), WAIT_S) == (7, False)


def test_a_loop_that_was_closed_is_let_go(asked: Asked) -> None:
    for _ in range(5):
        assert run(asked.callers.ask(seven)) == 7
    assert len(asked.callers._callers) == 1


def test_an_answer_for_a_loop_that_was_closed_harms_nothing(asked: Asked) -> None:
    async def leave() -> None:
        waiting = asyncio.create_task(asked.callers.ask(asked.wait))
        await asked.until_waiting(1)
        await asyncio.wait([waiting], timeout=0.0)

    run(leave())
    for answer in list(asked.place):
        asked.loop.post(answer.give, 7)
    assert run(asked.callers.ask(seven)) == 7


def test_whatever_is_open_when_the_scheduler_is_closed_is_told(asked: Asked) -> None:
    async def serve() -> list[Any]:
        early = [asyncio.create_task(asked.callers.ask(asked.wait)) for _ in range(3)]
        await asked.until_waiting(len(early))
        closing = asyncio.create_task(asyncio.to_thread(asked.close))
        late = []
        while not closing.done():
            late.append(asyncio.create_task(asked.callers.ask(seven)))
            await asyncio.sleep(0)
        late.append(asyncio.create_task(asked.callers.ask(seven)))
        return await asyncio.gather(*early, *late, return_exceptions=True)

    *ends, last = run(serve())
    assert isinstance(last, SchedulerClosed)
    assert all(isinstance(end, SchedulerClosed) for end in ends[:3])
    assert all(end == 7 or isinstance(end, SchedulerClosed) for end in ends)


def test_an_answer_that_was_given_stays_though_the_scheduler_is_closed_before_it_is_heard(
    asked: Asked,
) -> None:
    given = threading.Event()

    def give(answer: PendingAnswer[int]) -> None:
        answer.give(7)
        given.set()

    async def serve() -> int:
        call = asyncio.create_task(asked.callers.ask(give))
        for _ in range(2):
            await asyncio.sleep(0)
        assert given.wait(WAIT_S)  # blocks this loop, which hears of the answer only then
        asked.close()
        return await call

    assert run(serve()) == 7


def test_loops_of_many_threads_ask_at_once(asked: Asked) -> None:
    async def ask() -> int:
        return sum(await asyncio.gather(*(asked.callers.ask(seven) for _ in range(100))))

    sums: list[int] = []
    threads = [threading.Thread(target=lambda: sums.append(run(ask()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sums == 4 * [700]
