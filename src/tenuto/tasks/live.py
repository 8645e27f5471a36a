"""Live objects: what a config becomes where it runs.
It builds them from configs in this process; `serialization` builds them in a job.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tenuto.errors import InvalidValue, MissingValue, NoResult, TenutoError, UnsubmittedTask
from tenuto.light import pathlib
from tenuto.tasks.base import ConfigBase, caller, class_name, state_of
from tenuto.tasks.graph import configs_in, edges, folders, postorder
from tenuto.tasks.hints import STDOUT, PathGenerator
from tenuto.tasks.identity import has_digest, identity, partial_identity
from tenuto.tasks.methods import IDENTITY_ATTRIBUTE, caches
from tenuto.tasks.schema import Paths, refuse_shared_id, schema_of
from tenuto.tasks.tags import merged

if TYPE_CHECKING:
    from pathlib import Path

    from tenuto.tasks.ports import SubmittedJob

# Checking a config and everything below it, and closing it to changes.
# It checks before it changes anything: a refused config is left as it was.


def check(config: ConfigBase) -> list[ConfigBase]:
    """Refuses a config with a missing or invalid value; returns the open configs, children first."""
    state_of(config)
    nodes = list(postorder(config, _is_sealed))
    for node in nodes:
        for name in schema_of(type(node)).required:
            if name not in node.__dict__:
                raise MissingValue(f"{class_name(node)}.{name} has no value, at {caller()}: give it one")
    validated = [node for node in nodes if _validate(node)]
    return list(postorder(config, _is_sealed)) if validated else nodes


def seal(config: ConfigBase, *, to_run: bool = False) -> None:
    """Closes a config, and all below it, to changes.

    With `to_run`, every task whose result it uses must have been submitted.
    """
    nodes = check(config)
    for schema in {schema_of(type(node)) for node in nodes}:
        refuse_shared_id(schema)
    tags: dict[int, dict[str, Any]] = {}
    upstream: dict[int, tuple[ConfigBase, ...]] = {}
    for node in nodes:
        tags[id(node)] = merged(node, tags)
        upstream[id(node)] = _upstream(node, upstream)
    if to_run:
        if Paths.are_data:
            _refuse_relative_data(config)
        _require_submitted(config, upstream.get(id(config)) or state_of(config).upstream or ())
    for node in nodes:
        state = node._state
        if not has_digest(node):
            state.digest = None  # else a digest from before a change below would now count as final
        state.tags = tags[id(node)]
        state.upstream = upstream[id(node)]
        state.sealed = True


def _refuse_relative_data(config: ConfigBase) -> None:
    """A job runs in a directory of its own, where a relative path leads to nothing."""
    for node in postorder(config, lambda node: node._state.job is not None):
        for name in schema_of(type(node)).data_names:
            for path in _paths_in(node.__dict__.get(name)):
                if not path.is_absolute():
                    raise InvalidValue(
                        f"{class_name(node)}.{name} is a relative path, {str(path)!r}, and a job runs in a "
                        f"directory of its own, at {caller()}: give it absolute, as in "
                        f"Path({str(path)!r}).{'expanduser' if str(path)[0] == '~' else 'resolve'}()"
                    )


def _paths_in(value: Any) -> Iterator[Any]:
    if isinstance(value, pathlib.PurePath):
        yield value
    elif isinstance(value, list | tuple | set | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _paths_in(item)


def _is_sealed(config: ConfigBase) -> bool:
    sealed: bool = config._state.sealed
    return sealed


def _validate(config: ConfigBase) -> bool:
    validate = getattr(type(config), "__validate__", None)
    if validate is None:
        return False
    try:
        answer = validate(config)
    except TenutoError:
        raise
    except Exception as error:
        raise InvalidValue(f"{class_name(config)} is not valid: {error}, at {caller()}") from error
    if answer is False:
        raise InvalidValue(f"{class_name(config)} is not valid: its __validate__ says False, at {caller()}")
    return True


def _upstream(config: ConfigBase, below: dict[int, tuple[ConfigBase, ...]]) -> tuple[ConfigBase, ...]:
    """The nearest tasks that a config needs, in order, each once."""
    found: dict[int, ConfigBase] = {}
    for _, child in edges(config):
        if child is config._state.origin and config._state.is_there:
            continue
        if type(child).__is_task__:
            found[id(child)] = child
        else:
            inner = below[id(child)] if child._state.upstream is None else child._state.upstream
            found.update((id(task), task) for task in inner)
    return tuple(found.values())


def _require_submitted(config: ConfigBase, upstream: tuple[ConfigBase, ...]) -> None:
    for task in upstream:
        if task._state.job is None:
            raise UnsubmittedTask(
                f"{class_name(config)} uses the result of the task {class_name(task)}"
                f"{_place(config, task)}, which was not submitted, at {caller()}: "
                f"pass {class_name(task)}.C(...).submit() instead"
            )


def _place(config: ConfigBase, task: ConfigBase) -> str:
    for label, child in edges(config):
        if child is task:
            return f" (parameter {label})"
    return ""


def instantiate(value: Any, directory: Path | str) -> Any:
    """A value with live objects for its configs: generated paths in `directory`, shared configs shared."""
    built: dict[int, Any] = {}
    for _, root in configs_in(value):
        check(root)
        identity(root)
        places = _places(root, directory)
        for node in postorder(root, lambda node: id(node) in built):
            values = {name: thawed(kept, built) for name, kept in node.__dict__.items()}
            for name in schema_of(type(node)).generators:
                path = None if name in values else _generated(node, name, places, directory)
                if path is not None:
                    values[name] = path
            cls = live_class(type(node))
            if caches(cls):
                values[IDENTITY_ATTRIBUTE] = (schema_of(cls).id, identity(node))
            live: Any = object.__new__(cls)
            if node._state.job is not None:
                set_live_state(live, _Submitted(node._state.job))
            built[id(node)] = alive(live, values)
    return thawed(value, built)


class _Submitted:
    """Tells a live object the result of the job that its config became."""

    def __init__(self, job: SubmittedJob | None) -> None:
        self._job = job

    def result(self) -> Any:
        """What the task returned; waits for the job."""
        if self._job is None:
            raise NoResult(
                "the job of this task is known in the process that submitted it, and not in others"
            )
        return self._job.result()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Submitted, (None,)


set_live_state = ConfigBase.__dict__["_state"].__set__
"""Sets `_state` whatever a class of the user's does in ``__setattr__``."""


