"""The candidates of searches as a monitor sees them: each search a group, each candidate a row.
The only module of this room that a monitor imports; it changes nothing but by `act`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from sqlalchemy import Connection, select

from tenuto.database import Database, LateIds, MemberKind, listed, now_ms
from tenuto.errors import NotFound
from tenuto.jobs.driver_command import take_up_by
from tenuto.jobs.key import JobKey
from tenuto.jobs.log import JobLog
from tenuto.jobs.metrics import MetricsReader
from tenuto.jobs.removal import kill
from tenuto.jobs.row import Detail, Group, Result, Row, Why, row_key
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
    Target,
)
from tenuto.jobs.view import JobsView
from tenuto.lifecycle.evolution import EvolutionStatus, SearchState
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.search.candidate_rows import SEARCH
from tenuto.search.export import (
    candidate_of,
    change_of,
    lineage,
    measure_names,
    minimized,
    parameters_of,
    result_of,
    spread_values,
)
from tenuto.search.outcome import directions_in
from tenuto.search.points import PRUNED
from tenuto.search.programs import PROGRAM_TASK
from tenuto.search.search_overview import archive_panel, overview
from tenuto.search.store import Store
from tenuto.search.tables import evolution_jobs, evolution_moves, jobs, searches
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.points import Points
from tenuto.workspace.ports import Liveness
from tenuto.workspace.processes import liveness_of

S = EvolutionStatus
STATES: Mapping[EvolutionStatus, tuple[JobState, JobFailureStatus | None]] = {
    S.PENDING: (JobState.WAITING, None),
    S.QUEUED: (JobState.SCHEDULED, None),
    S.RUNNING: (JobState.RUNNING, None),
    S.SUCCEEDED: (JobState.DONE, None),
    S.FAILED: (JobState.ERROR, JobFailureStatus.FAILED),
    S.CANCELLED: (JobState.ERROR, JobFailureStatus.CANCELLED),
}
PREFIX = f"{Door.SEARCH.value}:"
MEANINGS = {
    S.PENDING: "made, and waits to be sent",
    S.QUEUED: "sent; the next worker with a free slot claims it",
    S.RUNNING: "a worker evaluates it",
    S.SUCCEEDED: "evaluated",
    S.FAILED: "it could not be evaluated",
    S.CANCELLED: "a person, or the end of the search, did not want it",
}


def counted_states(statuses: Mapping[EvolutionStatus, int]) -> dict[JobState, int]:
    """How many candidates are in which state of a job."""
    found: dict[JobState, int] = {}
    for status, number in statuses.items():
        state = STATES[status][0]
        found[state] = found.get(state, 0) + number
    return found


def attempt_of(row: Any) -> dict[str, Any]:
    """The last attempt of a candidate: rows do not keep the others."""
    state, reason = STATES[S(row.status)]
    started, ended = instant_or_none(row.started_at), instant_or_none(row.completed_at)
    return {
        "attempt": row.attempt,
        "started": started.isoformat() if started else None,
        "ended": ended.isoformat() if ended else None,
        "state": state.name.lower(),
        "reason": reason.name.lower() if reason else None,
        "message": row.message,
        "exit_code": None,
        "signal": None,
        "host": row.worker,
        "pid": None,
        "launcher": None,
        "usage": {},
    }


def name_of(key: str) -> str:
    """The search that a group or row names, with the number of a row behind it."""
    return key.removeprefix(PREFIX)


def key_of(name: str, number: int | str) -> str:
    """The key of a candidate's row."""
    return row_key(Door.SEARCH, name, str(number))


def instant(ms: int) -> datetime:
    """An instant of the database's clock."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def instant_or_none(ms: int | None) -> datetime | None:
    """An instant of the database's clock, if there was one."""
    return None if ms is None else instant(ms)


