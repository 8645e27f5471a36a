"""`tenuto pause`, and what it shares with `tenuto resume`."""

from __future__ import annotations

import click

from tenuto.cli import exit_codes
from tenuto.cli.chosen_jobs import kind_option
from tenuto.cli.completions import complete_runs
from tenuto.cli.console import note, print_json
from tenuto.cli.options import json_option, open_catalogue, workspace_option
from tenuto.cli.person import person
from tenuto.jobs.query import group_names
from tenuto.jobs.source import ActedAs, Action
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
        found = catalogue.group(group, kind=kind)
        acted = catalogue.steer(action, found, by=person())
        is_done = acted.outcome is ActedAs.ASKED
        if as_json:
            print_json({"group": found.group, "outcome": acted.outcome.value, "detail": acted.detail})
        else:
            name = safe(group_names(found.group)[1])
            note(f"{name} {done}" if is_done else f"{name} stays as it is: {acted.detail}")
        return exit_codes.OK if is_done else exit_codes.FAILED

    return command


command = steering(
    Action.PAUSE,
    "is paused; what runs continues",
    "Make and start no more candidates of the search GROUP until it is resumed.",
)