def alive(live: Any, values: dict[str, Any]) -> Any:
    """An object with its values, after ``__init__``, where its class or another base has one, and
    ``__post_init__``."""
    live.__dict__.update(values)
    if has_init(type(live)):
        live.__init__()
        _register_parts(live, values)
    post_init = getattr(live, "__post_init__", None)
    if post_init is not None:
        post_init()
    return live


def has_init(cls: Any) -> bool:
    """True if a class, or one of its bases, has an ``__init__`` of its own."""
    return cls.__init__ is not object.__init__


def _register_parts(live: Any, values: dict[str, Any]) -> None:
    """Assigns parameters that are configs once more, for a base that keeps its parts by ``__setattr__``.

    A module of PyTorch registers a module inside it only once its own ``__init__`` has run.
    """
    own: Any = type(live).__setattr__
    if own is object.__setattr__:
        return
    for name, value in values.items():
        if isinstance(value, ConfigBase) and live.__dict__.get(name) is value:
            setattr(live, name, value)


def live_class(config_class: type) -> type:
    """The class a person wrote, of which a config class was made."""
    return config_class.__mro__[1]


def thawed(value: Any, built: dict[int, Any]) -> Any:
    """A value with plain, changeable containers, and live objects for configs."""
    if isinstance(value, str | int | float | enum.Enum | None):
        return value
    if isinstance(value, ConfigBase):
        return built[id(value)]
    if isinstance(value, list):
        return [thawed(item, built) for item in value]
    if isinstance(value, tuple):
        return tuple([thawed(item, built) for item in value])
    if isinstance(value, set):
        return {thawed(item, built) for item in value}
    if isinstance(value, dict):
        return {thawed(key, built): thawed(item, built) for key, item in value.items()}
    return value


def note_place(config: ConfigBase, task: ConfigBase, folder: str) -> None:
    """Notes where the generated paths of a config lie: in a folder of the job of the task it is part of."""
    state = config._state
    if state.generated_in is None:
        state.generated_in = task, folder
        return
    other, there = state.generated_in
    if (other._state.job.path, there) != (task._state.job.path, folder):
        state.also_generated_in = task


def generated_path(config: ConfigBase, name: str) -> Path | None:
    """The generated path of a submitted config; None before it is known.

    `MissingValue` if it lies in the jobs of several tasks that share the config.
    """
    generator = schema_of(type(config)).generators.get(name)
    place = config._state.generated_in
    if generator is None or place is None:
        return None
    task, folder = place
    job = task._state.job
    if job is None:
        return None
    if generator.partial is not None:
        return pathlib.Path(job.partials, partial_folder(config, generator), generator.path)
    other = config._state.also_generated_in
    if other is not None:
        raise MissingValue(
            f"{class_name(config)}.{name} lies in the jobs of {class_name(task)} {job.path.name[:8]} and "
            f"{class_name(other)} {other._state.job.path.name[:8]}, which share this {class_name(config)}, "
            f"at {caller()}: give each task one of its own, such as copyconfig(config)"
        )
    if generator.stream is not None:
        return pathlib.Path(job.stdout if generator.stream is STDOUT else job.stderr)
    return pathlib.Path(job.path, folder, generator.place(config))


def generated_paths(live: Any) -> list[Path]:
    """The generated paths of a live object."""
    return [pathlib.Path(vars(live)[name]) for name in schema_of(type(live)).generators]


def partial_folder(config: ConfigBase, generator: PathGenerator) -> str:
    """The folder of a partial below ``partials/``: type, partial and its identity."""
    assert generator.partial is not None
    excluded = generator.partial.excluded_groups
    schema = schema_of(type(config))
    return f"{schema.id}/{generator.partial.name}/{partial_identity(config, excluded)}"


def _places(root: ConfigBase, directory: Path | str) -> dict[int, Path | None]:
    """Where generated paths lie, by config: in `directory`, or in the job of the task they are part of.

    None for a config that several tasks share: one live object cannot have the paths of both.
    """
    job = root._state.job
    base = directory if job is None else job.path
    places: dict[int, Path | None] = {id(node): pathlib.Path(base, folder) for node, folder in folders(root)}
    for task in postorder(root, lambda node: False):
        if task is root or task._state.job is None:
            continue
        for node, folder in folders(task):
            place = pathlib.Path(task._state.job.path, folder)
            if places.setdefault(id(node), place) != place and node not in (root, task):
                places[id(node)] = None
    return places


def _generated(
    config: ConfigBase, name: str, places: dict[int, Path | None], root: Path | str
) -> Path | None:
    is_shared = config._state.also_generated_in is not None
    known = None if is_shared else generated_path(config, name)
    if known is not None:
        return known
    generator = schema_of(type(config)).generators[name]
    if generator.partial is not None:
        return pathlib.Path(root, "partials", partial_folder(config, generator), generator.path)
    place = places[id(config)]
    return None if place is None else place / generator.place(config)
