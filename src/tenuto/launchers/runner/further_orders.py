"""Further orders of a cluster's process: jobs of its submission that the cluster has not started yet.
A process whose job is done at once takes them from the end, where the cluster comes last. The claim decides.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tenuto.errors import TenutoError
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.kernel import close_all_but
from tenuto.launchers.manifest import ManifestUnreadable, Order, read_order, taken_path
from tenuto.launchers.runner import attempt
from tenuto.launchers.runner.claimed import Allocation, NotMine, complain, is_launched
from tenuto.launchers.runner.runner_protocol import ENDED, NO_MARKER, STALE, TAKEN
from tenuto.light import late, signal
from tenuto.workspace.attempt_files import read_launch

if TYPE_CHECKING:
    from tenuto.launchers.payload import process_end, python_task
else:
    process_end = late("tenuto.launchers.payload.process_end")
    python_task = late("tenuto.launchers.payload.python_task")

_MOST_MISSES = 8
"""Orders in a row that others have: the cluster has started nearly all of them."""


def run(allocation: Allocation, first: Order, index: int) -> int:
    """Run further orders after the first, whose index is given; returns as `attempt.run`, twice for each.

    The exit code is that of the last order. One that says that no marker was written would be believed of the
    orders before it, too, where the disk shows their markers late: it becomes 75, which says nothing certain.
    """
    runner = os.getpid()
    done = [first]
    while _is_free() and allocation.may_take_more() and (order := _next(allocation, index)) is not None:
        try:
            inherited = allocation.inherit(order)
        except (NotMine, OSError, TenutoError, ValueError) as why:
            complain(f"{allocation.manifest}, an order after {index},", why)
            return STALE
        if allocation.may_fork and _is_task(allocation, order):
            _load_what_tasks_load()
        earlier = tuple(one.paths.stop for one in done)
        exit_code = attempt.run(inherited._replace(earlier=earlier))
        if os.getpid() != runner:
            return exit_code
        if exit_code != ENDED:
            return STALE if exit_code in NO_MARKER else exit_code
        done.append(order)
    return ENDED


def _is_free() -> bool:
    """Give the last job's lock and logs back; False if anything of it is left, or this process is to end."""
    close_all_but({0, 1, 2})
    if signal.sigpending() & (TAKEN - {signal.SIGCHLD}):
        return False
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def _is_task(allocation: Allocation, order: Order) -> bool:
    launch = read_launch(allocation.machine.files, order.paths)
    return launch is not None and Instructions.of(launch).program is None


def _load_what_tasks_load() -> None:
    """Load Tenuto here, once: each payload that is forked from here would pay for it again."""
    _ = process_end.leave
    python_task.complete_package()


def _next(allocation: Allocation, own: int) -> Order | None:
    """The last order behind the own one that no process has, with its claim made; None if there is none."""
    files = allocation.machine.files
    try:
        taken = files.open_append(taken_path(allocation.manifest))
        try:
            for _ in range(_MOST_MISSES):
                taken.append(b".")
                index = allocation.header.orders - taken.size()
                if index <= own:
                    return None
                _, order = read_order(files, allocation.manifest, index)
                if is_launched(allocation.machine, order) and allocation.claim(order):
                    return order
        finally:
            taken.close()
    except (OSError, ManifestUnreadable):
        return None  # its submission was cleared away, or the disk is full
    return None
