"""The tokens of runs, seen from outside their schedulers: which units are held, and which jobs wait for some.
Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import TenutoError
from tenuto.jobs.sight import Sight
from tenuto.lifecycle.owners import Door
from tenuto.lifecycle.source import row_key
from tenuto.lifecycle.states import JobState
from tenuto.workspace.jobslist import JobLine
from tenuto.workspace.layout import TokenPlace
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import PidRecord, read_record
from tenuto.workspace.tokens import TokenFiles, TokenState, waiting_text

if TYPE_CHECKING:
    from tenuto.experiments.followed_run import FollowedRun
    from tenuto.experiments.workspace_view import WorkspaceView


def with_tokens(
    machine: Machine, lines: Sequence[JobLine], standing: Mapping[str, Sight]
) -> dict[str, Sight]:
    """The same sights, where jobs that have all but their tokens wait for these."""
    found = dict(standing)
    states: dict[tuple[str, str], TokenState] = {}
    for line in lines:
        if not line.tokens or standing[line.job_id].state is not JobState.READY:
            continue
        files = _files(machine, line)
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


def holders_text(machine: Machine, line: JobLine) -> str | None:
    """The processes that hold the tokens which a job waits for, in words. Slow."""
    files = _files(machine, line)
    try:
        pids = {
            token: files.holders(token)
            for token, amount in sorted(line.tokens.items())
            if files.state(token).free_count < amount
        }
    except (OSError, TenutoError):
        return None
    return "; ".join(f"token {token} is held by {_processes(held)}" for token, held in pids.items()) or None


def _processes(pids: Sequence[int]) -> str:
    if not pids:
        return "processes of another user"
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"


def _files(machine: Machine, line: JobLine) -> TokenFiles:
    return TokenFiles(machine, TokenPlace(line.token_directory or "/nonexistent"))


def token_panel(view: WorkspaceView, followed: Sequence[FollowedRun]) -> list[dict[str, Any]]:
    """Each token that a live run needs, once."""
    runs = [run for run in followed if run.run.live]
    places: dict[tuple[str, str], None] = {}
    for run in runs:
        for line in run.token_lines():
            for token in line.tokens:
                places[line.token_directory or "", token] = None
    pids = _pids(view, runs)
    found = []
    for directory, token in places:
        files = TokenFiles(view.machine, TokenPlace(directory or "/nonexistent"))
        try:
            state = files.state(token)
            holders = files.holders(token)
        except (OSError, TenutoError):
            continue  # what cannot be looked at says nothing
        waiting = [one for run in runs for one in run.waiting_for(token)]
        found.append(
            {
                "name": token,
                "capacity": state.capacity,
                "held": len(state.held),
                "free": state.free_count,
                "holders": [{"pid": pid, "key": pids.get(pid)} for pid in holders],
                "waiting": [
                    {"key": key, "amount": amount, "since": line.submittime.isoformat()}
                    for key, amount, line in waiting
                ],
            }
        )
    return found


def _pids(view: WorkspaceView, runs: Sequence[FollowedRun]) -> dict[int, str]:
    """The runners of running jobs that hold tokens, by pid."""
    found: dict[int, str] = {}
    for run in runs:
        for line in run.running_with_tokens():
            paths = view.layout.job(line.task_id, line.job_id)
            try:
                record = read_record(view.machine.files, paths.pid, PidRecord.decode)
            except (OSError, TenutoError):
                continue
            if isinstance(record, PidRecord):
                found[record.identity.pid] = row_key(Door.EXPERIMENTS, line.task_id, line.job_id)
    return found
