"""The candidates of searches as a monitor sees them: each search a group, each candidate a row.
The only module of this room that a monitor imports; it changes nothing but by `act`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from tenuto.database import Database
from tenuto.database.late_ids import LateIds
from tenuto.errors import NotFound
from tenuto.jobs.row import Detail, Group, Result, Row, Why
from tenuto.jobs.source import CHUNK_ROWS, Acted, ActedAs, Action, Changes, Feed, Log, Moment, Panels, Target
from tenuto.lifecycle.evolution import EvolutionStatus, SearchState
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.search.archive_panel import archive_panel
from tenuto.search.export import candidate_of
from tenuto.search.monitor_rows import (
    MEANINGS,
    STATES,
    attempt_of,
    counted_states,
    group_of,
    instant,
    key_of,
    name_of,
    result_of,
    row_of,
)
from tenuto.search.search_overview import overview
from tenuto.search.store import Store
from tenuto.search.tables import evolution_jobs, evolution_moves, jobs, searches
from tenuto.workspace.layout import Layout

S = EvolutionStatus
MOST_CHILDREN = 100
_READ_AGAIN = 100
"""Moves before a feed was opened in which a gap may still be filled."""


class SearchSource:
    """A `Source` over the database of searches and the workspace that holds their jobs."""

    door = Door.SEARCH

    def __init__(self, database: Database, workspace: str) -> None:
        self._database = database
        self._store = Store(database)
        self._layout = Layout(workspace)

    def groups(self) -> Sequence[Group]:
        query = select(searches).order_by(searches.c.created_at.desc(), searches.c.id)
        return [group_of(row) for row in self._database.read(lambda c: c.execute(query).all())]

    def rows(self, group: str) -> Iterator[Sequence[Row]]:
        after = 0
        while chunk := self._database.read(lambda c, n=after: _page(c, name_of(group), n)):  # type: ignore[misc]
            yield [row_of(row) for row in chunk]
            after = chunk[-1].number

    def counts(self, group: str) -> Mapping[JobState, int]:
        return counted_states(self._store.statuses(name_of(group)))

    def about(self, group: str) -> Mapping[str, Any]:
        return overview(self._store, name_of(group)).as_json()

    def listed(self) -> Iterator[Sequence[Row]]:
        groups = self.groups()
        last = max((group.ended for group in groups if group.ended is not None), default=None)
        for group in groups:
            if group.live or group.ended == last:
                yield from self.rows(group.group)

    def every(self) -> Iterator[Sequence[Row]]:
        for group in self.groups():
            yield from self.rows(group.group)

    def find(self, name: str) -> Sequence[str]:
        search, _, number = name.rpartition("#")
        try:
            return [key_of(search, self._candidate(key_of(search, number)).number)] if search else ()
        except NotFound:
            return ()

    def feed(self) -> Feed:
        return SearchFeed(self._database)

    def detail(self, key: str) -> Detail:
        row = self._candidate(key)
        kept = candidate_of(row._mapping)
        name, number = row.search_id, row.number
        near = select(evolution_jobs).where(jobs.search_id == name)
        parent = near.where(jobs.number == row.parent)
        children = near.where(jobs.parent == number).order_by(jobs.number).limit(MOST_CHILDREN)
        of = self._database.read(lambda c: [c.execute(query).all() for query in (parent, children)])
        fields = {
            "directory": self._directory(row),
            "parameters": dict(self.parameters(key)),
            "dependencies": [row_of(one) for one in of[0]],
            "dependents": [row_of(one) for one in of[1]],
            "attempts": [attempt_of(row)] if row.attempt else [],
            "result": result_of(kept) if S(row.status) is S.SUCCEEDED else None,
            "commands": [
                f"tenuto why {name}#{number}",
                *([f"tenuto retry {name}#{number}"] if S(row.status) in (S.FAILED, S.CANCELLED) else []),
            ],
        }
        return Detail(row_of(row), fields)

    def parameters(self, key: str) -> Mapping[str, Any]:
        values = json.loads(self._candidate(key).proposal)["values"]
        return values if isinstance(values, dict) else {}

    def why(self, key: str) -> Why:
        row = self._candidate(key)
        sentences = [f"{row.status}: {MEANINGS[S(row.status)]}"]
        if row.reused:
            sentences.append("its outcome was known from before, so it was not run")
        if row.message:
            sentences.append(row.message)
        if row.parent is not None:
            sentences.append(f"it is a child of candidate {row.parent}")
        following: tuple[str, ...] = ()
        if S(row.status) in (S.FAILED, S.CANCELLED):
            following = (f"tenuto retry {row.search_id}#{row.number}",)
        return Why(tuple(sentences), next=following)

    def log(self, key: str, stream: str, earlier: int) -> Log:
        row = self._candidate(key)
        paths = self._layout.job(row.task_id, row.job_id)
        return CandidateLog(
            paths.out if stream == "out" else paths.err, row.attempt, S(row.status).finished()
        )

    def moments(self, group: str) -> Iterator[Moment]:
        after, name = 0, name_of(group)
        while chunk := self._database.read(lambda c, n=after: _moves(c, n, name)):  # type: ignore[misc]
            for move in chunk:
                state, reason = STATES[S(move.status)]
                yield Moment(instant(move.at), key_of(name, move.number), state, move.attempt, reason)
            after = chunk[-1].id

    def results(self, group: str) -> Iterator[Result]:
        for chunk in self.rows(group):
            for row in chunk:
                if row.state is JobState.DONE:
                    kept = candidate_of(self._candidate(row.key)._mapping)
                    yield Result(row.key, row.task, row.state, row.tags, result_of(kept))

    def panels(self, only: str | None = None) -> Panels:
        if only not in (None, "archives"):
            return Panels()
        found = (archive_panel(self._database, group.name) for group in self.groups())
        return Panels(archives=[archive for archive in found if archive is not None])

    def act(self, action: Action, targets: Sequence[Target], *, dry_run: bool, by: str) -> Sequence[Acted]:
        return [self._act(action, target, dry_run, by) for target in targets]

    def _act(self, action: Action, target: Target, dry_run: bool, by: str) -> Acted:
        if action in (Action.PAUSE, Action.RESUME):
            return self._steer(action, target, dry_run)
        try:
            row = self._candidate(target.key)
        except NotFound:
            return Acted(target.key, ActedAs.GONE)
        status = S(row.status)
        if action is Action.CLEAN:
            return Acted(target.key, ActedAs.REFUSED, "remove the whole search: tenuto search remove")
        is_possible = status.unfinished() if action is Action.KILL else status in (S.FAILED, S.CANCELLED)
        if not is_possible:
            return Acted(target.key, ActedAs.NOT_RUNNING, f"it is {status.value}", row.attempt)
        if row.attempt != target.attempt:
            return Acted(target.key, ActedAs.STALE, "it was tried again meanwhile", row.attempt)
        if dry_run:
            would = ActedAs.WOULD_KILL if action is Action.KILL else ActedAs.WOULD_RETRY
            return Acted(target.key, would, attempt=row.attempt)
        if action is Action.KILL:
            self._store.cancel(row.search_id, [row.number], f"cancelled by {by}")
            return Acted(target.key, ActedAs.ASKED, attempt=row.attempt)
        self._store.retry(row.search_id, [row.number])
        return Acted(target.key, ActedAs.RETRIED, attempt=row.attempt)

    def _steer(self, action: Action, target: Target, dry_run: bool) -> Acted:
        name = name_of(target.key)
        if self._store.search(name) is None:
            return Acted(target.key, ActedAs.GONE)
        state = SearchState.PAUSED if action is Action.PAUSE else SearchState.RUNNING
        if dry_run or self._store.set_state(name, state):
            return Acted(target.key, ActedAs.ASKED)
        return Acted(target.key, ActedAs.REFUSED, f"it cannot be {action.value}d now")

    def _directory(self, row: Any) -> str | None:
        """The directory of a candidate's job in this workspace; None if it has none here."""
        path = self._layout.job(row.task_id, row.job_id).directory
        return path if os.path.isdir(path) else None

    def _candidate(self, key: str) -> Any:
        name, _, number = name_of(key).rpartition("/")
        row = None
        if number.isdecimal() and len(number) < 10:
            query = select(evolution_jobs).where(jobs.search_id == name, jobs.number == int(number))
            row = self._database.read(lambda c: c.execute(query).one_or_none())
        if row is None:
            raise NotFound(f"there is no candidate {key!r:.100} of a search")
        return row


