"""The state provider of this process: it answers each question of a face from the sources of the doors.
How an answer looks is in `shapes`; a provider for a server elsewhere is in `remote`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import Any

from tenuto.clock import Clock, SystemClock
from tenuto.errors import BadQuestion, NotAllowed, NotFound
from tenuto.jobs.causes import grouped
from tenuto.lifecycle.source import Action, Row, Source, Target
from tenuto.lifecycle.states import JobState
from tenuto.monitor import graph, shapes
from tenuto.monitor.logs import read_log
from tenuto.monitor.model_keeper import newest_first
from tenuto.monitor.panels import Panels
from tenuto.monitor.past import Past, parse_instant, token_lanes
from tenuto.monitor.picture import Picture
from tenuto.monitor.plain import plain_acted, plain_failure, plain_row
from tenuto.monitor.query import Answers, Question, find
from tenuto.monitor.results import table

MOST_RUNNING = 20
MOST_FAILURES = 50
MOST_ALARMS = 100
MOST_TARGETS = 10_000
MOST_ROWS = 1_000
MOST_DEPTH = 50


class LocalProvider(Picture):
    """Answers from the sources of the open doors, in this process."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        workspace: str = "",
        version: str = "",
        read_only: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(sources, clock or SystemClock())
        self.workspace = workspace
        self.version = version
        self.read_only = read_only
        self._sources = {source.door.value: source for source in sources}
        self._answers = Answers()
        self._overview: tuple[int, shapes.Overview] | None = None
        self._past = Past(self._sources, self._rows_of, self._clock)
        self._panels = Panels(self._sources, self._clock)
        self._following.start()

    # Questions

    def about(self) -> shapes.About:
        return {
            "version": self.version,
            "workspace": self.workspace,
            "doors": list(self._sources),
            "read_only": self.read_only,
            **self._stamp(),
        }

    def overview(self, at: str | None = None) -> shapes.Overview:
        now = self._clock.now()
        with self._lock:
            kept = self._overview
            if at is None and kept is not None and kept[0] == self._model.seq:
                rate = self._following.pace.ended_per_s(now)
                return {**kept[1], "now": now.isoformat(), "jobs_per_s": rate}
            stamp = self._stamp()
            followed = [group for name in self._following.followed() if (group := self._model.group(name))]
            rows = [row for group in followed for row in self._model.rows(group.group)]
            groups = [self._plain_group(group) for group in followed]
        if at is not None:
            now = parse_instant(at)
            rows = self._past.rows_at([group.group for group in followed], now)
            groups = [_recounted(group, rows) for group in groups]
        running = _in_turn([row for row in rows if row.state.running()], MOST_RUNNING)
        alarms = [row for row in rows if row.alarm][:MOST_ALARMS]
        overview: shapes.Overview = {
            **stamp,
            "groups": groups,
            "running": [plain_row(row, now) for row in running],
            "failures": [plain_failure(one, now) for one in grouped(rows)[:MOST_FAILURES]],
            "tokens": self._panels.tokens() or [],
            "alarms": [{"key": row.key, "text": row.alarm or ""} for row in alarms],
            "jobs_per_s": self._following.pace.ended_per_s(now),
        }
        if at is None:
            self._overview = (stamp["seq"], overview)
        return overview

    def groups(self, door: str | None = None, offset: int = 0, limit: int = 100) -> shapes.Groups:
        with self._lock:
            every = newest_first(self._model.groups())
            found = [group for group in every if door in (None, group.door.value)]
            shown = found[offset : offset + limit]
            plain = [self._plain_group(group) for group in shown]
            return {**self._stamp(), "groups": plain, "total": len(found), "offset": offset}

    def jobs(
        self,
        group: str | None = None,
        filter: str = "",
        sort: str = "",
        offset: int = 0,
        limit: int = 100,
        at: str | None = None,
    ) -> shapes.Jobs:
        now = self._clock.now()
        limit = min(max(limit, 1), MOST_ROWS)
        question = Question(group or None, filter, sort)
        with self._lock:
            names = [self._group(group).group] if group else self._following.followed()
            stamp, total = self._stamp(), sum(self._total(name) for name in names)
        if group:
            self._following.want(group)
        if at is not None:
            now = parse_instant(at)
            answer = find(self._past.rows_at(names, now), question, now, self._parameters)
            total = answer.total
        else:
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
            "carbon": None,
            "commands": [],
        }
        fields = {**missing, **detail.fields}
        for name in ("dependencies", "dependents"):
            fields[name] = [plain_row(one, now) if isinstance(one, Row) else one for one in fields[name]]
        return {**plain_row(detail.row, now), **self._stamp(), **fields}  # type: ignore[typeddict-item]

    def why(self, key: str) -> shapes.Why:
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

    def graph(
        self, group: str, around: str | None = None, depth: int = 2, at: str | None = None
    ) -> shapes.Graph:
        rows = self._rows_at(group, at)
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

    def score(
        self, groups: Sequence[str] = (), start: int | None = None, end: int | None = None, width: int = 400
    ) -> shapes.Score:
        with self._lock:
            followed = self._following.followed()
            names = [self._group(name).group for name in groups] or followed
            live = {name for name in names if self._group(name).live}
        for name in groups:
            self._following.want(name)
        drawn = self._past.score(names, start, end, min(max(width, 1), 10_000), followed, live)
        tokens = token_lanes(self._panels.tokens() or [], drawn.held)
        used = {token for name in groups for row in self._rows_of(name) for token in row.tokens}
        return {
            **self._stamp(),
            "from": drawn.start,
            "to": drawn.end,
            "lanes": drawn.lanes,
            "tokens": [one for one in tokens if live or not groups or one["name"] in used],
        }

    def history(self, group: str, points: int = 100) -> shapes.History:
        with self._lock:
            self._group(group)
        at, counts = self._past.of(group).counts(min(max(points, 2), 2000))
        return {
            **self._stamp(),
            "at": [instant.isoformat() for instant in at],
            "counts": {state.name.lower(): numbers for state, numbers in counts.items()},
        }

    def results(
        self, group: str, task: str | None = None, offset: int = 0, limit: int = 1000
    ) -> shapes.Results:
        with self._lock:
            door = self._group(group).door.value
        found = table(self._sources[door].results(group), task)
        return {
            **self._stamp(),
            "columns": found.columns,
            "rows": found.rows[offset : offset + min(max(limit, 1), 10_000)],
            "total": len(found.rows),
            "offset": offset,
        }

    def tokens(self) -> shapes.Tokens:
        return {**self._stamp(), "tokens": _open_door(self._panels.tokens(), "tokens")}

    def queue(self) -> shapes.Queue:
        queue = _open_door(self._panels.queue(), "a queue")
        return {**self._stamp(), "services": queue["services"], "users": queue["users"]}

    def nodes(self) -> shapes.Nodes:
        return {**self._stamp(), "nodes": _open_door(self._panels.nodes(), "nodes")}

    def archive(self, group: str, at: str | None = None) -> shapes.Archive:
        archive = self._panels.archive(group, parse_instant(at) if at is not None else None)
        return {**self._stamp(), **archive}  # type: ignore[typeddict-item]

    def carbon(self, group: str | None = None) -> shapes.Carbon:
        with self._lock:
            names = [self._group(group).group] if group else self._following.followed()
            groups = [self._group(name) for name in names]
        rows = self._rows(names)
        used = self._panels.carbon(groups, rows)
        return {**self._stamp(), "groups": used["groups"], "tasks": used["tasks"]}

    def care(self) -> shapes.Care:
        care = _open_door(self._panels.care(), "care")
        now = self._clock.now()
        strays = [plain_row(one, now) if isinstance(one, Row) else one for one in care.get("strays", ())]
        return {
            **self._stamp(),
            "strays": strays,
            "orphans": care["orphans"],
            "alarms": list(care.get("alarms", ())),
            "bad_lines": int(care.get("bad_lines", 0)),
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
        return {"outcomes": [plain_acted(one) for one in acted]}

    # Where a question goes

    def _source(self, key: str) -> Source:
        door, between, name = key.partition(":")
        source = self._sources.get(door)
        if source is None or not between or not name:
            doors = ", ".join(f"{one}:" for one in self._sources)
            raise NotFound(f"no open door has {key!r:.200}; a key begins with one of {doors}")
        return source

    def _parameters(self, key: str) -> Mapping[str, Any]:
        return self._source(key).parameters(key)

    def _rows_of(self, group: str) -> list[Row]:
        return self._rows([group])

    def _rows_at(self, group: str, at: str | None) -> list[Row]:
        with self._lock:
            self._group(group)
        self._following.want(group)
        return self._rows([group]) if at is None else self._past.rows_at([group], parse_instant(at))


def _open_door(panel: Any, what: str) -> Any:
    if panel is None:
        raise NotFound(f"no open door has {what}")
    return panel


def _in_turn(rows: Iterable[Row], most: int) -> list[Row]:
    """Some rows, one of each group in turn: a group with many leaves room for the others."""
    of_group: dict[str, list[Row]] = {}
    for row in rows:
        of_group.setdefault(row.group, []).append(row)
    turns = chain.from_iterable(zip_longest(*of_group.values()))
    return list(islice((row for row in turns if row is not None), most))


def _recounted(group: shapes.Group, rows: Sequence[Row]) -> shapes.Group:
    """A group as it was: only the counts are known of the past."""
    of_group = [row.state for row in rows if row.group == group["group"]]
    counts = {state.name.lower(): of_group.count(state) for state in JobState}
    return {**group, "counts": counts, "total": len(of_group), "known": len(of_group), "eta_s": None}
