"""What came of `tenuto run`: the last lines that a person reads, and the same as JSON."""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tenuto.cli.progress import ClosedRun, tag_text
from tenuto.cli.tally import Counts
from tenuto.jobs.text import duration, safe, truncate
from tenuto.lifecycle.states import JobFailureStatus, Standing
from tenuto.scheduler.jobs import Job

SHOWN_JOBS = 3
SHOWN_GROUPS = 5
SHORT_ID = 12
LONGEST_ERROR = 300
_PLACED = re.compile(r"(?P<error>.*) \((?P<place>[^()]+:\d+)\)", re.DOTALL)
_KIND = re.compile(r"[\w.]+(?=: |$)")


class FailureGroup(NamedTuple):
    """Jobs that failed for what looks like the same cause: the same error at the same place."""

    reason: JobFailureStatus
    error: str
    """The last line of the first traceback."""
    place: str
    """``file:line``; empty where nobody knows."""
    jobs: tuple[Job, ...]
    messages: int = 1
    """How many different messages the errors have."""


def grouped(ended_badly: Iterable[tuple[Job, Standing]]) -> list[FailureGroup]:
    """The failures, the largest group first; jobs that were not run because of them are not listed."""
    groups: dict[tuple[str, str, str], list[tuple[Job, str]]] = {}
    for job, standing in ended_badly:
        reason = standing.reason or JobFailureStatus.FAILED
        if reason is not JobFailureStatus.DEPENDENCY:
            error, place = _split(standing.message or reason.meaning)
            kind = _KIND.match(error)
            cause = kind[0] if kind and place else error
            groups.setdefault((reason.name, cause, place), []).append((job, error))
    found = [
        FailureGroup(
            JobFailureStatus[reason],
            members[0][1],
            place,
            tuple(job for job, _ in members),
            len({error for _, error in members}),
        )
        for (reason, _, place), members in groups.items()
    ]
    return sorted(found, key=lambda group: -len(group.jobs))


def _split(message: str) -> tuple[str, str]:
    """A message of a marker as its error and the place in the code."""
    placed = _PLACED.fullmatch(message)
    return (placed["error"], placed["place"]) if placed else (message, "")


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
            "failures": [
                {
                    "reason": group.reason.name,
                    "error": group.error,
                    "place": group.place or None,
                    "jobs": [_job_json(job) for job in group.jobs],
                }
                for group in self.failures
            ],
        }

    def lines(self, directory: str) -> Iterator[str]:
        """For people; paths under `directory` are shown from there."""
        yield self._headline()
        for run in self.left:
            running = self.counts.running
            yield f"{safe(run.name)} was left" + (f"; {running} jobs go on" if running else "")
        for group in self.failures[:SHOWN_GROUPS]:
            yield ""
            yield from self._group(group, directory)
        if len(self.failures) > SHOWN_GROUPS:
            yield ""
            yield f"and {len(self.failures) - SHOWN_GROUPS} other causes"
        if self.failures:
            yield ""
            yield f"to try them again: {shlex.join([*self.program, *self.retry])}"
        elif self.counts.waiting or self.counts.running:
            yield f"to go on: {shlex.join([*self.program, *self.retry])}"

    def _headline(self) -> str:
        names = ", ".join(f"{safe(run.name)} {run.run_id}" for run in self.runs)
        counts = self.counts
        if counts.known and counts.reused == counts.known:
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
        number = len(group.jobs)
        shown = "" if group.reason is JobFailureStatus.FAILED else f" ({group.reason.name})"
        error = truncate(safe(group.error), LONGEST_ERROR)
        yield f"{number} {'job' if number == 1 else 'jobs'} failed{shown}: {error}"
        if group.messages > 1:
            yield f"  and {group.messages - 1} other messages from the same line"
        if group.place:
            yield f"  at {safe(_near(group.place, directory))}"
        for job in group.jobs[:SHOWN_JOBS]:
            yield f"  {safe(job.task_id)} {job.job_id[:SHORT_ID]}{tag_text(job, ' ')}"
        if number > SHOWN_JOBS:
            yield f"  and {number - SHOWN_JOBS} more"
        yield f"  to see why: {shlex.join([*self.program, *logs_arguments(group.jobs[0])])}"


def logs_arguments(job: Job) -> list[str]:
    """The command that shows what a job printed."""
    return ["logs", job.job_id[:SHORT_ID], "-w", job.layout.root]


def _near(path: str, directory: str) -> str:
    return os.path.relpath(path, directory) if path.startswith(f"{directory}/") else path


def _job_json(job: Job) -> dict[str, Any]:
    return {
        "task": job.task_id,
        "job": job.job_id,
        "tags": dict(job.tag_texts),
        "message": job.standing.message,
        "directory": job.paths.directory,
        "stderr": job.paths.err,
    }
