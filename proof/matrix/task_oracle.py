"""Owns the oracle as a Python task, for payloads that have a fresh interpreter to themselves."""

from __future__ import annotations

from tenuto import CommandTask


class TaskOracle(CommandTask):
    """Becomes the oracle, so that nothing of what is judged helps to judge."""
