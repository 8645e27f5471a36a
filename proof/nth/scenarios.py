"""Owns what is done to a workspace while operations fail, and what must be true afterwards.
A scenario's `act` is repeated without a fault after its check: what a fault left must not be in the way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from tenuto.errors import DirectoryUnusable, LockLost
from tenuto.experiments.run_record import (
    RunState,
    RunStatus,
    lock_experiment,
    read_run_status,
    write_run_status,
)
from tenuto.jobs import packing
from tenuto.jobs.key import JobKey
from tenuto.jobs.removal import no_keeper
from tenuto.jobs.source import ActedAs
from tenuto.jobs.validity import claim_class
from tenuto.jobs.view import JobsView
from tenuto.lifecycle.events import JobProgressEvent
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.workspace import attempt_files, claims, job_directory, journal, packs, trash
from tenuto.workspace.claims import Claimer
from tenuto.workspace.derive_table import Action
from tenuto.workspace.event_writer import EventWriter
from tenuto.workspace.jobslist import JobLine, JobLinks, JobsList, read_jobs
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.locks import OfdLocks
from tenuto.workspace.markers import Durability, Marker, read_markers, reserve_marker, write_marker
from tenuto.workspace.ports import FileKind, LockHandle, Locks, Machine, is_temporary
from tenuto.workspace.records import (
    LaunchRecord,
    LocksRecord,
    PidRecord,
    StatusRecord,
    StopRecord,
    TokenUnits,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LARGE = "x" * 5000
"""A result that does not fit a marker."""


class Place:
    """A workspace on the real disk, with one job in it."""

    def __init__(self, root: str, machine: Machine) -> None:
        self.machine = machine
        self.files = machine.files
        self.layout = Layout(root)
        self.job: JobPaths = self.layout.job("a.Task", "ab12")
        self.run = self.layout.run("sweep", "20260101-1")
        self.files.make_directory(self.job.private)
        self.files.make_directory(self.run.directory)

    def open_attempt(self, *, empties: bool = False) -> LaunchRecord:
        lock = job_directory.take_lock(self.machine, self.job)
        if lock is None:
            raise LockLost("the job's lock is held, and by nobody")
        with closing(lock):
            found = job_directory.settle(self.machine, self.job, lock)
            return job_directory.open_attempt(
                self.machine,
                self.job,
                lock,
                found,
                launcher="proof",
                job_name="ab12",
                journal=self.layout.job_journal("a.Task", "ab12"),
                empties=empties,
            )

    def full_attempt(self, reason: JobFailureStatus | None = JobFailureStatus.FAILED) -> LaunchRecord:
        """An attempt that ran, left one of each file, and ended."""
        launch = self.open_attempt()
        files, job = self.files, self.job
        attempt_files.write_params(files, job, b"{}")
        attempt_files.write_pid(files, job, self.pid(launch.attempt))
        attempt_files.write_locks(files, job, LocksRecord(launch.attempt))
        attempt_files.request_stop(files, job, self.stop(launch.attempt))
        for log in (job.out, job.err):
            files.write(log, b"said\n")
        marker = attempt_files.preserve(files, job, Marker(launch.attempt, launch.nonce, reason), LARGE)
        attempt_files.finish(files, job, marker, self.status(launch.attempt), launch=launch)
        return launch

    def pid(self, attempt: int) -> PidRecord:
        return PidRecord(self.machine.processes.own()._replace(pid=2**22 + 1), attempt, NOW)

    def stop(self, attempt: int) -> StopRecord:
        return StopRecord(attempt, JobFailureStatus.CANCELLED, NOW, "enough")

    def status(self, attempt: int) -> StatusRecord:
        return StatusRecord("ab12", "a.Task", StateRecord(JobState.DONE), attempt)

    def temporary_files(self) -> list[str]:
        if self.files.stat(self.job.directory) is None:
            return []
        names = self.files.list(self.job.directory)
        if self.files.stat(self.job.private) is not None:  # it goes at a good end, if it is empty
            names += self.files.list(self.job.private)
        return [name for name in names if is_temporary(name)]


class Scenario:
    """Something done to a workspace. `act` may fail; `check` looks, without a fault."""

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, place: Place) -> None:
        """The files before the case."""

    def act(self, place: Place) -> None:
        raise NotImplementedError

    def check(self, place: Place, *, finished: bool) -> None:
        """`finished`: `act` returned. Raises `AssertionError`."""
        raise NotImplementedError


class RecordWritten(Scenario):
    """One of the small files: a reader finds the old one, the new one, or none."""

    def __init__(
        self,
        name: str,
        write: Callable[[Place, int], None],
        read: Callable[[Place, int], Any],
        *,
        replaces: bool,
    ) -> None:
        super().__init__(f"{name}, {'replaced' if replaces else 'created'}")
        self._write = write
        self._read = read
        self._replaces = replaces

    def prepare(self, place: Place) -> None:
        if self._replaces:
            self._write(place, 1)

    def act(self, place: Place) -> None:
        self._write(place, 2)

    def check(self, place: Place, *, finished: bool) -> None:
        old, new = self._read(place, 1), self._read(place, 2)
        assert not finished or new, "it was written, and cannot be read"
        assert not self._replaces or old or new, "the old one is gone, and the new one is not there"


class MarkerWritten(Scenario):
    """The last word of an attempt: it is there or not, and never another one."""

    def __init__(self, name: str, reason: JobFailureStatus | None, durability: Durability) -> None:
        super().__init__(name)
        self._reason = reason
        self._durability = durability
        self._launch: LaunchRecord

    def prepare(self, place: Place) -> None:
        self._launch = place.open_attempt()
        place.files.make_directory(f"{place.job.directory}/deep")
        place.files.write(f"{place.job.directory}/deep/output", b"left by the task")

    def act(self, place: Place) -> None:
        reserve_marker(place.files, place.job)
        self.marker = Marker(self._launch.attempt, self._launch.nonce, self._reason)
        if self._reason is None:
            self.marker = attempt_files.preserve(place.files, place.job, self.marker, LARGE, self._durability)
        status = place.status(1)
        attempt_files.finish(place.files, place.job, self.marker, status, self._durability, self._launch)

    def check(self, place: Place, *, finished: bool) -> None:
        derived = job_directory.look(place.machine, place.job).derived
        if finished:
            assert derived.action is Action.KEEP, f"the marker is written, and the job is {derived.row}"
        if derived.state is JobState.DONE:
            assert self._reason is None, "a failed attempt passes for done"
            assert derived.marker is not None
            result = attempt_files.read_result(place.files, place.job, derived.marker)
            says_so = (
                "result_not_kept" in derived.marker.flags
            )  # the disk did not take it, and nobody hides that
            assert result == (None if says_so else LARGE), "a job is done whose result is not there"
            kept = attempt_files.read_launch(place.files, place.job)
            assert kept == self._launch, "its launch record is gone"
        elif derived.action is Action.KEEP:
            assert self._reason is not None, "a good attempt passes for failed"
            assert derived.marker == self.marker, "the marker is not what was written"


class AttemptOpened(Scenario):
    """The next attempt: until it is open the last one stands, and afterwards nothing of that counts."""

    def __init__(self, name: str, before: int) -> None:
        super().__init__(name)
        self._before = before
        self._last = 0

    def prepare(self, place: Place) -> None:
        for _ in range(self._before):
            place.full_attempt()
            writer = EventWriter(place.files, place.layout.job_journal("a.Task", "ab12"), "w")
            writer.write(_event(1))
            writer.close()
        self._last = self._before

    def act(self, place: Place) -> None:
        if self._last:
            attempt_files.rotate_logs(place.files, place.job)
        place.open_attempt()

    def check(self, place: Place, *, finished: bool) -> None:
        derived = job_directory.look(place.machine, place.job).derived
        assert derived.state is not JobState.DONE, "an attempt passes for done that never ran"
        assert derived.attempt >= self._last, "the number of an attempt was given back"
        if derived.action is Action.KEEP:
            assert not finished, "the attempt is open, and an older marker counts"
            assert derived.attempt == self._last
        if finished:
            assert derived.attempt > self._last, "the attempt has no number of its own"
            assert derived.action is Action.START
        if self._before:
            logs = [name for name in place.files.list(place.job.directory) if ".out" in name]
            assert logs, "the logs of the attempt before are gone"
        self._last = derived.attempt


class DirectoryEmptied(Scenario):
    """A job that is done is run again: what it had is whole, in its place or aside, or on the way."""

    def prepare(self, place: Place) -> None:
        place.full_attempt(None)
        place.files.make_directory(f"{place.job.directory}/deep")
        place.files.write(f"{place.job.directory}/deep/output", b"left by the task")

    def act(self, place: Place) -> None:
        place.open_attempt(empties=True)

    def check(self, place: Place, *, finished: bool) -> None:
        derived = job_directory.look(place.machine, place.job).derived
        directory, aside = place.job.directory, place.job.aside
        script = place.job.script_name
        for name, there in (
            ("deep/output", f"{directory}/deep/output"),
            (f"{script}.done", place.job.done),
            ("result.json", place.job.result),
            ("params.json", place.job.params),
        ):
            places = [path for path in (there, f"{aside}/{name}") if place.files.stat(path) is not None]
            assert len(places) == 1, f"{name} is in {len(places)} places"
            if derived.state is JobState.DONE or finished:
                wanted = there if derived.state is JobState.DONE else f"{aside}/{name}"
                assert places == [wanted], f"{name} is in {places[0]} of a job that is {derived.state.name}"
        if finished:
            assert derived.attempt > 1
            assert place.files.stat(place.job.emptying) is None


class JobPacked(Scenario):
    """A job is packed, or put back: readers see the same before, in between and after, and lose nothing."""

    def __init__(self, name: str, *, back: bool) -> None:
        super().__init__(name)
        self._back = back

    def prepare(self, place: Place) -> None:
        place.full_attempt(None)
        place.files.make_directory(f"{place.job.directory}/deep")
        place.files.write(f"{place.job.directory}/deep/output", b"left by the task")
        place.files.symlink("output", f"{place.job.directory}/deep/link")
        self._whole = self._seen(place)
        if self._back:
            self._pack(place)

    def act(self, place: Place) -> None:
        if self._back:
            lock = job_directory.take_lock(place.machine, place.job)
            assert lock is not None, "its lock is held, and by nobody"
            lock.close()
        else:
            self._pack(place)

    def _pack(self, place: Place) -> None:
        view = JobsView(place.layout, place.machine)
        key = JobKey("a.Task", "ab12")
        (one,) = packing.pack(view, [key], really=True, used=no_keeper, seen={})
        if one.outcome is not ActedAs.PACKED and one.detail != "it is packed already":
            raise DirectoryUnusable(one.detail)

    def _seen(self, place: Place) -> dict[str, object]:
        files, directory = place.files, place.job.directory
        found: dict[str, object] = {"state": job_directory.look(place.machine, place.job).derived.state}
        pending = [""]
        while pending:
            folder = pending.pop()
            for name in files.list(f"{directory}/{folder}".rstrip("/")):
                path = f"{directory}/{folder}{name}"
                entry = files.stat(path)
                if entry is None or path == place.job.lock or is_temporary(name):
                    continue
                if entry.kind is FileKind.DIRECTORY:
                    pending.append(f"{folder}{name}/")
                elif entry.kind is FileKind.LINK:
                    found[f"{folder}{name}"] = files.read_link(path)
                else:
                    found[f"{folder}{name}"] = files.read(path, 1 << 20), entry.mode
        return found

    def check(self, place: Place, *, finished: bool) -> None:
        seen = self._seen(place)
        assert seen == self._whole, f"it had {sorted(self._whole)}, and has {sorted(seen)}"
        if finished:
            on_disk = os.path.lexists(place.job.done)
            assert on_disk is self._back, "it is in the other place"
            assert packs.is_packed(place.files, place.job.directory) is not self._back


class CorruptSettled(Scenario):
    """An unreadable marker is set aside: whatever fails meanwhile, the job is not done."""

    def prepare(self, place: Place) -> None:
        place.open_attempt()
        place.files.write(place.job.done, b"\0\0\0")

    def act(self, place: Place) -> None:
        lock = job_directory.take_lock(place.machine, place.job)
        assert lock is not None
        with closing(lock):
            found = job_directory.settle(place.machine, place.job, lock)
        assert found.derived.state is not JobState.DONE

    def check(self, place: Place, *, finished: bool) -> None:
        derived = job_directory.look(place.machine, place.job).derived
        assert derived.state is JobState.ERROR, f"garbage in .done, and the job is {derived.state.name}"
        if finished:
            assert derived.action is Action.KEEP, "the failure is not on record, and the job would run again"


class Looked(Scenario):
    """A look at a directory: an error, or the truth."""

    def __init__(self, name: str, state: JobState, prepare: Callable[[Place], Any]) -> None:
        super().__init__(name)
        self._state = state
        self._prepare = prepare
        self._seen: JobState | None = None

    def prepare(self, place: Place) -> None:
        self._held = self._prepare(place)

    def act(self, place: Place) -> None:
        self._seen = None
        self._seen = job_directory.look(place.machine, place.job).derived.state

    def check(self, place: Place, *, finished: bool) -> None:
        assert self._seen in (None, self._state), f"a {self._state.name} job was taken for {self._seen}"


class LockTried(Scenario):
    """A process has the lock: whatever fails, no other gets it or believes it free."""

    _held: LockHandle | None = None

    def __init__(self, name: str, locks: Locks) -> None:
        super().__init__(name)
        self._locks = locks

    def prepare(self, place: Place) -> None:
        place.machine = place.machine._replace(locks=self._locks)
        self._held = job_directory.take_lock(place.machine, place.job)

    def act(self, place: Place) -> None:
        second = job_directory.take_lock(place.machine, place.job)
        assert second is None, "a lock was given to two"
        assert self._locks.is_locked(place.job.lock), "a held lock was taken for free"
        assert self._held is not None
        self._locks.adopt(self._held.fileno(), place.job.lock)

    def check(self, place: Place, *, finished: bool) -> None:
        assert self._locks.is_locked(place.job.lock), "a lock fell by itself"


class Linked(Scenario):
    """A link that is set anew: it leads to the old place or to the new one."""

    def prepare(self, place: Place) -> None:
        self._link = f"{place.job.directory}/link"
        place.files.symlink("old", self._link)

    def act(self, place: Place) -> None:
        place.files.symlink("new", self._link)

    def check(self, place: Place, *, finished: bool) -> None:
        leads_to = place.files.read_link(self._link)
        assert leads_to == "new" or (not finished and leads_to == "old"), f"the link leads to {leads_to}"


class Journalled(Scenario):
    """Events: those whose write returned are read, each once and in order, also after rotation."""

    def __init__(self, name: str, *, durable: bool) -> None:
        super().__init__(name)
        self._durable = durable
        self._written: list[int] = []
        self._round = 0

    def prepare(self, place: Place) -> None:
        self._journal = place.layout.experiment_journal("sweep")

    def act(self, place: Place) -> None:
        self._round += 1
        writer = EventWriter(
            place.files, self._journal, f"w{self._round}", rotate_bytes=400, durable=self._durable
        )
        failed: OSError | None = None
        with closing(writer):
            for step in range(5):
                number = 10 * self._round + step
                try:
                    writer.write(_event(number))
                    self._written.append(number)
                except OSError as error:  # a writer lives on, as a scheduler's does
                    failed = error
        if failed is not None:
            raise failed

    def check(self, place: Place, *, finished: bool) -> None:
        entries = journal.EventReader(place.files, self._journal).read()
        seen = [int(entry.event.progress) for entry in entries if isinstance(entry.event, JobProgressEvent)]
        assert len(seen) == len(set(seen)), "an event is read twice"
        assert set(self._written) <= set(seen), "an event that was written is not read"
        for writer in {entry.writer for entry in entries}:
            mine = [entry.sequence for entry in entries if entry.writer == writer]
            assert mine == sorted(mine), "events are out of order"


class Archived(Scenario):
    """A journal that moves to its run: each event is in one of the two places, or in both for a moment."""

    def prepare(self, place: Place) -> None:
        self._journal = place.layout.experiment_journal("sweep")
        writer = EventWriter(place.files, self._journal, "w", rotate_bytes=400)
        for step in range(6):
            writer.write(_event(step))
        writer.close()

    def act(self, place: Place) -> None:
        journal.archive(place.files, self._journal, place.run.events)
        assert len(list(journal.replay(place.files, place.run.events))) == 6

    def check(self, place: Place, *, finished: bool) -> None:
        reader = journal.EventReader(place.files, self._journal, archive=place.run.events)
        assert [entry.sequence for entry in reader.read()] == [1, 2, 3, 4, 5, 6], "events are lost"


class Listed(Scenario):
    """Submissions: those whose append and sync returned are listed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._synced: list[str] = []
        self._round = 0

    def act(self, place: Place) -> None:
        self._round += 1
        jobs = JobsList(place.files, place.run)
        appended = []
        with closing(jobs):
            for number in range(3):
                line = JobLine(f"job{self._round}-{number}", "a.Task", NOW, tags={"round": str(self._round)})
                jobs.append(line)
                appended.append(line.job_id)
                JobLinks(place.files, place.run).add(line.task_id, line.job_id)
            jobs.sync()
            self._synced += appended

    def check(self, place: Place, *, finished: bool) -> None:
        listed = read_jobs(place.files, place.run)
        assert set(self._synced) <= {job.job_id for job in listed.jobs}, "a synced submission is not listed"
        for job in listed.jobs:
            assert job.submittime == NOW, "a line is read that nobody wrote"


