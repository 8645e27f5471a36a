"""Owns the driver of W12 for submitit: `run_submitit_slurm.py COUNT SLOTS`, one array of no-ops."""

import json
import sys
import time

import submitit


def work(number):
    return number


if __name__ == "__main__":
    count, slots = int(sys.argv[1]), int(sys.argv[2])
    began = time.monotonic()
    executor = submitit.AutoExecutor(folder="out", cluster="slurm")
    executor.update_parameters(timeout_min=60, cpus_per_task=1, slurm_array_parallelism=slots)
    jobs = executor.map_array(work, range(count))
    assert [job.result() for job in jobs] == list(range(count))
    print(json.dumps({"wall_s": time.monotonic() - began}))
