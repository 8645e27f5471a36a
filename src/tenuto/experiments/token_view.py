"""Which tokens a job of a run waits for, seen from outside its scheduler.
Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenuto.errors import TenutoError
from tenuto.jobs.sight import Sight
from tenuto.lifecycle.states import JobState
from tenuto.workspace.jobslist import JobLine
from tenuto.workspace.layout import TokenPlace
from tenuto.workspace.ports import Machine
from tenuto.workspace.tokens import TokenFiles, TokenState, waiting_text


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
    """Who holds the tokens that a job waits for. Slow."""
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
