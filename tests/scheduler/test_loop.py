"""The scheduler's loop in its thread: what is asked while it ends is answered or cancelled, never dropped."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any

import pytest

from tenuto.errors import SchedulerClosed
from tenuto.scheduler.loop import LoopThread

WAIT_S = 30


async def answer() -> int:
    await asyncio.sleep(0)
    return 7


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Python complains of when coroutines and tasks are let go before they ended."""
    gc.collect()  # what earlier tests let go is none of ours
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    monkeypatch.setattr(asyncio.base_events.logger, "error", lambda *words, **_: complaints.append(words))
    return complaints


def test_a_question_that_comes_between_stop_and_end_is_cancelled(dropped: list[Any]) -> None:
    loop = LoopThread()
    busy, stopped = threading.Event(), threading.Event()
    loop.post(busy.wait, WAIT_S)
    post = loop.loop.call_soon_threadsafe

    def posted(callback: Any, *arguments: Any) -> None:
        post(callback, *arguments)
        stopped.set()

    loop.loop.call_soon_threadsafe = posted  # type: ignore[method-assign, assignment]
    closing = threading.Thread(target=loop.close)
    closing.start()
    assert stopped.wait(WAIT_S)
    late = [loop.ask(answer()) for _ in range(3)]
    busy.set()
    closing.join(WAIT_S)
    for given in late:
        with pytest.raises(CancelledError):
            given.result(WAIT_S)
    with pytest.raises(SchedulerClosed):
        loop.ask(answer())
    del late, given
    gc.collect()
    assert dropped == []


def test_questions_from_many_threads_while_it_ends(dropped: list[Any]) -> None:
    loop = LoopThread()
    answers: list[Future[int]] = []

    def ask() -> None:
        with suppress(SchedulerClosed):
            answers.extend(loop.ask(answer()) for _ in range(200))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert loop.wait(answer()) == 7
    loop.close()
    for thread in threads:
        thread.join(WAIT_S)
    assert {given.cancelled() or given.result(WAIT_S) for given in answers} <= {True, 7}
    gc.collect()
    assert dropped == []
