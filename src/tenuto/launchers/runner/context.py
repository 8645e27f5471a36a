"""What a task may ask of the job it runs in: the runner's `JobContext`.
Lives in the payload; reports go to files, so that nobody has to listen.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.errors import JournalError
from tenuto.launchers.outputs import OutputsWriter
from tenuto.launchers.runner.payload import Payload
from tenuto.launchers.runner.results import plain
from tenuto.tasks.base import ConfigBase

if TYPE_CHECKING:
    from tenuto.lifecycle.events import JobProgressEvent
    from tenuto.workspace.journal import EventWriter

_PROGRESS_EVERY_S = 0.2
_EVENTS_MODULE = "tenuto.lifecycle.events"
_JOURNAL_MODULE = "tenuto.workspace.journal"


class RunningJob:
    """The job that this process runs."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self._layout = payload.instructions.layout(payload.paths)
        self._outputs = OutputsWriter(payload.machine.files, payload.paths, payload.launch.attempt)
        self._task: Any = None
        self._held: list[int] = []
        self._lock = allocate_lock()
        self._writer: EventWriter | None = None
        self._pid = os.getpid()
        self._reported: dict[int, float] = {}
        self._held_back: dict[int, JobProgressEvent] = {}

    def holds(self, descriptors: list[int]) -> None:
        """Keeps what must stay open until the process ends."""
        self._held = descriptors

    def runs(self, task: Any) -> None:
        """The live task, once it is built."""
        self._task = task

    @property
    def attempt(self) -> int:
        return self._payload.launch.attempt

    @property
    def cache_path(self) -> Path:
        return Path(self._layout.config)

    def remaining_time(self) -> float | None:
        deadline = self._payload.deadline
        return None if deadline is None else max(deadline - self._payload.machine.clock.monotonic(), 0.0)

    def progress(self, value: float, level: int, desc: str | None) -> None:
        instructions = self._payload.instructions
        clock = self._payload.machine.clock
        # 8 ms that a task without progress need not pay
        event: JobProgressEvent = import_module(_EVENTS_MODULE).JobProgressEvent(
            timestamp=clock.now(),
            job_id=instructions.job_id,
            task_id=instructions.task_id,
            attempt=self.attempt,
            progress=float(value),
            level=level,
            desc=desc,
        )
        now = clock.monotonic()
        with self._lock:
            recent = now - self._reported.get(level, -_PROGRESS_EVERY_S) < _PROGRESS_EVERY_S
            if recent and value < 1:
                self._held_back[level] = event
                return
            self._reported[level] = now
            self._held_back.pop(level, None)
            self._write(event)

    def close(self) -> None:
        """Report what was held back."""
        with self._lock:
            for level in sorted(self._held_back):
                self._write(self._held_back.pop(level))
            if self._writer is not None and os.getpid() == self._pid:
                self._writer.close()

    def register_task_output(
        self, method: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        config = getattr(method, "__self__", None)
        way = _way(self._task, config)
        if way is None:
            raise ValueError(f"{method!r} is not a method of this task or of a config inside it")
        with self._lock:
            self._outputs.write(way, method.__name__, [plain(given) for given in arguments], plain(named))

    def _write(self, event: JobProgressEvent) -> None:
        if self._writer is None or os.getpid() != self._pid:  # a forked child must not write to our file
            self._pid = os.getpid()
            instructions = self._payload.instructions
            place = self._layout.job_journal(instructions.task_id, instructions.job_id)
            machine = self._payload.machine
            journal = import_module(_JOURNAL_MODULE)
            self._writer = journal.EventWriter(machine.files, place, machine.randomness.nonce())
            assert self._writer is not None
        try:
            self._writer.write(event)
        except (OSError, JournalError) as error:  # a bar that does not move is no reason to fail a job
            print(f"tenuto: progress cannot be recorded: {error}", file=sys.stderr)  # noqa: T201  the job's log


def _way(root: Any, wanted: Any) -> tuple[str | int, ...] | None:
    """How to reach a config from the task; the same way leads to it from the submitted task."""
    seen: set[int] = set()
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(root, ())]
    while waiting:
        value, way = waiting.pop(0)
        if value is wanted:
            return way
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, ConfigBase):  # its parameters, without filling in a task it depends on
            waiting += [(item, (*way, name)) for name, item in vars(value).items()]
        elif isinstance(value, list | tuple):
            waiting += [(item, (*way, position)) for position, item in enumerate(value)]
        elif isinstance(value, dict):
            waiting += [(item, (*way, key)) for key, item in value.items() if isinstance(key, str | int)]
    return None
