"""What a run's directory says of the run: what became of it (``status.json``), and its tags.
Written at the start, and once more at the end; a tagged run is never pruned.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from enum import Enum, unique
from typing import NamedTuple

from tenuto.errors import WorkspaceError
from tenuto.lifecycle.events import CarbonMetricsData
from tenuto.workspace.carbon import metrics_of, plain_metrics
from tenuto.workspace.layout import RunPaths, name_of_directory
from tenuto.workspace.ports import Files

_LIMIT = 1 << 20


@unique
class RunState(Enum):
    """Where a run stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """Stopped by a person before all its jobs were started, or left while jobs go on."""


class RunStatus(NamedTuple):
    """One run of an experiment."""

    experiment_id: str
    run_id: str
    state: RunState
    started: datetime
    host: str
    pid: int
    ended: datetime | None = None
    jobs: int = 0
    reused: int = 0
    failed: int = 0
    message: str | None = None
    carbon: CarbonMetricsData | None = None
    """What its jobs used while it was open, as far as that was measured."""

    def encode(self) -> bytes:
        fields = {
            **self._asdict(),
            "state": self.state.value,
            "started": self.started.isoformat(),
            "ended": self.ended.isoformat() if self.ended else None,
            "carbon": plain_metrics(self.carbon) if self.carbon else None,
        }
        return json.dumps(fields, indent=1).encode()


def write_run_status(files: Files, run: RunPaths, status: RunStatus) -> None:
    """Replaces the status of a run."""
    files.replace(run.status, status.encode(), durable=status.state is not RunState.RUNNING)


def read_run_status(files: Files, run: RunPaths) -> RunStatus | None:
    """The status of a run; None if there is none, or none that can be read."""
    try:
        fields = json.loads(files.read(run.status, _LIMIT))
        return RunStatus(
            experiment_id=str(fields["experiment_id"]),
            run_id=str(fields["run_id"]),
            state=RunState(fields["state"]),
            started=datetime.fromisoformat(fields["started"]),
            host=str(fields["host"]),
            pid=int(fields["pid"]),
            ended=datetime.fromisoformat(fields["ended"]) if fields.get("ended") else None,
            jobs=int(fields.get("jobs", 0)),
            reused=int(fields.get("reused", 0)),
            failed=int(fields.get("failed", 0)),
            message=fields.get("message"),
            carbon=metrics_of(fields["carbon"]) if fields.get("carbon") else None,
        )
    except (OSError, WorkspaceError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def read_tags(files: Files, run: RunPaths) -> tuple[str, ...]:
    """The tags of a run, in order; none if they cannot be read."""
    try:
        names = files.list(run.tags)
    except OSError:
        return ()
    return tuple(sorted(tag for name in names if (tag := name_of_directory(name)) is not None))


def add_tags(files: Files, run: RunPaths, tags: Iterable[str]) -> None:
    """Adds tags; `InvalidName` for a word that cannot be one."""
    paths = [run.tag(tag) for tag in tags]
    files.make_directory(run.tags)
    for path in paths:
        files.write(path, b"")


def remove_tags(files: Files, run: RunPaths, tags: Iterable[str]) -> list[str]:
    """The run loses these tags; returns the tags that it had."""
    return [tag for tag in tags if files.remove(run.tag(tag))]