def group_of(row: Any) -> Group:
    """A search."""
    state = SearchState(row.state)
    return Group(
        f"{PREFIX}{row.id}",
        Door.SEARCH,
        row.id,
        state=state.value if row.reason is None else f"{state.value} ({row.reason})",
        live=state is not SearchState.ENDED,
        started=instant(row.created_at),
        ended=instant_or_none(row.ended_at),
        total=row.scheduled,
        message=row.message,
        less=minimized(directions_in(json.loads(row.definition))),
    )


def row_of(row: Any, names: Sequence[str] = ()) -> Row:
    """A candidate; `names`: of the measures of its search."""
    state, reason = STATES[S(row.status)]
    if row.failure in JobFailureStatus.__members__:
        reason = JobFailureStatus[row.failure]
    return Row(
        key_of(row.search_id, row.number),
        f"{PREFIX}{row.search_id}",
        Door.SEARCH,
        row.search_id,
        f"{row.search_id}#{row.number}",
        state,
        PRUNED if row.failure == PRUNED else row.status,
        reason if state is JobState.ERROR else None,
        row.message,
        row.attempt,
        owner=f"search/{row.search_id}",
        where=row.worker or "",
        submitted=instant(row.created_at),
        started=instant_or_none(row.started_at),
        ended=instant_or_none(row.completed_at),
        result=result_of(candidate_of(row._mapping), names) if state is JobState.DONE else None,
    )


UNTICKED_MS = 15_000
"""A scheduler that is at work says so more often."""
UNSEEN_MS = 60_000
"""A worker of another machine that was not seen for so long is at work no more."""
AGENT = "/agent"
"""Behind the name or key of a candidate: the job of its agent, not of its evaluation."""
MOST_CHILDREN = 100
MOST_ANCESTORS = 30
LONGEST_DIFF = 20_000
_READ_AGAIN = 100
"""Moves before a feed was opened in which a gap may still be filled."""


