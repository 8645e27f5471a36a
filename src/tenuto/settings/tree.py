"""The tree of settings: the heart's own, and the sections that the doors declare beside this module.
The page docs/settings.md, the variables and the checks all come from these classes. No file is read here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from enum import Enum, unique
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tenuto.errors import SettingsError
from tenuto.settings.clusters import ClusterSettings
from tenuto.settings.declaration import (
    BYTES,
    FLAG,
    HIDDEN_URL,
    PATH,
    SECONDS,
    TEXT,
    VARIABLES,
    WORDS,
    Declared,
    choice,
    choice_or_plugin,
    cores,
    found_setting,
    integer,
    optional,
    required_setting,
    rows,
    setting,
    some_of,
)
from tenuto.settings.search import DatabaseSettings, QueueSettings, SearchSettings
from tenuto.settings.service import (
    ClientSettings,
    NodeSettings,
    OfferedSettings,
    RemoteNodeSettings,
    ServiceSettings,
)
from tenuto.settings.urls import HiddenUrl

FILE_NAME = "tenuto.toml"
SLURM = "slurm"
"""The section that stands for `[clusters.slurm]`."""


def state_directory() -> Path:
    """Where this user's programs keep files that are no settings and no results."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "")
    home = Path(os.environ.get("HOME") or os.path.expanduser("~"))
    return (state if state.is_absolute() else home / ".local" / "state") / "tenuto"


