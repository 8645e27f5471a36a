"""What modules ask of their process while they are imported: variables, and the working directory.
A forked child has other answers than its parent had, so the parent must know the questions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

_PATHS = frozenset({"posixpath", "genericpath", "pathlib", "os"})
STANDARD = f"{os.path.dirname(os.__file__)}/"
PACKAGES = f"{STANDARD}site-packages/"
_IDLE_QUESTIONS = ("rich",)
"""Packages that ask for the working directory on import, and use the answer for nothing that a job sees."""

_VIEWS = ("_collections_abc", "collections.abc")
_COPIES = ("wsgiref",)
"""Packages that copy all variables on import, for programs that are no jobs."""


class ImportQuestions:
    """Remembers questions, from `watch` to `stop`."""

    def __init__(self) -> None:
        self.variables: set[str] = set()
        self.all_variables = False
        self.directory: str | None = None
        """The module that asked where it is."""
        self._plain: Any = type(os.environ)
        self._getcwd = os.getcwd

    def watch(self) -> None:
        asked = self
        plain = self._plain

        class Watched(plain):  # type: ignore[valid-type, misc]
            def __getitem__(self, key: str) -> str:
                if not _keeps_a_copy(sys._getframe(1)):
                    asked.variables.add(key)
                return str(plain.__getitem__(self, key))

            def __iter__(self) -> Iterator[str]:
                if not _keeps_a_copy(sys._getframe(1)):
                    asked.all_variables = True
                return iter(plain.__iter__(self))

        def getcwd() -> str:
            asked.directory = asked.directory or _asker(sys._getframe(1))
            return asked._getcwd()

        os.environ.__class__ = Watched
        os.getcwd = getcwd

    def stop(self) -> None:
        os.environ.__class__ = self._plain
        os.getcwd = self._getcwd

    def matters(self, name: str) -> bool:
        """Whether another value of this variable could have made another module."""
        return self.all_variables or name in self.variables


def _keeps_a_copy(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_globals.get("__name__") in _VIEWS:
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _COPIES


def _asker(frame: FrameType | None) -> str | None:
    """The module that asked through functions for paths; None for the standard library's."""
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _PATHS:
        frame = frame.f_back
    if frame is None:
        return None
    file = frame.f_code.co_filename
    if file.startswith(("<frozen", STANDARD)) and not file.startswith(PACKAGES):
        return None
    name = str(frame.f_globals.get("__name__"))
    return None if name.partition(".")[0] in _IDLE_QUESTIONS else name
