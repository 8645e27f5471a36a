"""`tenuto doctor`."""

from __future__ import annotations

import json as jsons
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tenuto.cli.checks import Check, CheckResult, check_machine, check_slurm
from tenuto.errors import SettingsError
from tenuto.jobs.notify import Notice, send, shown_target
from tenuto.jobs.text import safe, width
from tenuto.settings import Settings, Url, load_settings, process_environment
from tenuto.settings.tree import ValueSource

DOORS = {"service", "node", "search", "database", "queue", "slurm"}
COLORS = {CheckResult.OK: "green", CheckResult.WARN: "yellow", CheckResult.FAIL: "red"}


@click.command()
@click.option("-w", "--workspace", metavar="DIR", help="The workspace to check, by name or path.")
@click.option("--notify", is_flag=True, help="Send a test notice to where [notify] says.")
@click.option("--json", is_flag=True, help="Print settings and checks as JSON.")
@click.pass_context
def command(ctx: click.Context, workspace: str | None, notify: bool, json: bool) -> None:
    """Show where each setting comes from, and check what this machine can do.

    Each check is tried for real, and leaves nothing behind: locks are taken by one process and looked at from
    another, on the file system of the workspace. Without -w that is the default workspace, or else the
    current directory.

    Exit codes: 0 jobs can run here; 1 something that they need is missing; 2 the settings cannot be read.
    """
    settings = load_settings()
    place = _place(settings, workspace)
    checks = [*check_machine(place, process_environment()), *check_slurm(settings)]
    if notify:
        checks.append(_check_notify(settings))
    failed = any(check.verdict is CheckResult.FAIL for check in checks)
    if json:
        click.echo(jsons.dumps({"settings": _settings_json(settings), "checks": _checks_json(checks)}))
    else:
        _show(settings, checks)
    ctx.exit(int(failed))


def _check_notify(settings: Settings) -> Check:
    """Sends a test notice."""
    target = shown_target(settings.notify)
    if not target:
        advice = "write [notify] with command or url into tenuto.toml"
        return Check("notify", CheckResult.FAIL, "neither a command nor an address is set", advice)
    problem = send(settings.notify, Notice("ended", "tenuto: a test", "notices arrive", "doctor", "done"))
    if problem is not None:
        return Check("notify", CheckResult.FAIL, problem, "see docs/cli.md")
    return Check("notify", CheckResult.OK, f"a test notice was sent to {target}")


def _place(settings: Settings, given: str | None) -> Path:
    try:
        return settings.workspace(given)
    except SettingsError:  # none is the default: then jobs go where a script says, most likely near here
        return Path.cwd()


def _show(settings: Settings, checks: list[Check]) -> None:
    click.secho("Settings", bold=True)
    rows = list(_rows(settings))
    keys = max(width(key) for key, _, _ in rows)
    values = min(max(width(safe(value)) for _, value, _ in rows), 40)
    for key, value, origin in rows:
        click.echo(f"  {key:{keys}}  {safe(value):{values}}  {safe(origin)}")
    click.secho("\nThis machine", bold=True)
    names = max(len(check.name) for check in checks)
    for check in checks:
        verdict = click.style(f"{check.verdict.value:4}", fg=COLORS[check.verdict])
        click.echo(f"  {verdict}  {check.name:{names}}  {safe(check.found)}")
        if check.advice:
            click.echo(f"        {'':{names}}  -> {safe(check.advice)}")
    bad = [check.name for check in checks if check.verdict is CheckResult.FAIL]
    click.echo(f"\nJobs cannot run here: {', '.join(bad)}" if bad else "\nJobs can run here.")


def _rows(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Setting, value and origin; a door whose settings all have their defaults is one row."""
    given = {
        key.partition(".")[0]
        for key, _, origin in settings.items()
        if origin.source is not ValueSource.DEFAULT
    }
    told = set()
    for key, value, origin in settings.items():
        section = key.partition(".")[0]
        if section not in DOORS or section in given:
            yield key, _shown(value), str(origin)
        elif section not in told:
            told.add(section)
            yield f"{section}.*", "", f"{origin} for all"


def _shown(value: Any) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _plain(value: Any) -> Any:
    """The value as JSON has it; a URL without its password."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path | Url) else value


def _settings_json(settings: Settings) -> list[dict[str, Any]]:
    return [
        {
            "setting": key,
            "value": _plain(value),
            "from": origin.source.name.lower(),
            "place": origin.place or None,
        }
        for key, value, origin in settings.items()
    ]


def _checks_json(checks: list[Check]) -> list[dict[str, Any]]:
    return [{**check._asdict(), "verdict": check.verdict.value} for check in checks]
