"""Owns what is kept of what jobs asked a cluster for: beside what they used, and for a retry."""

from __future__ import annotations

import json

from tests.slurm.drivers import Driver

FAILS = """
class Fails(Task):
    def execute(self):
        raise ValueError("as it is meant to")
"""


def test_a_request_to_the_cluster_is_compared_with_the_use(driver: Driver) -> None:
    body = """
with experiment(HERE / "ws", "x"):
    Note.C(name="asks").submit(requires="cpu(cores=2, mem=1G) & duration=1h")
    Note.C(name="asks not").submit()
"""
    driver.run(body, TENUTO_SLURM__TIME_S="600")
    told = json.loads(driver.tenuto("results", "--usage", "--json"))
    asked = sorted((one["cores"], one["asked_s"], one["asked_bytes"]) for one in told)
    assert asked == [(1, 600.0, None), (2, 3600.0, 1 << 30)]


def test_a_retry_asks_the_cluster_for_what_the_job_needs(driver: Driver) -> None:
    body = """
with experiment(HERE / "ws", "x"):
    Fails.C().submit(requires="cpu(cores=2, mem=1G) & duration=1h")
"""
    driver.run(body, code=1, classes=FAILS)
    (job,) = driver.jobs()
    driver.tenuto("retry", job["id"], code=1)
    first, second = driver.calls("sbatch")
    asked = "--time=61 --cpus-per-task=2 --mem=1024M"
    assert (asked in first, asked in second) == (True, True), (first, second)
    assert "2 cores" in driver.tenuto("why", job["id"])
