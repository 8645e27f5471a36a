"""Directories that jobs share through a `partial`: one job at a time, held until its payload ends.
The kernel frees them with the process, however that ends.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from tenuto.light import fcntl
from tenuto.tasks.base import ConfigBase
from tenuto.tasks.schema import schema_of
from tenuto.workspace.modes import file_mode

if TYPE_CHECKING:
    from tenuto.launchers.runner.assignment import Assignment
    from tenuto.workspace.ports import Files


def hold_partials(assignment: Assignment, task: Any) -> list[int]:
    """Makes the shared directories of a live task and locks them, waiting for the job that has one.

    All in one order, so that two jobs never wait for each other. Returns the descriptors that hold them.
    """
    return [_hold(assignment.machine.files, folder) for folder in sorted(_folders(task))]


def _hold(files: Files, folder: str) -> int:
    files.make_directory(folder)
    lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, file_mode(folder))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"tenuto: waits for another job that uses {folder}", file=sys.stderr, flush=True)  # noqa: T201  the job's log
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _folders(task: Any) -> set[str]:
    """The shared directories of the configs that run in this job."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = [task]
    while waiting:
        value = waiting.pop()
        if isinstance(value, ConfigBase):
            if id(value) in seen:
                continue
            seen.add(id(value))
            values = vars(value)
            if callable(values.get("_state")):
                continue  # a task with a job of its own, not read yet
            schema = schema_of(type(value))
            for name, generator in schema.generators.items():
                if generator.partial is not None and generator.partial.is_exclusive and name in values:
                    path = os.path.normpath(values[name])
                    found.add(path.removesuffix(os.path.normpath(generator.path)).rstrip("/"))
            waiting += [values.get(name) for name in schema.config_names]
        elif isinstance(value, list | tuple | set):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
    return found
