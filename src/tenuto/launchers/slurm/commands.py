"""Slurm's commands: sbatch, squeue, sacct, scancel, scontrol, sinfo, each with a time-out; and their answers.
With `states` the only module that knows Slurm's words. It decides nothing, and each call blocks its thread.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import Enum, unique
from typing import NamedTuple

from tenuto.light import shutil
from tenuto.settings import process_environment

SUBMIT_S = 60.0
ASK_S = 60.0
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")
"""Variables of a job that its own jobs need, too; the rest tells them of the wrong job."""
_LATER = (
    *("unable to contact", "socket timed out", "try again", "temporarily", "connection refused"),
    *("connect failure", "zero bytes were transmitted", "slurm_receive_msg", "communication connection"),
)
_FULL = ("accounting/qos policy", "maxsubmit", "maxjobcount", "job violates", "limit on the number")
_UNKNOWN_JOB = "invalid job id"
_UNKNOWN_TASK = "not found"
"""Of an array whose other tasks the controller knows; it says so on standard output."""
_FIELDS = "JobArrayID:|,State:|,Reason:|,EndTime:|,exit_code:|,Name:|"
_IDS_A_CALL = 200
_ACCOUNTING_DAYS = "now-7days"


class SlurmError(Exception):
    """A command failed, or took too long; it tells nothing of any job."""


@unique
class SubmissionOutcome(Enum):
    """What became of a submission."""

    TAKEN = "taken"
    LATER = "later"
    """No answer, or a passing one: the job may have been queued all the same."""
    FULL = "full"
    """Too many jobs at the moment."""
    REFUSED = "refused"


class SbatchAnswer(NamedTuple):
    """The answer of sbatch."""

    outcome: SubmissionOutcome
    text: str
    """The id of the job, or the first line of the error."""


class SlurmRow(NamedTuple):
    """What Slurm knows of one job."""

    job: str
    state: str
    reason: str
    ended: float | None
    """Seconds since the epoch by the clock of the controller; None if it has not ended."""
    exit_code: int | None
    """The runner's own; None if it was ended by a signal."""
    name: str


class Partition(NamedTuple):
    """A part of the cluster, as sinfo shows it."""

    name: str
    cores: str
    memory_mb: str
    time_limit: str
    gpus: str
    state: str
    nodes: str


def is_installed() -> bool:
    """True if jobs can be submitted from this machine."""
    return shutil.which("sbatch", path=process_environment().get("PATH")) is not None


def slurm_environment() -> dict[str, str]:
    """The variables of this process, without those of a Slurm job that it may be itself."""
    return {
        name: value
        for name, value in process_environment().items()
        if not name.startswith("SLURM_") or name in _KEPT
    }


def submit(arguments: Sequence[str], script: str) -> SbatchAnswer:
    """Queues a job."""
    try:
        done = _run(["sbatch", *arguments], SUBMIT_S, script)
    except SlurmError as error:
        return SbatchAnswer(SubmissionOutcome.LATER, str(error))
    if done.returncode == 0:
        lines = done.stdout.split()
        return SbatchAnswer(SubmissionOutcome.TAKEN, lines[-1].partition(";")[0] if lines else "")
    return SbatchAnswer(_outcome(done.stderr), _first_line(done.stderr))


def would_start(arguments: Sequence[str]) -> str | None:
    """Why Slurm would refuse a job with these arguments; None if it would take it."""
    done = _run(["sbatch", "--test-only", *arguments], ASK_S, "#!/bin/sh\n")
    return None if done.returncode == 0 else _first_line(done.stderr)


def queue() -> list[SlurmRow]:
    """Every job of this user that Slurm has in mind, tasks of arrays one by one."""
    done = _run(["squeue", "-h", "-r", "-t", "all", "--me", "-O", _FIELDS], ASK_S)
    if done.returncode:
        raise SlurmError(_first_line(done.stderr) or f"squeue ended with {done.returncode}")
    return [row for line in done.stdout.splitlines() if (row := _queue_row(line)) is not None]


def look_up(jobs: Iterable[str], *, accounting: bool) -> dict[str, SlurmRow]:
    """What Slurm remembers of jobs that are no longer in its queue; a job that is not in it is forgotten."""
    wanted = list(jobs)
    return _from_accounting(wanted) if accounting else _from_controller(wanted)


def shown(job: str) -> list[SlurmRow]:
    """What the controller shows of a job, or of each task of an array; nothing if it does not know it.

    Tasks of an array that wait may share a row. Raises `SlurmError` for an answer that tells nothing.
    """
    done = _run(["scontrol", "-o", "show", "job", job], ASK_S)
    if done.returncode and (_UNKNOWN_JOB in done.stderr.lower() or f"{job} {_UNKNOWN_TASK}" in done.stdout):
        return []
    rows = [row for line in done.stdout.splitlines() if (row := _shown_row(line)) is not None]
    if done.returncode or not rows:
        raise SlurmError(_first_line(done.stderr) or f"scontrol ended with {done.returncode}, showing no job")
    return rows


def cancel_pending(jobs: Iterable[str]) -> None:
    """Takes jobs out of the queue; a signal to a pending job would hang for minutes."""
    _cancel(["--state=PENDING"], jobs)


def cancel_tasks(tasks: Iterable[str]) -> None:
    """Takes tasks of arrays away, whatever they do, in one word for each array."""
    arrays: dict[str, list[int]] = {}
    for task in tasks:
        array, _, index = task.partition("_")
        arrays.setdefault(array, []).append(int(index))
    _cancel([], [f"{array}_[{ranges(indices)}]" for array, indices in arrays.items()])


