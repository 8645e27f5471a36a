"""Owns the readers under test: for each, real files to begin with, and one call that reads some bytes.
The call raises `Wrong` if the answer is one that garbage must not get.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from proof.fuzz.configs import Canary, Leaf, Tree
from tenuto.cli.filters import parse_filter
from tenuto.errors import ClassNotFound, FilterError, TenutoError
from tenuto.experiments.locking import lock_experiment
from tenuto.experiments.status import RunState, RunStatus, read_run_status
from tenuto.experiments.stored import read_stored
from tenuto.experiments.tails import last_progress, read_tail
from tenuto.experiments.view import WorkspaceView
from tenuto.experiments.yaml_file import read_experiment
from tenuto.launchers.instructions import Command, Instructions, instruct
from tenuto.launchers.outputs import OutputsWriter, read_outputs
from tenuto.launchers.runner.report import Reporter, open_report, read_report
from tenuto.launchers.warm.needs import needs_of
from tenuto.lifecycle.events import JobProgressEvent, JobStateChangedEvent, from_record, to_record
from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing
from tenuto.settings import load_settings
from tenuto.tasks.serialization import document, dumps, job_document, loads, no_upstream, read_value
from tenuto.workspace import attempt_files, classes, job_directory, journal
from tenuto.workspace.jobslist import JobLine, JobsList, read_jobs
from tenuto.workspace.layout import Layout, directory_name, name_of_directory
from tenuto.workspace.lines import seal, unseal
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Marker
from tenuto.workspace.records import (
    Corrupt,
    LaunchRecord,
    LocksRecord,
    PidRecord,
    StatusRecord,
    StopRecord,
    TokenUnits,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NONCE = "0123456789abcdef"
CANARY = "tenuto_fuzz_canary"
"""A module that the inputs name and nobody may import."""


class Wrong(Exception):
    """Garbage got an answer that it must not get."""


class Target(NamedTuple):
    """A reader."""

    name: str
    reads: str
    seeds: Callable[[], list[bytes]]
    call: Callable[[bytes], None]
    allowed: tuple[type[Exception], ...] = ()
    """What it may raise; most readers promise to raise nothing."""


class Bench:
    """A workspace in memory, in which one file at a time is replaced by garbage."""

    def __init__(self) -> None:
        fast = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.root = tempfile.mkdtemp(prefix="tenuto-fuzz-", dir=fast)
        self.machine = this_machine()
        self.files = self.machine.files
        self.layout = Layout(self.root)
        self.job = self.layout.job("a.Task", "ab12")
        self.run = self.layout.run("sweep", "20260101_000000")
        self.files.make_directory(self.job.private)
        self.files.make_directory(self.run.directory)
        self.files.make_directory(self.run.events)
        self.files.write(self.job.launch, self.launch().encode())
        self._canary = f"{self.root}/canary"
        self.files.make_directory(self._canary)
        self.files.write(f"{self._canary}/{CANARY}.py", b"")
        sys.path.append(self._canary)

    def launch(self) -> LaunchRecord:
        instructions = instruct(self.layout, "a.Task", "ab12", command=Command(("true",), {}))
        return LaunchRecord(1, NONCE, "spawn", "ab12", "host", NOW, instructions=instructions)

    def close(self) -> None:
        sys.path.remove(self._canary)
        sys.modules.pop(CANARY, None)
        shutil.rmtree(self.root, ignore_errors=True)


def targets(bench: Bench) -> list[Target]:
    """Every reader of files."""
    return [*_records(bench), *_directory(bench), *_lines(bench), *_documents(bench), *_settings(bench)]


# Records


def _records(bench: Bench) -> list[Target]:
    identity = bench.machine.processes.own()
    stop = StopRecord(1, JobFailureStatus.CANCELLED, NOW, "enough")
    locks = LocksRecord(1, (TokenUnits("gpu", (0, 3)),))
    status = StatusRecord("ab12", "a.Task", Standing(JobState.DONE, None, "well", NOW, NOW, NOW), 1, 2, 0)
    records: list[tuple[str, Any]] = [
        ("launch", bench.launch()),
        ("pid", PidRecord(identity, 1, NOW)),
        ("stop", stop),
        ("locks", locks),
        ("status", status),
        ("marker", _marker(None)),
    ]
    return [_record(name, record) for name, record in records]


def _marker(reason: JobFailureStatus | None) -> Marker:
    return Marker(
        1, NONCE, reason, "said", 0, None, NOW, NOW, {"cpu_s": 1.5}, {"a": [1]}, False, {"git": "abc"}, ("truncated",)
    )


def _record(name: str, record: Any) -> Target:
    decode = type(record).decode

    def call(data: bytes) -> None:
        read = decode(data)
        if not isinstance(read, Corrupt) and name != "marker" and decode(read.encode()) != read:
            raise Wrong(f"{name} is not the same when it is written and read again")

    return Target(f"record-{name}", f"{name} record", lambda: [record.encode()], call)


# A job's directory


def _directory(bench: Bench) -> list[Target]:
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
        classes.claim_task_id(files, bench.layout, "a.Task", f"{bench.root}/script.py")

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
            reporter = Reporter(fd)
            reporter.provenance({"git": "abc"})
            reporter.done({"x": 1}, flags=("truncated",))
            reporter.failed(JobFailureStatus.FAILED, "no")
            return [os.pread(fd, 10_000, 0)]
        finally:
            os.close(fd)

    def claimed() -> list[bytes]:
        files.write(f"{bench.root}/script.py", b"x = 1\n")
        classes.claim_task_id(files, bench.layout, "b.Task", f"{bench.root}/script.py")
        return [files.read(bench.layout.task_class("b.Task"), 10_000)]

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
        Target("launch", "launch.json and its instructions", lambda: [bench.launch().encode()], launch, instructed),
        Target("result", "result.json", lambda: [b'{"a": [1, 2.5, null, "x"]}'], result, (ValueError,)),
        Target("task-class", "which script has a task id", claimed, claim),
        Target("report", "what a payload tells its runner", said, report),
        Target("directory-name", "ids spelled as directories", lambda: [b"a~2fb", b"my.Task", b"~c3~a9"], name),
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


# Files of lines


def _lines(bench: Bench) -> list[Target]:
    files, run = bench.files, bench.run
    place = bench.layout.job_journal("a.Task", "ab12")
    files.make_directory(place.directory)

    def events() -> list[bytes]:
        return [
            json.dumps(to_record(event)).encode()
            for event in (
                JobProgressEvent(timestamp=NOW, job_id="ab12", task_id="a.Task", attempt=1, progress=0.5),
                JobStateChangedEvent(timestamp=NOW, job_id="ab12", task_id="a.Task", state=JobState.DONE),
            )
        ]

    def event(data: bytes) -> None:
        from_record(json.loads(data))

    def journal_bytes() -> list[bytes]:
        writer = journal.EventWriter(files, bench.layout.experiment_journal("sweep"), NONCE)
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
        listing = JobsList(files, run, bench.machine.clock)
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
        Target("jobs-list-sealed", "jobs.jsonl's content, checksums right", contents(jobs), sealed(read_listed)),
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
        content = json.loads(data)
        if isinstance(content, dict) and content:
            seal({"w": NONCE, **content})
            content.pop("c", None)
            return content or None
    except (ValueError, RecursionError):
        pass
    return None


# Documents


def _documents(bench: Bench) -> list[Target]:
    def written() -> list[bytes]:
        leaf = Leaf.C(number=3, ratio=0.5, text="é", flags=[True, False])
        tree = Tree.C(left=leaf, right=leaf, names={"a": [1, 2]}, path=Path("x/y"))
        job = job_document(tree, Path(bench.job.directory), Path(bench.layout.partials), ["src"])
        return [dumps(document(tree)), dumps(job)]

    def params(data: bytes) -> None:
        bench.files.write(bench.job.params, data)
        read_stored(bench.files, bench.job)
        instructions = Instructions.of(bench.launch())._replace(command=None)
        needs_of(bench.files, bench.job, instructions, {})

    def value(data: bytes) -> None:
        read = loads(data, "the input")
        for item in read["objects"]:
            place = item.get("class")
            if not isinstance(place, list) or not place or place[0] != Leaf.__module__:
                raise ClassNotFound("only classes of this test are looked for")
        read_value(read, Path(bench.job.directory), no_upstream)

    def view(data: bytes) -> None:
        for path in (bench.run.status, bench.run.environment, bench.run.jobs_list):
            bench.files.write(path, data)
        read_run_status(bench.files, bench.run)
        seen = WorkspaceView(bench.layout, bench.machine)
        for experiment in seen.experiments():
            for run in experiment.runs:
                seen.commits(run)
                seen.lines(run)

    def statuses() -> list[bytes]:
        status = RunStatus("sweep", "20260101_000000", RunState.DONE, NOW, "host", 1, NOW, 3, 1, 0, "well")
        git = {"git": [{"path": "/p", "commit": "abc", "dirty": True}]}
        return [status.encode(), json.dumps(git).encode()]

    lock = lock_experiment(bench.machine, bench.layout, "held")

    def holder(data: bytes) -> None:
        bench.files.write(bench.layout.experiment_lock("held"), data)
        WorkspaceView(bench.layout, bench.machine).runs("held")
        try:
            lock_experiment(bench.machine, bench.layout, "held")
        except TenutoError:
            return
        raise Wrong(f"a held experiment is given to another ({lock})")

    return [
        Target("params", "params.json, by those who only look", written, params),
        Target("params-value", "params.json, by who builds the configs", written, value, (TenutoError,)),
        Target("run", "status.json, environment.json and jobs.jsonl of a run", statuses, view),
        Target("experiment-lock", "who holds an experiment", lambda: [b'{"host":"h","pid":1,"since":"x"}'], holder),
    ]


# Settings, filters, experiments


def _settings(bench: Bench) -> list[Target]:
    here = Path(bench.root) / "settings"
    here.mkdir()
    home = {"HOME": str(here), "XDG_CONFIG_HOME": str(here / "none")}

    def settings(data: bytes) -> None:
        (here / "tenuto.toml").write_bytes(data)
        try:
            load_settings(start=here, environ=home)
        finally:
            (here / "tenuto.toml").unlink()

    def project(data: bytes) -> None:
        (here / "pyproject.toml").write_bytes(data)
        try:
            load_settings(start=here, environ=home)
        finally:
            (here / "pyproject.toml").unlink()

    def toml() -> list[bytes]:
        return [
            b'launcher = "spawn"\n[workspaces.main]\npath = "~/ws"\n[history]\nmax_done = 3\n',
            b'x = """a\nb"""\ny = [1, 2, {a = 1}]\n"quoted key".z = 1979-05-27T07:32:00Z\n',
        ]

    def filters(data: bytes) -> None:
        # Whoever writes a regular expression waits for it himself: they are not for strangers.
        tree = parse_filter(data.decode("utf-8", "replace"), regex=False)
        tree.matches({"state": JobState.DONE, "lr": 0.1, "name": "x", "when": NOW, "tags": {"a": "b"}})
        if str(parse_filter(str(tree), regex=False)) != str(tree):
            raise Wrong("a filter is another one when it is written and read again")

    def experiment(data: bytes) -> None:
        path = here / "sweep.yaml"
        path.write_bytes(data)
        read_experiment(path)

    def yaml() -> list[bytes]:
        return [
            b"task: my.Task\nid: sweep\nparameters:\n  lr: 0.1\n  model: {size: 3}\ngrid:\n  seed: [1, 2]\n",
            b"a: &x [1, 2]\nb: *x\nc: !!str 3\nd: 0x1f\ne: 1_000\nf: ~\n",
        ]

    words = [b'state = done and (lr < 0.1 or not name ~ "x*") ', b"tags.a = b or when > 2026-01-01"]
    return [
        Target("settings", "tenuto.toml", toml, settings, (TenutoError,)),
        Target("pyproject", "[tool.tenuto]", lambda: [b"[tool.tenuto]\n" + toml()[0]], project, (TenutoError,)),
        Target("filter", "the filter language", lambda: words, filters, (FilterError,)),
        Target("experiment-file", "experiments in YAML", yaml, experiment, (TenutoError,)),
    ]


def play(target: Target, data: bytes) -> None:
    """One input to one reader. Whatever comes out, other than what is allowed, is a finding."""
    try:
        target.call(data)
    except Wrong:
        raise
    except target.allowed:
        pass
    if CANARY in sys.modules or Canary.is_made:
        raise Wrong("a module that a file named was imported")
