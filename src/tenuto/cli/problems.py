"""Errors for programs: with `--json`, one object on standard error. It decides on no exit code."""

from __future__ import annotations

import json

import click

from tenuto.errors import FilterError, RequirementError

VERBS = frozenset(
    "add ask check choose commit create delete give go install kill leave look name pip put raise remove "
    "rename run say see set start stop tenuto try upload use wait write".split()
)
"""How a remedy in the message of an error begins."""


def tell_problem(error: str, message: str, code: int, remedy: str | None) -> None:
    """Tells an error as one object on standard error."""
    told = {"error": error, "message": message, "remedy": remedy, "exit": code}
    click.echo(json.dumps(told), err=True)


def tell_error(error: BaseException, message: str, code: int) -> None:
    """Tells an exception as one object on standard error."""
    remedy = remedy_of(message)
    if isinstance(error, click.UsageError):
        remedy = f"{error.ctx.command_path} --help" if error.ctx is not None else "tenuto --help"
    name = "UsageError" if isinstance(error, click.UsageError) else type(error).__name__
    if isinstance(error, FilterError | RequirementError) and error.text:  # a program sees no pointer
        message = f"{message.rpartition('^ ')[2]}, at character {error.position + 1} of {error.text}"
    tell_problem(name, message, code, remedy)


def remedy_of(message: str) -> str | None:
    """The part of an error that says what to do: what follows a colon or semicolon and begins with a verb."""
    parts = message.replace("; ", ": ").split(": ")
    for place, part in enumerate(parts[1:], 1):
        if part.partition(" ")[0].strip("`") in VERBS:
            return ": ".join(parts[place:])
    return None
