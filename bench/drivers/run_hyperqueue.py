"""Owns the workloads for HyperQueue: `run_hyperqueue.py many|chain|sleep COUNT`.

Server and worker of its Python package, in this process; one submission with a task for each job.
"""

import os
import sys
from pathlib import Path

from account import Account
from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig

if __name__ == "__main__":
    shape, count = sys.argv[1], int(sys.argv[2])
    os.makedirs("out", exist_ok=True)
    command = [os.environ["BENCH_PYTHON"], os.environ["BENCH_JOB"]]
    with LocalCluster(server_dir=Path("hq").absolute(), worker_config=WorkerConfig(cores=2)) as cluster:
        client = cluster.client()
        account = Account()
        job = Job(default_workdir=Path.cwd())
        before = []
        for number in range(count):
            argv = ["sleep", "600"] if shape == "sleep" else [*command, f"out/{number}"]
            task = job.program(argv, deps=before)
            before = [task] if shape == "chain" else []
        client.wait_for_jobs([client.submit(job)])
        account.stop()
    account.report()
