"""Owns the verdict on a case: everything that must hold, whatever was killed.
Looks at the directories and at the ledger that the payloads wrote; helps nothing along.
"""

from __future__ import annotations

from pathlib import Path

from proof.matrix.case import CANCELLED, DONE, FAILED, Case
from proof.matrix.scheduler import JOB_ID, NEXT_ID, TASK_ID, TOKEN, Work
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace.job_directory import look, read_locks, read_pid, read_status
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, is_temporary
from tenuto.workspace.records import LaunchRecord
from tenuto.workspace.token_files import TokenFiles, TokenPlace


def judged(case: Case, directory: Path, schedulers: list[str]) -> list[str]:
    """What does not hold; `schedulers`: how each of them ended."""
    return [
        *_schedulers(case, schedulers),
        *(problem for job_id in _job_ids(case) for problem in _directory(case, directory, job_id)),
        *_token(directory),
        *_ledger(case, directory, len(schedulers)),
    ]


def _job_ids(case: Case) -> tuple[str, ...]:
    return (JOB_ID, NEXT_ID) if case.token or case.orders > 1 else (JOB_ID,)


def _schedulers(case: Case, ends: list[str]) -> list[str]:
    problems = []
    failures = [end for end in ends if end not in (case.end, "killed")]
    killed = "ERROR FAILED exited with code 247" if case.in_child else "ERROR FAILED was ended by SIGKILL"
    if ends.count("killed") > case.kills_of_schedulers():
        problems.append(f"a scheduler was killed that nobody meant to kill: {ends}")
    if ends[-1] != case.end:
        problems.append(f"the last scheduler ended with: {ends[-1]}")
    if not case.may_fail() and failures:
        problems.append(f"a scheduler failed: {failures}")
    if not all(end.startswith(killed) for end in failures):
        problems.append(f"a failure for another reason: {failures}")
    return problems


def _directory(case: Case, directory: Path, job_id: str) -> list[str]:
    layout = Layout(f"{directory}/ws")
    paths = layout.job(TASK_ID, job_id)
    params = Work(directory, case if job_id == JOB_ID else Case(), job_id).params(layout, paths)
    machine = this_machine()
    found = look(machine, paths)
    problems = []

    def must(holds: bool, otherwise: object) -> None:
        if not holds:
            problems.append(f"{job_id}: {otherwise}")

    must(_says(found.derived.marker) == case.end, f"the directory says {found.derived}")
    must(found.derived.row == ("done" if case.end == DONE else "failed"), f"it reads as {found.derived.row}")
    launch = found.evidence.launch
    must(isinstance(launch, LaunchRecord), f"launch.json: {launch}")
    has_pid = read_pid(machine.files, paths, found.derived.attempt) is not None
    is_tidied = (
        case.end == DONE
    )  # unless its runner was killed first: the files that say nothing more are gone
    is_external = isinstance(launch, LaunchRecord) and launch.external
    if case.end != CANCELLED and (is_external or not is_tidied):  # which may come before there is a runner
        must(has_pid, "the pid record cannot be read")
    if case.cancel == "pending":
        must(not has_pid, "a runner took it up after it was cancelled")
    must(is_tidied or read_status(machine.files, paths) is not None, "status.json cannot be read")
    must(_content(paths.params) == params, "params.json is damaged")
    for byte in (RUNNER_BYTE, DESCENDANTS_BYTE):
        must(not machine.locks.is_locked(paths.lock, byte), f"byte {byte} of the lock is held")
    if case.token:
        locks = read_locks(machine.files, paths, found.derived.attempt)
        is_told = locks is not None and locks.tokens == ((TOKEN, (0, 1)),)
        must(is_told or (is_tidied and locks is None), f"locks: {locks}")
    for path in Path(paths.directory).rglob("*"):
        # Of the status, which can be had from the marker, nobody clears away the copy of a killed writer.
        must(not is_temporary(path.name) or path.name.startswith("status.json"), f"{path.name} is left")
        must("corrupt" not in path.name, f"{path.name} is there")
    return problems


def _says(marker: Marker | None) -> str | None:
    """What a marker says, in the words of a scheduler."""
    if marker is None or marker.reason is None:
        return marker and DONE
    if marker.reason is JobFailureStatus.FAILED and marker.exit_code == 3:
        return FAILED
    return f"ERROR {marker.reason.name} {marker.message}"


def _content(path: str) -> bytes | None:
    return Path(path).read_bytes() if Path(path).exists() else None


def _token(directory: Path) -> list[str]:
    tokens = TokenFiles(this_machine(), TokenPlace(f"{directory}/tokens"))
    problems = []
    if tokens.state(TOKEN).held:
        problems.append("units of the token are held")
    if tokens.living():
        problems.append("a scheduler counts as alive")
    return problems


def _ledger(case: Case, directory: Path, schedulers: int) -> list[str]:
    """Each payload wrote what it did, with the nonce of its attempt.

    A job that failed, or was cancelled, is tried again by each scheduler that comes after.
    """
    asked = 1 if case.end == DONE else schedulers
    lines = (_content(str(directory / "ledger")) or b"").decode().splitlines()
    entries = [line.split() for line in lines]
    problems = []
    if any(what == "overlap" for what, *_ in entries):
        problems.append(f"two payloads at the same time: {entries}")
    if any(what == "unseen" for what, *_ in entries):
        problems.append(f"nobody saw that it runs: {entries}")
    if case.cancel == "pending" and entries:
        problems.append(f"a payload began after its job was cancelled: {entries}")
    for job_id in _job_ids(case):
        starts = [attempt for what, job, attempt, _ in entries if (what, job) == ("start", job_id)]
        ends = [attempt for what, job, attempt, _ in entries if (what, job) == ("end", job_id)]
        last = look(this_machine(), Layout(f"{directory}/ws").job(TASK_ID, job_id)).derived.marker
        has_worked = last is not None and last.nonce in starts and last.nonce in ends
        if case.end != CANCELLED and not has_worked:
            problems.append(f"{job_id} counts as done, but its work is not in the ledger: {entries}")
        if len(set(starts)) < len(starts):
            problems.append(f"one attempt of {job_id} ran twice: {entries}")
        if len(starts) > asked + (case.repeats() if job_id == JOB_ID or case.orders > 1 else 0):
            problems.append(f"{job_id} ran {len(starts)} times: {entries}")
    return problems
