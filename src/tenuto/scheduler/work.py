"""What a job runs: the files its runner reads, made when the job starts and not before."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tenuto.launchers.instructions import Command
from tenuto.tasks.serialization import dumps, job_document
from tenuto.tasks.task import CommandTask
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
        own = task.environment if isinstance(task, CommandTask) else {}
        self.environment: Mapping[str, str] = {**(environment or {}), **own}

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        document = job_document(self.task, Path(paths.directory), Path(layout.partials), sys.path)
        return dumps(document)

    def command(self) -> Command | None:
        if not isinstance(self.task, CommandTask):
            return None
        sources = {name: str(file.source) for name, file in self.task.files.items()}
        return Command(tuple(self.task.command), sources)
