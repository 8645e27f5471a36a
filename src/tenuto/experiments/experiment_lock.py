"""The lock of an experiment, of which one run at a time is open, and the process that has it.
Waits no longer than its caller says.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tenuto.errors import ExperimentLocked, WorkspaceError
from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.layout import Layout
from tenuto.workspace.locks import keep_from_children
from tenuto.workspace.ports import LockHandle, Machine
from tenuto.workspace.records import Fields

_LIMIT = 4096


def lock_experiment(machine: Machine, layout: Layout, experiment_id: str) -> LockHandle:
    """Takes the lock of an experiment; `ExperimentLocked` names the process that has it."""
    keep_from_children()
    path = layout.experiment_lock(experiment_id)
    machine.files.make_directory(layout.experiment(experiment_id))
    lock = machine.locks.try_lock(path)
    if lock is None:
        raise ExperimentLocked(
            f"experiment {experiment_id!r} is already running ({_holder(machine, path)}): "
            f"wait for it, stop it, or choose another name"
        )
    own = machine.processes.own()
    since = machine.clock.now().isoformat(timespec="seconds")
    try:
        machine.files.write(path, to_json({"host": own.host, "pid": own.pid, "since": since}))
    except OSError:
        lock.close()  # nobody has the handle, so nobody else would
        raise
    return lock


def _holder(machine: Machine, path: str) -> str:
    try:
        holder = Fields(from_json(machine.files.read(path, _LIMIT)))
        return f"by process {holder.integer('pid')} on {holder.text('host')} since {holder.text('since')}"
    except (OSError, WorkspaceError, ValueError):
        return "by another process"


def wait_for_lock(
    machine: Machine,
    layout: Layout,
    experiment_id: str,
    timeout_s: float,
    say: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
) -> LockHandle:
    """Like `lock_experiment`, but waits up to `timeout_s` for the run that has it."""
    end = machine.clock.monotonic() + timeout_s
    said = False
    while True:
        try:
            return lock_experiment(machine, layout, experiment_id)
        except ExperimentLocked as error:
            if machine.clock.monotonic() >= end:
                raise
            if not said:
                say(f"waiting: {error}")
                said = True
            pause(0.2)
