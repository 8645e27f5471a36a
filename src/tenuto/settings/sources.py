"""Where settings are written: the user's file, the project's, variables, arguments. Each gives what it holds.
Nothing is checked here against the kinds, and nothing is created or changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.errors import SettingsError
from tenuto.light import pattern, tomllib
from tenuto.settings.declaration import PREFIX
from tenuto.settings.tree import FILE_NAME, Origin, ValueSource, declared, is_entry, is_table

# The line on which each key of a TOML text stands, since `tomllib` does not say.
# Reads statement by statement and trusts that `tomllib` found the text valid; where it loses its way it
# stops, and a value is shown with the line of its table.


_STRING = r'"""(?:\\.|[^\\])*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'"
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_BLANK = pattern(r"(?:\s+|#[^\n]*)+")
_HEADER = pattern(rf"\[\[?[ \t]*({_KEY})[ \t]*\]\]?")
_ASSIGNED = pattern(rf"({_KEY})[ \t]*=")
_IN_VALUE = pattern(
    rf"(?P<string>{_STRING})|#[^\n]*|(?P<open>[\[{{])|(?P<close>[\]}}])|(?P<end>\n)|[^\"'#\[\]{{}}\n]+",
    re.DOTALL,
)


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line on which each table and each key of a valid TOML text is written."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    at = 0
    while True:
        if blank := _BLANK.match(text, at):
            at = blank.end()
        line = text.count("\n", 0, at) + 1
        if header := _HEADER.match(text, at):
            table = _parts(header[1])
            found.setdefault(table, line)
            at = header.end()
        elif assigned := _ASSIGNED.match(text, at):
            found.setdefault(table + _parts(assigned[1]), line)
            at = _end_of_value(text, assigned.end())
        else:
            return found


def _parts(key: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))


def _end_of_value(text: str, at: int) -> int:
    depth = 0
    while token := _IN_VALUE.match(text, at):
        if token["end"] and depth == 0:
            break
        depth += bool(token["open"]) - bool(token["close"])
        at = token.end()
    return at


LONGEST_FILE = 1_000_000


class Given(NamedTuple):
    """One value from one source; a relative path in it starts from ``base``."""

    key: str
    value: Any
    origin: Origin
    base: Path


def user_file(variables: Mapping[str, str], home: Path) -> Path:
    config = Path(variables.get("XDG_CONFIG_HOME") or "")
    return (config if config.is_absolute() else home / ".config") / "tenuto" / FILE_NAME


def working_directory(start: Path | None) -> Path:
    try:
        return (start or Path.cwd()).resolve()
    except FileNotFoundError:  # the working directory was removed
        return Path("/")


def project_file(start: Path) -> Path | None:
    """The nearest file that holds settings of a project, at or above a directory."""
    for folder in (start, *start.parents):
        own, shared = folder / FILE_NAME, folder / "pyproject.toml"
        in_shared = os.path.isfile(shared) and _section_of_pyproject(shared) is not None
        if os.path.isfile(own):
            if in_shared:
                raise SettingsError(
                    f"both {own} and [tool.tenuto] of {shared} hold settings: keep one of them"
                )
            return own
        if in_shared:
            return shared
    return None


def _read(path: Path, *, only_if: str = "") -> str:
    """The text of a file, or none if it lacks a word: a file not about us may be as odd as it likes."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(LONGEST_FILE + 1)
        if only_if.encode() not in content:
            return ""
        if len(content) > LONGEST_FILE:
            raise SettingsError(f"{path} is larger than {LONGEST_FILE} bytes: these cannot be settings")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text, at byte {error.start}") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None


def _section_of_pyproject(path: Path) -> Any:
    tool = _parse(path, _read(path, only_if="tenuto")).get("tool")
    return tool.get("tenuto") if isinstance(tool, dict) else None


def from_file(source: ValueSource, path: Path) -> Iterator[Given]:
    text = _read(path)
    lines = key_lines(text)
    if path.name == FILE_NAME:
        inside: tuple[str, ...] = ()
        content: Any = _parse(path, text)
    else:
        inside = ("tool", "tenuto")
        content = _section_of_pyproject(path)
    for keys, value in _flat(content, ()):
        place = f"{path}:{_line(lines, inside + keys)}"
        yield Given(".".join(keys), value, Origin(source, place), path.parent)


def _line(lines: Mapping[tuple[str, ...], int], keys: tuple[str, ...]) -> int:
    """The line of a key, or of the nearest table around it."""
    return next((lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in lines), 1)


def _flat(content: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values of nested tables; a table where a value must be, or the reverse, is left for the check."""
    expected = not keys or is_table(".".join(keys))
    if content == {} and is_entry(".".join(keys)):  # [services.example]: all its defaults
        yield keys, content
    elif isinstance(content, dict) and (expected or (content and declared(".".join(keys)) is None)):
        for key, value in content.items():
            yield from _flat(value, (*keys, key))
    else:
        yield keys, content


def from_variables(variables: Mapping[str, str], here: Path) -> Iterator[Given]:
    for name in sorted(variables):
        text = variables[name]
        if not name.startswith(PREFIX) or not text.strip():
            continue
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        row = declared(key)
        value = row.kind.read(text) if row else text
        yield Given(key, value, Origin(ValueSource.VARIABLE, name), here)


def from_arguments(arguments: Mapping[str, Any], here: Path) -> Iterator[Given]:
    for key, value in arguments.items():
        if value is not None:
            yield Given(key, value, Origin(ValueSource.ARGUMENT, key), here)