class SearchFeed:
    """What happens from now on, found by the numbers of moves."""

    def __init__(self, database: Database) -> None:
        self._database = database
        newest = select(evolution_moves.c.id).order_by(evolution_moves.c.id.desc()).limit(_READ_AGAIN)
        self._seen = LateIds(database.read(lambda c: c.execute(newest).scalars().all()))
        self._untold: dict[str, dict[int, Row]] = {}
        """Search -> candidates that moved while its rows were still being read."""

    def read(self, groups: Collection[str], limit: int) -> Changes:
        if not groups:
            return Changes()
        late = self._seen.missing
        moves = self._database.read(lambda c: _moves(c, self._seen.last, None, limit, late))
        self._seen.saw(move.id for move in moves)
        for name in {move.search_id for move in moves}:
            numbers = {move.number for move in moves if move.search_id == name}
            query = select(evolution_jobs).where(jobs.search_id == name, jobs.number.in_(numbers))
            found = self._database.read(lambda c, q=query: c.execute(q).all())  # type: ignore[misc]
            self._untold.setdefault(name, {}).update((row.number, row_of(row)) for row in found)
        wanted = [self._untold.pop(name_of(group), {}) for group in groups]
        return Changes(rows=[row for rows in wanted for row in rows.values()])

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        """Nothing to close: the database is the caller's."""


class CandidateLog:
    """What the job of a candidate printed in this workspace; empty if it ran in another one."""

    def __init__(self, path: str, attempt: int, has_ended: bool) -> None:
        self.attempt = attempt
        self._path = path
        self._has_ended = has_ended

    def size(self) -> int:
        return os.path.getsize(self._path) if os.path.exists(self._path) else 0

    def read(self, offset: int, limit: int) -> bytes:
        if not os.path.exists(self._path):
            return b""
        with open(self._path, "rb") as log:
            log.seek(offset)
            return log.read(limit)

    def ended(self) -> bool:
        return self._has_ended


def _page(connection: Connection, name: str, after: int) -> Sequence[Any]:
    query = select(evolution_jobs).where(jobs.search_id == name, jobs.number > after)
    return connection.execute(query.order_by(jobs.number).limit(CHUNK_ROWS)).all()


def _moves(
    connection: Connection,
    after: int,
    name: str | None,
    limit: int = CHUNK_ROWS,
    late: Sequence[int] = (),
) -> Sequence[Any]:
    """The moves after one, of a search or of all; `late`: ids before it that were not seen yet."""
    is_new = evolution_moves.c.id > after
    query = select(evolution_moves).where(is_new | evolution_moves.c.id.in_(late) if late else is_new)
    if name is not None:
        query = query.where(evolution_moves.c.search_id == name)
    return connection.execute(query.order_by(evolution_moves.c.id).limit(limit)).all()
