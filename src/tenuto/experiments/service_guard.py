"""The process between an experiment and a service that is a program: the two end together.
Runs in an interpreter of its own; it ends the program when it is told to, or when the experiment is gone.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import NoReturn

from tenuto.launchers.kernel import become_subreaper, die_with_parent
from tenuto.launchers.leftovers import descendants, kill_descendants

NOT_RUN = 127
_SWEEP_S = 2.0


def main() -> NoReturn:
    """Arguments: PID of the experiment, seconds of GRACE, COMMAND..."""
    parent, grace_s, *command = sys.argv[1:]
    os._exit(guard(int(parent), float(grace_s), command))


def guard(parent: int, grace_s: float, command: list[str]) -> int:
    """Runs a program until it ends, we are told to end it, or the parent is gone; its exit code."""
    become_subreaper()
    # By pidfd, and not by a pipe: a child that the experiment forked would keep the pipe open.
    experiment = os.pidfd_open(parent)
    if os.getppid() != parent:
        return NOT_RUN
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    signal.signal(signal.SIGTERM, lambda *_: None)
    child = os.fork()
    if child == 0:
        _run(command)
    program = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in (experiment, told, program):
        poll.register(descriptor, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll()}
    if program not in ready:
        _end(child, program, grace_s)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _sweep()
    return code if code >= 0 else 128 - code


def _run(command: list[str]) -> NoReturn:
    os.setpgid(0, 0)
    die_with_parent(signal.SIGKILL)  # should the guard be killed
    for number in (signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"tenuto: {command[0]} cannot be run: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201
        os._exit(NOT_RUN)


def _end(child: int, program: int, grace_s: float) -> None:
    _signal_group(child, signal.SIGTERM)
    poll = select.poll()
    poll.register(program, select.POLLIN)
    if not poll.poll(grace_s * 1000):
        _signal_group(child, signal.SIGKILL)


def _signal_group(child: int, number: int) -> None:
    try:
        os.killpg(child, number)
    except ProcessLookupError:  # it has not made its group yet
        os.kill(child, number)


def _sweep() -> None:
    """Ends what the program started and left; all of it is below us, for we adopt orphans."""
    end = time.monotonic() + _SWEEP_S
    while descendants() and time.monotonic() < end:
        kill_descendants()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)
