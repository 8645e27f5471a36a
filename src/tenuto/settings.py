"""One tree of settings, and where each value comes from: file < environment < arguments.
The only reader of the environment besides the launchers, which pass it on; it creates and changes nothing.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, unique
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from tenuto.errors import InvalidSetting, SettingsError, UnknownSetting
from tenuto.light import difflib, pattern, tomllib

FILE_NAME = "tenuto.toml"
PREFIX = "TENUTO_"
LONGEST_FILE = 1_000_000

T = TypeVar("T")


# -- the kinds of values -----------------------------------------------------------------------------


class _Unfit(Exception):
    """The value is not of the kind."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """What a setting may hold: in words, how a value is taken, and how the text of a variable is read."""

    name: str
    take: Callable[[Any], T]
    read: Callable[[str], Any] = str


def _number_or_text(text: str) -> Any:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _flag_or_text(text: str) -> Any:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False}
    return {**words, "off": False}.get(text.strip().lower(), text)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _take_flag(value: Any) -> bool:
    if type(value) is not bool:
        raise _Unfit
    return value


def _take_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise _Unfit
    return value


def _take_path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(_take_text(value))


def _take_seconds(value: Any) -> float:
    if type(value) not in (int, float) or not (value > 0 and math.isfinite(value)):
        raise _Unfit
    return float(value)


_SIZE = pattern(r"(\d{1,12})\s*(?:([KMGT])(?:i?B)?)?", re.IGNORECASE)


def _take_bytes(value: Any) -> int:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        value = int(match[1]) << 10 * ("KMGT".index(match[2].upper()) + 1 if match[2] else 0)
    if type(value) is not int or value < 1:
        raise _Unfit
    return value


_VARIABLE = pattern(r"[A-Za-z_][A-Za-z0-9_]*\*?", re.ASCII)


def _take_variables(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, str) and _VARIABLE.fullmatch(item) for item in value
    ):
        raise _Unfit
    return tuple(value)


def _integer(at_least: int) -> Kind[int]:
    def take(value: Any) -> int:
        if type(value) is not int or value < at_least:
            raise _Unfit
        return value

    return Kind(f"an integer, at least {at_least}", take, _number_or_text)


def _choice(*words: str) -> Kind[str]:
    def take(value: Any) -> str:
        if value not in words:
            raise _Unfit
        return str(value)

    return Kind(" or ".join(f'"{word}"' for word in words), take)


def _optional(kind: Kind[T]) -> Kind[T | None]:
    def take(value: Any) -> T | None:
        return None if value == "none" else kind.take(value)

    return Kind(f'{kind.name}, or "none"', take, kind.read)


FLAG = Kind("true or false", _take_flag, _flag_or_text)
TEXT = Kind("text", _take_text)
PATH = Kind("a path", _take_path)
SECONDS = Kind("seconds, more than 0", _take_seconds, _number_or_text)
BYTES = Kind('bytes, such as 4096 or "4G"', _take_bytes, _number_or_text)
VARIABLES = Kind("a list of names; a last * stands for any ending", _take_variables, _split)


# -- the table ---------------------------------------------------------------------------------------
# Each setting is declared once, here: its name, its kind, its default and what it means. The page
# docs/settings.md, the variables and the checks all come from these classes.


def _setting(kind: Kind[T], default: T, meaning: str) -> T:
    return field(default=default, metadata={"kind": kind, "meaning": meaning})


def _found(kind: Kind[T], factory: Callable[[], T], default_text: str, meaning: str) -> T:
    """A setting whose default depends on the machine."""
    return field(
        default_factory=factory, metadata={"kind": kind, "meaning": meaning, "default_text": default_text}
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _tokens_path() -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or "")
    home = Path(os.environ.get("HOME") or os.path.expanduser("~"))
    return (state if state.is_absolute() else home / ".local" / "state") / "tenuto" / "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSettings:
    """A workspace that has a name."""

    path: Path = field(
        metadata={"kind": PATH, "meaning": "Where the workspace lies; relative to the file that says so."}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """How many runs of an experiment are kept once they are over. Jobs and their results are not touched."""

    max_done: int | None = _setting(_optional(_integer(0)), 5, "Runs kept that ended well.")
    max_failed: int | None = _setting(_optional(_integer(0)), 1, "Runs kept that failed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSettings:
    """What a run records about its surroundings in environment.json."""

    allow: tuple[str, ...] = _setting(
        VARIABLES,
        (),
        "Variables recorded besides the usual ones. Under a `*`, names that look like a secret stay out.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CarbonSettings:
    """Whether the energy of jobs is measured; needs the extra `carbon`, or a tracker of your own."""

    enabled: bool = _setting(FLAG, True, "Whether to measure, if there is something to measure with.")
    after_s: float = _setting(SECONDS, 5.0, "Jobs that end sooner are not measured.")
    every_s: float = _setting(SECONDS, 15.0, "How often a running job is measured.")
    country: str | None = _setting(
        _optional(TEXT),
        None,
        'Whose electricity is used, as three letters such as FRA; "none": the average of the world.',
    )
    tracker: str | None = _setting(
        _optional(TEXT), None, 'Another tracker than codecarbon: "module:function", see docs/carbon.md.'
    )


@unique
class Source(Enum):
    """Where a value can come from, the weakest first."""

    DEFAULT = "built-in default"
    USER = "user's file"
    PROJECT = "project's file"
    VARIABLE = "environment variable"
    ARGUMENT = "argument"


class Origin(NamedTuple):
    """Where a value came from: ``place`` is ``file:line``, or the name of the variable or argument."""

    source: Source
    place: str = ""

    def __str__(self) -> str:
        return (
            self.place if self.source in (Source.USER, Source.PROJECT, Source.VARIABLE) else self.source.value
        )


_BY_DEFAULT = Origin(Source.DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of Tenuto. ``Settings()`` holds the built-in defaults; `load_settings` reads the rest."""

    default_workspace: str | None = _setting(
        _optional(TEXT), None, "The workspace used where none is given: a name under `workspaces`."
    )
    launcher: str = _setting(
        _choice("warm", "spawn"),
        "warm",
        'How jobs are started. "warm": forked from a process that has imported their modules, where that is '
        'safe. "spawn": a fresh interpreter for each.',
    )
    slots: int = _found(_integer(1), _cores, "the cores", "Jobs that run at once on this machine.")
    max_retries: int = _setting(_integer(0), 3, "Restarts of a resumable task that ran out of time.")
    max_lost_retries: int | None = _setting(
        _optional(_integer(0)),
        None,
        'Restarts of a job whose runner vanished; "none" means 1 for a resumable task, else 0.',
    )
    durability: str = _setting(
        _choice("marker", "none"),
        "marker",
        '"marker": the end of a job is on the disk before it counts. "none": faster, but a power loss '
        "can undo it.",
    )
    log_bytes: int = _setting(BYTES, 64 << 20, "Size that each log of a job is kept under.")
    grace_s: float = _setting(SECONDS, 10.0, "Time that a job gets to stop before it is killed.")
    walltime_s: float | None = _setting(_optional(SECONDS), None, "Time after which a job is stopped.")
    memory_bytes: int | None = _setting(_optional(BYTES), None, "Memory that a job may use.")
    dirty_git: str = _setting(
        _choice("ignore", "warn", "error"), "warn", "What a run does when a project has uncommitted changes."
    )
    fail_run_on_failed_job: bool = _setting(
        FLAG, True, "Whether one failed job makes the run failed and the exit code 1."
    )
    tokens_path: Path = _found(  # noqa: RUF009  a field, as all the others
        PATH,
        _tokens_path,
        "~/.local/state/tenuto/tokens",
        "Where the tokens of a machine are counted, by its name; what shares tokens must share this path.",
    )
    history: HistorySettings = field(default_factory=HistorySettings)
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    carbon: CarbonSettings = field(default_factory=CarbonSettings)
    workspaces: Mapping[str, WorkspaceSettings] = field(default_factory=lambda: MappingProxyType({}))
    origins: Mapping[str, Origin] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    def origin(self, key: str) -> Origin:
        """Where the value of a setting such as ``"history.max_done"`` came from."""
        return self.origins.get(key, _BY_DEFAULT)

    def items(self) -> Iterator[tuple[str, Any, Origin]]:
        """Every setting with its value and where that came from, in the order of the documentation."""
        for key in TABLE:
            section, _, name = key.rpartition(".")
            yield key, getattr(getattr(self, section) if section else self, name), self.origin(key)
        for name, workspace in self.workspaces.items():
            key = f"workspaces.{name}.path"
            yield key, workspace.path, self.origin(key)

    def workspace(self, given: str | Path | None = None) -> Path:
        """The directory of a workspace: by its name, by its path, or the default one.

        A text is first taken as a name under ``workspaces``, then as a path; ``./name`` is always a path.
        """
        if isinstance(given, Path):
            return given
        if given is None:
            given = self.default_workspace or (
                next(iter(self.workspaces)) if len(self.workspaces) == 1 else None
            )
            if given is None:
                raise SettingsError(
                    "no workspace was given and none is the default: give a path, or write "
                    f'default_workspace = "main" and [workspaces.main] path = "..." into {FILE_NAME}'
                )
        known = self.workspaces.get(given)
        return known.path if known else Path(given)


