"""The settings that hold here: what the sources give, checked, the later over the earlier.
The only reader of the environment besides the launchers, which pass it on; it creates and changes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tenuto.errors import InvalidSetting, UnknownSetting
from tenuto.light import difflib
from tenuto.settings.kinds import PATH, Unfit
from tenuto.settings.sources import (
    Given,
    from_arguments,
    from_file,
    from_variables,
    project_file,
    user_file,
    working_directory,
)
from tenuto.settings.tree import (
    SECTIONS,
    TABLE,
    WORKSPACES,
    Origin,
    Settings,
    Source,
    WorkspaceSettings,
    declared,
    is_table,
)


def process_environment() -> dict[str, str]:
    """A copy of the variables of this process: for whoever must be handed them."""
    return dict(os.environ)


def user_directory(environ: Mapping[str, str] | None = None) -> Path:
    """The directory of the user's ``tenuto.toml``, whether it exists or not."""
    variables = process_environment() if environ is None else environ
    return user_file(variables, Path(variables.get("HOME") or os.path.expanduser("~"))).parent


def load_settings(
    arguments: Mapping[str, Any] | None = None,
    *,
    start: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings that hold here, later sources winning over earlier ones.

    Built-in defaults; the user's ``tenuto.toml`` in the XDG config directory; the project's ``tenuto.toml``
    or ``[tool.tenuto]``, the nearest at or above ``start``, by default the working directory; ``TENUTO_*``;
    ``arguments`` by dotted key, of which None means not given.
    """
    variables = process_environment() if environ is None else environ
    home = Path(variables.get("HOME") or os.path.expanduser("~"))
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    user = user_file(variables, home)
    here = working_directory(start)
    project = project_file(here)
    files = [(Source.USER, user)] if os.path.isfile(user) else []
    if project is not None and not (files and project.samefile(user)):
        files.append((Source.PROJECT, project))
    given: list[Given] = []
    for source, path in files:
        given += from_file(source, path)
    given += from_variables(variables, here)
    given += from_arguments(arguments or {}, here)
    for one in given:
        key = _known_workspace(one.key, values) if one.origin.source is Source.VARIABLE else one.key
        values[key] = _taken(one, home)
        origins[key] = one.origin
    return _assembled(values, origins)


def _taken(given: Given, home: Path) -> Any:
    if is_table(given.key):
        raise InvalidSetting(f"{_where(given)}: expected a table, but got {_shown(given.value)}")
    row = declared(given.key)
    if row is None:
        raise UnknownSetting(f"{_where(given)}: there is no such setting; {_suggestion(given.key)}")
    value = given.value.value if isinstance(given.value, Enum) else given.value
    try:
        taken = row.kind.take(value)
    except Unfit:
        raise InvalidSetting(f"{_where(given)}: expected {row.kind.name}, but got {_shown(value)}") from None
    if row.kind is PATH:
        return _anchored(taken, given.base, home)
    return taken


def _anchored(path: Path, base: Path, home: Path) -> Path:
    if path.parts and path.parts[0] == "~":
        return home.joinpath(*path.parts[1:])
    return base / path


def _where(given: Given) -> str:
    """``tenuto.toml:3: slots``, or the name of the variable or argument."""
    match given.origin.source:
        case Source.VARIABLE:
            return given.origin.place
        case Source.ARGUMENT:
            return f"argument {given.key!r}"
        case _:
            return f"{given.origin.place}: {given.key}"


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:59] + '…'} ({type(value).__name__})"


def _suggestion(key: str) -> str:
    near = difflib.get_close_matches(key, TABLE, 1, 0.7)
    last = key.rpartition(".")[2]
    near = near or [known for known in TABLE if known.rpartition(".")[2] == last]
    if near:
        return f"did you mean {near[0]!r}?"
    section = key.partition(".")[0]
    siblings = [k for k in TABLE if k.startswith(f"{section}.")] or [*TABLE, f"{WORKSPACES}.NAME.path"]
    return f"the settings are {', '.join(siblings)}"


def _known_workspace(key: str, values: Iterable[str]) -> str:
    """The key of a workspace that a file spelled with capitals or dashes, which a variable cannot."""

    def spelled(text: str) -> str:
        return re.sub(r"\W", "_", text).lower()

    return next((known for known in values if spelled(known) == spelled(key)), key)


def _assembled(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> Settings:
    tree: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    workspaces: dict[str, WorkspaceSettings] = {}
    for key, value in values.items():
        parts = key.split(".")
        if parts[0] == WORKSPACES:
            workspaces[parts[1]] = WorkspaceSettings(**{parts[2]: value})
        elif parts[0] in sections:
            sections[parts[0]][parts[1]] = value
        else:
            tree[key] = value
    chosen = tree.get("default_workspace")
    if chosen is not None and chosen not in workspaces:
        near = difflib.get_close_matches(chosen, workspaces, 1)
        hint = f"did you mean {near[0]!r}?" if near else f'add [workspaces.{chosen}] path = "..."'
        place = origins["default_workspace"].place
        raise InvalidSetting(f"{place}: default_workspace: no workspace is named {chosen!r}; {hint}")
    return Settings(
        **tree,
        **{name: SECTIONS[name](**given) for name, given in sections.items()},
        workspaces=MappingProxyType(workspaces),
        origins=MappingProxyType(dict(origins)),
    )
