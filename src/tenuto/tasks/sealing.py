"""Checking a config and everything below it, and closing it to changes.
It checks before it changes anything: a refused config is left as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenuto.errors import InvalidValue, MissingValue, TenutoError, UnsubmittedTask
from tenuto.light import pathlib
from tenuto.tasks.base import ConfigBase, caller, class_name, state_of
from tenuto.tasks.graph import edges, postorder
from tenuto.tasks.identity import has_digest
from tenuto.tasks.schema import Paths, refuse_shared_id, schema_of
from tenuto.tasks.tags import merged


def check(config: ConfigBase) -> list[ConfigBase]:
    """Refuses a config with a missing or invalid value; returns what is not sealed, children first."""
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
                        f"Path({str(path)!r}).resolve()"
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
        validate(config)
    except TenutoError:
        raise
    except Exception as error:
        raise InvalidValue(f"{class_name(config)} is not valid: {error}, at {caller()}") from error
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
