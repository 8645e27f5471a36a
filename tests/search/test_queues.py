"""What every broker promises, by one suite on Redis and RabbitMQ: a message wakes, a bad one is dropped."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenuto.search.dramatiq_queue import DramatiqListener, DramatiqQueue
from tenuto.settings import Url
from tests.parts.rabbitmq import RabbitMQ
from tests.parts.redis import Redis

ID = uuid.UUID(int=7).hex
WAIT_S = 60.0


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(
    params=["redis", pytest.param("rabbitmq", marks=[pytest.mark.slow, pytest.mark.xdist_group("rabbitmq")])]
)
def broker(request: pytest.FixtureRequest) -> Iterator[Redis | RabbitMQ]:
    server = request.getfixturevalue(request.param)
    yield server
    server.empty()


class Heard:
    """A listener and how often it was woken."""

    def __init__(self, url: str) -> None:
        self.woken = threading.Semaphore(0)
        self.listener = DramatiqListener(Url(url), "tenuto", self.woken.release)
        self.listener.start()

    def wait(self) -> None:
        assert self.woken.acquire(timeout=WAIT_S)


def test_8_a_message_wakes_a_worker_and_a_foreign_one_is_dropped(broker: Any) -> None:
    queue, heard = DramatiqQueue(Url(broker.url), "tenuto"), Heard(broker.url)
    try:
        queue.send(ID)
        heard.wait()
        for bad in ("../../etc", "", 7, {"a": 1}):  # 15: malformed
            queue.send(bad)  # type: ignore[arg-type]
        queue.send(ID)
        queue.send(ID)  # a duplicate costs a look
        heard.wait()
        heard.wait()
        # Dramatiq hands over messages that arrive together in any order.
        eventually(lambda: (heard.listener.received, heard.listener.ignored) == (3, 4))
    finally:
        heard.listener.close()
        queue.close()


@pytest.mark.slow
def test_8_a_broker_that_is_down_is_told_at_once_and_found_again(redis: Redis) -> None:
    queue, heard = DramatiqQueue(Url(redis.url), "tenuto"), Heard(redis.url)
    try:
        redis.stop()
        with pytest.raises(Exception, match="onnect"):
            queue.send(ID)
        redis.start()
        queue.send(ID)
        heard.wait()
    finally:
        heard.listener.close()
        queue.close()


def test_8_a_closed_queue_and_a_closed_listener_leave_no_connection_open(redis: Redis) -> None:
    queue, heard = DramatiqQueue(Url(redis.url), "tenuto"), Heard(redis.url)
    try:
        queue.send(ID)
        heard.wait()
    finally:
        heard.listener.close()
        queue.close()
    eventually(lambda: redis.connections() == 1)  # this question's own
