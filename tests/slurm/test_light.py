"""Owns what a run without a cluster does not pay for, and what is taken for ours in Slurm's list."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tenuto.launchers.cluster.dialect import QueueRow
from tenuto.launchers.cluster.dialects.slurm import SlurmDialect
from tenuto.launchers.cluster.follower import ClusterFollower
from tenuto.launchers.cluster.launcher import SlurmLauncher
from tenuto.launchers.cluster.submission import Place, SubmittedAttempt
from tenuto.launchers.cluster.tracked import TrackedAttempt
from tenuto.launchers.manifest import Header
from tenuto.launchers.requirements import Alternative
from tenuto.settings.clusters import ClusterSettings
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.records import LaunchRecord
from tests.experiments.scripts import python, run

SCRIPT = """
import sys
from tenuto import Task, experiment

class Note(Task):
    __requires__ = "cpu(cores=1)"
    def execute(self):
        return 1

if __name__ == "__main__":
    with experiment("ws", "x"):
        assert Note.C().submit().job.result() == 1
    assert not [name for name in sys.modules if "slurm" in name or "launchers.cluster." in name]
"""


def test_a_run_without_a_cluster_loads_nothing_of_slurm(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    own = {"PYTHONHASHSEED": "0"}  # so that it gets an interpreter of its own
    done = run(python(tmp_path / "script.py"), tmp_path, TENUTO_DIRTY_GIT="ignore", **own)
    assert done.returncode == 0, done.stderr


def test_a_job_that_has_our_id_and_not_our_name_belongs_to_another_user(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path))
    slurm = SlurmDialect("slurm", ClusterSettings())
    launch = LaunchRecord(1, "n1", "slurm", "job", "host", datetime(2030, 1, 1, tzinfo=UTC), external=True)
    attempt = TrackedAttempt(this_machine(), slurm, layout.job("a.Task", "ab12"), launch, 30.0)
    place = Place(layout.launchers, "0123456789abcdef", "slurm")
    attempt.take_found(SubmittedAttempt(place, 0, False, "7", Header(30.0)))
    ours = QueueRow("7", "RUNNING", "None", None, 0, f"Task{place.suffix}")
    assert attempt.own(ours) is ours
    assert attempt.own(ours._replace(name="Task-fedcba98")) is None


def test_jobs_of_pilots_have_slots_of_their_own() -> None:
    """As many as pilots can hold: a driver that hands all over at once leaves its pilot without work."""
    settings = ClusterSettings(pilots=2, pilot_cpus=4, max_jobs=1000)
    launcher = SlurmLauncher(settings=settings, cluster=ClusterFollower(settings))
    own = launcher.adapted(Alternative(cores=5))
    assert (launcher.slots, own.slots) == (128, 1000)
    assert launcher.pool is launcher.adapted(Alternative(cores=4)).pool is not own.pool
