"""The parameters in which two jobs differ, by what is stored of them.
Reads nothing; `parameters` does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tenuto.jobs.parameters import Stored


class Changed(NamedTuple):
    """A parameter that two jobs do not share."""

    path: str
    here: Any
    there: Any


class _Absent:
    def __repr__(self) -> str:
        return "not set"


ABSENT: Any = _Absent()


def changed(here: Stored, there: Stored) -> list[Changed]:
    """Returns the parameters in which two jobs differ, as far as parameters count for the identity."""
    paths = {**here.parameters, **there.parameters}
    uncounted = here.uncounted | there.uncounted
    return [
        Changed(path, here.parameters.get(path, ABSENT), there.parameters.get(path, ABSENT))
        for path in paths
        if path not in uncounted
        and not _same(here.parameters.get(path, ABSENT), there.parameters.get(path, ABSENT))
    ]


def plain_side(value: Any) -> Any:
    """One side of a difference for JSON: null for what is not set."""
    return None if value is ABSENT else value


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)  # for Python 1, 1.0 and True are equal
