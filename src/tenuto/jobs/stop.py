"""Stopping a running job from any process: its runner is asked, and the wish names the attempt it means.
Waits for nothing; the caller gets a handle on the runner to wait by.
"""

from __future__ import annotations

import contextlib
import signal
from typing import NamedTuple

from tenuto.jobs.directories import JobActed, Outcome, is_real_directory, stale
from tenuto.jobs.key import JobKey
from tenuto.jobs.view import JobsView
from tenuto.launchers.instructions import GRACE_S, Instructions
from tenuto.lifecycle.states import JobFailureStatus, JobState, Standing
from tenuto.workspace import job_directory
from tenuto.workspace.claims import Claimer, claim
from tenuto.workspace.derive_table import Action
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import Machine, ProcessHandle
from tenuto.workspace.records import LaunchRecord, PidRecord, StatusRecord, StopRecord


class Killing(NamedTuple):
    """A job that was asked to stop, with a handle on its runner to wait by; the caller closes it."""

    acted: JobActed
    runner: ProcessHandle | None = None
    grace_s: float = GRACE_S
    """How long the runner lets it end by itself."""
    elsewhere: JobPaths | None = None
    """The job, if its runner is on another host: then its marker tells of the end."""


def kill(
    view: JobsView, key: JobKey, message: str, *, attempt: int | None = None, really: bool = True
) -> Killing:
    """Asks the runner of a job to end it: the wish is written down first, then the runner is told.

    `attempt`: what the person saw running; a later attempt is left alone. Without `really` nothing is done.
    """
    machine, paths = view.machine, view.layout.job(*key)
    if not is_real_directory(machine.files, paths.directory):
        return Killing(JobActed(key, Outcome.GONE, "it has no directory"))
    found = job_directory.look(machine, paths, ask=view.inquiry)
    launch, pid = found.evidence.launch, found.evidence.pid
    now = found.derived.attempt
    if attempt is not None and (other := stale(key, {key: attempt}, now)):
        return Killing(other)
    if isinstance(launch, LaunchRecord) and launch.external and found.derived.action is Action.WATCH:
        if attempt is not None and attempt != now:
            return Killing(JobActed(key, Outcome.STALE, f"attempt {now} runs, not {attempt}", now))
        if not really:
            return Killing(JobActed(key, Outcome.WOULD_KILL, f"attempt {now}, by {launch.launcher}", now))
        return _kill_elsewhere(view, key, launch, message)
    if not found.derived.state.running():
        return Killing(JobActed(key, Outcome.NOT_RUNNING, f"it is {found.derived.state.name.lower()}", now))
    if (
        not isinstance(pid, PidRecord)
        or not isinstance(launch, LaunchRecord)
        or pid.attempt != launch.attempt
    ):
        return Killing(JobActed(key, Outcome.STARTING, "its runner is not known yet: try again", now))
    # The handle is of exactly that process. If the attempt ends meanwhile the signal is lost, and a
    # wish that names an ended attempt is never heard.
    runner = machine.processes.open(pid.identity)
    if runner is None:
        where = f"kill it on {pid.identity.host}" if pid.identity.host != machine.processes.own().host else ""
        outcome = Outcome.ELSEWHERE if where else Outcome.NOT_RUNNING
        return Killing(JobActed(key, outcome, where or "its runner has just ended", now))
    if not really:
        runner.close()
        return Killing(JobActed(key, Outcome.WOULD_KILL, f"attempt {now}", now))
    try:
        runner.send_signal(0)  # asks only for the right to send one
    except PermissionError:
        runner.close()
        told = f"process {pid.identity.pid} is another user's: only that user can stop it"
        return Killing(JobActed(key, Outcome.REFUSED, told, now))
    stop = StopRecord(pid.attempt, JobFailureStatus.CANCELLED, machine.clock.now(), message)
    try:
        job_directory.request_stop(machine.files, paths, stop)
        is_told = runner.send_signal(signal.SIGTERM)
    except FileNotFoundError:  # its runner has just tidied the directory up
        is_told = False
    if not is_told:
        runner.close()
        return Killing(JobActed(key, Outcome.NOT_RUNNING, "it has just ended", now))
    acted = JobActed(key, Outcome.ASKED, f"attempt {now}, process {pid.identity.pid}", now)
    return Killing(acted, runner, _grace_s(launch))


def _kill_elsewhere(view: JobsView, key: JobKey, launch: LaunchRecord, message: str) -> Killing:
    """Ends an attempt that a cluster has: one that has not begun is revoked and marked at once."""
    machine, paths = view.machine, view.layout.job(*key)
    stop = StopRecord(launch.attempt, JobFailureStatus.CANCELLED, machine.clock.now(), message)
    job_directory.request_stop(machine.files, paths, stop)
    is_revoked = claim(machine, paths, launch.nonce, Claimer.SCHEDULER)
    view.inquiry.clusters.stop(paths, launch)
    if is_revoked:
        _mark(view, key, launch, stop)
        return Killing(
            JobActed(key, Outcome.ASKED, f"attempt {launch.attempt}, before it began", launch.attempt)
        )
    acted = JobActed(key, Outcome.ASKED, f"attempt {launch.attempt}, by {launch.launcher}", launch.attempt)
    return Killing(acted, None, _grace_s(launch), paths)


def _mark(view: JobsView, key: JobKey, launch: LaunchRecord, stop: StopRecord) -> None:
    """Writes the marker of an attempt that no runner will ever begin, unless a scheduler is about to."""
    machine, paths = view.machine, view.layout.job(*key)
    lock = job_directory.take_lock(machine, paths)
    if lock is None:
        return
    with contextlib.closing(lock):
        current = job_directory.read_launch(machine.files, paths)
        if current is None or current.nonce != launch.nonce or has_ended(machine, paths, launch.attempt):
            return
        now = machine.clock.now()
        marker = Marker(launch.attempt, launch.nonce, reason=stop.reason, message=stop.message, endtime=now)
        standing = Standing(JobState.ERROR, stop.reason, stop.message, endtime=now)
        status = StatusRecord(key.job_id, key.task_id, standing, launch.attempt, launch.retry_count)
        job_directory.finish(machine.files, paths, marker, status)


def has_ended(machine: Machine, paths: JobPaths, attempt: int) -> bool:
    """True if an attempt has left its marker."""
    found = read_markers(machine.files, paths)
    return any(isinstance(one, Marker) and one.attempt == attempt for one in found)


def _grace_s(launch: LaunchRecord) -> float:
    try:
        return Instructions.of(launch).limits.grace_s
    except (ValueError, TypeError, KeyError):
        return GRACE_S
