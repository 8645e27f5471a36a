"""The jobs of the service as a monitor sees them: each service a group, each upload a row.
The only module of this room that a monitor imports; it changes nothing but by `act`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Select, func, select

from tenuto.clock import SystemClock
from tenuto.database import Database, LateIds, now_ms
from tenuto.errors import NotFound
from tenuto.jobs.metrics import points_in
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
from tenuto.jobs.text import duration
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.service import ServiceState
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.service.archive import read_archived_log, read_log
from tenuto.service.data_paths import DataPaths
from tenuto.service.decisions import Quota, waiting_message
from tenuto.service.names import OWN_DIRECTORY
from tenuto.service.requests import MOVES_CHANNEL, NodeNote, Requests, noted_nodes
from tenuto.service.rows import JobRow, Move, job_of, move_of
from tenuto.service.tables import jobs, moves
from tenuto.settings.service import OfferedSettings
from tenuto.workspace.layout import METRICS
from tenuto.workspace.points import Points

_STATES: Mapping[ServiceState, tuple[JobState, JobFailureStatus | None]] = {
    ServiceState.QUEUED: (JobState.WAITING, None),
    ServiceState.PROCESSING: (JobState.READY, None),
    ServiceState.SUBMITTED: (JobState.SCHEDULED, None),
    ServiceState.RUNNING: (JobState.RUNNING, None),
    ServiceState.UNKNOWN: (JobState.RUNNING, None),
    ServiceState.COMPLETED: (JobState.DONE, None),
    ServiceState.FAILED: (JobState.ERROR, JobFailureStatus.FAILED),
    ServiceState.INVALID: (JobState.ERROR, JobFailureStatus.REJECTED),
    ServiceState.KILLED: (JobState.ERROR, JobFailureStatus.CANCELLED),
    ServiceState.CLEANED: (JobState.ERROR, JobFailureStatus.DELETED),
}
_REFUSED = {
    Action.RETRY: "a payload is never run again: upload it anew",
    Action.PAUSE: "a service cannot be paused: stop its server to drain it",
    Action.RESUME: "a service is never paused: start its server with tenuto serve",
    Action.CLEAN: "the server removes its files by itself, max_age after its end",
}
_STREAMS = {"out": "stdout", "err": "stderr"}
_MOST = 1 << 30
MOST_METRICS = 64 << 20
"""Bytes of an upload's metrics that are read: half a million points, of a user that nobody knows."""
R = TypeVar("R")
TAKE_UP = "tenuto serve"
UNSEEN_MS = 60_000
"""A server that is at work says so every few seconds; one that is started again is back sooner."""
RECENT_MS = 24 * 3600 * 1000
"""How long an ended job is listed without being asked for."""
_READ_AGAIN = 100
"""Moves before a feed was opened in which a gap may still be filled."""


class _Wait(NamedTuple):
    """What a queued job waits for."""

    message: str
    position: int
    expected: datetime | None


