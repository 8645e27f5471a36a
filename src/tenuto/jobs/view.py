"""The jobs of a workspace as a reader sees them, in any process at any time, whatever door they came by.
Reads only, by as deep a look as its caller needs; needs no scheduler, and raises for nothing that it finds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import Enum, unique
from functools import cached_property
from typing import Any, NamedTuple

from tenuto.errors import TenutoError
from tenuto.jobs.directories import MovedJobs, job_keys
from tenuto.jobs.job_progress import last_progress
from tenuto.jobs.key import JobKey
from tenuto.jobs.parameters import Stored, read_stored
from tenuto.jobs.result_table import ResultReader, flat_result, result_of
from tenuto.jobs.row import Row, row_key
from tenuto.launchers.clusters import Clusters
from tenuto.launchers.results import readable
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace import job_directory, packs
from tenuto.workspace.attempt_files import read_made_of
from tenuto.workspace.carbon import Measured, read_carbon
from tenuto.workspace.derive import ClusterReport, Evidence
from tenuto.workspace.job_directory import Ask
from tenuto.workspace.layout import JobPaths, Layout, is_job_id, name_of_directory
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import FileKind, Machine
from tenuto.workspace.records import LaunchRecord, PidRecord, read_record

REMOVED = "its directory was removed"


class JobReading(NamedTuple):
    """What a list shows of a job."""

    state: JobState
    reason: JobFailureStatus | None = None
    message: str | None = None
    attempt: int = 0
    requested: datetime | None = None
    """When the current attempt was asked for; unknown where only a marker was read."""
    starttime: datetime | None = None
    endtime: datetime | None = None
    marker: Marker | None = None
    result: Any = None
    """What a job that is done gave, as plain JSON; None also for a result too large for its marker."""
    has_large_result: bool = False
    alarm: str | None = None
    is_there: bool = True
    """False if the job has no directory."""
    evidence: Evidence | None = None
    """The evidence; only at that depth."""
    where: str = ""
    """The machine that runs or ran the current attempt; not known where only a marker was read."""

    @property
    def decided(self) -> datetime | None:
        """The last instant that the directory knows of the current attempt."""
        return self.endtime or self.starttime or self.requested


_ABSENT = JobReading(JobState.UNSCHEDULED, is_there=False)


@unique
class ReadDepth(Enum):
    """How much of a directory is read."""

    STATE = "state"
    """As few files as possible, to count thousands of jobs. Markers are not opened, so the state can be wrong
    where a crash left the marker of an older attempt. Only `state` is filled in."""
    ROW = "row"
    """What a list shows: one marker for a job that is done, all the evidence for any other."""
    EVIDENCE = "evidence"
    """All the evidence, for every job."""


def look(
    machine: Machine, paths: JobPaths, depth: ReadDepth = ReadDepth.ROW, ask: Ask | None = None
) -> JobReading:
    """What the directory of a job shows; `ask`: called for an attempt that a cluster has."""
    try:
        if depth is not ReadDepth.EVIDENCE and (reading := _packed(machine, paths, depth)) is not None:
            return reading
        kind = _kind(machine, paths.directory)
        if kind is None:
            return _ABSENT
        if kind is not FileKind.DIRECTORY:
            return _ABSENT._replace(alarm=f"{paths.directory} is a {kind.value}, not a directory")
        if depth is ReadDepth.STATE and (state := _state(machine, paths)) is not None:
            return JobReading(state)
        if depth is not ReadDepth.EVIDENCE and machine.files.stat(paths.failed) is None:
            done = read_record(machine.files, paths.done, Marker.decode)
            if isinstance(done, Marker) and done.reason is None:
                return _by_marker(JobState.DONE, done)
        reading = _settled(job_directory.look(machine, paths, ask=ask))
        return reading if depth is ReadDepth.EVIDENCE else reading._replace(evidence=None)
    except (OSError, TenutoError) as error:
        return JobReading(JobState.UNSCHEDULED, alarm=f"it cannot be looked at: {error}")


def _packed(machine: Machine, paths: JobPaths, depth: ReadDepth) -> JobReading | None:
    """What a pack has of a job that is done: the disk need not be asked for each of its files."""
    found = packs.find(machine.files, paths.directory)
    done, failed = (path.rpartition("/")[2] for path in (paths.done, paths.failed))
    if found is None or failed in found[0].entries or done not in found[0].entries:
        return None
    if depth is ReadDepth.STATE:
        return JobReading(JobState.DONE)
    marker = Marker.decode(found[0].read(paths.done, done))
    return _by_marker(JobState.DONE, marker) if isinstance(marker, Marker) and not marker.reason else None


def _state(machine: Machine, paths: JobPaths) -> JobState | None:
    """The state of a job by its file names alone; None where they do not tell."""
    if _kind(machine, paths.failed) is FileKind.FILE:
        return JobState.ERROR
    if _kind(machine, paths.done) is FileKind.FILE:
        return JobState.DONE
    if machine.files.stat(paths.launch) is None and not machine.locks.is_locked(paths.lock):
        # A runner that ended well between the two looks has removed its launch record.
        return JobState.DONE if _kind(machine, paths.done) is FileKind.FILE else JobState.UNSCHEDULED
    return None


def _settled(found: job_directory.Settled) -> JobReading:
    evidence, derived, _ = found
    pid = evidence.pid if isinstance(evidence.pid, PidRecord) else None
    launch = evidence.launch if isinstance(evidence.launch, LaunchRecord) else None
    reading = JobReading(
        derived.state,
        derived.reason,
        derived.message,
        derived.attempt,
        requested=launch.requested if launch else None,
        starttime=pid.started if pid and pid.attempt == derived.attempt else None,
        alarm=derived.alarm,
        evidence=evidence,
        where=_where(launch, pid, derived.attempt),
    )
    if derived.marker is None:
        if launch is not None and launch.withdrawn and derived.state is JobState.ERROR:
            # The machine refused the start, and nothing was run: no failure, and no try.
            return reading._replace(state=JobState.UNSCHEDULED, reason=None, message=None)
        return reading
    marked = _by_marker(derived.state, derived.marker)
    return marked._replace(
        message=derived.message,
        alarm=derived.alarm,
        requested=reading.requested,
        evidence=evidence,
        where=reading.where,
    )


def _where(launch: LaunchRecord | None, pid: PidRecord | None, attempt: int) -> str:
    if pid is not None and pid.attempt == attempt:
        return sys.intern(pid.identity.host)  # one string for the rows of a machine
    return sys.intern(launch.host) if launch is not None and launch.attempt == attempt else ""


def _by_marker(state: JobState, marker: Marker) -> JobReading:
    return JobReading(
        state,
        marker.reason,
        marker.message,
        marker.attempt,
        starttime=marker.starttime,
        endtime=marker.endtime,
        marker=marker._replace(launch={}) if marker.launch else marker,  # a list keeps very many
        result=readable(marker.result) if state is JobState.DONE else None,
        has_large_result=marker.result_stored and state is JobState.DONE,
    )


def _kind(machine: Machine, path: str) -> FileKind | None:
    found = machine.files.stat(path)
    return None if found is None else found.kind


PATIENCE_S = 2.0


class Inquiry:
    """What one command asks."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.clusters = Clusters()
        self._left_s = PATIENCE_S

    def __call__(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        """What the cluster of an attempt knows of it."""
        began = self._machine.clock.monotonic()
        report = self.clusters.report_within(paths, launch, self._left_s)
        self._left_s = max(self._left_s - (self._machine.clock.monotonic() - began), 0.0)
        return report


_MOST_LOGS = 1000


class StoredDetail(NamedTuple):
    """Everything about one job."""

    job: Row
    stored: Stored
    dependencies: tuple[Row, ...]
    dependents: tuple[Row, ...]
    """Known where the job's run is known."""
    asked_by: tuple[str, ...]
    """The names of the runs that asked for it, newest first."""
    launch: LaunchRecord | None
    evidence: Evidence | None
    marker: Marker | None
    paths: JobPaths
    earlier_logs: int
    """How many earlier attempts left a log."""
    record: Mapping[str, Any] = {}
    """What its result was made of."""
    carbon: Mapping[int, Measured] = {}
    """attempt -> its use."""
    max_retries: int = 0
    """How often a resumable job is restarted when its time is up."""


class JobsView:
    """Looks at the jobs of one workspace."""

    def __init__(self, layout: Layout, machine: Machine) -> None:
        self.layout = layout
        self.machine = machine
        self._files = machine.files

    @cached_property
    def moved(self) -> MovedJobs:
        """The jobs that lie under other keys than runs from before have."""
        return MovedJobs(self._files, self.layout)

    @cached_property
    def inquiry(self) -> Inquiry:
        """Asks the clusters that have jobs of the workspace."""
        return Inquiry(self.machine)

    def job_keys(self) -> Iterator[JobKey]:
        """Every job that has a directory."""
        moved = self.moved.read()
        return (key for key in job_keys(self._files, self.layout.jobs) if key not in moved)

    def find(self, name: str) -> list[JobKey]:
        """The jobs that a name stands for.

        The beginning of an id, a task (its last part will do), `TASK/ID`, or the path of a directory.
        """
        task, _, identity = name.rstrip("/").rpartition("/")
        task = task.rpartition("/")[2]
        moved = self.moved.read()

        def begins(task_id: str) -> str | None:
            if task:
                return identity if _is_task(task_id, task) else None
            return "" if _is_task(task_id, identity) else identity

        keys = [key for key in job_keys(self._files, self.layout.jobs, begins) if key not in moved]
        found = _named(keys, task, identity) or _named(list(self.moved.read()), task, identity)
        return list(dict.fromkeys(map(self.moved.present, found)))

    def key_of(self, directory: str) -> JobKey | None:
        """The job of this workspace whose directory that is."""
        parent, _, job_id = directory.rpartition("/")
        root, _, task = parent.rpartition("/")
        task_id = name_of_directory(task) if root == self.layout.jobs else None
        return JobKey(task_id, job_id) if task_id is not None and is_job_id(job_id) else None

    def look(self, key: JobKey, depth: ReadDepth = ReadDepth.ROW) -> JobReading:
        """What the directory of a job shows."""
        return look(self.machine, self.layout.job(*key), depth, ask=self.inquiry)

    def job(self, key: JobKey) -> Row:
        """One job; a door adds its own fields."""
        return self.job_alone(key)

    def job_alone(self, key: JobKey) -> Row:
        """One job, as its directory shows it."""
        reading = self.look(key)
        return self.row(key, reading if reading.is_there else reading._replace(message=REMOVED))

    def row(self, key: JobKey, reading: JobReading, group: str = "") -> Row:
        """A job as its directory shows it; of a job that runs, how far it says it is."""
        row = Row(
            key=row_key(Door.EXPERIMENTS, *key),
            group=group,
            door=Door.EXPERIMENTS,
            task=key.task_id,
            id=key.job_id,
            state=reading.state,
            reason=reading.reason,
            message=reading.message,
            attempt=reading.attempt,
            where=reading.where,
            started=reading.starttime,
            ended=reading.endtime,
            alarm=reading.alarm,
            result=reading.result,
            has_large_result=reading.has_large_result,
        )
        if row.state is not JobState.RUNNING:
            return row
        place = self.layout.job_journal(*key)
        said = last_progress(self._files, place, row.attempt, row.started)
        if said is None:
            return row
        left_s = said.left_s(said.reported)
        return row._replace(
            progress=said.fraction,
            progress_desc=said.words or None,
            eta_at=None if left_s is None else said.reported + timedelta(seconds=left_s),
        )

    def parameters(self, row: Row) -> Mapping[str, Any]:
        """By the names of filters: parameters of a job and of the jobs that it used, and its result."""
        files = self._files
        returned = result_of(files, self.layout.job(*row.job_key), row)
        return {**ResultReader(files, self.layout).parameters(row.job_key), **flat_result(returned)}

    def detail(self, key: JobKey) -> StoredDetail:
        """Everything about one job; a door adds its own fields."""
        paths = self.layout.job(*key)
        job, stored, reading = (
            self.job_alone(key),
            read_stored(self._files, paths),
            self.look(key, ReadDepth.EVIDENCE),
        )
        evidence = reading.evidence
        if evidence is not None and reading.state is job.state:
            job = job._replace(started=reading.starttime or job.started)
        return StoredDetail(
            job=job,
            stored=stored,
            dependencies=tuple(self.job_alone(one) for one in dict.fromkeys(stored.upstream.values())),
            dependents=(),
            asked_by=(),
            launch=evidence.launch if evidence and isinstance(evidence.launch, LaunchRecord) else None,
            evidence=evidence,
            marker=reading.marker,
            paths=paths,
            earlier_logs=self.earlier_logs(paths),
            record=self.record(paths, reading.marker),
            carbon=read_carbon(self._files, paths),
        )

    def record(self, paths: JobPaths, marker: Marker | None) -> Mapping[str, Any]:
        """What the result of a job was made of, as far as its marker tells."""
        if marker is None:
            return {}
        made = dict(read_made_of(self._files, paths, marker))
        if (seed := marker.provenance.get("seed")) is not None:
            made["seed"] = int(seed) if seed.isdigit() else seed
        if (adopted := marker.provenance.get("adopted")) is not None:
            made["adopted"] = adopted  # the directory of the other system that it was taken over from
        return made

    def earlier_logs(self, paths: JobPaths) -> int:
        """How many earlier attempts left a log."""
        number = 0
        while number < _MOST_LOGS and any(
            self._files.stat(paths.rotated(log, number + 1)) for log in (paths.out, paths.err)
        ):
            number += 1
        return number


def _named(keys: list[JobKey], task: str, identity: str) -> list[JobKey]:
    if task:
        by_id = [key for key in keys if _is_task(key.task_id, task) and key.job_id.startswith(identity)]
        return [key for key in by_id if key.job_id == identity] or by_id
    by_id = [key for key in keys if key.job_id.startswith(identity)]
    exact = [key for key in by_id if key.job_id == identity]
    return exact or by_id + [key for key in keys if _is_task(key.task_id, identity) and key not in by_id]


def _is_task(task_id: str, name: str) -> bool:
    return task_id == name or task_id.endswith(f".{name}") or task_id.rpartition(".")[2] == name
