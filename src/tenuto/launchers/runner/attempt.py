"""One attempt, from the first line of the runner to its last: the numbered steps of the lifecycle, in order.
Holds only the order of the steps, and what happens if one fails; each step is another module's.
"""

import errno
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tenuto.errors import LockLost
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.kernel import become_subreaper, close_all_but, is_unlinked
from tenuto.launchers.leftovers import kill_descendants
from tenuto.launchers.payload.limits import BoundedLogs, limit_memory, open_logs
from tenuto.launchers.payload.payload import Payload, run_payload
from tenuto.launchers.payload.report import disk_message, open_report
from tenuto.launchers.runner.payload_start import STOPPED, WITHDRAWN, start_patiently
from tenuto.launchers.runner.runner_protocol import (
    BROKEN,
    ENDED,
    FAILED,
    READY,
    REFUSAL,
    REFUSED,
    SETUP_FAILED,
    SIGNALS,
    STALE,
    UNMARKED,
    UNRECORDED,
    Inherited,
    PayloadToBe,
    shown,
)
from tenuto.launchers.runner.supervisor import LEFTOVERS_ALIVE, Supervisor
from tenuto.launchers.runner.verdict import PASSING, PayloadVerdict, judge
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.light import NamedTuple, signal
from tenuto.workspace.attempt_files import finish, keep_record, preserve, read_launch, read_stop, write_pid
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Marker, brief_record, has_marker
from tenuto.workspace.ports import DESCENDANTS_BYTE, Machine
from tenuto.workspace.records import LaunchRecord, PidRecord, StatusRecord

if TYPE_CHECKING:
    from tenuto.launchers.manifest import SetupFailure

_FIRST_STEPS_S = 30.0
"""How long an external attempt tries its first steps: the disk may show old entries of its directory."""
_PILOT_BEAT_S = 30.0
"""How often a runner beats that was forked inside an allocation, by a pilot, which beats for it besides."""


class RunnerAttempt(NamedTuple):
    """What all steps need to know."""

    machine: Machine
    paths: JobPaths
    launch: LaunchRecord
    instructions: Instructions
    started: datetime
    began: float
    """When that was, by a clock that is never set."""
    why_fresh: str | None = None
    is_external: bool = False
    lock: int | None = None
    """The descriptor of the lock file."""


def run(inherited: Inherited) -> int:
    """Run the attempt; returns, twice, the exit code: of the runner, and in its child of the payload."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    machine = inherited.machine or this_machine()
    paths = JobPaths(inherited.directory, inherited.script_name)
    launch = _current_launch(machine, paths, inherited)
    if launch is None:
        return STALE
    _stand_apart(inherited)
    attempt = RunnerAttempt(
        machine,
        paths,
        launch,
        Instructions.of(launch),
        machine.clock.now(),
        machine.clock.uptime(),
        inherited.why_fresh,
        lock=inherited.lock,
    )
    if launch.external and inherited.beat_s is None:
        inherited = inherited._replace(beat_s=_PILOT_BEAT_S)
    if inherited.beat_s is not None:
        attempt = attempt._replace(is_external=True)
    try:
        if inherited.failed_setup is not None:
            return _rung(inherited, _fail_setup(attempt, inherited.failed_setup))
        try:
            payload = _first_steps(attempt, inherited)
        except OSError as error:
            if error.errno not in PASSING or not (attempt.is_external or inherited.ready is not None):
                raise
            return _refused(inherited, error)
        _say_ready(inherited)
        child = start_patiently(payload, inherited)
    except OSError as error:
        failed = PayloadVerdict(JobFailureStatus.FAILED, disk_message(error))
        return _rung(inherited, _record(attempt, _marker(attempt, failed)))
    if child == STOPPED:
        return _rung(inherited, _record(attempt, _marker(attempt, _stopped(attempt))))
    if child == WITHDRAWN:
        return _rung(inherited, REFUSED)
    if child == 0:
        # First of all: until it has closed the lock, the payload of a runner that is killed keeps it.
        os.close(inherited.lock)
        return run_payload(payload)
    os.close(inherited.descendants)
    return _rung(inherited, _supervise(attempt, payload, child, inherited.spare))


def _first_steps(attempt: RunnerAttempt, inherited: Inherited) -> Payload:
    """Open the logs and write the pid record; under a cluster again, while the disk shows older files."""
    clock = attempt.machine.clock
    give_up = clock.monotonic() + (_FIRST_STEPS_S if attempt.is_external else 0.0)
    while True:
        try:
            payload = _prepare(attempt, inherited)
            own = attempt.machine.processes.own()
            record = PidRecord(own, attempt.launch.attempt, attempt.started)
            write_pid(attempt.machine.files, attempt.paths, record)
            return payload
        except OSError as error:
            # A runner without a pipe cannot tell its launcher that its machine is short of something.
            is_passing = error.errno in PASSING and inherited.ready is None
            is_late = error.errno in (errno.ENOENT, errno.ESTALE)
            if not (is_passing or is_late) or clock.monotonic() >= give_up:
                raise
        time.sleep(0.2)


def _refused(inherited: Inherited, error: OSError) -> int:
    """Tell the scheduler that the machine refused the start; the scheduler pauses its starts for a while."""
    if inherited.ready is None:  # its cluster passes the exit code on
        os.write(2, f"tenuto: nothing was run: {disk_message(error)}\n".encode())
        return _rung(inherited, REFUSED)
    with suppress(BrokenPipeError):
        os.write(inherited.ready, REFUSAL + bytes([error.errno or 0]))
    return REFUSED


def _fail_setup(attempt: RunnerAttempt, setup: "SetupFailure") -> int:
    """Mark an attempt whose setup failed; what the setup said is the job's standard error."""
    os.write(open_logs(attempt.paths)[1], setup.said)
    failed = PayloadVerdict(JobFailureStatus.FAILED, setup.message)
    exit_code = _record(attempt, _marker(attempt, failed))
    return SETUP_FAILED if exit_code == FAILED else exit_code


