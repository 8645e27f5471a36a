"""What an attempt amounts to once it ended: a final state, or another try; decided under the lock of the job.
Starts nothing and waits for nothing but the end of leftovers; the rules are in `decisions`.
"""

from __future__ import annotations

import contextlib

from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing
from tenuto.scheduler.decisions import (
    Tries,
    Verdict,
    after_attempt,
    answers,
    explained,
    tries_of,
    unless_cancelled,
)
from tenuto.scheduler.handover import Handovers
from tenuto.scheduler.jobs import Job
from tenuto.workspace import job_directory
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.job_directory import Settled
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import Liveness, LockHandle, Machine
from tenuto.workspace.records import LaunchRecord, StatusRecord, StopRecord


class Verdicts:
    """Judges the attempts of jobs; in the loop's thread, but for `look`."""

    def __init__(self, machine: Machine, handovers: Handovers) -> None:
        self.machine = machine
        self._handovers = handovers
        self._ask = handovers.ask
        self._refused: set[str] = set()
        """The nonces of attempts that the machine refused, and whose record could not be written."""

    def look(self, job: Job) -> Settled:
        """What the directory of a job shows, and its cluster knows; from any thread."""
        return job_directory.look(self.machine, job.paths, ask=self._ask)

    def _tries(self, launch: LaunchRecord | None) -> Tries:
        """The counts that an attempt recorded, and whether it was refused by the machine."""
        tries = tries_of(launch)
        if launch is not None and launch.nonce in self._refused:
            self._refused.discard(launch.nonce)
            return tries._replace(withdrawn=True)
        return tries

    async def _swept(self, job: Job, lock: LockHandle, found: Settled) -> Settled:
        """What the directory shows under the lock, once leftovers of an earlier attempt are gone.

        A job that lost its runner is swept, even if no process holds the second byte: what a task starts by
        `subprocess` has no descriptor of its parent's, and goes on when runner and payload are killed.
        """
        lost = found.derived.reason is JobFailureStatus.LOST and found.derived.marker is None
        if not lost or found.evidence.liveness is Liveness.REBOOTED or found.derived.external:
            return found
        alive = await job.launcher.sweep(job.paths, launch_of(found))
        found = job_directory.settle(self.machine, job.paths, lock, ask=self._ask)
        if alive:
            message = f"its runner is gone, and what it left cannot be ended: {', '.join(map(str, alive))}"
            stuck = found.derived._replace(action=Action.SWEEP, message=message)
            return found._replace(derived=stuck)
        return found

    def _verdict(self, job: Job, found: Settled) -> Verdict:
        job.attempt = found.derived.attempt
        marker = found.derived.marker
        job.marker = marker and marker.gist()
        launch = launch_of(found)
        if launch is not None:
            job.tries = tries_of(launch)
            job.life = launch.life
            if launch.aside and found.derived.state is JobState.DONE:
                drop_aside(self.machine, job)
        verdict = after_attempt(self._explained(job, found.derived), job.tries, job.retry)
        return self._unless_cancelled(job, verdict)

    def _concluded(self, job: Job, found: Settled) -> Verdict:
        """The verdict on an attempt whose runner is gone; a final one is marked, under the job's lock."""
        verdict = self._verdict(job, found)
        launch = launch_of(found)
        if verdict.tries is None and found.derived.marker is None and launch is not None:
            self._mark(job, launch, verdict.reason or JobFailureStatus.LOST, verdict.message)
        return verdict

    def _explained(self, job: Job, derived: Derived) -> Derived:
        """A runner that vanished after it was asked to stop did what it was asked: it is not tried again."""
        stop = None
        if derived.marker is None:
            if derived.reason is JobFailureStatus.LOST or derived.external:
                stop = self._wish(job)
        elif derived.reason is JobFailureStatus.LOST:
            # Another scheduler marked it, which could not know: a full disk had not taken the wish.
            stop = job.stop
        return explained(derived, stop)

    def _wish(self, job: Job) -> StopRecord | None:
        """The wish to stop the current attempt: of a person here, or written down by another process."""
        wish = job.stop or job_directory.read_stop(self.machine.files, job.paths, job.attempt)
        return None if wish == job.spent_stop else wish

    def _unless_cancelled(self, job: Job, verdict: Verdict) -> Verdict:
        """A job that a person wants to end is not tried again, whatever ended the attempt."""
        return verdict if verdict.tries is None else unless_cancelled(verdict, self._wish(job))

    def _mark(self, job: Job, launch: LaunchRecord, reason: JobFailureStatus, message: str | None) -> None:
        """Writes the marker that a runner could not write, under the job's lock."""
        now = self.machine.clock.now()
        marker = Marker(
            attempt=launch.attempt,
            nonce=launch.nonce,
            reason=reason,
            message=message,
            starttime=job.starttime,
            endtime=now,
        )
        standing = job.standing._replace(state=JobState.ERROR, reason=reason, message=message, endtime=now)
        job_directory.finish(self.machine.files, job.paths, marker, status_of(job, launch, standing))
        job.marker = marker


def drop_aside(machine: Machine, job: Job) -> None:
    """Remove what a job had before it was run again, if that is still there."""
    if machine.files.stat(job.paths.aside) is not None:
        with contextlib.suppress(OSError):  # the next run tries again
            job_directory.drop_aside(machine, job.layout, job.paths)


def status_of(job: Job, launch: LaunchRecord, standing: Standing) -> StatusRecord:
    return StatusRecord(job.job_id, job.task_id, standing, launch.attempt, launch.retry_count)


def has_answer(job: Job, found: Settled) -> bool:
    """True if what is found ends the wait for a job."""
    marker = found.derived.marker
    again = job.rerun_of is not None and marker is not None and marker.nonce == job.rerun_of
    return answers(found.derived, job.answered, once=job.once, again=again)


def launch_of(found: Settled) -> LaunchRecord | None:
    launch = found.evidence.launch
    return launch if isinstance(launch, LaunchRecord) else None
