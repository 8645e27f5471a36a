"""What a task may ask of the job it runs in: the runner's `JobContext`; the directories that its job holds.
Lives in the payload; reports go to files, so that no process has to listen.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.light import fcntl, late, pathlib
from tenuto.tasks import ResumableTask
from tenuto.tasks.base import ConfigBase
from tenuto.tasks.schema import schema_of
from tenuto.workspace.modes import file_mode

if TYPE_CHECKING:
    from tenuto.launchers import outputs, results
    from tenuto.launchers.outputs import OutputsWriter
    from tenuto.launchers.payload import metrics_log, progress_reports
    from tenuto.launchers.payload.assignment import Assignment
    from tenuto.launchers.payload.metrics_log import MetricsLog
    from tenuto.launchers.payload.progress_reports import ProgressReports
    from tenuto.workspace.ports import Files
else:
    metrics_log = late("tenuto.launchers.payload.metrics_log")
    outputs = late("tenuto.launchers.outputs")
    progress_reports = late("tenuto.launchers.payload.progress_reports")
    results = late("tenuto.launchers.results")


class RunningJob:
    """The job that this process runs."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._task: Any = None
        self.is_executing = False
        """Everything that comes before `execute()` is done."""
        self._held: list[int] = []
        self._lock = allocate_lock()
        self._outputs: OutputsWriter | None = None
        self._reports: ProgressReports | None = None
        self._metrics: MetricsLog | None = None

    def holds(self, descriptors: list[int]) -> None:
        """Keeps what must stay open until the process ends."""
        self._held = descriptors

    def runs(self, task: Any) -> None:
        """The live task, once it is built."""
        self._task = task

    @property
    def attempt(self) -> int:
        return self._assignment.attempt

    @property
    def path(self) -> pathlib.Path:
        return pathlib.Path(self._assignment.paths.directory)

    @property
    def cache_path(self) -> pathlib.Path:
        return pathlib.Path(self._assignment.layout.config)

    def remaining_time(self) -> float | None:
        deadline = self._assignment.deadline
        return None if deadline is None else max(deadline - self._assignment.machine.clock.monotonic(), 0.0)

    def result(self, directory: str) -> Any:
        return results.read_upstream_result(self._assignment.machine.files, directory)

    def progress(self, value: float, level: int, desc: str | None) -> None:
        with self._lock:
            if self._reports is None:
                self._reports = progress_reports.ProgressReports(self._assignment)
                assert self._reports is not None
        self._reports.report(value, level, desc)

    def log_metrics(self, values: Mapping[str, float], step: int | None) -> None:
        log = self._metrics
        if log is None or log.pid != os.getpid():  # a forked child has no thread that writes
            with self._lock:
                log = self._metrics
                if log is None or log.pid != os.getpid():
                    goes_on = isinstance(self._task, ResumableTask)
                    log = self._metrics = metrics_log.MetricsLog(self._assignment, goes_on=goes_on)
        assert log is not None
        log.log(values, step)

    def close(self) -> None:
        """Report what was held back."""
        if self._reports is not None:
            self._reports.close()
        if self._metrics is not None and self._metrics.pid == os.getpid():
            self._metrics.close()

    def register_task_output(
        self, method: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        way = outputs.way_to(getattr(method, "__self__", None), self._task)
        if way is None:
            raise ValueError(f"{method!r} is not a method of this task or of a config inside it")
        given, by_name = [outputs.plain(value) for value in arguments], outputs.plain(named)
        assignment = self._assignment
        with self._lock:
            if self._outputs is None:
                self._outputs = outputs.OutputsWriter(
                    assignment.machine.files, assignment.paths, assignment.attempt
                )
                assert self._outputs is not None
            self._outputs.write(way, method.__name__, given, by_name)


def hold_partials(assignment: Assignment, task: Any) -> list[int]:
    """Make the directories that jobs share through a `partial`, and lock them, waiting for their holders.

    All in one order, so that two jobs never wait for each other. Returns the descriptors that hold them: the
    kernel frees them with the process, however that ends.
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
