"""Owns the driver of W12: one experiment of no-op jobs, by the launcher that the settings name.

slurm.py COUNT, in an empty directory
"""

import json
import os
import statistics
import sys
import time

from bench_tasks import Work


class Ends:
    """When the driver heard of each end."""

    def __init__(self):
        self.heard = {}

    def job_state(self, job):
        if job.state.finished():
            self.heard[job] = time.time()


def main(count):
    from tenuto import Scheduler, experiment

    ends = Ends()
    Scheduler.instance().add_listener(ends)
    began = time.monotonic()
    with experiment("ws", "w12"):
        for number in range(count):
            Work.C(number=number).submit()
    wall_s = time.monotonic() - began
    late = [heard - os.stat(job.paths.done).st_mtime for job, heard in ends.heard.items()]
    print(json.dumps({"wall_s": wall_s, "latency_s": statistics.median(late)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
