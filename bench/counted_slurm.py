"""Owns the private Slurm of W12: shims before its commands count the calls.
Measures no time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from tests.parts.slurm import PrivateSlurm
from tests.parts.slurm_configuration import Shape

COMMANDS = ("sbatch", "squeue", "scancel", "sacct")


class CountedSlurm:
    """A cluster, and how often its commands were called."""

    def __init__(self, shape: Shape) -> None:
        self.cluster = PrivateSlurm(shape)
        self._shims = Path(tempfile.mkdtemp(prefix="bench-slurm-"))
        self._calls = self._shims / "calls"
        for name in COMMANDS:
            real = shutil.which(name)
            shim = self._shims / name
            shim.write_text(f'#!/bin/sh\necho {name} >> {self._calls}\nexec {real} "$@"\n')
            shim.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the processes that use the cluster."""
        return {**self.cluster.environment, "PATH": f"{self._shims}:{os.environ['PATH']}"}

    def taken_calls(self) -> Counter[str]:
        """The calls since this was last asked."""
        text = self._calls.read_text() if self._calls.exists() else ""
        self._calls.unlink(missing_ok=True)
        return Counter(text.split())

    def close(self) -> None:
        """Ends the cluster; nothing of it is left."""
        self.cluster.close()
        shutil.rmtree(self._shims, ignore_errors=True)


def calls_text(calls: Counter[str]) -> str:
    """The calls of each command, for a table."""
    return ", ".join(f"{name} {calls[name]}" for name in COMMANDS)
