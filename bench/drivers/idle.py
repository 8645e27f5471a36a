"""Owns the driver of W6: jobs that sleep, until the bench ends this process and all it started.

idle.py warm|spawn COUNT, in an empty directory; prints the processes once all jobs run
"""

import json
import os
import sys
import time

from bench_tasks import Hold


def main(launcher, count):
    from tenuto import JobState, experiment
    from tenuto.launchers.selection import choose_launcher

    with experiment("ws", "w6", launcher=choose_launcher(launcher, count)) as xp:
        jobs = [Hold.C(number=number).submit().job for number in range(count)]
        while not all(job.state is JobState.RUNNING for job in jobs):
            time.sleep(0.005)
        supervisors = [job.process.describe()["pid"] for job in jobs]
        print(json.dumps({"scheduler": os.getpid(), "supervisors": supervisors}), flush=True)
        xp.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
