"""Queues: how workers are woken for a candidate. A message is a hint; the row is the truth.
Here the protocol, the queue for a search without a broker, and the choice; Dramatiq's is in `dramatiq_queue`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tenuto.light import late
from tenuto.search.proposals import missing_extra
from tenuto.settings import Settings

if TYPE_CHECKING:
    from tenuto.search import dramatiq_queue
else:
    dramatiq_queue = late("tenuto.search.dramatiq_queue")


class Queue(Protocol):
    """Sends the ids of rows that may be claimed."""

    def send(self, job_id: str) -> None:
        """Wakes a worker; raises if the broker cannot be reached."""
        ...

    def close(self) -> None: ...


class NoQueue:
    """No broker: workers are woken by the database, or look by themselves."""

    def send(self, job_id: str) -> None:
        """Nothing to do: the transaction that made the row QUEUED announced it."""

    def close(self) -> None:
        """Nothing to close."""


class QueueListener(Protocol):
    """Hears the messages of a broker."""

    def close(self) -> None: ...


def open_queue(settings: Settings) -> Queue:
    """The queue that the settings name."""
    url = settings.queue.url
    if url is None:
        return NoQueue()
    with missing_extra("[queue] url", "dramatiq"):
        kind = dramatiq_queue.DramatiqQueue
    return kind(url, settings.queue.namespace)


def open_listener(settings: Settings, wake: Callable[[], None]) -> QueueListener:
    """Calls back for each message of the broker that the settings name; never without one."""
    url = settings.queue.url
    if url is None:
        return NoQueue()
    with missing_extra("[queue] url", "dramatiq"):
        kind = dramatiq_queue.DramatiqListener
    listener = kind(url, settings.queue.namespace, wake)
    listener.start()
    return listener
