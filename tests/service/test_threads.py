"""Threads that a server waits for on its loop: answers, errors, cancelled callers, and the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tenuto.service.threads import Threads

PATIENCE_S = 30.0


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(2)
    yield made
    made.close()


def test_calls_are_answered_each_with_its_own_result_or_error(threads: Threads) -> None:
    def halved(number: int) -> int:
        if number % 2:
            raise ValueError(number)
        return number // 2

    async def main() -> list[int | BaseException]:
        return await asyncio.gather(*(threads(halved, n) for n in range(200)), return_exceptions=True)

    answers = asyncio.run(main())
    assert answers[::2] == list(range(100))
    assert [str(error) for error in answers[1::2]] == [str(n) for n in range(1, 200, 2)]


def test_calls_that_come_alone_see_few_threads_from_any_caller(threads: Threads) -> None:
    other, all_at_work = Threads(4), threading.Barrier(6)

    async def main() -> set[int]:
        makers = [threads] * 2 + [other] * 4
        await asyncio.gather(*(one(all_at_work.wait, PATIENCE_S) for one in makers))
        return {await one(threading.get_ident) for _ in range(50) for one in (threads, other)}

    # The next call may come before the thread of the last one is idle again.
    assert len(asyncio.run(main())) <= 3
    other.close()


def test_the_end_of_an_iterator_keeps_no_answer_from_others(threads: Threads) -> None:
    async def main() -> list[object]:
        calls = [threads(next, iter(())), *(threads(int, "7") for _ in range(5))]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    first, *others = asyncio.run(main())
    assert isinstance(first, RuntimeError)
    assert others == [7] * 5


def test_a_call_goes_on_when_its_caller_is_cancelled(threads: Threads) -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        assert go.wait(PATIENCE_S)
        ended.set()

    async def main() -> None:
        caller = asyncio.ensure_future(threads(call))
        while not begun.is_set():  # noqa: ASYNC110  it is set in a thread
            await asyncio.sleep(0.001)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        go.set()
        assert await threads(ended.wait, PATIENCE_S)

    asyncio.run(main())


def test_a_call_that_outlives_its_loop_keeps_no_answer_from_the_next_loop(threads: Threads) -> None:
    begun, go = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        go.wait(PATIENCE_S)

    async def leave() -> None:
        asyncio.ensure_future(threads(call))  # noqa: RUF006  the end of the loop cancels it
        while not begun.is_set():  # noqa: ASYNC110  it is set in a thread
            await asyncio.sleep(0.001)

    asyncio.run(leave())
    go.set()

    async def ask() -> list[int]:
        async with asyncio.timeout(PATIENCE_S):
            return [await threads(int, "7") for _ in range(20)]

    assert asyncio.run(ask()) == [7] * 20


def test_the_end_cancels_the_calls_that_were_not_begun(threads: Threads) -> None:
    begun, go = threading.Barrier(3), threading.Event()

    def call() -> str:
        begun.wait(PATIENCE_S)
        assert go.wait(PATIENCE_S)
        return "ended"

    async def main() -> tuple[list[str | BaseException], BaseException | str]:
        running = [asyncio.ensure_future(threads(call)) for _ in range(2)]
        waiting = asyncio.ensure_future(threads(str, "never"))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        threads.close()
        never = (await asyncio.gather(waiting, return_exceptions=True))[0]
        go.set()
        return await asyncio.gather(*running, return_exceptions=True), never

    ended, never = asyncio.run(main())
    assert ended == ["ended", "ended"]
    assert isinstance(never, asyncio.CancelledError)
    with pytest.raises(RuntimeError):
        asyncio.run(threads(str, "late"))
