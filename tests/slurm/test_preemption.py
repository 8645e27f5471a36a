"""Owns jobs that Slurm preempts: tried again without blame, three times at most."""

from __future__ import annotations

import pytest

from tests.slurm.drivers import Driver, eventually

HOLD = """
with experiment(HERE / "ws", "x"):
    Hold.C(name="a").submit()
"""


def preempt(driver: Driver) -> None:
    """Has an urgent job take all nodes for a moment."""
    driver.slurm.run(
        *("sbatch", "-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1"),
    )


@pytest.mark.slow
@pytest.mark.watchdog(240)
def test_a_preempted_job_is_tried_again(driver: Driver) -> None:
    process = driver.start(driver.script(HOLD), TENUTO_SLURM__PARTITION="cheap")
    eventually(driver.ledger, "the job to run")
    preempt(driver)
    eventually(lambda: len(driver.ledger()) == 2, "the second attempt")
    driver.release()
    driver.ended(process)
    (job,) = driver.jobs()
    assert (job["state"], job["attempt"]) == ("done", 2)


@pytest.mark.prove("four attempts, each of which Slurm takes seconds to preempt")
@pytest.mark.slow
@pytest.mark.watchdog(300)
@pytest.mark.parametrize("partition", ["main", "cheap"], ids=["REQUEUE", "CANCEL"])
def test_a_job_that_is_preempted_four_times_is_lost(driver: Driver, partition: str) -> None:
    process = driver.start(driver.script(HOLD), TENUTO_SLURM__PARTITION=partition)
    for attempt in range(1, 5):
        eventually(lambda: len(driver.ledger()) == attempt, f"attempt {attempt}")  # noqa: B023
        preempt(driver)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "LOST" in said
    assert "PREEMPTED" in said
    (job,) = driver.jobs()
    assert (job["reason"], job["attempt"]) == ("lost", 4)
    assert len(driver.ledger()) == 4
