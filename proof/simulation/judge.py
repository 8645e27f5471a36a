"""Owns the verdict on a world: a ledger that the payloads write, and the promises it is held against.
Trusts nothing of the code under test: it looks at the bytes on the disk and at the table of processes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from proof.simulation.disk import SimulatedDisk
from proof.simulation.fairness import MOST_OVERTAKINGS
from proof.simulation.scenario import Does, JobPlan
from tenuto.launchers.instructions import GRACE_S
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.scheduler.attempts import STOP_GRACE_S
from tenuto.scheduler.decisions import MAX_BLAMELESS
from tenuto.testing.processes import FakeProcesses
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import ProcessIdentity

OBEYS_WITHIN_S = GRACE_S + STOP_GRACE_S + 1.0
"""How long a cancelled job may go on."""


class Payload:
    """One run of a job's payload, as the payload itself saw it."""

    __slots__ = ("attempt", "began_s", "completed", "identity", "memory", "nonce", "runner", "starter")

    def __init__(
        self,
        starter: str,
        runner: ProcessIdentity,
        attempt: int,
        nonce: str,
        identity: ProcessIdentity,
        began_s: float,
        memory: int = 0,
    ) -> None:
        self.starter = starter
        self.runner = runner
        self.attempt = attempt
        self.nonce = nonce
        self.identity = identity
        self.began_s = began_s
        self.memory = memory
        self.completed = False


def left_by(paths: JobPaths, nonce: str) -> tuple[str, bytes]:
    """The file that the payload of an attempt leaves when it ends well."""
    return f"{paths.directory}/output/of-the-task", f"left by {nonce}".encode()


class Excuses(NamedTuple):
    """What happened to the world that may explain a failure."""

    crashes: int = 0
    power_losses: int = 0
    full_disk: bool = False
    slow: bool = False
    """Something stood still, or took long."""