def _stopped(attempt: RunnerAttempt) -> PayloadVerdict:
    """The verdict on a job that was stopped before its payload began."""
    stop = read_stop(attempt.machine.files, attempt.paths, attempt.launch.attempt)
    if stop is None:
        return PayloadVerdict(
            JobFailureStatus.CANCELLED, "it was stopped before the machine had a process for it"
        )
    return PayloadVerdict(stop.reason, stop.message)


def _say_ready(inherited: Inherited) -> None:
    if inherited.ready is not None:
        with suppress(BrokenPipeError):  # a scheduler that died meanwhile is no reason not to run
            os.write(inherited.ready, READY)
        os.close(inherited.ready)
    inherited.signal("+")


def _rung(inherited: Inherited, exit_code: int) -> int:
    """The exit code, once all is written and the launcher was told."""
    inherited.signal("-")
    return exit_code


def _current_launch(machine: Machine, paths: JobPaths, inherited: Inherited) -> LaunchRecord | None:
    """The launch record, if it is still this runner's turn."""
    try:
        launch = read_launch(machine.files, paths)
        machine.locks.adopt(inherited.lock, paths.lock)
        machine.locks.adopt(inherited.descendants, paths.lock, DESCENDANTS_BYTE)
        if launch is None or launch.nonce != inherited.nonce:
            return None
        # A runner that stood still between its claim and its locks for as long as the fence takes would else
        # run a job that failed or was cancelled, and leave a marker beside the scheduler's.
        return None if launch.external and has_marker(machine.files, paths, launch.nonce) else launch
    except (LockLost, OSError):
        return None


def _stand_apart(inherited: Inherited) -> None:
    """Keep nothing of the process that started this one but the descriptors to be passed on."""
    with suppress(PermissionError):  # a launcher that could, has made this a session leader already
        os.setsid()
    ready = () if inherited.ready is None else (inherited.ready,)
    spare = () if inherited.spare is None else inherited.spare.descriptors()
    close_all_but({0, 1, 2, inherited.lock, inherited.descendants, *ready, *inherited.tokens, *spare})
    become_subreaper()


def _prepare(attempt: RunnerAttempt, inherited: Inherited) -> Payload:
    limits = attempt.instructions.limits
    walltime_s = min((s for s in (limits.walltime_s, inherited.time_s) if s is not None), default=None)
    return Payload(
        machine=attempt.machine,
        paths=attempt.paths,
        launch=attempt.launch,
        instructions=attempt.instructions,
        logs=open_logs(attempt.paths),
        report=open_report(),
        descendants=inherited.descendants,
        deadline=None if walltime_s is None else attempt.machine.clock.monotonic() + walltime_s,
        memory=limit_memory(limits.memory_bytes, attempt.launch.nonce),
        parent=os.getpid(),
        preloaded=inherited.preloaded,
        walltime_s=walltime_s,
        beat_s=inherited.beat_s,
        lock=inherited.lock,
        earlier=inherited.earlier,
    )


