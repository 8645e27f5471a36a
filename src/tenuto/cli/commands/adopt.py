"""`tenuto adopt`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from tenuto.cli.console import note, print_json, say
from tenuto.cli.options import json_option
from tenuto.compat.experimaestro import install
from tenuto.experiments.adoption import AdoptedJob, adopt
from tenuto.jobs.text import counted, safe


@click.command()
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--workspace", "-w", metavar="PATH", default="workspace", show_default=True, help="Where jobs go."
)
@click.option(
    "--name", default="adopted", show_default=True, help="The experiment that they become a run of."
)
@click.option("--dry-run", is_flag=True, help="Say what would be taken over; write nothing.")
@click.option("--link", is_flag=True, help="Link files instead of copying them: both workspaces share them.")
@json_option
def command(path: Path, workspace: str, name: str, dry_run: bool, link: bool, as_json: bool) -> None:
    """Take over the done jobs of PATH, a workspace that experimaestro 2.x wrote; nothing is changed there.

    Run it where the modules of the tasks can be imported. They may import from experimaestro still: here that
    name leads to Tenuto's. Jobs that cannot be taken over are listed with the reason, and the exit code is 1.
    """
    install()
    sys.path.insert(0, os.getcwd())
    ends = list(adopt(path.resolve(), workspace, name, dry_run=dry_run, link=link))
    left = [end for end in ends if end.key is None]
    if as_json:
        print_json({"dry_run": dry_run, "jobs": [_plain(end) for end in ends]})
    else:
        for end in left:
            say(safe(f"{end.old}: {end.reason}"))
        new = [end for end in ends if end.key is not None and not end.reason]
        there = len(ends) - len(left) - len(new)
        would = "would be taken over" if dry_run else "taken over"
        note(
            f"{counted(len(new), 'job')} {would}"
            + (f", {there} there already" if there else "")
            + (f", {len(left)} not" if left else "")
        )
    if left:
        sys.exit(1)


def _plain(end: AdoptedJob) -> dict[str, Any]:
    return {
        "from": str(end.old.path),
        "task": end.old.task,
        "identifier": end.old.identifier,
        "job": end.key,
        "reason": end.reason or None,
    }
