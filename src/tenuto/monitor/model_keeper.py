"""One thread that keeps the model true: it loads groups, and reads the feeds of the doors into it.
It decides nothing about the display; a source that fails is tried again, and harms no other.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime

from tenuto.clock import Clock
from tenuto.jobs.model import CountKind, Model
from tenuto.jobs.row import Group, Row
from tenuto.jobs.source import Changes, Feed, Source
from tenuto.lifecycle.events import Event
from tenuto.lifecycle.states import JobState

logger = logging.getLogger("tenuto.monitor")

POLL_S = 0.5
"""How often a feed is read that cannot tell of news."""
GROUPS_S = 1.0
REST_S = 0.05
"""Between two ticks: of a burst the first change passes at once, the others together."""
MOST_CHANGES = 5_000
UNSEEN_S = 300.0
KEPT_GROUPS = 8
"""Older groups that stay loaded."""
RATE_S = 60
"""Jobs a second are the mean of so many seconds."""


class ModelKeeper:
    """Keeps a model up to date from the sources of the open doors."""

    def __init__(
        self,
        sources: Sequence[Source],
        model: Model,
        lock: threading.RLock,
        clock: Clock,
        told: Callable[[Sequence[Event]], None],
    ) -> None:
        """`told` is called after each tick that changed something, in the thread, with the events of it."""
        self._sources = sources
        self._model = model
        self._lock = lock
        self._clock = clock
        self._told = told
        self.rates = Rates()
        self.loaded: set[str] = set()
        """Groups whose rows are all known."""
        self._source_of: dict[str, Source] = {}
        self._feeds: dict[Source, Feed] = {}
        self._wanted: dict[str, float] = {}
        """Older groups, and when they were last asked for."""
        self._to_load: list[str] = []
        self._groups_due = 0.0
        self._events: list[Event] = []
        self._is_closing = False
        self.is_settled = threading.Event()
        """Set once everything that was found at the start is loaded."""
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="tenuto-monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def poke(self) -> None:
        """Have the feeds read now."""
        with suppress(BlockingIOError):
            os.write(self._wake, b".")

    def want(self, group: str) -> None:
        """Load an older group, or keep it loaded."""
        with self._lock:
            is_new = group not in self._wanted
            self._wanted[group] = self._clock.monotonic()
        if is_new:
            self.poke()

    def close(self) -> None:
        """End the thread."""
        self._is_closing = True
        self.poke()
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._woken)
        os.close(self._wake)

    # The thread

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._turn()
                if not self._to_load:
                    self.is_settled.set()
                    self._rest()
        finally:
            for feed in self._feeds.values():
                feed.close()

    def _turn(self) -> None:
        """Open closed sources, look for groups, load one chunk, read the feeds, and end the tick."""
        self._open_feeds()
        self._look_for_groups()
        self._queue_groups()
        if self._to_load:
            self._load(self._to_load.pop(0))
        self._read_feeds()
        self._tick()

    def _rest(self) -> None:
        """Wait for news. The first change of a burst passes at once, those after it together."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for feed in self._feeds.values():
            if (fileno := feed.fileno()) is not None:
                poll.register(fileno, select.POLLIN)
        rested = self._clock.monotonic() + REST_S
        if poll.poll(POLL_S * 1000) and not self._is_closing:
            time.sleep(max(rested - self._clock.monotonic(), 0.0))
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def _open_feeds(self) -> None:
        for source in self._sources:
            if source not in self._feeds:
                with self._isolated(source):
                    self._feeds[source] = source.feed()

    def _look_for_groups(self) -> None:
        if self._clock.monotonic() >= self._groups_due:
            self._groups_due = self._clock.monotonic() + GROUPS_S
            self._read_groups()

    def _read_groups(self) -> None:
        found: dict[str, Group] = {}
        failed: set[str] = set()
        for source in self._sources:
            try:
                for group in source.groups():
                    found[group.group] = group
                    self._source_of[group.group] = source
            except Exception:
                logger.exception("groups cannot be read", extra={"action": "groups_failed"})
                failed.add(source.door.value)
        with self._lock:
            for known in self._model.groups():
                if known.group not in found and known.door.value not in failed:
                    self._model.remove_group(known.group)
                    self.loaded.discard(known.group)
            for group in found.values():
                self._put_group(group)

    def _put_group(self, group: Group) -> None:
        before = self._model.group(group.group)
        if before is not None and before.live != group.live:
            self.loaded.discard(group.group)  # its process began, ended or vanished: look again
        self._model.put_group(group)

    def followed(self) -> list[str]:
        """The groups that are always loaded: live ones, and the newest of each name; live ones first."""
        newest: set[tuple[str, str]] = set()
        first: list[str] = []
        others: list[str] = []
        for group in newest_first(self._model.groups()):
            name = (group.door.value, group.name)
            if group.live:
                first.append(group.group)
            elif name not in newest:
                others.append(group.group)
            newest.add(name)
        return first + others

    def _queue_groups(self) -> None:
        followed = self.followed()
        now = self._clock.monotonic()
        with self._lock:
            recent = sorted(self._wanted, key=lambda group: -self._wanted[group])
            kept = [group for group in recent[:KEPT_GROUPS] if now - self._wanted[group] < UNSEEN_S]
            self._wanted = {group: self._wanted[group] for group in kept}
        wanted = [*followed, *kept]
        for group in [group for group in self.loaded if group not in wanted]:
            self.loaded.discard(group)
            with self._lock:
                self._model.drop(group)
            self.rates.forget(group)
        self._to_load = [
            group for group in wanted if group not in self.loaded and self._model.group(group) is not None
        ]

    def _load(self, group: str) -> None:
        """Read all rows of a group; requests and feeds pass between the chunks."""
        source = self._source_of.get(group)
        if source is None:
            return
        seen: set[str] = set()
        is_whole = False
        with self._isolated(source):
            for chunk in source.rows(group):
                seen.update(row.key for row in chunk)
                self._put(chunk)
                self._tick()
                if self._is_closing:
                    return
                self._read_feeds(except_=group)
                if not self._goes_on(group):
                    return
            is_whole = True
        if is_whole:
            with self._lock:
                for row in [row for row in self._model.rows(group) if row.key not in seen]:
                    self._model.remove(group, row.key)
        self.loaded.add(group)

    def _goes_on(self, group: str) -> bool:
        """Loads live groups that began meanwhile before the rest of one that ended; False: it is gone."""
        self._look_for_groups()
        current = self._model.group(group)
        for name in self.followed() if current is not None and not current.live else ():
            other = self._model.group(name)
            if other is not None and other.live and name not in self.loaded:
                self._load(name)
        return current is not None

    def _read_feeds(self, except_: str | None = None) -> None:
        for source, feed in list(self._feeds.items()):
            mine = {group for group in self.loaded if self._source_of.get(group) is source} - {except_}
            try:
                while self._apply(source, feed.read(mine, MOST_CHANGES)) and not self._is_closing:
                    self._tick()
            except Exception:
                logger.exception("a feed failed", extra={"action": "feed_failed"})
                del self._feeds[source]
                feed.close()
                self.loaded -= mine  # what the feed would have told is looked for
                self._groups_due = 0.0

    def _apply(self, source: Source, changes: Changes) -> bool:
        """Take changes in; True if there may be more."""
        with self._lock:
            for group in changes.groups:
                self._source_of[group.group] = source
                self._put_group(group)
            for gone in changes.gone:
                self._model.remove(gone.group, gone.key)
        self._put(changes.rows)
        self._events += changes.events
        return len(changes.rows) + len(changes.gone) >= MOST_CHANGES

    def _put(self, rows: Sequence[Row]) -> None:
        with self._lock:
            for row in rows:
                if row.state.finished():
                    self.rates.add(self._model.row(row.group, row.key), row)
                self._model.put(row)

    def _tick(self) -> None:
        with self._lock:
            before = self._model.seq
            has_changed = self._model.tick() != before
        if has_changed or self._events:
            events, self._events = self._events, []
            self._told(events)

    def _isolated(self, source: Source) -> _Isolated:
        return _Isolated(source)


