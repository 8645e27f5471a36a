"""What to do with a job, given what its directory shows: pure functions of values.
They start nothing, write nothing and read no clock.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Any, NamedTuple

from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.records import LaunchRecord, StopRecord

MAX_BLAMELESS = 3
"""How often a job is started again that its cluster lost: a node failed, or it was preempted or forgotten.
These losses use up none of the job's own retries, nor the other way round."""
MAX_UNSTARTED = 3
"""How often a job is started again when its runner vanished before it reached the task's code."""


@unique
class Arrival(Enum):
    """What a submitted job needs."""

    REUSE = "it is done: nothing"
    ADOPT = "it runs already: to be waited for"
    TAKE = "it may have begun, and runs once: its end is the answer"
    RUN = "to be run"


def on_arrival(found: Derived, *, once: bool = False) -> Arrival:
    """A submission meets a directory. An earlier failure does not stop it: to submit is to try again.

    A job that runs `once` is the exception: another attempt follows only one that certainly never began.
    """
    if found.state is JobState.DONE:
        return Arrival.REUSE
    if found.action is Action.WATCH:
        return Arrival.ADOPT
    if once and found.payload_may_have_run:
        return Arrival.TAKE
    return Arrival.RUN


class Look(NamedTuple):
    """What the directory of a submitted job showed, and what the job needs for that reason."""

    found: Derived
    arrival: Arrival
    stop: StopRecord | None = None
    """The wish to end the attempt that is to be waited for."""


def known_end(found: Derived) -> int:
    """The attempt that had ended when a job was asked for, and is no answer to that; 0 if none had."""
    return found.attempt if found.action is Action.KEEP else 0


def answers(found: Derived, answered: int, *, once: bool = False, again: bool = False) -> bool:
    """True if a directory shows a final state that is news to the owners of the job.

    Of two schedulers one may find the failure of an attempt that began after its own submission: that is the
    answer, and no reason to try again. The other way round, a failure known before is none, though its marker
    lies there until the holder of the lock has opened the next attempt.
    `answered`: the last attempt whose end was known. `again`: what is done is not to be reused.
    """
    if found.action is not Action.KEEP:
        return False
    # Not `>`: when a person deletes the directory, the attempts are counted from 1 again.
    return once or (found.state is JobState.DONE and not again) or found.attempt != answered


def is_told(found: Derived, answered: int, *, once: bool = False, was_stopped: bool = False) -> bool:
    """True if the owners of a job knew that an attempt had failed, and asked for another, before it was over.

    A scheduler that cannot read a directory tells that the attempt failed. The next submission may find that
    attempt not certainly over, and waits for it: its failure is no answer then. Two ends are answers: that of
    a job that runs `once`, and a cancellation in the cluster, which may have come after the submission.
    `was_stopped`: it came before, by a wish for the end of that attempt.
    """
    is_cancelled = found.reason is JobFailureStatus.CANCELLED and found.marker is None
    return found.attempt == answered != 0 and not once and (was_stopped or not is_cancelled)


class RetryLimits(NamedTuple):
    """How often a job may be tried again, and after what."""

    resumable: bool = False
    max_retries: int = 0
    """Restarts after a timeout, for a resumable task."""
    max_lost_retries: int = 0
    """Restarts after its runner was lost while the task's code may have run."""
    once: bool = False
    """No restart at all after the task's code may have run, whatever the other limits say."""

    def recorded(self) -> dict[str, Any]:
        """As the instructions of an attempt keep them; nothing for a job that is never tried again."""
        if self.once or not (self.resumable or self.max_lost_retries):
            return {}
        return {
            "resumable": self.resumable,
            "max_retries": self.max_retries,
            "max_lost_retries": self.max_lost_retries,
        }

    def merged(self, other: RetryLimits) -> RetryLimits:
        """The limits of a job that two submissions ask for: the more generous of the two."""
        if self.once is not other.once:
            return other if self.once else self
        return self._replace(
            max_retries=max(self.max_retries, other.max_retries),
            max_lost_retries=max(self.max_lost_retries, other.max_lost_retries),
        )


NO_RETRY = RetryLimits()


class Tries(NamedTuple):
    """How often it was tried again so far."""

    retry_count: int = 0
    """After a timeout."""
    lost_count: int = 0
    """After a loss of its own."""
    blameless_count: int = 0
    """After a loss by its cluster."""
    withdrawn: bool = False
    """The last of them came to nothing before anything was started."""

    def with_losses_of(self, other: Tries) -> Tries:
        """These, with as many losses of each kind as the other counted at least."""
        return self._replace(
            lost_count=max(self.lost_count, other.lost_count),
            blameless_count=max(self.blameless_count, other.blameless_count),
        )


NO_TRIES = Tries()


class Verdict(NamedTuple):
    """What an ended attempt amounts to: a final state, or another try."""

    state: JobState
    reason: JobFailureStatus | None = None
    message: str | None = None
    tries: Tries | None = None
    """The counts of the next try; None if there is none."""


def tries_of(launch: LaunchRecord | None) -> Tries:
    """The counts that the current attempt recorded."""
    if launch is None:
        return NO_TRIES
    return Tries(launch.retry_count, launch.lost_count, launch.blameless_count, launch.withdrawn)


def after_attempt(found: Derived, tries: Tries, limits: RetryLimits) -> Verdict:
    """The attempt ended: is that final, or is the job tried again?"""
    final = Verdict(found.state, found.reason, found.message)
    if not found.state.finished():
        return final._replace(tries=tries)  # the scheduler that wanted to run it left no trace
    if limits.once and found.payload_may_have_run:
        return final
    if found.reason is JobFailureStatus.TIMEOUT:
        # The seed counts the timeout first and compares afterwards.
        again = tries._replace(retry_count=tries.retry_count + 1)
        if limits.resumable and again.retry_count <= limits.max_retries:
            return final._replace(tries=again)
    elif found.reason is JobFailureStatus.LOST and found.marker is None:
        if (tries.withdrawn or found.revoked or found.untried) and not found.payload_may_have_run:
            return final._replace(tries=tries._replace(withdrawn=False))  # the next one takes its place
        if found.blameless:
            if tries.blameless_count < MAX_BLAMELESS:
                return final._replace(tries=tries._replace(blameless_count=tries.blameless_count + 1))
        elif tries.lost_count < (limits.max_lost_retries if found.payload_may_have_run else MAX_UNSTARTED):
            return final._replace(tries=tries._replace(lost_count=tries.lost_count + 1))
    return final


def explained(found: Derived, wish: StopRecord | None) -> Derived:
    """An attempt that vanished after it was asked to stop did what it was asked: that is the reason."""
    return found if wish is None else found._replace(reason=wish.reason, message=wish.message)


def unless_cancelled(verdict: Verdict, wish: StopRecord | None) -> Verdict:
    """A job that a person wants to end is not tried again, whatever ended the attempt."""
    if wish is None or verdict.tries is None or wish.reason is not JobFailureStatus.CANCELLED:
        return verdict
    return Verdict(JobState.ERROR, wish.reason, wish.message)


def tries_to_come(found: Derived, tries: Tries, limits: RetryLimits) -> Tries:
    """The counts of an attempt that is about to be opened.

    They go on where the attempt before was to be tried again, for whichever owner; what ended for good and is
    submitted once more may use all its tries anew.
    """
    return after_attempt(found, tries, limits).tries or NO_TRIES