class Discarded(Scenario):
    """A directory that is removed: where it was, it is whole or not at all."""

    def prepare(self, place: Place) -> None:
        place.full_attempt()
        self._whole = place.files.list(place.job.directory)
        place.files.make_directory(f"{place.job.directory}/a/b/c")
        place.files.write(f"{place.job.directory}/a/b/c/deep", b"x")
        place.files.symlink(place.layout.root, f"{place.job.directory}/a/out")
        self._whole = place.files.list(place.job.directory)

    def act(self, place: Place) -> None:
        trash.discard(place.machine, place.layout, place.job.directory)
        trash.empty(place.machine, place.layout)

    def check(self, place: Place, *, finished: bool) -> None:
        if place.files.stat(place.job.directory) is not None:
            assert place.files.list(place.job.directory) == self._whole, "a half-deleted directory is left"
        assert place.files.stat(place.run.directory) is not None, "a link was followed"
        if finished:
            assert place.files.stat(place.job.directory) is None
            trash.empty(place.machine, place.layout)  # what could not be deleted then goes now
            lock = place.layout.trash_lock.rpartition("/")[2]
            assert set(place.files.list(place.layout.trash)) <= {lock}


class Claimed(Scenario):
    """Which script a task id belongs to: the one that claimed it, or nobody."""

    def prepare(self, place: Place) -> None:
        for name in ("one", "two"):
            place.files.write(f"{place.layout.root}/{name}.py", name.encode())

    def act(self, place: Place) -> None:
        taken = claim_class(place.files, place.layout, "a.Task", f"{place.layout.root}/one.py")
        assert taken is None, "a task id belongs to a script that never claimed it"

    def check(self, place: Place, *, finished: bool) -> None:
        other = claim_class(place.files, place.layout, "b.Task", f"{place.layout.root}/two.py")
        assert other is None
        if finished:
            two = claim_class(place.files, place.layout, "a.Task", f"{place.layout.root}/two.py")
            assert two == f"{place.layout.root}/one.py"


