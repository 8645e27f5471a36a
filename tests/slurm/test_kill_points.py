"""Owns drivers that are killed between the steps of a submission: launch.json, manifest, sbatch, id."""

from __future__ import annotations

import itertools
import signal

import pytest

from tests.slurm.drivers import GATHERED, Driver

NOTES = """
import tenuto.launchers.observation as observation
from tenuto.launchers.cluster import submission
from tenuto.launchers.cluster.dialect import Dialect

observation.SUBMISSION_PATIENCE_S = 2.0  # a minute, shortened

def die(module, name, after):
    real = getattr(module, name)
    def deadly(*arguments):
        if after:
            real(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(module, name, deadly)

point = os.environ.get("KILL")
if point == "launch":
    die(submission, "write", after=False)
elif point == "id":
    die(submission, "write_answer", after=True)
elif point is not None:
    die(Dialect, "submit", after=point == "sbatch")
with experiment(HERE / "ws", "x"):
    for name in "ab":
        Alone.C(name=name).submit()
"""
ALONE = """
import fcntl

class Alone(Task):
    name: Param[str]
    def execute(self):
        with (HERE / f"alone-{self.name}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the job runs twice at once
            note(f"{self.name} {self.job_attempt}")
            time.sleep(0.2)
"""
POINTS = ("launch", "manifest", "sbatch", "id")
"""The last step that a driver takes before it is killed."""
SUBMITTED = ("sbatch", "id")
ALIKE = pytest.mark.prove("the next point looks the same to the next driver")


def run_all(driver: Driver, points: tuple[str, ...]) -> list[str]:
    """Runs a driver for each point, which is killed there if it gets so far, and a last one to its end.

    The states in which the jobs end.
    """
    script = driver.script(GATHERED + NOTES, classes=ALONE)
    array = {"TENUTO_SLURM__ARRAY_SIZE": "2"}
    is_submitted = False
    for point in points:
        process = driver.start(script, KILL=point, **array)
        process.communicate(timeout=90)
        # A driver that finds the jobs of the one before submits nothing, and so gets to no point.
        assert process.returncode == (0 if is_submitted else -signal.SIGKILL)
        is_submitted = is_submitted or point in SUBMITTED
    driver.ended(driver.start(script, **array))
    assert {line.split()[0] for line in driver.ledger()} == {"a", "b"}
    assert len(driver.ledger()) == 2, "each payload began once"
    return [job["state"] for job in driver.jobs()]


@pytest.mark.parametrize(
    "point", [pytest.param("launch", marks=ALIKE), "manifest", "sbatch", pytest.param("id", marks=ALIKE)]
)
def test_a_driver_that_is_killed_between_two_steps_loses_no_job(driver: Driver, point: str) -> None:
    assert run_all(driver, (point,)) == ["done"] * 2
    assert len(driver.calls("sbatch")) == 1, "what Slurm has is not submitted again"


@pytest.mark.prove("sixteen pairs")
@pytest.mark.slow
@pytest.mark.watchdog(300)
@pytest.mark.parametrize("points", list(itertools.product(POINTS, POINTS)), ids="-".join)
def test_two_drivers_that_are_killed_one_after_another_lose_no_job(
    driver: Driver, points: tuple[str, ...]
) -> None:
    assert run_all(driver, points) == ["done"] * 2