class ServiceSource:
    """A `Source` over a server's database and data directory."""

    door = Door.SERVICE

    def __init__(
        self, database: Database, data: str, offered: Mapping[str, OfferedSettings] | None = None
    ) -> None:
        """`offered`: the services that the settings here declare."""
        self._offered = offered or {}
        self._database = database
        self._history = History(database)
        self._requests = Requests(database, "monitor")
        self._places = DataPaths(data)

    def groups(self) -> Sequence[Group]:
        take_up = TAKE_UP if self.driver("").is_at_work is False else None
        found = [
            Group(
                f"{Door.SERVICE.value}:{name}",
                Door.SERVICE,
                name,
                state="offered",
                live=True,
                started=_instant(first),
                total=total,
                take_up=take_up,
            )
            for name, total, first in self._services()
        ]
        return sorted(
            found, key=lambda group: group.started or datetime.min.replace(tzinfo=UTC), reverse=True
        )

    def _services(self) -> list[tuple[str, int, int | None]]:
        """(name, number of jobs, when the first was uploaded) of each service with jobs, or offered."""
        found = self._history.services()
        used = {name for name, *_ in found}
        return [*found, *((name, 0, None) for name in self._offered if name not in used)]

    def rows(self, group: str) -> Iterator[Sequence[Row]]:
        after = 0
        while chunk := self._history.page(_service(group), after, CHUNK_ROWS):
            yield [_row(row) for row in chunk]
            after = chunk[-1].id

    def group(self, group: str) -> Group | None:
        return next((one for one in self.groups() if one.group == group), None)

    def driver(self, group: str) -> Driver:
        # Without a server no end is recorded: rows stay as it left them, whether nodes run on or not.
        is_at_work = self._requests.is_served(UNSEEN_MS)
        return Driver(is_at_work, TAKE_UP, has_payloads=None if is_at_work else False)

    def stamp(self, group: str) -> object:
        return self._database.stamp()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None] | None:
        if self._database.is_sqlite:
            return None
        return self._database.wakeups.listen(MOVES_CHANNEL, wake)

    def counts(self, group: str) -> Mapping[JobState, int]:
        found: dict[JobState, int] = {}
        for state, is_done, number in self._history.counts(_service(group)):
            shown = JobState.DONE if state is ServiceState.CLEANED and is_done else _STATES[state][0]
            found[shown] = found.get(shown, 0) + number
        return found

    def about(self, group: str) -> Mapping[str, Any]:
        panels = self.panels("queue")
        queue = panels.queue["services"] if panels.queue is not None else ()
        return {"queue": next((one for one in queue if one["name"] == _service(group)), None)}

    def listed(self) -> Iterator[Sequence[Row]]:
        yield [_row(row) for row in self._history.recent(RECENT_MS)]

    def every(self) -> Iterator[Sequence[Row]]:
        for group in self.groups():
            yield from self.rows(group.group)

    def find(self, name: str) -> Sequence[str]:
        service, _, number = name.rpartition("#")
        if not service or not number.isdecimal() or len(number) >= 19:
            return ()
        row = self._requests.get(int(number))
        if row is None or not any(service == known for known, _, _ in self._history.services()):
            return ()
        if row.service != service:
            raise NotFound(f"job {number} is of another service: {row.service}#{number}")
        return [_key(service, row.id)]

    def feed(self) -> Feed:
        return ServiceFeed(self._history)

    def detail(self, key: str) -> Detail:
        row = self._job(key)
        shown = _row(row)
        sender = f"-F user_id={quote(row.user_id)} -F service={quote(row.service)}"
        offered = self._offered.get(row.service)
        files = offered.inputs if offered is not None and offered.command else ("run.sh",)
        sender += "".join(f" -F {quote(f'file=@{name}')}" for name in files if not name.endswith("?"))
        fields: dict[str, Any] = {
            "directory": os.path.abspath(self._places.job(row.directory).directory),
            "parameters": dict(self.parameters(key)),
            "attempts": [_attempt(row, shown)] if shown.attempt else [],
            "commands": [
                f"curl {sender} $SERVER/upload",
                f"curl -o results.zip $SERVER/download/{row.id}",
            ],
        }
        if (wait := self._wait(row)) is not None:
            expected = None if wait.expected is None else wait.expected.isoformat()
            fields |= {"position": wait.position, "expected_start": expected}
        return Detail(shown, fields)

    def why(self, key: str) -> Why:
        row = self._job(key)
        sentences = [f"{row.state.value}: {row.state.meaning}"]
        if row.message:
            sentences.append(row.message)
        wait = self._wait(row)
        if wait is not None:
            if wait.message and not row.message:
                sentences.append(wait.message)
            sentences.append(f"its place in the queue of {row.service} is {wait.position}")
            if wait.expected is not None:
                left = duration(max((wait.expected - SystemClock().now()).total_seconds(), 0.0))
                sentences.append(f"it is expected to start in {left}, if jobs take as long as lately")
        if row.exit_code is not None:
            sentences.append(f"its exit code was {row.exit_code}")
        return Why(tuple(sentences))

    def _wait(self, row: JobRow) -> _Wait | None:
        """Where a queued job stands; None of one that does not wait."""
        if row.state is not ServiceState.QUEUED:
            return None
        line, settings = self._requests.line(row), self._offered.get(row.service)
        if settings is None:
            return _Wait("", line.position, None)
        quota = Quota(settings.runs_per_user, settings.max_runs)
        noted = {name: note.slots or 0 for name, note in self._history.nodes().items()}
        named = [str(node) for node in settings.nodes] or list(noted)
        slots = {node: noted[node] for node in named} if noted.keys() >= set(named) else None
        _, in_hand = self._requests.active(row.service)
        message = waiting_message(row.user_id, line.active, quota, row.service, slots or None, in_hand)
        places = sum(noted.get(node, 0) // settings.cpus for node in named)
        return _Wait(message, line.position, _instant(line.expected_start(quota, places)))

    def log(self, key: str, stream: str, earlier: int) -> Log:
        return ServiceLog(self._job(key), _STREAMS[stream], self._places)

    def metrics(self, key: str) -> Points:
        log = ServiceLog(self._job(key), METRICS, self._places)
        return points_in(log.read(0, MOST_METRICS))

    def metrics_stamp(self, key: str) -> object:
        return ServiceLog(self._job(key), METRICS, self._places).size() or None

    def moments(self, group: str) -> Iterator[Moment]:
        after = 0
        service = _service(group)
        attempts = {row.key: row.attempt for chunk in self.rows(group) for row in chunk}
        while chunk := self._history.moves(service, after, CHUNK_ROWS):
            for move in chunk:
                state, reason = _STATES[move.state]
                key = _key(service, move.job_id)
                yield Moment(_at(move.at), key, state, attempts.get(key, 0), reason)
            after = chunk[-1].id

    def results(self, group: str) -> Iterator[Result]:
        for chunk in self.rows(group):
            for row in chunk:
                if row.state is JobState.DONE:
                    yield Result(row.key, row.task, row.state)

    def parameters(self, key: str) -> Mapping[str, Any]:
        row = self._job(key)
        return {"user_id": row.user_id, "service": row.service}

    def panels(self, only: str | None = None) -> Panels:
        if only not in (None, "queue", "nodes"):
            return Panels()
        unfinished = self._history.unfinished()
        return Panels(
            queue=queue_panel(unfinished, self._offered, SystemClock().now()),
            nodes=node_panel(unfinished, self._offered, self._history.nodes()),
        )

    def act(self, action: Action, targets: Sequence[Target], *, dry_run: bool, by: str) -> Sequence[Acted]:
        return [self._act(action, target, dry_run) for target in targets]

    def _act(self, action: Action, target: Target, dry_run: bool) -> Acted:
        if action in (Action.PAUSE, Action.RESUME):
            return Acted(target.key, ActedAs.REFUSED, _REFUSED[action])
        try:
            row = self._job(target.key)
        except NotFound:
            return Acted(target.key, ActedAs.GONE)
        if action is not Action.KILL:
            return Acted(target.key, ActedAs.REFUSED, _REFUSED[action], row.claim)
        if row.state.is_final:
            return Acted(target.key, ActedAs.NOT_RUNNING, f"it is {row.state.value}", row.claim)
        if row.claim != target.attempt:
            return Acted(target.key, ActedAs.STALE, "another server has it by now", row.claim)
        if dry_run:
            return Acted(target.key, ActedAs.WOULD_KILL, attempt=row.claim)
        self._requests.terminate(row.id)
        return Acted(target.key, ActedAs.ASKED, attempt=row.claim)

    def _job(self, key: str) -> JobRow:
        service, _, number = key.removeprefix(f"{Door.SERVICE.value}:").rpartition("/")
        row = self._requests.get(int(number)) if number.isdecimal() and len(number) < 19 else None
        if row is None or row.service != service:
            raise NotFound(f"there is no job {key!r:.100} of a service")
        return row


class ServiceFeed:
    """What happens from now on, found by the numbers of moves."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._seen = LateIds(history.last_moves(_READ_AGAIN))
        self._untold: dict[str, dict[int, JobRow]] = {}
        """Service -> jobs that moved while its rows were still being read."""

    def read(self, groups: Collection[str], limit: int) -> Changes:
        if not groups:
            return Changes()
        moved = self._history.moved_since(self._seen.last, limit, self._seen.missing)
        self._seen.saw(move_id for move_id, _ in moved)
        for _, row in moved:
            self._untold.setdefault(row.service, {})[row.id] = row
        wanted = [self._untold.pop(_service(group), {}) for group in groups]
        return Changes(rows=[_row(row) for rows in wanted for row in rows.values()])

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        pass


class ServiceLog:
    """What a job printed: of an ended one from its result, of another from the embedded node's files."""

    def __init__(self, row: JobRow, stream: str, places: DataPaths) -> None:
        self.attempt = row.claim
        self._row = row
        self._stream = stream
        self._result = places.job(row.directory).result
        self._live = _embedded_log(places.root, row.id, stream)

    def size(self) -> int:
        if self.ended():
            return len(self.read(0, _MOST))
        return os.path.getsize(self._live) if self._live and os.path.exists(self._live) else 0

    def read(self, offset: int, limit: int) -> bytes:
        if self.ended():
            found = read_archived_log(self._result, self._stream, offset, limit, as_packed=True)
            return b"" if found is None else found.data
        if self._live is None or not os.path.exists(self._live):
            return b""
        try:
            return read_log(self._live, offset, limit, _MOST).data
        except FileNotFoundError:
            return b""

    def ended(self) -> bool:
        return self._row.state.is_final


def _embedded_log(data: str, job_id: int, stream: str) -> str | None:
    """The log of a payload of the embedded node; None if the job runs elsewhere."""
    payloads = f"{data}/node/jobs/payload"
    names = os.listdir(payloads) if os.path.isdir(payloads) else []
    ends = {"stdout": "payload.out", "stderr": "payload.err", METRICS: f"work/{OWN_DIRECTORY}/{METRICS}"}
    return next(
        (f"{payloads}/{name}/{ends[stream]}" for name in names if name.startswith(f"{job_id}-")), None
    )


def _attempt(row: JobRow, shown: Row) -> dict[str, Any]:
    """The one attempt of an upload."""
    return {
        "attempt": row.claim,
        "started": shown.started.isoformat() if shown.started else None,
        "ended": shown.ended.isoformat() if shown.ended else None,
        "state": shown.state.name.lower(),
        "reason": shown.reason.name.lower() if shown.reason else None,
        "message": row.message or None,
        "exit_code": row.exit_code,
        "signal": None,
        "host": row.node,
        "pid": None,
        "launcher": None,
        "usage": {},
    }


def _service(group: str) -> str:
    return group.removeprefix(f"{Door.SERVICE.value}:")


def _key(service: str, job_id: int) -> str:
    return row_key(Door.SERVICE, service, str(job_id))


def _instant(ms: int | None) -> datetime | None:
    return None if ms is None else _at(ms)


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _row(row: JobRow) -> Row:
    state, reason = _STATES[row.state]
    if row.state is ServiceState.CLEANED and row.exit_code == 0:
        state, reason = JobState.DONE, None
    return Row(
        _key(row.service, row.id),
        f"{Door.SERVICE.value}:{row.service}",
        Door.SERVICE,
        row.service,
        f"{row.service}#{row.id}",
        state,
        row.state.value,
        reason,
        row.message or None,
        row.claim,
        owner=row.user_id,
        where=row.node or "",
        submitted=_instant(row.created_at),
        started=_instant(row.started_at),
        ended=_instant(row.ended_at),
        alarm="its node does not answer" if row.state is ServiceState.UNKNOWN else None,
    )


class Unfinished(NamedTuple):
    """How many unfinished jobs of one user and service are in one state on one node."""

    service: str
    user: str
    state: ServiceState
    node: str | None
    jobs: int
    oldest: int
    """When the first of them was uploaded, in milliseconds."""
    newest: int


class History:
    """The jobs of one database, to be looked at from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def services(self) -> list[tuple[str, int, int | None]]:
        """(name, number of jobs, when the first was uploaded) of each service."""
        query = select(jobs.c.service, func.count(), func.min(jobs.c.created_at)).group_by(jobs.c.service)
        return self._read(query, tuple)

    def page(self, service: str, after: int, limit: int) -> list[JobRow]:
        """Jobs of a service, the oldest first, with ids above this."""
        query = select(jobs).where(jobs.c.service == service, jobs.c.id > after)
        query = query.order_by(jobs.c.id).limit(limit)
        return self._read(query, job_of)

    def counts(self, service: str) -> list[tuple[ServiceState, bool, int]]:
        """(state, whether it ended with exit code 0, number of jobs) of a service."""
        is_done = func.coalesce(jobs.c.exit_code == 0, False)
        query = select(jobs.c.state, is_done, func.count()).where(jobs.c.service == service)
        query = query.group_by(jobs.c.state, is_done)
        return self._read(query, lambda row: (ServiceState(row[0]), bool(row[1]), row[2]))

    def recent(self, age_ms: int) -> list[JobRow]:
        """The jobs that have not ended, or ended at most so long ago; the oldest first."""
        final = [state.value for state in ServiceState if state.is_final]
        query = select(jobs).where(jobs.c.state.not_in(final) | (jobs.c.ended_at > now_ms() - age_ms))
        query = query.order_by(jobs.c.id)
        return self._read(query, job_of)

    def moves(self, service: str, after: int, limit: int) -> list[Move]:
        """Moves of a service's jobs, the oldest first, with ids above this."""
        query = select(moves).join(jobs, jobs.c.id == moves.c.job_id)
        query = query.where(jobs.c.service == service, moves.c.id > after).order_by(moves.c.id).limit(limit)
        return self._read(query, move_of)

    def last_moves(self, count: int) -> Sequence[int]:
        """The ids of the last moves of all."""
        query = select(moves.c.id).order_by(moves.c.id.desc()).limit(count)
        return self._read(query, lambda row: row[0])

    def moved_since(self, after: int, limit: int, late: Sequence[int] = ()) -> list[tuple[int, JobRow]]:
        """(id of the move, job) of the moves since the one with this id, and of those in `late`."""
        query = select(moves.c.id.label("move_id"), jobs).join(jobs, jobs.c.id == moves.c.job_id)
        is_new = moves.c.id > after
        query = query.where(is_new | moves.c.id.in_(late) if late else is_new)
        query = query.order_by(moves.c.id).limit(limit)
        return self._read(query, lambda row: (row[0], job_of(row[1:])))

    def _read(self, query: Select[Any], make: Callable[[Any], R]) -> list[R]:
        return self._database.read(lambda connection: [make(row) for row in connection.execute(query)])

    def nodes(self) -> dict[str, NodeNote]:
        """What servers noted of their nodes, by name."""
        return self._database.read(noted_nodes)

    def unfinished(self) -> list[Unfinished]:
        """The jobs that wait or are on a node, counted by service, user, state and node."""
        open_states = [state.value for state in ServiceState if not state.is_final]
        by = (jobs.c.service, jobs.c.user_id, jobs.c.state, jobs.c.node)
        oldest, newest = (
            func.min(jobs.c.created_at),
            func.max(func.coalesce(jobs.c.started_at, jobs.c.created_at)),
        )
        query = select(*by, func.count(), oldest, newest).where(jobs.c.state.in_(open_states)).group_by(*by)
        return self._read(query, lambda row: Unfinished(row[0], row[1], ServiceState(row[2]), *row[3:]))


# The queue and the nodes, as plain values


def queue_panel(
    unfinished: Sequence[Unfinished], offered: Mapping[str, OfferedSettings], now: datetime
) -> dict[str, Any]:
    """How many jobs of each service and of each user wait and run, against their quotas."""
    services = sorted({*offered, *(one.service for one in unfinished)})
    users = sorted({(one.service, one.user) for one in unfinished})
    return {
        "services": [_service_panel(name, unfinished, offered.get(name), now) for name in services],
        "users": [
            {
                "user": user,
                "service": service,
                "queued": _jobs(unfinished, service, user, is_queued=True),
                "running": _jobs(unfinished, service, user, is_queued=False),
                "quota": offered[service].runs_per_user if service in offered else None,
            }
            for service, user in users
        ],
    }


def node_panel(
    unfinished: Sequence[Unfinished], offered: Mapping[str, OfferedSettings], noted: Mapping[str, NodeNote]
) -> list[dict[str, Any]]:
    """The nodes that settings name, that have jobs, or that a server noted: how many of their slots are busy.

    Of a node that never answered, load and slots are None.
    """
    nodes = {name: [str(node) for node in one.nodes] for name, one in offered.items()}
    urls = sorted(
        {
            *(url for some in nodes.values() for url in some),
            *(one.node for one in unfinished if one.node),
            *noted,
        }
    )
    found = []
    for url in urls:
        mine = [one for one in unfinished if one.node == url and one.state is not ServiceState.QUEUED]
        lost = sum(one.jobs for one in mine if one.state is ServiceState.UNKNOWN)
        newest = [one.newest for one in mine if one.state is not ServiceState.UNKNOWN]
        note = noted.get(url)
        seen = max([*newest, *([note.seen_at] if note is not None else [])], default=None)
        slots = note.slots if note is not None else None
        running = sum(one.jobs for one in mine)
        found.append(
            {
                "url": url,
                "services": sorted(
                    {*(name for name, some in nodes.items() if url in some), *(one.service for one in mine)}
                ),
                "state": "away" if lost else "busy" if mine else "idle",
                "load": running / slots if slots else None,
                "running": running,
                "slots": slots,
                "seen": None if seen is None else datetime.fromtimestamp(seen / 1000, UTC).isoformat(),
                "failures": lost,
            }
        )
    return found


def _service_panel(
    name: str, unfinished: Sequence[Unfinished], quota: OfferedSettings | None, now: datetime
) -> dict[str, Any]:
    waiting = [one.oldest for one in unfinished if one.service == name and one.state is ServiceState.QUEUED]
    return {
        "name": name,
        "queued": _jobs(unfinished, name, is_queued=True),
        "running": _jobs(unfinished, name, is_queued=False),
        "max_runs": quota.max_runs if quota else None,
        "runs_per_user": quota.runs_per_user if quota else None,
        "oldest_s": max(now.timestamp() - min(waiting) / 1000, 0.0) if waiting else None,
    }


def _jobs(unfinished: Sequence[Unfinished], service: str, user: str | None = None, *, is_queued: bool) -> int:
    return sum(
        one.jobs
        for one in unfinished
        if one.service == service
        and user in (None, one.user)
        and (one.state is ServiceState.QUEUED) is is_queued
    )
