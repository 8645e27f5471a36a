"""Owns the commands on jobs that Slurm has, with no driver alive: looking, killing, retrying."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.slurm.drivers import Driver, eventually

HOLD = """
with experiment(HERE / "ws", "x"):
    Hold.C(name="h").submit()
"""


def left(driver: Driver, state: str) -> None:
    """Leaves a job in Slurm, pending or running, whose driver is dead."""
    if state == "pending":
        driver.close_queue()
    process = driver.start(driver.script(HOLD))
    eventually(lambda: driver.in_state(state.upper()), f"a {state} job")
    if state == "running":
        eventually(driver.ledger, "the payload")
    driver.kill(process)


def kill(driver: Driver, job: str) -> list[str]:
    """Kills a job; what became of that."""
    return [one["outcome"] for one in json.loads(driver.tenuto("kill", job, "--json", code=None))]


LONG_AGO = '$REAL "$@" | sed -E "s/[0-9]{4}-[0-9-]+T[0-9:]+/2020-01-01T00:00:00/"; exit 0'
"""A queue whose jobs ended long ago: an end of this minute may be ahead of what the disk shows."""


FORGOT = """
case "$*" in *"show job"*) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1;; esac
"""
"""A controller that knows no job."""


@pytest.mark.parametrize(("state", "shown"), [("pending", "scheduled"), ("running", "running")])
def test_a_job_without_a_driver_is_shown_explained_kept_and_killed(
    driver: Driver, state: str, shown: str
) -> None:
    left(driver, state)
    (job,) = driver.jobs()
    assert job["state"] == shown
    why = json.loads(driver.tenuto("why", job["id"], "--json"))
    assert why["state"] == shown
    assert "tenuto kill --unowned" in driver.tenuto("status"), "that no scheduler runs it"
    assert "it is running already" in driver.tenuto("retry", job["id"], "--json", code=1)
    cleaned = json.loads(driver.tenuto("clean", f"id={job['id']}", "--yes", "--json", code=1))
    assert [one["outcome"] for one in cleaned] == ["in_use"]
    killed = json.loads(driver.tenuto("kill", job["id"], "--json"))
    assert [(one["outcome"], one["ended"]) for one in killed] == [("asked", True)]
    (job,) = driver.jobs()
    assert (job["state"], job["reason"]) == ("error", "cancelled")
    eventually(lambda: not driver.running(), "the end of the job in Slurm")
    assert len(driver.ledger()) == (state == "running")


def test_a_job_that_is_long_gone_is_shown_explained_retried_and_cleaned(driver: Driver) -> None:
    left(driver, "running")
    driver.slurm.run("scancel", *driver.running())
    eventually(lambda: driver.in_state("CANCELLED"), "the end of the job in Slurm")
    driver.shim("squeue", LONG_AGO)
    # A command asks for two seconds, in which Slurm on a crowded machine may give no answer.
    (job,) = eventually(lambda: [one for one in driver.jobs() if one["state"] == "error"], "the verdict")
    assert job["reason"] == "cancelled"
    eventually(lambda: "CANCELLED" in driver.tenuto("why", job["id"], "--json"), "why it ended")
    eventually(lambda: "tenuto jobs state=error" in driver.tenuto("status"), "the hint of status")
    eventually(lambda: kill(driver, job["id"]) == ["not_running"], "the word that there is nothing to kill")
    driver.release()
    retried = json.loads(driver.tenuto("retry", job["id"], "--json"))
    assert [one["state"] for one in retried] == ["done"]
    assert len(driver.ledger()) == 2
    cleaned = json.loads(driver.tenuto("clean", f"id={job['id']}", "--yes", "--json"))
    assert [one["outcome"] for one in cleaned] == ["deleted"]
    assert driver.jobs() == []


def test_a_job_whose_end_is_not_certain_is_kept_until_a_retry_has_watched_it(driver: Driver) -> None:
    left(driver, "running")
    driver.slurm.run("scancel", "-f", "-s", "KILL", *driver.running())
    eventually(lambda: not driver.running(), "the end of the job in Slurm")
    driver.shim("squeue", "exit 0")
    driver.shim("scontrol", FORGOT)
    (job,) = (path.name for path in driver.workspace.glob("jobs/*/*"))

    def why() -> dict[str, Any]:
        """What is said of the job; each command asks Slurm for two seconds, in vain."""
        found: dict[str, Any] = json.loads(driver.tenuto("why", job, "--json"))
        return found if "its end is not certain yet" in str(found) else {}

    assert eventually(why, "the doubt")["state"] == "running", (
        "Slurm says nothing, and no beat was missed yet"
    )
    cleaned = json.loads(driver.tenuto("clean", f"id={job}", "--yes", "--json", code=1))
    assert [one["outcome"] for one in cleaned] == ["in_use"]
    driver.release()
    retried = json.loads(driver.tenuto("retry", job, "--json"))
    assert [(one["state"], one["attempt"]) for one in retried] == [("done", 2)]
    assert len(driver.ledger()) == 2


def test_a_failed_job_is_run_again_by_slurm(driver: Driver) -> None:
    driver.run(
        """
