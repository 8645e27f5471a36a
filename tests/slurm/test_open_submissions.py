"""Owns which submissions of other processes are kept, and until when."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenuto.launchers.cluster import submission
from tenuto.launchers.cluster.dialect import QueueRow
from tenuto.launchers.cluster.dialects.slurm import SlurmDialect
from tenuto.launchers.cluster.submission import OpenSubmissions, Place
from tenuto.launchers.manifest import Header, Order
from tenuto.settings.clusters import ClusterSettings
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.layout import Layout
from tenuto.workspace.markers import Marker, write_marker

LATER = 1e12
"""An answer that was asked for after everything."""


SLURM = SlurmDialect("slurm", ClusterSettings())


class Found:
    """A submission of another process, with two jobs, the first of which is done."""

    def __init__(self, bench: JobBench, root: Path) -> None:
        self.files = bench.machine.files
        self.done, self.other = bench.command("true"), bench.command("true")
        self.mark(self.done)
        self.orders = [
            Order(job.paths.directory, job.paths.script_name, job.launch.nonce)
            for job in (self.done, self.other)
        ]
        self.place = Place(Layout(str(root)).launchers, "0123456789abcdef", "slurm")
        header = Header(1.0, None, SLURM.job_variables(is_array=True), 5.0)
        submission.write(self.files, self.place, header, self.orders, "#!/bin/sh\n")
        self.name = submission.job_name(SLURM, self.orders, self.place)
        self.dropped: list[str] = []
        self.places = OpenSubmissions(self.files, bench.machine.clock, SLURM, self.dropped.append)

    def mark(self, job: ReadyJob) -> None:
        write_marker(self.files, job.paths, Marker(1, job.launch.nonce))

    def row(self, state: str) -> QueueRow:
        return QueueRow("7_1", state, "", None, None, self.name)

    @property
    def is_there(self) -> bool:
        return os.path.exists(self.place.directory)


@pytest.fixture
def found(bench: JobBench, tmp_path: Path) -> Found:
    return Found(bench, tmp_path / "workspace")


def test_a_task_that_starts_late_finds_the_manifest_of_what_is_over(found: Found) -> None:
    """Jobs that were done before this process came are no attempts of its own: it drops them by name."""
    found.places.review(found.place, found.orders)
    assert found.dropped == [], "a job has not ended"
    found.mark(found.other)
    found.places.settle(found.place, found.other.launch.nonce)
    assert found.dropped == [found.name]
    found.places.sweep([], 0.0)
    assert found.is_there, "that answer is older"
    for state in ("PENDING", "RUNNING"):
        found.places.sweep([found.row(state)], LATER)
        assert found.is_there, "a task would wait a minute for its manifest"
    found.places.sweep([found.row("CANCELLED")], LATER)
    assert not found.is_there


def test_a_submission_that_is_over_is_dropped_once_and_then_removed(found: Found) -> None:
    found.mark(found.other)
    found.places.review(found.place, found.orders)
    found.places.review(found.place, found.orders)
    assert found.dropped == [found.name]
    assert found.is_there
    found.places.sweep([], LATER)
    assert not found.is_there


def test_a_submission_of_this_process_is_removed_with_its_last_marker(found: Found) -> None:
    """It has each needless task taken away by its id."""
    for order in found.orders:
        found.places.add(found.place, order.nonce)
    found.places.review(found.place, found.orders)
    for order in found.orders:
        assert found.is_there
        found.places.settle(found.place, order.nonce)
    assert not found.is_there
    assert found.dropped == []
