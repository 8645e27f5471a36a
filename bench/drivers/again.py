"""Owns the driver of W3: an experiment all of whose jobs are done already, as a user's script has it.

again.py COUNT, in the directory that `prepare.py` filled
"""

import sys

from bench_tasks import Work

from tenuto import experiment

if __name__ == "__main__":
    with experiment("ws", "prepared"):
        for number in range(int(sys.argv[1])):
            Work.C(number=number).submit()
