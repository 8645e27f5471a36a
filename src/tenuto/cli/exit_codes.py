"""The exit codes of the command line, in one place; docs/cli.md explains them."""

from __future__ import annotations

from tenuto.errors import DataInUse, ExperimentLocked, FailedExperiment, NotFound, TenutoError, WorkerDied

OK = 0
FAILED = 1
"""Jobs failed, or something that was asked for could not be done to all of them."""
USAGE = 2
NOT_FOUND = 3
LOCKED = 4
INTERRUPTED = 5
TIME_UP = 6
"""Jobs had not ended when the time was up."""


def exit_code(error: TenutoError) -> int:
    """The exit code for an error that ends a command."""
    if isinstance(error, NotFound):
        return NOT_FOUND
    if isinstance(error, ExperimentLocked | DataInUse):
        return LOCKED
    return FAILED if isinstance(error, FailedExperiment | WorkerDied) else USAGE
