"""Lets `import experimaestro` find Tenuto's names, in a script and its jobs: to try before one edits.
Found by that name too, once `install` has put the folder above on the import path. No code of theirs is here.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import operator
import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any

import tenuto
from tenuto.errors import ParameterError

_NAME = "experimaestro"
_PAGE = "see docs/from-experimaestro.md"
_PLACES = {
    "tenuto.experiments.run_info": "ExperimentInfo",
    "tenuto.launchers.protocols": "Launcher",
    "tenuto.lifecycle.base_job": "BaseJob",
    "tenuto.lifecycle.events": "CarbonMetricsData CarbonMetricsEvent JobProgressEvent JobStateChangedEvent "
    "JobSubmittedEvent ProcessStartedEvent ProcessStateEvent RunCompletedEvent ServiceAddedEvent "
    "ServiceStateChangedEvent",
    "tenuto.monitor.state_provider": "StateProvider",
    "tenuto.scheduler.entries": "JobDependency",
    "tenuto.scheduler.listeners": "StateListener",
    "tenuto.scheduler.workers": "DoneHandlerWorker TaskOutputsWorker WatchedOutput",
    "tenuto.workspace.event_writer": "EventWriter",
    "tenuto.workspace.journal": "EventReader",
}
_ELSEWHERE = {name: module for module, names in _PLACES.items() for name in names.split()}
"""Names that `tenuto` itself does not offer -> where they are."""
_MODULES = frozenset(
    "annotations connectors connectors.local core core.arguments core.context core.identifier "
    "core.objects core.objects.config core.partial core.serialization core.types exceptions experiments "
    "experiments.cli experiments.configuration generators launcherfinder launcherfinder.parser "
    "launcherfinder.registry launcherfinder.specs launchers launchers.direct launchers.slurm "
    "launchers.slurm.base notifications scheduler scheduler.base scheduler.dependencies "
    "scheduler.done_handler scheduler.dynamic_outputs scheduler.experiment scheduler.interfaces "
    "scheduler.jobs scheduler.services scheduler.state_provider scheduler.state_status "
    "scheduler.transient scheduler.workspace settings taskglobals tokens typingutils utils xpmutils".split()
)
"""The modules of that package from which scripts import names; which name is in which is not checked."""


def configuration(cls: type | None = None, **options: Any) -> Any:
    """Makes a class the configuration of a YAML file: `tenuto run FILE` calls ``run(helper, configuration)``.

    With or without parentheses; `options` are those of a dataclass.
    """

    def made(cls: type) -> type:
        for name, default in list(vars(cls).items()):
            if type(default) in (list, dict, set) and name in cls.__annotations__:
                fresh = functools.partial(copy.copy, default)
                setattr(cls, name, dataclasses.field(default_factory=fresh))
        return dataclasses.dataclass(**{"kw_only": True, "eq": False, **options})(cls)

    return made if cls is None else made(cls)


@configuration
class ConfigurationBase:
    """What each YAML file may say besides its own values."""

    id: str
    title: str = ""
    subtitle: str = ""
    paper: str = ""
    description: str = ""


class ExperimentHelper:
    """What ``run(helper, configuration)`` is given: `xp` is the open experiment."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp


def SlurmOptions(
    *,
    nodes: int | None = 1,
    time: str | None = None,
    mem: str | None = None,
    cpus_per_task: str | int | None = None,
    gpus: str | int | None = None,
    gpus_per_node: str | int | None = None,
    **named: Any,
) -> Any:
    """Tenuto's `SlurmOptions` by their names; an option without a counterpart goes to sbatch as it is.

    Raises `ParameterError` for a value that cannot be read.
    """
    ours = {name: named.pop(name) for name in ("account", "qos", "partition", "constraint") if name in named}
    words = {"exclude", "mem_per_gpu", "nodelist", "ntasks_per_node"}
    if unknown := sorted(named.keys() - words):
        raise ParameterError(f"SlurmOptions has no {', '.join(unknown)}: {_PAGE}")
    if gpus and gpus_per_node and gpus != gpus_per_node:
        raise ParameterError("SlurmOptions: give gpus or gpus_per_node, not two numbers")
    gpu_type, _, count = str(gpus or gpus_per_node or 0).rpartition(":")
    named["nodes"] = None if nodes == 1 else nodes
    extra = [f"--{name.replace('_', '-')}={value}" for name, value in named.items() if value is not None]
    return tenuto.SlurmOptions(
        **ours,
        time_s=_seconds(time) if time else None,
        memory_bytes=_bytes(mem) if mem else None,
        cpus=_number("cpus_per_task", cpus_per_task or 1),
        gpus=_number("gpus", count),
        gpu_type=gpu_type or None,
        extra=tuple(extra),
    )


