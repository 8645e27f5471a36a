"""`tenuto status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from tenuto.catalogue import Catalogue
from tenuto.cli.chosen_jobs import groups_of, is_filter, job_options, kind_beside, meant
from tenuto.cli.completions import complete_runs
from tenuto.cli.console import ago, note, print_json, say, table
from tenuto.cli.options import open_catalogue
from tenuto.cli.program import hint
from tenuto.errors import NotFound
from tenuto.experiments.workspace_view import MOST_COUNTED
from tenuto.jobs.drawing import Cell, Column, Styled
from tenuto.jobs.result_table import cell_text
from tenuto.jobs.row import Group, PlainGroup, Row, plain_group, plain_row
from tenuto.jobs.text import duration, safe
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.tasks.tags import tag_words

MOST_RUNNING = 20
_COLOURS = {"running": "cyan", "done": "green", "failed": "red"}

Counted = list[tuple[Group, Mapping[JobState, int]]]


@click.command()
@click.argument("words", metavar="[GROUP|JOB|FILTER]", nargs=-1, shell_complete=complete_runs)
@job_options
def command(words: Sequence[str], kind: str | None, workspace: str | None, as_json: bool) -> None:
    """Show the last runs of experiments, searches and services, and the jobs that run now.

    With GROUP: all that is known of one experiment's last run, run, search or service. With JOB: its row.
    With FILTER, such as kind=search or owner=ada, or with several names: the groups of these jobs, and these
    jobs alone.
    """
    catalogue = open_catalogue(workspace)
    now = catalogue.now()
    words, kind = kind_beside(words, kind)
    if len(words) == 1 and not is_filter(words[0]):
        _show_fields(_about(catalogue, words[0], kind, now), as_json)
        return
    if words:
        rows = meant(catalogue, words, kind=kind).rows
        counted = [(one, _counted(rows, one)) for one in groups_of(catalogue, rows, kind)] if rows else []
        running = [row for row in rows if row.state.running()]
    else:
        counted = [(one, catalogue.counts(one)) for one in _newest(catalogue.groups(kind))]
        counted += [(one, counts) for one, counts in catalogue.unlisted() if kind in (None, one.door.kind)]
        running = _running(catalogue, counted)
    if as_json:
        print_json(
            {
                "workspace": catalogue.view.layout.root,
                "groups": [_plain(one, counts) for one, counts in counted],
                "running": [plain_row(row, now) for row in running],
            }
        )
        return
    say(f"workspace {safe(catalogue.view.layout.root)}")
    if not counted:
        note("no job matches" if words else "nothing was run here yet")
        return
    _show_groups(counted, now)
    for group, counts in counted:
        if _is_large(group, counts):
            note(f"{group.name}: so many jobs are not looked at; its run wrote these counts")
    _show_running(running, now)
    _show_hints(counted, running)


def _newest(groups: list[Group]) -> list[Group]:
    """The groups without all but the last run of each experiment."""
    return list({(group.door, group.name): group for group in reversed(groups)}.values())[::-1]


def _running(catalogue: Catalogue, counted: Counted) -> list[Row]:
    at_work = [
        group
        for group, counts in counted
        if any(state.running() and counts[state] for state in counts) and not _is_large(group, counts)
    ]
    busy = {group.door for group in at_work}
    if any(_is_large(*one) for one in counted):
        chunks = (chunk for group in at_work for chunk in catalogue.source(group.group).rows(group.group))
    else:
        chunks = (chunk for source in catalogue.sources if source.door in busy for chunk in source.listed())
    rows = {row.key: row for chunk in chunks for row in chunk}
    shown = [row for row in rows.values() if row.state.running()]
    return shown + (catalogue.running_unlisted() if busy - {one.door for one in catalogue.sources} else [])


def _is_large(group: Group, counts: Mapping[JobState, int]) -> bool:
    """Whether a run has so many jobs that its process counts them."""
    return group.door is Door.EXPERIMENTS and sum(counts.values()) > MOST_COUNTED


def _plain(group: Group, counts: Mapping[JobState, int]) -> PlainGroup:
    return plain_group(group, counts, sum(counts.values()), None, is_loaded=True)


def _counted(rows: list[Row], group: Group) -> Mapping[JobState, int]:
    return Counter(row.state for row in rows if row.group == group.group)


def _about(catalogue: Catalogue, name: str, kind: str | None, now: datetime) -> Mapping[str, Any]:
    """All that is known of a group, or the row of a job."""
    try:
        group = catalogue.group(name, kind=kind)
    except NotFound as unknown:
        try:
            return plain_row(catalogue.row(name, kind=kind), now)
        except NotFound as no_job:
            raise (no_job if "#" in name else unknown) from None
    return {**_plain(group, catalogue.counts(group)), **catalogue.source(group.group).about(group.group)}


def _show_fields(plain: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(plain)
        return
    for name, value in plain.items():
        if value not in (None, "", [], {}):
            say(f"{name:<12} {safe(cell_text(value))}")


def _show_groups(counted: Counted, now: datetime) -> None:
    rows: list[list[Cell]] = []
    kinds = {group.door for group, _ in counted}
    has_queue = any(counts.get(JobState.SCHEDULED) for _, counts in counted)
    for group, counts in counted:
        number = {state: counts.get(state, 0) for state in JobState}
        rows.append(
            [
                *([group.door.kind] if kinds != {Door.EXPERIMENTS} else []),
                group.name,
                group.run,
                Styled(group.state, _COLOURS.get(group.state.lower(), "yellow")),
                _count(number[JobState.DONE], "green"),
                _count(number[JobState.RUNNING], "cyan"),
                *([_count(number[JobState.SCHEDULED], "yellow")] if has_queue else []),
                _count(number[JobState.WAITING] + number[JobState.READY], "yellow"),
                _count(number[JobState.ERROR], "red"),
                _count(number[JobState.UNSCHEDULED], None),
                ago(group.started, now),
            ]
        )
    say("")
    table(
        [
            *([Column("kind", rank=2)] if kinds != {Door.EXPERIMENTS} else []),
            Column("experiment" if kinds == {Door.EXPERIMENTS} else "name", least=8),
            Column("last run", rank=3),
            Column("state", rank=1),
            Column("done", right=True),
            Column("running", right=True, least=3),
            *([Column("in queue", right=True, least=4)] if has_queue else []),
            Column("waiting", right=True, least=4),
            Column("failed", right=True, least=4),
            Column("not run", right=True, rank=2),
            Column("started", right=True, rank=4),
        ],
        rows,
    )


def _count(number: int, colour: str | None) -> Styled:
    return Styled(str(number), colour if number else None, dim=not number)


def _show_running(unended: list[Row], now: datetime) -> None:
    running = [row for row in unended if row.state is not JobState.SCHEDULED]
    if len(unended) > len(running):
        say("")
        say(f"in queue: {len(unended) - len(running)} ({hint('tenuto jobs state=scheduled')})")
    if not running:
        return
    rows: list[list[Cell]] = [
        [
            job.name,
            job.task,
            f"{job.progress:.0%}" if job.progress is not None else "–",
            duration(job.elapsed_s(now)),
            duration(job.left_s(now)),
            tag_words(job.tags),
            job.progress_desc or "",
        ]
        for job in running[:MOST_RUNNING]
    ]
    say("")
    say(f"running now: {len(running)}")
    table(
        [
            Column("id"),
            Column("task", least=8),
            Column("progress", right=True, least=4),
            Column("for", right=True, rank=2),
            Column("ETA", right=True, rank=1),
            Column("tags", least=6, rank=3),
            Column("what", least=6, rank=4),
        ],
        rows,
    )
    if len(running) > MOST_RUNNING:
        say(f"and {len(running) - MOST_RUNNING} more: {hint('tenuto jobs state=running')}")


def _show_hints(counted: Counted, running: list[Row]) -> None:
    say("")
    ended = {group.group for group, _ in counted if not group.live and group.door is Door.EXPERIMENTS}
    unowned = [row for row in running if row.group in ended]
    if unowned:
        kill = hint("tenuto kill --unowned")
        say(f"no run waits for {len(unowned)} of them: run the experiment again, or {kill}")
    for group, counts in counted:
        left = sum(number for state, number in counts.items() if not state.finished())
        if group.take_up is not None and left:
            name = safe(group.name)
            say(f"{name}: its driver is gone, and {left} of its jobs have not ended: {group.take_up}")
    if any(counts.get(JobState.ERROR) for _, counts in counted):
        say(f"what failed: {hint('tenuto jobs state=error')}")
        say(f"why, and again: {hint('tenuto why ID')}, {hint('tenuto retry ID')}")
