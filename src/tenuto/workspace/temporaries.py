"""Temporary files that a killed writer left beside the files it was about to replace.
Leaves alone what a process may still be writing.
"""

from __future__ import annotations

from tenuto.workspace.ports import Machine, writer_of


def clear_forsaken(machine: Machine, directory: str) -> int:
    """Remove the temporary files in a directory whose writer is no process of this machine; how many."""
    try:
        names = machine.files.list(directory)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    pids = {name: pid for name in names if (pid := writer_of(name)) is not None}
    forsaken = [name for name, pid in pids.items() if machine.processes.identify(pid) is None]
    return sum(machine.files.remove(f"{directory}/{name}") for name in forsaken)
