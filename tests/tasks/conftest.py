"""A job to be in, and an experiment to submit to, that only take notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tenuto.tasks.ports import SubmitOptions, current_job, current_submitter


class FakeJob:
    """What a task became; remembers what it was asked."""

    def __init__(self, path: Path, partials: Path) -> None:
        self.path = path
        self.partials = partials
        self.stdout = path / "stdout"
        self.stderr = path / "stderr"
        self.watched: list[tuple[Any, Any]] = []
        self.callbacks: list[Any] = []

    def wait(self) -> str:
        return "done"

    def found_params(self) -> None:
        return None

    def watch_output(self, method: Any, callback: Any) -> None:
        self.watched.append((method, callback))

    def on_completed(self, callback: Any) -> None:
        self.callbacks.append(callback)


class FakeSubmitter:
    """An experiment that runs nothing; one job for each task."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.submitted: list[tuple[Any, SubmitOptions]] = []
        self.jobs: dict[int, FakeJob] = {}

    def submit(self, task: Any, submission: SubmitOptions) -> FakeJob:
        self.submitted.append((task, submission))
        number = len(self.jobs)
        new = FakeJob(self.root / "jobs" / str(number), self.root / "partials")
        return self.jobs.setdefault(id(task), new)


class FakeJobContext:
    """The inside of a job."""

    def __init__(self, cache_path: Path) -> None:
        self.attempt = 1
        self.cache_path = cache_path
        self.remaining: float | None = None
        self.outputs: list[tuple[Any, tuple[Any, ...]]] = []

    def progress(self, value: float, level: int, desc: str | None) -> None: ...

    def remaining_time(self) -> float | None:
        return self.remaining

    def register_task_output(self, method: Any, arguments: Any, named: Mapping[str, Any]) -> None:
        self.outputs.append((method, tuple(arguments)))


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[FakeSubmitter]:
    made = FakeSubmitter(tmp_path)
    token = current_submitter.set(made)
    yield made
    current_submitter.reset(token)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[FakeJobContext]:
    made = FakeJobContext(tmp_path / "cache")
    token = current_job.set(made)
    yield made
    current_job.reset(token)
