"""What is known of jobs that were found done: used as long as nothing changed, and never needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing import Crash, FakeDisk, FakeHost
from tenuto.workspace import job_directory
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.marker_index import KnownEnd, MarkerIndex, MarkerStamp
from tenuto.workspace.markers import Marker, write_marker
from tenuto.workspace.ports import Machine

TASK, LONG_AGO = "lab.Train", 1e9
END = datetime(2026, 1, 2, tzinfo=UTC)
DONE = Marker(
    1,
    "ab",
    exit_code=0,
    starttime=END - timedelta(seconds=3),
    endtime=END,
    result={"loss": 0.5},
    flags=("truncated",),
    record={"code": "c0de", "files": {"/lab.py": "f1"}, "begun": "ab", "made_from": [["a", "b", "c", "d"]]},
    params_bytes=2,
)


class Place:
    """A workspace on the disk, and what one process after another knows of it."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(str(root))
        self.machine: Machine = this_machine()
        self.later()

    def later(self) -> MarkerIndex:
        """The index as a process sees it that begins now."""
        self.index = MarkerIndex(self.machine, fewest=1)
        return self.index

    def done(self, name: str, marker: Marker = DONE) -> JobPaths:
        """A job that ended well, a while ago."""
        paths = self.layout.job(TASK, name)
        self.machine.files.make_directory(paths.private)
        write_marker(self.machine.files, paths, marker)
        self.note(name, marker)
        return paths

    def note(self, name: str, marker: Marker, life: str = "ab") -> None:
        stamp = self.stamp(name)
        assert stamp is not None
        # The clock of a file system cannot be set: what counts is that the change was a while ago.
        clock = self.index._clock
        self.index._clock = type("Later", (), {"now": lambda _: clock.now() + timedelta(minutes=1)})()
        self.index.note(self.layout, TASK, name, stamp, KnownEnd(marker, life))
        self.index._clock = clock

    def stamp(self, name: str) -> MarkerStamp | None:
        paths = self.layout.job(TASK, name)
        return self.index.stamp(self.machine.files.stat(paths.directory), paths)

    def find(self, name: str) -> KnownEnd | None:
        stamp = self.stamp(name)
        return None if stamp is None else self.index.find(self.layout, TASK, name, stamp)

    @property
    def file(self) -> Path:
        return Path(self.layout.marker_index(TASK))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_job_that_was_read_once_is_known_to_the_next_process(place: Place) -> None:
    made_of_more = DONE._replace(record={**DONE.record, "code": "other"}, result=None, result_stored=True)
    place.done("a")
    place.done("b", made_of_more)
    place.index.keep()
    place.later()
    assert place.find("a") == KnownEnd(DONE, "ab")
    assert place.find("b") == KnownEnd(made_of_more, "ab")
    assert place.find("c") is None


def test_an_entry_leaves_out_what_the_run_used(place: Place) -> None:
    place.done("a", DONE._replace(usage={"cpu_s": 1.0}, provenance={"seed": "5"}))
    place.index.keep()
    place.later()
    assert place.find("a") == KnownEnd(DONE, "ab")


def begin(machine: Machine, paths: JobPaths) -> None:
    lock = job_directory.take_lock(machine, paths)
    assert lock is not None
    found = job_directory.settle(machine, paths, lock)
    job_directory.open_attempt(machine, paths, lock, found, launcher="warm", job_name="job")


def remade(machine: Machine, paths: JobPaths) -> None:
    machine.files.remove_tree(paths.directory)
    machine.files.make_directory(paths.private)
    write_marker(machine.files, paths, DONE)


def copied(directory: str) -> None:
    os.system(f"cp -a {directory} {directory}-2 && rm -r {directory} && mv {directory}-2 {directory}")


