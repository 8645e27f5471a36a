"""What must hold after a soak, by the ledger that the jobs wrote, the kernel, and the files.
Believes no scheduler; what they say of a job is held against the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from proof.soak.plan import CAPACITY, Fate, Kind, PlannedJob, Wave
from tenuto.lifecycle.states import JobState
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, Machine, is_temporary
from tenuto.workspace.token_files import TokenFiles, TokenPlace

MEMORY_GROWS = 0.05
_NUMBER = "/schedulers.lock"
_FIRST_S = 60.0
_FIRST = 10


class Entry(NamedTuple):
    """A line of a ledger."""

    what: str
    nonce: str
    pid: int
    runner: int = 0
    """The parent of the process that wrote it."""
    at: float = 0.0
    """When, on the machine's monotonic clock."""


def read_ledger(place: Path, number: int) -> list[Entry]:
    file = place / "ledger" / str(number)
    lines = file.read_text().splitlines() if file.exists() else []
    return [
        Entry(what, nonce, int(pid), int(runner), float(at))
        for what, nonce, pid, runner, at in map(str.split, lines)
    ]


def by_ledger(
    jobs: Iterable[PlannedJob],
    ledgers: Mapping[int, Sequence[Entry]],
    answers: Mapping[int, str],
    before: Mapping[int, Sequence[Entry]],
) -> list[str]:
    """What is wrong. `answers`: what a scheduler said in the end that submitted all once more, to which the
    ledgers `before` belong.
    """
    jobs = list(jobs)
    needed = {number for job in jobs for number in job.needs}
    return [
        f"job {job.number} ({job.kind.value}; {job.fate.value}): {problem}"
        for job in jobs
        for problem in _job(
            job,
            list(ledgers[job.number]),
            answers.get(job.number),
            len(before[job.number]),
            job.number in needed,
        )
    ]


def _job(
    job: PlannedJob, entries: list[Entry], answer: str | None, before: int, is_needed_at_all: bool
) -> Iterator[str]:
    kinds = [entry.what for entry in entries]
    starts = [entry.nonce for entry in entries if entry.what == "start"]
    if "overlap" in kinds:
        yield f"ran twice at once: {entries}"
    if "overcommit" in kinds:
        yield f"ran with units of a token that others had: {entries}"
    if "stuck" in kinds:
        yield f"found units in use by the payload of a dead runner, for a minute: {entries}"
    if len(set(starts)) < len(starts):
        yield f"one attempt ran twice: {entries}"
    ended = "end" in kinds
    if "seen" in kinds and not job.removed and "start" in kinds[kinds.index("seen") :]:
        yield f"ran again after it was seen done: {entries}"
    done = [entry.nonce for entry in entries if entry.what == "seen"]
    if set(done) - {entry.nonce for entry in entries if entry.what == "end"}:
        yield f"was seen done by an attempt that never came to its end: {entries}"
    if job.fate is Fate.DONE:
        if answer != JobState.DONE.name or not ended:
            yield f"is lost: the last scheduler says {answer}, the ledger {kinds}"
        if "start" in kinds[before:]:
            yield f"was done, and ran again when it was submitted again: {entries}"
    elif job.fate is Fate.FAILED:
        if answer != JobState.ERROR.name or ended or not starts:
            yield f"did not fail: the last scheduler says {answer}, the ledger {kinds}"
    elif job.fate is Fate.STRANDED:
        if answer != JobState.ERROR.name or starts:
            yield f"ran, or did not fail: the last scheduler says {answer}, the ledger {kinds}"
    else:
        if answer not in (JobState.DONE.name, JobState.UNSCHEDULED.name) or (job.is_needed and not ended):
            yield f"is lost: the last scheduler says {answer}, the ledger {kinds}"
        if starts and not is_needed_at_all:
            yield f"ran, though nobody needs it: {entries}"


def by_strikes(
    jobs: Iterable[PlannedJob], ledgers: Mapping[int, Sequence[Entry]], struck: Collection[int]
) -> list[str]:
    """Repeats that nothing justifies: an attempt is followed by another though its processes were not struck.

    That is a job lost without need, or harmed by the death of its scheduler or of its warm parent. `struck`:
    the processes that were sent a signal that ends. What fails on purpose is submitted again, what runs out
    of time goes on, and what was removed is made again: those may repeat.
    """
    return [
        f"job {job.number} ({job.kind.value}; {job.fate.value}): was repeated without need, after {before}"
        for job in jobs
        if job.fate in (Fate.DONE, Fate.PASSING) and job.kind is not Kind.RESUMABLE and not job.removed
        for before in [entry for entry in ledgers[job.number] if entry.what == "start"][:-1]
        if before.pid not in struck and before.runner not in struck
    ]


