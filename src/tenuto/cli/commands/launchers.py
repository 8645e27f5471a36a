"""`tenuto launchers`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from tenuto.cli import exit_codes
from tenuto.cli.console import print_json
from tenuto.cli.options import json_option
from tenuto.experiments.probe import probe
from tenuto.jobs.text import safe, width
from tenuto.launchers.requirements import Requirement
from tenuto.launchers.selection import Finder, Launchers, Offer, Search, offers
from tenuto.settings import load_settings


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Say which launchers there are, and which one a requirement leads to.

    Without a subcommand: list them.
    """
    if ctx.invoked_subcommand is None:
        _list(as_json)
    elif as_json:
        raise click.UsageError(f"put the options after the word {ctx.invoked_subcommand!r}", ctx)


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the launchers: what each offers, or why it cannot be used here."""
    _list(as_json)


@command.command("check")
@click.argument("spec")
@click.option("--tag", "tags", multiple=True, metavar="T", help="A word for your launchers.py; repeatable.")
@json_option
def check_command(spec: str, tags: tuple[str, ...], as_json: bool) -> int:
    """Say which launcher the requirement SPEC leads to, as under launcher = "auto"; start nothing.

    Exit codes: 0 a launcher was found; 1 none satisfies SPEC; 2 SPEC cannot be read.
    """
    requirement = Requirement.parse(spec)
    settings = load_settings()
    found = Finder(settings, Launchers(settings)).search(requirement, frozenset(tags))
    if as_json:
        print_json(_search_json(requirement, found))
    else:
        _show_search(requirement, found)
    return exit_codes.FAILED if found.chosen is None else exit_codes.OK


@command.command("test")
@click.argument("name", required=False)
@click.option("-w", "--workspace", metavar="DIR", help="Where the probe keeps its files; removed afterwards.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(min=1), default=600.0, help="Seconds it may take to start."
)
@json_option
def test_command(name: str | None, workspace: str | None, wait_s: float, as_json: bool) -> int:
    """Run two small jobs by the launcher NAME, or by that of the settings, and say what they show.

    Exit codes: 0 jobs run there; 1 they do not; 2 there is no such launcher.
    """
    settings = load_settings()
    launchers = Launchers(settings)
    launcher = launchers.named(name or settings.launcher)
    place = settings.workspace(workspace) if workspace else Path.cwd()
    with tempfile.TemporaryDirectory(prefix=".tenuto-probe-", dir=place) as folder:
        findings = probe(launcher, Path(folder), settings, wait_s)
    launchers.close()
    if as_json:
        print_json([one._asdict() for one in findings])
    else:
        names = max(len(one.name) for one in findings)
        for one in findings:
            word, colour = ("ok  ", "green") if one.is_good else ("warn", "yellow")
            word, colour = ("fail", "red") if one.is_fatal else (word, colour)
            click.echo(f"  {click.style(word, fg=colour)}  {one.name:{names}}  {safe(one.found)}")
            if not one.is_good and one.advice:
                click.echo(f"        {'':{names}}  -> {safe(one.advice)}")
    return exit_codes.FAILED if any(one.is_fatal for one in findings) else exit_codes.OK


def _list(as_json: bool) -> None:
    found = offers(load_settings())
    if as_json:
        print_json([offer._asdict() for offer in found])
        return
    names = max(width(offer.name) for offer in found)
    for offer in found:
        sign = click.style("yes" if offer.usable else "no ", fg="green" if offer.usable else "yellow")
        click.echo(f"  {sign}  {offer.name:{names}}  {safe(_told(offer))}")


def _told(offer: Offer) -> str:
    chosen = "; the one of the settings" if offer.default else ""
    return f"{offer.offers if offer.usable else offer.why}{chosen}"


def _search_json(requirement: Requirement, found: Search) -> dict[str, Any]:
    chosen = None
    if found.chosen is not None:
        launcher, _, number = found.chosen
        chosen = {
            "launcher": launcher.name,
            "alternative": number,
            "options": launcher.arguments() if hasattr(launcher, "arguments") else [],
        }
    return {
        "requirement": str(requirement),
        "chosen": chosen,
        "tried": [{**one._asdict(), "why": one.why or None} for one in found.tried],
    }


def _show_search(requirement: Requirement, found: Search) -> None:
    for one in found.tried:
        sign = click.style("yes" if one.fits else "no ", fg="green" if one.fits else "yellow")
        about = "" if one.alternative is None else f"{requirement.alternatives[one.alternative - 1]}"
        why = f": {one.why}" if one.why else ""
        click.echo(f"  {sign}  {safe(one.launcher)}  {safe(about)}{safe(why)}")
    if found.chosen is None:
        click.echo(f"no launcher satisfies {requirement}", err=True)
