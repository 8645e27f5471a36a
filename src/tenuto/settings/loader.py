"""The settings that hold here: what the sources give, checked, the later over the earlier.
The only reader of the environment besides the launchers, which pass it on; it creates and changes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tenuto.errors import InvalidSetting, SettingsError, UnknownSetting
from tenuto.light import difflib, pattern, tomllib
from tenuto.settings.clusters import CLUSTER_NAME, LOCAL_NAMES, is_cluster_name
from tenuto.settings.declaration import PREFIX, Unfit
from tenuto.settings.tree import (
    FILE_NAME,
    NAMED,
    NAMED_TABLE,
    SECTIONS,
    SLURM,
    TABLE,
    Origin,
    Settings,
    ValueSource,
    declared,
    is_entry,
    is_table,
    unaliased,
)
from tenuto.settings.urls import without_secrets

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
    if content == {} and keys and expected:  # [service], [services.example]: all its defaults
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


# Variables that other programs made known, such as PORT or DATABASE_URL, as settings of ours.
# Read only for the sections that a program names: to another program such a variable means something else.


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


def process_environment() -> dict[str, str]:
    """A copy of the variables of this process: for callers that must be handed them."""
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
    foreign: Iterable[str] = (),
) -> Settings:
    """The settings that hold here, later sources winning over earlier ones.

    Built-in defaults; the user's ``tenuto.toml`` in the XDG config directory; the project's ``tenuto.toml``
    or ``[tool.tenuto]``, the nearest at or above ``start``, by default the working directory; variables of
    other programs, such as ``PORT``, for the sections named by ``foreign`` and no others, since a variable of
    such a name may mean something else to its user; ``TENUTO_*``; ``arguments`` by dotted key, of which
    None means not given.

    Raises `UnknownSetting` and `InvalidSetting`, which say where the setting is written.
    """
    variables = process_environment() if environ is None else environ
    home = Path(variables.get("HOME") or os.path.expanduser("~"))
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    user = user_file(variables, home)
    here = working_directory(start)
    project = project_file(here)
    files = [(ValueSource.USER, user)] if os.path.isfile(user) else []
    if project is not None and not (files and project.samefile(user)):
        files.append((ValueSource.PROJECT, project))
    given: list[Given] = []
    for source, path in files:
        given += from_file(source, path)
    found, warnings = from_foreign_variables(variables, here, tuple(foreign))
    given += found
    given += from_variables(variables, here)
    given += from_arguments(arguments or {}, here)
    names = _cluster_names(given)
    for one in given:
        by_variable = one.origin.source in (ValueSource.VARIABLE, ValueSource.FOREIGN)
        key = unaliased(_known_entry(one.key, values) if by_variable else one.key)
        if is_table(key) and one.value == {}:
            if is_entry(key):
                values.setdefault(key, None)
            origins.setdefault(key, one.origin)
            continue
        is_cluster = key == "launcher" and isinstance(one.value, str) and one.value in names
        values[key] = one.value if is_cluster else _taken(one, home, names)
        origins[key] = one.origin
    return _assembled(values, origins, tuple(path for _, path in files), tuple(warnings))


def _cluster_names(given: Iterable[Given]) -> set[str]:
    """The names of the clusters that the settings tell of; refuses two tables for one, and a taken name."""
    by_table: dict[str, Given] = {}
    names = set()
    for one in given:
        table = ".".join(one.key.split(".")[:2])
        if table.partition(".")[0] == SLURM or table == f"clusters.{SLURM}":
            by_table.setdefault(table if table.startswith("clusters.") else SLURM, one)
        if table.startswith("clusters."):
            name = table.removeprefix("clusters.")
            names.add(name)
            if name in LOCAL_NAMES:
                raise InvalidSetting(f"{_where(one)}: a launcher of this machine has that name: take another")
            if not is_cluster_name(name):
                raise InvalidSetting(f"{_where(one)}: {name!r} is no name of a cluster: {CLUSTER_NAME}")
    if len(by_table) > 1:
        first, second = by_table.values()
        raise InvalidSetting(
            f"{_where(first)} and {_where(second)}: [slurm] is [clusters.slurm]: keep one of them"
        )
    return names


def _taken(given: Given, home: Path, clusters: Iterable[str]) -> Any:
    if is_table(given.key):
        raise InvalidSetting(f"{_where(given)}: expected a table, but got {_shown(given.value)}")
    row = declared(given.key)
    if row is None:
        raise UnknownSetting(f"{_where(given)}: there is no such setting; {_suggestion(given.key)}")
    value = given.value.value if isinstance(given.value, Enum) else given.value
    try:
        taken = row.kind.take(value)
    except Unfit as unfit:
        why = f": {unfit}" if unfit.args else ""
        if row.key == "launcher":
            why = f": the clusters of the settings are {', '.join(sorted(clusters)) or 'none'}"
        told = f"{_where(given)}: expected {row.kind.name}, but got {_shown(value)}{why}"
        raise InvalidSetting(told) from None
    return _anchored(taken, given.base, home)


def _anchored(value: Any, base: Path, home: Path) -> Any:
    """The value; a relative path in it starts where the setting is written."""
    if isinstance(value, tuple):
        return tuple(_anchored(one, base, home) for one in value)
    if not isinstance(value, Path):
        return value
    if value.parts and value.parts[0] == "~":
        return home.joinpath(*value.parts[1:])
    return base / value


def _where(given: Given) -> str:
    """``tenuto.toml:3: slots``, or the name of the variable or argument."""
    match given.origin.source:
        case ValueSource.VARIABLE | ValueSource.FOREIGN:
            return given.origin.place
        case ValueSource.ARGUMENT:
            return f"argument {given.key!r}"
        case _:
            return f"{given.origin.place}: {given.key}"


def _shown(value: Any) -> str:
    text = without_secrets(repr(value))
    return f"{text if len(text) <= 60 else text[:59] + '…'} ({type(value).__name__})"


def _suggestion(key: str) -> str:
    table, name, *_ = [*key.split("."), ""]
    known = [
        *TABLE,
        *(row.replace("NAME", name if row.startswith(f"{table}.") else "NAME") for row in NAMED_TABLE),
    ]
    if table == SLURM:
        known = [row.replace("clusters.NAME", SLURM) for row in NAMED_TABLE if row.startswith("clusters.")]
    siblings = [one for one in known if one.startswith(f"{table}.")]
    last, lasts = key.rpartition(".")[2], {one.rpartition(".")[2]: one for one in siblings}
    near = [lasts[one] for one in difflib.get_close_matches(last, lasts, 1, 0.7)]
    near = near or difflib.get_close_matches(key, known if not siblings else (), 1, 0.7)
    near = near or [one for one in known if one.rpartition(".")[2] == last]
    if near:
        return f"did you mean {near[0]!r}?"
    return f"the settings are {', '.join(siblings or [*_without_sections(), *SECTIONS, *NAMED])}"


def _without_sections() -> list[str]:
    return [key for key in TABLE if "." not in key]


def _known_entry(key: str, values: Iterable[str]) -> str:
    """The key of an entry that a file spelled with capitals or dashes, which a variable cannot."""

    def spelled(text: str) -> str:
        return re.sub(r"\W", "_", text).lower()

    table, _, rest = key.partition(".")
    if table not in NAMED or not rest:
        return key
    name, _, setting = rest.partition(".")
    names = (known.split(".")[1] for known in values if known.startswith(f"{table}."))
    name = next((known for known in names if spelled(known) == spelled(name)), name)
    return ".".join(part for part in (table, name, setting) if part)


def _assembled(
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
    files: tuple[Path, ...],
    warnings: tuple[str, ...],
) -> Settings:
    tree: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    named: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in NAMED}
    for key, value in values.items():
        parts = key.split(".")
        if parts[0] in named:
            entry = named[parts[0]].setdefault(parts[1], {})
            entry.update({parts[2]: value} if len(parts) == 3 else {})
        elif parts[0] in sections:
            sections[parts[0]][parts[1]] = value
        else:
            tree[key] = value
    tree.update({name: SECTIONS[name](**given) for name, given in sections.items()})
    tree.update({table: _entries(table, given, origins) for table, given in named.items()})
    settings = Settings(
        **tree,
        origins=MappingProxyType(dict(origins)),
        files=files,
        warnings=warnings,
    )
    _check_names(settings)
    return settings


def _entries(
    table: str, given: Mapping[str, dict[str, Any]], origins: Mapping[str, Origin]
) -> Mapping[str, Any]:
    """The entries of a named table; an entry without a required setting is refused."""
    for name, said in given.items():
        for key, row in NAMED_TABLE.items():
            if key.startswith(f"{table}.") and not row.default and key.rpartition(".")[2] not in said:
                place = next(o.place for k, o in origins.items() if f"{k}.".startswith(f"{table}.{name}."))
                missing = key.replace("NAME", name)
                raise InvalidSetting(f"{place}: {missing} is missing: {row.kind.name}")
    return MappingProxyType({name: NAMED[table](**said) for name, said in given.items()})


def _check_names(settings: Settings) -> None:
    """Refuses a setting that names an entry of a table which is not there."""
    chosen = settings.default_workspace
    if chosen is not None and chosen not in settings.workspaces and "/" not in chosen:
        remedy = f'add [workspaces.{chosen}] path = "...", or write ./{chosen} for a path'
        raise _no_entry(settings, "default_workspace", "workspace", chosen, settings.workspaces, remedy)
    for service, offered in settings.services.items():
        for node in offered.nodes:
            if isinstance(node, str) and node not in settings.nodes:
                remedy = f'add [nodes.{node}] url = "..."'
                raise _no_entry(settings, f"services.{service}.nodes", "node", node, settings.nodes, remedy)


def _no_entry(
    settings: Settings, key: str, kind: str, name: str, known: Iterable[str], remedy: str
) -> InvalidSetting:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else remedy
    return InvalidSetting(f"{settings.origin(key).place}: {key}: no {kind} is named {name!r}; {hint}")
