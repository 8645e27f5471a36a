"""`tenuto pause`, and the part that it shares with `tenuto resume`."""

from __future__ import annotations

import click

from tenuto.catalogue import Catalogue
from tenuto.cli import exit_codes
from tenuto.cli.chosen_jobs import groups_of, is_filter, kind_option, meant
from tenuto.cli.completions import complete_runs
from tenuto.cli.console import note, person, print_json
from tenuto.cli.options import json_option, open_catalogue, workspace_option
from tenuto.errors import NotFound
from tenuto.jobs.row import Group
from tenuto.jobs.source import Acted, ActedAs, Action
from tenuto.jobs.text import safe


def steering(action: Action, done: str, about: str) -> click.Command:
    """The command that pauses or resumes a group."""

    @click.command(action.value, help=about)
    @click.argument("group", shell_complete=complete_runs)
    @kind_option
    @workspace_option
    @json_option
    def command(group: str, kind: str | None, workspace: str | None, as_json: bool) -> int:
        catalogue = open_catalogue(workspace)
        try:
            acted = [catalogue.steer(action, one, by=person()) for one in _groups(catalogue, group, kind)]
        except NotFound as unknown:
            acted = [_of_job(catalogue, group, kind, unknown)]
        if as_json:
            plain = [{"group": one.key, "outcome": one.outcome.value, "detail": one.detail} for one in acted]
            print_json(plain if is_filter(group) else plain[0])
        for one in () if as_json else acted:
            name = safe(one.key.partition(":")[2])
            note(f"{name} {done}" if _is_done(one) else f"{name} stays as it is: {one.detail}")
        return exit_codes.OK if all(map(_is_done, acted)) else exit_codes.FAILED

    return command


def _groups(catalogue: Catalogue, word: str, kind: str | None) -> list[Group]:
    """The group with this name, or the groups of the jobs that a filter matches."""
    if not is_filter(word):
        return [catalogue.group(word, kind=kind)]
    if found := groups_of(catalogue, meant(catalogue, [word], kind=kind).rows, kind):
        return found
    raise NotFound(f"no run, search or service has a job that matches {word!r}")


def _is_done(acted: Acted) -> bool:
    return acted.outcome is ActedAs.ASKED


def _of_job(catalogue: Catalogue, name: str, kind: str | None, unknown: NotFound) -> Acted:
    """Refuses to steer one job."""
    try:
        row = catalogue.row(name, kind=kind)
    except NotFound:
        raise unknown from None
    return Acted(row.group, ActedAs.REFUSED, f"{row.name} is one job, and only a search as a whole is paused")


command = steering(
    Action.PAUSE,
    "is paused; what runs continues",
    "Make and start no more candidates of the search GROUP until it is resumed.",
)
