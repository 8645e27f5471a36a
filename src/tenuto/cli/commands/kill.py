"""`tenuto kill`."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import click

from tenuto.catalogue import Catalogue
from tenuto.cli import exit_codes
from tenuto.cli.chosen_jobs import job_options, meant, need_one_of
from tenuto.cli.completions import complete_jobs
from tenuto.cli.console import note, person, print_json, table
from tenuto.cli.options import open_catalogue, yes_option
from tenuto.experiments.source import stop_job
from tenuto.jobs.drawing import Cell, Column, Styled
from tenuto.jobs.removal import Killing, has_ended
from tenuto.jobs.row import Row
from tenuto.jobs.source import ActedAs, Action
from tenuto.lifecycle.owner_names import Door
from tenuto.workspace.machine import this_machine

SLACK_S = 15.0
"""How long beyond its grace period a runner may take to end."""
LONGEST_GRACE_S = 3600.0
ELSEWHERE_S = 10.0
"""How much longer the end of a job on another host may take to be seen here."""
LOOK_S = 0.2


class Killed(NamedTuple):
    """What became of one job."""

    row: Row
    outcome: ActedAs
    detail: str
    attempt: int
    ended: bool

    @property
    def is_fine(self) -> bool:
        return self.outcome is ActedAs.ASKED and self.ended


@click.command()
@click.argument("jobs", metavar="[JOB|GROUP|FILTER]...", nargs=-1, shell_complete=complete_jobs)
@click.option(
    "--where",
    metavar="FILTER",
    help="The jobs that a filter matches, if they run or wait; needs --yes.",
)
@click.option("--unowned", is_flag=True, help="Running jobs that no live run waits for; needs --yes.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only if this attempt is the one that runs.")
@click.option("--no-wait", is_flag=True, help="Do not wait until they have ended.")
@yes_option
@job_options
@click.pass_context
def command(
    ctx: click.Context,
    jobs: tuple[str, ...],
    where: str | None,
    unowned: bool,
    attempt: int | None,
    no_wait: bool,
    yes: bool,
    kind: str | None,
    workspace: str | None,
    as_json: bool,
) -> int:
    """Stop jobs: each is asked to end, gets its grace period, and is then killed.

    JOB is the beginning of an id, TASK/ID, or a task that has one job; NAME#N of a search or a service. A job
    that waits is cancelled. A GROUP or a FILTER, such as kind=search, means the jobs that can be stopped; it
    needs --yes. The exit code is 1 if one of them was not running or could not be stopped.
    """
    need_one_of(ctx, (jobs, where, unowned), "say which: a JOB, --where FILTER or --unowned")
    if attempt is not None and len(jobs) != 1:
        raise click.UsageError("--attempt is for one JOB", ctx)
    catalogue = open_catalogue(workspace)
    found = [meant(catalogue, words, kind=kind) for words in (jobs, (where,) if where else ()) if words]
    named = frozenset(key for one in found for key in one.named)
    rows = [row for one in found for row in one.rows if row.key in named or _can_be_killed(row)]
    if unowned:
        rows += [row for row in catalogue.view.unowned() if kind in (None, row.door.kind)]
    rows = list({row.key: row for row in rows}.values())
    if not yes and any(row.key not in named for row in rows):
        return _would_kill(rows, as_json)
    killed = [
        *_kill_here(catalogue, rows, attempt, no_wait),
        *_kill_elsewhere(catalogue, rows, attempt, no_wait),
    ]
    _show(killed, no_wait, as_json)
    return exit_codes.OK if all(one.is_fine for one in killed) else exit_codes.FAILED


def _can_be_killed(row: Row) -> bool:
    return row.state.unfinished() if row.door is Door.EXPERIMENTS else not row.state.finished()


def _would_kill(rows: list[Row], as_json: bool) -> int:
    if as_json:
        print_json([{**_plain(row), "outcome": ActedAs.WOULD_KILL.value} for row in rows])
        return exit_codes.OK
    if rows:
        table([Column("id"), Column("task", least=8)], [[row.name, row.task] for row in rows])
    note(f"{len(rows)} would be killed; add --yes to do it" if rows else "nothing to kill")
    return exit_codes.OK


def _kill_here(catalogue: Catalogue, rows: list[Row], attempt: int | None, no_wait: bool) -> list[Killed]:
    """Stops jobs of experiments, all of them before one is waited for."""
    message = f"killed by {person()} with tenuto kill"
    asked = [
        (row, stop_job(catalogue.view, row.job_key, message, attempt=attempt))
        for row in rows
        if row.door is Door.EXPERIMENTS
    ]
    return [
        Killed(
            row,
            one.acted.outcome,
            one.acted.detail or ("" if one.acted.outcome is ActedAs.ASKED else one.acted.outcome.words),
            one.acted.attempt,
            no_wait or (wait_for_end(one) if one.acted.attempt else _wait_for_driver(catalogue, row, one)),
        )
        for row, one in asked
    ]


def _kill_elsewhere(
    catalogue: Catalogue, rows: list[Row], attempt: int | None, no_wait: bool
) -> list[Killed]:
    """Cancels candidates and jobs of services; their workers and nodes stop them."""
    others = {row.key: row for row in rows if row.door is not Door.EXPERIMENTS}
    seen = [row if attempt is None else row._replace(attempt=attempt) for row in others.values()]
    deadline = time.monotonic() + SLACK_S
    killed = []
    for acted in catalogue.act(Action.KILL, seen, by=person()):
        ended = no_wait or acted.outcome is not ActedAs.ASKED
        ended = ended or _comes_true(partial(_is_over, catalogue, acted.key), deadline)
        killed.append(Killed(others[acted.key], acted.outcome, acted.detail, acted.attempt, ended))
    return killed


def wait_for_end(killing: Killing) -> bool:
    """Whether the runner ended in time."""
    patience_s = SLACK_S + min(killing.grace_s, LONGEST_GRACE_S)
    if killing.elsewhere is not None:
        machine, paths, attempt = this_machine(), killing.elsewhere, killing.acted.attempt
        deadline = time.monotonic() + patience_s + ELSEWHERE_S  # only its directory tells
        return _comes_true(lambda: has_ended(machine, paths, attempt), deadline)
    if killing.runner is None:
        return True
    poll = select.poll()
    poll.register(killing.runner.fileno(), select.POLLIN)
    ended = bool(poll.poll(patience_s * 1000))
    killing.runner.close()
    return ended


def _wait_for_driver(catalogue: Catalogue, row: Row, killing: Killing) -> bool:
    """Whether a job that waited was cancelled in time."""
    is_asked = killing.acted.outcome is ActedAs.ASKED
    return not is_asked or _comes_true(partial(_is_over, catalogue, row.key), time.monotonic() + SLACK_S)


def _is_over(catalogue: Catalogue, key: str) -> bool:
    return catalogue.source(key).detail(key).row.state.finished()


def _comes_true(is_so: Callable[[], bool], deadline: float) -> bool:
    """Whether a condition holds at a time of the monotonic clock, or before."""
    while not (held := is_so()) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return held


def _plain(row: Row) -> dict[str, object]:
    return {"id": row.id, "name": row.name, "task": row.task}


def _show(killed: list[Killed], no_wait: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    **_plain(one.row),
                    "outcome": one.outcome.value,
                    "detail": one.detail,
                    "attempt": one.attempt,
                    "ended": None if no_wait else one.is_fine,
                }
                for one in killed
            ]
        )
        return
    if not killed:
        note("nothing to kill")
        return
    rows: list[list[Cell]] = []
    for one in killed:
        text = one.outcome.value.replace("_", " ")
        if one.outcome is ActedAs.ASKED and not no_wait:
            text = "stopped" if one.ended else "does not stop; look at its processes"
        rows.append(
            [one.row.name, one.row.task, Styled(text, "green" if one.is_fine else "yellow"), one.detail]
        )
    columns = [Column("id"), Column("task", least=8), Column("outcome", least=8), Column("", least=8, rank=1)]
    table(columns, rows)
