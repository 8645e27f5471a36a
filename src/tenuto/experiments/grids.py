"""From what a YAML file says to the tasks it stands for: code loaded, values typed, the grid expanded.
It makes configs; the experiment submits them.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import math
import runpy
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

from tenuto.errors import DeclarationError, ExperimentFileError, TenutoError
from tenuto.experiments.yaml_file import ExperimentFile
from tenuto.tasks.arguments import Mismatch, describe
from tenuto.tasks.base import ConfigBase
from tenuto.tasks.grid import alternatives, grid
from tenuto.tasks.hints import Role
from tenuto.tasks.location import name_of_script
from tenuto.tasks.schema import Parameter, schema_of
from tenuto.tasks.task import Task
from tenuto.tasks.types import value_type

MOST_TASKS = 1_000_000
CLASS = "class"
"""The key that names the class of a nested config. No parameter can have this name: it is a keyword."""


def tasks_of(experiment: ExperimentFile) -> list[Task[Any]]:
    """The tasks that a file stands for, in the order of its grid; loads and runs the code that it names."""
    return expand(experiment, load_task(experiment))


# -- its code ----------------------------------------------------------------------------------------


def load_task(experiment: ExperimentFile) -> type[Task[Any]]:
    """Runs `pre_experiment`, does the imports and finds the task.

    The folder of the file comes first on the import path, as for a script.
    """
    found = _load(experiment)
    if not (isinstance(found, type) and issubclass(found, Task)):
        _refuse(experiment, "task", f"{experiment.task} is not a task")
    return found


def load_call(experiment: ExperimentFile) -> tuple[Callable[[Any, Any], object], Any]:
    """The function ``run(helper, configuration)`` that a file names, and what to call it with."""
    function = _load(experiment)
    names = list(inspect.signature(function).parameters) if callable(function) else []
    if len(names) != 2:
        _refuse(experiment, "task", f"{experiment.task} must be a function of two: def run(helper, cfg)")
    cls = typing.get_type_hints(function).get(names[1], SimpleNamespace)
    return function, _configuration(experiment, cls, experiment.parameters, "parameters")


def _configuration(experiment: ExperimentFile, cls: Any, given: Mapping[str, Any], key: str) -> Any:
    """A dataclass, and each dataclass among its fields, made from the values of a file."""
    if not hasattr(cls, "__dataclass_fields__"):
        return cls(**given)
    hints = typing.get_type_hints(cls)
    taken = {}
    for name, value in given.items():
        if name not in hints:
            known = ", ".join(hints)
            _refuse(experiment, f"{key}.{name}", f"{cls.__name__} has no {name!r}: it has {known}")
        taken[name] = _filled(experiment, hints[name], value, f"{key}.{name}", f"{cls.__name__}.{name}")
    for field in dataclasses.fields(cls):
        has_default = not field.default is field.default_factory is dataclasses.MISSING
        if field.init and not has_default and field.name not in taken:
            _refuse(experiment, key, f"{cls.__name__} needs {field.name}, which has no default")
    return cls(**taken)


def _filled(experiment: ExperimentFile, annotation: Any, value: Any, key: str, field: str) -> Any:
    """One value as the field of a dataclass declares it; refused if it is of another type."""
    options = alternatives(annotation)
    for option in options:
        if isinstance(value, dict) and dataclasses.is_dataclass(option):
            return _configuration(experiment, option, value, key)
        if isinstance(value, str) and isinstance(option, type) and issubclass(option, enum.Enum):
            value = option.__members__.get(value, value)
    if isinstance(value, dict | list):
        value = shaped(
            value, annotation, lambda one, kind, at: _filled(experiment, kind, one, key + at, field + at)
        )
    keys = [one.__name__ for one in options if isinstance(one, type) and dataclasses.is_dataclass(one)]
    if keys and not (value is None and type(None) in options):
        _refuse(experiment, key, f"{field} expects the keys of {' or '.join(keys)}: {value!r}")
    try:
        converted = value_type(annotation, lambda same: same, lambda *_: None).convert(value)
    except DeclarationError:
        return value  # of a type that only its own code knows
    except Mismatch as mismatch:
        _refuse(experiment, key, f"{field} {describe(mismatch)}{_hint(value)}")
    return value if isinstance(value, list | dict) else converted


def shaped(value: Any, annotation: Any, each: Callable[[Any, Any, str], Any]) -> Any:
    """A list or mapping as its annotation declares it: neither YAML nor JSON has sets and tuples.

    `each` is given an item, its annotation and its place, such as ``[2]`` or ``.name``.
    """
    for option in alternatives(annotation):
        origin, inner = typing.get_origin(option) or option, typing.get_args(option) or (Any, Any)
        if isinstance(value, dict) and origin is dict:
            return {name: each(one, inner[-1], f".{name}") for name, one in value.items()}
        if isinstance(value, list) and origin in (list, set, frozenset, tuple):
            is_fixed = origin is tuple and inner[-1] is not Ellipsis and len(inner) == len(value)
            kinds = inner if is_fixed else inner[:1] * len(value)
            items = [
                each(one, kind, f"[{i}]") for i, (one, kind) in enumerate(zip(value, kinds, strict=True))
            ]
            can_hold = origin in (list, tuple) or not any(isinstance(one, list | dict) for one in items)
            return origin(items) if can_hold else value
    return value


def _load(experiment: ExperimentFile) -> Any:
    folder = experiment.path.resolve().parent
    _search_first(folder)
    if experiment.pre_experiment is not None:
        _run_before(experiment, folder, experiment.pre_experiment)
    place = next(
        (key for key in ("file", "module") if experiment.is_function and key in experiment.places), ""
    )
    modules = [_imported(experiment, folder, place or "imports", name) for name in experiment.imports]
    return _find(experiment, place or "task", experiment.task, modules)


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _run_before(experiment: ExperimentFile, folder: Path, text: str) -> None:
    if text.endswith(".py"):
        file = folder / text
        if not file.is_file():
            _refuse(experiment, "pre_experiment", f"there is no file {file}")
        runpy.run_path(str(file), run_name="pre_experiment")
        return
    module, colon, function = text.partition(":")
    if not colon:
        _refuse(experiment, "pre_experiment", f"{text!r} is neither a .py file nor module:function")
    called = getattr(_imported(experiment, folder, "pre_experiment", module), function, None)
    if not callable(called):
        _refuse(experiment, "pre_experiment", f"{module} has no function {function}")
    called()


def _imported(experiment: ExperimentFile, folder: Path, key: str, name: str) -> ModuleType:
    file = (folder / name).resolve() if name.endswith(".py") else None
    if file is not None:
        if not file.is_file():
            _refuse(experiment, key, f"there is no file {file}")
        name = name_of_script(file)
        _search_first(file.parents[name.count(".")])
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, and lacks something of its own
        _refuse(experiment, key, f"there is no module {name} in {folder} or on the import path")
    if file is not None and Path(module.__file__ or "").resolve() != file:
        _refuse(experiment, key, f"{file} is hidden by {module.__file__}, which has the same name")
    return module


def _find(experiment: ExperimentFile, key: str, text: str, modules: Iterable[ModuleType]) -> Any:
    """What `module.Class`, `module:Class.Inner`, or the bare name of something imported stands for."""
    if ":" in text or "." in text:
        module_name, _, name = text.partition(":") if ":" in text else text.rpartition(".")
        homes = [_imported(experiment, experiment.path.resolve().parent, key, module_name)]
    else:
        name, homes = text, list(modules)
    found = [inner for home in homes if (inner := _attribute(home, name)) is not None]
    if not found:
        names = ", ".join(home.__name__ for home in homes) or "no module: name one under imports"
        _refuse(experiment, key, f"there is no {name} in {names}")
    if any(other is not found[0] for other in found):
        _refuse(experiment, key, f"several imports have a {name}: write module.{name}")
    return found[0]


def _attribute(home: Any, name: str) -> Any:
    for part in name.split("."):
        home = getattr(home, part, None)
    return home


# -- its values --------------------------------------------------------------------------------------


def expand(experiment: ExperimentFile, task: type[Task[Any]]) -> list[Task[Any]]:
    """The tasks for all combinations of the grid over the file's parameters; the last varies fastest."""
    count = math.prod(len(values) for values in experiment.grid_search.values())
    if count > MOST_TASKS:
        _refuse(experiment, "grid_search", f"stands for {count} tasks, more than {MOST_TASKS}")
    typing_of = _Typing(experiment)
    fixed = typing_of.values(task, experiment.parameters, "parameters", is_whole=False)
    vary = {
        name: [typing_of.at(task, fixed, name, value) for value in values]
        for name, values in experiment.grid_search.items()
    }
    missing = [name for name in schema_of(task).required if name not in fixed and name not in vary]
    if missing:
        _refuse(
            experiment,
            "parameters",
            f"{task.__name__} needs a value for {', '.join(missing)}, here or in grid_search",
        )
    try:
        return grid(task, vary, **{name: value for name, value in fixed.items() if name not in vary})
    except ExperimentFileError:
        raise
    except TenutoError as error:
        raise ExperimentFileError(f"{experiment.where('task')}: {error}") from error


