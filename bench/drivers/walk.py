"""Owns the drivers of the walks: jobs of one kind, one after the other; from the second on, nothing is new.

walk.py experiment|search, in an empty directory, with bench/drivers/walk on the path
"""

import sys

from sitecustomize import mark

from tenuto import Param, Task


class Step(Task):
    """Says when it runs."""

    number: Param[int]

    def execute(self):
        mark("payload")
        return float(self.number)


def experiment_walk():
    from tenuto import experiment

    with experiment("ws", "walk") as xp:
        for number in range(3):
            mark("submit")
            Step.C(number=number).submit()
            xp.wait()
            mark("done")


def search_walk():
    from tenuto.search import Evolution, Integer, RandomSearch

    space = {"number": Integer(0, 10**9)}
    caps = {"max_total_jobs": 4, "max_unfinished_jobs": 1}
    Evolution("walk", Step, space=space, sampler=RandomSearch(), workdir="ws", **caps).run(slots=1)


if __name__ == "__main__":
    {"experiment": experiment_walk, "search": search_walk}[sys.argv[1]]()
