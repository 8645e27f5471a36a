"""Where the jobs of a run stand: by what each directory shows, by each other, and by the tokens they need.
Looks at no directory of a job: the caller did that before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tenuto.errors import TenutoError
from tenuto.jobs.sight import REMOVED, Sight
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.workspace.jobslist import JobLine
from tenuto.workspace.ports import Machine
from tenuto.workspace.token_files import TokenFiles, TokenPlace, TokenState, waiting_text


def is_settled(line: JobLine, sight: Sight, *, live: bool) -> bool:
    """Whether the directory alone says where a job stands in its run."""
    return sight.state is not JobState.UNSCHEDULED and not (live and _failed_before(sight, line))


def concerning(
    lines: Sequence[JobLine], wanted: Collection[str], look: Callable[[JobLine], Sight], *, live: bool
) -> list[JobLine]:
    """The lines that decide where some jobs stand, in their order; each of them is looked at.

    A job that was not started stands where those leave it that it depends on; of a transient one the jobs
    that depend on it count as well.
    """
    by_id = {line.job_id: line for line in lines}
    dependents: dict[str, list[str]] = {}
    if any(by_id[one].transient is not TransientMode.NONE for one in wanted if one in by_id):
        for line in lines:
            for other in line.depends_on:
                dependents.setdefault(other, []).append(line.job_id)
    found: set[str] = set()
    pending = [one for one in wanted if one in by_id]
    while pending:
        job_id = pending.pop()
        if job_id in found:
            continue
        found.add(job_id)
        line = by_id[job_id]
        sight = look(line)
        if not is_settled(line, sight, live=live):
            pending += [other for other in line.depends_on if other in by_id]
        if line.transient is not TransientMode.NONE and sight.state is not JobState.DONE:
            pending += dependents.get(job_id, ())  # also of one that failed: a need passes through it
    return [line for line in lines if line.job_id in found]


def standings(lines: Sequence[JobLine], seen: Mapping[str, Sight], *, live: bool) -> dict[str, Sight]:
    """What a run makes of the directories of its jobs: which wait, which are ready, which were stranded.

    A scheduler keeps this in memory; from outside it follows from what each job depends on.
    """
    needed = _needed(lines, seen)
    tasks = {line.job_id: line.task_id for line in lines}
    standing: dict[str, Sight] = {}
    for line in lines:
        standing[line.job_id] = standing_of(
            line, seen[line.job_id], standing, tasks, live=live, needed=line.job_id in needed
        )
    return standing


def standing_of(
    line: JobLine,
    sight: Sight,
    standing: Mapping[str, Sight],
    tasks: Mapping[str, str],
    *,
    live: bool,
    needed: bool,
) -> Sight:
    """What a run makes of the directory of one job, once it is known where those stand that it depends on."""
    if live and _failed_before(sight, line):
        reason = sight.reason.name if sight.reason else "FAILED"
        sight = sight._replace(
            state=JobState.UNSCHEDULED,
            reason=None,
            message=f"to be run again; it failed before ({reason})",
        )
    if sight.state is JobState.UNSCHEDULED:
        sight = _unstarted(line, sight, standing, tasks, live=live, needed=needed)
    return sight


def _unstarted(
    line: JobLine,
    sight: Sight,
    standing: Mapping[str, Sight],
    tasks: Mapping[str, str],
    *,
    live: bool,
    needed: bool,
) -> Sight:
    dependencies = [(other, standing[other]) for other in line.depends_on if other in standing]
    for other, found in dependencies:
        if found.state is JobState.ERROR and found.reason is not JobFailureStatus.DELETED:
            reason = found.reason.name if found.reason else "FAILED"
            stranded = found.reason is JobFailureStatus.DEPENDENCY and found.message
            message = stranded or f"{tasks[other]} {other[:12]} failed ({reason})"
            return sight._replace(state=JobState.ERROR, reason=JobFailureStatus.DEPENDENCY, message=message)
    if not live:
        # A job that was listed has a directory, with its lock, even if it was never started.
        if not sight.is_there and not sight.alarm and line.transient is TransientMode.NONE:
            return sight._replace(state=JobState.ERROR, reason=JobFailureStatus.DELETED, message=REMOVED)
        return sight._replace(message=sight.message or "the run ended before it was started")
    if not needed:
        return sight._replace(message="transient, and no job needs it yet")
    waits_for = [other for other, found in dependencies if found.state is not JobState.DONE]
    if not waits_for:
        return sight._replace(state=JobState.READY, message=sight.message or "waits for a free slot")
    more = f" and {len(waits_for) - 1} more" if len(waits_for) > 1 else ""
    return sight._replace(
        state=JobState.WAITING,
        message=sight.message or f"waits for {tasks[waits_for[0]]} {waits_for[0][:12]}{more}",
    )


def _failed_before(sight: Sight, line: JobLine) -> bool:
    """Whether a failure is older than the wish to run the job, which then is only waiting for its turn."""
    return sight.state is JobState.ERROR and sight.decided is not None and sight.decided < line.submittime


def _needed(lines: Sequence[JobLine], seen: Mapping[str, Sight]) -> set[str]:
    """Jobs that run for their own sake, or because such a job that is not done depends on them."""
    needed: set[str] = set()
    for line in reversed(lines):  # what depends on a job was submitted after it
        if line.transient is TransientMode.NONE:
            needed.add(line.job_id)
        if line.job_id in needed and seen[line.job_id].state is not JobState.DONE:
            needed.update(line.depends_on)
    return needed


def with_tokens(
    machine: Machine, lines: Sequence[JobLine], standing: Mapping[str, Sight]
) -> dict[str, Sight]:
    """The same sights, where jobs that have all but their tokens wait for these."""
    found = dict(standing)
    states: dict[tuple[str, str], TokenState] = {}
    for line in lines:
        if not line.tokens or standing[line.job_id].state is not JobState.READY:
            continue
        files = tokens_of(machine, line)
        for token, amount in sorted(line.tokens.items()):
            key = (files.place.directory, token)
            try:
                state = states[key] = states.get(key) or files.state(token)
            except (OSError, TenutoError):
                continue  # what cannot be looked at says nothing
            if state.free_count < amount:
                message = waiting_text(token, amount, state)
                sight = standing[line.job_id]
                found[line.job_id] = sight._replace(state=JobState.WAITING, message=message)
                break
    return found


def tokens_of(machine: Machine, line: JobLine) -> TokenFiles:
    """The files of the tokens that a job needs."""
    return TokenFiles(machine, TokenPlace(line.token_directory or "/nonexistent"))
