"""Owns the oracle as a Python task, for payloads that have a fresh interpreter to themselves."""

from __future__ import annotations

import os

from tenuto import Param, Task


class TaskOracle(Task):
    """Becomes the oracle, so that nothing of what is judged helps to judge."""

    arguments: Param[list[str]]

    def execute(self) -> None:
        os.execvp(self.arguments[0], self.arguments)
