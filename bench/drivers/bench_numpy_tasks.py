"""Owns the task of W1b: its module imports numpy."""

import numpy  # noqa: F401

from tenuto import Param, Task


class Work(Task):
    """Does nothing, with numpy."""

    number: Param[int]

    def execute(self):
        return None
