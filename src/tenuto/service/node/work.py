"""What a payload runs: its `run.sh`, in its directory, confined, with a clean environment.
Starts nothing; the scheduler reads it when the payload's turn comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tenuto.launchers.instructions import Command, Confinement, Limits
from tenuto.scheduler.work import TaskWork
from tenuto.service.names import RUN_SCRIPT
from tenuto.service.node.packer import WORK, Place
from tenuto.service.node.payloads import PayloadRow
from tenuto.service.node.sandbox import Guest, Sandbox
from tenuto.tasks import CommandTask
from tenuto.tasks.live import seal
from tenuto.workspace.markers import Durability

PROGRAM = ("bash", RUN_SCRIPT)
OPEN_FILES = 65536


@dataclass(frozen=True, slots=True)
class Terms:
    """What the payloads of a service may have."""

    limits: Limits
    durability: Durability
    processes: int
    work_bytes: int | None = None
    network: bool = False
    paths: tuple[str, ...] = ()


class PayloadWork(TaskWork):
    """A payload as the scheduler sees it: a command task whose identity is never asked for."""

    def __init__(self, key: str, command: Command, environment: Mapping[str, str]) -> None:
        task = CommandTask.C(command=list(PROGRAM), key=key)
        seal(task)
        super().__init__(task, environment)
        self._command = command

    def command(self) -> Command:
        return self._command


def payload_work(
    row: PayloadRow, place: Place, terms: Terms, sandbox: Sandbox, environment: Mapping[str, str]
) -> PayloadWork:
    """What a payload runs, and as whom."""
    uid = sandbox.uid_of(row.id)
    guest = Guest(place.work, uid, terms.network, terms.paths)
    # Root is not held by a limit of processes, and other users' processes count for it.
    processes = terms.processes if uid is not None or not sandbox.is_root else None
    confinement = Confinement(
        processes=processes,
        open_files=OPEN_FILES,
        file_bytes=terms.work_bytes,
        uid=uid,
        gid=uid,
        groups=() if uid is not None else None,
    )
    own = {
        "HOME": sandbox.home(guest),
        "JOB_ID": row.job_id or str(row.id),
        "JOB_SERVICE": row.service,
        "JOB_USER_ID": row.user_id,
    }
    command = Command(sandbox.command(guest, PROGRAM), directory=WORK, confinement=confinement)
    return PayloadWork(row.key, command, {**environment, **own})


def passed_on(variables: Mapping[str, str], patterns: tuple[str, ...]) -> dict[str, str]:
    """The variables of the node that payloads see; never Tenuto's own: a `tenuto` inside refuses them."""
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith("TENUTO_") and any(fnmatchcase(name, pattern) for pattern in patterns)
    }