class SearchSource:
    """A `Source` over the database of searches and the workspace that holds their jobs."""

    door = Door.SEARCH

    def __init__(self, database: Database, workspace: str) -> None:
        self._database = database
        self._store = Store(database)
        self._layout = Layout(workspace)
        self._metrics = MetricsReader(this_machine().files)

    def groups(self) -> Sequence[Group]:
        query = select(searches).order_by(searches.c.created_at.desc(), searches.c.id)
        found = self._database.read(lambda c: c.execute(query).all())
        return [self._attended(group_of(row)) for row in found]

    def rows(self, group: str) -> Iterator[Sequence[Row]]:
        names = measure_names(self._database, name_of(group))
        for page in self._store.pages(name_of(group)):
            yield [row_of(row, names) for row in page]

    def group(self, group: str) -> Group | None:
        query = select(searches).where(searches.c.id == name_of(group))
        row = self._database.read(lambda c: c.execute(query).one_or_none())
        return self._attended(group_of(row)) if row is not None else None

    def _attended(self, group: Group) -> Group:
        """The group, with the command that takes it up if no process works for it."""
        if not group.live or self.driver(group.group).is_at_work:
            return group
        return group._replace(take_up=self._take_up(name_of(group.group)))

    def driver(self, group: str) -> Driver:
        name = name_of(group)
        take_up = self._take_up(name)
        if self._database.read(lambda c: _is_attended(c, name)):
            return Driver(is_at_work=True, take_up=take_up)
        return Driver(is_at_work=False, take_up=take_up, has_payloads=self._has_payloads(name))

    def _take_up(self, name: str) -> str:
        """The command that runs the search again."""
        search = self._store.search(name)
        definition = search.definition if search is not None else {}
        command = definition.get("command")
        if not command:
            return f"tenuto evolve SCRIPT (the script of {name})"
        return take_up_by(command, definition.get("directory", ""))

    def _has_payloads(self, name: str) -> bool:
        """Whether a candidate is evaluated in this workspace, whatever rows say that no process keeps."""
        query = select(evolution_jobs).where(jobs.search_id == name, jobs.status == S.RUNNING.value)
        view = JobsView(self._layout, this_machine())
        return any(
            view.look(job).state.running()
            for row in self._database.read(lambda c: c.execute(query).all())
            for job in self._jobs_of(row)
        )

    def _jobs_of(self, row: Any) -> set[JobKey]:
        """The jobs of a candidate: its evaluation, and its agent if it has one."""
        key = key_of(row.search_id, row.number)
        return {self.job_of(key, row), self.job_of(f"{key}{AGENT}", row)}

    def stamp(self, group: str) -> object:
        return self._database.stamp()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None] | None:
        if self._database.is_sqlite:
            return None
        return self._database.wakeups.listen(SEARCH, wake)

    def counts(self, group: str) -> Mapping[JobState, int]:
        return counted_states(self._store.statuses(name_of(group)))

    def about(self, group: str) -> Mapping[str, Any]:
        return overview(self._store, name_of(group))

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
        part = AGENT if number.endswith(AGENT) else ""
        try:
            row = self._candidate(key_of(search, number)) if search else None
        except NotFound:
            row = None
        if row is None:
            return ()
        if part and row.task_id != PROGRAM_TASK:
            raise NotFound(
                f"{search}#{row.number} has no agent: only a search that evolves a program has them"
            )
        return [f"{key_of(search, row.number)}{part}"]

    def feed(self) -> Feed:
        return SearchFeed(self._database)

    def detail(self, key: str) -> Detail:
        row = self._candidate(key)
        kept = candidate_of(row._mapping)
        name, number = row.search_id, row.number
        near = select(evolution_jobs).where(jobs.search_id == name)
        parent = near.where(jobs.number == row.parent)
        children = near.where(jobs.parent == number).order_by(jobs.number).limit(MOST_CHILDREN)
        names = measure_names(self._database, name)
        of = self._database.read(lambda c: [c.execute(query).all() for query in (parent, children)])
        fields = {
            "directory": self._directory(self.job_of(key, row)),
            "parameters": dict(self.parameters(key)),
            "dependencies": [row_of(one, names) for one in of[0]],
            "dependents": [row_of(one, names) for one in of[1]],
            "attempts": [attempt_of(row)] if row.attempt else [],
            "result": result_of(kept, names) if S(row.status) is S.SUCCEEDED else None,
            "commands": [
                f"tenuto why {name}#{number}",
                *([f"tenuto retry {name}#{number}"] if S(row.status) in (S.FAILED, S.CANCELLED) else []),
            ],
            "lineage": self._lineage(name, number),
        }
        return Detail(row_of(row, names), fields)

    def _lineage(self, name: str, number: int) -> list[dict[str, Any]]:
        """What a candidate descends from, the nearest first, with the change that each made of its parent."""
        rows = lineage(self._store, name, number)
        if len(rows) < 2:
            return []
        return [
            {
                "key": key_of(name, row["number"]),
                "objective": row["objective"],
                "diff": (change_of(before, row) or "")[:LONGEST_DIFF],
            }
            for before, row in zip([None, *rows], rows, strict=False)
        ][: -MOST_ANCESTORS - 1 : -1]

    def parameters(self, key: str) -> Mapping[str, Any]:
        return parameters_of(json.loads(self._candidate(key).proposal)["values"])

    def why(self, key: str) -> Why:
        row = self._candidate(key)
        meant = f"{row.status}: {MEANINGS[S(row.status)]}"
        sentences = [f"{PRUNED}: its pruner stopped it" if row.failure == PRUNED else meant]
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
        paths = self._layout.job(*self.job_of(key, row))
        path, has_ended = paths.err if stream == "err" else paths.out, S(row.status).finished()
        return JobLog(this_machine().files, path, row.attempt, has_ended=has_ended)

    def metrics(self, key: str) -> Points:
        return self._metrics.of_job(self._layout.job(*self.job_of(key)))

    def metrics_stamp(self, key: str) -> object:
        return self._metrics.stamp(self._layout.job(*self.job_of(key)))

    def moments(self, group: str) -> Iterator[Moment]:
        after, name = 0, name_of(group)
        while chunk := self._database.read(lambda c, n=after: _moves(c, n, name)):  # type: ignore[misc]
            for move in chunk:
                state, reason = STATES[S(move.status)]
                yield Moment(instant(move.at), key_of(name, move.number), state, move.attempt, reason)
            after = chunk[-1].id

    def results(self, group: str) -> Iterator[Result]:
        name = name_of(group)
        names = measure_names(self._database, name)
        for row in chain.from_iterable(self._store.pages(name)):
            if S(row.status) is S.SUCCEEDED:
                shown, kept = row_of(row, names), candidate_of(row._mapping)
                chosen = spread_values(kept).items()
                plain = {key: value for key, value in chosen if not isinstance(value, dict | list)}
                tags = {**plain, **shown.tags}
                yield Result(shown.key, shown.task, shown.state, tags, result_of(kept, names))

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
            self._end_payload(row, f"cancelled by {by}")
            return Acted(target.key, ActedAs.ASKED, attempt=row.attempt)
        self._store.retry(row.search_id, [row.number])
        is_attended = self.driver(target.key.rpartition("/")[0]).is_at_work
        take_up = f"start {self._take_up(row.search_id)}, or tenuto worker"
        detail = "" if is_attended else f"no process works for {row.search_id}: {take_up}"
        return Acted(target.key, ActedAs.RETRIED, detail, row.attempt)

    def _end_payload(self, row: Any, message: str) -> None:
        """Ends the running jobs of a candidate in this workspace: the worker may have left."""
        if S(row.status) is S.RUNNING:
            view = JobsView(self._layout, this_machine())
            for job in self._jobs_of(row):
                killing = kill(view, job, message)
                if killing.runner is not None:
                    killing.runner.close()

    def _steer(self, action: Action, target: Target, dry_run: bool) -> Acted:
        name = name_of(target.key)
        found = self._store.search(name)
        if found is None:
            return Acted(target.key, ActedAs.GONE)
        state = SearchState.PAUSED if action is Action.PAUSE else SearchState.RUNNING
        if dry_run or self._store.set_state(name, state):
            return Acted(target.key, ActedAs.ASKED)
        return Acted(target.key, ActedAs.REFUSED, f"it is {found.state.value}, and cannot be {action.value}d")

    def job_of(self, key: str, row: Any = None) -> JobKey:
        """The job of a candidate: of a program its evaluation's, once that began, or with /agent its agent's.

        `row`: the candidate, if it was read already.
        """
        row = self._candidate(key) if row is None else row
        place = (row.directory or "").split("/")
        if key.endswith(AGENT) or len(place) != len(("jobs", "task", "job")):
            return JobKey(row.task_id, row.job_id)
        return JobKey(*place[1:])

    def _directory(self, job: JobKey) -> str | None:
        """The directory of a job in this workspace; None if it has none here."""
        path = self._layout.job(*job).directory
        return path if os.path.isdir(path) else None

    def _candidate(self, key: str) -> Any:
        name, _, number = name_of(key).removesuffix(AGENT).rpartition("/")
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
            names = measure_names(self._database, name)
            self._untold.setdefault(name, {}).update((row.number, row_of(row, names)) for row in found)
        wanted = [self._untold.pop(name_of(group), {}) for group in groups]
        return Changes(rows=[row for rows in wanted for row in rows.values()])

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        """Nothing to close: the database is the caller's."""


def _is_attended(connection: Connection, name: str) -> bool:
    """Whether a scheduler of the search, or a worker of the database, is at work."""
    now = connection.execute(select(now_ms())).scalar_one()
    processes = this_machine().processes
    for worker in listed(connection, MemberKind.WORKER):
        here = liveness_of(processes, worker.process)
        # Of a process of this machine the clock says nothing: it may have been set meanwhile.
        if here is Liveness.ALIVE or (here is Liveness.UNKNOWN and abs(now - worker.seen_at) < UNSEEN_MS):
            return True
    active = connection.execute(select(searches.c.active_at).where(searches.c.id == name)).scalar()
    return active is not None and abs(now - active) < UNTICKED_MS


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
