"""The jobs of a workspace as a reader sees them, in any process at any time, whatever door they came by.
Reads only. It needs no scheduler, and survives whatever lies on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from tenuto.errors import Ambiguous, NotFound
from tenuto.jobs.directories import job_keys
from tenuto.jobs.inquiry import Inquiry
from tenuto.jobs.job_progress import Progress, last_progress
from tenuto.jobs.key import JobKey
from tenuto.jobs.parameters import Stored, read_stored
from tenuto.jobs.sight import REMOVED, Depth, Sight, look
from tenuto.launchers.results import readable
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.workspace.carbon import Measured, read_carbon
from tenuto.workspace.derive import Evidence
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord

_CANDIDATES_SHOWN = 8
_MOST_LOGS = 1000


class JobView(NamedTuple):
    """One job, as far as a list shows it."""

    task_id: str
    job_id: str
    state: JobState
    reason: JobFailureStatus | None = None
    message: str | None = None
    attempt: int = 0
    tags: Mapping[str, str] = {}
    depends_on: tuple[str, ...] = ()
    transient: TransientMode = TransientMode.NONE
    submittime: datetime | None = None
    starttime: datetime | None = None
    endtime: datetime | None = None
    experiment_id: str | None = None
    run_id: str | None = None
    alarm: str | None = None
    marker: Marker | None = None
    progress: Progress | None = None
    """Only of a job that runs."""
    max_retries: int = 0
    """How often a resumable job is restarted when its time is up."""

    @property
    def key(self) -> JobKey:
        return JobKey(self.task_id, self.job_id)

    @property
    def small_result(self) -> Any:
        """What the task returned; None also for a result too large for a list (see `results.result_of`)."""
        is_done = self.state is JobState.DONE and self.marker is not None
        return readable(self.marker.result) if is_done and self.marker is not None else None

    def duration_s(self, now: datetime) -> float | None:
        """How long it ran, or has been running."""
        if self.starttime is None:
            return None
        end = self.endtime or (now if self.state.running() else None)
        return None if end is None else max((end - self.starttime).total_seconds(), 0.0)


class JobDetail(NamedTuple):
    """Everything about one job."""

    job: JobView
    stored: Stored
    dependencies: tuple[JobView, ...]
    dependents: tuple[JobView, ...]
    """Known where the job's run is known."""
    asked_by: tuple[str, ...]
    """The names of the runs that asked for it, newest first."""
    launch: LaunchRecord | None
    evidence: Evidence | None
    paths: JobPaths
    earlier_logs: int
    """How many earlier attempts left a log."""
    carbon: Mapping[int, Measured] = {}
    """attempt -> what it used."""


