"""Owns the driver of W2: one experiment whose jobs each need the one before.

chain.py warm|spawn LENGTH [SLOTS], in an empty directory; with more than one slot there is a chain for each
"""

import sys

from account import Account
from bench_tasks import Link


def main(launcher, length, slots=None):
    from tenuto import experiment
    from tenuto.launchers.selection import choose_launcher

    account = Account()
    chosen = choose_launcher(launcher, slots or 2)
    with experiment("ws", "w2", launcher=chosen):
        last = [None] * (slots or 1)
        for number in range(length * len(last)):
            chain = number % len(last)
            last[chain] = Link.C(number=number, before=last[chain])
            last[chain].submit()
    account.stop()
    chosen.close()
    account.report()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