def _supervise(attempt: RunnerAttempt, payload: Payload, child: int, spare: PayloadToBe | None) -> int:
    logs = BoundedLogs(attempt.paths, attempt.instructions.limits.log_bytes)
    supervisor = Supervisor(payload, child, logs)
    try:
        ending = supervisor.supervise()
    except Exception as error:  # noqa: BLE001  a bug must not leave a job without a last word
        kill_descendants()
        sys.excepthook(type(error), error, error.__traceback__)
        message = f"the runner failed: {type(error).__name__}: {error}"
        _record(attempt, _marker(attempt, PayloadVerdict(JobFailureStatus.FAILED, message)))
        return BROKEN
    if spare is not None:
        spare.close(payload.logs)
    if ending.given_up:
        return STALE
    if ending.unexplained and judge(ending).reason is not None:
        return UNMARKED  # the cluster knows why it ended this
    marker = _marker(
        attempt,
        judge(ending),
        exit_code=ending.exit_code,
        signal=ending.signal,
        usage=supervisor.usage(),
        **_origin(attempt, ending.report.provenance),
        flags=(*ending.report.flags, *supervisor.flags()),
    )
    return _record(attempt, _with_outputs(attempt, marker, ending.report.result))


def _origin(attempt: RunnerAttempt, told: Mapping[str, Any]) -> dict[str, Any]:
    """What the marker says of the process, and of what the result was made of.

    The payload knows what code it has loaded, the scheduler what else the result will be made of.
    """
    provenance = {name: text for name, text in told.items() if isinstance(text, str)}
    if attempt.why_fresh is not None:
        provenance["fresh"] = attempt.why_fresh
    made = told.get("record")
    record = {**attempt.instructions.record, **(made if isinstance(made, dict) else {})}
    if record:
        record["begun"] = attempt.launch.life
        record["host"] = attempt.machine.processes.own().host
        record["launcher"] = attempt.launch.launcher
    return {"provenance": provenance, "record": record}


def _with_outputs(attempt: RunnerAttempt, marker: Marker, result: Any) -> Marker:
    files, paths, durability = attempt.machine.files, attempt.paths, attempt.instructions.durability
    if marker.reason is not None or _is_deleted(attempt):
        return marker._replace(record=brief_record(marker.record))
    if kept_apart := dict.fromkeys(_result_files(result)):
        outputs = {**marker.record.get("outputs", {}), **kept_apart}
        marker = marker._replace(record={**marker.record, "outputs": outputs})
    try:
        return keep_record(files, paths, preserve(files, paths, marker, result, durability), durability)
    except OSError as error:
        message = f"what it left cannot be kept: {disk_message(error)}"
        return marker._replace(reason=JobFailureStatus.FAILED, message=message)


def _result_files(form: Any) -> Iterator[str]:
    """The files of a result in the form that `launchers.results` gave it: outputs like the declared ones."""
    if isinstance(form, dict) and isinstance(kept := form.get("$file"), dict):
        yield kept["name"]
    elif isinstance(form, dict | list):
        for item in form.values() if isinstance(form, dict) else form:
            yield from _result_files(item)


def _is_deleted(attempt: RunnerAttempt) -> bool:
    """True if another directory may have the name of the job's by now: nothing may be written there."""
    return attempt.lock is not None and is_unlinked(attempt.lock)


def _marker(attempt: RunnerAttempt, verdict: PayloadVerdict, **seen: Any) -> Marker:
    return Marker(
        attempt=attempt.launch.attempt,
        nonce=attempt.launch.nonce,
        reason=verdict.reason,
        message=verdict.message,
        starttime=attempt.started,
        endtime=attempt.started + timedelta(seconds=attempt.machine.clock.uptime() - attempt.began),
        **seen,
    )


def _record(attempt: RunnerAttempt, marker: Marker) -> int:
    """Write the last word on the attempt."""
    files, paths = attempt.machine.files, attempt.paths
    if _is_deleted(attempt):
        # The name is that of another attempt's directory by now: its marker must not be overwritten.
        os.write(2, b"tenuto: DIR_GONE: the job's directory was deleted while it ran\n")
        return UNRECORDED
    try:
        launch = None if LEFTOVERS_ALIVE in marker.flags else attempt.launch
        finish(files, paths, marker, _status(attempt, marker), attempt.instructions.durability, launch)
    except OSError as error:
        what = "the marker" if os.path.isdir(paths.directory) else "DIR_GONE: the job's directory"
        os.write(2, f"tenuto: {what} cannot be written: {error.strerror}\n".encode())
        return UNRECORDED
    return shown(marker.reason is not None, marker.exit_code) if attempt.is_external else ENDED


def _status(attempt: RunnerAttempt, marker: Marker) -> StatusRecord:
    state_record = StateRecord(
        state=JobState.DONE if marker.reason is None else JobState.ERROR,
        reason=marker.reason,
        message=marker.message,
        submittime=attempt.instructions.submitted,
        starttime=marker.starttime,
        endtime=marker.endtime,
    )
    return StatusRecord(
        job_id=attempt.instructions.job_id,
        task_id=attempt.instructions.task_id,
        state_record=state_record,
        attempt=marker.attempt,
        retry_count=attempt.launch.retry_count,
        exit_code=marker.exit_code,
    )
