"""The state provider of this process: it answers each question of a view from the sources of the doors.
One thread keeps its snapshot of rows and groups true; answers are read under one lock. How an answer looks
is in `shapes`; a provider for a server elsewhere is in `remote`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice, zip_longest
from math import isfinite
from typing import Any

from tenuto.clock import Clock, SystemClock, SystemRandomness
from tenuto.errors import BadQuestion, MonitorUnavailable, NotAllowed, NotFound
from tenuto.jobs import model
from tenuto.jobs.causes import FailureGroup, grouped
from tenuto.jobs.query import Answers, Question, find
from tenuto.jobs.row import Group, PlainGroup, Result, Row, plain_group, plain_row
from tenuto.jobs.source import Acted, Action, Source, Target
from tenuto.lifecycle.events import Event
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.monitor import graph, shapes
from tenuto.monitor.logs import read_log
from tenuto.monitor.model_keeper import ModelKeeper, newest_first
from tenuto.monitor.panels import PanelReader, shares, table
from tenuto.monitor.state_provider import Listener
from tenuto.monitor.timeline import Timelines, token_lanes
from tenuto.workspace.points import FEWEST_POINTS, MOST_POINTS, SYSTEM, MetricPoint, Points, thinned

MOST_RUNNING = 20
MOST_FAILURES = 50
MOST_ALARMS = 100
MOST_TARGETS = 10_000
MOST_ROWS = 1_000
MOST_DEPTH = 50
MOST_DELTA_ROWS = 500
MOST_DELTA_BYTES = 256 * 1024
MOST_FAILED_TARGETS = 1_000
MOST_FAILED_JOBS = 20
"""How many jobs of one cause are named."""


class LocalProvider:
    """Answers from the sources of the open doors; each method may be called from any thread."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        workspace: str = "",
        version: str = "",
        read_only: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self.epoch = SystemRandomness().nonce()[:12]
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._model = model.Model()
        self._listeners: list[Listener] = []
        self._wakers: list[Callable[[], None]] = []
        self._is_closed = False
        self._following = ModelKeeper(tuple(sources), self._model, self._lock, self._clock, self._told)
        self.workspace = workspace
        self.version = version
        self.read_only = read_only
        self._sources = {source.door.value: source for source in sources}
        self._answers = Answers()
        self._results: tuple[str, int, list[Result]] | None = None
        """The last results that were asked for: of a group, as of a picture."""
        self._overview: tuple[int, shapes.OverviewJson] | None = None
        self._timelines = Timelines(self._sources, lambda group: self._rows([group]), self._clock)
        self._panels = PanelReader(self._sources, self._clock)
        self._following.start()

    # Questions

    def about(self) -> shapes.About:
        return {
            "version": self.version,
            "workspace": self.workspace,
            "kinds": [source.door.kind for source in self._sources.values()],
            "read_only": self.read_only,
            **self._stamp(),
        }

    def overview(self) -> shapes.OverviewJson:
        now = self._clock.now()
        with self._lock:
            kept = self._overview
            if kept is not None and kept[0] == self._model.seq:
                rate = self._following.rates.ended_per_s(now)
                return {**kept[1], "now": now.isoformat(), "jobs_per_s": rate}
            stamp = self._stamp()
            followed = [group for name in self._following.followed() if (group := self._model.group(name))]
            rows = [row for group in followed for row in self._model.rows(group.group)]
            groups = [self._plain_group(group) for group in followed]
        running = _in_turn([row for row in rows if row.state is JobState.RUNNING], MOST_RUNNING)
        alarms: list[shapes.AlarmJson] = [*_unattended(groups)]
        alarms += ({"key": row.key, "text": row.alarm} for row in rows if row.alarm)
        overview: shapes.OverviewJson = {
            **stamp,
            "groups": groups,
            "running": [plain_row(row, now) for row in running],
            "failures": [_plain_failure(one, now) for one in grouped(rows)[:MOST_FAILURES]],
            "tokens": self._panels.tokens() or [],
            "alarms": alarms[:MOST_ALARMS],
            "jobs_per_s": self._following.rates.ended_per_s(now),
        }
        self._overview = (stamp["seq"], overview)
        return overview

    def groups(self, kind: str | None = None, offset: int = 0, limit: int = 100) -> shapes.Groups:
        with self._lock:
            every = newest_first(self._model.groups())
            found = [group for group in every if kind in (None, group.door.kind)]
            shown = found[offset : offset + limit]
            plain = [self._plain_group(group) for group in shown]
            return {**self._stamp(), "groups": plain, "total": len(found), "offset": offset}

    def has_group(self, name: str) -> bool:
        """Whether there is a run, a service or a search of that key."""
        with self._lock:
            return self._model.group(name) is not None

    def jobs(
        self,
        group: str | None = None,
        filter: str = "",
        sort: str = "",
        offset: int = 0,
        limit: int = 100,
    ) -> shapes.Jobs:
        now = self._clock.now()
        limit = min(max(limit, 1), MOST_ROWS)
        question = Question(group or None, filter, sort, words=True)
        with self._lock:
            names = [self._group(group).group] if group else self._following.followed()
            stamp, total = self._stamp(), sum(self._total(name) for name in names)
        if group:
            self._following.want(group)
        kept = self._answers.get(question, stamp["seq"])
        answer = kept or find(self._rows(names), question, now, self._parameters)
        self._answers.put(question, stamp["seq"], answer)
        return {
            **stamp,
            "group": group or None,
            "total": max(total, answer.total),
            "known": answer.total,
            "matched": len(answer.rows),
            "offset": offset,
            "jobs": [plain_row(row, now) for row in answer.rows[offset : offset + limit]],
        }

    def job(self, key: str) -> shapes.JobDetail:
        detail = self._source(key).detail(key)
        now = self._clock.now()
        missing: dict[str, Any] = {
            "directory": None,
            "parameters": {},
            "upstream": {},
            "dependencies": [],
            "dependents": [],
            "runs": [],
            "attempts": [],
            "most_attempts": None,
            "events": [],
            "result": None,
            "earlier_logs": 0,
            "provenance": {},
            "carbon": None,
            "commands": [],
            "lineage": [],
        }
        fields = {**missing, **detail.fields}
        for name in ("dependencies", "dependents"):
            fields[name] = [plain_row(one, now) if isinstance(one, Row) else one for one in fields[name]]
        return {**plain_row(detail.row, now), **self._stamp(), **fields}  # type: ignore[typeddict-item]

    def why(self, key: str) -> shapes.WhyJson:
        why = self._source(key).why(key)
        return {
            "key": key,
            "because": list(why.because),
            "reuse": why.reuse,
            "nearest": dict(why.nearest) if why.nearest is not None else None,
            "code": list(why.code),
            "next": list(why.next),
        }

    def log(
        self,
        key: str,
        stream: str = "out",
        earlier: int = 0,
        tail: int | None = None,
        start: int | None = None,
        limit: int | None = None,
    ) -> shapes.LogPart:
        return read_log(self._source(key), key, stream, earlier, tail, start, limit)

    def graph(self, group: str, around: str | None = None, depth: int = 2) -> shapes.Graph:
        with self._lock:
            self._group(group)
        self._following.want(group)
        rows = self._rows([group])
        if around:
            drawing = graph.around(rows, around, min(max(depth, 0), MOST_DEPTH))
            if not drawing.nodes:
                raise NotFound(f"no job of {group} has the key {around}; /api/jobs lists them")
        else:
            drawing = graph.by_task(rows)
        return {
            **self._stamp(),
            "nodes": drawing.nodes,
            "edges": drawing.edges,
            "collapsed": not around,
        }

    def timeline(
        self,
        groups: Sequence[str] = (),
        start: int | None = None,
        end: int | None = None,
        width: int = 400,
        by: str = "slot",
    ) -> shapes.Timeline:
        with self._lock:
            followed = self._following.followed()
            names = [self._group(name).group for name in groups] or followed
            live = {name for name in names if self._group(name).live}
        for name in groups:
            self._following.want(name)
        cells = min(max(width, 1), 10_000)
        drawn = self._timelines.draw(names, start, end, cells, followed, live, by_task=by == "task")
        tokens = token_lanes(self._panels.tokens() or [], drawn.held)
        used = {token for name in groups for row in self._rows([name]) for token in row.tokens}
        return {
            **self._stamp(),
            "from": drawn.start,
            "to": drawn.end,
            "lanes": drawn.lanes,
            "tokens": [one for one in tokens if live or not groups or one["name"] in used],
        }

    def history(self, group: str, points: int = 100) -> shapes.HistoryJson:
        with self._lock:
            self._group(group)
        at, counts = self._timelines.of(group).counts(min(max(points, 2), 2000))
        return {
            **self._stamp(),
            "at": [instant.isoformat() for instant in at],
            "counts": {state.name.lower(): numbers for state, numbers in counts.items()},
        }

    def results(
        self,
        group: str,
        task: str | None = None,
        offset: int = 0,
        limit: int = 1000,
        importance: str | None = None,
    ) -> shapes.Results:
        with self._lock:
            about, seq = self._group(group), self._model.seq
        self._following.want(group)  # what happens to its jobs is news
        if self._results is None or self._results[:2] != (group, seq):
            self._results = group, seq, list(self._sources[about.door.value].results(group))
        given = self._results[2]
        found = table(given, task, about.less)
        return {
            **self._stamp(),
            "columns": found.columns,
            "rows": found.rows[offset : offset + min(max(limit, 1), 10_000)],
            "total": len(found.rows),
            "offset": offset,
            "importance": shares([one for one in given if task in (None, one.task)], importance),
        }

    def metrics(
        self,
        keys: Sequence[str] = (),
        group: str | None = None,
        filter: str = "",
        names: Sequence[str] = (),
        points: int = 1000,
        since: float | None = None,
        limit: int = 200,
    ) -> shapes.MetricsJson:
        """Curves of the jobs with these keys, or of a group's jobs that a filter matches."""
        if len(keys) > MOST_ROWS:
            raise BadQuestion(f"ask for {MOST_ROWS} jobs at most at once")
        rows = self._asked_rows(keys, group, filter)
        found = [(row, logged) for row in rows if (logged := self._source(row.key).metrics(row.key))]
        shown = found[: min(max(limit, 1), MOST_ROWS)]
        most = min(max(points, FEWEST_POINTS), MOST_POINTS)
        return {
            **self._stamp(),
            "names": sorted(
                dict.fromkeys(name for _, logged in found for name in logged),
                key=lambda name: name.startswith(SYSTEM),  # what tasks logged comes first
            ),
            "jobs": [plain_curves(row, logged, names, most, since) for row, logged in shown],
            "total": len(found),
        }

    def metrics_stamps(self, asked: Sequence[str]) -> dict[str, object]:
        """What tells whether a job logged more: of jobs, by key, and of all jobs of groups."""
        keys = [key for one in asked for key in self._keys_of(one)]
        return {key: self._source(key).metrics_stamp(key) for key in keys[:MOST_ROWS]}

    def _keys_of(self, asked: str) -> list[str]:
        with self._lock:
            group = self._model.group(asked)
            if group is None:
                return [asked]
            return [row.key for row in self._model.rows(asked) if row.attempt]

    def _asked_rows(self, keys: Sequence[str], group: str | None, filter: str) -> list[Row]:
        if not keys:
            with self._lock:
                names = [self._group(group).group] if group else self._following.followed()
            if group:
                self._following.want(group)
            return list(
                find(self._rows(names), Question(group, filter, ""), self._clock.now(), self._parameters).rows
            )
        with self._lock:
            asked = frozenset(keys)
            known = {row.key: row for row in self._model.rows() if row.key in asked}
        return [known.get(key) or self._source(key).detail(key).row for key in dict.fromkeys(keys)]

    def tokens(self) -> shapes.TokensJson:
        return {**self._stamp(), "tokens": _open_door(self._panels.tokens(), "tokens")}

    def queue(self) -> shapes.QueueJson:
        queue = _open_door(self._panels.queue(), "a queue")
        return {**self._stamp(), "services": queue["services"], "users": queue["users"]}

    def nodes(self) -> shapes.Nodes:
        return {**self._stamp(), "nodes": _open_door(self._panels.nodes(), "nodes")}

    def archive(self, group: str) -> shapes.ArchiveJson:
        archive = self._panels.archive(group)
        return {**self._stamp(), **archive}  # type: ignore[typeddict-item]

    def carbon(self, group: str | None = None) -> shapes.Carbon:
        with self._lock:
            names = [self._group(group).group] if group else self._following.followed()
            groups = [self._group(name) for name in names]
        rows = self._rows(names)
        used = self._panels.carbon(groups, rows)
        return {**self._stamp(), "groups": used["groups"], "tasks": used["tasks"]}

    def cleanup(self) -> shapes.Cleanup:
        cleanup = _open_door(self._panels.cleanup(), "anything to clean up")
        now = self._clock.now()
        unowned = [plain_row(one, now) if isinstance(one, Row) else one for one in cleanup.get("unowned", ())]
        return {
            **self._stamp(),
            "unowned": unowned,
            "orphans": cleanup["orphans"],
            "alarms": list(cleanup.get("alarms", ())),
            "bad_lines": int(cleanup.get("bad_lines", 0)),
        }

    # Acting

    def act(
        self, action: str, targets: Sequence[tuple[str, int]], *, dry_run: bool = False, by: str = ""
    ) -> shapes.Outcomes:
        if self.read_only:
            raise NotAllowed("this server only shows: start `tenuto ui` without --read-only to act")
        try:
            wanted = Action(action)
        except ValueError:
            known = ", ".join(one.value for one in Action)
            raise BadQuestion(f"{action!r:.40} is no action; it is one of {known}") from None
        if not targets or len(targets) > MOST_TARGETS:
            raise BadQuestion(f"name 1 to {MOST_TARGETS} jobs to act on")
        of_door: dict[str, list[Target]] = {}
        for key, attempt in dict(targets).items():
            self._source(key)
            of_door.setdefault(key.partition(":")[0], []).append(Target(key, attempt))
        acted = [
            one
            for door, some in of_door.items()
            for one in self._sources[door].act(wanted, some, dry_run=dry_run, by=by)
        ]
        self._following.poke()
        return {"outcomes": [_plain_acted(one) for one in acted]}

    # Where a question goes

    def _source(self, key: str) -> Source:
        door, between, name = key.partition(":")
        source = self._sources.get(door)
        if source is None or not between or not name:
            doors = ", ".join(f"{one}:" for one in self._sources)
            raise NotFound(f"nothing here has {key!r:.200}; a key begins with one of {doors}")
        return source

    def _parameters(self, key: str) -> Mapping[str, Any]:
        return self._source(key).parameters(key)

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

    def changes(self, since: str | None, wait_s: float) -> shapes.DeltaJson | shapes.ResetJson:
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
        delta: shapes.DeltaJson = {
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

    def _reset(self) -> shapes.ResetJson:
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
        is_at_work = (
            group.live and group.take_up is None and group.door is Door.EXPERIMENTS
        )  # others stay open
        eta_s = self._following.rates.left_s(self._model, name) if is_at_work else None
        known = self._model.size(name)
        return plain_group(group, self._model.states(name), known, eta_s, is_loaded=known > 0)


def _open_door(panel: Any, what: str) -> Any:
    if panel is None:
        raise NotFound(f"nothing here has {what}")
    return panel


def plain_curves(
    row: Row, logged: Points, names: Sequence[str], most: int, since: float | None
) -> shapes.JobCurves:
    """The curves of one job, of the metrics that are wanted, with the points that are newer than `since`."""
    return {
        "key": row.key,
        "id": row.id,
        "name": row.name,
        "task": row.task,
        "state": row.state.name.lower(),
        "tags": dict(row.tags),
        "where": row.where,
        "names": list(logged),
        "curves": [
            _plain_curve(name, points, most, since)
            for name, points in logged.items()
            if not names or name in names
        ],
    }


def _plain_curve(name: str, points: Sequence[MetricPoint], most: int, since: float | None) -> shapes.Curve:
    new = [one for one in points if one.time is None or one.time > since] if since is not None else points
    shown = thinned(new, most)
    values = [one.value for one in points]
    finite = values if all(map(isfinite, values)) else [one for one in values if isfinite(one)]
    return {
        "name": name,
        "steps": [one.step for one in shown],
        "times": [one.time for one in shown],
        "values": [one.value if isfinite(one.value) else None for one in shown],
        "total": len(points),
        "last": finite[-1] if finite else None,
        "min": min(finite, default=None),
        "max": max(finite, default=None),
    }


def _unattended(groups: Sequence[PlainGroup]) -> Iterator[shapes.AlarmJson]:
    """The groups that no driver is at work for though jobs are left; of an experiment its newest run."""
    newest: dict[tuple[str, str], PlainGroup] = {}
    for group in groups:
        name = group["kind"], group["name"]
        known = newest.get(name)
        if known is None or (group["started"] or "") > (known["started"] or ""):
            newest[name] = group
    for group in newest.values():
        if group["take_up"] is not None:
            shown = group["group"].partition(":")[2]
            yield {"key": "", "text": f"{shown}: its driver is gone, and jobs are left: {group['take_up']}"}


def _in_turn(rows: Iterable[Row], most: int) -> list[Row]:
    """Some rows, one of each group in turn: a group with many leaves room for the others."""
    of_group: dict[str, list[Row]] = {}
    for row in rows:
        of_group.setdefault(row.group, []).append(row)
    turns = chain.from_iterable(zip_longest(*of_group.values()))
    return list(islice((row for row in turns if row is not None), most))


def _plain_failure(failure: FailureGroup, now: datetime) -> shapes.Failure:
    """Failures of one cause, the first of them named."""
    return {
        "reason": failure.reason.name.lower(),
        "error": failure.error,
        "place": failure.place,
        "jobs": [plain_row(row, now) for row in failure.rows[:MOST_FAILED_JOBS]],
        "total": len(failure.rows),
        "targets": [[row.key, row.attempt] for row in failure.rows[:MOST_FAILED_TARGETS]],
    }


def _plain_acted(acted: Acted) -> shapes.OutcomeJson:
    """What became of an action on one job."""
    return {
        "key": acted.key,
        "outcome": acted.outcome.value,
        "detail": acted.detail,
        "attempt": acted.attempt,
    }
