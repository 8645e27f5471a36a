"""Owns the workloads for Luigi: `run_luigi.py many|chain|sleep COUNT fork|fresh`.

Two workers, which fork a process for each task; `fresh`: the task starts an interpreter in it.
"""

import os
import subprocess
import sys

import luigi
from account import Account

SHAPE, COUNT, WAY = sys.argv[1], int(sys.argv[2]), sys.argv[3]
COMMAND = [os.environ["BENCH_PYTHON"], os.environ["BENCH_JOB"]]


class Work(luigi.Task):
    """Leaves a file."""

    number = luigi.IntParameter()

    def requires(self):
        return Work(number=self.number - 1) if SHAPE == "chain" and self.number else []

    def output(self):
        return luigi.LocalTarget(f"out/{self.number}")

    def run(self):
        if SHAPE == "sleep":
            subprocess.run(["sleep", "600"], check=True)
        elif WAY == "fresh":
            subprocess.run([*COMMAND, f"out/{self.number}"], check=True)
        else:
            open(f"out/{self.number}", "w").close()


if __name__ == "__main__":
    os.makedirs("out", exist_ok=True)
    settings = luigi.configuration.get_config()
    settings.set("worker", "wait_interval", "0.005")  # by default it looks once a second
    settings.set("worker", "wait_jitter", "0")
    sys.setrecursionlimit(100_000)
    tasks = [Work(number=number) for number in (range(COUNT) if SHAPE != "chain" else [COUNT - 1])]
    account = Account()
    good = luigi.build(tasks, workers=2, local_scheduler=True, log_level="CRITICAL")
    account.stop()
    account.report()
    sys.exit(not good)