def _number(name: str, given: str | int) -> int:
    if not str(given).isdecimal():
        raise ParameterError(f"SlurmOptions({name}={given!r}): write a whole number")
    return int(given)


_UNITS_S = {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}
_UNITS = {"K": 10, "": 20, "M": 20, "G": 30, "T": 40}


def _seconds(time: str) -> float:
    """Slurm's `MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` and `D-HH:MM:SS`."""
    found = re.fullmatch(r"(?:(\d+)-(?=\d))?(\d+(?::\d+){0,2})", str(time))
    if found is None:
        raise ParameterError(f"SlurmOptions(time={time!r}): write it as Slurm does, 12:00:00 or 2-00:00:00")
    parts = [int(part) for part in found[2].split(":")]
    units = _UNITS_S[3 if found[1] else len(parts)]
    return float(int(found[1] or 0) * 86400 + sum(map(operator.mul, parts, units)))


def _bytes(mem: str) -> int:
    """Slurm's `16G`; a number alone counts megabytes."""
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", str(mem).upper())
    if found is None:
        raise ParameterError(f"SlurmOptions(mem={mem!r}): write it as Slurm does, 16G or 16000")
    return int(found[1]) << _UNITS[found[2]]


class _Gpus(tenuto.Requirement):
    """A requirement of GPUs; `* count` asks for several."""

    __slots__ = ()

    def __mul__(self, count: int) -> tenuto.Requirement:
        return tenuto.Requirement.parse(f"{self}*{count}")


def cuda_gpu(*, mem: str | None = None) -> _Gpus:
    """The requirement of a GPU."""
    return _Gpus(tenuto.Requirement.parse(f"cuda(mem={mem})" if mem else "cuda").alternatives)


def cpu(*, mem: str | None = None, cores: int = 1) -> tenuto.Requirement:
    """The requirement of processors and memory."""
    return tenuto.Requirement.parse(f"cpu(cores={cores}{f', mem={mem}' if mem else ''})")


def duration(timespec: str | int) -> tenuto.Requirement:
    """The requirement of time: a text such as `4h`, or seconds."""
    unit = "s" if isinstance(timespec, int) else ""
    return tenuto.Requirement.parse(f"duration={timespec}{unit}")


_CONTEXT = SimpleNamespace(currentpath=Path)
"""The context of a `PathGenerator`: the paths that it makes are relative to the job's directory."""


class _PathGenerator(tenuto.PathGenerator):
    """Tenuto's `PathGenerator`; a function of two is given a context and the config, as theirs are."""

    __slots__ = ()

    def __init__(self, path: Any = "", **named: Any) -> None:
        code, defaults = (getattr(path, name, None) for name in ("__code__", "__defaults__"))
        takes_both = code is not None and code.co_argcount - len(defaults or ()) > 1
        super().__init__((lambda config: path(_CONTEXT, config)) if takes_both else path, **named)


class LocalConnector:
    """Stands for this machine, where their launchers are given one."""

    @classmethod
    def instance(cls) -> LocalConnector:
        """One of them; all are alike."""
        return cls()

    def createtoken(self, name: str, count: int) -> Any:
        """Raises `ParameterError`, with what to write."""
        raise ParameterError(
            f"connector.createtoken is xp.token({name!r}, {count}) of the experiment: {_PAGE}"
        )


