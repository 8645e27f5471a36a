"""Owns the driver of W1: one experiment of no-op jobs; what it took from entering to leaving it.

throughput.py warm|spawn noop|undurable|numpy|command COUNT, in an empty directory
"""

import os
import sys

from account import Account

SLOTS = 2


def main(launcher, kind, count):
    from tenuto import CommandTask, experiment
    from tenuto.launchers.selection import choose_launcher

    if kind == "command":

        def make(number):
            return CommandTask.C(command=["/bin/true", str(number)])
    else:
        if kind == "numpy":
            from bench_numpy_tasks import Work
        else:
            from bench_tasks import Work

        def make(number):
            return Work.C(number=number)

    if kind == "undurable":
        os.environ["TENUTO_DURABILITY"] = "none"
    account = Account()
    chosen = choose_launcher(launcher, SLOTS)
    with experiment("ws", "w1", launcher=chosen):
        for number in range(count):
            make(number).submit()
    account.stop()
    chosen.close()
    account.report()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
