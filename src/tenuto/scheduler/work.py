"""What a job runs: the files its runner reads, made when the job starts and not before."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tenuto.launchers.commands import command_of, environment_of
from tenuto.launchers.instructions import Command
from tenuto.tasks.serialization import dumps, job_document
from tenuto.workspace.layout import JobPaths, Layout


class Work(Protocol):
    """The payload of a job, as far as the scheduler cares."""

    environment: Mapping[str, str]

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        """The content of ``params.json``."""
        ...

    def command(self) -> Command | None:
        """The program to run; None for a Python task."""
        ...


class TaskWork:
    """A sealed task."""

    def __init__(self, task: Any, environment: Mapping[str, str] | None = None) -> None:
        self.task = task
        self.environment: Mapping[str, str] = {**(environment or {}), **environment_of(task)}

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        document = job_document(self.task, Path(paths.directory), Path(layout.partials), sys.path)
        return dumps(document)

    def command(self) -> Command | None:
        return command_of(self.task)