def cancel_waiting(name: str) -> None:
    """Takes the waiting tasks of a submission, by the name of its jobs, out of the queue."""
    _cancel(["--state=PENDING", f"--name={name}"], [])


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as Slurm writes those of an array, such as `1-3,7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def signal_running(jobs: Iterable[str]) -> None:
    """Sends TERM to the runners, and to nothing else of their jobs."""
    _cancel(["-b", "-s", "TERM", "--state=RUNNING"], jobs)


def kill(jobs: Iterable[str]) -> None:
    """Ends jobs at once, with all their processes."""
    jobs = list(jobs)
    _cancel(["-f", "-s", "KILL", "--state=RUNNING"], jobs)
    _cancel([], jobs)


def configuration() -> dict[str, str]:
    """The settings of the cluster, by name."""
    done = _run(["scontrol", "show", "config"], ASK_S)
    if done.returncode:
        raise SlurmError(_first_line(done.stderr))
    pairs = (line.partition("=") for line in done.stdout.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def partitions() -> list[Partition]:
    """The parts of the cluster."""
    done = _run(["sinfo", "-h", "-o", "%R|%c|%m|%l|%G|%a|%D"], ASK_S)
    if done.returncode:
        raise SlurmError(_first_line(done.stderr))
    rows = (line.split("|") for line in done.stdout.splitlines())
    return [Partition(*row) for row in rows if len(row) == len(Partition._fields)]


def leading_number(text: str, default: int) -> int:
    """The number that a value of the configuration begins with, such as ``300 sec``."""
    digits = text.partition(" ")[0]
    return int(digits) if digits.isdecimal() else default


def _run(command: list[str], timeout_s: float, given: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            input=given or "",
            env=slurm_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]} gave no answer for {timeout_s:g} s") from None
    except OSError as error:
        raise SlurmError(f"{command[0]} cannot be run: {error.strerror}") from None


def _outcome(complaint: str) -> SubmissionOutcome:
    said = complaint.lower()
    if any(words in said for words in _FULL):
        return SubmissionOutcome.FULL
    return SubmissionOutcome.LATER if any(words in said for words in _LATER) else SubmissionOutcome.REFUSED


def _first_line(complaint: str) -> str:
    """What a command complains of; the rest of a fatal error only leads there."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    told = next((line for line in lines if "fatal: " in line), lines[0] if lines else "")
    return told.partition("fatal: ")[2] or told.partition("error: ")[2] or told


def _queue_row(line: str) -> SlurmRow | None:
    parts = line.split("|", 5)
    if len(parts) != 6:
        return None
    job, state, reason, ended, status, name = parts
    return SlurmRow(job, state, reason, _instant(ended), _exit_code(status), name.removesuffix("|"))


def _instant(text: str) -> float | None:
    """A time as Slurm writes it, which is the local one; of a job that runs it is the end that is due."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _exit_code(status: str) -> int | None:
    """Of a wait status, as squeue gives it."""
    if not status.isdecimal():
        return None
    number = int(status)
    return None if number & 0x7F else number >> 8 & 0xFF


def _from_accounting(jobs: list[str]) -> dict[str, SlurmRow]:
    found: dict[str, SlurmRow] = {}
    for first in range(0, len(jobs), _IDS_A_CALL):
        ids = ",".join(jobs[first : first + _IDS_A_CALL])
        fields = "JobID,State,ExitCode,End,JobName"
        done = _run(["sacct", "-X", "-n", "-P", "-S", _ACCOUNTING_DAYS, "-o", fields, "-j", ids], ASK_S)
        if done.returncode:
            raise SlurmError(_first_line(done.stderr) or f"sacct ended with {done.returncode}")
        for line in done.stdout.splitlines():
            parts = line.split("|", 4)
            if len(parts) == 5:
                job, state, code, ended, name = parts
                exit_, _, number = code.partition(":")
                exit_code = int(exit_) if exit_.isdecimal() and number == "0" else None
                found[job] = SlurmRow(job, state, "", _instant(ended), exit_code, name)
    return found


def _from_controller(jobs: list[str]) -> dict[str, SlurmRow]:
    return {row.job: row for job in jobs for row in shown(job) if row.job == job}


def _shown_row(line: str) -> SlurmRow | None:
    fields = dict(word.partition("=")[::2] for word in line.split(" ") if "=" in word)
    array, task = fields.get("ArrayJobId"), fields.get("ArrayTaskId")
    job = fields.get("JobId") if array is None or task is None else f"{array}_{task}"
    if job is None or "JobState" not in fields:
        return None
    exit_, _, number = fields.get("ExitCode", "").partition(":")
    exit_code = int(exit_) if exit_.isdecimal() and number == "0" else None
    return SlurmRow(
        job,
        fields["JobState"],
        fields.get("Reason", ""),
        _instant(fields.get("EndTime", "")),
        exit_code,
        fields.get("JobName", ""),
    )


def _cancel(options: list[str], jobs: Iterable[str]) -> None:
    """Raises `SlurmError` if Slurm did not hear it; scancel exits with 1 for a job that has ended, too."""
    jobs = list(jobs)
    for first in range(0, max(len(jobs), 1), _IDS_A_CALL):
        done = _run(["scancel", "-Q", *options, *jobs[first : first + _IDS_A_CALL]], ASK_S)
        if done.returncode and _outcome(done.stderr) is SubmissionOutcome.LATER:
            raise SlurmError(_first_line(done.stderr))
