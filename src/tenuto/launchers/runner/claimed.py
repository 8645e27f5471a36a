"""A runner that a cluster starts: finds its order in a manifest, makes the claim, takes the locks, runs it.
Whatever is not as it should be, it complains, exits with 75 and has touched nothing but the claim.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tenuto.errors import TenutoError
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.manifest import Header, ManifestUnreadable, Order, read_order, setup_failure
from tenuto.launchers.runner import attempt
from tenuto.launchers.runner.runner_protocol import ENDED, SPARE_S, STALE, Inherited
from tenuto.light import NamedTuple, late
from tenuto.workspace.attempt_files import read_launch
from tenuto.workspace.claims import Claim, Claimer, claim, claimer, is_claimed
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, LockHandle, Machine

if TYPE_CHECKING:
    from tenuto.launchers.runner import further_orders
else:
    further_orders = late("tenuto.launchers.runner.further_orders")

DISK_PATIENCE_S = 60.0
"""How long the disk of this host may take to show files written elsewhere."""
LOCK_PATIENCE_S = 60.0
TAKEN = "another runner has made the claim, or a scheduler has given the attempt up"
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
_UNKNOWN = "-"
_STANDARD_STREAMS = 3
_MOST_OF_LIMIT = 0.01
"""The share of a time limit that may have passed when a further order begins."""


class NotMine(Exception):
    """Another runner, or a scheduler, has the attempt; or it cannot be begun here."""


def run(python: str, manifest: str, index: str, time_s: str, failed_setup: str | None = None) -> int:
    """Run the order of an index, and perhaps further ones; returns as `attempt.run`, twice for each order.

    `time_s`: how long each job may run, or `-` if that is not known. `failed_setup`: given if the setup
    before failed, and where its output lies: the attempt is marked so.
    """
    may_fork = _is_forkable()
    machine = this_machine()
    began = machine.clock.monotonic()
    try:
        header, order = _order(machine, manifest, int(index))
        limit_s = None if time_s == _UNKNOWN else float(time_s)
        allocation = Allocation(machine, python, manifest, header, began, limit_s, may_fork)
        await_launch(machine, order)
        if not allocation.claim(order):
            if allocation.is_run_elsewhere(order):
                return ENDED
            raise NotMine(TAKEN)
        inherited = allocation.inherit(order)
        if failed_setup is not None:
            inherited = inherited._replace(failed_setup=setup_failure(machine.files, failed_setup))
    except (NotMine, OSError, TenutoError, ValueError) as why:
        complain(f"{manifest} {index}", why)
        return STALE
    runner = os.getpid()
    exit_code = attempt.run(inherited)
    if os.getpid() == runner and exit_code == ENDED and allocation.may_take_more():
        return further_orders.run(allocation, order, int(index))
    return exit_code


def complain(what: str, why: Exception) -> None:
    """Say on the standard error of the cluster's job that an order is not run."""
    os.write(2, f"tenuto: {what} on {os.uname().nodename} runs nothing: {why}\n".encode())


class Allocation(NamedTuple):
    """What a cluster gave this process, and what all orders that it runs have in common."""

    machine: Machine
    python: str
    manifest: str
    header: Header
    began: float
    """When it started, by the monotonic clock."""
    limit_s: float | None
    """How long each job may run; None if that is not known. The cluster gives a little more."""
    may_fork: bool

    def claim(self, order: Order) -> bool:
        """Make the claim on an order; False if it was made before."""
        return claim(self.machine, order.paths, order.nonce, Claimer.RUNNER, self.header.own_job)

    def is_run_elsewhere(self, order: Order) -> bool:
        """True if the runner of another job made the claim: this one has done its part, and did not fail."""
        made = claimer(self.machine, order.paths, order.nonce)
        return (
            isinstance(made, Claim)
            and made.by is Claimer.RUNNER
            and made.job not in (None, self.header.own_job)
        )

    def inherit(self, order: Order) -> Inherited:
        """What a local launcher would have passed on for an order whose claim was made; else `NotMine`."""
        if not is_launched(self.machine, order):
            raise NotMine("the attempt was given up meanwhile")
        lock = locked(self.machine, order, RUNNER_BYTE)
        descendants = locked(self.machine, order, DESCENDANTS_BYTE)
        return Inherited(
            order.directory,
            order.script_name,
            order.nonce,
            self.python,
            lock.fileno(),
            descendants.fileno(),
            None,
            machine=self.machine,
            time_s=None if self.limit_s is None else self.limit_s - max(self._age_s() - SPARE_S, 0.0),
            beat_s=self.header.beat_s,
            signals=self.header.signals,
            is_forkable=self.may_fork,
        )

    def may_take_more(self) -> bool:
        """True while a further order would have nearly all the time that the cluster gives to each."""
        most_s = self.header.reuse_s
        if self.limit_s is not None:
            most_s = min(most_s, self.limit_s * _MOST_OF_LIMIT)
        return self._age_s() < most_s

    def _age_s(self) -> float:
        return self.machine.clock.monotonic() - self.began


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


def await_launch(machine: Machine, order: Order) -> None:
    """Return once the disk of this host shows what the attempt needs; `NotMine` if it is another runner's."""
    for _ in _tries(machine, DISK_PATIENCE_S):
        if is_launched(machine, order):
            return
        if is_claimed(machine, order.paths, order.nonce):
            raise NotMine(TAKEN)  # and another attempt has followed it
    raise NotMine(f"{order.paths.launch} does not name its attempt {order.nonce}")


def is_launched(machine: Machine, order: Order) -> bool:
    """Whether the attempt is the current one, and the disk shows what its payload will read."""
    paths = order.paths
    try:
        launch = read_launch(machine.files, paths)
        if launch is None or launch.nonce != order.nonce:
            return False
        has_command = Instructions.of(launch).program is not None
        return has_command or machine.files.stat(paths.params) is not None
    except (OSError, ValueError, TypeError, KeyError):
        return False


def locked(machine: Machine, order: Order, byte: int) -> LockHandle:
    """Byte 0 or 1 of the job's lock: a scheduler that looks at the job may have it for a moment."""
    path = order.paths.lock
    for _ in _tries(machine, LOCK_PATIENCE_S):
        lock = machine.locks.try_lock(path, byte)
        if lock is not None:
            return lock
    raise NotMine(f"byte {byte} of {path} is held by {machine.locks.holders(path, byte)}")


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
