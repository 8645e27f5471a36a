"""A runner that a cluster starts: finds its attempt in a manifest, makes the claim, takes the locks.
Whatever is not as it should be, it complains, exits with 75 and has touched nothing but the claim.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

from tenuto.errors import TenutoError
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.manifest import Header, ManifestUnreadable, Order, read_order
from tenuto.launchers.runner.terms import Inherited
from tenuto.workspace.attempt_files import read_launch
from tenuto.workspace.claims import Claimer, claim
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, LockHandle, Machine

DISK_PATIENCE_S = 60.0
"""How long the disk of this host may take to show what was written elsewhere."""
LOCK_PATIENCE_S = 60.0
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
_UNKNOWN = "-"
_STANDARD_STREAMS = 3


class NotMine(Exception):
    """Another runner, or a scheduler, has the attempt; or it cannot be begun here."""


def inherit(python: str, manifest: str, index: str, time_s: str) -> Inherited | None:
    """What a local launcher would have passed on; None if nothing is to be run, which was said then.

    `time_s`: how long the cluster lets this process run, or `-` if that is not known.
    """
    may_fork = _is_forkable()
    machine = this_machine()
    began = machine.clock.monotonic()
    try:
        header, order = _order(machine, manifest, int(index))
        paths = JobPaths(order.directory, order.script_name)
        _await_launch(machine, paths, order)
        if not claim(machine, paths, order.nonce, Claimer.RUNNER, _job(header)):
            raise NotMine("another runner has made the claim, or a scheduler has given the attempt up")
        if not _is_launched(machine, paths, order):
            raise NotMine("the attempt was given up meanwhile")
        lock = _locked(machine, paths, RUNNER_BYTE)
        descendants = _locked(machine, paths, DESCENDANTS_BYTE)
    except (NotMine, OSError, TenutoError, ValueError) as why:
        os.write(2, f"tenuto: {manifest} {index} on {os.uname().nodename} runs nothing: {why}\n".encode())
        return None
    passed_s = machine.clock.monotonic() - began
    return Inherited(
        order.directory,
        order.script_name,
        order.nonce,
        python,
        lock.fileno(),
        descendants.fileno(),
        None,
        machine=machine,
        time_s=None if time_s == _UNKNOWN else max(float(time_s) - passed_s, 0.0),
        beat_s=header.beat_s,
        bell=header.bell,
        is_forkable=may_fork,
    )


def _is_forkable() -> bool:
    """True if a child of this process is as good as a fresh interpreter of the environment.

    To be asked before anything is opened: what `site` started or opened must not be shared by a child.
    """
    tasks, descriptors = os.listdir("/proc/self/task"), os.listdir("/proc/self/fd")  # and the one that lists
    return not sys.flags.no_site and len(tasks) == 1 and len(descriptors) <= _STANDARD_STREAMS + 1


def _order(machine: Machine, manifest: str, index: int) -> tuple[Header, Order]:
    problem: Exception | None = None
    for _ in _tries(machine, DISK_PATIENCE_S):
        try:
            return read_order(machine.files, manifest, index)
        except (OSError, ManifestUnreadable) as error:  # the disk may show it late
            problem = error
    raise NotMine(f"its manifest cannot be read: {problem}")


def _await_launch(machine: Machine, paths: JobPaths, order: Order) -> None:
    for _ in _tries(machine, DISK_PATIENCE_S):
        if _is_launched(machine, paths, order):
            return
    raise NotMine(f"{paths.launch} does not name its attempt {order.nonce}")


def _is_launched(machine: Machine, paths: JobPaths, order: Order) -> bool:
    """Whether the attempt is the current one, and the disk shows what its payload will read."""
    try:
        launch = read_launch(machine.files, paths)
        if launch is None or launch.nonce != order.nonce:
            return False
        has_command = Instructions.of(launch).program is not None
        return has_command or machine.files.stat(paths.params) is not None
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _job(header: Header) -> str | None:
    return "_".join(filter(None, (os.environ.get(name) for name in header.job))) or None


def _locked(machine: Machine, paths: JobPaths, byte: int) -> LockHandle:
    """Byte 0 or 1 of the job's lock: a scheduler that looks at the job may have it for a moment."""
    for _ in _tries(machine, LOCK_PATIENCE_S):
        lock = machine.locks.try_lock(paths.lock, byte)
        if lock is not None:
            return lock
    raise NotMine(f"byte {byte} of {paths.lock} is held by {machine.locks.holders(paths.lock, byte)}")


def _tries(machine: Machine, patience_s: float) -> Iterator[None]:
    """Moments at which to look again, further and further apart, until the patience is over."""
    give_up = machine.clock.monotonic() + patience_s
    pause_s = _FIRST_PAUSE_S
    while True:
        yield
        if machine.clock.monotonic() + pause_s > give_up:
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
