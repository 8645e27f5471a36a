"""The causes of failures: which jobs failed by the same error at the same place.
Pure: it groups what it is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from tenuto.lifecycle.states import JobFailureStatus

_PLACED = re.compile(r"(?P<error>.*) \((?P<place>[^()]+:\d+)\)", re.DOTALL)
_KIND = re.compile(r"[\w.]+(?=: |$)")

J = TypeVar("J")


class Cause(NamedTuple, Generic[J]):
    """Jobs that failed for what looks like the same cause: the same error at the same place."""

    reason: JobFailureStatus
    error: str
    """The last line of the first traceback."""
    place: str
    """``file:line``; empty where the message names none."""
    jobs: tuple[J, ...]
    messages: int = 1
    """How many different messages the errors have."""


def grouped(failures: Iterable[tuple[J, JobFailureStatus | None, str | None]]) -> list[Cause[J]]:
    """The causes of failures, that of most jobs first.

    `failures`: jobs in whatever form, each with its reason and its message. Jobs that were not run because
    others failed are left out.
    """
    groups: dict[tuple[JobFailureStatus, str, str], list[tuple[J, str]]] = {}
    for job, given, message in failures:
        reason = given or JobFailureStatus.FAILED
        if reason is not JobFailureStatus.DEPENDENCY:
            error, place = _split(message or reason.meaning)
            kind = _KIND.match(error)
            cause = kind[0] if kind and place else error
            groups.setdefault((reason, cause, place), []).append((job, error))
    found = [
        Cause(
            reason,
            members[0][1],
            place,
            tuple(job for job, _ in members),
            len({error for _, error in members}),
        )
        for (reason, _, place), members in groups.items()
    ]
    return sorted(found, key=lambda cause: -len(cause.jobs))


def _split(message: str) -> tuple[str, str]:
    """A message of a marker as its error and the place in the code."""
    placed = _PLACED.fullmatch(message)
    return (placed["error"], placed["place"]) if placed else (message, "")
