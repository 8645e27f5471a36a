"""Owns the workloads for HyperQueue: `run_hyperqueue.py many|chain|sleep COUNT`.

Server and worker of its Python package, in this process; one submission with a task for each job. Its wait
looks once a second, so the end is taken from the file that the last job left.
"""

import os
import sys
import time
from pathlib import Path

from account import Account
from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig

if __name__ == "__main__":
    shape, count = sys.argv[1], int(sys.argv[2])
    os.makedirs("out", exist_ok=True)
    command = [os.environ["BENCH_PYTHON"], os.environ["BENCH_JOB"]]
    with LocalCluster(server_dir=os.path.abspath("hq"), worker_config=WorkerConfig(cores=2)) as cluster:
        client = cluster.client()
        account = Account()
        job = Job(default_workdir=Path.cwd())
        before = []
        for number in range(count):
            argv = ["sleep", "600"] if shape == "sleep" else [*command, f"out/{number}"]
            task = job.program(argv, deps=before)
            before = [task] if shape == "chain" else []
        client.wait_for_jobs([client.submit(job)])
        last = max(os.stat(f"out/{number}").st_mtime for number in range(count))
        account.stop(time.time() - last)
    account.report()