class _Isolated:
    """Logs what a source raises, and goes on: other doors, and the next turn, are not harmed."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        logger.error(
            "the source of %s failed",
            self._source.door.value,
            exc_info=error,
            extra={"action": "source_failed"},
        )
        return True


def newest_first(groups: Iterable[Group]) -> list[Group]:
    """Groups by when they began; the others come last, in their order."""
    return sorted(groups, key=lambda group: group.started.timestamp() if group.started else 0.0, reverse=True)


class Rates:
    """The mean time that jobs of each task took in each group, and when jobs ended."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        """Second -> how many jobs ended in it; of the last minute only, so that a flood costs no memory."""
        self._took: dict[tuple[str, str], tuple[int, float]] = {}

    def add(self, before: Row | None, row: Row) -> None:
        """Take in a job that has just ended."""
        if before is not None and before.state.finished() and before.attempt == row.attempt:
            return
        if row.reused or row.started is None or row.ended is None:
            return
        self._count_end(int(row.ended.timestamp()))
        if row.state is not JobState.DONE:
            return
        count, total = self._took.get((row.group, row.task), (0, 0.0))
        took = max((row.ended - row.started).total_seconds(), 0.0)
        self._took[row.group, row.task] = (count + 1, total + took)

    def _count_end(self, second: int) -> None:
        self._ends[second] = self._ends.get(second, 0) + 1
        if len(self._ends) > 2 * RATE_S:
            oldest = max(self._ends) - RATE_S
            self._ends = {known: count for known, count in self._ends.items() if known >= oldest}

    def forget(self, group: str) -> None:
        """Drop the facts about a group."""
        self._took = {key: took for key, took in self._took.items() if key[0] != group}

    def ended_per_s(self, now: datetime) -> float:
        """How many jobs ended in a second, over the last minute."""
        latest = int(now.timestamp())
        ended = self._ends.copy().items()  # the thread that follows adds to it
        return sum(count for second, count in ended if latest - RATE_S < second <= latest) / RATE_S

    def left_s(self, model: Model, group: str) -> float | None:
        """How long the jobs of a group that wait or run will take; None while unknown."""
        running, waiting = model.by_task(CountKind.RUNNING, group), model.by_task(CountKind.WAITING, group)
        if not running and not waiting:
            return None
        known = {task: total / count for (name, task), (count, total) in self._took.items() if name == group}
        if not known:
            return None
        mean = sum(known.values()) / len(known)
        work = sum(number * known.get(task, mean) for task, number in waiting.items())
        work += sum(number * known.get(task, mean) / 2 for task, number in running.items())
        return work / max(sum(running.values()), 1)
