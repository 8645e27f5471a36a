"""A queue that keeps all messages, and fails on demand."""

from __future__ import annotations


class FakeQueue:
    """Keeps the ids in the order in which they were sent; those in `refused` cannot be."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.refused: set[str] = set()
        self.is_down = False

    def send(self, job_id: str) -> None:
        if self.is_down or job_id in self.refused:
            raise ConnectionError("the broker is down")
        self.sent.append(job_id)

    def close(self) -> None:
        """Nothing to close."""
