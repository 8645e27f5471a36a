"""The first steps of a payload, forked or fresh: bound to its runner, rid of what is the runner's, at home.
Nothing of the user's runs before them, and nothing is loaded that a task which ends well can do without.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tenuto.launchers.runner.assignment import Assignment
from tenuto.launchers.runner.kernel import die_with_parent
from tenuto.launchers.runner.report_writer import ReportWriter
from tenuto.light import late

if TYPE_CHECKING:
    from tenuto.launchers.runner import failures, memory, python_task
    from tenuto.launchers.runner.memory import MemoryLimit
else:
    failures = late("tenuto.launchers.runner.failures")
    memory = late("tenuto.launchers.runner.memory")
    python_task = late("tenuto.launchers.runner.python_task")

CANNOT_EXECUTE = 126
NOT_FOUND = 127
_KILL = 9


def be_payload(
    runner: str, report: str, descendants: str, memory_bytes: str, nonce: str, *arguments: str
) -> int:
    """Become the payload in a fresh interpreter, which `fresh` started; the exit code for this process."""
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


def live_no_longer_than(runner: int) -> None:
    """Have this process end with its runner, or at once if that has ended already."""
    die_with_parent(_KILL)
    if os.getppid() != runner:
        os._exit(NOT_FOUND)  # the runner died before the kernel was told to end us with it


def settle_in(directory: str, *, memory: MemoryLimit | None, report: int, descendants: int) -> None:
    """Keep the two descriptors and no others, and change into the job's directory, within its limits."""
    if memory is not None:
        memory.enter()
    close_all_but({0, 1, 2, descendants, report})
    os.set_inheritable(report, False)
    # All that the payload ever starts holds the second byte of the lock file, unless it closes it on purpose.
    os.set_inheritable(descendants, True)
    os.chdir(directory)


def close_all_but(kept: set[int]) -> None:
    """Close every other descriptor of this process."""
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd not in kept:
            try:
                os.close(fd)
            except OSError:
                continue  # the one that listed the directory
