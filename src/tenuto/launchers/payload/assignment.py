"""What the process of a Python task is told of its job, and its first steps: bound to its runner, at home.
Nothing of the user's runs before them. It loads nothing that a task may never ask for: every job would wait.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tenuto.launchers.kernel import close_all_but, die_with_parent
from tenuto.launchers.payload.report import ReportWriter
from tenuto.light import late

if TYPE_CHECKING:
    import json

    from tenuto.launchers.payload import failures, limits, python_task
    from tenuto.launchers.payload.limits import MemoryLimit
    from tenuto.workspace import layout, machine
    from tenuto.workspace.layout import JobPaths, Layout
    from tenuto.workspace.ports import Machine
else:
    json = late("json")
    failures = late("tenuto.launchers.payload.failures")
    limits = late("tenuto.launchers.payload.limits")
    python_task = late("tenuto.launchers.payload.python_task")
    layout = late("tenuto.workspace.layout")
    machine = late("tenuto.workspace.machine")

CANNOT_EXECUTE = 126
NOT_FOUND = 127
_KILL = 9


class Preloaded(Protocol):
    """The work done in another process, from which this one was forked."""

    @property
    def digests(self) -> dict[str, str]:
        """The digests of files that were imported and have not changed since."""
        ...

    @property
    def provenance(self) -> Mapping[str, str]:
        """What the marker is to say of it."""
        ...

    def settle(self) -> None:
        """In the payload, once it is settled in: make up for it, so that nothing shows."""
        ...


class Assignment:
    """The attempt that this process is to run."""

    __slots__ = (
        "_machine",
        "attempt",
        "deadline",
        "directory",
        "job_id",
        "owner",
        "preloaded",
        "script_name",
        "task_id",
        "workspace",
    )

    def __init__(
        self,
        directory: str,
        script_name: str,
        workspace: str,
        task_id: str,
        job_id: str,
        attempt: int,
        deadline: float | None = None,
        machine: Machine | None = None,
        preloaded: Preloaded | None = None,
        owner: str | None = None,
    ) -> None:
        self.directory = directory
        self.script_name = script_name
        self.workspace = workspace
        """The workspace's root."""
        self.task_id = task_id
        self.job_id = job_id
        self.attempt = attempt
        self.deadline = deadline
        """When the walltime ends, on the monotonic clock."""
        self.preloaded = preloaded
        self.owner = owner
        """The owner that asked for the job first."""
        self._machine = machine

    def fields(self) -> dict[str, Any]:
        """What another process makes an equal assignment of."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("_machine", "preloaded")}

    def argument(self) -> str:
        """For the command line of a fresh interpreter, which may decode other text than ASCII otherwise."""
        return json.dumps(self.fields())

    @classmethod
    def from_argument(cls, text: str) -> Assignment:
        """What `argument` gave."""
        return cls(**json.loads(text))

    @property
    def machine(self) -> Machine:
        if self._machine is None:
            self._machine = machine.this_machine()
        return self._machine

    @property
    def paths(self) -> JobPaths:
        return layout.JobPaths(self.directory, self.script_name)

    @property
    def layout(self) -> Layout:
        return layout.Layout(self.workspace)


def be_payload(
    runner: str, report: str, descendants: str, memory_bytes: str, nonce: str, argument: str
) -> int:
    """Become the payload in a fresh interpreter that the runner started; the exit code for this process."""
    live_no_longer_than(int(runner))
    assignment = Assignment.from_argument(argument)
    reporter = ReportWriter(int(report))
    try:
        settle_in(
            assignment.directory,
            memory=limits.limit_in_force(int(memory_bytes), nonce) if memory_bytes else None,
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