class AttemptClaimed(Scenario):
    """The claim on an attempt: made once, and kept; a runner that fails to make it begins nothing."""

    def prepare(self, place: Place) -> None:
        self._launch = place.open_attempt()
        self._is_mine = False

    def act(self, place: Place) -> None:
        made = claims.claim(place.machine, place.job, self._launch.nonce, Claimer.RUNNER, "4711")
        assert not (made and self._is_mine), "two have made the claim on one attempt"
        self._is_mine = self._is_mine or made
        claims.keep_claim(place.machine, place.job, self._launch.nonce)

    def check(self, place: Place, *, finished: bool) -> None:
        is_there = claims.is_claimed(place.machine, place.job, self._launch.nonce)
        assert is_there or not (finished or self._is_mine), "the claim that was made is gone"


class ExperimentTaken(Scenario):
    """The lock of an experiment, and its status: a run that fails to take it does not keep it."""

    def prepare(self, place: Place) -> None:
        self._status = RunStatus("sweep", "20260101-1", RunState.RUNNING, NOW, "host", 1)
        write_run_status(place.files, place.run, self._status)

    def act(self, place: Place) -> None:
        with closing(lock_experiment(place.machine, place.layout, "sweep")):
            write_run_status(place.files, place.run, self._status._replace(state=RunState.DONE))

    def check(self, place: Place, *, finished: bool) -> None:
        assert not place.machine.locks.is_locked(place.layout.experiment_lock("sweep")), "the lock is kept"
        status = read_run_status(place.files, place.run)
        assert status is not None, "the status is gone"
        assert status.state is RunState.DONE or not finished


