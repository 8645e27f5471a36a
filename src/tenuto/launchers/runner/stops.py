"""What a payload learns when it is sent TERM: whose wish its end is (a person's, a command's), and why.
Loaded when that happens, or before by a task that will want to know: most are never asked to stop.
"""

from typing import NamedTuple

from tenuto.launchers.runner.assignment import Assignment
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace.attempt_files import read_stop


class StopWish(NamedTuple):
    """The wish, in the payload's words."""

    message: str
    is_timeout: bool


def asked(assignment: Assignment) -> StopWish | None:
    """What `stop.json` says; None if nobody wrote one for this attempt."""
    stop = read_stop(assignment.machine.files, assignment.paths, assignment.attempt)
    if stop is None:
        return None
    return StopWish(stop.message or stop.reason.meaning, stop.reason is JobFailureStatus.TIMEOUT)
