"""Owns the promise that docs/cli.md names every command, option, exit code and field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tenuto.cli import exit_codes
from tenuto.cli.main import COMMANDS, loaded

from .test_looking import JOB_KEYS, RUN_KEYS, WHY_KEYS

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    found = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/cli.md has no section on {name}"
    return found[1]


def options(found: click.Command) -> Iterator[str]:
    for parameter in found.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(found, click.Group):
        for child in found.commands.values():
            yield from options(child)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_on_the_page(name: str) -> None:
    text = section(name)
    assert f"[`{name}`](#{name})" in PAGE
    missing = [option for option in options(loaded(name)) if not re.search(rf"`{option}\b", text)]
    assert not missing, f"docs/cli.md does not say what {missing} of {name} do"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does(name: str) -> None:
    assert COMMANDS[name].endswith(".")
    assert loaded(name).help


def test_every_subcommand_is_on_the_page() -> None:
    runs = loaded("runs")
    assert isinstance(runs, click.Group)
    assert all(f"`tenuto runs {child}" in section("runs") for child in runs.commands)


@pytest.mark.parametrize(("name", "keys"), [("jobs", JOB_KEYS), ("runs", RUN_KEYS), ("why", WHY_KEYS)])
def test_every_field_is_on_the_page(name: str, keys: list[str]) -> None:
    text = section(name) + (section("jobs") if name == "why" else "")
    assert [key for key in keys if f"`{key}`" not in text] == []


def test_every_exit_code_is_on_the_page() -> None:
    codes = [value for name, value in vars(exit_codes).items() if name.isupper()]
    assert sorted(codes) == list(range(7))
    assert all(f"| {code} | " in section("What they share") for code in codes)
