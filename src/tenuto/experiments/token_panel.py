"""The tokens that the jobs of followed runs use: how many units are held, by which jobs, and which wait.
Reads only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenuto.errors import TenutoError
from tenuto.experiments.followed_run import FollowedRun
from tenuto.experiments.view import WorkspaceView
from tenuto.lifecycle.owners import Door
from tenuto.lifecycle.source import row_key
from tenuto.workspace.layout import TokenPlace
from tenuto.workspace.records import PidRecord, read_record
from tenuto.workspace.tokens import TokenFiles


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
