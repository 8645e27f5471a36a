"""Owns the driver of W1 in the shape of the README: task and experiment in one script.

script.py COUNT SLOTS, in an empty directory
"""

import sys

from tenuto import Param, Task, experiment


class Square(Task):
    """As small as a task can be."""

    x: Param[int]

    def execute(self):
        return self.x**2


if __name__ == "__main__":
    from account import Account

    from tenuto.launchers.selection import choose_launcher

    account = Account()
    chosen = choose_launcher("warm", int(sys.argv[2]))
    with experiment("ws", "squares", launcher=chosen):
        for x in range(int(sys.argv[1])):
            Square.C(x=x).submit()
    account.stop()
    chosen.close()
    account.report()
