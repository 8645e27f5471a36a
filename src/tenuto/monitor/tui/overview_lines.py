"""The lines of the overview: a job that runs or waits, a failure, an alarm; and which of them come first.
They are drawn from one answer of the provider; the view asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from tenuto.jobs.causes import same_cause
from tenuto.jobs.text import duration
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.monitor import shapes
from tenuto.monitor.tui.cells import Line, Span, fitted, span, spread
from tenuto.monitor.tui.words import key_id, key_name, percent, short_task, tag_words

_FIRST = 6


class Waiting(NamedTuple):
    """A job that waits for a token."""

    key: str
    words: str


Item = Any
"""A group, a job or what waits, a failure, an alarm; each part of the view has its own."""


def is_of(failure: shapes.Failure, job: shapes.Job) -> bool:
    """True if a job failed of the cause of a failure."""
    reason = JobFailureStatus[failure["reason"].upper()]
    if (job["reason"] or JobFailureStatus.FAILED.name.lower()) != failure["reason"]:
        return False
    message = job["message"] or reason.meaning
    return same_cause(message, failure["error"], failure["place"])


def waiting_jobs(found: Sequence[shapes.Token]) -> list[Waiting]:
    """What waits for tokens, the first of each token."""
    return [
        Waiting(
            one["key"],
            f"waits for {one['amount']} of token {token['name']} "
            f"({token['held']} of {token['capacity'] if token['capacity'] is not None else '?'} units busy)",
        )
        for token in found
        for one in token["waiting"][:3]
    ]


def mixed(running: Sequence[shapes.Job], waiting: Sequence[Waiting]) -> list[Item]:
    """What runs, of each group in turn, so that none hides another; what waits after the first few."""
    of_group: dict[str, list[shapes.Job]] = {}
    for job in running:
        of_group.setdefault(job["group"], []).append(job)
    turns = [one for turn in zip_longest(*of_group.values()) for one in turn if one is not None]
    return [*turns[:_FIRST], *waiting, *turns[_FIRST:]]


def now_line(one: Item, room: int) -> Line:
    """A job that runs, or one that waits for a token."""
    if isinstance(one, Waiting):
        task = key_name(one.key).rpartition(" ")[0]
        name = [span(f"{key_id(one.key):<8} "), *fitted([span(task)], 12)]
        return [Span("… ", "waiting"), *name, span(one.words)]
    return running_line(one, room)


def running_line(job: shapes.Job, room: int, *, with_tags: bool = False) -> Line:
    """A job that runs: how far it is, how long it took, and its tags."""
    left = f" ETA {duration(job['eta_s'])}" if job["eta_s"] is not None else ""
    took = duration(job["duration_s"]) if job["duration_s"] is not None else ""
    content = [Span("▶ ", "running"), span(f"{job['name']:<8} ")]
    content += fitted([span(short_task(job["task"]))], 12)
    content += [span(f"{percent(job['progress']):>4} "), span(f"{took:>6}"), span(f"{left:<12} ")]
    tags = tag_words(job["tags"])
    content += fitted([span(tags, "tag")], max(room // 4, 16)) if not with_tags else [span(tags, "tag")]
    return [*content, Span(" "), span(job["progress_desc"] or "", "soft")]


def failure_line(one: shapes.Failure, room: int) -> Line:
    """A cause of failures, and the key that retries its jobs."""
    place = one["place"] or f"({one['reason'].upper()})"
    action = [span(f"  {place:<16}", "soft"), span("  R retry all ", "key")]
    return spread([Span("✗ ", "error"), span(f"{one['total']:>3,}  "), span(one["error"])], action, room)


def alarm_line(one: tuple[str, str], room: int) -> Line:
    """What asks for attention; unowned have a key that kills them."""
    key, text = one
    action = [span("  K kill them ", "key")] if not key else []
    return spread([Span("! ", "alarm"), span(f"{key_name(key)}  " if key else ""), span(text)], action, room)


DRAWN = {"now": now_line, "failures": failure_line, "attention": alarm_line}
