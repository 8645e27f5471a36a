"""The timeline: attempts as bars on lines, the waits before them, tokens over time, jobs by state over time.
Times are in milliseconds. Of too many bars the timeline has counts. Moments of sources are kept a while.
"""

from __future__ import annotations

import heapq
import threading
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

from tenuto.clock import Clock
from tenuto.errors import BadQuestion
from tenuto.jobs.row import Row
from tenuto.jobs.source import Moment, Source
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.monitor import shapes

MOST_BARS = 2_000
"""Of more bars in sight the timeline shows how many there are, not each."""
KEPT = 8
"""Groups whose moments are kept."""
FRESH_S = 2.0
"""How long the moments of a group are good that may still change."""
_LATEST_MS = 253_000_000_000_000


class Bar(NamedTuple):
    """One attempt, held from start to end; it continues if `end` is None."""

    key: str
    attempt: int
    start: datetime
    end: datetime | None
    state: JobState
    """How it ended, or RUNNING."""
    reason: JobFailureStatus | None = None


class TimelineWait(NamedTuple):
    """The time before an attempt; it continues if `end` is None."""

    key: str
    start: datetime
    end: datetime | None
    reason: str = ""


class TimelineHistory:
    """What happened in a group, oldest first."""

    def __init__(self, moments: Iterable[Moment]) -> None:
        self._moments = sorted(moments, key=lambda moment: moment.at)  # stable: of one instant as they came
        self._times = [moment.at for moment in self._moments]

    def counts(self, points: int) -> tuple[list[datetime], dict[JobState, list[int]]]:
        """How many jobs were in which state, at so many instants from the first moment to the last."""
        if not self._times:
            return [], {}
        start, end = self._times[0].timestamp(), self._times[-1].timestamp()
        steps = max(points - 1, 1)
        instants = [start + (end - start) * step / steps for step in range(steps)] + [end]
        counted: dict[JobState, list[int]] = {state: [] for state in JobState}
        current: Counter[JobState] = Counter()
        states: dict[str, JobState] = {}
        at = 0
        for position, instant in enumerate(instants):
            is_last = position == len(instants) - 1
            while at < len(self._moments) and (is_last or self._times[at].timestamp() <= instant):
                moment = self._moments[at]
                if moment.key in states:
                    current[states[moment.key]] -= 1
                states[moment.key] = moment.state
                current[moment.state] += 1
                at += 1
            for state in JobState:
                counted[state].append(current[state])
        return [datetime.fromtimestamp(instant, UTC) for instant in instants], counted

    def bars(self) -> tuple[list[Bar], list[TimelineWait]]:
        """Every attempt once, and the time before it; one too short to be seen running has no length."""
        bars: list[Bar] = []
        waits: list[TimelineWait] = []
        running: dict[str, tuple[datetime, int]] = {}
        waiting: dict[str, datetime] = {}
        for moment in self._moments:
            key = moment.key
            if moment.state is JobState.RUNNING:
                _end_wait(waits, waiting, key, moment.at)
                running.setdefault(key, (moment.at, moment.attempt))
                continue
            if key in running:
                start, attempt = running.pop(key)
                ended = moment.state if moment.state.finished() else JobState.ERROR  # it is tried again
                bars.append(Bar(key, attempt, start, moment.at, ended, moment.reason))
            elif _ended_unseen(moment) and key in waiting:
                _end_wait(waits, waiting, key, moment.at)
                bars.append(Bar(key, moment.attempt, moment.at, moment.at, moment.state, moment.reason))
            if moment.state.finished():
                waiting.pop(key, None)
            else:
                waiting.setdefault(key, moment.at)
        bars += [
            Bar(key, attempt, start, None, JobState.RUNNING) for key, (start, attempt) in running.items()
        ]
        waits += [TimelineWait(key, start, None) for key, start in waiting.items() if key not in running]
        return bars, waits


def _ended_unseen(moment: Moment) -> bool:
    """True of an attempt that ended without being seen running; a stranded or reused job had none."""
    return moment.state.finished() and moment.attempt > 0 and moment.reason is not JobFailureStatus.DEPENDENCY


def _end_wait(waits: list[TimelineWait], waiting: dict[str, datetime], key: str, at: datetime) -> None:
    start = waiting.pop(key, None)
    if start is not None and start < at:
        waits.append(TimelineWait(key, start, at))


# Drawing


class Placed(NamedTuple):
    """A bar, and the line it is written on."""

    line: int
    bar: Bar


