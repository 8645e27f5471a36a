"""Owns the workloads for experimaestro, by its public API: `run_experimaestro.py many|chain|sleep COUNT`."""

import sys
import time
from typing import Optional

from account import Account
from experimaestro import Param, Task, experiment


class Work(Task):
    """Does nothing."""

    number: Param[int]

    def execute(self):
        pass


class Link(Task):
    """Does nothing, after another."""

    number: Param[int]
    before: Param[Optional["Link"]] = None

    def execute(self):
        pass


class Sleep(Task):
    """Sleeps."""

    number: Param[int]

    def execute(self):
        time.sleep(600)


if __name__ == "__main__":
    shape, count = sys.argv[1], int(sys.argv[2])
    account = Account()
    with experiment("ws", shape, no_environmental_impact=True) as xp:
        two = xp.workspace.connector.createtoken("two", 2)
        before = None
        for number in range(count):
            if shape == "chain":
                before = Link.C(number=number, before=before).submit()
            else:
                two(1, {"many": Work, "sleep": Sleep}[shape].C(number=number)).submit()
    account.stop()
    account.report()
