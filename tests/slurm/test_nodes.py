"""Owns what happens when a node dies, is believed dead, or sees the disk late and without locks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.parts.slurm import PrivateSlurm
from tests.parts.slurm_configuration import Shape
from tests.slurm.drivers import Driver, eventually

UNTIL_GIVEN_UP = pytest.mark.prove("Slurm gives a node up after half a minute")
HOLD_TWO = """
with experiment(HERE / "ws", "x"):
    for name in "ab":
        Hold.C(name=name).submit()
"""
NOTES = """
with experiment(HERE / "ws", "x"):
    assert [line for line in open("/proc/mounts") if str(HERE) in line and "fuse" in line]
    for i in range(6):
        note = Note.C(name=f"n{i}").submit()
    After.C(before=note).submit()
"""
WIDE = {"TENUTO_SLURM__CPUS": "3"}
"""A node has four cores, so that each job has a node to itself."""


@UNTIL_GIVEN_UP
@pytest.mark.watchdog(300)
def test_jobs_of_a_node_that_lost_power_run_again_elsewhere(own_driver: Driver) -> None:
    process = own_driver.start(own_driver.script(HOLD_TWO), **WIDE)
    eventually(lambda: len(own_driver.ledger()) == 2, "two running jobs")
    (lost,) = [line.split()[0] for line in own_driver.ledger() if line.endswith(" n1")]
    own_driver.slurm.crash("node.n1")
    eventually(lambda: _is_down(own_driver.slurm, "n1"), "the node to be given up", 90)
    own_driver.release()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "its end is not certain yet: Slurm says NODE_FAIL of job" in said
    assert "it counts once its runner was silent for 3 beats of" in said
    attempts = {job["id"]: job["attempt"] for job in own_driver.jobs()}
    assert sorted(attempts.values()) == [1, 2]
    assert [line.split()[0] for line in own_driver.ledger()].count(lost) == 2


@UNTIL_GIVEN_UP
@pytest.mark.watchdog(300)
def test_jobs_of_a_node_that_is_believed_dead_go_on(require: Callable[[str], None], tmp_path: Path) -> None:
    require("slurm")
    cluster = PrivateSlurm(
        Shape(extra=("SlurmdTimeout=4",))
    )  # slurmd dies, and leaves its jobs running, on this host only
    try:
        place = tmp_path / "believed"
        place.mkdir()
        driver = Driver(place, cluster)
        process = driver.start(driver.script(HOLD_TWO), **WIDE)
        eventually(lambda: len(driver.ledger()) == 2, "two running jobs")
        for node in ("n1", "n2"):
            cluster.crash(f"slurmd.{node}")
        eventually(lambda: _is_down(cluster, "n1"), "the node to be given up", 90)
        driver.release()
        process.communicate(timeout=120)
        assert process.returncode == 0
        assert driver.began() == ["a", "b"]
        assert all(job["attempt"] == 1 for job in driver.jobs())
        driver.close()
    finally:
        cluster.close()


def _is_down(cluster: PrivateSlurm, node: str) -> bool:
    rows = cluster.run("sinfo", "-h", "-N", "-n", node, "-o", "%T")
    return any(word.startswith("down") for word in rows.split())


@pytest.fixture
def late_driver(require: Callable[[str], None], tmp_path: Path) -> Iterator[Driver]:
    """Drivers whose nodes see the disk through a mount of their own: late, and without shared locks."""
    require("slurm")
    require("right to mount a disk")
    require("bindfs")
    if not os.access("/dev/fuse", os.W_OK):
        pytest.skip("this kernel has no /dev/fuse, so late disks are NOT tested here")
    tmp_path.chmod(0o755)
    cluster = PrivateSlurm(Shape(apart=True, share=str(tmp_path), share_delay_s=2.0))
    made = Driver(tmp_path, cluster)
    yield made
    made.close()
    cluster.close()


@pytest.mark.slow
@pytest.mark.watchdog(240)
def test_a_late_disk_without_locks_loses_no_job(late_driver: Driver) -> None:
    driver = late_driver
    script = driver.script(
        """
with experiment(HERE / "ws", "x"):
    assert Mounts.C().submit().job.result(), "the nodes have a mount of their own"
    for i in range(6):
        Note.C(name=f"n{i}").submit()
    again = Again.C().submit()
    After.C(before=Hold.C(name="h").submit()).submit()
    assert again.job.result() > 1, "resumed; an attempt that the dead driver never submitted has a number too"
""",
        classes="""
class Again(ResumableTask):
    def execute(self):
        print("attempt", self.job_attempt, flush=True)
        if self.job_attempt == 1:
            raise GracefulTimeout
        return self.job_attempt

class Mounts(Task):
    def execute(self):
        return [line for line in open("/proc/mounts") if str(HERE) in line and "fuse" in line]
""",
    )
    first = driver.start(script)
    eventually(lambda: len(driver.ledger()) == 7, "seven payloads")
    _kill(first)
    second = driver.start(script)
    eventually(lambda: driver.calls("squeue"), "the second driver")
    driver.release()
    said = second.communicate(timeout=120)
    assert second.returncode == 0, said
    assert driver.began() == sorted(["after", "h", *(f"n{i}" for i in range(6))])
    assert not list(driver.workspace.glob("jobs/*/*/*.failed"))


@pytest.mark.prove("a second of patience for each file")
@pytest.mark.slow
@pytest.mark.watchdog(240)
def test_a_submit_host_that_sees_the_disk_late_loses_no_job(
    require: Callable[[str], None], driver: Driver
) -> None:
    require("bindfs")
    if not os.access("/dev/fuse", os.W_OK):
        pytest.skip("this kernel has no /dev/fuse, so late disks are NOT tested here")
    here, behind = driver.directory, driver.directory.with_name("behind")
    behind.mkdir()
    times = "nonempty,attr_timeout=2,entry_timeout=2,negative_timeout=2"
    late = f'mount --bind {here} {behind} && bindfs -o {times} {behind} {here} && cd {here} && exec "$@"'
    apart = "unshare --mount --pid --fork --kill-child --mount-proc sh -c".split()
    process = driver.start(driver.script(NOTES), *apart, late, "sh")
    driver.ended(process)
    assert driver.began() == sorted(["after", *(f"n{i}" for i in range(6))])
    assert not list(driver.workspace.glob("jobs/*/*/*.failed"))
    assert {job["attempt"] for job in driver.jobs()} == {1}


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
