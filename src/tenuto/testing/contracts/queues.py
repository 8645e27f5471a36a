"""What every queue of searches must do. Subclass, and give the fixtures `queue` and `heard`.

`queue` sends; `heard` is a `Heard` whose `wake` a listener of the same broker calls.
"""

from __future__ import annotations

import threading
import uuid

from tenuto.search.queues import Queue

WAIT_S = 30.0


class Heard:
    """How often a listener was woken."""

    def __init__(self) -> None:
        self._count = threading.Semaphore(0)

    def wake(self) -> None:
        """What a listener calls for each message."""
        self._count.release()

    def wait(self) -> bool:
        """Whether a message came that was not waited for before."""
        return self._count.acquire(timeout=WAIT_S)


class QueueContract:
    """A message is a wake-up call: it may come twice, and must come if the broker took it."""

    def test_a_message_wakes_a_listener(self, queue: Queue, heard: Heard) -> None:
        queue.send(uuid.uuid4().hex)
        assert heard.wait()

    def test_the_same_message_wakes_again(self, queue: Queue, heard: Heard) -> None:
        job_id = uuid.uuid4().hex
        for _ in range(3):
            queue.send(job_id)
        assert all(heard.wait() for _ in range(3))

    def test_a_message_that_names_no_candidate_is_dropped_and_harms_nothing(
        self, queue: Queue, heard: Heard
    ) -> None:
        for bad in ("", "../../etc/passwd", "x" * 100_000):
            queue.send(bad)
        queue.send(uuid.uuid4().hex)
        assert heard.wait()

    def test_many_messages_all_arrive(self, queue: Queue, heard: Heard) -> None:
        for _ in range(50):
            queue.send(uuid.uuid4().hex)
        assert all(heard.wait() for _ in range(50))


# A queue that keeps all messages, and fails on demand.


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
