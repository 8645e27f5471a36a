"""The smallest owner of jobs: remembers each call."""

from __future__ import annotations

from tenuto.lifecycle.events import Event, JobStateChangedEvent, JobSubmittedEvent
from tenuto.lifecycle.states import JobState


class FakeOwner:
    """`history` has each state that each job went through, `events` all it heard."""

    def __init__(self, name: str = "owner") -> None:
        self.id = f"search/{name}"
        self.events: list[Event] = []
        self.history: dict[str, list[JobState]] = {}

    def hear(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, JobSubmittedEvent):
            self.history.setdefault(event.job_id, [])
        elif isinstance(event, JobStateChangedEvent):
            self.history.setdefault(event.job_id, []).append(event.state)
