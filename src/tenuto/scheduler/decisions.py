"""What to do with a job, given what its directory shows: pure functions of values.
They start nothing, write nothing and read no clock.
"""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Mapping
from enum import Enum, unique
from typing import Any, NamedTuple

from tenuto.errors import DirectoryUnusable, LaunchRefused, TenutoError
from tenuto.launchers.runner.verdict import PASSING
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.ports import Files
from tenuto.workspace.records import LaunchRecord, StopRecord

logger = logging.getLogger("tenuto.scheduler")

_FULL = (errno.ENOSPC, errno.EDQUOT)
ENOUGH_BYTES = 1 << 20
ENOUGH_INODES = 64
"""What a disk that was full must have free before jobs are started again."""


def shortage(error: Exception) -> OSError | None:
    """What the machine is short of for now, if that is what went wrong."""
    cause = error.__cause__ if isinstance(error, DirectoryUnusable) else error
    return cause if isinstance(cause, OSError) and cause.errno in PASSING else None


def has_recovered(error: OSError, files: Files, directory: str) -> bool:
    """Whether it is worth trying again: always, but for a disk that is still full."""
    if error.errno not in _FULL:
        return True
    try:
        free = files.free_space(directory)
    except OSError:  # the whole disk is gone: let the jobs find out, and say so
        return True
    return free.bytes >= ENOUGH_BYTES and free.inodes >= ENOUGH_INODES


def failure(job_id: str, error: Exception) -> Verdict:
    """The end of a job that could not be run."""
    if isinstance(error, LaunchRefused):
        return Verdict(JobState.ERROR, JobFailureStatus.REJECTED, str(error))
    if isinstance(error, TenutoError):
        return Verdict(JobState.ERROR, JobFailureStatus.FAILED, str(error))
    if not isinstance(error, OSError):
        logger.error("job %s could not be run", job_id, extra={"action": "run_failed"}, exc_info=error)
    return Verdict(JobState.ERROR, JobFailureStatus.FAILED, worded(error))


