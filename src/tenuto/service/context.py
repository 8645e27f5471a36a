"""What the stages and routes of one server share, put together by `server`.
Holds values and other rooms' objects; decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tenuto.clock import Clock, Randomness
from tenuto.lifecycle.service import ServiceState
from tenuto.service.callbacks import CallbackHosts
from tenuto.service.contract import ErrorCode
from tenuto.service.data_paths import DataPaths, StoredJobPaths
from tenuto.service.decisions import Quota
from tenuto.service.log import log
from tenuto.service.metrics import Metrics
from tenuto.service.names import RUN_SCRIPT, Input, misfit
from tenuto.service.node.work import decoded_command
from tenuto.service.nodes import NodeBook, Outgoing, PayloadRef
from tenuto.service.periodic import Waiters
from tenuto.service.requests import Requests
from tenuto.service.rows import NO_LIMITS, JobRow, UserLimits
from tenuto.service.threads import Threads
from tenuto.service.uploads import ReceivedUpload, refused
from tenuto.settings.service import OfferedSettings, ServiceSettings


@dataclass(frozen=True, slots=True)
class Offered:
    """A service that the server offers."""

    name: str
    quota: Quota
    nodes: tuple[str, ...]
    settings: OfferedSettings = field(default_factory=OfferedSettings)
    inputs: tuple[Input, ...] = ()
    """What uploads for its command have; without a command they have a `run.sh`."""

    def places(self, slots: Mapping[str, int]) -> int:
        """How many of its jobs nodes with so many slots run at once."""
        return sum(slots[node] // self.settings.cpus for node in self.nodes if node in slots)

    def refuse_files(self, received: ReceivedUpload) -> None:
        """Refuses an upload whose files are not those that the service asks for."""
        most = self.settings.max_input_bytes
        if most is not None and received.bytes > most:
            raise refused(
                ErrorCode.TOO_LARGE, f"The files are larger than {most} bytes, which {self.name} takes"
            )
        if not self.settings.command:
            if RUN_SCRIPT not in received.files:
                raise refused(
                    ErrorCode.NO_RUN_SH, f"No {RUN_SCRIPT} was uploaded: one file must have this name"
                )
            return
        wrong = misfit(self.inputs, received.files)
        if wrong is None:
            return
        wanted = ", ".join(self.settings.inputs) or "no files"
        if wrong.missing is not None:
            raise refused(
                ErrorCode.MISSING_INPUT, f"Missing {wrong.missing!a}: service {self.name} takes {wanted}"
            )
        raise refused(
            ErrorCode.UNEXPECTED_FILE,
            f"Unexpected file {(wrong.unexpected or '')[:80]!a}: service {self.name} takes {wanted}",
        )


@dataclass(slots=True)
class ServerContext:
    """One server's."""

    settings: ServiceSettings
    services: dict[str, Offered]
    """Changed in place when the settings are read anew."""
    requests: Requests
    database_id: str
    places: DataPaths
    book: NodeBook
    clock: Clock
    randomness: Randomness
    metrics: Metrics
    sql: Threads
    waiters: Waiters[JobRow] = field(default_factory=Waiters)
    files: Threads = field(default_factory=lambda: Threads(4))
    uploads: Threads = field(default_factory=lambda: Threads(4))
    """For files and their row, one after the other."""
    limits: UserLimits = NO_LIMITS
    """What each user may have, unless the token says otherwise; replaced when the settings are read anew."""
    callback_hosts: CallbackHosts = field(default_factory=lambda: CallbackHosts(()))
    """Replaced likewise."""

    def shown_path(self, path: str) -> str:
        """A path of this server as its users write it."""
        return f"{(self.settings.prefix or '').rstrip('/')}{path}"

    def place(self, row: JobRow) -> StoredJobPaths:
        return self.places.job(row.directory)

    def outgoing(self, row: JobRow) -> Outgoing:
        """A job as its node gets it.

        Its key names one upload: a database that was restored or copied gives its numbers again.
        """
        key = f"{self.database_id}-{row.id}-{row.directory}"
        if row.command is not None:
            command = decoded_command(row.command)
        else:
            offered = self.services.get(row.service)
            command = offered.settings.command if offered is not None else ()
        return Outgoing(key, self.place(row).files, row.service, row.user_id, row.id, command)

    def payload(self, row: JobRow) -> PayloadRef:
        """The payload of a job that a node has."""
        return PayloadRef(int(row.payload_id or 0), self.outgoing(row).mark)

    async def move(self, row: JobRow, to: ServiceState, message: str = "", **values: Any) -> JobRow | None:
        """Moves a job, tells its waiters and logs it; None if another server has it by now."""
        moved = await self.sql(partial(self.requests.move, row, to, message, **values))
        if moved is not None:
            self.told(moved)
        return moved

    def told(self, row: JobRow) -> None:
        """Says that a job reached a state."""
        log("moved", job=row.id, state=row.state.value, message=row.message, node=row.node or "")
        self.metrics.moved(row)
        self.waiters.tell(row.id, row)
