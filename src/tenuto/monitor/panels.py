"""What doors show besides jobs: tokens, queue, nodes, archives, energy, care; put together from all doors.
Kept for a moment, because some of it is slow to find.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from tenuto.clock import Clock
from tenuto.errors import NotFound
from tenuto.jobs.row import Group, Row
from tenuto.jobs.source import Source
from tenuto.monitor import shapes
from tenuto.monitor.archive import archive_at

FRESH_S = {"care": 5.0}
_FRESH_S = 0.5


class Panels:
    """Asks the doors for their panels."""

    def __init__(self, sources: Mapping[str, Source], clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._kept: dict[str, tuple[float, list[Any]]] = {}
        self._locks = {name: threading.Lock() for name in ("tokens", "queue", "nodes", "archives", "care")}

    def tokens(self) -> list[shapes.Token] | None:
        """The tokens of all doors; None if no door has any such thing."""
        return self._joined("tokens")

    def nodes(self) -> list[dict[str, Any]] | None:
        return self._joined("nodes")

    def queue(self) -> Any:
        """The queues of the doors that have one."""
        found = self._found("queue")
        if not found:
            return None
        return {name: [item for one in found for item in one.get(name, ())] for name in ("services", "users")}

    def care(self) -> Any:
        found = self._found("care")
        if not found:
            return None
        orphans = [one.get("orphans") or {} for one in found]
        return {
            "unowned": [item for one in found for item in one.get("unowned", ())],
            "orphans": {
                "jobs": sum(one.get("jobs", 0) for one in orphans),
                "bytes": sum(one.get("bytes", 0) for one in orphans),
            },
            "alarms": [item for one in found for item in one.get("alarms", ())],
            "bad_lines": sum(one.get("bad_lines", 0) for one in found),
        }

    def archive(self, group: str, at: datetime | None) -> dict[str, Any]:
        """The archive of a search, as it is or as it was."""
        archives = self._found("archives") if at is None else self._asked("archives", at)
        found = next((one for several in archives for one in several if one.get("group") == group), None)
        if found is None:
            raise NotFound(f"no open door has an archive of {group!r:.200}")
        return archive_at(found, at)

    def carbon(self, groups: Iterable[Group], rows: Sequence[Row]) -> Any:
        """What jobs used, by group and by task."""
        per_kwh: dict[str, float | None] = {}
        shown = []
        for group in groups:
            used = group.carbon or {}
            mine = [row.energy_kwh for row in rows if row.group == group.group]
            measured = [one for one in mine if one is not None]
            energy = used.get("energy_kwh", sum(measured) if measured else None)
            per_kwh[group.group] = used["co2_kg"] / energy if energy and used.get("co2_kg") else None
            shown.append(
                {
                    "group": group.group,
                    "co2_kg": used.get("co2_kg"),
                    "energy_kwh": energy,
                    "duration_s": used.get("duration_s"),
                    "region": used.get("region"),
                    "measured": len(measured),
                    "of": len(mine),
                }
            )
        tasks: dict[str, dict[str, Any]] = {}
        for row in rows:
            if row.energy_kwh is None:
                continue
            task = tasks.setdefault(
                row.task, {"task": row.task, "co2_kg": None, "energy_kwh": 0.0, "jobs": 0}
            )
            task["energy_kwh"] += row.energy_kwh
            task["jobs"] += 1
            if (rate := per_kwh.get(row.group)) is not None:
                task["co2_kg"] = (task["co2_kg"] or 0.0) + row.energy_kwh * rate
        return {"groups": shown, "tasks": list(tasks.values())}

    def _joined(self, name: str) -> list[Any] | None:
        found = self._found(name)
        return [item for one in found for item in one] if found else None

    def _found(self, name: str) -> list[Any]:
        """What the doors have of one panel; of several that ask at once, one looks."""
        with self._locks[name]:
            now = self._clock.monotonic()
            kept = self._kept.get(name)
            if kept is not None and now - kept[0] < FRESH_S.get(name, _FRESH_S):
                return kept[1]
            found = self._asked(name)
            self._kept[name] = (self._clock.monotonic(), found)
            return found

    def _asked(self, name: str, at: datetime | None = None) -> list[Any]:
        panels = [getattr(source.panels(name, at), name) for source in self._sources.values()]
        return [panel for panel in panels if panel is not None]