with experiment(HERE / "ws", "x"):
    Once.C().submit()
""",
        code=1,
        classes="""
class Once(Task):
    def execute(self):
        note(f"attempt {self.job_attempt}")
        if self.job_attempt == 1:
            raise ValueError("not yet")
        return socket.gethostname()
""",
    )
    retried = json.loads(driver.tenuto("retry", "--failed", "--json"))
    assert [one["state"] for one in retried] == ["done"]
    assert driver.ledger() == ["attempt 1", "attempt 2"]
    assert len(driver.calls("sbatch")) == 2


def test_launchers_are_listed_and_checked(driver: Driver) -> None:
    rows = {row["name"]: row for row in json.loads(driver.plain("launchers", "list", "--json"))}
    assert rows["slurm"]["usable"]
    assert rows["slurm"]["default"]
    assert "main (2 nodes" in rows["slurm"]["offers"]
    spec = "cpu(cores=900) | cpu(cores=3, mem=9000M) | duration=1h & cpu(cores=3, mem=300M)"
    answer = json.loads(driver.plain("launchers", "check", spec, "--json", TENUTO_SLOTS="1"))
    assert answer["chosen"] == {
        "launcher": "slurm",
        "alternative": 3,
        "options": ["--time=61", "--cpus-per-task=3", "--mem=300M"],
    }
    told = driver.plain("launchers", "check", spec, TENUTO_SLOTS="1")
    assert "asks for --time=61 --cpus-per-task=3 --mem=300M" in told
    refused = [one for one in answer["tried"] if one["launcher"] == "slurm" and not one["fits"]]
    assert len(refused) == 2
    assert all(one["why"] for one in refused)


def test_doctor_knows_the_cluster(driver: Driver) -> None:
    checks = {one["name"]: one for one in json.loads(driver.plain("doctor", "--json"))["checks"]}
    assert "22." in checks["slurm"]["found"] or "2" in checks["slurm"]["found"]
    assert checks["slurm grace"]["verdict"] == "warn"
    assert "50001" in checks["slurm arrays"]["found"]


def test_a_probe_tells_what_the_cluster_can_do(driver: Driver) -> None:
    place = str(driver.directory)
    found = json.loads(driver.plain("launchers", "test", "-w", place, "--wait", "50", "--json"))
    rows = {one["name"]: one for one in found}
    assert list(rows) == ["started", "python", "tenuto", "disk", "claim", "locks", "clock", "stop"]
    assert rows["started"]["found"].startswith(("on n1", "on n2"))
    assert not any(one["is_fatal"] for one in found)
    assert not list(driver.directory.glob(".tenuto-probe-*"))
