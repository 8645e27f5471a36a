"""`launchers.py` beside the user's `tenuto.toml`: a function of the user's that has the last word.
It is loaded and called here, and its errors get their file and line; what it returns is `choice`'s to use.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenuto.errors import LauncherNotFound, SettingsError
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.requirements import Requirement
from tenuto.light import importlib_util

FILE_NAME = "launchers.py"
FUNCTION = "find_launcher"
_PARTS = ("name", "external", "slots", "start", "find", "sweep", "close")


class UserFile:
    """The user's function, loaded when it is first asked."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._function: Callable[..., Any] | None = None

    def exists(self) -> bool:
        return os.path.isfile(self.path)

    def check(self) -> None:
        """Raises `SettingsError` if the file cannot be loaded, or has no such function."""
        self._loaded()

    def find(self, requirement: Requirement, tags: frozenset[str]) -> Launcher | None:
        """The launcher that the user's function returns.

        Raises `SettingsError`, with file and line, if the function cannot be called or returns another thing;
        a `LauncherNotFound` of the function's own is passed on.
        """
        function = self._loaded()
        try:
            found = function(requirement, tags)
        except LauncherNotFound:
            raise
        except Exception as error:
            raise SettingsError(self._told(error)) from error
        if found is not None and any(not hasattr(found, part) for part in _PARTS):
            line = function.__code__.co_firstlineno if hasattr(function, "__code__") else 1
            raise SettingsError(
                f"{self.path}:{line}: {FUNCTION} returned {type(found).__name__} ({found!r:.60}): return a "
                f"launcher, such as SlurmLauncher(...), or None"
            )
        launcher: Launcher | None = found
        return launcher

    def _loaded(self) -> Callable[..., Any]:
        if self._function is None:
            spec = importlib_util.spec_from_file_location("tenuto_user_launchers", self.path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib_util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except Exception as error:
                raise SettingsError(self._told(error)) from error
            function = getattr(module, FUNCTION, None)
            if not callable(function):
                raise SettingsError(
                    f"{self.path}:1: there is no function {FUNCTION}: write "
                    f"def {FUNCTION}(requirement, tags), which returns a launcher or None"
                )
            self._function = function
        return self._function

    def _told(self, error: Exception) -> str:
        line = error.lineno if isinstance(error, SyntaxError) else self._line(error)
        return f"{self.path}:{line or 1}: {type(error).__name__}: {error}"

    def _line(self, error: Exception) -> int | None:
        """The innermost line of the file that the error passed through."""
        line = None
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == str(self.path):
                line = trace.tb_lineno
            trace = trace.tb_next
        return line
