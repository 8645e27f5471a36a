"""The past of groups as the provider shows it: rows at an instant, and the score.
Reads moments from the sources, and keeps what it read for a while.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from tenuto.clock import Clock
from tenuto.errors import BadQuestion
from tenuto.lifecycle.source import Moment, Row, Source
from tenuto.lifecycle.states import JobState
from tenuto.monitor import shapes
from tenuto.monitor.history import History, Note, Standing, Wait
from tenuto.monitor.score import held_over, instant_of, milliseconds, staff

KEPT = 8
FRESH_S = 2.0
"""How long the past of a group is good that may still change."""
_LATEST_MS = 253_000_000_000_000


class Drawn(NamedTuple):
    """The score between two instants, in milliseconds."""

    start: int
    end: int
    lanes: list[shapes.Lane]
    held: Mapping[str, list[list[int]]]
    """Token -> from when to when how many units were held."""


def parse_instant(text: str) -> datetime:
    """An instant as ISO 8601, in UTC if it names no zone; `BadQuestion` if it is none."""
    try:
        instant = datetime.fromisoformat(text.replace(" ", "+"))  # a plus sign that was not escaped
        return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    except ValueError:
        raise BadQuestion(f"{text!r:.60} is no instant: write it as 2026-01-31T12:00:00Z") from None


class Past:
    """What happened before now."""

    def __init__(
        self, sources: Mapping[str, Source], rows_of: Callable[[str], Sequence[Row]], clock: Clock
    ) -> None:
        self._sources = sources
        self._rows_of = rows_of
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, History]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, group: str) -> History:
        """The moments of a group; of an attempt that the journal does not know, what its row tells."""
        now = self._clock.monotonic()
        with self._lock:
            kept = self._kept.get(group)
            if kept is not None and now - kept[0] < FRESH_S:
                return kept[1]
        source = self._sources[group.partition(":")[0]]
        moments = list(source.moments(group))
        told: dict[str, int] = {}
        for moment in moments:
            told[moment.key] = max(told.get(moment.key, 0), moment.attempt)
        for row in self._rows_of(group):
            if row.key not in told or (not row.reused and row.attempt > told[row.key] > 0):
                moments += _moments(row)
        history = History(moments)
        with self._lock:
            self._kept[group] = (now, history)
            self._kept.move_to_end(group)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return history

    def rows_at(self, groups: Iterable[str], instant: datetime) -> list[Row]:
        """The jobs that were submitted by an instant, as they were then."""
        found: list[Row] = []
        for group in groups:
            states = self.of(group).states_at(instant)
            found += [_as_it_was(row, states[row.key]) for row in self._rows_of(group) if row.key in states]
        return found

    def score(
        self,
        groups: Sequence[str],
        start: int | None,
        end: int | None,
        width: int,
        others: Sequence[str] = (),
        live: Container[str] = (),
    ) -> Drawn:
        """The notes of groups between two instants, by default from the first to the last, or to now.

        `others`: groups that are not drawn, whose jobs may hold units of the same tokens. `live`: groups that
        still do something; what waits in another one waited until its last note.
        """
        now = self._clock.now()
        written = {group: self._notes(group) for group in groups}
        ends = [now for group in groups if group in live]
        for group, (notes, waits) in written.items():
            if group not in live:
                ended = [one.end or now for one in notes] + [one.end or one.start for one in waits]
                ends += ended
                written[group] = notes, [one._replace(end=one.end or max(ended)) for one in waits]
        starts = [note.start for notes, _ in written.values() for note in notes]
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
        for group, (notes, waits) in written.items():
            drawn = staff(notes, waits, instant_of(first), instant_of(last), now, width)
            label = group.partition(":")[2]
            lanes.append({"group": group, "label": label, **drawn._asdict()})  # type: ignore[typeddict-item]
        span = (instant_of(first), instant_of(last))
        return Drawn(first, last, lanes, self._held(written, others, span, now, width))

    def _held(
        self,
        written: Mapping[str, tuple[list[Note], list[Wait]]],
        others: Sequence[str],
        span: tuple[datetime, datetime],
        now: datetime,
        width: int,
    ) -> dict[str, list[list[int]]]:
        """The units of tokens that jobs of all these groups held together."""
        notes: list[Note] = []
        amounts: dict[str, Mapping[str, int]] = {}
        for group in dict.fromkeys((*written, *others)):
            mine = {row.key: row.tokens for row in self._rows_of(group) if row.tokens}
            if mine:
                amounts.update(mine)
                of_group = written[group][0] if group in written else self._notes(group)[0]
                notes += [note for note in of_group if note.key in mine]
        unique = {(note.key, note.attempt): note for note in notes}  # a job may be in two groups
        return held_over(unique.values(), amounts, *span, now, width)

    def _notes(self, group: str) -> tuple[list[Note], list[Wait]]:
        """Every attempt once. The current attempt of a job is as its row tells, not as events did."""
        told, waits = self.of(group).notes()
        notes = {(note.key, note.attempt): note for note in told}
        messages: dict[str, str] = {}
        for row in self._rows_of(group):
            if row.message and not row.state.finished():
                messages[row.key] = row.message
            if row.started is not None and not row.reused:
                state = row.state if row.state.finished() else JobState.RUNNING
                note = Note(row.key, row.attempt, row.started, row.ended, state, row.reason)
                notes[row.key, row.attempt] = note
        waits = [one if one.end else one._replace(reason=messages.get(one.key, "")) for one in waits]
        return list(notes.values()), waits


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


def _as_it_was(row: Row, then: Standing) -> Row:
    is_same = then.state is row.state and then.attempt == row.attempt
    return row._replace(
        state=then.state,
        reason=then.reason,
        attempt=then.attempt,
        message=row.message if is_same else None,
        started=row.started if then.attempt == row.attempt and _has_started(then) else _since(then),
        ended=then.since if then.state.finished() else None,
        progress=None,
        progress_desc=None,
        eta_at=None,
    )


def _has_started(then: Standing) -> bool:
    return then.state is JobState.RUNNING or then.state.finished()


def _since(then: Standing) -> datetime | None:
    return then.since if then.state is JobState.RUNNING else None