class DrawnGroup(NamedTuple):
    """The drawing of one group."""

    lines: int
    bars: list[list[Any]]
    waits: list[list[Any]]
    joins: list[list[Any]]
    bins: list[list[Any]]


def milliseconds(instant: datetime) -> int:
    """An instant in milliseconds since 1970."""
    return round(instant.timestamp() * 1000)


def instant_of(number: float) -> datetime:
    """The instant of so many milliseconds since 1970."""
    return datetime.fromtimestamp(number / 1000, UTC)


def packed(bars: Iterable[Bar], now: datetime) -> list[Placed]:
    """Each bar on the lowest line that is free when it begins; on one line none overlap.

    An attempt takes the line of the attempt before it where that is free.
    """
    placed: list[Placed] = []
    busy: list[tuple[datetime, int]] = []
    free: list[int] = []
    last: dict[str, int] = {}
    lines = 0
    for bar in sorted(bars, key=lambda bar: (bar.start, bar.key, bar.attempt)):
        while busy and busy[0][0] <= bar.start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        line = last.get(bar.key, -1)
        if line in free:
            free.remove(line)
            heapq.heapify(free)
        elif free:
            line = heapq.heappop(free)
        else:
            line, lines = lines, lines + 1
        last[bar.key] = line
        placed.append(Placed(line, bar))
        end = bar.end if bar.end is not None else max(now, bar.start)
        heapq.heappush(busy, (max(end, bar.start), line))
    return placed


def draw_group(
    bars: Sequence[Bar],
    waits: Iterable[TimelineWait],
    start: datetime,
    end: datetime,
    now: datetime,
    width: int,
    most: int = MOST_BARS,
) -> DrawnGroup:
    """The jobs in sight between two instants: bars and waits, or bins if there are more than `most`."""
    in_sight = [bar for bar in bars if bar.start <= end and (bar.end or now) >= start]
    if len(in_sight) > most:
        return DrawnGroup(0, [], [], [], bins(in_sight, start, end, now, width))
    placed = packed(in_sight, now)
    lines_of: dict[str, list[tuple[datetime, int]]] = {}
    for line, bar in placed:
        lines_of.setdefault(bar.key, []).append((bar.start, line))
    shown = [
        [
            line,
            milliseconds(bar.start),
            milliseconds(bar.end or now),
            bar.state.name.lower(),
            bar.key,
            bar.attempt,
        ]
        for line, bar in placed
    ]
    lines = max((line for line, _ in placed), default=-1) + 1
    drawn = [
        [
            _line_after(lines_of.get(wait.key, ()), wait.start, lines),
            milliseconds(wait.start),
            milliseconds(wait.end or now),
            wait.reason,
            wait.key,
        ]
        for wait in waits
        if wait.start <= end and (wait.end or now) >= start
    ]
    return DrawnGroup(lines, shown, drawn[:MOST_BARS], joins(placed, now), [])


def _tasks(
    bars: Iterable[Bar], waits: Iterable[TimelineWait]
) -> dict[str, tuple[list[Bar], list[TimelineWait]]]:
    """Short name of a task -> the bars and waits of its jobs; the task that began first is the first."""
    found: dict[str, tuple[list[Bar], list[TimelineWait]]] = {}
    every: list[Bar | TimelineWait] = [*bars, *waits]
    for one in sorted(every, key=lambda one: one.start):
        task = one.key.partition(":")[2].rpartition("/")[0].rpartition(".")[2]
        of_task = found.setdefault(task, ([], []))
        if isinstance(one, Bar):
            of_task[0].append(one)
        else:
            of_task[1].append(one)
    return found


def _line_after(placed: Sequence[tuple[datetime, int]], start: datetime, others: int) -> int:
    """The line of the bar that ends a wait: the next bar of the job, else its last one."""
    if not placed:
        return others
    return placed[min(bisect_left(placed, (start, -1)), len(placed) - 1)][1]


def joins(placed: Iterable[Placed], now: datetime) -> list[list[Any]]:
    """From each attempt to the next one of its job: line and end of the one, line and start of the other."""
    before: dict[str, Placed] = {}
    found: list[list[Any]] = []
    for one in sorted(placed, key=lambda one: (one.bar.attempt, one.bar.start)):
        key = one.bar.key
        if (first := before.get(key)) is not None:
            end = milliseconds(first.bar.end or now)
            found.append([first.line, end, one.line, milliseconds(one.bar.start), key])
        before[key] = one
    return found


