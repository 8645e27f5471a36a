"""How an attempt ended, judged from the evidence: one pure function.
Reads nothing; the supervisor collects, and writes the marker.
"""

import errno

from tenuto.launchers.payload.report import Report
from tenuto.launchers.runner.runner_protocol import signal_name
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.light import NamedTuple, signal

PASSING = frozenset((errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT))
"""Errors that a machine recovers from: an order refused with one of them is tried again."""
# What a shell answers when a program it ran was killed.
_KILLED_IN_SHELL = 128 + signal.SIGKILL


class PayloadStop(NamedTuple):
    """Why the supervisor ends the payload."""

    reason: JobFailureStatus
    message: str


class Ending(NamedTuple):
    """Everything seen of a payload that is no more."""

    exit_code: int | None = None
    signal: int | None = None
    report: Report = Report()
    stop: PayloadStop | None = None
    is_stop_late: bool = False
    """It had ended, or had reported its result, before it was asked to stop."""
    grace_over: bool = False
    """It was asked to stop, did not, and was killed."""
    out_of_memory: bool = False
    """The kernel killed something of it for want of memory."""
    over_limit: bool = False
    """The kernel did so to keep to the memory limit of the job, however its process ended after that."""
    given_up: bool = False
    """Another attempt was opened meanwhile: nothing of this one counts."""
    unexplained: bool = False
    """A cluster ended it, and did not say why."""


class PayloadVerdict(NamedTuple):
    """What the marker will say; done if there is no reason."""

    reason: JobFailureStatus | None = None
    message: str | None = None


def judge(ending: Ending) -> PayloadVerdict:
    """The verdict on a payload."""
    said = ending.report
    # A good end after a request to stop says nothing: trainers and commands catch TERM, save half of their
    # work and exit with 0. So the runner's own order of events decides, never how the process ended.
    is_undisturbed = (ending.stop is None or ending.is_stop_late) and not ending.over_limit
    is_told = said.done or not said.executes
    if ending.exit_code == 0 and is_told and is_undisturbed and said.reason is None:
        return PayloadVerdict(message=said.message)
    if ending.stop is not None:
        message = ending.stop.message
        if ending.exit_code == 0 and said.done:
            message += "; it returned after that, which does not count"
        if ending.grace_over:
            message += "; it did not stop when asked and was killed"
        return PayloadVerdict(ending.stop.reason, message)
    if ending.out_of_memory:
        return PayloadVerdict(JobFailureStatus.MEMORY, f"killed for want of memory ({_how(ending)})")
    if said.reason is not None:
        return PayloadVerdict(said.reason, said.message)
    if said.done:
        return PayloadVerdict(
            JobFailureStatus.FAILED, f"the task returned, but its process then {_how(ending)}"
        )
    if ending.exit_code == 0:
        return PayloadVerdict(
            JobFailureStatus.FAILED, "its process ended before execute() returned, as by os._exit(0)"
        )
    return PayloadVerdict(JobFailureStatus.FAILED, _how(ending))


def looks_killed(exit_code: int | None, number: int | None) -> bool:
    """Whether the payload, or what a shell ran for it, was ended by KILL."""
    return number == signal.SIGKILL or exit_code == _KILLED_IN_SHELL


def _how(ending: Ending) -> str:
    if ending.signal is None:
        return f"exited with code {ending.exit_code}"
    try:
        return f"was ended by {signal_name(ending.signal)}"
    except ValueError:  # a real-time signal has a number only
        return f"was ended by signal {ending.signal}"
