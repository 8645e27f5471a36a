"""`tenuto wait`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tenuto.catalogue import Catalogue
from tenuto.cli import exit_codes
from tenuto.cli.chosen_jobs import kind_option, question_of
from tenuto.cli.completions import complete_runs
from tenuto.cli.console import note, print_json, say
from tenuto.cli.options import json_option, notify_option, open_catalogue, workspace_option
from tenuto.cli.program import hint
from tenuto.errors import FilterError, NotFound
from tenuto.jobs.notify import Notice, given_on_command_line, send
from tenuto.jobs.row import Row, plain_row
from tenuto.jobs.text import counted, safe
from tenuto.jobs.waiting import Awaited, Came, Waiting, WaitState
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState

MOST_NAMED = 20
"""How many failed jobs a line of text names."""
_CODES = {
    WaitState.DONE: exit_codes.OK,
    WaitState.IDLE: exit_codes.OK,
    WaitState.FAILED: exit_codes.FAILED,
    WaitState.UNATTENDED: exit_codes.FAILED,
    WaitState.WORKING: exit_codes.TIME_UP,
}


@click.command()
@click.argument("names", metavar="[GROUP|JOB|FILTER]...", nargs=-1, shell_complete=complete_runs)
@click.option(
    "--timeout", "timeout_s", metavar="S", type=click.FloatRange(min=0), help="Wait at most so many seconds."
)
@click.option("--any", "first_end", is_flag=True, help="Until the first of the jobs has ended.")
@click.option("--changes", is_flag=True, help="Until an end, a failure, or a better best of a search.")
@click.option("-v", "--verbose", is_flag=True, help="Say where changes are only found by a look each second.")
@notify_option
@kind_option
@workspace_option
@json_option
def command(
    names: tuple[str, ...],
    timeout_s: float | None,
    first_end: bool,
    changes: bool,
    verbose: bool,
    notify: str | None,
    kind: str | None,
    workspace: str | None,
    as_json: bool,
) -> int:
    """Sleep until runs, searches or jobs have ended, also if their driver dies; say what came of it.

    Each name is a JOB (an id, NAME#N), a GROUP (an experiment, a run, a search) or a FILTER, which stands for
    the jobs that it matches now. Without names: the groups that are at work.

    Exit codes: 0 all is done; 1 something failed or was cancelled, or no driver will start what is left; 2 a
    service was named and not its jobs; 3 nothing of that name; 6 still at work when the time was up.
    """
    if first_end and changes:
        raise click.UsageError("--any and --changes exclude each other")
    catalogue = open_catalogue(workspace)
    awaited = (
        [one for name in names for one in _awaited(catalogue, name, kind)]
        if names
        else _at_work(catalogue, kind)
    )
    if not awaited:
        came = Came(WaitState.IDLE, "nothing", {}, message="nothing is at work")
    else:
        wait = Waiting(catalogue.source, awaited, catalogue.view.machine.clock)
        came = wait.run(timeout_s=timeout_s, first_end=first_end, changes=changes)
        if verbose and not wait.is_told:
            note("changes are found by a look once a second: the kernel or the database tells of none here")
    if notify is not None:
        _notify(notify, came, [one.group.group.partition(":")[2] for one in awaited])
    _show(catalogue, came, [one.group.group.partition(":")[2] for one in awaited], as_json)
    return _CODES[came.state]


def _notify(target: str, came: Came, groups: Sequence[str]) -> None:
    """Sends what came of it to where `--notify` says."""
    settings = given_on_command_line(target)
    assert settings is not None
    names = ", ".join(dict.fromkeys(groups)) or "nothing"
    line = _line(came, list(dict.fromkeys(groups)))
    notice = Notice("ended", f"{names}: {came.state.value}", line, names, came.state.value, len(came.failed))
    problem = send(settings, notice)
    if problem is not None:
        note(f"the notice could not be sent: {problem}")


def _awaited(catalogue: Catalogue, name: str, kind: str | None) -> list[Awaited]:
    """What a name stands for: a job, else a group, else the jobs that a filter matches."""
    try:
        row = catalogue.row(name, kind=kind)
    except NotFound:
        row = None
    if row is not None:
        return _of_rows(catalogue, [row])
    try:
        group = catalogue.group(name, kind=kind)
    except NotFound as unknown:
        return _of_filter(catalogue, name, unknown)
    if group.door is Door.SERVICE:
        raise click.UsageError(
            f"{name} is a service, which never ends: name jobs, such as {name}#1, or a filter, such as "
            f"'group={name} and state=running'"
        )
    return [Awaited(group)]


def _of_filter(catalogue: Catalogue, name: str, unknown: NotFound) -> list[Awaited]:
    if not any(sign in name for sign in "=<>~!"):
        raise NotFound(f"no job, run or search is called {name!r}; `tenuto status` lists them") from unknown
    try:
        question = question_of((name,))
    except FilterError:
        raise
    rows = list(catalogue.search(question, catalogue.jobs()))
    if not rows:
        raise NotFound(f"no job matches {name!r}; `tenuto jobs` lists them")
    return _of_rows(catalogue, rows)


def _of_rows(catalogue: Catalogue, rows: Sequence[Row]) -> list[Awaited]:
    keys: dict[str, set[str]] = {}
    for row in rows:
        keys.setdefault(row.group, set()).add(row.key)
    found = []
    for name, some in keys.items():
        group = catalogue.source(name).group(name) if name else None
        if group is None:
            raise NotFound(f"no run lists {', '.join(sorted(some)[:3])}: nothing will start or end it")
        found.append(Awaited(group, frozenset(some)))
    return found


def _at_work(catalogue: Catalogue, kind: str | None) -> list[Awaited]:
    groups = [group for group in catalogue.groups(kind) if group.live and group.door is not Door.SERVICE]
    return [
        Awaited(group) for group in groups if catalogue.source(group.group).driver(group.group).is_at_work
    ]


def _show(catalogue: Catalogue, came: Came, groups: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json(_plain(catalogue, came, groups))
        return
    say(_line(came, list(dict.fromkeys(groups))))
    for row in came.failed[:MOST_NAMED]:
        cause = row.message or (row.reason.name.lower() if row.reason else "")
        note(f"{row.name} {row.task} failed: {cause}; {hint(f'tenuto why {row.name}')}")
    if len(came.failed) > MOST_NAMED:
        note(f"and {len(came.failed) - MOST_NAMED} more: {hint('tenuto jobs state=error')}")
    for command in came.take_up:
        note(f"no driver is at work; {counted(len(came.left), 'job')} left: {command}")


def _line(came: Came, groups: Sequence[str]) -> str:
    if came.state is WaitState.IDLE:
        return came.message
    numbers = [
        (came.counts.get(JobState.DONE, 0), "done"),
        (len(came.failed), "failed"),
        (sum(row.state.running() for row in came.left), "running"),
        (sum(not row.state.running() for row in came.left), "not started"),
    ]
    told = ", ".join(f"{number} {word}" for number, word in numbers if number) or "no jobs"
    what = {WaitState.WORKING: "still at work", WaitState.UNATTENDED: "without a driver"}
    head = safe(", ".join(groups))
    about = ", ".join(f"{row.name} {row.state.name.lower()}" for row in came.about)
    parts = [what.get(came.state, came.state.value), *([about] if about else [])]
    if came.event == "best":
        parts = [came.message]
    return f"{head}: {safe('; '.join(parts))} ({told})"


def _plain(catalogue: Catalogue, came: Came, groups: Sequence[str]) -> dict[str, Any]:
    now = catalogue.now()
    return {
        "state": came.state.value,
        "event": came.event,
        "exit": _CODES[came.state],
        "groups": list(dict.fromkeys(groups)),
        "counts": {state.name.lower(): came.counts.get(state, 0) for state in JobState},
        "about": [plain_row(row, now) for row in came.about],
        "failed": [plain_row(row, now) for row in came.failed],
        "left": [row.id for row in came.left],
        "take_up": list(came.take_up),
        "message": came.message or None,
    }
