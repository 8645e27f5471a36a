"""Stopping a running job from any process: its runner is asked, and the wish names the attempt it means.
Waits for nothing; the caller gets a handle on the runner to wait by.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from tenuto.jobs.directories import is_real_directory
from tenuto.jobs.key import JobKey
from tenuto.jobs.outcome import Acted, Outcome, stale
from tenuto.jobs.view import JobsView
from tenuto.launchers.instructions import GRACE_S, Instructions
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace import job_directory
from tenuto.workspace.ports import ProcessHandle
from tenuto.workspace.records import LaunchRecord, PidRecord, StopRecord


class Killing(NamedTuple):
    """A job that was asked to stop, with a handle on its runner to wait by; the caller closes it."""

    acted: Acted
    runner: ProcessHandle | None = None
    grace_s: float = GRACE_S
    """How long the runner lets it end by itself."""


def kill(
    view: JobsView, key: JobKey, message: str, *, attempt: int | None = None, really: bool = True
) -> Killing:
    """Asks the runner of a job to end it: the wish is written down first, then the runner is told.

    `attempt`: what the person saw running; a later attempt is left alone. Without `really` nothing is done.
    """
    machine, paths = view.machine, view.layout.job(*key)
    if not is_real_directory(machine.files, paths.directory):
        return Killing(Acted(key, Outcome.GONE, "it has no directory"))
    found = job_directory.look(machine, paths)
    launch, pid = found.evidence.launch, found.evidence.pid
    now = found.derived.attempt
    if attempt is not None and (other := stale(key, {key: attempt}, now)):
        return Killing(other)
    if not found.derived.state.running():
        return Killing(Acted(key, Outcome.NOT_RUNNING, f"it is {found.derived.state.name.lower()}", now))
    if (
        not isinstance(pid, PidRecord)
        or not isinstance(launch, LaunchRecord)
        or pid.attempt != launch.attempt
    ):
        return Killing(Acted(key, Outcome.STARTING, "its runner is not known yet: try again", now))
    # The handle is of exactly that process. If the attempt ends meanwhile the signal reaches nobody, and a
    # wish that names an ended attempt is never heard.
    runner = machine.processes.open(pid.identity)
    if runner is None:
        where = f"kill it on {pid.identity.host}" if pid.identity.host != machine.processes.own().host else ""
        outcome = Outcome.ELSEWHERE if where else Outcome.NOT_RUNNING
        return Killing(Acted(key, outcome, where or "its runner has just ended", now))
    if not really:
        runner.close()
        return Killing(Acted(key, Outcome.WOULD_KILL, f"attempt {now}", now))
    stop = StopRecord(pid.attempt, JobFailureStatus.CANCELLED, machine.clock.now(), message)
    job_directory.request_stop(machine.files, paths, stop)
    if not runner.send_signal(signal.SIGTERM):
        runner.close()
        return Killing(Acted(key, Outcome.NOT_RUNNING, "it has just ended", now))
    acted = Acted(key, Outcome.ASKED, f"attempt {now}, process {pid.identity.pid}", now)
    return Killing(acted, runner, _grace_s(launch))


def _grace_s(launch: LaunchRecord) -> float:
    try:
        return Instructions.of(launch).limits.grace_s
    except (ValueError, TypeError, KeyError):
        return GRACE_S
