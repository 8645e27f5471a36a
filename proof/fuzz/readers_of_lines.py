"""Owns the readers of files of lines under test: journals, lists of jobs, outputs of tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from proof.fuzz.targets import NONCE, NOW, Bench, Target, Wrong
from tenuto.errors import TenutoError
from tenuto.jobs.job_progress import last_progress
from tenuto.jobs.log import read_tail
from tenuto.launchers.outputs import OutputsWriter, read_outputs
from tenuto.lifecycle.events import JobProgressEvent, JobStateChangedEvent, from_record, to_record
from tenuto.lifecycle.states import JobState
from tenuto.workspace import journal
from tenuto.workspace.event_writer import EventWriter
from tenuto.workspace.jobslist import JobLine, JobsList, read_jobs
from tenuto.workspace.lines import seal, unseal


def lines(bench: Bench) -> list[Target]:
    files, run = bench.files, bench.run
    place = bench.layout.job_journal("a.Task", "ab12")
    files.make_directory(place.directory)

    def events() -> list[bytes]:
        return [
            json.dumps(to_record(event)).encode()
            for event in (
                JobProgressEvent(timestamp=NOW, job_id="ab12", task_id="a.Task", attempt=1, progress=0.5),
                JobStateChangedEvent(
                    timestamp=NOW, job_id="ab12", task_id="a.Task", owner="search/fuzz", state=JobState.DONE
                ),
            )
        ]

    def event(data: bytes) -> None:
        from_record(json.loads(data))

    def journal_bytes() -> list[bytes]:
        writer = EventWriter(files, bench.layout.experiment_journal("sweep"), NONCE)
        for record in events():
            writer.write(from_record(json.loads(record)))
        writer.close()
        path = bench.layout.experiment_journal("sweep").path(0)
        data = files.read(path, 1 << 20)
        files.remove(path)
        return [data, data[:-7], data[20:]]

    def read_journal(data: bytes) -> None:
        files.write(place.path(0), data)
        files.write(f"{run.events}/events-0.jsonl", data)
        entries = journal.EventReader(files, place).read()
        if len({(entry.writer, entry.sequence) for entry in entries}) != len(entries):
            raise Wrong("an event is read twice")
        list(journal.replay(files, run.events))
        last_progress(files, place, 1)
        read_tail(files, place.path(0))

    def sealed_journal(data: bytes) -> None:
        content = _object(data)
        if content is not None:
            read_journal(seal({"w": NONCE, "s": 1, "e": content}) + seal({"w": NONCE, **content}))

    def jobs() -> list[bytes]:
        files.remove(run.jobs_list)
        listing = JobsList(files, run)
        listing.append(JobLine("ab12", "a.Task", NOW, {"lr": "1"}, ("cd34",), max_retries=2))
        listing.close()
        return [files.read(run.jobs_list, 1 << 20)]

    def read_listed(data: bytes) -> None:
        files.write(run.jobs_list, data)
        read_jobs(files, run)

    def outputs() -> list[bytes]:
        files.remove(bench.job.task_outputs)
        writer = OutputsWriter(files, bench.job, 1)
        writer.write(["model", 0], "checkpoint", [1, "x"], {"step": 3})
        return [files.read(bench.job.task_outputs, 1 << 20)]

    def read_output(data: bytes) -> None:
        files.write(bench.job.task_outputs, data)
        read_outputs(files, bench.job)

    def contents(written: Callable[[], list[bytes]]) -> Callable[[], list[bytes]]:
        return lambda: [
            json.dumps(content).encode()
            for data in written()
            for line in data.splitlines(keepends=True)
            if (content := unseal(line))
        ]

    def sealed(read: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def call(data: bytes) -> None:
            content = _object(data)
            if content is not None:
                read(seal(content))

        return call

    return [
        Target("event", "one event of a journal", events, event, (TenutoError, ValueError, RecursionError)),
        Target("journal", "a journal's bytes", journal_bytes, read_journal),
        Target("journal-sealed", "a journal's content, checksums right", events, sealed_journal),
        Target("jobs-list", "jobs.jsonl's bytes", jobs, read_listed),
        Target(
            "jobs-list-sealed", "jobs.jsonl's content, checksums right", contents(jobs), sealed(read_listed)
        ),
        Target("task-outputs", "task-outputs.jsonl's bytes", outputs, read_output),
        Target(
            "task-outputs-sealed",
            "task-outputs.jsonl's content, checksums right",
            contents(outputs),
            sealed(read_output),
        ),
    ]


def _object(data: bytes) -> dict[str, Any] | None:
    """The input as an object that can be sealed; None if it is none."""
    try:
        read = json.loads(data)
        content = {key: value for key, value in read.items() if key != "c"} if type(read) is dict else {}
        seal({"w": NONCE, **content})
    except (ValueError, RecursionError):
        return None
    return content or None
