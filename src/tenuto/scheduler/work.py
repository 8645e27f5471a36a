"""What a job runs: the files its runner reads, made when the job starts and not before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tenuto.launchers.commands import command_of, environment_of
from tenuto.launchers.instructions import Command
from tenuto.launchers.outputs import TaskOutput, way_to
from tenuto.tasks.base import ConfigBase
from tenuto.tasks.graph import folders
from tenuto.tasks.identity import identity
from tenuto.tasks.schema import schema_of
from tenuto.tasks.serialization import dumps, job_document
from tenuto.tasks.task import made_meanwhile
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

    def output(self, output: TaskOutput, method: Callable[..., Any]) -> Any:
        """What an output stands for, made by the method that is watched; None if another was meant."""
        ...


class TaskWork:
    """A sealed task."""

    def __init__(self, task: Any, environment: Mapping[str, str] | None = None) -> None:
        self.task = task
        own = environment_of(task)
        self.environment: Mapping[str, str] = {**(environment or {}), **own} if own else environment or {}

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        logs = paths.out, paths.err
        document = job_document(self.task, paths.directory, layout.partials, sys.path, logs)
        return dumps(document)

    def command(self) -> Command | None:
        return command_of(self.task)

    @property
    def keeps_logs(self) -> bool:
        """Whether a generated path is a log of the job: a dependent opens it, also if nothing was printed."""
        schemas = (schema_of(type(config)) for config, _ in folders(self.task))
        return any(one.stream is not None for schema in schemas for one in schema.generators.values())

    def output(self, output: TaskOutput, method: Callable[..., Any]) -> Any:
        config = self.task
        for step in output.config:
            config = getattr(config, str(step)) if isinstance(config, ConfigBase) else config[step]
        if not self._is_meant(getattr(method, "__self__", None), config) or method.__name__ != output.method:
            return None
        return method(made_meanwhile(self.task), *output.arguments, **output.named)

    def _is_meant(self, watched: Any, config: Any) -> bool:
        """True for a config of this task, and for the equal one of a copy that became the same job."""
        if watched is config:
            return True
        is_copy = isinstance(watched, ConfigBase) and way_to(watched, self.task) is None
        return (
            is_copy
            and schema_of(type(watched)) is schema_of(type(config))
            and identity(watched) == identity(config)
        )