class Declared(NamedTuple):
    """One row of the table of settings."""

    key: str
    kind: Kind[Any]
    default: str
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.key.replace(".", "__").upper()


_SECTIONS: dict[str, Any] = {
    "history": HistorySettings,
    "environment": EnvironmentSettings,
    "carbon": CarbonSettings,
}
_WORKSPACES = "workspaces"


def _default_text(declared: Any) -> str:
    if "default_text" in declared.metadata:
        return str(declared.metadata["default_text"])
    default = declared.default
    if default is None:
        return "none"
    return (
        str(default).lower()
        if isinstance(default, bool)
        else str(list(default) if default == () else default)
    )


def _declared(cls: Any, prefix: str) -> Iterator[Declared]:
    for one in fields(cls):
        if "kind" in one.metadata:
            yield Declared(
                prefix + one.name, one.metadata["kind"], _default_text(one), one.metadata["meaning"]
            )


TABLE: Mapping[str, Declared] = {
    row.key: row
    for cls, prefix in [(Settings, ""), *((cls, f"{name}.") for name, cls in _SECTIONS.items())]
    for row in _declared(cls, prefix)
}
"""Every setting by its dotted key, in the order of the documentation."""

WORKSPACE_TABLE: Mapping[str, Declared] = {
    row.key: row._replace(key=f"{_WORKSPACES}.NAME.{row.key}", default="")
    for row in (
        Declared(one.name, one.metadata["kind"], "", one.metadata["meaning"])
        for one in fields(WorkspaceSettings)
    )
}
"""What can be said of each named workspace."""


