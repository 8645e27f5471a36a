"""A source without a door: jobs that a test puts where it wants them, in memory.
Acts as a door would: an action on another attempt than the current one does nothing.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from tenuto.clock import Clock, SystemClock
from tenuto.errors import NotFound
from tenuto.jobs.row import Detail, Group, Result, Row, RowId, Why, row_key
from tenuto.jobs.source import (
    CHUNK_ROWS,
    Acted,
    ActedAs,
    Action,
    Changes,
    Driver,
    Feed,
    Log,
    Moment,
    Panels,
    Source,
    Target,
)
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.points import Points


class FakeLog:
    """A log in memory."""

    def __init__(self, data: bytes, attempt: int, *, has_ended: bool) -> None:
        self.attempt = attempt
        self._data = data
        self._has_ended = has_ended

    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, limit: int) -> bytes:
        return self._data[offset : offset + limit]

    def ended(self) -> bool:
        return self._has_ended


class FakeFeed:
    """News of a fake source, told to one reader."""

    def __init__(self, source: FakeSource) -> None:
        self._source = source
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.is_closed = False

    def read(self, groups: Collection[str], limit: int) -> Changes:
        with suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        return self._source._news(self, groups, limit)

    def fileno(self) -> int | None:
        return self._fd

    def tell(self) -> None:
        """Become readable."""
        if not self.is_closed:
            os.eventfd_write(self._fd, 1)

    def close(self) -> None:
        with self._source._lock:
            self._source._feeds.pop(self, None)
            self.is_closed = True
            os.close(self._fd)


class FakeSource(Source):
    """A door whose jobs a test moves; all calls from any thread."""

    def __init__(self, door: Door = Door.EXPERIMENTS, clock: Clock | None = None) -> None:
        self.door = door
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._groups: dict[str, Group] = {}
        self._rows: dict[RowId, Row] = {}
        self._moments: dict[str, list[Moment]] = {}
        self._feeds: dict[FakeFeed, dict[RowId, None]] = {}
        self.logs: dict[tuple[str, str], bytes] = {}
        self.stored: dict[str, Mapping[str, Any]] = {}
        """key -> parameters."""
        self.parents: dict[str, str] = {}
        """Job -> the candidate that it was made of."""
        self.most_attempts: dict[str, int] = {}
        """key -> how many attempts the job may have."""
        self.values: dict[str, Mapping[str, Any]] = {}
        """key -> what the job gave."""
        self.curves: dict[str, Points] = {}
        """key -> the points that the job logged."""
        self.shown = Panels()
        self.is_driven: bool | None = True
        self.has_payloads: bool | None = None
        self.is_broken = False
        """While True, every question raises."""

    # What a test does

    def put_group(self, group: Group) -> Group:
        with self._lock:
            self._groups[group.group] = group
        return group

    def put(self, row: Row) -> Row:
        """Add a row, or move it, and tell the feeds."""
        with self._lock:
            before = self._rows.get(RowId(row.group, row.key))
            self._rows[RowId(row.group, row.key)] = row
            if before is None or (before.state, before.attempt) != (row.state, row.attempt):
                moment = Moment(self._clock.now(), row.key, row.state, row.attempt, row.reason)
                self._moments.setdefault(row.group, []).append(moment)
            self._tell(RowId(row.group, row.key))
        return row

    def remove(self, group: str, key: str) -> None:
        with self._lock:
            del self._rows[RowId(group, key)]
            self._tell(RowId(group, key))

    def remember(self, group: str, moments: Sequence[Moment]) -> None:
        """Give a group a past."""
        with self._lock:
            self._moments[group] = list(moments)

    def row(self, key: str) -> Row:
        """The row of a job in its newest group."""
        with self._lock:
            found = [row for row in self._rows.values() if row.key == key]
        if not found:
            raise NotFound(f"no job has the key {key!r:.200}")
        return found[-1]

    # What a monitor asks

    def groups(self) -> Sequence[Group]:
        self._check()
        with self._lock:
            return list(self._groups.values())

    def rows(self, group: str) -> Iterator[Sequence[Row]]:
        self._check()
        with self._lock:
            rows = [row for row in self._rows.values() if row.group == group]
        for start in range(0, len(rows), CHUNK_ROWS):
            yield rows[start : start + CHUNK_ROWS]

    def group(self, group: str) -> Group | None:
        return next((one for one in self.groups() if one.group == group), None)

    def driver(self, group: str) -> Driver:
        return Driver(self.is_driven, "tenuto run SCRIPT", self.has_payloads)

    def stamp(self, group: str) -> object:
        return None

    def listen(self, wake: Callable[[], None]) -> Callable[[], None] | None:
        return None

    def counts(self, group: str) -> Mapping[JobState, int]:
        return Counter(row.state for chunk in self.rows(group) for row in chunk)

    def about(self, group: str) -> Mapping[str, Any]:
        return {}

    def listed(self) -> Iterator[Sequence[Row]]:
        return self.every()

    def every(self) -> Iterator[Sequence[Row]]:
        for group in self.groups():
            yield from self.rows(group.group)

    def find(self, name: str) -> Sequence[str]:
        return [row.key for chunk in self.every() for row in chunk if row.id.startswith(name)]

    def feed(self) -> Feed:
        self._check()
        feed = FakeFeed(self)
        with self._lock:
            self._feeds[feed] = {}
        return feed

    def detail(self, key: str) -> Detail:
        row = self.row(key)
        with self._lock:
            of_group = [one for one in self._rows.values() if one.group == row.group]
        return Detail(
            row,
            {
                "parameters": dict(self.stored.get(key, {})),
                "dependencies": [
                    one for one in of_group if one.id in row.depends_on or one.key == self.parents.get(key)
                ],
                "dependents": [one for one in of_group if row.id in one.depends_on],
                "runs": [row.group.partition(":")[2]],
                "attempts": [_attempt(row)] if row.attempt else [],
                "most_attempts": self.most_attempts.get(key),
                "result": dict(self.values[key]) if key in self.values else None,
                "commands": [f"tenuto logs -f {row.name}"],
            },
        )

    def parameters(self, key: str) -> Mapping[str, Any]:
        return {**self.stored.get(key, {}), **self.values.get(key, {})}

    def why(self, key: str) -> Why:
        row = self.row(key)
        return Why((row.message or row.state.meaning,), "no other job of this task was done before it")

    def log(self, key: str, stream: str, earlier: int) -> Log:
        row = self.row(key)
        data = b"" if earlier else self.logs.get((key, stream), b"")
        return FakeLog(data, max(row.attempt - earlier, 0), has_ended=row.state.finished())

    def metrics(self, key: str) -> Points:
        self.row(key)
        return self.curves.get(key, {})

    def metrics_stamp(self, key: str) -> object:
        return {name: len(points) for name, points in self.curves.get(key, {}).items()} or None

    def moments(self, group: str) -> Iterator[Moment]:
        with self._lock:
            moments = list(self._moments.get(group, ()))
        yield from sorted(moments, key=lambda moment: moment.at)

    def results(self, group: str) -> Iterator[Result]:
        with self._lock:
            rows = [row for row in self._rows.values() if row.group == group and row.state is JobState.DONE]
        for row in rows:
            yield Result(row.key, row.task, row.state, row.tags, self.values.get(row.key, {}))

    def panels(self, only: str | None = None) -> Panels:
        return self.shown

    def act(self, action: Action, targets: Sequence[Target], *, dry_run: bool, by: str) -> Sequence[Acted]:
        with self._lock:
            return [self._act(action, target, dry_run=dry_run, by=by) for target in targets]

    def _act(self, action: Action, target: Target, *, dry_run: bool, by: str) -> Acted:
        key = target.key
        if action in (Action.PAUSE, Action.RESUME):
            return Acted(key, ActedAs.REFUSED, "jobs are not paused here")
        found = [row for row in self._rows.values() if row.key == key]
        if not found:
            return Acted(key, ActedAs.GONE, "no such job")
        row = found[-1]
        if target.attempt != row.attempt:
            detail = f"attempt {row.attempt} is the current one, not {target.attempt}"
            return Acted(key, ActedAs.STALE, detail, row.attempt)
        if action is Action.KILL:
            return self._kill(row, dry_run=dry_run, by=by)
        if row.state.running():
            return Acted(key, ActedAs.IN_USE, "it is running", row.attempt)
        if action is Action.CLEAN:
            if not dry_run:
                for one in found:
                    self.remove(one.group, key)
            return Acted(key, ActedAs.WOULD_DELETE if dry_run else ActedAs.DELETED, "", row.attempt)
        if row.state is not JobState.ERROR:
            return Acted(key, ActedAs.REFUSED, f"it is {row.state.name.lower()}", row.attempt)
        if dry_run:
            return Acted(key, ActedAs.WOULD_RETRY, "", row.attempt)
        now = self._clock.now()
        self.put(
            row._replace(
                state=JobState.RUNNING,
                reason=None,
                message=None,
                attempt=row.attempt + 1,
                started=now,
                ended=None,
            )
        )
        return Acted(key, ActedAs.RETRIED, "", row.attempt + 1)

    def _kill(self, row: Row, *, dry_run: bool, by: str) -> Acted:
        if not row.state.running():
            return Acted(row.key, ActedAs.NOT_RUNNING, f"it is {row.state.name.lower()}", row.attempt)
        if dry_run:
            return Acted(row.key, ActedAs.WOULD_KILL, f"attempt {row.attempt}", row.attempt)
        self.put(
            row._replace(
                state=JobState.ERROR,
                reason=JobFailureStatus.CANCELLED,
                message=f"killed by {by}",
                ended=self._clock.now(),
                progress=None,
            )
        )
        return Acted(row.key, ActedAs.ASKED, f"attempt {row.attempt}", row.attempt)

    def _tell(self, changed: RowId) -> None:
        for feed, news in self._feeds.items():
            news[changed] = None
            feed.tell()

    def _news(self, feed: FakeFeed, groups: Collection[str], limit: int) -> Changes:
        self._check()
        with self._lock:
            news = self._feeds[feed]
            told = [one for one in news if one.group in groups][:limit]
            for one in told:
                del news[one]
            rows = [self._rows[one] for one in told if one in self._rows]
            return Changes(rows, [one for one in told if one not in self._rows], ())

    def _check(self) -> None:
        if self.is_broken:
            raise OSError("this source is broken")


def fake_row(group: str, task: str, job_id: str, state: JobState = JobState.WAITING, **fields: Any) -> Row:
    """A row of a fake group; of a search or a service, the job is called ``TASK#ID``."""
    door = Door(group.partition(":")[0])
    whole = job_id if door is Door.EXPERIMENTS else f"{task}#{job_id}"
    return Row(row_key(door, task, job_id), group, door, task, whole, state, **fields)


def _attempt(row: Row) -> dict[str, Any]:
    return {
        "attempt": row.attempt,
        "started": _iso(row.started),
        "ended": _iso(row.ended),
        "state": row.state.name.lower(),
        "reason": row.reason.name.lower() if row.reason else None,
        "message": row.message,
        "exit_code": None,
        "signal": None,
        "host": row.where or None,
        "pid": None,
        "launcher": None,
        "usage": {},
    }


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()