def _tokens_path() -> Path:
    return state_directory() / "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSettings:
    """A workspace that has a name."""

    path: Path = required_setting(PATH, "Where the workspace lies; relative to the file that says so.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """How many runs of an experiment are kept once they are over. Jobs and their results are not touched."""

    max_done: int | None = setting(optional(integer(0)), 5, "Runs kept that ended well.")
    max_failed: int | None = setting(optional(integer(0)), 1, "Runs kept that failed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSettings:
    """What a run records about its surroundings in environment.json."""

    allow: tuple[str, ...] = setting(
        VARIABLES,
        (),
        "Variables recorded besides the usual ones. Under a `*`, names that look like a secret stay out.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CarbonSettings:
    """Whether the energy of jobs is measured; needs the extra `carbon`, or a tracker of your own."""

    enabled: bool = setting(FLAG, True, "Whether to measure, if there is something to measure with.")
    after_s: float = setting(SECONDS, 5.0, "Jobs that end sooner are not measured.")
    every_s: float = setting(SECONDS, 15.0, "How often a running job is measured.")
    country: str | None = setting(
        optional(TEXT),
        None,
        'Whose electricity is used, as three letters such as FRA; "none": the average of the world.',
    )
    tracker: str | None = setting(
        optional(TEXT), None, 'Another tracker than codecarbon: "module:function", see docs/progress.md.'
    )


NOTICES = ("ended", "first_failure", "best")
"""What a person may be told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySettings:
    """Where a driver tells a person of a run or a search; see docs/cli.md."""

    command: tuple[str, ...] = setting(
        WORDS, (), "A command that is run for each notice; `{title}` and `{text}` stand for its words."
    )
    url: HiddenUrl | None = setting(
        optional(HIDDEN_URL), None, "An address that each notice is sent to, by POST."
    )
    format: str = setting(
        choice("json", "slack"), "json", "What is sent there: all fields, or what Slack takes."
    )
    on: tuple[str, ...] = setting(
        some_of(*NOTICES), NOTICES, "What is told: the end, the first failed job, a better best of a search."
    )

    @property
    def is_on(self) -> bool:
        """Whether there is a command or an address to send to."""
        return bool(self.command) or self.url is not None


imposed_notify: ContextVar[NotifySettings | None] = ContextVar("tenuto_notify", default=None)
"""What a command line says of notices, in place of the settings."""
imposed_rerun: ContextVar[bool | None] = ContextVar("tenuto_rerun_changed", default=None)
"""Whether the command line has jobs run again whose code has changed; None: as the script says."""


@unique
class ValueSource(Enum):
    """Where a value can come from, the weakest first."""

    DEFAULT = "built-in default"
    USER = "user's file"
    PROJECT = "project's file"
    FOREIGN = "variable of another program"
    VARIABLE = "environment variable"
    ARGUMENT = "argument"


class Origin(NamedTuple):
    """Where a value came from: ``place`` is ``file:line``, or the name of the variable or argument."""

    source: ValueSource
    place: str = ""

    def __str__(self) -> str:
        named = self.source not in (ValueSource.DEFAULT, ValueSource.ARGUMENT)
        return self.place if named else self.source.value


_BY_DEFAULT = Origin(ValueSource.DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of Tenuto. ``Settings()`` holds the built-in defaults; `load_settings` reads the rest."""

    default_workspace: str | None = setting(
        optional(TEXT),
        None,
        "The workspace used where none is given: a name under `workspaces`, or a path with a `/`.",
    )
    workspace_group: str | None = setting(
        optional(TEXT),
        None,
        'The group, by name or number, that shares new workspaces; "none": each is for its owner alone.',
    )
    launcher: str = setting(
        choice_or_plugin("tenuto.launchers", "warm", "spawn", "slurm", "auto"),
        "warm",
        'How jobs are started. "warm": forked from a process that has imported their modules, where that is '
        'safe. "spawn": a fresh interpreter for each. "slurm", or the name of a cluster: by that, see '
        'docs/clusters.md. "auto": as what the job needs leads to, see docs/requirements.md.',
    )
    slots: int = found_setting(
        integer(1),
        cores,
        "the cores",
        "How many jobs of a workspace run at once on this machine, counting every script that uses it.",
    )
    max_retries: int = setting(integer(0), 3, "Restarts of a resumable task that ran out of time.")
    max_lost_retries: int | None = setting(
        optional(integer(0)),
        None,
        'Restarts of a job whose runner vanished; "none" means 1 for a resumable task, else 0.',
    )
    retry: str | None = setting(
        optional(TEXT),
        None,
        'Further attempts by cause, for tasks without a `__retry__`, as in "memory: mem*2 to 32G; lost: 3"; '
        "see docs/requirements.md.",
    )
    learn: bool = setting(
        FLAG,
        False,
        "Whether a job whose needs may grow begins with what done jobs of its class used: the median, and a "
        "third more.",
    )
    durability: str = setting(
        choice("marker", "none"),
        "marker",
        '"marker": what a task left in its directory, and then the end of its job, is on the disk before '
        'the job counts as done. "none": faster, but a power loss can undo it, or empty the files.',
    )
    pack: bool = setting(
        FLAG,
        False,
        "Whether a run packs its jobs at its end: many in one file of their task, see `tenuto clean --pack`.",
    )
    log_bytes: int = setting(BYTES, 64 << 20, "Size that each log of a job is kept under.")
    grace_s: float = setting(SECONDS, 10.0, "Time that a job gets to stop before it is killed.")
    walltime_s: float | None = setting(optional(SECONDS), None, "Time after which a job is stopped.")
    memory_bytes: int | None = setting(optional(BYTES), None, "Memory that a job may use.")
    dirty_git: str = setting(
        choice("ignore", "warn", "error"), "warn", "What a run does when a project has uncommitted changes."
    )
    fail_run_on_failed_job: bool = setting(
        FLAG, True, "Whether one failed job makes the run failed and the exit code 1."
    )
    show_progress: bool = setting(
        FLAG, True, "Whether a script that runs by itself shows bars, at a terminal or in a notebook."
    )
    count_paths: bool = setting(
        FLAG,
        True,
        "Whether parameters that are paths count in identities; false: data that moved keeps its results.",
    )
    rerun_changed: bool = setting(
        FLAG,
        False,
        "Whether what was done is run again if its code, or what it was made from, has changed since.",
    )
    check_outputs: bool = setting(
        FLAG, True, "Whether a job is run again if an output that it declared is gone or of another size."
    )
    tokens_path: Path = found_setting(
        PATH,
        _tokens_path,
        "~/.local/state/tenuto/tokens",
        "Where the tokens of a machine are counted, by its name; what shares tokens must share this path.",
    )
    history: HistorySettings = field(default_factory=HistorySettings)
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    carbon: CarbonSettings = field(default_factory=CarbonSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)
    service: ServiceSettings = field(default_factory=ServiceSettings)
    node: NodeSettings = field(default_factory=NodeSettings)
    client: ClientSettings = field(default_factory=ClientSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    clusters: Mapping[str, ClusterSettings] = field(default_factory=lambda: MappingProxyType({}))
    workspaces: Mapping[str, WorkspaceSettings] = field(default_factory=lambda: MappingProxyType({}))
    services: Mapping[str, OfferedSettings] = field(default_factory=lambda: MappingProxyType({}))
    nodes: Mapping[str, RemoteNodeSettings] = field(default_factory=lambda: MappingProxyType({}))
    origins: Mapping[str, Origin] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    files: tuple[Path, ...] = field(default=(), repr=False, compare=False)
    """The files that were read."""
    warnings: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """The ignored values, in sentences: for the program that reads the settings to show."""

    def origin(self, key: str) -> Origin:
        """Where the value of a setting such as ``"history.max_done"`` came from."""
        return self.origins.get(key, _BY_DEFAULT)

    def items(self) -> Iterator[tuple[str, Any, Origin]]:
        """Every setting with its value and where that came from, in the order of the documentation."""
        for key in TABLE:
            section, _, name = key.rpartition(".")
            yield key, getattr(getattr(self, section) if section else self, name), self.origin(key)
        for table in NAMED:
            for name, one in getattr(self, table).items():
                for declared_field in fields(one):
                    key = f"{table}.{name}.{declared_field.name}"
                    yield key, getattr(one, declared_field.name), self.origin(key)

    def cluster(self, name: str) -> ClusterSettings:
        """The settings of a cluster; without any of its own, the defaults of every cluster."""
        return self.clusters.get(name) or ClusterSettings()

    def workspace(self, given: str | Path | None = None) -> Path:
        """The directory of a workspace: by its name, by its path, or the default one.

        A text is first taken as a name under ``workspaces``, then as a path; ``./name`` is always a path.
        """
        if isinstance(given, Path):
            return expanded(given)
        if given is None:
            given = self.default_workspace or (
                next(iter(self.workspaces)) if len(self.workspaces) == 1 else None
            )
            if given is None:
                raise SettingsError(
                    "no workspace was given and none is the default: give a path (-w PATH), or write "
                    f'default_workspace = "main" and [workspaces.main] path = "..." into {FILE_NAME}'
                )
        known = self.workspaces.get(given)
        return known.path if known else expanded(given)


def expanded(path: Path | str) -> Path:
    """A path in which a leading ``~`` stands for a home directory."""
    return Path(os.path.expanduser(path))


SECTIONS: dict[str, Any] = {
    "history": HistorySettings,
    "environment": EnvironmentSettings,
    "carbon": CarbonSettings,
    "notify": NotifySettings,
    "service": ServiceSettings,
    "node": NodeSettings,
    "client": ClientSettings,
    "search": SearchSettings,
    "database": DatabaseSettings,
    "queue": QueueSettings,
}
"""The sections of the tree, by name."""

NAMED: dict[str, Any] = {
    "clusters": ClusterSettings,
    "workspaces": WorkspaceSettings,
    "services": OfferedSettings,
    "nodes": RemoteNodeSettings,
}
"""The tables whose entries have names of the user's choice: ``[services.NAME]``."""

TABLE: Mapping[str, Declared] = {
    row.key: row
    for cls, prefix in [(Settings, ""), *((cls, f"{name}.") for name, cls in SECTIONS.items())]
    for row in rows(cls, prefix)
}
"""Every setting outside of the named tables, by its dotted key, in the order of the documentation."""

NAMED_TABLE: Mapping[str, Declared] = {
    row.key: row for table, cls in NAMED.items() for row in rows(cls, f"{table}.NAME.")
}
"""The settings of each entry of a named table; its name is NAME in the key."""


def unaliased(key: str) -> str:
    """The key of a setting: what `[slurm]` says, `[clusters.slurm]` says."""
    return f"clusters.{key}" if key == SLURM or key.startswith(f"{SLURM}.") else key


def declared(key: str) -> Declared | None:
    """The row of a setting, also of an entry of a named table."""
    parts = unaliased(key).split(".")
    if len(parts) == 3 and parts[0] in NAMED:
        return NAMED_TABLE.get(f"{parts[0]}.NAME.{parts[2]}")
    return TABLE.get(key)


def is_entry(key: str) -> bool:
    """Whether a key stands for an entry of a named table, such as ``services.example``."""
    key = unaliased(key)
    return key.count(".") == 1 and key.partition(".")[0] in NAMED


def is_table(key: str) -> bool:
    """Whether a key stands for a table of settings."""
    return key in SECTIONS or key in NAMED or is_entry(key)
