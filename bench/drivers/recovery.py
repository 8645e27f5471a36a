"""Owns the driver of W10: a scheduler that is killed, and the one that takes over.

recovery.py DONE RUNNING FIRST, in the directory that `prepare.py` filled. A first process starts jobs that
sleep, numbered from FIRST, and kills itself. A second one finds the done jobs and the running ones; then some
of these end.
"""

import json
import os
import select
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

from bench_tasks import Hold, Work

from tenuto import JobState, Listener, experiment
from tenuto.launchers.selection import choose_launcher

MOST_DEATHS = 10


def leave(running, first):
    with experiment("ws", "w10", launcher=choose_launcher("warm", running)):
        jobs = [Hold.C(number=first + number).submit().job for number in range(running)]
        while not all(job.state is JobState.RUNNING for job in jobs):
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGKILL)


class Ends(Listener):
    """When the scheduler told of the end of each job."""

    def __init__(self):
        self.seen = {}
        self.told = threading.Condition()

    def job_state(self, job, record):
        if record.state.finished():
            with self.told:
                self.seen[job.job_id] = time.perf_counter()
                self.told.notify_all()


def restart(done, running, first):
    began = time.perf_counter()
    with experiment("ws", "w10", launcher=choose_launcher("warm", running)):
        old = [Work.C(number=number).submit().job for number in range(done)]
        scheduler = old[0].scheduler
        scheduler.wait_until(lambda: all(job.state is JobState.DONE for job in old))
        scanned = time.perf_counter()
        held = [Hold.C(number=first + number).submit().job for number in range(running)]
        while not all(job.process is not None and job.state is JobState.RUNNING for job in held):
            time.sleep(0.001)
        adopted = time.perf_counter()
        assert all(job.attempt == 1 for job in held)
        ends = Ends()
        scheduler.add_listener(ends)
        deaths = [death_seen_s(job, ends) for job in held[:MOST_DEATHS]]
        report = {
            "scan_s": scanned - began,
            "adopt_s": adopted - scanned,
            "deaths_s": deaths,
            "death_s": statistics.median(deaths),
        }
        print(json.dumps(report), flush=True)
        os._exit(0)


def death_seen_s(job, ends):
    """From the exit of a job's runner to the scheduler's word that the job ended."""
    runner = job.process.describe()["pid"]
    fd = os.pidfd_open(runner)
    (payload, *_) = Path(f"/proc/{runner}/task/{runner}/children").read_text().split()
    exited = select.poll()
    exited.register(fd, select.POLLIN)
    os.kill(int(payload), signal.SIGKILL)
    exited.poll()
    gone = time.perf_counter()
    os.close(fd)
    with ends.told:
        assert ends.told.wait_for(lambda: job.job_id in ends.seen, 60)
    return max(ends.seen[job.job_id] - gone, 0.0)


def main(done, running, first):
    if os.fork() == 0:
        leave(running, first)
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    restart(done, running, first)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
