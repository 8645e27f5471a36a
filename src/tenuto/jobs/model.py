"""The rows and groups that every view shows: counts, and all that changed since a number.
Pure: it reads no file and no clock, and belongs to one thread at a time.

A difference is state, not history. Each row remembers the number of its last change, so that a client which
was away for hours gets each row once, as it is now, and a slow client costs no memory.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, unique
from typing import NamedTuple, TypeVar

from tenuto.jobs.row import Group, Row, RowId
from tenuto.lifecycle.states import JobFailureStatus, JobState

K = TypeVar("K")

MOST_GONE = 10_000
"""How many removed rows are remembered; a client that is further behind begins anew."""


@unique
class CountKind(Enum):
    """What a person counts; the value is a field of `Counts`."""

    UNSCHEDULED = "unscheduled"
    WAITING = "waiting"
    RUNNING = "running"
    REUSED = "reused"
    RAN = "ran"
    FAILED = "failed"
    STRANDED = "stranded"


def kind_of(row: Row) -> CountKind:
    """How a row is counted."""
    match row.state:
        case JobState.DONE:
            return CountKind.REUSED if row.reused else CountKind.RAN
        case JobState.ERROR:
            is_stranded = row.reason is JobFailureStatus.DEPENDENCY
            return CountKind.STRANDED if is_stranded else CountKind.FAILED
        case JobState.SCHEDULED | JobState.RUNNING:
            return CountKind.RUNNING
        case JobState.UNSCHEDULED:
            return CountKind.UNSCHEDULED
    return CountKind.WAITING


class Counts(NamedTuple):
    """How many jobs are where."""

    waiting: int = 0
    running: int = 0
    reused: int = 0
    ran: int = 0
    failed: int = 0
    stranded: int = 0
    """Not run, because a job that they depend on failed."""
    unscheduled: int = 0
    """Transient jobs that no other job needs; neither known nor finished."""

    @property
    def finished(self) -> int:
        """Jobs that nothing more will happen to."""
        return self.reused + self.ran + self.failed + self.stranded

    @property
    def known(self) -> int:
        """Jobs that are to end."""
        return self.finished + self.waiting + self.running


class Delta(NamedTuple):
    """All that is newer than a number, each once, the latest change last."""

    seq: int
    """The number to ask with next."""
    rows: tuple[Row, ...] = ()
    gone: tuple[RowId, ...] = ()
    groups: tuple[Group, ...] = ()


class Reset(NamedTuple):
    """Too much is unknown of what changed: everything is to be asked for again."""

    seq: int


class Model:
    """Rows and groups as they are now, numbered by the tick of their last change."""

    def __init__(self) -> None:
        self.seq = 0
        """The last tick that is over."""
        self._rows: dict[str, dict[str, Row]] = {}
        """group -> key -> row, in the order they came."""
        self._groups: dict[str, Group] = {}
        self._changed: OrderedDict[RowId, int] = OrderedDict()
        """The tick of the last change of each row, the latest last."""
        self._groups_changed: OrderedDict[str, int] = OrderedDict()
        self._gone: deque[tuple[int, RowId]] = deque()
        self._forgotten = 0
        """The last tick of which a removal was forgotten."""
        self._counters: dict[str, Counter[tuple[str, CountKind]]] = {}
        """group -> (task, kind) -> how many."""
        self._states: dict[str, Counter[JobState]] = {}
        self._dirty = False

    # Changing

    def put(self, row: Row) -> bool:
        """Add a row, or take its place; False if it is as it was."""
        rows = self._rows.setdefault(row.group, {})
        before = rows.get(row.key)
        if before == row:
            return False
        counter = self._counters.setdefault(row.group, Counter())
        states = self._states.setdefault(row.group, Counter())
        if before is not None:
            counter[before.task, kind_of(before)] -= 1
            states[before.state] -= 1
        counter[row.task, kind_of(row)] += 1
        states[row.state] += 1
        rows[row.key] = row
        self._note(self._changed, RowId(row.group, row.key))
        return True

    def put_group(self, group: Group) -> bool:
        """Add a group, or take its place; False if it is as it was."""
        if self._groups.get(group.group) == group:
            return False
        self._groups[group.group] = group
        self._note(self._groups_changed, group.group)
        return True

    def remove(self, group: str, key: str) -> bool:
        """Remove a row; False if there is none."""
        row = self._rows.get(group, {}).pop(key, None)
        if row is None:
            return False
        self._counters[group][row.task, kind_of(row)] -= 1
        self._states[group][row.state] -= 1
        gone = RowId(group, key)
        del self._changed[gone]
        self._gone.append((self.seq + 1, gone))
        while len(self._gone) > MOST_GONE:
            self._forgotten, _ = self._gone.popleft()
        self._dirty = True
        return True

    def drop(self, group: str) -> None:
        """Forget the rows of a group that no client looks at; the clients keep what they have."""
        for key in self._rows.pop(group, {}):
            del self._changed[RowId(group, key)]
        self._counters.pop(group, None)
        self._states.pop(group, None)

    def remove_group(self, group: str) -> None:
        """Remove a group that is there no more, with its rows; a client that shows it begins anew."""
        if self._groups.pop(group, None) is not None:
            del self._groups_changed[group]
            self.drop(group)
            self._forgotten = self.seq + 1
            self._dirty = True

    def tick(self) -> int:
        """End a tick: what changed since the last one can be asked for now. Returns `seq`."""
        if self._dirty:
            self.seq += 1
            self._dirty = False
        return self.seq

    # Asking

    def row(self, group: str, key: str) -> Row | None:
        return self._rows.get(group, {}).get(key)

    def rows(self, group: str | None = None) -> Iterator[Row]:
        """The rows of a group, or of all, in the order they came."""
        for name in [group] if group is not None else list(self._rows):
            yield from self._rows.get(name, {}).values()

    def size(self, group: str) -> int:
        """How many rows of a group are known."""
        return len(self._rows.get(group, ()))

    def states(self, group: str) -> Mapping[JobState, int]:
        """How many rows of a group are in which state."""
        return self._states.get(group, Counter())

    def group(self, name: str) -> Group | None:
        return self._groups.get(name)

    def groups(self) -> tuple[Group, ...]:
        return tuple(self._groups.values())

    def counts(self, group: str | None = None) -> Counts:
        """How many jobs are where, in a group or in all."""
        total: Counter[str] = Counter()
        for (_, kind), number in self._counted(group):
            total[kind.value] += number
        return Counts(**total)

    def by_task(self, kind: CountKind, group: str | None = None) -> dict[str, int]:
        """How many jobs of each task are counted as this kind."""
        total: Counter[str] = Counter()
        for (task, counted), number in self._counted(group):
            if counted is kind and number:
                total[task] += number
        return dict(total)

    def changes(self, since: int) -> Delta | Reset:
        """All that changed after the tick `since`; a repetition does no harm."""
        if not self._forgotten <= since <= self.seq:
            return Reset(self.seq)
        rows = [self._rows[group][key] for group, key in _after(self._changed, since, self.seq)]
        groups = [self._groups[name] for name in _after(self._groups_changed, since, self.seq)]
        gone = [
            one
            for tick, one in self._gone
            if since < tick <= self.seq and one.key not in self._rows.get(one.group, {})
        ]
        return Delta(self.seq, tuple(rows), tuple(dict.fromkeys(gone)), tuple(groups))

    def _counted(self, group: str | None) -> Iterable[tuple[tuple[str, CountKind], int]]:
        for name in [group] if group is not None else list(self._counters):
            yield from self._counters.get(name, Counter()).items()

    def _note(self, changed: OrderedDict[K, int], name: K) -> None:
        changed[name] = self.seq + 1
        changed.move_to_end(name)
        self._dirty = True


def _after(changed: OrderedDict[K, int], since: int, until: int) -> list[K]:
    """What changed in these ticks, from the young end, so that the old ones cost nothing."""
    found: list[K] = []
    for name, tick in reversed(changed.items()):
        if tick <= since:
            break
        if tick <= until:
            found.append(name)
    return found[::-1]
