"""Owns the driver of W4: the peak memory of a scheduler that knows many jobs, without running them.

memory.py waiting COUNT, in an empty directory: COUNT jobs wait for one that sleeps
memory.py done COUNT, in the directory that `prepare.py` filled: COUNT jobs are found done
"""

import os
import sys

from account import Account
from bench_tasks import Behind, Hold, Work

from tenuto import JobState, experiment


def main(kind, count):
    account = Account()
    with experiment("ws", "w4") as xp:
        if kind == "done":
            for number in range(count):
                Work.C(number=number).submit()
        else:
            held = Hold.C(number=0)
            held.submit()
            for number in range(count):
                Behind.C(held=held, number=number).submit()
            held.job.scheduler.wait_until(lambda: len(xp.run.jobs) == count + 1)
            assert xp.jobs[-1].state is JobState.WAITING
            account.stop()
            account.report()
            os._exit(0)  # the measured part is over; the process that started this one ends what it left
    account.stop()
    account.report()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