class _Typing:
    """Brings plain values to the declared types, with errors that name the key."""

    def __init__(self, experiment: ExperimentFile) -> None:
        self.experiment = experiment

    def values(self, cls: Any, given: Mapping[Any, Any], key: str, *, is_whole: bool) -> dict[str, Any]:
        """The typed parameters of a class."""
        taken = {
            str(name): self.value(cls, str(name), value, f"{key}.{name}")
            for name, value in given.items()
            if name != CLASS
        }
        missing = [name for name in schema_of(cls).required if name not in taken]
        if is_whole and missing and not self._varied(key, missing):
            _refuse(self.experiment, key, f"{cls.__name__} needs a value for {', '.join(missing)}")
        return taken

    def _varied(self, key: str, names: Iterable[str]) -> bool:
        """Whether the grid gives each of these parameters of a nested config its values."""
        inside = key.partition(".")[2]
        return key.startswith("parameters.") and all(
            f"{inside}.{name}" in self.experiment.grid_search for name in names
        )

    def at(self, task: Any, fixed: Mapping[str, Any], dotted: str, value: Any) -> Any:
        """A value of the grid for a parameter that may lie inside configs."""
        cls: Any = task
        values: Mapping[str, Any] = {**schema_of(task).defaults, **fixed}
        *steps, name = dotted.split(".")
        for step in steps:
            held = values.get(step)
            if not isinstance(held, ConfigBase):
                self._parameter(cls, step, f"grid_search.{dotted}")
                _refuse(
                    self.experiment,
                    f"grid_search.{dotted}",
                    f"{cls.__name__}.{step} holds no config: give it one first",
                )
            cls, values = type(held), vars(held)
        return self.value(cls, name, value, f"grid_search.{dotted}")

    def value(self, cls: Any, name: str, value: Any, key: str) -> Any:
        """One value, checked against its parameter."""
        parameter = self._parameter(cls, name, key)
        typed = self.typed(value, parameter.declaration.annotation, key)
        try:
            parameter.convert(typed)
        except Mismatch as mismatch:
            hint = _hint(value)
            _refuse(self.experiment, key, f"{cls.__name__}.{name} {describe(mismatch)}{hint}")
        return typed

    def _parameter(self, cls: Any, name: str, key: str) -> Parameter:
        schema = schema_of(cls)
        parameter = schema.parameters.get(name)
        if parameter is None:
            _refuse(
                self.experiment, key, f"{cls.__name__} has no parameter {name!r}; {schema.suggestion(name)}"
            )
        if parameter.role is Role.CONSTANT:
            _refuse(self.experiment, key, f"{cls.__name__}.{name} is a Constant, which nobody can set")
        return parameter

    def typed(self, value: Any, annotation: Any, key: str) -> Any:
        """What YAML has no form for: configs, enums, tuples, sets. The rest stays as it is, to be checked."""
        if isinstance(value, dict) and CLASS in value:
            return self.config(self._class(value[CLASS], key), value, key)
        for option in alternatives(annotation):
            origin = typing.get_origin(option) or option
            if not isinstance(origin, type):
                continue
            if isinstance(value, dict) and issubclass(origin, ConfigBase):
                return self.config(origin, value, key)
            if isinstance(value, str) and issubclass(origin, enum.Enum) and value in origin.__members__:
                return origin[value]
        return shaped(value, annotation, lambda one, kind, at: self.typed(one, kind, key + at))

    def config(self, cls: Any, value: Mapping[Any, Any], key: str) -> Any:
        """A nested config."""
        taken = self.values(cls, value, key, is_whole=True)
        try:
            return cls.C(**taken)
        except TenutoError as error:
            raise ExperimentFileError(f"{self.experiment.where(key)}: {error}") from error

    def _class(self, text: Any, key: str) -> Any:
        modules = [sys.modules[name] for name in self._module_names() if name in sys.modules]
        found = _find(self.experiment, f"{key}.{CLASS}", str(text), modules)
        if not (isinstance(found, type) and issubclass(found, ConfigBase)):
            _refuse(self.experiment, f"{key}.{CLASS}", f"{text} is not a Config class")
        return found

    def _module_names(self) -> list[str]:
        folder = self.experiment.path.resolve().parent
        return [name_of_script(folder / n) if n.endswith(".py") else n for n in self.experiment.imports]


def _hint(value: Any) -> str:
    if isinstance(value, str) and value.lower() in {"yes", "no", "on", "off"}:
        return "; write true or false"
    return ""


def _refuse(experiment: ExperimentFile, key: str, problem: str) -> NoReturn:
    raise ExperimentFileError(f"{experiment.where(key)}: {problem}")
