"""Owns the workloads for submitit's local executor: `run_submitit.py many|chain|sleep COUNT`, in pairs."""

import sys
import time
from collections import deque

import submitit
from account import Account


def work(seconds):
    if seconds:
        time.sleep(seconds)


if __name__ == "__main__":
    shape, count = sys.argv[1], int(sys.argv[2])
    at_once = 1 if shape == "chain" else 2
    executor = submitit.AutoExecutor(folder="out", cluster="local")
    account = Account()
    running = deque()
    for _ in range(count):
        if len(running) == at_once:
            running.popleft().result()
        running.append(executor.submit(work, 600 if shape == "sleep" else 0))
    for job in running:
        job.result()
    account.stop()
    account.report()
