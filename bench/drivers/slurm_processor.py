"""Owns the driver of W12 that needs no Slurm: the processor time of no-op jobs, by runners of a cluster.

slurm_processor.py COUNT, in an empty directory
"""

import json
import os
import resource
import subprocess
import sys

from bench_tasks import Work

from tenuto.launchers.manifest import Header, Order, encode_manifest
from tenuto.launchers.runner.runner_protocol import ENTRY, PLAIN
from tenuto.testing.jobs import JobBench
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Durability

BEAT_S = 30.0
LONG_S = 3600.0


def main(count):
    bench = JobBench(f"{os.getcwd()}/ws", this_machine(), launcher="slurm", external=True)
    bare = [sys.executable, "-c", "import tenuto"]
    own = [runner(bench, range(index, index + 1)) for index in range(count)]
    costs = {
        "bare_s": cpu_s([bare] * count),
        "job_s": cpu_s(own),
        "further_s": cpu_s([runner(bench, range(count, 2 * count))]),
    }
    print(json.dumps({name: cost / count for name, cost in costs.items()}))


def runner(bench, numbers):
    """The command of a runner for jobs of these numbers: it takes all of them, one after another."""
    jobs = [bench.task(Work.C(number=number), durability=Durability.MARKER) for number in numbers]
    orders = [Order(job.paths.directory, job.paths.script_name, job.launch.nonce) for job in jobs]
    directory = os.path.abspath(f"submission-{numbers[0]}")
    os.mkdir(directory)
    with open(f"{directory}/manifest", "wb") as manifest:
        manifest.write(encode_manifest(Header(BEAT_S, reuse_s=LONG_S), orders))
    claim = ["--claim", sys.executable, f"{directory}/manifest", "0", "-"]
    return [sys.executable, *PLAIN, ENTRY, *claim]


def cpu_s(commands):
    """The processor time of commands, and of all that they started, one after another."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main(int(sys.argv[1]))
