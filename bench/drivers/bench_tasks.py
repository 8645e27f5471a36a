"""Owns the tasks that the workloads run."""

import time

from tenuto import Param, Task, progress


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


class Steps(Task):
    """Says twenty times a second how far it is."""

    seconds: Param[float]
    number: Param[int] = 0

    def execute(self):
        count = int(self.seconds * 20)
        for step in range(count):
            progress(step / count)
            time.sleep(0.05)
