"""The claim on an attempt that another system starts: one file, which can be made once and is never removed.
Decides nothing: runners make it before a payload begins, schedulers before they give an attempt up.
"""

from datetime import datetime
from enum import Enum, unique

from tenuto.light import NamedTuple
from tenuto.workspace.json_bytes import to_json
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import Corrupt, Fields, decode_fields, read_record


@unique
class Claimer(Enum):
    """What made a claim."""

    RUNNER = "runner"
    """Its payload begins next, or has begun."""
    SCHEDULER = "scheduler"
    """The attempt is given up: its payload never begins."""


class Claim(NamedTuple):
    """The content of `.tenuto/claim-{nonce}`."""

    by: Claimer
    host: str
    at: datetime
    job: str | None = None
    """The cluster's id of the job whose runner made the claim."""

    def encode(self) -> bytes:
        fields = {"by": self.by.value, "job": self.job, "host": self.host, "at": self.at.isoformat()}
        return to_json(fields) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> "Claim | Corrupt":
        return decode_fields(data, cls._from)

    @classmethod
    def _from(cls, fields: Fields) -> "Claim":
        return cls(
            Claimer(fields.text("by")), fields.text("host"), fields.instant("at"), fields.optional_text("job")
        )


def claim(machine: Machine, paths: JobPaths, nonce: str, by: Claimer, job: str | None = None) -> bool:
    """Make the claim on an attempt; False if it was there already, whatever made it.

    The claim is removed with the job's directory only: a runner that is late, and reads an old `launch.json`
    from a cache, would else make it again.
    """
    made = Claim(by, machine.processes.own().host, machine.clock.now(), job)
    try:
        machine.files.create_exclusive(paths.claim(nonce), made.encode())
    except FileExistsError:
        return False
    return True


def keep_claim(machine: Machine, paths: JobPaths, nonce: str) -> None:
    """Sync a claim, before anything is done that must not be done without it; a lost claim is not made.

    Runners do not sync it: every job would pay, and a power loss that takes a claim takes its runner too.
    """
    name = paths.claim(nonce).removeprefix(f"{paths.private}/")
    machine.files.sync_tree(paths.private, lambda found: found != name)


def is_claimed(machine: Machine, paths: JobPaths, nonce: str) -> bool:
    """Whether the claim was made."""
    return machine.files.stat(paths.claim(nonce)) is not None


def claimer(machine: Machine, paths: JobPaths, nonce: str) -> Claim | Corrupt | None:
    """The claim on an attempt; `Corrupt` if its maker died while it wrote it; None if none was made."""
    return read_record(machine.files, paths.claim(nonce), Claim.decode)
