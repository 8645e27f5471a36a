"""Watched outputs: the callbacks for what a running task registers, and how far each of them has read.
Reads nothing itself: `outputs` calls back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from inspect import signature
from typing import Any, NamedTuple


class OutputKey(NamedTuple):
    """Which output of which job: the same whenever the output is handed over, in any process."""

    job: str
    """The id of the job."""
    sequence: int
    """Its place among all outputs of the job, from 1, over all attempts."""


class WatchedOutput:
    """A callback for what a running task registers through one of its methods."""

    def __init__(self, method: Callable[..., Any], callback: Callable[..., Any]) -> None:
        self.method = method
        self.callback = callback
        self.takes_key = _takes_key(callback)
        self.context = copy_context()
        """Where to call back: the experiment that is open for the watcher is open there, too."""
        self.offset = 0
        """How far the outputs of the job were read."""
        self.sequence = 0
        """How many they were."""

    def call(self, value: Any, key: OutputKey) -> None:
        """Calls back, in the context of the watcher, with the key if it wants that."""
        named = {"key": key} if self.takes_key else {}
        self.context.copy().run(self.callback, value, **named)


def _takes_key(callback: Callable[..., Any]) -> bool:
    """Whether a callback has a parameter of that name."""
    try:
        return "key" in signature(callback).parameters
    except (TypeError, ValueError):  # some built-in functions do not tell
        return False