def by_order(jobs: Iterable[PlannedJob], ledgers: Mapping[int, Sequence[Entry]]) -> list[str]:
    """Jobs that began before all that they need had come to an end."""
    ends = {
        number: min((entry.at for entry in entries if entry.what == "end"), default=inf)
        for number, entries in ledgers.items()
    }
    return [
        f"job {job.number} began before job {needed}, which it needs, had ended"
        for job in jobs
        for needed in job.needs
        if any(entry.what == "start" and entry.at < ends[needed] for entry in ledgers[job.number])
    ]


def by_answers(jobs: Iterable[PlannedJob], answers: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Jobs that are done without the result that they returned, or without what they printed."""
    problems = []
    for job in jobs:
        answer = answers.get(job.number, {})
        if answer.get("state") != JobState.DONE.name:
            continue
        wanted = None if job.kind is Kind.COMMAND else job.number
        if answer.get("result") != wanted:
            problems.append(f"job {job.number} returned {wanted}, and its result is {answer.get('result')}")
        if not answer.get("log_is_whole", True):
            problems.append(f"job {job.number} is done, and its log lacks what the attempt printed")
    return problems


def by_files(machine: Machine, place: Path) -> list[str]:
    """What is left that should not be: temporary files, locks, units of tokens, signs of life."""
    return [*_files_left(machine, place), *_units_left(machine, place)]


def _files_left(machine: Machine, place: Path) -> Iterator[str]:
    for path in (place / "ws").rglob("*"):
        where = path.relative_to(place)
        if is_temporary(path.name):
            yield f"a temporary file is left: {where}"
        if ".corrupt-" in path.name:
            yield f"a file was set aside as unreadable: {where}"
        if path.suffix == ".lock" and path.parent.parent.parent.name == "jobs":
            for byte in (RUNNER_BYTE, DESCENDANTS_BYTE):
                if machine.locks.is_locked(str(path), byte):
                    yield f"byte {byte} of a lock is held: {where}"


def _units_left(machine: Machine, place: Path) -> Iterator[str]:
    for host in (place / "tokens").iterdir() if (place / "tokens").exists() else ():
        files = TokenFiles(machine, TokenPlace(str(host)))
        for token in CAPACITY:
            if held := files.state(token).held:
                yield f"units {sorted(held)} of token {token} are held by nobody"
        if living := files.living():
            yield f"schedulers count as alive that are not: {living}"


class Growth(NamedTuple):
    """How the witness grew: its memory at the end and in the first minute, in bytes."""

    first: int
    last: int
    is_long: bool
    """The soak was long enough for the comparison to mean something."""

    @property
    def part(self) -> float:
        return self.last / self.first - 1


def growth(reports: Sequence[Mapping[str, Any]], begin: float, seconds: float) -> Growth:
    """Of the experiments that a scheduler saw in the first minute the largest counts.

    On a busy machine those may be few, and its caches not filled by then: at least the first ten count.
    """
    is_long = seconds >= 2 * _FIRST_S
    until = begin + (_FIRST_S if is_long else seconds / 3)
    early = [report["rss"] for at, report in enumerate(reports) if at < _FIRST or report["at"] <= until]
    return Growth(max(early), reports[-1]["rss"], is_long)


def by_witness(reports: Sequence[Mapping[str, Any]], grown: Growth) -> list[str]:
    """What the scheduler that lived from the first minute to the last kept that it did not need.

    Of its descriptors the report with the most counts: a strike may end a process that it should have ended,
    and closes them.
    """
    problems = []
    first, most = reports[0]["descriptors"], max((report["descriptors"] for report in reports), key=len)
    # From the first token on a scheduler keeps its number, and that may come after the first report.
    more = [link for link in most if most.count(link) > max(first.count(link), link.endswith(_NUMBER))]
    if more and len(most) > len(first):
        problems.append(f"descriptors grew from {len(first)} to {len(most)}: {more}")
    if grown.is_long and grown.part > MEMORY_GROWS:
        problems.append(f"memory grew by {grown.part:.1%}, from {grown.first:,} to {grown.last:,} bytes")
    return problems


def read_reports(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def planned(waves: Iterable[Wave]) -> list[PlannedJob]:
    return [job for wave in waves for job in wave.jobs]