# -- reading the sources -----------------------------------------------------------------------------


def process_environment() -> dict[str, str]:
    """A copy of the variables of this process: for whoever must be handed them."""
    return dict(os.environ)


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
    user = _user_file(variables, home)
    here = _here(start)
    project = _project_file(here)
    files = [(Source.USER, user)] if os.path.isfile(user) else []
    if project is not None and not (files and project.samefile(user)):
        files.append((Source.PROJECT, project))
    given: list[_Given] = []
    for source, path in files:
        given += _from_file(source, path)
    given += _from_variables(variables, here)
    given += _from_arguments(arguments or {}, here)
    for one in given:
        key = _known_workspace(one.key, values) if one.origin.source is Source.VARIABLE else one.key
        values[key] = _taken(one, home)
        origins[key] = one.origin
    return _assembled(values, origins)


class _Given(NamedTuple):
    """One value from one source; a relative path in it starts from ``base``."""

    key: str
    value: Any
    origin: Origin
    base: Path


def _row(key: str) -> Declared | None:
    parts = key.split(".")
    if len(parts) == 3 and parts[0] == _WORKSPACES:
        return WORKSPACE_TABLE.get(parts[2])
    return TABLE.get(key)


def _taken(given: _Given, home: Path) -> Any:
    if _is_table(given.key):
        raise InvalidSetting(f"{_where(given)}: expected a table, but got {_shown(given.value)}")
    row = _row(given.key)
    if row is None:
        raise UnknownSetting(f"{_where(given)}: there is no such setting; {_suggestion(given.key)}")
    value = given.value.value if isinstance(given.value, Enum) else given.value
    try:
        taken = row.kind.take(value)
    except _Unfit:
        raise InvalidSetting(f"{_where(given)}: expected {row.kind.name}, but got {_shown(value)}") from None
    if row.kind is PATH:
        return _anchored(taken, given.base, home)
    return taken


