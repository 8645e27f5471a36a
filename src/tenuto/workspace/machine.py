"""The real adapters, put together.
Holds no logic: a caller that wants another machine builds a `Machine` of its own.
"""

from __future__ import annotations

from tenuto.clock import SystemClock, SystemRandomness
from tenuto.workspace.files import DiskFiles
from tenuto.workspace.locks import system_locks
from tenuto.workspace.ports import Machine
from tenuto.workspace.processes import SystemProcesses


def this_machine() -> Machine:
    return Machine(DiskFiles(), system_locks(), SystemProcesses(), SystemClock(), SystemRandomness())
