"""What a payload runs: its `run.sh` or the command of its service, confined, with a clean environment.
Starts nothing; the scheduler reads it when the payload's turn comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenuto.launchers.confinement import Guest, Sandbox, SandboxMode
from tenuto.launchers.instructions import Command, Confinement, Limits
from tenuto.launchers.payload.payload import METRICS_FILE
from tenuto.scheduler.jobs import TaskWork
from tenuto.service.archive import MOST_BYTES
from tenuto.service.names import OWN_DIRECTORY, RUN_SCRIPT
from tenuto.service.node.packer import POINTS, STARTED, WORK, Place
from tenuto.service.node.payloads import PayloadRow
from tenuto.tasks import CommandTask
from tenuto.tasks.live import seal
from tenuto.workspace.markers import Durability

PROGRAM = ("bash", RUN_SCRIPT)
OPEN_FILES = 65536
FROM_CLUSTER = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_CPUS_PER_TASK")
"""Variables by which a cluster says what a payload got."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the payloads of a service may have."""

    limits: Limits
    durability: Durability
    processes: int
    work_bytes: int | None = None
    network: bool = False
    paths: tuple[str, ...] = ()
    cpus: int = 1
    """Slots of the node."""
    gpus: int = 0
    max_result_bytes: int = MOST_BYTES

    def shown(self) -> dict[str, object]:
        """The limits, as the log says them at the start."""
        limits = {
            "walltime_s": self.limits.walltime_s,
            "memory_bytes": self.limits.memory_bytes,
            "work_bytes": self.work_bytes,
        }
        named = {name: "none" if value is None else value for name, value in limits.items()}
        return {**named, "max_result_bytes": self.max_result_bytes, "processes": self.processes}


def encoded_command(command: Sequence[str]) -> str:
    """A command as a row and the wire to a node have it; empty for none."""
    return json.dumps(list(command)) if command else ""


def decoded_command(text: str) -> tuple[str, ...]:
    """The command in a text of `encoded_command`; `ValueError` for anything else."""
    if not text:
        return ()
    words = json.loads(text)
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError("a command is a list of texts")
    if not words[0] or any("\0" in word for word in words):
        raise ValueError("a command has a program, and no NUL character")
    return tuple(words)


class PayloadWork(TaskWork):
    """A payload as the scheduler sees it: a command task whose identity is never asked for."""

    def __init__(
        self, key: str, program: tuple[str, ...], command: Command, environment: Mapping[str, str]
    ) -> None:
        task = CommandTask.C(command=list(program), key=key)
        seal(task)
        super().__init__(task, environment)
        self._command = command

    def command(self) -> Command:
        return self._command


def payload_work(
    row: PayloadRow,
    place: Place,
    terms: Terms,
    sandbox: Sandbox,
    environment: Mapping[str, str],
    *,
    is_on_cluster: bool = False,
) -> PayloadWork:
    """What a payload runs, and as whom."""
    uid = sandbox.uid_of(row.id)
    in_namespace = sandbox.mode is SandboxMode.BWRAP and uid is None
    guest = Guest(
        place.work,
        uid,
        terms.network,
        terms.paths,
        terms.gpus > 0,
        terms.processes if in_namespace else None,
        terms.limits.memory_bytes,
        f"../{STARTED}",
    )
    program = decoded_command(row.command) or PROGRAM
    # Root is not held by a limit of processes, and other users' processes count for it.
    processes = terms.processes if uid is not None or not (sandbox.is_root or in_namespace) else None
    confinement = Confinement(
        processes=processes,
        open_files=OPEN_FILES,
        file_bytes=terms.work_bytes,
        uid=uid,
        gid=uid,
        groups=() if uid is not None else None,
        passed=FROM_CLUSTER if is_on_cluster else None,
    )
    own = {
        "HOME": sandbox.home(guest),
        "JOB_ID": row.job_id or str(row.id),
        "JOB_SERVICE": row.service,
        "JOB_USER_ID": row.user_id,
        METRICS_FILE: f"{sandbox.home(guest)}/{OWN_DIRECTORY}/{POINTS}",
    }
    if terms.cpus > 1:
        own |= {"JOB_CPUS": str(terms.cpus), "OMP_NUM_THREADS": str(terms.cpus)}
    command = Command(sandbox.command(guest, program), directory=WORK, confinement=confinement)
    return PayloadWork(row.key, program, command, {**environment, **own})