def _anchored(path: Path, base: Path, home: Path) -> Path:
    if path.parts and path.parts[0] == "~":
        return home.joinpath(*path.parts[1:])
    return base / path


def _where(given: _Given) -> str:
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
    siblings = [k for k in TABLE if k.startswith(f"{section}.")] or [*TABLE, f"{_WORKSPACES}.NAME.path"]
    return f"the settings are {', '.join(siblings)}"


def _user_file(variables: Mapping[str, str], home: Path) -> Path:
    config = Path(variables.get("XDG_CONFIG_HOME") or "")
    return (config if config.is_absolute() else home / ".config") / "tenuto" / FILE_NAME


def _here(start: Path | None) -> Path:
    try:
        return (start or Path.cwd()).resolve()
    except FileNotFoundError:  # the working directory was removed
        return Path("/")


def _project_file(start: Path) -> Path | None:
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


def _from_file(source: Source, path: Path) -> Iterator[_Given]:
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
        yield _Given(".".join(keys), value, Origin(source, place), path.parent)


def _line(lines: Mapping[tuple[str, ...], int], keys: tuple[str, ...]) -> int:
    """The line of a key, or of the nearest table around it."""
    return next((lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in lines), 1)


def _flat(content: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values of nested tables; a table where a value must be, or the reverse, is left for the check."""
    is_table = not keys or _is_table(".".join(keys))
    if isinstance(content, dict) and (is_table or (content and _row(".".join(keys)) is None)):
        for key, value in content.items():
            yield from _flat(value, (*keys, key))
    else:
        yield keys, content


def _is_table(key: str) -> bool:
    return key in _SECTIONS or (key.partition(".")[0] == _WORKSPACES and key.count(".") < 2)


def _from_variables(variables: Mapping[str, str], here: Path) -> Iterator[_Given]:
    for name in sorted(variables):
        text = variables[name]
        if not name.startswith(PREFIX) or not text.strip():
            continue
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        row = _row(key)
        value = row.kind.read(text) if row else text
        yield _Given(key, value, Origin(Source.VARIABLE, name), here)


def _known_workspace(key: str, values: Iterable[str]) -> str:
    """The key of a workspace that a file spelled with capitals or dashes, which a variable cannot."""

    def spelled(text: str) -> str:
        return re.sub(r"\W", "_", text).lower()

    return next((known for known in values if spelled(known) == spelled(key)), key)


def _from_arguments(arguments: Mapping[str, Any], here: Path) -> Iterator[_Given]:
    for key, value in arguments.items():
        if value is not None:
            yield _Given(key, value, Origin(Source.ARGUMENT, key), here)


def _assembled(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> Settings:
    tree: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}
    workspaces: dict[str, WorkspaceSettings] = {}
    for key, value in values.items():
        parts = key.split(".")
        if parts[0] == _WORKSPACES:
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
        **{name: _SECTIONS[name](**given) for name, given in sections.items()},
        workspaces=MappingProxyType(workspaces),
        origins=MappingProxyType(dict(origins)),
    )


# -- the lines of a TOML file ------------------------------------------------------------------------
# tomllib does not say where a value stood. This reads statement by statement and trusts that tomllib
# found the text valid; where it loses its way it stops, and a value is shown with the line of its table.

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
