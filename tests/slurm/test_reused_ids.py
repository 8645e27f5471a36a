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
    *" -j $job")
        echo "$job|$state|0:0|Unknown|other"
        exit 0;;
esac
"""
"""A command that shows another job under the id in the file `reused`, in the state that is written there."""
LOOK = pytest.mark.parametrize("look", ["scontrol", "sacct"])
ACCOUNTED = """
case "$*" in *config*)
    $REAL "$@" | sed -E "s/^(AccountingStorageType *= ).*/\\1slurmdbd/"
    exit 0;;
esac
"""
"""A controller that says that it has a database."""


def reused_id(driver: Driver, script: str, state: str, look: str) -> tuple[subprocess.Popen[str], str]:
    """A driver and the id of its running job, which Slurm says is another one's by now.

    `look`: the command by which the driver looks for a job that the queue does not show.
    """
    for command in ("squeue", "sacct"):
        driver.shim(command, REUSED)
    driver.shim("scontrol", ACCOUNTED if look == "sacct" else REUSED)
    process = driver.start(driver.script(script))
    eventually(driver.ledger, "the job to run")
    (job,) = driver.running()
    (driver.directory / "new").write_text(f"{job} {state}\n")
    (driver.directory / "new").replace(driver.directory / "reused")
    eventually(lambda: any(call.endswith(f" {job}") for call in driver.calls(look)), "a look for it")
    return process, job


@LOOK
def test_a_job_is_not_judged_nor_ended_by_another_one_that_has_its_id(driver: Driver, look: str) -> None:
    process, _ = reused_id(driver, CANCEL, "CANCELLED", look)
    asked = len(driver.calls("squeue"))
    eventually(lambda: len(driver.calls("squeue")) >= asked + 2, "two more looks of the driver")
    (job,) = driver.jobs()
    assert job["state"] == "running"
    (driver.directory / "cancel").touch()
    eventually((driver.directory / "took_s").exists, "the end of the job")
    (driver.directory / "leave").touch()
    assert "CANCELLED" in driver.ended(process, 1)
    assert driver.calls("scancel") == [], "it would have ended the other job"


@LOOK
@pytest.mark.slow
def test_a_job_that_is_gone_is_tried_again_though_another_one_has_its_id(driver: Driver, look: str) -> None:
    process, job = reused_id(driver, HOLD, "RUNNING", look)
    driver.slurm.run("scancel", job)
    eventually(lambda: len(driver.ledger()) == 2, "the second attempt")
    driver.release()
    driver.ended(process)
    (shown,) = driver.jobs()
    assert (shown["state"], shown["attempt"]) == ("done", 2)
