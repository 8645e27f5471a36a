"""Names for jobs without tags: the parameters in which the jobs of a task differ.
It looks at configs that this process made; nothing is read from a disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from tenuto.tasks.base import is_config
from tenuto.tasks.schema import schema_of

_DEEPEST = 3
_MOST_JOBS = 5000
_MOST_NAMED = 3
_LONGEST_VALUE = 24


class VaryingNames:
    """Learns what varies as jobs come, and names them by it."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, str]] = {}
        """job -> path of a parameter -> value."""
        self._first: dict[str, dict[str, str]] = {}
        """task -> the values of its first job."""
        self._varying: dict[str, dict[str, None]] = {}
        """task -> the paths whose values differ, in the order of their declaration."""

    def add(self, task_id: str, job: str, task: Any) -> None:
        """Take a job in; of very many only some."""
        if job in self._values or len(self._values) >= _MOST_JOBS:
            return
        values = dict(_scalars(task))
        self._values[job] = values
        first = self._first.setdefault(task_id, values)
        varying = self._varying.setdefault(task_id, {})
        for path in {**first, **values}:
            if first.get(path) != values.get(path):
                varying[path] = None

    def name(self, task_id: str, job: str) -> dict[str, str]:
        """The parameters that tell a job from others of its task, as tags would; empty if nothing varies."""
        values = self._values.get(job, {})
        found = {path: values[path] for path in self._varying.get(task_id, ()) if path in values}
        return dict(list(found.items())[:_MOST_NAMED])


def _scalars(config: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Path and text of the plain values that count, also of configs inside."""
    for name, parameter in schema_of(type(config)).parameters.items():
        value = config.__dict__.get(name)
        if is_config(value) and depth < _DEEPEST:
            yield from _scalars(value, f"{prefix}{name}.", depth + 1)
        elif parameter.counted and isinstance(value, str | int | float | Enum):
            text = value.name if isinstance(value, Enum) else str(value)
            yield f"{prefix}{name}", text[:_LONGEST_VALUE]