class SpaceAsked(Scenario):
    """How much disk is left: a number or an error."""

    def act(self, place: Place) -> None:
        assert place.files.free_space(place.layout.root).bytes > 0

    def check(self, place: Place, *, finished: bool) -> None:
        """Nothing was changed."""


def _event(step: int) -> JobProgressEvent:
    return JobProgressEvent(timestamp=NOW, job_id="ab12", task_id="a.Task", attempt=1, progress=float(step))


def _record_scenarios() -> list[Scenario]:
    kinds: dict[str, tuple[Callable[[Place, int], None], Callable[[Place, int], Any]]] = {
        "status.json": (
            lambda place, n: attempt_files.write_status(place.files, place.job, place.status(n)),
            lambda place, n: attempt_files.read_status(place.files, place.job) == place.status(n),
        ),
        "pid record": (
            lambda place, n: attempt_files.write_pid(place.files, place.job, place.pid(n)),
            lambda place, n: attempt_files.read_pid(place.files, place.job, n) == place.pid(n),
        ),
        "stop.json": (
            lambda place, n: attempt_files.request_stop(place.files, place.job, place.stop(n)),
            lambda place, n: attempt_files.read_stop(place.files, place.job, n) == place.stop(n),
        ),
        "locks.json": (
            lambda place, n: attempt_files.write_locks(place.files, place.job, _locks(n)),
            lambda place, n: attempt_files.read_locks(place.files, place.job, n) == _locks(n),
        ),
        "params.json": (
            lambda place, n: attempt_files.write_params(place.files, place.job, _params(n)),
            lambda place, n: _read(place, place.job.params) == _params(n),
        ),
        "script": (
            lambda place, n: attempt_files.write_script(place.files, place.job, _params(n)),
            lambda place, n: _read(place, place.job.script) == _params(n),
        ),
    }
    return [
        RecordWritten(name, write, read, replaces=replaces)
        for name, (write, read) in kinds.items()
        for replaces in (False, True)
    ]


