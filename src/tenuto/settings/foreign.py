"""Variables that other programs made known, such as PORT or DATABASE_URL, as settings of ours.
Read only for the sections that a program names: to another program such a variable means something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tenuto.errors import InvalidSetting
from tenuto.settings.sources import Given
from tenuto.settings.tree import NAMED_TABLE, TABLE, Origin, ValueSource, declared

SERVICES = "services"
SERVICE_PREFIX = "SERVICE_"
_URLS = {"UPLOAD_URL": "/submit", "DOWNLOAD_URL": "/retrieve", "TERMINATE_URL": "/kill"}
"""The three URLs that a server was given for one node, and what each ends with behind the node's base URL."""
_ENDINGS = {
    "RUNS_PER_USER": "runs_per_user",
    "MAX_RUNS": "max_runs",
    **dict.fromkeys(_URLS, "nodes"),
}


def from_foreign_variables(
    variables: Mapping[str, str], here: Path, sections: tuple[str, ...]
) -> tuple[list[Given], list[str]]:
    """The settings that foreign variables give to the sections, and a sentence for each that is ignored."""
    given: list[Given] = []
    warnings: list[str] = []
    for row in TABLE.values():
        text = variables.get(row.foreign, "") if row.foreign else ""
        if text.strip() and row.key.partition(".")[0] in sections:
            given.append(Given(row.key, row.kind.read(text), Origin(ValueSource.FOREIGN, row.foreign), here))
    if SERVICES in sections:
        _add_services(variables, here, given, warnings)
    return given, warnings


def _add_services(variables: Mapping[str, str], here: Path, given: list[Given], warnings: list[str]) -> None:
    bases: dict[str, dict[str, str]] = {}
    for variable in sorted(variables):
        text = variables[variable].strip()
        if not variable.startswith(SERVICE_PREFIX) or not text:
            continue
        name, ending = _split(variable.removeprefix(SERVICE_PREFIX))
        if not name:
            warnings.append(f"{variable} is ignored: it ends with none of {', '.join(_ENDINGS)}")
        elif ending in _URLS:
            bases.setdefault(name, {})[variable] = _base(text, _URLS[ending])
        else:
            key = f"{SERVICES}.{name}.{_ENDINGS[ending]}"
            row = declared(key)
            value: Any = row.kind.read(text) if row else text
            given.append(Given(key, value, Origin(ValueSource.FOREIGN, variable), here))
    for name, found in bases.items():
        variable, base = next(iter(found.items()))
        if len(set(found.values())) > 1:
            raise InvalidSetting(
                f"{', '.join(found)} are not of one node: give all three the same beginning, or write "
                f"[{SERVICES}.{name}] nodes = [...]"
            )
        given.append(Given(f"{SERVICES}.{name}.nodes", [base], Origin(ValueSource.FOREIGN, variable), here))


def _split(rest: str) -> tuple[str, str]:
    """The name of a service, which may hold underscores, and the known ending behind it."""
    for ending in _ENDINGS:
        if rest.endswith(f"_{ending}") and len(rest) > len(ending) + 1:
            return rest.removesuffix(f"_{ending}").lower(), ending
    return "", ""


def _base(text: str, ending: str) -> str:
    return text.rstrip("/").removesuffix(ending).rstrip("/")


def foreign_variables() -> Iterator[tuple[str, str]]:
    """Each foreign variable with the setting that it gives: for the documentation."""
    for row in [*TABLE.values(), *NAMED_TABLE.values()]:
        if row.foreign:
            yield row.foreign, row.key
