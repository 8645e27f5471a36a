"""Every operation on files fails, and nothing half written passes for good."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from proof.nth.faults import Fault, Killed, failing
from proof.nth.proving import run, try_all
from proof.nth.scenarios import scenarios
from proof.report import Options, text
from tenuto.workspace.files import DiskFiles

NUMBERS = {scenario.name: number for number, scenario in enumerate(scenarios())}


@pytest.mark.slow
def test_nothing_half_written_passes_for_good_and_planted_bugs_are_found() -> None:
    report = run(Options(small=True))
    assert report.good, text(report)


@pytest.mark.parametrize(
    ("scenario", "fault"),
    [
        # A lock taken by a handle that nobody had: the job was locked until its scheduler ended.
        ("first attempt", Fault.EIO),
        ("experiment's lock and status", Fault.ENOSPC),
        # A journal that could not sync its directory, a list of jobs that could not be synced: left open.
        ("durable journal", Fault.EMFILE),
        ("jobs.jsonl and links", Fault.STAYS_FULL),
        # A link that could not be set anew left another one beside it.
        ("link set anew", Fault.ENOSPC),
        # The unreadable marker was set aside before the failure was recorded: the job was run again.
        ("unreadable marker", Fault.KILL),
        # A job that is run again in an empty directory: what it had is never lost, nor in two halves.
        ("directory emptied", Fault.KILL),
        ("directory emptied", Fault.EIO),
    ],
)
def test_a_fault_that_was_found_stays_mended(scenario: str, fault: Fault) -> None:
    assert try_all(NUMBERS[scenario], fault).violations == []


def test_descriptors_of_other_threads_are_left_alone(tmp_path: Path) -> None:
    """A thread that an earlier test left behind made the proof say that a scenario leaked."""
    theirs: list[int] = []
    over = threading.Event()

    def open_files() -> None:
        while not over.wait(0.001) and len(theirs) < 500:
            theirs.append(os.open(tmp_path, os.O_RDONLY))

    other = threading.Thread(target=open_files)
    other.start()
    try:
        for fault in (Fault.EIO, Fault.KILL):
            assert try_all(NUMBERS["third attempt"], fault).violations == []
    finally:
        over.set()
        other.join()
    assert len(theirs) > 1
    for fd in theirs:
        os.close(fd)  # raises if the proof closed it, as it closes those of a scenario that is killed


def test_the_operation_fails_that_was_meant(tmp_path: Path) -> None:
    disk = DiskFiles()
    with failing(2, Fault.ENOSPC) as machine, pytest.raises(OSError, match="No space"):
        disk.create_exclusive(f"{tmp_path}/x", b"data")
    assert machine.struck == "write"
    with failing(3, Fault.ENOSPC) as machine:
        disk.create_exclusive(f"{tmp_path}/y", b"data")
    assert machine.struck is None


def test_a_torn_write_leaves_half_and_then_the_machine_is_well(tmp_path: Path) -> None:
    disk = DiskFiles()
    with failing(1, Fault.TORN):
        with pytest.raises(OSError, match="No space") as raised:
            disk.create_exclusive(f"{tmp_path}/x", b"1234")
        disk.create_exclusive(f"{tmp_path}/y", b"1234")
    assert raised.value.errno == errno.ENOSPC
    assert ((tmp_path / "x").read_bytes(), (tmp_path / "y").read_bytes()) == (b"12", b"1234")


def test_a_dead_process_does_nothing_any_more(tmp_path: Path) -> None:
    disk = DiskFiles()
    with failing(1, Fault.KILL):
        with pytest.raises(Killed):
            disk.make_directory(f"{tmp_path}/x")
        with pytest.raises(Killed):
            disk.make_directory(f"{tmp_path}/y")
    assert os.listdir(tmp_path) == []
