"""What the runner of an attempt is told: the part of `launch.json` that this room owns.
The same for every launcher; of a job's parameters nothing is repeated here but a short command.
"""

import os.path
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tenuto.workspace.layout import ROOT_FROM_JOB, JobPaths, Layout
from tenuto.workspace.markers import Durability
from tenuto.workspace.records import LaunchRecord

LOG_BYTES = 64 * 1024 * 1024
GRACE_S = 10.0


class Limits(NamedTuple):
    """What an attempt may use."""

    walltime_s: float | None = None
    memory_bytes: int | None = None
    log_bytes: int = LOG_BYTES
    """Of disk, for each of the two logs."""
    grace_s: float = GRACE_S
    """Between the request to stop and the end of the whole tree."""


NO_LIMITS = Limits()


CODECARBON = "tenuto.launchers.carbon.tracker:codecarbon_tracker"


class CarbonPlan(NamedTuple):
    """How the energy of an attempt is measured."""

    after_s: float = 5.0
    """Shorter attempts are not measured."""
    every_s: float = 15.0
    country: str | None = None
    tracker: str = CODECARBON
    """`module:function`; see `carbon.meter`."""


class Command(NamedTuple):
    """A program to run instead of a task's Python."""

    arguments: tuple[str, ...]
    files: Mapping[str, str] = {}
    """name in the job's directory -> the file whose content it gets."""


class Instructions(NamedTuple):
    """How an attempt is to be run."""

    task_id: str
    job_id: str
    workspace: str
    """The workspace's root, relative to the job's directory, so that a workspace can move."""
    limits: Limits = NO_LIMITS
    environment: Mapping[str, str] = {}
    """Variables added to the inherited ones. They lie in a file: no place for secrets."""
    durability: Durability = Durability.MARKER
    command: Command | None = None
    submitted: datetime | None = None
    """When the job was submitted, for its status."""
    retry: Mapping[str, Any] = {}
    """How often the job may be tried again: for who runs it from its directory, not for a runner."""
    carbon: CarbonPlan | None = None
    """None: nothing is measured."""

    @property
    def program(self) -> Command | None:
        """The command, unless it is to be read from the job's parameters."""
        return self.command if self.command is not None and self.command.arguments else None

    def encode(self) -> dict[str, Any]:
        """As `LaunchRecord.instructions` holds it."""
        written: dict[str, Any] = {
            "task_id": self.task_id,
            "job_id": self.job_id,
            "workspace": self.workspace,
            "limits": {name: value for name, value in self.limits._asdict().items() if value is not None},
        }
        if self.environment:
            written["environment"] = dict(self.environment)
        if self.durability is not Durability.MARKER:
            written["durability"] = self.durability.value
        if self.submitted is not None:
            written["submitted"] = self.submitted.isoformat()
        if self.command is not None:
            written["command"] = {
                "arguments": list(self.command.arguments),
                "files": dict(self.command.files),
            }
        if self.retry:
            written["retry"] = dict(self.retry)
        if self.carbon is not None:
            usual = CarbonPlan._field_defaults
            plan = self.carbon._asdict()
            written["carbon"] = {name: value for name, value in plan.items() if value != usual[name]}
        return written

    @classmethod
    def decode(cls, written: Mapping[str, Any]) -> "Instructions":
        """What `encode` wrote. Raises `ValueError`, `TypeError` or `KeyError` for anything else."""
        command = written.get("command")
        submitted = written.get("submitted")
        return cls(
            task_id=written["task_id"],
            job_id=written["job_id"],
            workspace=written["workspace"],
            limits=Limits(**written["limits"]),
            environment=written.get("environment", {}),
            durability=Durability(written["durability"]) if "durability" in written else Durability.MARKER,
            command=command and Command(tuple(command["arguments"]), command["files"]),
            submitted=submitted and datetime.fromisoformat(submitted),
            retry=written.get("retry", {}),
            carbon=CarbonPlan(**written["carbon"]) if "carbon" in written else None,
        )

    @classmethod
    def of(cls, launch: LaunchRecord) -> "Instructions":
        return cls.decode(launch.instructions)

    def layout(self, paths: JobPaths) -> Layout:
        """The workspace, found from the job's directory."""
        return Layout(os.path.normpath(os.path.join(paths.directory, self.workspace)))


def instruct(
    task_id: str,
    job_id: str,
    *,
    limits: Limits = NO_LIMITS,
    environment: Mapping[str, str] | None = None,
    durability: Durability = Durability.MARKER,
    command: Command | None = None,
    submitted: datetime | None = None,
    retry: Mapping[str, Any] | None = None,
    carbon: CarbonPlan | None = None,
) -> dict[str, Any]:
    """The instructions for one attempt, ready for `open_attempt`."""
    return Instructions(
        task_id,
        job_id,
        ROOT_FROM_JOB,
        limits,
        environment or {},
        durability,
        command,
        submitted,
        retry or {},
        carbon,
    ).encode()
