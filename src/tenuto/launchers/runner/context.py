"""What a task may ask of the job it runs in: the runner's `JobContext`.
Lives in the payload; reports go to files, so that nobody has to listen.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.launchers.runner.assignment import Assignment
from tenuto.launchers.runner.json_values import plain
from tenuto.light import late, pathlib
from tenuto.tasks.base import ConfigBase

if TYPE_CHECKING:
    from tenuto.launchers import outputs
    from tenuto.launchers.outputs import OutputsWriter
    from tenuto.launchers.runner import progress_reports, upstream
    from tenuto.launchers.runner.progress_reports import ProgressReports
else:
    outputs = late("tenuto.launchers.outputs")
    progress_reports = late("tenuto.launchers.runner.progress_reports")
    upstream = late("tenuto.launchers.runner.upstream")


class RunningJob:
    """The job that this process runs."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._task: Any = None
        self._held: list[int] = []
        self._lock = allocate_lock()
        self._outputs: OutputsWriter | None = None
        self._reports: ProgressReports | None = None

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
    def cache_path(self) -> pathlib.Path:
        return pathlib.Path(self._assignment.layout.config)

    def remaining_time(self) -> float | None:
        deadline = self._assignment.deadline
        return None if deadline is None else max(deadline - self._assignment.machine.clock.monotonic(), 0.0)

    def result(self, directory: str) -> Any:
        return upstream.read_upstream_result(self._assignment.machine.files, directory)

    def progress(self, value: float, level: int, desc: str | None) -> None:
        with self._lock:
            if self._reports is None:
                self._reports = progress_reports.ProgressReports(self._assignment)
                assert self._reports is not None
        self._reports.report(value, level, desc)

    def close(self) -> None:
        """Report what was held back."""
        if self._reports is not None:
            self._reports.close()

    def register_task_output(
        self, method: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        config = getattr(method, "__self__", None)
        way = _way(self._task, config)
        if way is None:
            raise ValueError(f"{method!r} is not a method of this task or of a config inside it")
        assignment = self._assignment
        with self._lock:
            if self._outputs is None:
                self._outputs = outputs.OutputsWriter(
                    assignment.machine.files, assignment.paths, assignment.attempt
                )
                assert self._outputs is not None
            self._outputs.write(way, method.__name__, [plain(given) for given in arguments], plain(named))


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
