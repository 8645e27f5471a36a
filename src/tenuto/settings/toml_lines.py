"""The line on which each key of a TOML text stands, since `tomllib` does not say.
Reads statement by statement and trusts that `tomllib` found the text valid; where it loses its way it stops,
and a value is shown with the line of its table.
"""

from __future__ import annotations

import re

from tenuto.light import pattern

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
