"""What came of `tenuto run`: the last lines that a person reads, and the same as JSON."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tenuto.cli.program import short_path
from tenuto.experiments.display import tag_text
from tenuto.experiments.overview import ClosedRun
from tenuto.jobs.causes import FailureGroup
from tenuto.jobs.model import Counts
from tenuto.jobs.row import Row
from tenuto.jobs.text import counted, duration, safe, truncate
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace.layout import Layout

SHOWN_JOBS = 3
SHOWN_GROUPS = 5
SHORT_ID = 12
LONGEST_ERROR = 300


class Summary(NamedTuple):
    """What came of it."""

    runs: tuple[ClosedRun, ...]
    left: tuple[ClosedRun, ...]
    counts: Counts
    failures: tuple[FailureGroup, ...]
    took_s: float
    program: Sequence[str]
    """How Tenuto is called here."""
    retry: Sequence[str]
    """Its arguments that try again what failed."""
    exit_code: int = 0
    remarks: tuple[str, ...] = ()
    """What launchers did otherwise than they would by default, and why."""
    names: Mapping[str, Mapping[str, str]] = {}
    """By id, the parameters that tell jobs without tags from others of their task."""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "experiments": [{**run._asdict(), "state": run.state.value} for run in self.runs],
            "jobs": self.counts.known,
            "reused": self.counts.reused,
            "ran": self.counts.ran,
            "failed": self.counts.failed,
            "not_run": self.counts.stranded,
            "unfinished": self.counts.waiting + self.counts.running,
            "duration_s": round(self.took_s, 3),
            "exit_code": self.exit_code,
            "remarks": list(self.remarks),
            "failures": [
                {
                    "reason": group.reason.name,
                    "error": group.error,
                    "place": group.place or None,
                    "jobs": [
                        {**_job_json(row), "parameters": dict(self.names.get(row.id, {}))}
                        for row in group.rows
                    ],
                }
                for group in self.failures
            ],
        }

    def lines(self, directory: str) -> Iterator[str]:
        """For people; paths under `directory` are shown from there."""
        yield self._headline()
        yield from map(safe, self.remarks)
        for run in self.left:
            running = self.counts.running
            yield f"{safe(run.name)} was left" + (
                f"; {counted(running, 'job')} still running" if running else ""
            )
        for note in (note for run in self.runs for note in run.notes):
            yield f"note: {safe(note)}"
        for group in self.failures[:SHOWN_GROUPS]:
            yield ""
            yield from self._group(group, directory)
        if len(self.failures) > SHOWN_GROUPS:
            yield ""
            yield f"and {len(self.failures) - SHOWN_GROUPS} other causes"
        if self.failures:
            yield ""
            them = "it" if sum(len(group.rows) for group in self.failures) == 1 else "them"
            yield f"to try {them} again: {shlex.join([*self.program, *self.retry])}"
        elif self.counts.waiting or self.counts.running:
            yield f"to go on: {shlex.join([*self.program, *self.retry])}"

    def _headline(self) -> str:
        names = ", ".join(f"{safe(run.name)} {run.run_id}" for run in self.runs)
        counts = self.counts
        if counts.known and counts.reused == counts.known:
            if counts.known == 1:
                return f"{names}: its job was done before, and is reused; nothing had to run"
            return f"{names}: all {counts.known} jobs were done before, and are reused; nothing had to run"
        parts = [f"{counts.reused} reused", f"{counts.ran} ran", f"{counts.failed} failed"]
        if counts.stranded:
            parts.append(f"{counts.stranded} not run because of that")
        if counts.running:
            parts.append(f"{counts.running} still running")
        if counts.waiting:
            parts.append(f"{counts.waiting} not started")
        return f"{names}: {', '.join(parts)}, in {duration(self.took_s)}"

    def _group(self, group: FailureGroup, directory: str) -> Iterator[str]:
        number = len(group.rows)
        shown = "" if group.reason is JobFailureStatus.FAILED else f" ({group.reason.name})"
        error = truncate(safe(group.error), LONGEST_ERROR)
        yield f"{number} {'job' if number == 1 else 'jobs'} failed{shown}: {error}"
        if group.messages > 1:
            yield f"  and {group.messages - 1} other messages from the same line"
        if group.place:
            yield f"  at {safe(_near(group.place, directory))}"
        for row in group.rows[:SHOWN_JOBS]:
            name = tag_text(row.tags or self.names.get(row.id, {}), " ")
            yield f"  {safe(row.task)} {row.id[:SHORT_ID]}{name}"
        if number > SHOWN_JOBS:
            yield f"  and {number - SHOWN_JOBS} more"
        row = group.rows[0]  # the group of a row is its workspace
        command = [*self.program, "why", row.id[:SHORT_ID], "-w", short_path(row.group)]
        yield f"  to see why: {shlex.join(command)}"


def _near(path: str, directory: str) -> str:
    return os.path.relpath(path, directory) if path.startswith(f"{directory}/") else path


def _job_json(row: Row) -> dict[str, Any]:
    paths = Layout(row.group).job(row.task, row.id)
    return {
        "task": row.task,
        "job": row.id,
        "tags": dict(row.tags),
        "message": row.message,
        "directory": paths.directory,
        "stderr": paths.err,
    }
