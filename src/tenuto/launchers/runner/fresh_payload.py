"""The beginning of a payload in a fresh interpreter, which `fresh` started: it becomes the job.
It loads nothing that a task which ends well can do without, since every job waits for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenuto.launchers.runner.assignment import Assignment
from tenuto.launchers.runner.payload_setup import CANNOT_EXECUTE, live_no_longer_than, settle_in
from tenuto.launchers.runner.report_writer import ReportWriter
from tenuto.light import late

if TYPE_CHECKING:
    from tenuto.launchers.runner import failures, memory, python_task
else:
    failures = late("tenuto.launchers.runner.failures")
    memory = late("tenuto.launchers.runner.memory")
    python_task = late("tenuto.launchers.runner.python_task")


def be_payload(
    runner: str, report: str, descendants: str, memory_bytes: str, nonce: str, *arguments: str
) -> int:
    """Settle in and run the task; the exit code for this process."""
    live_no_longer_than(int(runner))
    assignment = Assignment.from_arguments(*arguments)
    reporter = ReportWriter(int(report))
    try:
        settle_in(
            assignment.directory,
            memory=memory.limit_in_force(int(memory_bytes), nonce) if memory_bytes else None,
            report=int(report),
            descendants=int(descendants),
        )
    except OSError as error:
        reporter.failed(*failures.not_begun(error))
        return CANNOT_EXECUTE
    return python_task.run_task(assignment, reporter)
