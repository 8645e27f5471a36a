"""Owns jobs of several nodes: what Slurm is asked for, what `tenuto.nodes()` tells, and their end."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.slurm.drivers import Driver, eventually

RANKS = """
import subprocess
import tenuto

RANK = '''
import json, os, sys, time
from pathlib import Path
import tenuto
found = tenuto.nodes()
told = [found.rank, found.size, found.local_rank, found.node_rank, found.hosts, os.uname().nodename]
Path(sys.argv[1], f"rank-{found.rank}").write_text(json.dumps(told))
end = time.monotonic() + 90
while len(sys.argv) > 2 and time.monotonic() < end:
    time.sleep(0.05)
'''

class Ranks(Task):
    __requires__ = "nodes=2 & tasks=4"
    stays: Param[bool] = False
    def execute(self):
        there = tenuto.nodes()
        words = ["srun", sys.executable, "-c", RANK, str(HERE), *(["stay"] if self.stays else [])]
        subprocess.run(words, check=True)
        return [list(there.hosts), there.size, there.rank, there.tasks_per_node, there.address]
"""


def test_a_job_of_two_nodes_starts_its_tasks_on_both(driver: Driver) -> None:
    body = """
with experiment(HERE / "ws", "x"):
    job = Ranks.C().submit().job
assert job.result() == [["n1", "n2"], 4, 0, 2, "n1"], job.result()
"""
    driver.run(body, classes=RANKS)
    (call,) = driver.calls("sbatch")
    assert "--nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1" in call
    told = [json.loads(path.read_text()) for path in sorted(driver.directory.glob("rank-*"))]
    hosts = ["n1", "n2"]
    assert told == [[rank, 4, rank % 2, rank // 2, hosts, hosts[rank // 2]] for rank in range(4)]


def processes_of(directory: Path) -> int:
    """How many ranks of a test live, on whichever node."""
    found = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        found += words[1:2] == [b"-c"] and str(directory).encode() in words
    return found


def test_a_kill_ends_the_tasks_on_every_node(driver: Driver) -> None:
    body = 'with experiment(HERE / "ws", "x"):\n    Ranks.C(stays=True).submit()\n'
    process = driver.start(driver.script(body, classes=RANKS))
    eventually(lambda: processes_of(driver.directory) == 4, "four ranks")
    (job,) = driver.jobs()
    driver.tenuto("kill", job["id"])
    driver.ended(process, 1)
    eventually(lambda: processes_of(driver.directory) == 0, "the end of every rank")
    (marker,) = driver.workspace.glob("jobs/*/*/*.failed")
    assert json.loads(marker.read_text())["reason"] == "CANCELLED"
