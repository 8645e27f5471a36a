"""Owns the driver of W2: one experiment whose jobs each need the one before.

chain.py warm|spawn LENGTH, in an empty directory
"""

import sys

from account import Account
from bench_tasks import Link


def main(launcher, length):
    from tenuto import experiment
    from tenuto.launchers.choice import choose_launcher

    account = Account()
    chosen = choose_launcher(launcher, 2)
    with experiment("ws", "w2", launcher=chosen):
        before = None
        for number in range(length):
            before = Link.C(number=number, before=before)
            before.submit()
    account.stop()
    chosen.close()
    account.report()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
