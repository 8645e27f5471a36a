"""The queue and the nodes of the service as a monitor shows them; plain values.
Reads only what the database and the settings know: a node itself is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tenuto.lifecycle.service import ServiceState
from tenuto.service.history import Standing
from tenuto.service.node_notes import NodeNote
from tenuto.settings.service import OfferedSettings


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
