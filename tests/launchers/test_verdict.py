"""How an attempt ended, judged from what was seen: the table."""

from __future__ import annotations

import pytest

from tenuto.launchers.payload.report import Report
from tenuto.launchers.runner.verdict import Ending, PayloadStop, judge
from tenuto.lifecycle.states import JobFailureStatus

CANCEL = PayloadStop(JobFailureStatus.CANCELLED, "enough")
TIMEOUT = PayloadStop(JobFailureStatus.TIMEOUT, "too long")
DONE = Report(done=True)
BEGUN = Report(executes=True)
RAISED = Report(reason=JobFailureStatus.FAILED, message="ValueError: x")
NO_MEMORY = Report(reason=JobFailureStatus.MEMORY, message="MemoryError")
GAVE_UP = Report(reason=JobFailureStatus.TIMEOUT, message="GracefulTimeout: later")
F = JobFailureStatus


@pytest.mark.parametrize(
    ("ending", "reason", "message"),
    [
        (Ending(exit_code=0), None, None),
        (Ending(exit_code=0, report=DONE), None, None),
        (Ending(exit_code=0, report=DONE, stop=CANCEL, is_stop_late=True), None, None),
        (Ending(exit_code=0, stop=CANCEL, is_stop_late=True), None, None),
        (
            Ending(exit_code=0, report=DONE, stop=CANCEL),
            F.CANCELLED,
            "enough; it returned after that, which does not count",
        ),
        (Ending(exit_code=0, report=BEGUN, stop=CANCEL, is_stop_late=True), F.CANCELLED, "enough"),
        (Ending(exit_code=1, report=GAVE_UP, stop=TIMEOUT), F.TIMEOUT, "too long"),
        (Ending(exit_code=0, stop=CANCEL), F.CANCELLED, "enough"),
        (Ending(exit_code=0, stop=TIMEOUT), F.TIMEOUT, "too long"),
        (Ending(exit_code=1, report=RAISED), F.FAILED, "ValueError: x"),
        (Ending(exit_code=0, report=RAISED), F.FAILED, "ValueError: x"),
        (Ending(exit_code=1, report=RAISED, stop=CANCEL), F.CANCELLED, "enough"),
        (Ending(exit_code=1, report=NO_MEMORY), F.MEMORY, "MemoryError"),
        (Ending(exit_code=1, report=GAVE_UP), F.TIMEOUT, "GracefulTimeout: later"),
        (Ending(exit_code=3), F.FAILED, "exited with code 3"),
        (Ending(signal=11), F.FAILED, "was ended by SIGSEGV"),
        (Ending(signal=40), F.FAILED, "was ended by signal 40"),
        (Ending(signal=9, out_of_memory=True), F.MEMORY, "killed for want of memory (was ended by SIGKILL)"),
        (Ending(exit_code=1, report=RAISED, out_of_memory=True), F.MEMORY, None),
        (Ending(signal=9, stop=TIMEOUT, grace_over=True), F.TIMEOUT, None),
        (
            Ending(signal=11, report=DONE),
            F.FAILED,
            None,
        ),
        (Ending(exit_code=120, report=DONE), F.FAILED, None),
        (Ending(exit_code=0, out_of_memory=True), None, None),
        (Ending(exit_code=0, report=DONE, out_of_memory=True, over_limit=True), F.MEMORY, None),
    ],
)
def test_the_verdict(ending: Ending, reason: JobFailureStatus | None, message: str | None) -> None:
    verdict = judge(ending)
    assert verdict.reason is reason
    if message is not None:
        assert verdict.message == message
