"""`tenuto pause`, and the part that it shares with `tenuto resume`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tenuto.catalogue import Catalogue
from tenuto.cli import exit_codes
from tenuto.cli.chosen_jobs import groups_of, is_filter, job_options, kind_beside, meant
from tenuto.cli.completions import complete_runs
from tenuto.cli.console import note, person, print_json
from tenuto.cli.options import open_catalogue
from tenuto.errors import NotFound
from tenuto.jobs.row import Group
from tenuto.jobs.source import Acted, ActedAs, Action
from tenuto.jobs.text import safe


def steering(action: Action, done: str, about: str) -> click.Command:
    """The command that pauses or resumes a group."""

    @click.command(action.value, help=about)
    @click.argument("words", metavar="GROUP", nargs=-1, required=True, shell_complete=complete_runs)
    @job_options
    def command(words: tuple[str, ...], kind: str | None, workspace: str | None, as_json: bool) -> int:
        catalogue = open_catalogue(workspace)
        named, kind = kind_beside(words, kind)
        try:
            acted = [catalogue.steer(action, one, by=person()) for one in _groups(catalogue, named, kind)]
        except NotFound as unknown:
            acted = [_of_job(catalogue, named, kind, unknown)]
        if as_json:
            plain = [{"group": one.key, "outcome": one.outcome.value, "detail": one.detail} for one in acted]
            print_json(plain if len(named) > 1 or is_filter(named[0]) else plain[0])
        for one in () if as_json else acted:
            name = safe(one.key.partition(":")[2])
            note(f"{name} {done}" if _is_done(one) else f"{name} stays as it is: {one.detail}")
        return exit_codes.OK if all(map(_is_done, acted)) else exit_codes.FAILED

    return command


def _groups(catalogue: Catalogue, words: Sequence[str], kind: str | None) -> list[Group]:
    """The groups with these names, or the groups of the jobs that a filter matches."""
    if not any(map(is_filter, words)):
        return [catalogue.group(word, kind=kind) for word in words]
    if found := groups_of(catalogue, meant(catalogue, words, kind=kind).rows, kind):
        return found
    raise NotFound(f"no run, search or service has a job that matches {' '.join(words)!r}")


def _is_done(acted: Acted) -> bool:
    return acted.outcome is ActedAs.ASKED


def _of_job(catalogue: Catalogue, words: Sequence[str], kind: str | None, unknown: NotFound) -> Acted:
    """Refuses to steer one job."""
    try:
        row = catalogue.row(" ".join(words), kind=kind)
    except NotFound:
        raise unknown from None
    return Acted(row.group, ActedAs.REFUSED, f"{row.name} is one job, and only a search as a whole is paused")


command = steering(
    Action.PAUSE,
    "is paused; what runs continues",
    "Make and start no more candidates of the search GROUP until it is resumed.",
)
