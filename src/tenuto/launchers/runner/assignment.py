"""What the process of a Python task is told of its job: enough to run it, and where the rest is found.
It loads nothing that a task may never ask for: in a fresh interpreter every job would wait for that.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tenuto.light import late

if TYPE_CHECKING:
    from tenuto.launchers.runner.payload import Payload, Preloaded
    from tenuto.workspace import layout, machine
    from tenuto.workspace.layout import JobPaths, Layout
    from tenuto.workspace.ports import Machine
else:
    layout = late("tenuto.workspace.layout")
    machine = late("tenuto.workspace.machine")

_ENDLESS = "-"
_NOBODY = "-"


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

    @classmethod
    def of(cls, payload: Payload) -> Assignment:
        instructions = payload.instructions
        return cls(
            payload.paths.directory,
            payload.paths.script_name,
            instructions.layout(payload.paths).root,
            instructions.task_id,
            instructions.job_id,
            payload.launch.attempt,
            payload.deadline,
            payload.machine,
            payload.preloaded,
            payload.launch.owner,
        )

    def fields(self) -> dict[str, Any]:
        """What another process makes an equal assignment of."""
        return {
            "directory": self.directory,
            "script_name": self.script_name,
            "workspace": self.workspace,
            "task_id": self.task_id,
            "job_id": self.job_id,
            "attempt": self.attempt,
            "deadline": self.deadline,
            "owner": self.owner,
        }

    def arguments(self) -> list[str | bytes]:
        """For the command line of a fresh interpreter, which may decode it otherwise than this one."""
        return [
            self.directory,
            self.script_name,
            self.workspace,
            self.task_id.encode(),
            self.job_id.encode(),
            str(self.attempt),
            _ENDLESS if self.deadline is None else repr(self.deadline),
            (self.owner or _NOBODY).encode(),
        ]

    @classmethod
    def from_arguments(
        cls,
        directory: str,
        script_name: str,
        workspace: str,
        task_id: str,
        job_id: str,
        attempt: str,
        deadline: str,
        owner: str,
    ) -> Assignment:
        """What `arguments` gave."""
        return cls(
            directory,
            script_name,
            workspace,
            _utf8(task_id),
            _utf8(job_id),
            int(attempt),
            None if deadline == _ENDLESS else float(deadline),
            owner=None if owner == _NOBODY else _utf8(owner),
        )

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


def _utf8(argument: str) -> str:
    return os.fsencode(argument).decode()
