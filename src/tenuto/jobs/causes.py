"""Failures grouped by their cause: the same error at the same place.
Pure: rows in, groups out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tenuto.jobs.row import Row
from tenuto.lifecycle.states import JobFailureStatus, JobState

_PLACED = re.compile(r"(?P<error>.*) \((?P<place>[^()]+:\d+)\)", re.DOTALL)
_KIND = re.compile(r"[\w.]+(?=: |$)")


class FailureGroup(NamedTuple):
    """Jobs that failed for what looks like the same cause."""

    reason: JobFailureStatus
    error: str
    """The last line of the first traceback."""
    place: str
    """``file:line``; empty where it is not known."""
    rows: tuple[Row, ...]
    messages: int = 1
    """How many different messages the errors have."""


def grouped(rows: Iterable[Row]) -> list[FailureGroup]:
    """The failures among rows, the largest group first, without jobs that were stranded by them."""
    groups: dict[tuple[JobFailureStatus, str, str], list[tuple[Row, str]]] = {}
    for row in rows:
        reason = row.reason or JobFailureStatus.FAILED
        if row.state is JobState.ERROR and reason is not JobFailureStatus.DEPENDENCY:
            error, place = _split(row.message or reason.meaning)
            cause = _cause(error, place)
            groups.setdefault((reason, cause, place), []).append((row, error))
    found = [
        FailureGroup(
            reason,
            members[0][1],
            place,
            tuple(row for row, _ in members),
            len({error for _, error in members}),
        )
        for (reason, _, place), members in groups.items()
    ]
    return sorted(found, key=lambda group: -len(group.rows))


def same_cause(message: str, error: str, place: str) -> bool:
    """True if a message of a job is of the cause that a group names by its error and place."""
    own, where = _split(message)
    return where == place and _cause(own, where) == _cause(error, place)


def _cause(error: str, place: str) -> str:
    """The kind of an error where its place is known; else all of it."""
    kind = _KIND.match(error)
    return kind[0] if kind and place else error


def _split(message: str) -> tuple[str, str]:
    """A message of a marker as its error and the place in the code."""
    placed = _PLACED.fullmatch(message)
    return (placed["error"], placed["place"]) if placed else (message, "")