def _locks(n: int) -> LocksRecord:
    return LocksRecord(n, (TokenUnits("gpu", (n,)),))


def _params(n: int) -> bytes:
    return b"{" + b" " * n + b"}"


def _read(place: Place, path: str) -> bytes:
    return place.files.read(path, 1 << 20) if place.files.stat(path) is not None else b""


def _running(place: Place) -> LockHandle | None:
    launch = place.open_attempt()
    attempt_files.write_pid(
        place.files, place.job, PidRecord(place.machine.processes.own(), launch.attempt, NOW)
    )
    return job_directory.take_lock(place.machine, place.job)


def _both_markers(place: Place) -> None:
    launch = place.full_attempt(reason=None)
    write_marker(place.files, place.job, Marker(launch.attempt, launch.nonce, JobFailureStatus.FAILED))
    assert None not in read_markers(place.files, place.job)


def scenarios() -> list[Scenario]:
    """Every operation of the workspace, once."""
    return [
        *_record_scenarios(),
        MarkerWritten(".done with a large result", None, Durability.MARKER),
        MarkerWritten(".done, not durable", None, Durability.NONE),
        MarkerWritten(".failed", JobFailureStatus.FAILED, Durability.MARKER),
        AttemptOpened("first attempt", 0),
        AttemptOpened("third attempt", 2),
        DirectoryEmptied("directory emptied"),
        JobPacked("job packed", back=False),
        JobPacked("packed job put back", back=True),
        CorruptSettled("unreadable marker"),
        Looked("look at nothing", JobState.UNSCHEDULED, lambda place: None),
        Looked("look at a running job", JobState.RUNNING, _running),
        Looked("look at a done job", JobState.DONE, lambda place: place.full_attempt(reason=None)),
        Looked("look at a failed job", JobState.ERROR, lambda place: place.full_attempt()),
        Looked("look at both markers", JobState.ERROR, _both_markers),
        LockTried("lock that is taken", OfdLocks()),
        Linked("link set anew"),
        Journalled("journal", durable=False),
        Journalled("durable journal", durable=True),
        Archived("journal archived and replayed"),
        Listed("jobs.jsonl and links"),
        Discarded("trash"),
        Claimed("task id claimed"),
        AttemptClaimed("claim"),
        ExperimentTaken("experiment's lock and status"),
        SpaceAsked("free space"),
    ]
