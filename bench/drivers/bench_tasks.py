"""Owns the tasks that the workloads run."""

import time

from tenuto import Param, Task


class Work(Task):
    """Does nothing."""

    number: Param[int]

    def execute(self):
        return None


class Scored(Task):
    """Does nothing, and is worth something."""

    number: Param[int]

    def execute(self):
        return 1.0


class Link(Task):
    """Does nothing, after another."""

    number: Param[int]
    before: Param["Link | None"] = None

    def execute(self):
        return None


class Hold(Task):
    """Sleeps until it is ended."""

    number: Param[int]

    def execute(self):
        time.sleep(3600)


class Behind(Task):
    """Waits for one that sleeps."""

    held: Param[Hold]
    number: Param[int]

    def execute(self):
        return None
