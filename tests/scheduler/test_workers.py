"""Calls off the loop: all made, in order, whatever one of them raises."""

from __future__ import annotations

import threading

import pytest

from tenuto.scheduler.workers import DoneHandlerWorker, NotificationWorker, ThreadWorker


def test_notifications_keep_their_order() -> None:
    worker = NotificationWorker()
    heard: list[int] = []
    for number in range(1000):
        worker.call(lambda number=number: heard.append(number))  # type: ignore[misc]
    worker.close()
    assert heard == list(range(1000))


def test_a_call_that_raises_is_logged_and_the_rest_go_on(caplog: pytest.LogCaptureFixture) -> None:
    worker = NotificationWorker()
    heard: list[str] = []
    worker.call(lambda: heard[7])  # type: ignore[arg-type, return-value]
    worker.call(lambda: heard.append("after"))
    worker.close()
    assert heard == ["after"]
    assert "a callback raised" in caplog.text


def test_calls_that_pile_up_are_made_when_a_call_is_in_a_hurry() -> None:
    worker = ThreadWorker("patient", 1, gather_s=3600)
    first, second = threading.Event(), threading.Event()
    worker.call(first.set)
    assert first.wait(30)
    worker.call(second.set)
    worker.hurry()
    assert second.wait(30)
    worker.call(worker.hurry)
    worker.close()


def test_four_completions_run_at_once() -> None:
    worker = DoneHandlerWorker()
    together = threading.Barrier(4, timeout=30)
    passed: list[int] = []
    for number in range(4):
        worker.call(lambda number=number: passed.append(together.wait() and number))  # type: ignore[misc]
    worker.close()
    assert len(passed) == 4
