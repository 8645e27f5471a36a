"""Owns the floor of forking: `forks.py COUNT` forks processes that end at once, two at a time."""

import os
import sys

from account import Account

AT_ONCE = 2


def main(count):
    account = Account()
    living = 0
    for _ in range(count):
        if living == AT_ONCE:
            os.wait()
            living -= 1
        if os.fork() == 0:
            os._exit(0)
        living += 1
    while living:
        os.wait()
        living -= 1
    account.stop()
    account.report()


if __name__ == "__main__":
    main(int(sys.argv[1]))
