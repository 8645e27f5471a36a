"""Owns what a reader under test is: real files to begin with, and one call that reads some bytes.
The call raises `Wrong` if the answer is one that garbage must not get. The readers are in `readers_of_*`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from proof.fuzz.configs import Canary
from tenuto.launchers.instructions import Command, Instructions
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.records import (
    LaunchRecord,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SLOWEST_S = 2.0
"""An input of a few kilobytes that takes longer makes a reader hang."""
NONCE = "0123456789abcdef"
CANARY = "tenuto_fuzz_canary"
"""A module on the import path that the inputs name and no reader may import."""
ELSEWHERE = "tenuto_fuzz_elsewhere"
"""A module in a file that no import path leads to; it declares a class as stored configs have it."""
IMPORTED = "a module that a file named was imported"


class Wrong(Exception):
    """Garbage got an answer that it must not get."""


class Target(NamedTuple):
    """A reader."""

    name: str
    reads: str
    seeds: Callable[[], list[bytes]]
    call: Callable[[bytes], None]
    allowed: tuple[type[Exception], ...] = ()
    """What it may raise; most readers promise to raise nothing."""


class Bench:
    """A workspace in memory, in which one file at a time is replaced by garbage."""

    def __init__(self, parent: str | None = None) -> None:
        fast = parent or ("/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.root = tempfile.mkdtemp(prefix="tenuto-fuzz-", dir=fast)
        self.machine = this_machine()
        self.files = self.machine.files
        self.layout = Layout(self.root)
        self.job = self.layout.job("a.Task", "ab12")
        self.run = self.layout.run("sweep", "20260101_000000")
        self.files.make_directory(self.job.private)
        self.files.make_directory(self.run.directory)
        self.files.make_directory(self.run.events)
        self.files.write(self.job.launch, self.launch().encode())
        self._canary = f"{self.root}/canary"
        self.files.make_directory(self._canary)
        self.files.write(f"{self._canary}/{CANARY}.py", b"")
        self.elsewhere = f"{self.root}/{ELSEWHERE}.py"
        self.files.write(self.elsewhere, b"from tenuto import Config\nclass Leaf(Config):\n    pass\n")
        sys.path.append(self._canary)

    def launch(self) -> LaunchRecord:
        instructions = Instructions("a.Task", "ab12", command=Command(("true",), {})).encode()
        return LaunchRecord(1, NONCE, "spawn", "ab12", "host", NOW, instructions=instructions)

    def close(self) -> None:
        sys.path.remove(self._canary)
        forget_imports()
        shutil.rmtree(self.root, ignore_errors=True)


def forget_imports() -> None:
    """As if no module that the inputs name had been imported."""
    sys.modules.pop(CANARY, None)
    sys.modules.pop(ELSEWHERE, None)


def play(target: Target, data: bytes) -> None:
    """One input to one reader. Whatever comes out, other than what is allowed, is a finding."""
    began = time.process_time()
    try:
        target.call(data)
    except Wrong:
        raise
    except target.allowed:
        pass
    if time.process_time() - began > SLOWEST_S:
        raise Wrong(f"an input of {len(data)} bytes took longer than {SLOWEST_S:g} s of CPU time")
    if CANARY in sys.modules or ELSEWHERE in sys.modules or Canary.is_made:
        forget_imports()
        raise Wrong(IMPORTED)
