"""Owns limits and waits in Slurm: time, memory, a job that never starts, a queue of a thousand jobs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.parts.slurm import PrivateSlurm
from tests.parts.slurm_configuration import Shape
from tests.slurm.drivers import Driver, eventually

HOLD = """
with experiment(HERE / "ws", "x"):
    Hold.C(name="h").submit()
"""


def test_a_held_job_says_that_it_will_not_start(driver: Driver) -> None:
    process = driver.start(driver.script(HOLD), TENUTO_SLURM__EXTRA="--hold")
    eventually(lambda: driver.workspace.exists() and driver.calls("sbatch"), "the call of sbatch")
    eventually(lambda: [job for job, state in driver.queue() if state == "PENDING"], "a held job")
    (job,) = driver.jobs()
    why = json.loads(driver.tenuto("why", job["id"], "--json"))
    assert "will not start: JobHeldUser" in json.dumps(why)
    driver.tenuto("kill", job["id"])
    assert "CANCELLED" in driver.ended(process, 1)
    assert driver.ledger() == []


SLOW_SBATCH = '$REAL "$@"; touch %s/answered; exit 0'


def test_a_job_is_cancelled_while_sbatch_hangs(driver: Driver) -> None:
    driver.shim("sbatch", f"sleep 8; {SLOW_SBATCH % driver.directory}")
    said = driver.run(
        """
with experiment(HERE / "ws", "x"):
    job = Hold.C(name="h").submit().job
    while not (HERE / "calls").exists() or "sbatch" not in (HERE / "calls").read_text():
        time.sleep(0.05)
    began = time.monotonic()
    Scheduler.instance().cancel(job, "enough")
    job.wait()
    assert time.monotonic() - began < 5
""",
        code=1,
    )
    assert "CANCELLED" in said
    assert driver.ledger() == []


def test_a_command_that_kills_a_job_while_sbatch_hangs_is_heard(driver: Driver) -> None:
    driver.shim("sbatch", f"sleep 4; {SLOW_SBATCH % driver.directory}")
    process = driver.start(driver.script(HOLD))
    eventually(lambda: driver.calls("sbatch"), "the call of sbatch")
    (job,) = driver.jobs()
    driver.tenuto("kill", job["id"])
    assert driver.jobs()[0]["reason"] == "cancelled"
    assert "CANCELLED" in driver.ended(process, 1)
    eventually((driver.directory / "answered").exists, "the late answer of sbatch")
    assert driver.ledger() == [], "what was queued late never begins"


@pytest.mark.prove("Slurm looks at time limits every half minute")
def test_a_limit_that_is_not_known_is_told_before_it_comes(driver: Driver) -> None:
    driver.run(
        """
with experiment(HERE / "ws", "x"):
    assert Long.C().submit().job.result() == 2
""",
        classes="""
class Long(ResumableTask):
    def execute(self):
        note(f"attempt {self.job_attempt}")
        while self.job_attempt == 1:
            if self.remaining_time() == 0:
                raise GracefulTimeout
            time.sleep(0.2)
        return self.job_attempt
""",
        TENUTO_SLURM__EXTRA="--time=1",
    )
    assert driver.began() == ["attempt", "attempt"]


@pytest.fixture
def tight_driver(require: Callable[[str], None], tmp_path: Path) -> Iterator[Driver]:
    """Drivers on a cluster that limits memory by control groups."""
    require("slurm")
    require("memory cgroups")
    if not os.path.isdir("/sys/fs/cgroup/memory"):
        pytest.skip("Slurm of Debian 12 limits memory by control groups of version 1 only; NOT tested here")
    tmp_path.chmod(0o755)
    cluster = PrivateSlurm(Shape(memory_groups=True))
    made = Driver(tmp_path, cluster)
    yield made
    made.close()
    cluster.close()


@pytest.mark.slow
def test_a_job_that_takes_too_much_memory_ends_for_memory(tight_driver: Driver) -> None:
    said = tight_driver.run(
        """
with experiment(HERE / "ws", "x"):
    Large.C().submit()
""",
        code=1,
        classes="""
class Large(Task):
    def execute(self):
        self.kept = b"x" * (400 << 20)
""",
        TENUTO_SLURM__MEMORY_BYTES="100M",
    )
    assert "MEMORY" in said


@pytest.mark.prove("a thousand jobs are submitted")
@pytest.mark.watchdog(300)
def test_a_thousand_waiting_jobs_cost_next_to_nothing(driver: Driver) -> None:
    driver.slurm.run("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
        process = driver.start(
            driver.script("""
with experiment(HERE / "ws", "x"):
    for i in range(1000):
        Note.C(name=f"n{i}").submit()
    note("submitted")
""")
        )
        eventually(lambda: len(driver.queue()) >= 1000, "a thousand pending jobs", 120)
        before = len(driver.calls("squeue"))
        eventually(lambda: len(driver.calls("squeue")) > before + 5, "five quiet answers", 120)
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < 60
        began, used = time.monotonic(), _cpu_s(process.pid)
        asked = len(driver.calls("squeue"))
        time.sleep(20)
        assert (_cpu_s(process.pid) - used) / (time.monotonic() - began) < 0.02
        assert len(driver.calls("squeue")) - asked <= 8
        process.kill()
        process.communicate()
    finally:
        driver.slurm.run("scontrol", "update", "PartitionName=main", "State=UP")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_arrays_are_no_larger_than_the_cluster_allows(require: Callable[[str], None], tmp_path: Path) -> None:
    require("slurm")
    tmp_path.chmod(0o755)
    cluster = PrivateSlurm(Shape(extra=("MaxArraySize=5",)))
    driver = Driver(tmp_path, cluster)
    try:
        driver.run("""
with experiment(HERE / "ws", "x"):
    for i in range(12):
        Note.C(name=f"n{i:02}").submit()
""")
        assert driver.began() == [f"n{i:02}" for i in range(12)]
        largest = max(int(call.split("--array=0-")[1].split()[0]) for call in driver.calls("sbatch"))
        assert largest == 4
    finally:
        driver.close()
        cluster.close()
