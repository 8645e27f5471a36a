"""Values in the words of the terminal: states, counts, energy, instants, names of jobs and groups.
Pure: plain JSON values of the state provider in, short texts out; `cells` makes them harmless.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tenuto.jobs.row import SHOWN_DIGITS
from tenuto.jobs.text import UNKNOWN
from tenuto.lifecycle.owner_names import Door
from tenuto.monitor import shapes

GLYPHS = {
    "running": "▶",
    "done": "✓",
    "error": "✗",
    "waiting": "…",
    "ready": "○",
    "scheduled": "◔",
    "unscheduled": "·",
}
COUNTED = ("done", "running", "scheduled", "ready", "waiting", "unscheduled", "error")
_DOORS = {"service": "svc ", "search": "evo "}
_RUN = re.compile(r"(\d{4})(\d{4})_(\d{4})(\d{2})?")


def glyph(state: str) -> str:
    """The sign of a state."""
    return GLYPHS.get(state, "·")


def state_words(job: shapes.Job) -> str:
    """A state as its sign and word, and the word of the door where it says more."""
    own = job["status"]
    more = f" ({own})" if own and own.lower() != job["state"] else ""
    return f"{glyph(job['state'])} {job['state']}{more}"


def percent(fraction: float | None) -> str:
    """``57%``."""
    return "" if fraction is None else f"{int(fraction * 100)}%"


def number(value: float | None) -> str:
    """``12,040`` or five digits of a fraction."""
    if value is None:
        return UNKNOWN
    if isinstance(value, int) or value.is_integer():
        return f"{int(value):,}"
    return f"{value:.5g}"


def energy(kwh: float | None) -> str:
    """``0.21kWh`` or ``21Wh``."""
    if kwh is None:
        return UNKNOWN
    return f"{kwh * 1000:.2g}Wh" if kwh < 0.1 else f"{kwh:.2f}kWh"


def instant(text: str | None) -> datetime | None:
    """An instant of an answer, in the zone of this machine."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return None


def clock(text: str | None, now: str | None = None) -> str:
    """The time of day of an instant; with its date if `now` is another day."""
    at = instant(text)
    if at is None:
        return UNKNOWN
    current = instant(now)
    is_today = current is None or at.date() == current.date()
    return at.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


def seconds_between(start: str | None, end: str | None) -> float | None:
    """How long it took from one instant to another."""
    first, last = instant(start), instant(end)
    return None if first is None or last is None else (last - first).total_seconds()


def short_task(task: str) -> str:
    """A task without its module."""
    return task.rpartition(".")[2] or task


def key_id(key: str) -> str:
    """The name of a job by its key: ``1902e8bd``, ``packing#12``."""
    door, _, name = key.partition(":")
    task, _, job_id = name.rpartition("/")
    return job_id[:SHOWN_DIGITS] if door == Door.EXPERIMENTS.value else f"{task}#{job_id}"


def key_name(key: str) -> str:
    """A job by its key, with its task where its name does not say it: ``Train 1902e8bd``, ``packing#12``."""
    door, _, name = key.partition(":")
    task = f"{short_task(name.rpartition('/')[0])} " if door == Door.EXPERIMENTS.value else ""
    return f"{task}{key_id(key)}"


def group_glyph(group: shapes.Group) -> str:
    """▶ at work, ✗ with failures or without a driver though jobs are left, ✓ else."""
    if group["live"]:
        return GLYPHS["running"]
    is_stopped = group["take_up"] or re.search("fail|error|lost|interrupt", group["state"].lower())
    has_failed = is_stopped or (group["kind"] == "experiment" and group["counts"].get("error", 0))
    return GLYPHS["error" if has_failed else "done"]


def group_state(group: shapes.Group) -> str:
    """The state whose colour a group has."""
    return {"▶": "running", "✗": "error"}.get(group_glyph(group), "done")


def short_run(run: str, now: str | None = None) -> str:
    """A run by its time; by day and time if it is of another day."""
    found = _RUN.match(run)
    if found is None:
        return run
    rest = run[found.end() :]
    today = (now or "")[:10].replace("-", "")
    day, time = found[2], found[3]
    return (time if found[1] + day == today else f"{day}_{time}") + rest


def key_group_name(group: str, now: str | None = None) -> str:
    """A group by its key: ``sweep/1402``, ``svc haddock``, ``evo packing``; a run of today by its time."""
    door, _, name = group.partition(":")
    title, between, run = name.rpartition("/")
    if door != Door.EXPERIMENTS.value or not between:
        return _DOORS.get(door, "") + name
    return f"{title}/{short_run(run, now)}"


def waits(group: shapes.Group) -> int:
    """The jobs of a group that have not begun."""
    counts = group["counts"]
    return sum(counts.get(state, 0) for state in ("waiting", "ready", "scheduled", "unscheduled"))


def told(job: shapes.Job) -> str:
    """The words of a job: its progress, its dependencies, the cause of its failure."""
    if job["state"] == "running":
        return job["progress_desc"] or job["alarm"] or ""
    reason = f"{job['reason'].upper()}: " if job["state"] == "error" and job["reason"] else ""
    return f"{reason}{job['message'] or job['alarm'] or ''}"


def tag_text(value: Any) -> str:
    """The value of a tag, all of them where it has several: ``A,B``."""
    return ",".join(map(plain, value)) if isinstance(value, list) else plain(value)


def tag_words(tags: Mapping[str, Any]) -> str:
    """``lr=0.1 seed=3``."""
    return " ".join(f"{name}={tag_text(value)}" for name, value in tags.items())


def plain(value: Any) -> str:
    """A JSON value as a person writes it: a text without quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parameter_words(parameters: Mapping[str, Any]) -> str:
    """``lr 0.1 · epochs 30``."""
    return " · ".join(f"{name} {plain(value)}" for name, value in parameters.items())


def nearest_words(nearest: Mapping[str, Any]) -> str:
    """``7f3a91c2, differs in lr 0.1 ← 0.01``."""
    changed = nearest.get("changed")
    parts = [
        f"{one.get('parameter')} {plain(one.get('here'))} ← {plain(one.get('there'))}"
        for one in (changed if isinstance(changed, list) else [])
        if isinstance(one, dict)
    ]
    words = str(nearest.get("id", ""))[:SHOWN_DIGITS]
    return f"{words}, differs in {', '.join(parts)}" if parts else words


def filter_value(value: str) -> str:
    """A value of a filter, quoted where the language asks for it."""
    if re.fullmatch(r"[\w.+-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def attempt_words(attempt: int, most: int | None = None) -> str:
    """``attempt 2 of 4``: of a job that a person tried more often, only which attempt it is."""
    if not attempt:
        return "never started"
    return f"attempt {attempt} of {most}" if most is not None and attempt <= most else f"attempt {attempt}"


def count_spans(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Each state that has jobs, with its sign and number: ``▶ 6``."""
    return [(f"{glyph(state)} {number(counts[state])}", state) for state in COUNTED if counts.get(state)]
