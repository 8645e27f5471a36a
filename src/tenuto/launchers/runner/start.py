"""What the interpreter that begins in `__main__` is to be, by its arguments; it ends with that.

For a runner: DIRECTORY SCRIPT_NAME NONCE PYTHON, then descriptors: LOCK DESCENDANTS READY [TOKEN...];
for a runner that a cluster starts: --claim PYTHON MANIFEST INDEX TIME_S (see `claimed`);
for a parent that forks runners: --warm SOCKET PID, the pid being that of the launcher;
for a payload in a fresh interpreter: --payload and what `be_payload` takes;
for a runner that waits for its job: --spare SOCKET PID, the pid being that of the launcher;
for the payload beside it: --spare-payload SOCKET PID, the pid being that of the runner.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from tenuto.light import late

if TYPE_CHECKING:
    import signal

    from tenuto.launchers import kernel
    from tenuto.launchers.payload import assignment, process_end
    from tenuto.launchers.runner import attempt, claimed, runner_protocol
    from tenuto.launchers.warm import parent_process, spare_payload, spare_runner
else:
    signal = late("signal")
    kernel = late("tenuto.launchers.kernel")
    attempt = late("tenuto.launchers.runner.attempt")
    claimed = late("tenuto.launchers.runner.claimed")
    runner_protocol = late("tenuto.launchers.runner.runner_protocol")
    assignment = late("tenuto.launchers.payload.assignment")
    process_end = late("tenuto.launchers.payload.process_end")
    parent_process = late("tenuto.launchers.warm.parent_process")
    spare_payload = late("tenuto.launchers.warm.spare_payload")
    spare_runner = late("tenuto.launchers.warm.spare_runner")


def start(kind: str, *arguments: str) -> NoReturn:
    if kind == "--payload":
        exit_code = assignment.be_payload(*arguments)
        process_end.leave(exit_code, fully=True)
    if kind == "--spare-payload":
        process_end.leave(spare_payload.be_spare(*arguments))
    if kind in ("--claim", "--kept-claim"):
        _look_in_standard_library()
        if kind == "--kept-claim":  # the batch system kills its shell, and not the session of its own
            kernel.die_with_parent(signal.SIGKILL)
        _end(os.getpid(), claimed.run, *arguments)
    if kind == "--warm":
        parent = parent_process.Parent(*map(int, arguments))
        inherited = parent.serve()  # returns in each child, which would else begin by taking the parent apart
        if inherited is None:
            os._exit(0)
    elif kind == "--spare":
        inherited = spare_runner.await_order(*map(int, arguments))
        if inherited is None:
            os._exit(0)
    else:
        script_name, nonce, python, *descriptors = arguments
        lock, descendants, ready, *tokens = map(int, descriptors)
        inherited = runner_protocol.Inherited(
            kind, script_name, nonce, python, lock, descendants, ready, tuple(tokens)
        )
    _end(os.getpid(), attempt.run, inherited)


def _end(runner: int, run: Callable[..., int], *arguments: Any) -> NoReturn:
    """Run what returns twice, in the runner and in its payload, and end each as it ought to."""
    exit_code = run(*arguments)
    if os.getpid() == runner:
        os._exit(exit_code)  # all is written, and to tear down an interpreter takes as long as to start one
    process_end.leave(exit_code)


def _look_in_standard_library() -> None:
    """Have a runner import from the standard library alone; its payload sets the path of its job."""
    standard = os.path.dirname(os.__file__)
    sys.path[:] = [place for place in sys.path if place.startswith(standard)]
