"""What every broker promises, by one suite on Redis and RabbitMQ: a message wakes, a bad one is dropped."""

from __future__ import annotations

import gc
import threading
import time
import uuid
from collections.abc import Callable

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker

from tenuto.search.dramatiq_queue import DramatiqListener, DramatiqQueue
from tenuto.settings import Url
from tenuto.testing.contracts.queues import Heard, QueueContract
from tests.parts.rabbitmq import RabbitMQ
from tests.parts.redis import Redis

ID = uuid.UUID(int=7).hex
WAIT_S = 60.0


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Woken:
    """A listener and how often it was woken."""

    def __init__(self, url: str) -> None:
        self.woken = threading.Semaphore(0)
        self.listener = DramatiqListener(Url(url), "tenuto", self.woken.release)
        self.listener.start()

    def wait(self) -> bool:
        return self.woken.acquire(timeout=WAIT_S)


def dead_letters(queue: DramatiqQueue) -> int:
    """How many messages no consumer could take in, as the broker counts them."""
    name = queue._actor.queue_name
    if isinstance(queue._broker, RedisBroker):
        return int(queue._broker.client.zcard(f"{queue._broker.namespace}:{name}.XQ"))
    counted: tuple[int, int, int] = queue._broker.get_queue_message_counts(name)  # type: ignore[attr-defined]
    return counted[-1]


def test_15_a_message_wakes_a_worker_and_a_foreign_one_is_dropped_and_counted(redis: Redis) -> None:
    assert ignored_and_dropped(redis) == (4, 5)


def ignored_and_dropped(broker: Redis | RabbitMQ) -> tuple[int, int]:
    """How many of nine messages that name no candidate listeners ignore, and how many are dead letters."""
    queue, heard = DramatiqQueue(Url(broker.url), "tenuto"), Woken(broker.url)
    try:
        queue.send(ID)
        assert heard.wait()
        for bad in ("../../etc", "", 7, {"a": 1}):  # 15: malformed
            queue.send(bad)  # type: ignore[arg-type]
        foreign = dramatiq.Message("tenuto.evolution", "somebodys_actor", ("x",), {}, {})
        queue._broker.enqueue(foreign)  # of another program on the same queue
        for body in (b"\xff\xfe", b"{}", b"[1]", b'{"queue_name": "tenuto.evolution"}'):  # of none at all
            broker.put(body)
        queue.send(ID)
        queue.send(ID)  # a duplicate costs a look
        assert heard.wait()
        assert heard.wait()
        # Dramatiq hands over messages that arrive together in any order.
        eventually(lambda: (heard.listener.received, heard.listener.ignored) == (3, 4))
        eventually(lambda: dead_letters(queue) == 5)
        again = Woken(broker.url)  # nothing of it comes back, also to a worker that is started later
        try:
            queue.send(ID)
            eventually(lambda: heard.listener.received + again.listener.received == 4)
            return heard.listener.ignored + again.listener.ignored, dead_letters(queue)
        finally:
            again.listener.close()
    finally:
        heard.listener.close()
        queue.close()
        broker.empty()


@pytest.mark.slow
def test_8_a_broker_that_is_down_is_told_at_once_and_found_again(redis: Redis) -> None:
    assert wakes_of_a_broker_that_was_down(redis) == [True] * 3


def wakes_of_a_broker_that_was_down(broker: Redis | RabbitMQ) -> list[bool]:
    """Whether a message wakes: before the broker stops, once it is back, and after it lost all it had."""
    queue, heard = DramatiqQueue(Url(broker.url), "tenuto"), Woken(broker.url)
    try:
        queue.send(ID)
        wakes = [heard.wait()]
        broker.stop()
        with pytest.raises(Exception, match="onnect"):
            queue.send(ID)
        broker.start()
        queue.send(ID)
        wakes.append(heard.wait())
        broker.empty()
        queue.send(ID)
        return [*wakes, heard.wait()]
    finally:
        heard.listener.close()
        queue.close()


@pytest.mark.slow
@pytest.mark.watchdog(300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_8_rabbitmq_keeps_the_same_promises(rabbitmq: RabbitMQ) -> None:
    """One test, since each process of the tests that needs a RabbitMQ starts its own."""
    assert ignored_and_dropped(rabbitmq) == (4, 5)
    contract = QueueContract()
    names = [name for name in dir(contract) if name.startswith("test_")]
    assert len(names) >= 4
    for name in names:
        queue, heard = DramatiqQueue(Url(rabbitmq.url), name), Heard()
        listener = DramatiqListener(Url(rabbitmq.url), name, heard.wake)
        listener.start()
        try:
            getattr(contract, name)(queue, heard)
        finally:
            listener.close()
            queue.close()
    assert wakes_of_a_broker_that_was_down(rabbitmq) == [True] * 3
    # Of a connection that broke, Pika leaves the two sockets by which it wakes itself to the collector, whose
    # warnings would fail whatever test is run by then.
    gc.collect()


def test_8_a_closed_queue_and_a_closed_listener_leave_no_connection_open(redis: Redis) -> None:
    queue, heard = DramatiqQueue(Url(redis.url), "tenuto"), Woken(redis.url)
    try:
        queue.send(ID)
        assert heard.wait()
    finally:
        heard.listener.close()
        queue.close()
    eventually(lambda: redis.connections() == 1)  # this question's own
