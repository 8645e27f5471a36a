"""What doors show besides jobs: tokens, queue, nodes, archives, energy, clean-up, results.
The panels of all doors are put together, and kept for a moment, because some of them are slow to find.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tenuto.clock import Clock
from tenuto.errors import NotFound
from tenuto.jobs.parameters import importance
from tenuto.jobs.row import Group, Result, Row
from tenuto.jobs.source import Source
from tenuto.lifecycle.owner_names import Door
from tenuto.monitor import shapes

FRESH_S = {"cleanup": 5.0}
_FRESH_S = 0.5
FIXED = ("key", "task", "id", "state")
"""The columns that every result has."""
NUMBER, TEXT = "number", "text"


class PanelReader:
    """Asks the doors for their panels."""

    def __init__(self, sources: Mapping[str, Source], clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._kept: dict[str, tuple[float, list[Any]]] = {}
        self._locks = {name: threading.Lock() for name in ("tokens", "queue", "nodes", "archives", "cleanup")}

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

    def cleanup(self) -> Any:
        """Running jobs that no live run owns, finished jobs of no run, alarms."""
        found = self._found("cleanup")
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

    def archive(self, group: str) -> dict[str, Any]:
        """The archive of a search."""
        archives = self._found("archives")
        found = next((one for several in archives for one in several if one.get("group") == group), None)
        if found is None:
            raise NotFound(f"nothing here has an archive of {group!r:.200}")
        return archive_of(found)

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
            panels = [getattr(source.panels(name), name) for source in self._sources.values()]
            found = [panel for panel in panels if panel is not None]
            self._kept[name] = (self._clock.monotonic(), found)
            return found


def archive_of(panel: Mapping[str, Any]) -> dict[str, Any]:
    """The archive as a fold of its elites; an elite is (index..., objective, key, since), oldest first.

    A cell is (index..., objective, key, since, times it was replaced, how much better the last one was).
    """
    measures = len(panel["axes"])
    sign = -1 if panel.get("direction") == "min" else 1
    cells: dict[tuple[int, ...], list[Any]] = {}
    for elite in panel["elites"]:
        *index, objective, key, since = elite
        place = tuple(index)
        before = cells.get(place)
        times = 0 if before is None else before[measures + 3] + 1
        gain = None if before is None else objective - before[measures]
        cells[place] = [*index, objective, key, since, times, gain]
    objectives = [cell[measures] for cell in cells.values()]
    offset = panel.get("offset") or 0.0
    return {
        "group": panel["group"],
        "axes": list(panel["axes"]),
        "cells": list(cells.values()),
        "in_flight": list(panel["in_flight"]),
        "filled": len(cells),
        "total": panel["total"],
        "best": sign * max(sign * one for one in objectives) if objectives else None,
        "qd_score": math.fsum(sign * (one - offset) for one in objectives) if objectives else None,
        "history": list(panel["history"]),
    }


# Results


class Table(NamedTuple):
    """Columns, and the rows that have them."""

    columns: list[shapes.ColumnJson]
    rows: list[dict[str, Any]]


def shares(results: Sequence[Result], name: str | None) -> dict[str, float]:
    """The importance of each parameter for one number of the results; none if no column was asked for."""
    if name is None:
        return {}
    examples = []
    for one in results:
        target = dict(_named(one.values, {})).get(name)
        if isinstance(target, int | float) and not isinstance(target, bool):
            examples.append(({key: _plain(value) for key, value in one.tags.items()}, float(target)))
    return importance(examples)


def _plain(value: Any) -> Any:
    number = _number(value)
    return value if number is None else number


def table(results: Iterable[Result], task: str | None = None, less: Collection[str] = ()) -> Table:
    """The results of jobs, of one task if given. A tag that looks like a number is one.

    `less`: the columns of which smaller values are better.
    """
    chosen = [one for one in results if task is None or one.task == task]
    rows = [_row(one) for one in chosen]
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        if name not in FIXED and _are_numbers([row[name] for row in rows if name in row]):
            for row in rows:
                if name in row:
                    row[name] = _number(row[name])
    columns = [_column(name, [row[name] for row in rows if name in row]) for name in names]
    for column in columns:
        if column["name"] in less:
            column["less"] = True
    return Table(columns, [{name: row.get(name) for name in names} for row in rows])


def _row(result: Result) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": result.key,
        "task": result.task,
        "id": _id(result.key),
        "state": result.state.name.lower(),
    }
    row.update(_named(result.tags, row))
    for name, value in _named(result.values, row):
        row[name] = (
            value if isinstance(value, bool | int | float | str | None) else json.dumps(value, default=str)
        )
    return row


def _id(key: str) -> str:
    """The whole id in a key, as its row has it."""
    door, _, name = key.partition(":")
    task, _, number = name.rpartition("/")
    return number if door == Door.EXPERIMENTS.value else f"{task}#{number}"


def _named(values: Mapping[str, Any], row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(f"tag.{name}" if name in row else name, value) for name, value in values.items()]


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool | int):
        return int(value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _are_numbers(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(_number(value) is not None for value in known)


def _column(name: str, values: Sequence[Any]) -> shapes.ColumnJson:
    known = [value for value in values if value is not None]
    if name in FIXED or not known or not all(isinstance(value, int | float) for value in known):
        return {"name": name, "kind": TEXT, "min": None, "max": None}
    return {"name": name, "kind": NUMBER, "min": float(min(known)), "max": float(max(known))}
