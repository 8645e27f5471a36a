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
    """The parameters in which two jobs differ."""
    paths = {**here.parameters, **there.parameters}
    return [
        Changed(path, here.parameters.get(path, ABSENT), there.parameters.get(path, ABSENT))
        for path in paths
        if not _same(here.parameters.get(path, ABSENT), there.parameters.get(path, ABSENT))
    ]


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)  # for Python 1, 1.0 and True are equal
