"""Who answers for an attempt elsewhere is found by the name in its record, and loaded only then."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from tenuto.launchers import clusters
from tenuto.launchers.clusters import Clusters
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.records import LaunchRecord

JOB: JobPaths = Layout("/ws").job("a.Task", "ab12")
LAUNCH = LaunchRecord(1, "n1", "far", "job", "host", datetime(2030, 1, 1, tzinfo=UTC), external=True)


class Far:
    """A cluster that knows every attempt as pending."""

    def __init__(self) -> None:
        self.stopped: list[str] = []

    def report(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        return ClusterReport(ClusterSays.PENDING, message="Priority")

    def process(self, paths: JobPaths, launch: LaunchRecord) -> None:
        return None

    def stop(self, paths: JobPaths, launch: LaunchRecord) -> None:
        self.stopped.append(launch.nonce)


def test_a_known_cluster_answers_for_its_attempts_alone() -> None:
    far = Far()
    known = Clusters({"far": far})
    assert known.report(JOB, LAUNCH).message == "Priority"
    known.stop(JOB, LAUNCH)
    assert far.stopped == ["n1"]
    assert known.report(JOB, LAUNCH._replace(launcher="near")).says is ClusterSays.NOTHING


def test_a_cluster_is_made_when_it_is_first_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Far] = []

    class Plugin:
        @staticmethod
        def cluster() -> Far:
            made.append(Far())
            return made[-1]

    monkeypatch.setattr(clusters, "load_plugin", lambda name: Plugin if name == LAUNCH.launcher else None)
    known = Clusters()
    assert made == []
    known.stop(JOB, LAUNCH)
    known.stop(JOB, LAUNCH)
    assert [far.stopped for far in made] == [["n1", "n1"]]


def test_a_cluster_that_cannot_be_had_says_nothing_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load(name: str) -> Far:
        raise ImportError(f"no module named {name}")

    monkeypatch.setattr(clusters, "load_plugin", load)
    known = Clusters()
    for launch in (LAUNCH, LAUNCH._replace(launcher="unheard-of")):
        report = known.report(JOB, launch)
        assert report.says is ClusterSays.NOTHING
        assert launch.launcher in (report.message or "")
        assert known.process(JOB, launch) is None
        known.stop(JOB, launch)
    assert "no module named far" in caplog.text


def test_nothing_of_a_cluster_is_loaded_with_the_table_of_them() -> None:
    script = (
        "import sys, tenuto.launchers.clusters as c; c.Clusters();"
        "print([m for m in sys.modules if 'slurm' in m])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