def worded(error: BaseException) -> str:
    """An error for a message; a full disk is called by its name."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"DISK_FULL: {error}"
    return f"{type(error).__name__}: {error}"


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

    A job that runs `once` is the exception: another attempt follows only one that surely never began.
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
    """The request to end the attempt that is to be waited for."""


def known_end(found: Derived) -> int:
    """The attempt that had ended when a job was asked for, and is no answer to that; 0 if none had."""
    return found.attempt if found.action is Action.KEEP else 0


def answers(found: Derived, answered: int, *, once: bool = False, again: bool = False) -> bool:
    """True if a directory shows a final state that is news to the owners of the job.

    Of two schedulers one may find the failure of an attempt that began after its own submission: that is the
    answer, and no reason to try again. The other way round, a failure known before is none, though its marker
    lies there until the holder of the lock has opened the next attempt.
    `answered`: the last attempt whose end was known. `again`: a done job is not to be reused.
    """
    if found.action is not Action.KEEP:
        return False
    # Not `>`: when a person deletes the directory, the attempts are counted from 1 again.
    return ((once or found.state is JobState.DONE) and not again) or found.attempt != answered


def is_told(found: Derived, answered: int, *, once: bool = False, was_stopped: bool = False) -> bool:
    """True if the owners of a job knew that an attempt had failed, and asked for another, before it was over.

    A scheduler that cannot read a directory tells that the attempt failed. The next submission may find that
    attempt not certainly over, and waits for it: its failure is no answer then. Two ends are answers: that of
    a job that runs `once`, and a cancellation in the cluster, which may have come after the submission.
    `was_stopped`: it came before, by a request for the end of that attempt.
    """
    is_cancelled = found.reason is JobFailureStatus.CANCELLED and found.marker is None
    return found.attempt == answered != 0 and not once and (was_stopped or not is_cancelled)


@unique
class Cause(Enum):
    """Why an attempt failed, as far as a retry rule can name it."""

    MEMORY = "memory"
    TIMEOUT = "timeout"
    LOST = "lost"
    FAILED = "failed"


class Allowance(NamedTuple):
    """What an attempt may use, as far as it can grow; None: without limit."""

    memory_bytes: int | None = None
    duration_s: float | None = None


class Growth(NamedTuple):
    """How a need grows from one attempt to the next."""

    need: str
    """The field of `Allowance`."""
    factor: float
    most: float
    """Bytes or seconds; no attempt asks for more."""

    def grown(self, needs: Allowance, times: int) -> Allowance:
        """The needs after so many further attempts; never less than before, never beyond the bound."""
        before = getattr(needs, self.need)
        if before is None or not times or before >= self.most:
            return needs
        # A power of the factor may overflow long after the bound is reached.
        power = min(times, math.ceil(math.log(self.most / before, self.factor)) + 1)
        after = min(before * self.factor**power, self.most)
        return needs._replace(**{self.need: math.ceil(after) if type(before) is int else after})

    def is_spent(self, needs: Allowance) -> bool:
        """True if an attempt with these needs was the last that this growth allows."""
        asked = getattr(needs, self.need)
        return asked is None or asked >= self.most


class Rule(NamedTuple):
    """The further attempts after one cause."""

    further: int | None = None
    """At most so many; None: until an attempt at the bound of the growth has failed."""
    growth: Growth | None = None
    after_s: float = 0.0
    """How long the job waits before a further attempt."""


class RetryRules(NamedTuple):
    """The rule for each cause that the user named; None: the limits of `RetryLimits` hold.

    `jobs.retry_rules` reads them from a text.
    """

    memory: Rule | None = None
    timeout: Rule | None = None
    lost: Rule | None = None
    failed: Rule | None = None

    def rule(self, cause: Cause) -> Rule | None:
        """The rule for a cause."""
        found: Rule | None = getattr(self, cause.value)
        return found


NO_RULES = RetryRules()


class RetryLimits(NamedTuple):
    """How often a job may be tried again, and after what."""

    resumable: bool = False
    max_retries: int = 0
    """Restarts after a timeout, for a resumable task."""
    max_lost_retries: int = 0
    """Restarts after its runner was lost while the task's code may have run."""
    once: bool = False
    """No restart at all after the task's code may have run, whatever the other limits say."""
    rules: RetryRules = NO_RULES
    """Causes that are named here know no other limit."""
    needs: Allowance = Allowance()
    """What the first attempt may use; only looked at where a rule says that it grows."""
    by_rules: bool = False
    """Of a job that runs once: its rules hold, as for a candidate, whose last attempt is its answer."""

    def needs_of(self, tries: Tries) -> Allowance:
        """What the next attempt may use, after so many tries: grown only by causes whose rule says so."""
        needs = self.needs
        for cause in Cause:
            rule = self.rules.rule(cause)
            if rule is not None and rule.growth is not None:
                needs = rule.growth.grown(needs, tries.tried_after(cause))
        return needs

    def recorded(self) -> dict[str, Any]:
        """As the instructions of an attempt keep them; nothing for a job that is never tried again."""
        if self.once or not (self.resumable or self.max_lost_retries or self.rules != NO_RULES):
            return {}
        recorded: dict[str, Any] = {
            "resumable": self.resumable,
            "max_retries": self.max_retries,
            "max_lost_retries": self.max_lost_retries,
        }
        if self.rules != NO_RULES:
            recorded["rules"] = [
                [cause.value, rule.further, rule.growth and list(rule.growth), rule.after_s]
                for cause in Cause
                if (rule := self.rules.rule(cause)) is not None
            ]
            recorded["needs"] = list(self.needs)
        return recorded

    @classmethod
    def of_record(cls, recorded: Mapping[str, Any]) -> RetryLimits:
        """The limits that the instructions of an attempt kept; `TypeError` or `ValueError` for others."""
        plain = {**recorded}
        rules = {
            Cause(cause).value: Rule(further, growth and Growth(*growth), after_s)
            for cause, further, growth, after_s in plain.pop("rules", ())
        }
        return cls(**{**plain, "rules": RetryRules(**rules), "needs": Allowance(*plain.pop("needs", ()))})

    def merged(self, other: RetryLimits) -> RetryLimits:
        """The limits of a job that two submissions ask for: the more generous of the two."""
        if self.once is not other.once:
            return other if self.once else self
        return self._replace(
            max_retries=max(self.max_retries, other.max_retries),
            max_lost_retries=max(self.max_lost_retries, other.max_lost_retries),
            rules=self.rules if other.rules == NO_RULES else other.rules,
            needs=self.needs if other.rules == NO_RULES else other.needs,
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
    memory_count: int = 0
    """After it ran out of memory."""
    failed_count: int = 0
    """After it failed by itself."""

    def tried_after(self, cause: Cause) -> int:
        """How often it was tried again after a cause."""
        counted: int = getattr(self, _COUNTS[cause])
        return counted

    def after(self, cause: Cause) -> Tries:
        """These, with one more try after a cause."""
        counted: dict[str, Any] = {_COUNTS[cause]: self.tried_after(cause) + 1}
        return self._replace(**counted)

    def with_losses_of(self, other: Tries) -> Tries:
        """These, with as many losses of each kind as the other counted at least."""
        return self._replace(
            lost_count=max(self.lost_count, other.lost_count),
            blameless_count=max(self.blameless_count, other.blameless_count),
        )


NO_TRIES = Tries()

_COUNTS = {
    Cause.MEMORY: "memory_count",
    Cause.TIMEOUT: "retry_count",
    Cause.LOST: "lost_count",
    Cause.FAILED: "failed_count",
}


class Verdict(NamedTuple):
    """What an ended attempt amounts to: a final state, or another try."""

    state: JobState
    reason: JobFailureStatus | None = None
    message: str | None = None
    tries: Tries | None = None
    """The counts of the next try; None if there is none."""
    after_s: float = 0.0
    """How long the job waits before that try."""


def tries_of(launch: LaunchRecord | None) -> Tries:
    """The counts that the current attempt recorded."""
    if launch is None:
        return NO_TRIES
    return Tries(
        launch.retry_count,
        launch.lost_count,
        launch.blameless_count,
        launch.withdrawn,
        launch.memory_count,
        launch.failed_count,
    )


def after_attempt(found: Derived, tries: Tries, limits: RetryLimits) -> Verdict:
    """The attempt ended: is that final, or is the job tried again?"""
    final = Verdict(found.state, found.reason, found.message)
    if not found.state.finished():
        return final._replace(tries=tries)  # the scheduler that wanted to run it left no trace
    is_over = limits.once and found.payload_may_have_run
    cause = None if is_over and not limits.by_rules else _cause(found)
    rule = None if cause is None else limits.rules.rule(cause)
    if cause is not None and rule is not None:
        is_spent = rule.further is not None and tries.tried_after(cause) >= rule.further
        if is_spent or (rule.growth is not None and rule.growth.is_spent(limits.needs_of(tries))):
            return final
        return final._replace(tries=tries.after(cause), after_s=rule.after_s)
    if is_over:
        return final
    if found.reason is JobFailureStatus.TIMEOUT:
        # experimaestro counts the timeout first and compares afterwards.
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


def runs_once(found: Derived, launch: object, limits: RetryLimits) -> bool:
    """True if the end that a directory shows is the answer of its job, which no rule has tried again."""
    if not limits.by_rules:
        return limits.once
    tries = tries_of(launch if isinstance(launch, LaunchRecord) else None)
    return limits.once and after_attempt(found, tries, limits).tries is None


def _cause(found: Derived) -> Cause | None:
    """The cause that a rule may name; None for losses that are the machine's or the cluster's."""
    if found.reason is None or found.reason.name not in Cause.__members__:
        return None
    cause = Cause[found.reason.name]
    if cause is Cause.LOST and (
        found.marker is not None or found.blameless or not found.payload_may_have_run
    ):
        return None
    return cause


def explained(found: Derived, request: StopRecord | None) -> Derived:
    """An attempt that vanished after it was asked to stop followed the request: that is the reason."""
    return found if request is None else found._replace(reason=request.reason, message=request.message)


def unless_cancelled(verdict: Verdict, request: StopRecord | None) -> Verdict:
    """A job that a person wants to end is not tried again, whatever ended the attempt."""
    if request is None or verdict.tries is None or request.reason is not JobFailureStatus.CANCELLED:
        return verdict
    return Verdict(JobState.ERROR, request.reason, request.message)


def tries_to_come(found: Derived, tries: Tries, limits: RetryLimits) -> Tries:
    """The counts of an attempt that is about to be opened.

    They continue where the attempt before was to be tried again, for whichever owner; one ended for good and
    submitted once more may use all its tries anew.
    """
    return after_attempt(found, tries, limits).tries or NO_TRIES
