"""The selection of a launcher: those that the settings name, what each offers, the one that a job needs.
`launchers.py` of the user comes first, then this machine, then a cluster; no process is started here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tenuto.errors import LauncherNotFound, RequirementError, SettingsError
from tenuto.launchers.clusters import load_plugin, plugin_names
from tenuto.launchers.devices import this_host
from tenuto.launchers.instructions import Limits
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.requirements import Alternative, Host, Requirement, about_size, unfit
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.light import importlib_util, late
from tenuto.settings import SLURM, Settings, load_settings, user_directory
from tenuto.tasks.arguments import guarded

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Each tells a numeric library how many threads to use; unset, it takes every core of the machine."""


def limits_with(limits: Limits, alternative: Alternative) -> Limits:
    """The limits of a job; what its requirement says holds in place of the settings."""
    if alternative.duration_s is not None:
        limits = limits._replace(walltime_s=alternative.duration_s)
    if alternative.memory_bytes is not None:
        limits = limits._replace(memory_bytes=alternative.memory_bytes)
    return limits


def thread_variables(cores: int | None, *given: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that hold a job's libraries to its cores, but for those of the user.

    A library that has no variable of its own takes OMP_NUM_THREADS: if the user set that, it holds for all.
    """
    if cores is None or any(THREAD_VARIABLES[0] in variables for variables in given):
        return {}
    return {
        name: str(cores) for name in THREAD_VARIABLES if not any(name in variables for variables in given)
    }


if TYPE_CHECKING:
    from tenuto.launchers.cluster import dialect as cluster_dialect
    from tenuto.launchers.cluster import launcher as cluster_launcher
else:
    cluster_dialect = late("tenuto.launchers.cluster.dialect")
    cluster_launcher = late("tenuto.launchers.cluster.launcher")

AUTO = "auto"
"""The setting by which each job's requirement decides."""
LOCAL = "warm"
"""The launcher of this machine where the requirement decides."""
_LOCAL = {"warm": WarmLauncher, "spawn": SpawnLauncher}

# Most programs never meet a cluster.


def choose_launcher(name: str, slots: int, *, shares_slots: bool = False) -> Launcher:
    """A launcher of this machine by its name, for as many slots.

    `shares_slots`: they are those of a workspace, and count for all processes that use it on this machine.
    """
    return _LOCAL[name](slots=slots, shares_slots=shares_slots)


def is_local(name: str) -> bool:
    """Whether a launcher's jobs run on this machine."""
    return name == AUTO or name in _LOCAL


def node_launcher(settings: Settings, slots: int) -> Launcher:
    """The launcher of a node: of this machine with so many slots, or a cluster's with its own."""
    if is_local(settings.launcher):
        return choose_launcher(LOCAL if settings.launcher == AUTO else settings.launcher, slots)
    return Launchers(settings).named(settings.launcher)


def cluster_names(settings: Settings) -> tuple[str, ...]:
    """The clusters that launchers can be had for; Slurm needs no settings."""
    return tuple(dict.fromkeys((SLURM, *settings.clusters)))


def check_launcher(name: str) -> None:
    """Refuses a name that no launcher has."""
    if name not in (*_LOCAL, AUTO, *cluster_names(load_settings())):
        load_plugin(name)


class Launchers:
    """The launchers of one set of settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: dict[str, Launcher] = {}

    def named(self, name: str) -> Launcher:
        """The launcher of that name; `auto` is the one for jobs that need nothing in particular."""
        name = LOCAL if name == AUTO else name
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def close(self) -> None:
        """Releases what the launchers keep; running jobs continue."""
        for launcher in self._made.values():
            launcher.close()

    def _make(self, name: str) -> Launcher:
        if name in _LOCAL:
            return choose_launcher(name, self._settings.slots, shares_slots=True)
        if name in cluster_names(self._settings):
            settings, grace_s = self._settings.cluster(name), self._settings.grace_s
            return cluster_launcher.ClusterLauncher(name, settings=settings, grace_s=grace_s)
        plugin: Launcher = load_plugin(name)(self._settings)
        return plugin


FILE_NAME = "launchers.py"
FUNCTION = "find_launcher"
_PARTS = ("name", "external", "slots", "start", "find", "sweep", "close")


class UserFile:
    """The user's function, loaded when it is first asked."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._function: Callable[..., Any] | None = None

    def exists(self) -> bool:
        return os.path.isfile(self.path)

    def check(self) -> None:
        """Raises `SettingsError` if the file cannot be loaded, or has no such function."""
        self._loaded()

    def find(self, requirement: Requirement, tags: frozenset[str]) -> Launcher | None:
        """The launcher that the user's function returns.

        Raises `SettingsError`, with file and line, if the function cannot be called or returns another thing;
        a `LauncherNotFound` of the function's own is passed on.
        """
        function = self._loaded()
        try:
            found = function(requirement, tags)
        except LauncherNotFound:
            raise
        except Exception as error:
            raise SettingsError(self._told(error)) from error
        if found is not None and any(not hasattr(found, part) for part in _PARTS):
            line = function.__code__.co_firstlineno if hasattr(function, "__code__") else 1
            raise SettingsError(
                f"{self.path}:{line}: {FUNCTION} returned {type(found).__name__} ({found!r:.60}): return a "
                f"launcher, such as SlurmLauncher(...), or None"
            )
        launcher: Launcher | None = found
        return launcher

    def _loaded(self) -> Callable[..., Any]:
        if self._function is None:
            spec = importlib_util.spec_from_file_location("tenuto_user_launchers", self.path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib_util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except Exception as error:
                raise SettingsError(self._told(error)) from error
            function = getattr(module, FUNCTION, None)
            if not callable(function):
                raise SettingsError(
                    f"{self.path}:1: there is no function {FUNCTION}: write "
                    f"def {FUNCTION}(requirement, tags), which returns a launcher or None"
                )
            self._function = function
        return self._function

    def _told(self, error: Exception) -> str:
        line = error.lineno if isinstance(error, SyntaxError) else self._line(error)
        return f"{self.path}:{line or 1}: {type(error).__name__}: {error}"

    def _line(self, error: Exception) -> int | None:
        """The innermost line of the file that the error passed through."""
        line = None
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == str(self.path):
                line = trace.tb_lineno
            trace = trace.tb_next
        return line


class Offer(NamedTuple):
    """One launcher, as a person asks for it."""

    name: str
    usable: bool
    offers: str
    why: str | None
    """Why it cannot be used."""
    default: bool
    """True for the launcher that the settings name."""


def offers(settings: Settings) -> list[Offer]:
    """Every launcher that could run a job."""
    host = _host_text(this_host(settings.slots, with_gpus=True))
    local = [
        Offer(name, True, f"this machine: {host}", None, settings.launcher == name)
        for name in ("warm", "spawn")
    ]
    plugins = [Offer(name, True, "a plug-in", None, settings.launcher == name) for name in plugin_names()]
    return [*local, *(_cluster(name, settings) for name in cluster_names(settings)), *plugins, _user_file()]


def _cluster(name: str, settings: Settings) -> Offer:
    is_default = settings.launcher == name
    try:
        dialect = cluster_dialect.dialect_of(name, settings.cluster(name))
        if not dialect.is_installed():
            return Offer(name, False, "", f"{dialect.submit_words[0]} is not on the PATH", is_default)
        return Offer(name, True, dialect.offers(), None, is_default)
    except (cluster_dialect.ClusterError, SettingsError) as error:
        return Offer(name, False, "", str(error), is_default)


def _user_file() -> Offer:
    file = UserFile(user_directory())
    if not file.exists():
        return Offer(FILE_NAME, False, "", f"there is no {file.path}", False)
    try:
        file.check()
    except SettingsError as error:
        return Offer(FILE_NAME, False, "", str(error), False)
    return Offer(FILE_NAME, True, f'{file.path} has the last word under launcher = "auto"', None, False)


def _host_text(host: Host) -> str:
    cores = f"{host.cores} slot{'s' if host.cores != 1 else ''}"
    memory = f", {about_size(host.memory_bytes)} of memory" if host.memory_bytes else ""
    gpus = ", ".join(f"{gpu.kind}({about_size(gpu.memory_bytes)})" for gpu in host.gpus)
    return f"{cores}{memory}, {gpus or 'no GPU'}"


logger = logging.getLogger("tenuto.launchers")


class Tried(NamedTuple):
    """One launcher that was asked, and its answer."""

    alternative: int | None
    """From 1; None if it was asked for the whole requirement."""
    launcher: str
    fits: bool
    why: str = ""

    def __str__(self) -> str:
        about = "" if self.alternative is None else f"alternative {self.alternative}: "
        return f"{about}{self.launcher}: {self.why}"


class Chosen(NamedTuple):
    """A launcher, and the alternative that it satisfies."""

    launcher: Launcher
    alternative: Alternative
    number: int
    """Of the alternative, from 1."""


class Search(NamedTuple):
    """The outcome of the search for a launcher."""

    chosen: Chosen | None
    tried: tuple[Tried, ...]


class Finder:
    """Finds launchers by one set of settings; each requirement is looked into once."""

    def __init__(self, settings: Settings, launchers: Launchers, directory: Path | None = None) -> None:
        """`directory`: where `launchers.py` may lie; by default beside the user's `tenuto.toml`."""
        self._settings = settings
        self._launchers = launchers
        self.user_file = UserFile(directory or user_directory())
        self._found: dict[tuple[Requirement, frozenset[str]], Search] = {}
        self._warned: set[Requirement] = set()

    def choose(self, requirement: Requirement, launcher: Launcher | None = None) -> Chosen:
        """The launcher of a job that needs something.

        `launcher`: the one that a script chose; then only its alternative is looked for. Raises
        `LauncherNotFound` if nothing satisfies the requirement.
        """
        if launcher is None and self._settings.launcher == AUTO:
            return self.find(requirement)
        given = self._launchers.named(self._settings.launcher) if launcher is None else launcher
        tried: list[Tried] = []
        chosen = self._fitted(requirement, given, tried)
        if chosen is None:
            _refuse(requirement, tried)
        self._say_passed_over(requirement, tried)
        return chosen

    def find(self, requirement: Requirement, tags: frozenset[str] = frozenset()) -> Chosen:
        """The first launcher that satisfies a requirement, as `auto` finds it; else `LauncherNotFound`."""
        found = self.search(requirement, tags)
        return found.chosen if found.chosen is not None else _refuse(requirement, found.tried)

    def search(self, requirement: Requirement, tags: frozenset[str] = frozenset()) -> Search:
        """Asks, for each alternative, `launchers.py`, if there is one; else this machine, then clusters."""
        key = requirement, tags
        if key not in self._found:
            self._found[key] = self._searched(requirement, tags)
        return self._found[key]

    def _searched(self, requirement: Requirement, tags: frozenset[str]) -> Search:
        tried: list[Tried] = []
        if self.user_file.exists():
            return Search(self._by_user_file(requirement, tags, tried), tuple(tried))
        host = self._host(requirement)
        for number, alternative in enumerate(requirement.alternatives, 1):
            why = unfit(alternative, host)
            tried.append(Tried(number, LOCAL, why is None, why or ""))
            if why is None:
                self._say_passed_over(requirement, tried)
                return Search(Chosen(self._launchers.named(LOCAL), alternative, number), tuple(tried))
            chosen = self._by_cluster(number, alternative, tried)
            if chosen is not None:
                self._say_passed_over(requirement, tried)
                return Search(chosen, tuple(tried))
        return Search(None, tuple(tried))

    def _by_user_file(
        self, requirement: Requirement, tags: frozenset[str], tried: list[Tried]
    ) -> Chosen | None:
        """What `launchers.py` returns for the first alternative that it has a launcher for.

        It is asked for each one alone: a launcher that it returned for them all would not say for which.
        """
        for number, alternative in enumerate(requirement.alternatives, 1):
            launcher = self.user_file.find(Requirement((alternative,)), tags)
            if launcher is None:
                tried.append(Tried(number, FILE_NAME, False, "it returned None, and has the last word"))
                continue
            # Slurm cannot be asked for the memory of a GPU: the file chose the partition for it.
            gpus = alternative.gpus and replace(alternative.gpus, memory_bytes=None)
            asked = Requirement((replace(alternative, gpus=gpus) if launcher.external else alternative,))
            own: list[Tried] = []
            fitted = self._fitted(asked, launcher, own)
            tried += [one._replace(alternative=number) for one in own]
            if fitted is not None:
                return Chosen(fitted.launcher, alternative, number)
        return None

    def _say_passed_over(self, requirement: Requirement, tried: Iterable[Tried]) -> None:
        """Warns, once, of alternatives that were preferred, and whose memory of a GPU Slurm may well have."""
        gpus = [
            alternative.gpus and alternative.gpus.memory_bytes for alternative in requirement.alternatives
        ]
        named = [one for one in tried if one.launcher in cluster_names(self._settings) and not one.fits]
        passed = [str(one) for one in named if gpus[(one.alternative or 1) - 1] is not None]
        if passed and requirement not in self._warned:
            self._warned.add(requirement)
            text = "; ".join(passed)
            logger.warning("%s: passed over %s", requirement, text, extra={"action": "passed_over"})

    def _by_cluster(self, number: int, alternative: Alternative, tried: list[Tried]) -> Chosen | None:
        """The first cluster that is installed here, can be asked for an alternative, and would take it."""
        for name in cluster_names(self._settings):
            if not cluster_dialect.dialect_of(name, self._settings.cluster(name)).is_installed():
                continue
            try:
                launcher: Any = self._launchers.named(name).adapted(alternative)
                why = launcher.why_refused()
            except LauncherNotFound as error:
                why = str(error)
            tried.append(Tried(number, name, why is None, why or ""))
            if why is None:
                return Chosen(launcher, alternative, number)
        return None

    def _fitted(self, requirement: Requirement, launcher: Launcher, tried: list[Tried]) -> Chosen | None:
        """The first alternative that a given launcher can satisfy."""
        host = None if launcher.external else self._host(requirement, launcher.slots)
        for number, alternative in enumerate(requirement.alternatives, 1):
            fitted = launcher
            why = None if host is None else unfit(alternative, host)
            if host is None:
                try:
                    fitted = launcher.adapted(alternative)
                except LauncherNotFound as error:
                    why = str(error)
            tried.append(Tried(number, launcher.name, why is None, why or ""))
            if why is None:
                return Chosen(fitted, alternative, number)
        return None

    def _host(self, requirement: Requirement, slots: int | None = None) -> Host:
        with_gpus = any(alternative.gpus is not None for alternative in requirement.alternatives)
        return this_host(slots or self._settings.slots, with_gpus=with_gpus)


@guarded
def find_launcher(*requirements: str | Requirement, tags: Iterable[str] = ()) -> Launcher:
    """The first launcher that satisfies one of several requirements, the preferred one first.

    ::

        launcher = find_launcher("duration=4h & cuda(mem=24G)", "duration=2d & cpu(cores=16)")

    `tags`: words for the `find_launcher` of your `launchers.py`. Raises `RequirementError` for a text that
    cannot be read, and `LauncherNotFound`, with a line for each launcher that was asked.
    """
    settings = load_settings()
    return Finder(settings, Launchers(settings)).find(_joined(requirements), _tags(tags)).launcher


def _joined(requirements: tuple[str | Requirement, ...]) -> Requirement:
    if not requirements:
        raise RequirementError("find_launcher needs a requirement, such as 'cpu(cores=2)'", "", 0)
    joined, *others = map(Requirement.parse, requirements)
    for other in others:
        joined |= other
    return joined


def _tags(tags: Iterable[str]) -> frozenset[str]:
    words = [tags] if isinstance(tags, str) else list(tags)
    if not all(isinstance(word, str) for word in words):
        raise TypeError(f"tags are texts, not {words!r:.60}")
    return frozenset(words)


def _refuse(requirement: Requirement, tried: Iterable[Tried]) -> NoReturn:
    lines = "".join(f"\n  {one}" for one in tried if not one.fits)
    raise LauncherNotFound(f"no launcher satisfies {requirement}:{lines}")