def held_over(
    bars: Iterable[Bar],
    amounts: Mapping[str, Mapping[str, int]],
    start: datetime,
    end: datetime,
    now: datetime,
    width: int,
) -> dict[str, list[list[int]]]:
    """How many units of each token were held from when to when; `amounts`: key -> units of each token.

    Times without a held unit are left out. Of too many steps the highest of each part of the time is given.
    """
    first, last = milliseconds(start), milliseconds(end)
    changes: dict[str, Counter[int]] = {}
    for bar in bars:
        begun, ended = max(milliseconds(bar.start), first), min(milliseconds(bar.end or now), last)
        if begun >= ended:
            continue
        for token, amount in amounts.get(bar.key, {}).items():
            of_token = changes.setdefault(token, Counter())
            of_token[begun] += amount
            of_token[ended] -= amount
    return {token: _steps(of_token, first, last, width) for token, of_token in changes.items()}


def _steps(changes: Mapping[int, int], first: int, last: int, width: int) -> list[list[int]]:
    instants = sorted(instant for instant, change in changes.items() if change)
    steps: list[list[int]] = []
    held = 0
    for begun, ended in pairwise(instants):
        held += changes[begun]
        if held:
            steps.append([begun, ended, held])
    if len(steps) <= MOST_BARS:
        return steps
    size = max((last - first) / max(width, 1), 1.0)
    highest: Counter[int] = Counter()
    for begun, ended, held in steps:
        for part in range(int((begun - first) / size), int((ended - 1 - first) / size) + 1):
            highest[part] = max(highest[part], held)
    return [
        [round(first + size * part), round(first + size * (part + 1)), held]
        for part, held in sorted(highest.items())
    ]


def bins(bars: Iterable[Bar], start: datetime, end: datetime, now: datetime, width: int) -> list[list[Any]]:
    """How many bars begin in each part of the time; together they are all of them."""
    first, last = milliseconds(start), max(milliseconds(end), milliseconds(start) + 1)
    counts: list[Counter[JobState]] = [Counter() for _ in range(max(width, 1))]
    for bar in bars:
        place = (milliseconds(bar.start) - first) * len(counts) // (last - first)
        counts[min(max(place, 0), len(counts) - 1)][bar.state] += 1
    size = (last - first) / len(counts)
    return [
        [
            round(first + size * place),
            round(first + size * (place + 1)),
            {state.name.lower(): number for state, number in counted.items()},
        ]
        for place, counted in enumerate(counts)
        if counted
    ]


# Groups


class Drawn(NamedTuple):
    """The timeline between two instants, in milliseconds."""

    start: int
    end: int
    lanes: list[shapes.Lane]
    held: Mapping[str, list[list[int]]]
    """Token -> from when to when how many units were held."""


