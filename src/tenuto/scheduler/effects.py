"""Effects of the core: all that it can have done, carried out by `shell` in their order.
They name the work, not the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tenuto.lifecycle.states import JobState
from tenuto.scheduler.decisions import Verdict

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job
    from tenuto.scheduler.owners import Owner
    from tenuto.scheduler.tokens import Grant


class Tell(NamedTuple):
    """Move a job to a state before its attempt: WAITING or READY; nothing if it is there."""

    job: Job
    state: JobState
    message: str | None = None


class Start(NamedTuple):
    """Run a job that has a slot and its tokens."""

    job: Job
    grant: Grant | None = None


class AskForTokens(NamedTuple):
    """Have a job wait for its tokens; it does not keep its slot meanwhile."""

    job: Job


class Watch(NamedTuple):
    """Wait for the end of an attempt that another scheduler started."""

    job: Job


class AwaitLock(NamedTuple):
    """Wait until the lock of a directory is free, then see whether its job is still done."""

    job: Job


class Wake(NamedTuple):
    """See which end of a job that slept is known by now: that is no answer to the job that needs it."""

    job: Job


class Sleep(NamedTuple):
    """Tell that a job is not needed any more."""

    job: Job


class Retry(NamedTuple):
    """Count another try."""

    job: Job
    verdict: Verdict
    was_adopted: bool


class Rest(NamedTuple):
    """Have a job wait before its next attempt; `Rested` follows."""

    job: Job
    after_s: float


class Settle(NamedTuple):
    """Hand over the last outputs of a job; `Ended` follows."""

    job: Job
    verdict: Verdict


class Cancel(NamedTuple):
    """Record that a job which has no attempt was cancelled; `Ended` follows."""

    job: Job
    message: str


class Stop(NamedTuple):
    """Ask the runner of a job to end it."""

    job: Job
    message: str


class End(NamedTuple):
    """Tell the final state of a job."""

    job: Job
    verdict: Verdict


class Strand(NamedTuple):
    """Tell that a job cannot run because another failed; its directory is not touched."""

    job: Job
    cause: Job


class Disown(NamedTuple):
    """Take an owner off a job that others have."""

    job: Job
    owner: Owner


class GiveOutTokens(NamedTuple):
    """Jobs that wait for tokens may have a free slot, before jobs that are ready."""


class Notify(NamedTuple):
    """Have owners know that they may have less to wait for."""


Effect = (
    Tell
    | Start
    | AskForTokens
    | Watch
    | AwaitLock
    | Wake
    | Sleep
    | Retry
    | Rest
    | Settle
    | Cancel
    | Stop
    | End
    | Strand
    | Disown
    | GiveOutTokens
    | Notify
)
