"""The rows and groups that a provider answers from: kept true by one thread, read under one lock.
It answers no question but what changed since an id; how rows are asked for is in `provider`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence

from tenuto.clock import Clock, SystemRandomness
from tenuto.errors import MonitorUnavailable, NotFound
from tenuto.jobs import model
from tenuto.jobs.row import Group, Row, plain_group, plain_row
from tenuto.jobs.source import Source
from tenuto.lifecycle.events import Event
from tenuto.monitor import shapes
from tenuto.monitor.model_keeper import ModelKeeper
from tenuto.monitor.state_provider import Listener

MOST_DELTA_ROWS = 500
MOST_DELTA_BYTES = 256 * 1024


class Picture:
    """What the sources of the open doors show, as it is now; each method may be called from any thread."""

    def __init__(self, sources: Sequence[Source], clock: Clock) -> None:
        self._clock = clock
        self.epoch = SystemRandomness().nonce()[:12]
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._model = model.Model()
        self._listeners: list[Listener] = []
        self._wakers: list[Callable[[], None]] = []
        self._is_closed = False
        self._following = ModelKeeper(tuple(sources), self._model, self._lock, self._clock, self._told)

    # Being told

    def _told(self, events: Sequence[Event]) -> None:
        with self._news:
            self._news.notify_all()
        for waker in list(self._wakers):
            waker()
        for event in events:
            for listener in list(self._listeners):
                listener(event)

    def add_listener(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def add_waker(self, waker: Callable[[], None]) -> None:
        """Call a function after each change, in the thread that follows; it must return at once."""
        self._wakers.append(waker)

    def close(self) -> None:
        """End the thread that follows, and wake all that wait."""
        with self._news:
            if self._is_closed:
                return
            self._is_closed = True
            self._news.notify_all()
        self._following.close()

    def wait_until_loaded(self, timeout_s: float) -> bool:
        """Block until all that was found at the start is known; False if that takes too long."""
        return self._following.is_settled.wait(timeout_s)

    # Changes

    def changes(self, since: str | None, wait_s: float) -> shapes.Delta | shapes.Reset:
        number = self._number(since)
        with self._news:
            if number is None or number > self._model.seq:
                return self._reset()
            self._news.wait_for(lambda: self._is_closed or self._model.seq > number, wait_s)
            if self._is_closed:
                raise MonitorUnavailable("the monitor has ended: start it again with `tenuto ui`")
            found = self._model.changes(number)
            if isinstance(found, model.Reset):
                return self._reset()
            touched = {row.group for row in found.rows} | {one.group for one in found.gone}
            touched |= {group.group for group in found.groups}
            groups = [self._plain_group(group) for name in touched if (group := self._model.group(name))]
            stamp = self._stamp()
        now = self._clock.now()
        delta: shapes.Delta = {
            "epoch": stamp["epoch"],
            "seq": stamp["seq"],
            "now": stamp["now"],
            "jobs": [],
            "gone": [{"group": one.group, "key": one.key} for one in found.gone],
            "groups": sorted(groups, key=lambda group: group["group"]),
        }
        if len(found.rows) <= MOST_DELTA_ROWS:
            delta["jobs"] = [plain_row(row, now) for row in found.rows]
        if len(found.rows) > MOST_DELTA_ROWS or len(json.dumps(delta["jobs"])) > MOST_DELTA_BYTES:
            delta["jobs"], delta["many"] = [], sorted({row.group for row in found.rows})
        return delta

    def _number(self, since: str | None) -> int | None:
        """The sequence number in the id of a frame of this epoch."""
        epoch, _, number = (since or "").rpartition("-")
        is_ours = epoch == self.epoch and number.isascii() and number.isdigit() and len(number) < 19
        return int(number) if is_ours else None

    def _reset(self) -> shapes.Reset:
        return {**self._stamp(), "reset": True}

    # The model

    def _stamp(self) -> shapes.Stamp:
        return {"epoch": self.epoch, "seq": self._model.seq, "now": self._clock.now().isoformat()}

    def _group(self, name: str) -> Group:
        group = self._model.group(name)
        if group is None:
            raise NotFound(f"no group is called {name!r:.200}; /api/groups lists them")
        return group

    def _total(self, name: str) -> int:
        group = self._model.group(name)
        return max(self._model.size(name), (group.total or 0) if group is not None else 0)

    def _rows(self, names: Sequence[str]) -> list[Row]:
        with self._lock:
            return [row for name in names for row in self._model.rows(name)]

    def _plain_group(self, group: Group) -> shapes.Group:
        name = group.group
        eta_s = self._following.pace.left_s(self._model, name) if group.live else None
        known = self._model.size(name)
        return plain_group(group, self._model.states(name), known, eta_s, is_loaded=known > 0)
