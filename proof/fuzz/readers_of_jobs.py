"""Owns the readers of a job's directory under test: its records, its markers, what its payload says."""

from __future__ import annotations

import json
import os
from typing import Any

from proof.fuzz.targets import NONCE, NOW, Bench, Target, Wrong
from tenuto.jobs.validity import claim_class
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.payload.report import ReportWriter, open_report, read_report
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.workspace import attempt_files, job_directory
from tenuto.workspace.carbon import Measured, read_carbon, write_carbon
from tenuto.workspace.layout import directory_name, name_of_directory
from tenuto.workspace.markers import Marker
from tenuto.workspace.records import (
    Corrupt,
    LocksRecord,
    PidRecord,
    StatusRecord,
    StopRecord,
    TokenUnits,
)


def records(bench: Bench) -> list[Target]:
    identity = bench.machine.processes.own()
    stop = StopRecord(1, JobFailureStatus.CANCELLED, NOW, "enough")
    locks = LocksRecord(1, (TokenUnits("gpu", (0, 3)),))
    status = StatusRecord("ab12", "a.Task", StateRecord(JobState.DONE, None, "well", NOW, NOW, NOW), 1, 2, 0)
    kinds: list[tuple[str, Any]] = [
        ("launch", bench.launch()),
        ("pid", PidRecord(identity, 1, NOW)),
        ("stop", stop),
        ("locks", locks),
        ("status", status),
        ("marker", _marker(None)),
    ]
    return [_record(name, record) for name, record in kinds]


def _marker(reason: JobFailureStatus | None) -> Marker:
    return Marker(
        1,
        NONCE,
        reason,
        "said",
        0,
        None,
        NOW,
        NOW,
        {"cpu_s": 1.5},
        {"a": [1]},
        False,
        {"git": "abc"},
        {"code": "abc"},
        ("truncated",),
    )


def _record(name: str, record: Any) -> Target:
    decode = type(record).decode

    def call(data: bytes) -> None:
        read = decode(data)
        if not isinstance(read, Corrupt) and name != "marker" and decode(read.encode()) != read:
            raise Wrong(f"{name} is not the same when it is written and read again")

    return Target(f"record-{name}", f"{name} record", lambda: [record.encode()], call)


def directory(bench: Bench) -> list[Target]:
    files, job = bench.files, bench.job

    def done(data: bytes) -> None:
        files.write(job.done, data)
        derived = job_directory.look(bench.machine, job).derived
        if derived.state is JobState.DONE and not _is_our_marker(data):
            raise Wrong("garbage passes for a finished job")
        if derived.state not in (JobState.DONE, JobState.ERROR):
            raise Wrong(f"a marker that cannot be read makes the job {derived.state.name}")

    def failed(data: bytes) -> None:
        files.remove(job.done)
        files.write(job.failed, data)
        try:
            if job_directory.look(bench.machine, job).derived.state is JobState.DONE:
                raise Wrong("a job with garbage in .failed passes for finished")
        finally:
            files.remove(job.failed)

    def launch(data: bytes) -> None:
        files.remove(job.done)
        files.write(job.launch, data)
        try:
            state = job_directory.look(bench.machine, job).derived.state
            if state not in (JobState.ERROR, JobState.SCHEDULED):
                raise Wrong(f"a job without marker and lock is {state.name}")
            found = attempt_files.read_launch(files, job)
            if found is not None:
                Instructions.of(found)
        finally:
            files.write(job.launch, bench.launch().encode())

    def result(data: bytes) -> None:
        files.write(job.result, data)
        attempt_files.read_result(files, job, _marker(None)._replace(result_stored=True))

    def claim(data: bytes) -> None:
        path = bench.layout.task_class("a.Task")
        files.make_directory(path.rpartition("/")[0])
        files.write(path, data)
        claim_class(files, bench.layout, "a.Task", f"{bench.root}/script.py")

    def report(data: bytes) -> None:
        fd = open_report()
        try:
            os.write(fd, data)
            read_report(fd)
        finally:
            os.close(fd)

    def said() -> list[bytes]:
        fd = open_report()
        try:
            reporter = ReportWriter(fd)
            reporter.provenance({"git": "abc"})
            reporter.done({"x": 1}, flags=("truncated",))
            reporter.failed(JobFailureStatus.FAILED, "no")
            return [os.pread(fd, 10_000, 0)]
        finally:
            os.close(fd)

    def claimed() -> list[bytes]:
        files.write(f"{bench.root}/script.py", b"x = 1\n")
        claim_class(files, bench.layout, "b.Task", f"{bench.root}/script.py")
        return [files.read(bench.layout.task_class("b.Task"), 10_000)]

    def carbon(data: bytes) -> None:
        files.write(job.carbon, data)
        read_carbon(files, job)

    def measured() -> list[bytes]:
        write_carbon(files, job, {1: Measured(NOW, None, "no meter")})
        return [files.read(job.carbon, 10_000)]

    def name(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        known = name_of_directory(text)
        if known is not None and directory_name(known) != text:
            raise Wrong("a directory has two names")

    instructed = (ValueError, TypeError, KeyError, OSError)
    return [
        Target("marker-done", "`.done` beside launch.json", lambda: [_marker(None).encode()], done),
        Target(
            "marker-failed",
            "`.failed` beside launch.json",
            lambda: [_marker(JobFailureStatus.TIMEOUT).encode()],
            failed,
        ),
        Target(
            "launch",
            "launch.json and its instructions",
            lambda: [bench.launch().encode()],
            launch,
            instructed,
        ),
        Target(
            "result", ".tenuto/result.json", lambda: [b'{"a": [1, 2.5, null, "x"]}'], result, (ValueError,)
        ),
        Target("task-class", "which script has a task id", claimed, claim),
        Target("carbon", "what a job used of energy", measured, carbon),
        Target("report", "what a payload tells its runner", said, report),
        Target(
            "directory-name", "ids spelled as directories", lambda: [b"a~2fb", b"my.Task", b"~c3~a9"], name
        ),
    ]


def _is_our_marker(data: bytes) -> bool:
    """Judged apart from the code under test: a JSON object that names this attempt and its nonce."""
    try:
        read = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(read, dict)
        and type(read.get("attempt")) is int
        and (read["attempt"] > 1 or (read["attempt"] == 1 and read.get("nonce") == NONCE))
        and isinstance(read.get("nonce"), str)
        and read.get("reason") is None
    )
