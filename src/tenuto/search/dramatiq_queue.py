"""Dramatiq as the queue of a search, on Redis or RabbitMQ: a message only wakes a worker's agent.
No middleware: nothing is retried or timed here; the row is the truth, and the runner keeps the time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import dramatiq
from dramatiq.broker import Broker

from tenuto.light import late
from tenuto.settings.urls import Url

if TYPE_CHECKING:
    from tenuto.search import redis_broker
else:
    redis_broker = late("tenuto.search.redis_broker")

ACTOR = "run_evolution_job"
CONNECT_S = 2
ANSWER_S = 5
STOP_MS = 5000  # Dramatiq sleeps three seconds before it tries a broker that is down again
_ID = re.compile(r"[0-9a-f]{32}")

log = logging.getLogger("tenuto.search")


def make_broker(url: Url) -> Broker:
    """The broker behind a URL; connects to nothing yet."""
    text = url.reveal()
    if url.scheme in ("amqp", "amqps"):
        from dramatiq.brokers.rabbitmq import RabbitmqBroker  # noqa: PLC0415  each broker has its own client

        sign = "&" if "?" in text else "?"
        times = f"connection_attempts=1&socket_timeout={CONNECT_S}&stack_timeout={ANSWER_S}"
        return RabbitmqBroker(url=f"{text}{sign}{times}", middleware=[], confirm_delivery=True)
    import redis  # noqa: PLC0415

    client = redis.Redis.from_url(text, socket_connect_timeout=CONNECT_S, socket_timeout=ANSWER_S)
    make: Any = redis_broker.SoundRedisBroker
    broker: Broker = make(client=client, middleware=[])
    return broker


def _close(broker: Broker) -> None:
    broker.close()
    if (client := getattr(broker, "client", None)) is not None:  # Dramatiq leaves the client of Redis open
        client.close()


def _queue_name(namespace: str) -> str:
    return f"{namespace}.evolution"


def _declared(broker: Broker, namespace: str, work: Callable[[Any], None]) -> Any:
    declare: Any = dramatiq.actor(broker=broker, actor_name=ACTOR, queue_name=_queue_name(namespace))
    return declare(work)


class DramatiqQueue:
    """Sends the ids of rows to the actor `run_evolution_job`."""

    def __init__(self, url: Url, namespace: str) -> None:
        self._broker = make_broker(url)
        self._actor = _declared(self._broker, namespace, lambda job_id: None)

    def send(self, job_id: str) -> None:
        self._actor.send(job_id)

    def close(self) -> None:
        _close(self._broker)


class DramatiqListener:
    """Calls back for every message; a message without the id of a row is dropped and counted.

    Other data, and messages for another actor, go to the broker's dead letters.
    """

    def __init__(self, url: Url, namespace: str, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._queue_name = _queue_name(namespace)
        self.received = 0
        self.ignored = 0
        self._broker = make_broker(url)
        _declared(self._broker, namespace, self._receive)
        self._worker = dramatiq.Worker(self._broker, worker_threads=1, worker_timeout=200)

    def start(self) -> None:
        """Begins to listen; a broker that is down is tried again and again."""
        self._broker.emit_after("process_boot")
        self._worker.start()

    def close(self) -> None:
        self._worker.stop(timeout=STOP_MS)
        _close(self._broker)

    def _receive(self, job_id: Any) -> None:
        if not isinstance(job_id, str) or not _ID.fullmatch(job_id):
            self.ignored += 1
            log.warning("a message that names no candidate was dropped")
            return
        self.received += 1
        self._wake()
