"""Checkpoints of a running task: a state saved whole or not at all, of which the last few are kept."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from tenuto.light import late, pathlib
from tenuto.tasks.arguments import whole_number
from tenuto.tasks.base import class_name
from tenuto.tasks.ports import current_job
from tenuto.tasks.schema import schema_of

pickle: Any = late("pickle")

FOLDER = ".checkpoint"
_SUFFIX = ".pickle"


class Checkpoint:
    """The states that a task has saved in its directory; an attempt that goes on loads the last of them."""

    def __init__(self, directory: Any) -> None:
        self.directory = pathlib.Path(directory)

    def save(self, state: Any, *, keep: int = 1) -> None:
        """Writes a state, whatever can be pickled: whole, on the disk, or not at all.

        `keep`: how many of the last states stay.
        """
        whole_number(keep, "checkpoint.save(keep=)", least=1)
        content = pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
        self.directory.mkdir(exist_ok=True)
        saved = self._saved()
        number = saved[-1] + 1 if saved else 1
        part = self.directory / f"{number}.part"
        with open(part, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(self._path(number))
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        for old in [*saved, number][:-keep]:
            self._path(old).unlink(missing_ok=True)

    def load(self, default: Any = None) -> Any:
        """The state that was saved last; `default` if there is none.

        One that a damaged disk cut short is passed over, if there is one before it.
        """
        saved = self._saved()
        for number in reversed(saved):
            try:
                return pickle.loads(self._path(number).read_bytes())
            except (EOFError, pickle.UnpicklingError):
                if number == saved[0]:
                    raise
        return default

    def _saved(self) -> list[int]:
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            names = os.listdir(self.directory)
        numbers = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
        return sorted(int(number) for number in numbers if number.isdecimal())

    def _path(self, number: int) -> Any:
        return self.directory / f"{number}{_SUFFIX}"


class CheckpointOfTask:
    """`self.checkpoint` of a live task. A parameter or method of that name is the class's own."""

    def __get__(self, task: Any, owner: Any) -> Any:
        if task is None:
            return self
        if "checkpoint" in schema_of(type(task)).parameters:
            raise AttributeError("checkpoint")  # its value is elsewhere: asked for next
        if type(task).__is_config__:
            raise AttributeError(f"{class_name(task)}.checkpoint is there once the task runs, in execute()")
        job = current_job.get()
        return Checkpoint(os.path.join(os.getcwd() if job is None else job.path, FOLDER))
