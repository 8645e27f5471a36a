"""Queues: how workers are woken for a candidate. A message is a hint; the row is the truth.
Here the protocol and the queue for a search without a broker; Dramatiq's is in `dramatiq_queue`.
"""

from __future__ import annotations

from typing import Protocol


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
