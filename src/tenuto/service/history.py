"""What a monitor reads of jobs: whole services, their moves, and the queue and nodes as it shows them.
Reads only what the database and the settings know; a node itself is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import func, select

from tenuto.database import Database, now_ms
from tenuto.lifecycle.service import ServiceState
from tenuto.service.node_notes import NodeNote, noted_nodes
from tenuto.service.rows import JobRow, Move, job_of, move_of
from tenuto.service.tables import jobs, moves
from tenuto.settings.service import OfferedSettings


class Standing(NamedTuple):
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

    def services(self) -> list[tuple[str, int, int]]:
        """(name, number of jobs, when the first was uploaded) of each service."""
        query = select(jobs.c.service, func.count(), func.min(jobs.c.created_at)).group_by(jobs.c.service)
        return self._database.read(
            lambda connection: [(row[0], row[1], row[2]) for row in connection.execute(query)]
        )

    def page(self, service: str, after: int, limit: int) -> list[JobRow]:
        """Jobs of a service, the oldest first, with ids above this."""
        query = select(jobs).where(jobs.c.service == service, jobs.c.id > after)
        query = query.order_by(jobs.c.id).limit(limit)
        return self._database.read(lambda connection: [job_of(row) for row in connection.execute(query)])

    def counts(self, service: str) -> list[tuple[ServiceState, bool, int]]:
        """(state, whether it ended with exit code 0, number of jobs) of a service."""
        is_done = func.coalesce(jobs.c.exit_code == 0, False)
        query = select(jobs.c.state, is_done, func.count()).where(jobs.c.service == service)
        query = query.group_by(jobs.c.state, is_done)
        found = self._database.read(lambda connection: connection.execute(query).all())
        return [(ServiceState(row[0]), bool(row[1]), row[2]) for row in found]

    def recent(self, age_ms: int) -> list[JobRow]:
        """The jobs that have not ended, or ended at most so long ago; the oldest first."""
        final = [state.value for state in ServiceState if state.is_final]
        query = select(jobs).where(jobs.c.state.not_in(final) | (jobs.c.ended_at > now_ms() - age_ms))
        query = query.order_by(jobs.c.id)
        return self._database.read(lambda connection: [job_of(row) for row in connection.execute(query)])

    def moves(self, service: str, after: int, limit: int) -> list[Move]:
        """Moves of a service's jobs, the oldest first, with ids above this."""
        query = select(moves).join(jobs, jobs.c.id == moves.c.job_id)
        query = query.where(jobs.c.service == service, moves.c.id > after).order_by(moves.c.id).limit(limit)
        return self._database.read(lambda connection: [move_of(row) for row in connection.execute(query)])

    def last_moves(self, count: int) -> Sequence[int]:
        """The ids of the last moves of all."""
        query = select(moves.c.id).order_by(moves.c.id.desc()).limit(count)
        return self._database.read(lambda connection: connection.execute(query).scalars().all())

    def moved_since(self, after: int, limit: int, late: Sequence[int] = ()) -> list[tuple[int, JobRow]]:
        """(id of the move, job) of the moves since the one with this id, and of those in `late`."""
        query = select(moves.c.id.label("move_id"), jobs).join(jobs, jobs.c.id == moves.c.job_id)
        is_new = moves.c.id > after
        query = query.where(is_new | moves.c.id.in_(late) if late else is_new)
        query = query.order_by(moves.c.id).limit(limit)
        return self._database.read(
            lambda connection: [(row[0], job_of(row[1:])) for row in connection.execute(query)]
        )

    def nodes(self) -> dict[str, NodeNote]:
        """What servers noted of their nodes, by name."""
        return self._database.read(noted_nodes)

    def unfinished(self) -> list[Standing]:
        """The jobs that wait or are on a node, counted by service, user, state and node."""
        open_states = [state.value for state in ServiceState if not state.is_final]
        by = (jobs.c.service, jobs.c.user_id, jobs.c.state, jobs.c.node)
        oldest, newest = (
            func.min(jobs.c.created_at),
            func.max(func.coalesce(jobs.c.started_at, jobs.c.created_at)),
        )
        query = select(*by, func.count(), oldest, newest).where(jobs.c.state.in_(open_states)).group_by(*by)
        found = self._database.read(lambda connection: connection.execute(query).all())
        return [Standing(row[0], row[1], ServiceState(row[2]), *row[3:]) for row in found]


# The queue and the nodes, as plain values


def queue_panel(
    standing: Sequence[Standing], offered: Mapping[str, OfferedSettings], now: datetime
) -> dict[str, Any]:
    """How many jobs of each service and of each user wait and run, against their quotas."""
    services = sorted({*offered, *(one.service for one in standing)})
    users = sorted({(one.service, one.user) for one in standing})
    return {
        "services": [_service(name, standing, offered.get(name), now) for name in services],
        "users": [
            {
                "user": user,
                "service": service,
                "queued": _jobs(standing, service, user, is_queued=True),
                "running": _jobs(standing, service, user, is_queued=False),
                "quota": offered[service].runs_per_user if service in offered else None,
            }
            for service, user in users
        ],
    }


def node_panel(
    standing: Sequence[Standing], offered: Mapping[str, OfferedSettings], noted: Mapping[str, NodeNote]
) -> list[dict[str, Any]]:
    """The nodes that settings name, that have jobs, or that a server noted: how many of their slots are busy.

    Of a node that never answered, load and slots are None.
    """
    nodes = {name: [str(node) for node in one.nodes] for name, one in offered.items()}
    urls = sorted(
        {
            *(url for some in nodes.values() for url in some),
            *(one.node for one in standing if one.node),
            *noted,
        }
    )
    found = []
    for url in urls:
        mine = [one for one in standing if one.node == url and one.state is not ServiceState.QUEUED]
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


def _service(
    name: str, standing: Sequence[Standing], quota: OfferedSettings | None, now: datetime
) -> dict[str, Any]:
    waiting = [one.oldest for one in standing if one.service == name and one.state is ServiceState.QUEUED]
    return {
        "name": name,
        "queued": _jobs(standing, name, is_queued=True),
        "running": _jobs(standing, name, is_queued=False),
        "max_runs": quota.max_runs if quota else None,
        "runs_per_user": quota.runs_per_user if quota else None,
        "oldest_s": max(now.timestamp() - min(waiting) / 1000, 0.0) if waiting else None,
    }


def _jobs(standing: Sequence[Standing], service: str, user: str | None = None, *, is_queued: bool) -> int:
    return sum(
        one.jobs
        for one in standing
        if one.service == service
        and user in (None, one.user)
        and (one.state is ServiceState.QUEUED) is is_queued
    )