class Timelines:
    """The timelines of groups, made of the moments and rows that sources give."""

    def __init__(
        self, sources: Mapping[str, Source], rows_of: Callable[[str], Sequence[Row]], clock: Clock
    ) -> None:
        self._sources = sources
        self._rows_of = rows_of
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, TimelineHistory]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, group: str) -> TimelineHistory:
        """The moments of a group; what its row tells of an attempt whose end no journal knows yet."""
        now = self._clock.monotonic()
        with self._lock:
            kept = self._kept.get(group)
            if kept is not None and now - kept[0] < FRESH_S:
                return kept[1]
        source = self._sources[group.partition(":")[0]]
        moments = list(source.moments(group))
        told: dict[str, tuple[int, bool]] = {}  # by job, the last attempt that has a moment, and if it ended
        for moment in moments:
            known = (moment.attempt, moment.state.finished())
            told[moment.key] = max(told.get(moment.key, known), known)
        for row in self._rows_of(group):
            seen = (row.attempt, row.state.finished())
            if row.key not in told or (not row.reused and seen > told[row.key] > (0, True)):
                moments += _moments(row)
        history = TimelineHistory(moments)
        with self._lock:
            self._kept[group] = (now, history)
            self._kept.move_to_end(group)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return history

    def draw(
        self,
        groups: Sequence[str],
        start: int | None,
        end: int | None,
        width: int,
        others: Sequence[str] = (),
        live: Container[str] = (),
        *,
        by_task: bool = False,
    ) -> Drawn:
        """The bars of groups between two instants, by default from the first to the last, or to now.

        `others`: groups that are not drawn, whose jobs may hold units of the same tokens. `live`: groups that
        still do something; a row waiting in another one waited until its last bar. `by_task`: a lane a task.
        """
        now = self._clock.now()
        written = {group: self._bars(group) for group in groups}
        ends = [now for group in groups if group in live]
        for group, (bars, waits) in written.items():
            if group not in live:
                ended = [one.end or now for one in bars] + [one.end or one.start for one in waits]
                ends += ended
                written[group] = bars, [one._replace(end=one.end or max(ended)) for one in waits]
        starts = [bar.start for bars, _ in written.values() for bar in bars]
        starts += [wait.start for _, waits in written.values() for wait in waits]
        first = (
            min(max(start, 0), _LATEST_MS) if start is not None else milliseconds(min(starts, default=now))
        )
        last = min(max(end, 0), _LATEST_MS) if end is not None else milliseconds(max(ends, default=now))
        if end is None and first > last:
            last = milliseconds(now)
        if first > last:
            raise BadQuestion(f"from ({first}) must not be after to ({last})")
        lanes: list[shapes.Lane] = []
        for group, (bars, waits) in written.items():
            parts = _tasks(bars, waits) if by_task else {"": (bars, waits)}
            most = MOST_BARS // max(len(parts), 1)
            for task, (some, idle) in parts.items():
                drawn = draw_group(some, idle, instant_of(first), instant_of(last), now, width, most)
                label = f"{task} {group.partition(':')[2]}".strip()
                lanes.append({"group": group, "label": label, **drawn._asdict()})  # type: ignore[typeddict-item]
        span = (instant_of(first), instant_of(last))
        return Drawn(first, last, lanes, self._held(written, others, span, now, width))

    def _held(
        self,
        written: Mapping[str, tuple[list[Bar], list[TimelineWait]]],
        others: Sequence[str],
        span: tuple[datetime, datetime],
        now: datetime,
        width: int,
    ) -> dict[str, list[list[int]]]:
        """The units of tokens that jobs of all these groups held together."""
        bars: list[Bar] = []
        amounts: dict[str, Mapping[str, int]] = {}
        for group in dict.fromkeys((*written, *others)):
            mine = {row.key: row.tokens for row in self._rows_of(group) if row.tokens}
            if mine:
                amounts.update(mine)
                of_group = written[group][0] if group in written else self._bars(group)[0]
                bars += [bar for bar in of_group if bar.key in mine]
        unique = {(bar.key, bar.attempt): bar for bar in bars}  # a job may be in two groups
        return held_over(unique.values(), amounts, *span, now, width)

    def _bars(self, group: str) -> tuple[list[Bar], list[TimelineWait]]:
        """Every attempt once. The current attempt of a job is as its row tells, not as events did."""
        told, waits = self.of(group).bars()
        bars = {(bar.key, bar.attempt): bar for bar in told}
        messages: dict[str, str] = {}
        for row in self._rows_of(group):
            if row.message and not row.state.finished():
                messages[row.key] = row.message
            if row.started is not None and not row.reused:
                state = row.state if row.state.finished() else JobState.RUNNING
                bar = Bar(row.key, row.attempt, row.started, row.ended, state, row.reason)
                bars[row.key, row.attempt] = bar
        waits = [one if one.end else one._replace(reason=messages.get(one.key, "")) for one in waits]
        return list(bars.values()), waits


def token_lanes(
    tokens: Sequence[shapes.Token], held: Mapping[str, list[list[int]]]
) -> list[shapes.TokenLane]:
    """Tokens as they are, with how they were held; a token that only the past knows has no capacity."""
    known = {token["name"] for token in tokens}
    past: list[shapes.Token] = [
        {"name": name, "capacity": None, "held": 0, "free": 0, "holders": [], "waiting": []}
        for name in sorted(held)
        if name not in known
    ]
    return [{**token, "steps": held.get(token["name"], [])} for token in (*tokens, *past)]


def _moments(row: Row) -> Iterable[Moment]:
    if row.submitted is not None:
        yield Moment(row.submitted, row.key, JobState.WAITING)
    if row.started is not None and not row.reused:
        yield Moment(row.started, row.key, JobState.RUNNING, row.attempt)
    ended = row.submitted if row.reused else row.ended
    if row.state.finished() and (ended or row.submitted) is not None:
        at = ended or row.submitted
        assert at is not None
        yield Moment(at, row.key, row.state, row.attempt, row.reason)
