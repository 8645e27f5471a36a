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
def test_a_preempted_job_is_tried_again(own_driver: Driver) -> None:
    process = own_driver.start(own_driver.script(HOLD), TENUTO_SLURM__PARTITION="cheap")
    eventually(own_driver.ledger, "the job to run")
    preempt(own_driver)
    eventually(lambda: len(own_driver.ledger()) == 2, "the second attempt")
    own_driver.release()
    own_driver.ended(process)
    (job,) = own_driver.jobs()
    assert (job["state"], job["attempt"]) == ("done", 2)


@pytest.mark.prove("four attempts, each of which Slurm takes seconds to preempt")
@pytest.mark.slow
@pytest.mark.watchdog(300)
@pytest.mark.parametrize("partition", ["main", "cheap"], ids=["REQUEUE", "CANCEL"])
def test_a_job_that_is_preempted_four_times_is_lost(own_driver: Driver, partition: str) -> None:
    process = own_driver.start(own_driver.script(HOLD), TENUTO_SLURM__PARTITION=partition)
    for attempt in range(1, 5):
        eventually(lambda: len(own_driver.ledger()) == attempt, f"attempt {attempt}")  # noqa: B023
        preempt(own_driver)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "LOST" in said
    assert "PREEMPTED" in said
    (job,) = own_driver.jobs()
    assert (job["reason"], job["attempt"]) == ("lost", 4)
    assert len(own_driver.ledger()) == 4
