"""The tree of settings. Each is declared once, here: its name, its kind, its default and what it means.
The page docs/settings.md, the variables and the checks all come from these classes. No file is read here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, unique
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from tenuto.errors import SettingsError
from tenuto.settings.kinds import BYTES, FLAG, PATH, SECONDS, TEXT, VARIABLES, Kind, choice, integer, optional

FILE_NAME = "tenuto.toml"
PREFIX = "TENUTO_"
WORKSPACES = "workspaces"

T = TypeVar("T")


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

    max_done: int | None = _setting(optional(integer(0)), 5, "Runs kept that ended well.")
    max_failed: int | None = _setting(optional(integer(0)), 1, "Runs kept that failed.")


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
        optional(TEXT),
        None,
        'Whose electricity is used, as three letters such as FRA; "none": the average of the world.',
    )
    tracker: str | None = _setting(
        optional(TEXT), None, 'Another tracker than codecarbon: "module:function", see docs/carbon.md.'
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
        optional(TEXT), None, "The workspace used where none is given: a name under `workspaces`."
    )
    launcher: str = _setting(
        choice("warm", "spawn"),
        "warm",
        'How jobs are started. "warm": forked from a process that has imported their modules, where that is '
        'safe. "spawn": a fresh interpreter for each.',
    )
    slots: int = _found(integer(1), _cores, "the cores", "Jobs that run at once on this machine.")
    max_retries: int = _setting(integer(0), 3, "Restarts of a resumable task that ran out of time.")
    max_lost_retries: int | None = _setting(
        optional(integer(0)),
        None,
        'Restarts of a job whose runner vanished; "none" means 1 for a resumable task, else 0.',
    )
    durability: str = _setting(
        choice("marker", "none"),
        "marker",
        '"marker": the end of a job is on the disk before it counts. "none": faster, but a power loss '
        "can undo it.",
    )
    log_bytes: int = _setting(BYTES, 64 << 20, "Size that each log of a job is kept under.")
    grace_s: float = _setting(SECONDS, 10.0, "Time that a job gets to stop before it is killed.")
    walltime_s: float | None = _setting(optional(SECONDS), None, "Time after which a job is stopped.")
    memory_bytes: int | None = _setting(optional(BYTES), None, "Memory that a job may use.")
    dirty_git: str = _setting(
        choice("ignore", "warn", "error"), "warn", "What a run does when a project has uncommitted changes."
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


SECTIONS: dict[str, Any] = {
    "history": HistorySettings,
    "environment": EnvironmentSettings,
    "carbon": CarbonSettings,
}


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
    for cls, prefix in [(Settings, ""), *((cls, f"{name}.") for name, cls in SECTIONS.items())]
    for row in _declared(cls, prefix)
}
"""Every setting by its dotted key, in the order of the documentation."""

WORKSPACE_TABLE: Mapping[str, Declared] = {
    row.key: row._replace(key=f"{WORKSPACES}.NAME.{row.key}", default="")
    for row in (
        Declared(one.name, one.metadata["kind"], "", one.metadata["meaning"])
        for one in fields(WorkspaceSettings)
    )
}
"""What can be said of each named workspace."""


def declared(key: str) -> Declared | None:
    """The row of a setting, also of one of a named workspace."""
    parts = key.split(".")
    if len(parts) == 3 and parts[0] == WORKSPACES:
        return WORKSPACE_TABLE.get(parts[2])
    return TABLE.get(key)


def is_table(key: str) -> bool:
    """Whether a key stands for a table of settings."""
    return key in SECTIONS or (key.partition(".")[0] == WORKSPACES and key.count(".") < 2)