CHANGES: dict[str, Callable[[Machine, JobPaths], object]] = {
    "another attempt": begin,
    "a marker in its place": lambda machine, paths: write_marker(machine.files, paths, DONE),
    "written in place": lambda machine, paths: machine.files.write(paths.done, DONE.encode()),
    "touched": lambda machine, paths: machine.files.touch(paths.done),
    "a failure beside it": lambda machine, paths: write_marker(
        machine.files, paths, DONE._replace(reason=JobFailureStatus.FAILED)
    ),
    "no marker": lambda machine, paths: machine.files.remove(paths.done),
    "set aside": lambda machine, paths: job_directory.set_aside(machine.files, paths.done),
    "made anew": remade,
    "gone": lambda machine, paths: machine.files.remove_tree(paths.directory),
    "a copy": lambda machine, paths: copied(paths.directory),
    "a link": lambda machine, paths: (
        machine.files.rename(paths.directory, f"{paths.directory}-2"),
        machine.files.symlink(f"{paths.directory}-2", paths.directory),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_job_that_changed_is_read_again(place: Place, change: str) -> None:
    paths = place.done("a")
    place.done("b")
    place.index.keep()
    CHANGES[change](place.machine, paths)
    assert place.find("a") is None
    place.later()
    assert place.find("a") is None
    assert place.find("b") is not None


def test_an_attempt_that_a_killed_scheduler_opened_half_is_seen() -> None:
    """After each step of opening an attempt on a disk that knows when what changed."""
    for steps in range(30):
        host = FakeHost(seed=1)
        disk, machine, layout = host.disk, host.machine(), Layout("/ws")
        paths = layout.job(TASK, "a")
        disk.make_directory(paths.private)
        lock = machine.locks.try_lock(paths.lock)
        assert lock is not None
        begun = job_directory.open_attempt(
            machine, paths, lock, job_directory.settle(machine, paths, lock), launcher="warm", job_name="job"
        )
        write_marker(disk, paths, DONE._replace(nonce=begun.nonce))
        found = job_directory.settle(machine, paths, lock)
        index = MarkerIndex(machine)
        stamp = index.stamp(disk.stat(paths.directory), paths)
        disk.crash_after(steps)
        try:
            job_directory.open_attempt(machine, paths, lock, found, launcher="warm", job_name="job")
        except Crash:
            pass
        else:
            assert steps > 5
            return
        disk.heal()
        is_as_before = index.stamp(disk.stat(paths.directory), paths) == stamp
        assert not is_as_before or job_directory.look(machine, paths).derived == found.derived
    raise AssertionError("it never ended")


def test_a_change_of_a_moment_ago_is_not_believed_yet(place: Place) -> None:
    """Another change in the same tick of the file system's clock would not be seen."""
    paths = place.layout.job(TASK, "a")
    place.machine.files.make_directory(paths.private)
    write_marker(place.machine.files, paths, DONE)
    stamp = place.stamp("a")
    assert stamp is not None
    place.index.note(place.layout, TASK, "a", stamp, KnownEnd(DONE, "ab"))
    assert place.find("a") is None


def test_two_processes_that_keep_lose_nothing_but_time(place: Place) -> None:
    first = place.index
    place.done("a")
    second = place.later()
    place.done("b", DONE._replace(record={"code": "other"}))
    first.keep()
    second.keep()
    place.later()
    assert [place.find(name) is not None for name in ("a", "b")] == [True, True]
    assert place.find("b").marker.record == {"code": "other"}  # type: ignore[union-attr]


def torn(file: Path) -> Iterator[bytes]:
    whole = file.read_bytes()
    yield from (b"", b"\0" * len(whole), whole[:-7], whole[: len(whole) // 3], b"[]\n", b"null\n" + whole)
    yield whole.replace(b"0.5", b"0.6")
    yield whole.replace(b'"version":1', b'"version":2')


def test_a_file_that_is_torn_or_of_another_version_is_made_anew(place: Place) -> None:
    place.done("a")
    place.index.keep()
    for content in torn(place.file):
        place.file.write_bytes(content)
        place.later()
        assert place.find("a") is None
        place.note("a", DONE)
        place.index.keep()
        place.later()
        assert place.find("a") == KnownEnd(DONE, "ab")


def test_jobs_that_are_gone_leave_the_index(place: Place) -> None:
    gone = place.done("gone")
    place.done("a")
    place.index.keep()
    place.machine.files.remove_tree(gone.directory)
    place.later()
    place.done("b")
    place.index.keep()
    assert b"gone" not in place.file.read_bytes()
    assert [place.find(name) is not None for name in ("a", "b")] == [True, True]


def test_few_jobs_need_no_file_and_a_full_disk_keeps_none(place: Place) -> None:
    place.index = MarkerIndex(place.machine)
    place.done("a")
    place.index.keep()
    assert not place.file.exists()
    disk = FakeDisk()
    disk.make_directory(place.layout.task(TASK))
    place.later()
    place.done("a")
    disk.capacity = 10
    place.index._files = disk
    place.index.keep()
    assert disk.stat(place.layout.marker_index(TASK)) is None
