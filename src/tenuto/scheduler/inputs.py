"""Inputs of the core: all that can happen to a job, in the past tense.
They carry values and change nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, get_args

from tenuto.scheduler.decisions import Verdict

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job
    from tenuto.scheduler.owners import Owner
    from tenuto.scheduler.tokens import Grant


from typing import TYPE_CHECKING

from tenuto.lifecycle.states import JobState

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job
    from tenuto.scheduler.owners import Owner
    from tenuto.scheduler.tokens import Grant


class Submitted(NamedTuple):
    """An owner wants a job to be run; a transient one sleeps on until a job needs it."""

    job: Job
    is_new: bool = False
    """The job was not known before: its directory was looked at just now."""


class Found(NamedTuple):
    """The directory of a new job shows its end."""

    job: Job
    verdict: Verdict


class Adopted(NamedTuple):
    """Another scheduler started a job."""

    job: Job


class Locked(NamedTuple):
    """A job was done, and another process, perhaps a remover, has the lock of its directory."""

    job: Job


class Unlocked(NamedTuple):
    """The lock of that directory is free; `is_done`: the job is still done."""

    job: Job
    is_done: bool


class Rested(NamedTuple):
    """A job has waited as long as its rule says, before its next attempt."""

    job: Job


class Promoted(NamedTuple):
    """The priority of a job rose."""

    job: Job


class Cancelled(NamedTuple):
    """An owner wants a job to end, for all its owners."""

    job: Job
    message: str


class Withdrawn(NamedTuple):
    """An owner no longer wants a job."""

    job: Job
    owner: Owner
    message: str


class Seated(NamedTuple):
    """The next job has got a slot."""

    job: Job


class Unseated(NamedTuple):
    """The next job has got no slot: other processes have the shared ones."""

    job: Job


class Granted(NamedTuple):
    """A job has got its tokens and a slot, or need not have them: another scheduler runs it."""

    job: Job
    grant: Grant


class Unwanted(NamedTuple):
    """All owners of a job that waits for tokens are stopping."""

    job: Job


class Begun(NamedTuple):
    """An attempt at a job begins."""

    job: Job


class AttemptEnded(NamedTuple):
    """An attempt ended: for good, or to be followed by another."""

    job: Job
    verdict: Verdict
    keeps_slot: bool = False
    """The next attempt can follow in the same slot."""


class AdoptedEnded(NamedTuple):
    """An attempt ended that another scheduler started."""

    job: Job
    verdict: Verdict


class Ended(NamedTuple):
    """The last outputs of a job were handed over; or it can never have the tokens that it asks for."""

    job: Job
    verdict: Verdict


class Failed(NamedTuple):
    """Something went wrong in the scheduler, or in a callback that it calls, on behalf of a job."""

    job: Job
    message: str


class Short(NamedTuple):
    """The machine was short of something when a job was to be started."""

    job: Job
    message: str
    of_descriptors: bool


class Recovered(NamedTuple):
    """The machine may have the missing resource again."""


class SlotFree(NamedTuple):
    """A job gave its slot back; None: another process did."""

    job: Job | None = None


Input = (
    Submitted
    | Found
    | Adopted
    | Locked
    | Unlocked
    | Rested
    | Promoted
    | Cancelled
    | Withdrawn
    | Seated
    | Unseated
    | Granted
    | Unwanted
    | Begun
    | AttemptEnded
    | AdoptedEnded
    | Ended
    | Failed
    | Short
    | Recovered
    | SlotFree
)


def methods(kinds: object) -> dict[type, str]:
    """The name of the method for each kind of input, or of effect: `_slot_free` for `SlotFree`."""
    return {kind: re.sub("([A-Z])", r"_\1", kind.__name__).lower() for kind in get_args(kinds)}


# Effects of the core: all that it can have done, carried out by `shell` in their order.


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
