"""The beginning of a payload in a fresh interpreter, which `fresh` started: it becomes the job.
It loads nothing that a task which ends well can do without, since every job waits for that.
"""

from __future__ import annotations

from tenuto.launchers.runner.assignment import Assignment
from tenuto.launchers.runner.reporter import Reporter
from tenuto.launchers.runner.settling import CANNOT_EXECUTE, live_no_longer_than, settle_in
from tenuto.light import import_module

_FAILURES_MODULE = "tenuto.launchers.runner.failures"
_MEMORY_MODULE = "tenuto.launchers.runner.memory"
_TASK_MODULE = "tenuto.launchers.runner.task"


def be_payload(
    runner: str, report: str, descendants: str, memory_bytes: str, nonce: str, *arguments: str
) -> int:
    """Settle in and run the task; the exit code for this process."""
    live_no_longer_than(int(runner))
    assignment = Assignment.from_arguments(*arguments)
    reporter = Reporter(int(report))
    try:
        settle_in(
            assignment.directory,
            memory=import_module(_MEMORY_MODULE).limit_in_force(int(memory_bytes), nonce)
            if memory_bytes
            else None,
            report=int(report),
            descendants=int(descendants),
        )
    except OSError as error:
        reporter.failed(*import_module(_FAILURES_MODULE).not_begun(error))
        return CANNOT_EXECUTE
    exit_code: int = import_module(_TASK_MODULE).run_task(assignment, reporter)
    return exit_code
