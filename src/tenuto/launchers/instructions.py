"""What the runner of an attempt is told: the part of `launch.json` that this room owns.
The same for every launcher; of a job's parameters nothing is repeated here but a short command.
"""

import os.path
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tenuto.light import NamedTuple
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
    lease_path: str | None = None
    """A file that the worker touches as long as the attempt may continue."""
    lease_s: float | None = None
    """If the file stays unchanged for half as long, the payload is killed at once, as LOST."""

    def check(self) -> None:
        """Raise `ValueError` for a lease without its file or its time."""
        has_time = self.lease_s is not None and self.lease_s > 0
        if (self.lease_path is not None or self.lease_s is not None) and not (self.lease_path and has_time):
            raise ValueError(
                f"a lease is a file and a time of more than 0: {self.lease_path}, {self.lease_s}"
            )


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
    beside: str = ""
    """The directory of the script, where a tracker is looked for after all other places."""


class Confinement(NamedTuple):
    """What a command is kept from; applied in the payload, before it becomes the command.

    A confined command has the variables that it is given and no others, gains no privileges by its programs,
    leaves no core file, and ends with its runner whatever user it runs as.
    """

    processes: int | None = None
    """Of its user, all jobs together."""
    open_files: int | None = None
    file_bytes: int | None = None
    """Size of the largest file that it may write."""
    uid: int | None = None
    """The user that it runs as; another one only if the runner is root's."""
    gid: int | None = None
    groups: tuple[int, ...] | None = None
    """None: with a uid of its own it has none, else the runner's."""
    passed: tuple[str, ...] | None = None
    """Variables of the runner that it has, where they are set: a cluster says by them what a job got."""


class Command(NamedTuple):
    """A program to run instead of a task's Python."""

    arguments: tuple[str, ...]
    files: Mapping[str, str] = {}
    """name in the program's directory -> the file whose content it gets."""
    directory: str | None = None
    """Where the program runs, relative to the job's directory; None: there. Logs and records stay outside."""
    confinement: Confinement | None = None
    """None: it may do what its runner may."""

    def encode(self) -> dict[str, Any]:
        """As the instructions hold it."""
        written: dict[str, Any] = {"arguments": list(self.arguments), "files": dict(self.files)}
        if self.directory is not None:
            written["directory"] = self.directory
        if self.confinement is not None:
            limits = self.confinement._asdict()
            written["confinement"] = {name: value for name, value in limits.items() if value is not None}
        return written

    @classmethod
    def decode(cls, written: Mapping[str, Any]) -> "Command":
        written = {**written}  # a value that is no mapping raises `TypeError` here
        confinement = written.get("confinement")
        if confinement is not None and "groups" in confinement:
            confinement = {**confinement, "groups": tuple(confinement["groups"])}
        return cls(
            tuple(written["arguments"]),
            written["files"],
            written.get("directory"),
            None if confinement is None else Confinement(**confinement),
        )

    def check(self) -> None:
        """Raise `ValueError` for a command that could not be confined as it says."""
        if self.confinement is not None and (not self.arguments or self.files):
            raise ValueError(
                "a confined command is given by its arguments, and has its files in place already"
            )


class Instructions(NamedTuple):
    """How an attempt is to be run."""

    task_id: str
    job_id: str
    workspace: str = ROOT_FROM_JOB
    """The workspace's root, relative to the job's directory, so that a workspace can move."""
    limits: Limits = NO_LIMITS
    environment: Mapping[str, str] = {}
    """Variables added to the inherited ones. They lie in a file: no place for secrets."""
    durability: Durability = Durability.MARKER
    command: Command | None = None
    submitted: datetime | None = None
    """When the job was submitted, for its status."""
    retry: Mapping[str, Any] = {}
    """How often the job may be tried again: for a retry from its directory, not for a runner."""
    carbon: CarbonPlan | None = None
    """None: nothing is measured."""
    tokens: Sequence[Mapping[str, Any]] = ()
    """The units that the job holds while it runs: for a person's retry, not for a runner."""
    slots: int = 1
    """How many slots of its launcher it takes: for a person's retry, not for a runner."""
    record: Mapping[str, Any] = {}
    """What the result will be made of, for its marker."""
    asked: str = ""
    """What its launcher was asked for, as a requirement: for a person's retry, not for a runner."""
    keeps_logs: bool = False
    """A path of the task is one of its logs: an empty one stays when the job is done."""

    @property
    def program(self) -> Command | None:
        """The command, unless it is to be read from the job's parameters."""
        return self.command if self.command is not None and self.command.arguments else None

    def encode(self) -> dict[str, Any]:
        """As `LaunchRecord.instructions` holds it, ready for `open_attempt`.

        Raises `ValueError` for a command that cannot be confined as it says, and a lease that is not one.
        """
        self.limits.check()
        usual = self._field_defaults
        written = {
            name: value for name, value in self._asdict().items() if value and value != usual.get(name)
        }
        written["workspace"] = self.workspace
        written["limits"] = {
            name: value for name, value in self.limits._asdict().items() if value is not None
        }
        if self.durability is not Durability.MARKER:
            written["durability"] = self.durability.value
        if self.submitted is not None:
            written["submitted"] = self.submitted.isoformat()
        if self.command is not None:
            self.command.check()
            written["command"] = self.command.encode()
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
            command=command and Command.decode(command),
            submitted=submitted and datetime.fromisoformat(submitted),
            retry=written.get("retry", {}),
            carbon=CarbonPlan(**written["carbon"]) if "carbon" in written else None,
            tokens=written.get("tokens", ()),
            slots=written.get("slots", 1),
            record=written.get("record", {}),
            asked=written.get("asked", ""),
            keeps_logs=bool(written.get("keeps_logs")),
        )

    @classmethod
    def of(cls, launch: LaunchRecord) -> "Instructions":
        return cls.decode(launch.instructions)

    def layout(self, paths: JobPaths) -> Layout:
        """The workspace, found from the job's directory."""
        return Layout(os.path.normpath(os.path.join(paths.directory, self.workspace)))