def DirectLauncher(connector: LocalConnector | None = None) -> str:
    """The name of Tenuto's launcher for this machine; `submit` and `experiment` take it."""
    return "warm"


def SlurmLauncher(*, options: Any = None, connector: Any = None, **named: Any) -> Any:
    """Tenuto's `SlurmLauncher`; raises `ParameterError` for an option that it cannot follow."""
    named.pop("interval", None)  # how often to ask Slurm is a setting
    refused = [name for name, value in named.items() if value]
    if not isinstance(connector, LocalConnector | None) or refused:
        raise ParameterError(f"SlurmLauncher takes no {', '.join(refused) or 'connector'} here: {_PAGE}")
    return tenuto.SlurmLauncher(options)


_PLAIN: dict[str, Any] = {
    "Annotated": Annotated,
    "Any": Any,
    "Path": Path,
    "DependentMarker": Callable[[Any], Any],
    "DirectoryContext": Path,
    "Identifier": str,
    "OptionalDataPath": tenuto.DataPath[Path | None],  # type: ignore[misc]
    "SerializationContext": Any,
    "TagDict": dict[str, Any],
    "DirectLauncher": DirectLauncher,
    "LocalConnector": LocalConnector,
    "PathGenerator": _PathGenerator,
    "ConfigurationBase": ConfigurationBase,
    "ExperimentHelper": ExperimentHelper,
    "configuration": configuration,
    "SlurmLauncher": SlurmLauncher,
    "SlurmOptions": SlurmOptions,
    "cpu": cpu,
    "cuda_gpu": cuda_gpu,
    "duration": duration,
    "logger": logging.getLogger("xpm"),
    "parse": tenuto.Requirement.parse,
    "HostRequirement": tenuto.Requirement,
    "__version__": tenuto.__version__,
}


def install() -> None:
    """Have `import experimaestro` find Tenuto's names from here on, in jobs too; nothing else is changed.

    Raises `ImportError` if the real package was imported before.
    """
    known = sys.modules.get(_NAME)
    if known is not None and getattr(known, "__file__", None) != __file__:
        raise ImportError(
            f"{_NAME} was imported before, from {getattr(known, '__file__', None)}: call "
            "tenuto.compat.experimaestro.install() before anything imports it"
        )
    folder = str(Path(__file__).parents[1])
    if folder not in sys.path:
        sys.path.insert(0, folder)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != folder]
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *paths])


def _found(name: str, module: str = "") -> Any:
    """What a module of theirs has under a name; `module`: its dotted name within the package, with a dot."""
    if name in _PLAIN:
        return _PLAIN[name]
    if f"{module}{name}" in _MODULES and name not in tenuto.__all__:
        return import_module(f"{_NAME}.{module}{name}")
    if name == "__all__" or not name.startswith("_"):
        for place in ("tenuto", "tenuto.errors", _ELSEWHERE.get(name, "tenuto")):
            found = getattr(import_module(place), name, None)
            if found is not None and not isinstance(found, ModuleType):
                return found
    if name.startswith("_"):
        raise AttributeError(name)
    raise ImportError(f"Tenuto has no {name!r} of {_NAME}: {_PAGE}")


class _Module(ModuleType):
    """A module of theirs."""

    def __getattr__(self, name: str) -> Any:
        return _found(name, f"{self.__name__.partition('.')[2]}.")

    def __setattr__(self, name: str, value: Any) -> None:
        """An import of a module hides no function of the same name beside it."""
        if not (isinstance(value, ModuleType) and (name in _PLAIN or name in tenuto.__all__)):
            super().__setattr__(name, value)


class _Modules(MetaPathFinder, Loader):
    """Finds the modules of the package: each has all of its names."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        head, _, rest = fullname.partition(".")
        if head != _NAME or not rest:
            return None
        if rest not in _MODULES:
            raise ModuleNotFoundError(f"Tenuto has no module {fullname}: {_PAGE}", name=fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Has nothing to run: a module finds its names as they are asked for."""


if __name__ == _NAME:
    __getattr__ = _found
    sys.meta_path.insert(0, _Modules())
