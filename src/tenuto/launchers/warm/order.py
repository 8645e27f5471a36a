"""How a process that is to be a runner takes on the job of an order: its variables, its log, its locks.
Starts nothing; `attempt` is the runner itself.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tenuto.launchers.runner import attempt  # noqa: F401  or each runner would load it after its order
from tenuto.launchers.runner.runner_protocol import Inherited
from tenuto.launchers.warm.wire import Received
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.modes import file_mode
from tenuto.workspace.ports import Machine

if TYPE_CHECKING:
    from tenuto.launchers.payload.assignment import Preloaded
    from tenuto.launchers.runner.runner_protocol import PayloadToBe

_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def take_on(
    order: Received,
    python: str,
    machine: Machine,
    preloaded: Preloaded | None = None,
    spare: PayloadToBe | None = None,
) -> Inherited:
    """Put on what the launcher's environment is by now, and the job's log; what the runner inherits."""
    apply_variables(order.content["environment"])
    paths = JobPaths(order.content["directory"], order.content["script_name"])
    with suppress(OSError):  # as soon as the runner opens its logs, it will say so
        log = os.open(paths.err, _LOG, file_mode(paths.err))  # where a runner that cannot begin complains
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    lock, descendants, ready, *tokens = order.descriptors
    return Inherited(
        paths.directory,
        paths.script_name,
        order.content["nonce"],
        python,
        lock,
        descendants,
        ready,
        tuple(tokens),
        machine,
        preloaded,
        order.content["why_fresh"],
        spare=spare,
    )


def apply_variables(changes: dict[str, str | None]) -> None:
    """Set variables of this process, and remove those without a value."""
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
