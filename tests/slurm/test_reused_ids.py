"""Owns ids that Slurm gives out again after its controller lost its state: whose job is shown under one."""

from __future__ import annotations

import subprocess

import pytest

from tests.slurm.drivers import CANCEL, Driver, eventually

HOLD = """
with experiment(HERE / "ws", "x"):
    Hold.C(name="h").submit()
"""
REUSED = """
read job state 2>/dev/null < "$HERE/reused"
case "$job $*" in
    " "*) ;;
    *" -O "*)
        $REAL "$@" | awk -F'|' -v OFS='|' -v job=$job -v state=$state '$1 == job {$2 = state; $6 = "other"} 1'
        exit 0;;
    "$job "*"show job $job")
        $REAL "$@" | sed -E "s/JobName=[^ ]*/JobName=other/; s/JobState=[A-Z]*/JobState=$state/"
        exit 0;;
esac
"""
"""A command that shows another job under the id in the file `reused`, in the state that is written there."""


def reused_id(driver: Driver, script: str, state: str) -> tuple[subprocess.Popen[str], str]:
    """A driver and the id of its running job, which Slurm says is another one's by now."""
    driver.shim("squeue", REUSED)
    driver.shim("scontrol", REUSED)
    process = driver.start(driver.script(script))
    eventually(driver.ledger, "the job to run")
    (job,) = driver.running()
    (driver.directory / "new").write_text(f"{job} {state}\n")
    (driver.directory / "new").replace(driver.directory / "reused")
    eventually(lambda: f"scontrol -o show job {job}" in driver.calls("scontrol"), "the driver to look for it")
    return process, job


def test_a_job_is_not_judged_nor_ended_by_another_one_that_has_its_id(driver: Driver) -> None:
    process, _ = reused_id(driver, CANCEL, "CANCELLED")
    asked = len(driver.calls("squeue"))
    eventually(lambda: len(driver.calls("squeue")) >= asked + 2, "two more looks of the driver")
    (job,) = driver.jobs()
    assert job["state"] == "running"
    (driver.directory / "cancel").touch()
    eventually((driver.directory / "took_s").exists, "the end of the job")
    (driver.directory / "leave").touch()
    assert "CANCELLED" in driver.ended(process, 1)
    assert driver.calls("scancel") == [], "it would have ended the other job"


@pytest.mark.slow
def test_a_job_that_is_gone_is_tried_again_though_another_one_has_its_id(driver: Driver) -> None:
    process, job = reused_id(driver, HOLD, "RUNNING")
    driver.slurm.run("scancel", job)
    eventually(lambda: len(driver.ledger()) == 2, "the second attempt")
    driver.release()
    driver.ended(process)
    (shown,) = driver.jobs()
    assert (shown["state"], shown["attempt"]) == ("done", 2)
