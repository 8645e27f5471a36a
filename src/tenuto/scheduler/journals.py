"""The journal of one owner, and the subscribers who hear what is written there.
Who the owner is does not matter; files are written in groups, off the loop.
"""

from __future__ import annotations

from collections.abc import Callable

from tenuto.lifecycle.events import Event
from tenuto.scheduler.listeners import Subscriber
from tenuto.scheduler.workers import call_safely
from tenuto.workspace.event_writer import EventWriter


class OwnerJournal:
    """Writes the events of an owner; all but `end` and `subscribe` belong to the thread that tells events."""

    def __init__(self, writer: EventWriter, soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` has a function called after all that is to be told by now: `Scheduler.tell`."""
        self._writer = writer
        self._soon = soon
        self._subscribers: tuple[Subscriber, ...] = ()
        self._unheard: list[Event] = []
        """Events that are not in the file yet: those of many jobs are written together."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Pass each event from now on to a subscriber, after it was written; from any thread."""
        self._subscribers = (*self._subscribers, subscriber)

    def write(self, event: Event) -> None:
        """Take an event, which is written soon, together with what is told meanwhile."""
        self._writer.add(event)
        self._unheard.append(event)
        if len(self._unheard) == 1:
            self._soon(self._flush)

    def end(self, event: Event | None = None) -> None:
        """Write the last event, and close; from another thread, once everything was told."""
        if event is not None:
            self._writer.add(event)
            self._unheard.append(event)
        try:
            self._flush()
        finally:
            self._writer.close()

    def _flush(self) -> None:
        events, self._unheard = self._unheard, []
        try:
            self._writer.flush()
        finally:
            for event in events if self._subscribers else ():
                for subscriber in self._subscribers:
                    call_safely(lambda: subscriber(event))  # noqa: B023  called at once
