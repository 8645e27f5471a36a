"""`tenuto logs`."""

from __future__ import annotations

import codecs
import time

import click

from tenuto.cli import exits
from tenuto.cli.console import note, print_json
from tenuto.cli.options import json_option, open_workspace, workspace_option
from tenuto.experiments.view import WorkspaceView
from tenuto.jobs.key import JobKey
from tenuto.jobs.log import Follower, read_tail
from tenuto.jobs.text import safe_lines
from tenuto.lifecycle.states import JobState

POLL_S = 0.2
LOOK_EVERY_S = 1.0
LONGEST_LINE = 8192
TAIL_LIMIT = 1 << 20


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("--err", is_flag=True, help="What it printed to standard error.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=200, show_default=True, help="Last lines.")
@workspace_option
@json_option
def command(job: str, follow: bool, err: bool, lines: int, workspace: str | None, as_json: bool) -> int:
    """Show what JOB printed.

    JOB is the beginning of its id, TASK/ID, or a task that has one job. With --follow the exit code is 1 if
    the job failed.
    """
    if follow and as_json:
        raise click.UsageError("--follow and --json exclude each other")
    view = open_workspace(workspace)
    key = view.find_one(job)
    paths = view.layout.job(*key)
    path = paths.err if err else paths.out
    tail = read_tail(view.machine.files, path, limit=TAIL_LIMIT)
    found = tail.text.splitlines() if tail else []
    kept = found[max(len(found) - lines, 0) :]
    if as_json:
        whole = tail is not None and tail.is_whole and len(kept) == len(found)
        text = "\n".join(kept) + "\n" * bool(kept)
        print_json({"task": key.task_id, "id": key.job_id, "path": path, "text": text, "whole": whole})
        return exits.OK
    for line in kept:
        click.echo(safe_lines(line))
    if not follow:
        if not found:
            other = "it printed nothing" if tail else "it has printed nothing yet"
            note(f"{other}; try {'without --err' if err else '--err'}, or: tenuto why {key.job_id[:8]}")
        return exits.OK
    return _follow(view, key, Follower(view.machine.files, path, tail))


def _follow(view: WorkspaceView, key: JobKey, log: Follower) -> int:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pending = ""
    look_at = 0.0
    ended = False
    while True:
        data = log.read()
        pending += decoder.decode(data.replace(b"\0", b""))
        *complete, pending = pending.split("\n")
        if len(pending) > LONGEST_LINE:
            complete.append(pending)
            pending = ""
        for line in complete:
            click.echo(safe_lines(line))
        if data:
            continue
        if ended:
            break
        now = view.machine.clock.monotonic()
        if now >= look_at:
            look_at = now + LOOK_EVERY_S
            job = view.job(key)
            ended = job.state.finished() or job.state is JobState.UNSCHEDULED
            if ended:
                continue  # what it printed last, between the last read and its end
        time.sleep(POLL_S)
    if pending:
        click.echo(safe_lines(pending))
    job = view.job(key)
    reason = f" ({job.reason.name})" if job.reason else ""
    note(f"{key} is {job.state.name.lower()}{reason}")
    return exits.FAILED if job.state is JobState.ERROR else exits.OK
