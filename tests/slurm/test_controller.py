"""Owns a controller that dies: for a while, or so early that it forgets jobs and starts them twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.slurm.drivers import AWAY, CANCEL, Driver, eventually

ALONE = """
import fcntl

class Alone(Task):
    name: Param[str]
    def execute(self):
        with (HERE / f"alone-{self.name}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the job runs twice at once
            note(f"{self.name} {self.job_attempt}")
            while not (HERE / "release").exists():
                time.sleep(0.05)
"""
RUN = """
with experiment(HERE / "ws", "x"):
    for name in "abc":
        Alone.C(name=name).submit()
"""


@pytest.mark.prove("a cluster of its own, whose commands wait for a controller that is away")
@pytest.mark.slow
@pytest.mark.watchdog(240)
def test_a_controller_that_is_away_delays_and_loses_nothing(own_driver: Driver) -> None:
    process = own_driver.start(own_driver.script(RUN.replace("Alone", "Hold")))
    eventually(lambda: len(own_driver.ledger()) == 3, "three running jobs")
    own_driver.slurm.crash("slurmctld")
    try:
        asked = len(own_driver.calls("squeue"))
        eventually(lambda: len(own_driver.calls("squeue")) > asked, "a question that nobody answers")
    finally:
        own_driver.slurm.again("slurmctld")
    own_driver.release()
    own_driver.ended(process)
    assert own_driver.began() == ["a", "b", "c"]
    assert all(job["attempt"] == 1 for job in own_driver.jobs())


@pytest.mark.prove("the controller is started three times")
@pytest.mark.slow
@pytest.mark.watchdog(300)
def test_a_controller_that_forgets_jobs_and_starts_them_twice_loses_none(own_driver: Driver) -> None:
    driver = own_driver
    state, older = driver.slurm.directory / "state", driver.slurm.directory / "older"
    process = driver.start(driver.script(RUN, classes=ALONE), TENUTO_SLURM__EXTRA="--hold")
    eventually(lambda: len(driver.in_state("PENDING")) == 3, "three jobs that are held")
    driver.slurm.stop("slurmctld")
    shutil.copytree(state, older)
    driver.slurm.again("slurmctld")
    eventually(lambda: _let_go(driver) and len(driver.ledger()) == 3, "three payloads", 120)
    driver.slurm.crash("slurmctld")  # its state is that of a moment at which nothing ran
    shutil.rmtree(state)
    shutil.copytree(older, state)
    driver.slurm.again("slurmctld")
    eventually(lambda: _let_go(driver) and _complaints(driver), "a second start of an attempt", 120)
    driver.release()
    eventually(lambda: _let_go(driver) and process.poll() is not None, "the end of the driver", 180)
    said = driver.ended(process)
    assert [job["state"] for job in driver.jobs()] == ["done"] * 3, said


def _let_go(driver: Driver) -> bool:
    """Has Slurm start what is held; False while it does not answer."""
    rows = driver.slurm.run("squeue", "-h", "-r", "-t", "all", "-O", "JobArrayID:|,Reason:|", check=False)
    for job, reason, *_ in (row.split("|") for row in rows.splitlines()):
        if reason.startswith("JobHeld"):  # to release another one delays its start
            driver.slurm.run("scontrol", "release", job, check=False)
    return bool(rows)


def _complaints(driver: Driver) -> list[Path]:
    """Where runners say that the claim of their attempt was made before."""
    kept = driver.workspace.glob(".launchers/slurm/*/out")
    return [out for out in kept if "another runner has made the claim" in out.read_text()]


@pytest.mark.prove("each command waits 19 s for a controller that is away")
@pytest.mark.slow
@pytest.mark.watchdog(400)
@pytest.mark.parametrize("driver_lives", [True, False], ids=["driver lives", "driver dies"])
def test_a_job_is_cancelled_while_the_controller_is_away(own_driver: Driver, driver_lives: bool) -> None:
    driver = own_driver
    if not driver_lives:  # nor its last scancel, which would go on without it
        driver.shim("scancel", f'echo "{AWAY}" >&2; exit 1')
    driver.close_queue()
    process = driver.start(driver.script(CANCEL))
    (job,) = eventually(lambda: driver.in_state("PENDING"), "a job that waits")
    driver.slurm.stop("slurmctld")  # one that is killed may forget what was queued
    (driver.directory / "cancel").touch()
    took_s = driver.directory / "took_s"
    eventually(took_s.exists, "the end of the job")
    assert float(took_s.read_text()) < 5
    if not driver_lives:
        driver.kill(process)
    driver.slurm.again("slurmctld")
    eventually(lambda: "idle" in driver.slurm.run("sinfo", "-h", "-o", "%T", check=False), "the nodes")
    if driver_lives:
        eventually(lambda: driver.queue() == [(job, "CANCELLED")], "the job to be taken out", 120)
        (driver.directory / "leave").touch()
        assert "CANCELLED" in driver.ended(process, 1)
    else:
        driver.open_queue()
        eventually(lambda: driver.queue() == [(job, "FAILED")], "the end of what was queued")
        assert "ExitCode=75:0" in driver.slurm.run("scontrol", "show", "job", job)
    assert driver.ledger() == [], "it never began"
