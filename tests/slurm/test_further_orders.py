"""Owns that a task of an array whose job is done at once runs further jobs of it, and what Slurm shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenuto.launchers.cluster import submission
from tenuto.launchers.cluster.dialect import JobScript
from tenuto.launchers.cluster.follower import ClusterFollower
from tenuto.launchers.cluster.submission import Place
from tenuto.launchers.manifest import Header, Order
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.layout import Layout
from tenuto.workspace.markers import Marker, write_marker
from tests.parts.slurm import PrivateSlurm
from tests.slurm.conftest import QUICK
from tests.slurm.drivers import AWAY, GATHERED, Driver, eventually

JOBS = 40
MANY = (
    GATHERED
    + f"""
with experiment(HERE / "ws", "x"):
    for i in range({JOBS}):
        Note.C(name=f"n{{i}}").submit()
"""
)
FEW_AT_ONCE = {"TENUTO_SLURM__CPUS": "4", "TENUTO_SLURM__ARRAY_SIZE": str(JOBS)}
"""Each job takes a whole node, so that most of the array waits."""


def takers(driver: Driver) -> list[str]:
    """Slurm's id of the task that ran each job."""
    claims = driver.workspace.glob("jobs/*/*/.tenuto/claim-*")
    return [json.loads(claim.read_text())["job"] for claim in claims]


def test_a_task_runs_further_jobs_of_its_array_and_theirs_are_taken_away(driver: Driver) -> None:
    driver.run(MANY, **FEW_AT_ONCE, TENUTO_SLURM__REUSE_S="5")
    assert driver.began() == sorted(f"n{i}" for i in range(JOBS))
    assert len(takers(driver)) == JOBS
    assert len(set(takers(driver))) < JOBS / 2
    assert any("_[" in call for call in driver.calls("scancel"))
    eventually(lambda: not driver.in_state("PENDING"), "an empty queue")
    ran = set(driver.in_state("COMPLETED"))
    eventually(lambda: set(takers(driver)) <= ran | set(driver.in_state("COMPLETED")), "the end of each task")
    jobs = driver.jobs()
    assert {job["state"] for job in jobs} == {"done"}
    why = driver.tenuto("why", jobs[0]["id"][:8])
    assert any(f"job {taker} of slurm ran it" in why for taker in set(takers(driver)))


def test_without_reuse_each_job_has_a_task_of_its_own(driver: Driver) -> None:
    driver.run(MANY.replace(str(JOBS), "6"), TENUTO_SLURM__REUSE_S="0", TENUTO_SLURM__ARRAY_SIZE="6")
    assert len(set(takers(driver))) == 6
    assert driver.calls("scancel") == []


def test_a_driver_that_is_killed_leaves_jobs_that_run_once(driver: Driver) -> None:
    script = driver.script(MANY)
    process = driver.start(script, **FEW_AT_ONCE, TENUTO_SLURM__REUSE_S="60")
    eventually(lambda: len(driver.ledger()) > 3, "a few jobs")
    driver.kill(process)
    driver.ended(driver.start(script, **FEW_AT_ONCE, TENUTO_SLURM__REUSE_S="60"))
    assert driver.began() == sorted(f"n{i}" for i in range(JOBS))
    assert len(driver.calls("sbatch")) == 1
    eventually(lambda: not driver.in_state("PENDING") and not driver.running(), "an empty queue")


def order_of(job: ReadyJob) -> Order:
    return Order(job.paths.directory, job.paths.script_name, job.launch.nonce)


@pytest.fixture
def deaf(slurm: PrivateSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The controller does not hear the first scancel; the path that shows that it was called."""
    (tmp_path / "deaf").mkdir()
    driver = Driver(tmp_path / "deaf", slurm)
    driver.shim("scancel", f'if mkdir "$HERE/away" 2>/dev/null; then echo "{AWAY}" >&2; exit 1; fi')
    monkeypatch.setenv("PATH", driver.environment["PATH"])
    return driver.directory / "away"


def test_the_rest_of_a_submission_that_is_over_is_taken_out_of_the_queue(
    slurm: PrivateSlurm, bench: JobBench, tmp_path: Path, deaf: Path
) -> None:
    """Its driver was killed before it could say so; another one, with a job of its own, comes by."""
    files = bench.machine.files
    done = [bench.command("true") for _ in range(3)]
    for job in done:
        now = bench.machine.clock.now()
        write_marker(files, job.paths, Marker(1, job.launch.nonce, starttime=now, endtime=now))
    place = Place(Layout(str(tmp_path / "workspace")).launchers, "0123456789abcdef", "slurm")
    orders = [order_of(job) for job in done]
    follower = ClusterFollower(QUICK)
    header = Header(1.0, None, follower.dialect.job_variables(is_array=True), 5.0)
    submission.write(files, place, header, orders, "#!/bin/sh\n")
    name = submission.job_name(follower.dialect, orders, place)
    job = JobScript(name, len(orders), ["--hold"], "#!/bin/sh\ntrue\n", place.directory)
    submitted = follower.dialect.submit(job)
    submission.write_answer(files, place, submitted.text)
    waiting = bench.command("true")
    follower.report(waiting.paths, waiting.launch)

    def left() -> list[str]:
        return [row.state for row in follower.dialect.queue() if row.name == name and row.state == "PENDING"]

    eventually(lambda: not left(), "an empty queue")
    eventually(lambda: not Path(place.directory).exists(), "its directory to be removed")
    assert deaf.exists(), "Slurm was told again"
