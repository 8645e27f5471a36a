"""The work of a job whose task is not at hand: its stored parameters, its environment, its command.
Needs no class of the task: the job's process finds that by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenuto.launchers.instructions import Command
from tenuto.launchers.outputs import TaskOutput
from tenuto.workspace.layout import JobPaths, Layout


class StoredWork:
    """What a job runs, as its ``params.json`` has it."""

    def __init__(
        self, params: bytes, environment: Mapping[str, str] | None = None, command: Command | None = None
    ) -> None:
        """`params`: the content of ``params.json``. `command`: a program to run instead of a task."""
        self.environment: Mapping[str, str] = environment or {}
        self._params = params
        self._command = command

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        return self._params

    def command(self) -> Command | None:
        return self._command

    def output(self, output: TaskOutput, method: Callable[..., Any]) -> Any:
        return None  # without the task no output can be made
