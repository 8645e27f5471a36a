"""Owns what Slurm's accounting is asked for: jobs that its queue no longer shows, on a real slurmdbd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.parts.slurm import PrivateSlurm
from tests.parts.slurm_configuration import Shape
from tests.slurm.drivers import FAULTS, Driver, eventually

FORGETS = 'if [ -e {0}/forget ]; then case "$*" in *-O*) exit 0;; esac; fi'
"""The queue of a driver, which shows nothing from some moment on."""
HOLD = """
with experiment(HERE / "ws", "x"):
    Hold.C(name="h").submit()
"""
ENDS = """
class Ends(Task):
    how: Param[str]
    def execute(self):
        note(self.how)
        while not (HERE / "forget").exists():
            time.sleep(0.05)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
"""


@pytest.fixture
def accounted(require: Callable[[str], None], tmp_path: Path) -> Iterator[Driver]:
    """Drivers on a cluster with accounting, whose queue can be made to forget."""
    require("slurm")
    require("slurmdbd")
    tmp_path.chmod(0o755)
    cluster = PrivateSlurm(Shape(accounting=True))
    made = Driver(tmp_path, cluster)
    made.shim("squeue", FORGETS.replace("{0}", str(tmp_path)))
    yield made
    made.close()
    cluster.close()


@pytest.mark.prove("a database has to start")
@pytest.mark.slow
@pytest.mark.watchdog(240)
def test_accounting_says_how_a_job_ended_that_the_queue_forgot(accounted: Driver) -> None:
    driver = accounted
    body = """
with experiment(HERE / "ws", "x"):
    Ends.C(how="killed").submit()
"""
    process = driver.start(driver.script(body, classes=ENDS))
    eventually(driver.ledger, "the payload")
    _forget(driver)
    said = driver.ended(process, 1)
    assert "LOST" in said
    assert "of Slurm ended" in said
    assert driver.ledger() == ["killed"], "nothing was tried again"
    assert driver.calls("sacct")
    assert not [call for call in driver.calls("scontrol") if "show job" in call]
    _cancelled_elsewhere(driver)
    _failing(driver)


def _forget(driver: Driver) -> None:
    """Has the queue show nothing any more, once accounting, which is told later, knows the running jobs."""

    def known() -> set[str]:
        rows = driver.slurm.run(
            "sacct", "-X", "-n", "-P", "-S", "now-1days", "-o", "JobID,State", check=False
        )
        return {row.partition("|")[0] for row in rows.splitlines() if row.endswith("|RUNNING")}

    eventually(lambda: known() >= set(driver.running()), "accounting to know the running jobs")
    (driver.directory / "forget").touch()


def _cancelled_elsewhere(driver: Driver) -> None:
    """Of a job that the queue forgot, accounting says that a person has cancelled it."""
    (driver.directory / "forget").unlink()
    process = driver.start(driver.script(HOLD))
    eventually(lambda: len(driver.ledger()) == 2, "the payload")
    _forget(driver)
    driver.slurm.run("scancel", *driver.running())
    assert "CANCELLED" in driver.ended(process, 1)


def _failing(driver: Driver) -> None:
    """Accounting that fails, hangs or knows nothing ends nothing: the job goes on, and its marker decides."""
    (driver.directory / "forget").unlink()
    driver.shim("sacct", FAULTS)
    process = driver.start(driver.script(HOLD.replace('"h"', '"again"')))
    eventually(lambda: len(driver.ledger()) == 3, "the payload")
    submitted = len(driver.calls("sbatch"))
    for fault in ("fails", "hangs", "empty"):
        (driver.directory / "new").write_text(fault)
        (driver.directory / "new").replace(driver.directory / "fault")
        (driver.directory / "forget").touch()
        asked = len(driver.calls("sacct"))
        eventually(lambda asked=asked: len(driver.calls("sacct")) > asked, f"a question that {fault}")
    driver.release()
    driver.ended(process)
    assert {job["attempt"] for job in driver.jobs()} == {1}
    assert len(driver.calls("sbatch")) == submitted, "nothing was started"