class Judge:
    """Collects what happens, and every promise that is broken."""

    def __init__(
        self,
        jobs: Mapping[str, JobPlan],
        paths: Mapping[str, JobPaths],
        params: bytes,
        disk: SimulatedDisk,
        processes: FakeProcesses,
    ) -> None:
        self.violations: list[str] = []
        self.tokens: Mapping[str, int] = {}
        self.ledger: dict[str, list[Payload]] = {name: [] for name in jobs}
        self.excuses = Excuses()
        self.kills: Counter[str] = Counter()
        """Runners of each job that were killed."""
        self.payload_kills: Counter[str] = Counter()
        self.ended_abruptly = False
        """A runner was killed: by the world, or by a scheduler that had asked it to stop in vain."""
        self.submissions: Counter[str] = Counter()
        self.faulty: set[str] = set()
        """Jobs in whose directory an operation failed."""
        self.was_done: set[str] = set()
        """Jobs of which an owner was told that they are done: for good."""
        self.failed_here: dict[str, set[str]] = {}
        """scheduler -> jobs of which it said that they failed."""
        self.cancelled: dict[str, list[tuple[str, float]]] = {}
        """job -> (scheduler, when), until it is submitted there again."""
        self.ever_cancelled: set[str] = set()
        self._stopped: dict[str, tuple[int, int]] = {}
        """job -> the attempt that a person asked to stop as it ran, and how often it was submitted before"""
        self._under_way: dict[str, set[str]] = {}
        """job -> the schedulers that are taking a submission of it; a cancellation comes before those."""
        self._too_late: set[tuple[str, str]] = set()
        """(job, scheduler) of cancellations that came when the end of the attempt was on record already."""
        self.strangers: list[ProcessIdentity] = []
        """Processes that have nothing to do with Tenuto, and must live."""
        self._jobs = jobs
        self._paths = paths
        self._params = params
        self._disk = disk
        self._processes = processes

    def broken(self, what: str) -> None:
        self.violations.append(what)

    # What schedulers do

    def starts(self, name: str, scheduler: str, attempt: int) -> None:
        is_next = self._stopped.get(name) == (attempt - 1, self.submissions[name])
        if self._is_cancelled(name, scheduler) or (is_next and not self.excuses.power_losses):
            self.broken(f"{name} was started after it was cancelled")

    def _is_cancelled(self, name: str, scheduler: str) -> bool:
        return any(scheduler == where for where, _ in self.cancelled.get(name, ()))

    def overtakings(self, count: int) -> None:
        """How often later ones took the units that a request waits for."""
        excuses = self.excuses
        # A scheduler that is killed right after it took units, and before it counted that, gives them back.
        most = MOST_OVERTAKINGS + excuses.crashes
        is_excused = excuses.slow or excuses.full_disk or excuses.power_losses or self.faulty
        if count > most and not is_excused:
            self.broken(f"a request for tokens was overtaken {count} times")

    # What payloads say

    def begins(self, now: float, name: str, payload: Payload) -> None:
        for other in self.ledger[name]:
            if self._is_alive(other.identity):
                self.broken(f"{name} runs twice at once: attempts {other.attempt} and {payload.attempt}")
        if name in self.was_done:
            self.broken(f"{name} runs again (attempt {payload.attempt}), though it was done")
        for need in self._jobs[name].needs:
            if self._disk.peek(self._paths[need].done) is None:
                self.broken(f"{name} runs before {need}, which it depends on, is done")
            self._look_at_outputs(need)
        is_far_and_dark = self._jobs[name].fate is not None and self.excuses.power_losses  # it was pending
        if self._disk.peek(self._paths[name].params) != self._params and not is_far_and_dark:
            self.broken(f"{name} runs with half-written parameters")
        for earlier in self.ledger[name]:
            if earlier.attempt == payload.attempt and not self.excuses.power_losses:
                self.broken(f"{name} has two attempts with the number {payload.attempt}")
        self._look_at_growth(name, payload)
        self.ledger[name].append(payload)
        self._count_tokens(name)
        job = self._jobs[name]
        blameless = 0 if job.fate is None else MAX_BLAMELESS
        grown = 0 if job.grows is None else (job.grows[1] // job.grows[0]).bit_length()
        most = self.submissions[name] * (1 + job.max_retries + job.max_lost_retries + blameless + grown)
        if job.once and len(self.ledger[name]) > 1 and not self.excuses.power_losses:
            self.broken(f"{name} runs once, and began {len(self.ledger[name])} times")
        elif len(self.ledger[name]) > most and not self.excuses.power_losses:
            self.broken(f"{name} ran {len(self.ledger[name])} times for {self.submissions[name]} submissions")

    def _look_at_growth(self, name: str, payload: Payload) -> None:
        """More memory follows an attempt that ran out of it only, and then twice as much."""
        job, before = self._jobs[name], self.ledger[name]
        if job.grows is None:
            return
        first, most, _ = job.grows
        if payload.memory > most:
            self.broken(f"{name} may use {payload.memory}, and is to grow to {most} at most")
        if not before or self.excuses.power_losses:
            return
        last = before[-1].memory
        allowed = {first, last} | ({min(2 * last, most)} if last < job.wants else set())
        if payload.memory not in allowed:
            self.broken(f"{name} may use {payload.memory} after {last}, of which it wants {job.wants}")

    def _count_tokens(self, begun: str) -> None:
        """The units of all whose runner lives are no more than there are."""
        for token, _ in self._jobs[begun].tokens:
            holders = {
                name: dict(self._jobs[name].tokens)[token]
                for name, runs in self.ledger.items()
                if token in dict(self._jobs[name].tokens) and any(self._is_alive(run.runner) for run in runs)
            }
            if sum(holders.values()) > self.tokens[token]:
                self.broken(f"{token} has {self.tokens[token]} units, and more are in use: {holders}")

    def completes(self, now: float, name: str, payload: Payload) -> None:
        payload.completed = True
        if self.excuses.slow or self._jobs[name].duration_s < 1.0:
            return
        for scheduler, when in self.cancelled.get(name, ()):
            if scheduler == payload.starter and now > when + OBEYS_WITHIN_S:
                self.broken(f"{name} went on after it was cancelled")

    # What persons do, and are told

    def submitted(self, name: str, scheduler: str) -> None:
        self.submissions[name] += 1
        self._under_way.setdefault(name, set()).add(scheduler)
        if name in self.cancelled:
            self.cancelled[name] = [entry for entry in self.cancelled[name] if entry[0] != scheduler]
            self._too_late.discard((name, scheduler))

    def took(self, name: str, scheduler: str) -> None:
        """A submission is no longer under way: the scheduler has taken or refused it, or is dead."""
        self._under_way[name].discard(scheduler)

    def dies(self, scheduler: str) -> None:
        for name in self._under_way:
            self.took(name, scheduler)

    def cancels(self, now: float, name: str, scheduler: str) -> None:
        self.cancelled.setdefault(name, []).append((scheduler, now))
        paths = self._paths[name]
        attempt: int | None = (self._record(paths.launch) or {}).get("attempt")
        if attempt is None:
            return
        if attempt in [(self._record(path) or {}).get("attempt") for path in (paths.done, paths.failed)]:
            self._too_late.add((name, scheduler))
        elif self._is_to_stop(paths, attempt):
            self._stopped[name] = attempt, self.submissions[name] - len(self._under_way[name])

    def _is_to_stop(self, paths: JobPaths, attempt: int) -> bool:
        """Whether it is written down that a person wants the attempt to end."""
        wish = self._record(paths.stop) or {}
        return wish.get("attempt") == attempt and wish.get("reason") == JobFailureStatus.CANCELLED.name

    def told(self, name: str, scheduler: str, record: StateRecord) -> None:
        if record.state is JobState.DONE:
            self._told_done(name)
        elif record.state is JobState.ERROR:
            failed = self.failed_here.setdefault(scheduler, set())
            failed.add(name)
            is_lost = record.reason is JobFailureStatus.LOST and not self.excuses.slow
            was_in_time = (name, scheduler) not in self._too_late
            if is_lost and was_in_time and self._is_cancelled(name, scheduler):
                self.broken(f"{name} was cancelled, and is said to be lost")
            if not self._is_excused(name, scheduler, record.reason):
                reason = record.reason.name if record.reason else "nothing"
                self.broken(f"{name} is said to have failed ({reason}: {record.message}), for no reason")

    def _told_done(self, name: str) -> None:
        self.was_done.add(name)
        marker = self._record(self._paths[name].done)
        if marker is None:
            self.broken(f"{name} is said to be done, and has no marker")
            return
        runs = [run for run in self.ledger[name] if run.attempt == marker.get("attempt")]
        if not any(run.completed and run.nonce == marker.get("nonce") for run in runs):
            self.broken(f"{name} is said to be done, but attempt {marker.get('attempt')} never ended well")
        self._look_at_outputs(name)

    def _look_at_outputs(self, name: str) -> None:
        """What a job that is done has left is whole, and so are its parameters."""
        paths = self._paths[name]
        marker = self._record(paths.done)
        if marker is None:
            return
        output, content = left_by(paths, marker.get("nonce", ""))
        if self._disk.peek(output) != content:
            self.broken(f"{name} is done, and what it left is not whole")
        is_far_and_dark = self._jobs[name].fate is not None and self.excuses.power_losses  # as it began
        if self._disk.peek(paths.params) != self._params and not is_far_and_dark:
            self.broken(f"{name} is done, and its parameters are not whole")

    def _is_excused(self, name: str, scheduler: str, reason: JobFailureStatus | None) -> bool:
        job, excuses = self._jobs[name], self.excuses
        disk = excuses.full_disk or name in self.faulty
        if reason is JobFailureStatus.DEPENDENCY:
            return any(need in self.failed_here[scheduler] for need in job.needs)
        if reason is JobFailureStatus.CANCELLED:
            return name in self.ever_cancelled
        if reason is JobFailureStatus.MEMORY:
            return bool(self.ledger[name]) and (job.once or self._starves(job))
        if reason is JobFailureStatus.TIMEOUT:
            return job.walltime_s is not None and bool(self.ledger[name])
        if reason is JobFailureStatus.LOST:
            losses = self.kills[name] + excuses.crashes + excuses.power_losses
            # A scheduler that waits for another to take up a lost job gives up after a while.
            if job.fate is not None and disk:  # a claim that cannot be written, a beat that fails
                return True
            forgiven = 0 if job.once else job.max_lost_retries
            return name in self.faulty or excuses.slow or losses > forgiven
        if reason is JobFailureStatus.FAILED:
            return (
                disk or (job.does is Does.BADLY and bool(self.ledger[name])) or self.payload_kills[name] > 0
            )
        return False

    # The end

    def expects(self, name: str) -> tuple[JobState, JobFailureStatus | None]:
        """What a job amounts to once nothing goes wrong any more."""
        job = self._jobs[name]
        if job.once and (end := self._recorded_end(name)) is not None:
            return end
        if any(self.expects(need)[0] is JobState.ERROR for need in job.needs):
            return JobState.ERROR, JobFailureStatus.DEPENDENCY
        if job.does is Does.BADLY:
            return JobState.ERROR, JobFailureStatus.FAILED
        if job.does is Does.HANGS:
            return JobState.ERROR, JobFailureStatus.TIMEOUT
        if self._starves(job):
            return JobState.ERROR, JobFailureStatus.MEMORY
        return JobState.DONE, None

    @staticmethod
    def _starves(job: JobPlan) -> bool:
        """Whether a job wants more than it may grow to."""
        return job.grows is not None and job.wants > job.grows[1]

    def _recorded_end(self, name: str) -> tuple[JobState, JobFailureStatus | None] | None:
        """What the directory of a job that runs once says, if an attempt ended: no later one changes it."""
        paths = self._paths[name]
        failed = self._record(paths.failed)
        if failed is not None:
            return JobState.ERROR, JobFailureStatus[failed["reason"]]
        if self._record(paths.done) is not None:
            return JobState.DONE, None
        is_torn = self._disk.peek(paths.launch) is not None and self._record(paths.launch) is None
        # After a power loss nobody knows whether it began, nor which attempt a marker would be of.
        return (JobState.ERROR, JobFailureStatus.LOST) if is_torn and self.excuses.power_losses else None

    def inspects_the_machine(self) -> None:
        """Once everything ended: nothing runs, nothing is locked, and nothing on the disk lies."""
        for name, runs in self.ledger.items():
            for run in runs:
                if self._is_alive(run.identity):
                    self.broken(f"a payload of {name} (attempt {run.attempt}) still runs")
            self._inspect_directory(name)
        for stranger in self.strangers:
            if not self._is_alive(stranger):
                self.broken(f"a process that has nothing to do with it (pid {stranger.pid}) was killed")

    def _inspect_directory(self, name: str) -> None:
        paths = self._paths[name]
        for path in (paths.done, paths.failed):
            if self._disk.peek(path) is not None and self._record(path) is None:
                self.broken(f"{path} cannot be read")
        if name in self.was_done:
            done = self._record(paths.done)
            if done is None:
                self.broken(f"{name} was done, and its marker is gone")
            if self._disk.peek(paths.failed) is not None and not self._is_revived(paths, done):
                self.broken(f"{name} was done, and is marked as failed, too")
            self._look_at_outputs(name)
        if not self._was_interrupted():
            for path in self._disk.below(paths.directory):
                if path.endswith("-tmp"):
                    self.broken(f"{path} was left behind")

    def _is_revived(self, paths: JobPaths, done: dict[str, Any] | None) -> bool:
        """Whether a power loss undid that the next attempt removed a failure: nobody believes it any more.

        The attempt was pending in a cluster meanwhile; one of this machine would have been opened anew.
        """
        failed = self._record(paths.failed)
        if failed is None or done is None or not self.excuses.power_losses:
            return False
        return bool(failed["attempt"] < done["attempt"])

    def _was_interrupted(self) -> bool:
        """Whether a process was kept from finishing what it wrote."""
        excuses = self.excuses
        was_short = excuses.full_disk or bool(self.faulty)
        return bool(excuses.crashes or excuses.power_losses) or was_short or self.ended_abruptly

    def _record(self, path: str) -> dict[str, Any] | None:
        data = self._disk.peek(path)
        if data is None:
            return None
        try:
            found = json.loads(data)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def _is_alive(self, identity: ProcessIdentity) -> bool:
        return self._processes.identify(identity.pid) == identity