class JobsView:
    """Looks at the jobs of one workspace."""

    def __init__(self, layout: Layout, machine: Machine) -> None:
        self.layout = layout
        self.machine = machine
        self._files = machine.files

    @cached_property
    def inquiry(self) -> Inquiry:
        """Asks the clusters that have jobs of the workspace."""
        return Inquiry(self.machine)

    def job_keys(self) -> Iterator[JobKey]:
        """Every job that has a directory."""
        return job_keys(self._files, self.layout.jobs)

    def find(self, name: str) -> list[JobKey]:
        """The jobs that a name stands for.

        The beginning of an id, a task (its last part will do), `TASK/ID`, or the path of a directory.
        """
        task, _, identity = name.rstrip("/").rpartition("/")
        task = task.rpartition("/")[2]
        keys = list(self.job_keys())
        if task:
            by_id = [key for key in keys if _is_task(key, task) and key.job_id.startswith(identity)]
            return [key for key in by_id if key.job_id == identity] or by_id
        by_id = [key for key in keys if key.job_id.startswith(identity)]
        exact = [key for key in by_id if key.job_id == identity]
        return exact or by_id + [key for key in keys if _is_task(key, identity) and key not in by_id]

    def find_one(self, name: str) -> JobKey:
        """The one job that a name stands for; `NotFound` or `Ambiguous` otherwise."""
        found = self.find(name)
        if not found:
            raise NotFound(f"no job is called {name!r}; `tenuto jobs --all` lists them")
        if len(found) > 1:
            more = "" if len(found) <= _CANDIDATES_SHOWN else f", and {len(found) - _CANDIDATES_SHOWN} more"
            names = ", ".join(f"{key.task_id}/{key.job_id[:12]}" for key in found[:_CANDIDATES_SHOWN])
            raise Ambiguous(f"{len(found)} jobs are called {name!r}: {names}{more}; give more of the id")
        return found[0]

    def look(self, key: JobKey, depth: Depth = Depth.ROW) -> Sight:
        """What the directory of a job shows."""
        return look(self.machine, self.layout.job(*key), depth, ask=self.inquiry)

    def job(self, key: JobKey) -> JobView:
        """One job; a door adds what it knows of it."""
        return self.job_alone(key)

    def job_alone(self, key: JobKey) -> JobView:
        """One job, as its directory shows it."""
        sight = self.look(key)
        return self._with_progress(
            JobView(
                key.task_id,
                key.job_id,
                sight.state,
                sight.reason,
                sight.message if sight.is_there else REMOVED,
                sight.attempt,
                starttime=sight.starttime,
                endtime=sight.endtime,
                alarm=sight.alarm,
                marker=sight.marker,
            )
        )

    def detail(self, key: JobKey) -> JobDetail:
        """Everything about one job; a door adds what it knows of it."""
        paths = self.layout.job(*key)
        job, stored, sight = (
            self.job_alone(key),
            read_stored(self._files, paths),
            self.look(key, Depth.EVIDENCE),
        )
        evidence = sight.evidence
        if evidence is not None and sight.state is job.state:
            job = job._replace(starttime=sight.starttime or job.starttime)
        return JobDetail(
            job=job,
            stored=stored,
            dependencies=tuple(self.job_alone(one) for one in dict.fromkeys(stored.upstream.values())),
            dependents=(),
            asked_by=(),
            launch=evidence.launch if evidence and isinstance(evidence.launch, LaunchRecord) else None,
            evidence=evidence,
            paths=paths,
            earlier_logs=self.earlier_logs(paths),
            carbon=read_carbon(self._files, paths),
        )

    def _with_progress(self, job: JobView) -> JobView:
        if job.state is not JobState.RUNNING:
            return job
        place = self.layout.job_journal(job.task_id, job.job_id)
        return job._replace(progress=last_progress(self._files, place, job.attempt, job.starttime))

    def earlier_logs(self, paths: JobPaths) -> int:
        """How many earlier attempts left a log."""
        number = 0
        while number < _MOST_LOGS and any(
            self._files.stat(paths.rotated(log, number + 1)) for log in (paths.out, paths.err)
        ):
            number += 1
        return number


def _is_task(key: JobKey, name: str) -> bool:
    return key.task_id == name or key.task_id.endswith(f".{name}") or key.task_id.rpartition(".")[2] == name


def plain_job(job: JobView, now: datetime) -> dict[str, Any]:
    """A job as the plain values that `--json` prints; the keys are documented in docs/cli.md."""
    return {
        "task": job.task_id,
        "id": job.job_id,
        "state": job.state.name.lower(),
        "reason": job.reason.name.lower() if job.reason else None,
        "message": job.message,
        "experiment": job.experiment_id,
        "run": job.run_id,
        "attempt": job.attempt,
        "tags": dict(job.tags),
        "depends_on": list(job.depends_on),
        "transient": job.transient.name.lower(),
        "submitted": _iso(job.submittime),
        "started": _iso(job.starttime),
        "ended": _iso(job.endtime),
        "duration_s": job.duration_s(now),
        "progress": job.progress.fraction if job.progress else None,
        "progress_desc": job.progress.desc if job.progress else None,
        "eta_s": job.progress.left_s(now) if job.progress else None,
        "alarm": job.alarm,
        "result": job.small_result,
    }


def _iso(instant: datetime | None) -> str | None:
    return instant.isoformat() if instant else None
