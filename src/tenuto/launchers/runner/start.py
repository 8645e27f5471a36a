"""What the interpreter that begins in `__main__` is to be, by its arguments; it ends with that.

For a runner: DIRECTORY SCRIPT_NAME NONCE PYTHON, then descriptors: LOCK DESCENDANTS READY [TOKEN...];
for a runner that a cluster starts: --claim PYTHON MANIFEST INDEX TIME_S (see `claimed`);
for a parent that forks runners: --warm SOCKET PID, the pid being that of the launcher;
for a payload in a fresh interpreter: --payload and what `begin` says;
for a runner that waits for its job: --spare SOCKET PID, the pid being that of the launcher;
for the payload beside it: --spare-payload SOCKET PID, the pid being that of the runner.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from tenuto.light import import_module

_ATTEMPT_MODULE = "tenuto.launchers.runner.attempt"
_BEGIN_MODULE = "tenuto.launchers.runner.begin"
_CLAIMED_MODULE = "tenuto.launchers.runner.claimed"
_LEAVING_MODULE = "tenuto.launchers.runner.leaving"
_SPARE_PAYLOAD_MODULE = "tenuto.launchers.warm.spare_payload"
_SPARE_RUNNER_MODULE = "tenuto.launchers.warm.spare_runner"
_SERVING_MODULE = "tenuto.launchers.warm.serving"


def start(kind: str, *arguments: str) -> NoReturn:
    if kind == "--payload":
        exit_code = import_module(_BEGIN_MODULE).be_payload(*arguments)
        import_module(_LEAVING_MODULE).leave(exit_code, fully=True)
    if kind == "--spare-payload":
        exit_code = import_module(_SPARE_PAYLOAD_MODULE).be_spare(*arguments)
        import_module(_LEAVING_MODULE).leave(exit_code, fully=True)
    attempt = import_module(_ATTEMPT_MODULE)
    if kind == "--warm":
        parent = import_module(_SERVING_MODULE).Parent(*map(int, arguments))
        inherited = parent.serve()  # returns in each child, which would else begin by taking the parent apart
        if inherited is None:
            os._exit(0)
    elif kind == "--spare":
        inherited = import_module(_SPARE_RUNNER_MODULE).await_order(*map(int, arguments))
        if inherited is None:
            os._exit(0)
    elif kind == "--claim":
        inherited = import_module(_CLAIMED_MODULE).inherit(*arguments)
        if inherited is None:
            os._exit(attempt.STALE)
    else:
        script_name, nonce, python, *descriptors = arguments
        lock, descendants, ready, *tokens = map(int, descriptors)
        inherited = attempt.Inherited(
            kind, script_name, nonce, python, lock, descendants, ready, tuple(tokens)
        )
    runner = os.getpid()
    exit_code = attempt.run(inherited)
    if os.getpid() == runner:
        os._exit(exit_code)  # all is written, and to tear down an interpreter takes as long as to start one
    if inherited.preloaded is not None:
        inherited.preloaded.leave(exit_code)
    sys.exit(exit_code)
