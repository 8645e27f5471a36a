"""`task-outputs.jsonl`: what a running task hands to the watchers of one of its methods.
Written by the payload, line by line; read by a scheduler, in order, again after a restart.
"""

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tenuto.tasks.base import ConfigBase
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.lines import read_lines, seal
from tenuto.workspace.ports import Files
from tenuto.workspace.records import Fields


class TaskOutput(NamedTuple):
    """One output."""

    attempt: int
    sequence: int
    """Its number within the attempt."""
    config: tuple[str | int, ...]
    """The way from the task to the config whose method it is: parameters, positions and keys."""
    method: str
    arguments: tuple[Any, ...]
    """Plain JSON values."""
    named: Mapping[str, Any] = {}


class OutputsWriter:
    """The payload's side."""

    def __init__(self, files: Files, paths: JobPaths, attempt: int) -> None:
        self._files = files
        self._path = paths.task_outputs
        self._attempt = attempt
        self._sequence = 0

    def write(
        self,
        config: Sequence[str | int],
        method: str,
        arguments: Sequence[Any],
        named: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Append one output, of plain values. Raises `ValueError` if the line is too long."""
        self._sequence += 1
        line = seal(
            {
                "attempt": self._attempt,
                "sequence": self._sequence,
                "config": list(config),
                "method": method,
                "arguments": list(arguments),
                "named": dict(named),
            }
        )
        file = self._files.open_append(self._path)
        try:
            # An earlier attempt may have died in the middle of its last line.
            file.append(b"\n" + line if self._sequence == 1 and file.size() else line)
        finally:
            file.close()


def read_outputs(files: Files, paths: JobPaths, offset: int = 0) -> tuple[list[TaskOutput], int]:
    """The outputs from `offset` on, and where to continue next time. Torn or garbled lines are skipped."""
    outputs = []
    try:
        for line in read_lines(files, paths.task_outputs, offset):
            offset = line.end
            output = _decoded(line.content)
            if output is not None:
                outputs.append(output)
    except FileNotFoundError:
        pass  # it has handed over nothing yet
    return outputs, offset


def _decoded(content: dict[str, Any] | None) -> TaskOutput | None:
    try:
        fields = Fields(content)
        config, arguments = fields.value("config"), fields.value("arguments")
        if type(arguments) is not list or type(config) is not list:
            return None
        if not all(type(step) in (str, int) for step in config):
            return None
        return TaskOutput(
            attempt=fields.integer("attempt"),
            sequence=fields.integer("sequence"),
            config=tuple(config),
            method=fields.text("method"),
            arguments=tuple(arguments),
            named=fields.mapping("named"),
        )
    except ValueError:
        return None


def way_to(wanted: Any, root: Any) -> tuple[str | int, ...] | None:
    """How to reach a config from the task `root`; the same way leads to it from the submitted task."""
    seen: set[int] = set()
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(root, ())]
    while waiting:
        value, way = waiting.pop(0)
        if value is wanted:
            return way
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, ConfigBase):  # its parameters, without filling in a task it depends on
            waiting += [(item, (*way, name)) for name, item in vars(value).items()]
        elif isinstance(value, list | tuple):
            waiting += [(item, (*way, position)) for position, item in enumerate(value)]
        elif isinstance(value, dict):
            waiting += [(item, (*way, key)) for key, item in value.items() if isinstance(key, str | int)]
    return None


def plain(value: Any) -> Any:
    """An argument of an output as JSON data; `TypeError` for a value that is not plain.

    Plain are values, lists, mappings, dataclasses and NamedTuples of plain values. Nothing is pickled: any
    program can read the arguments of an output, and reading them runs nothing.
    """
    if value is None or isinstance(value, bool | str | int | float):
        return _base(value)
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        names = getattr(value, "_fields", None)
        if names is not None:  # a NamedTuple: its names are what its reader knows it by
            return {name: plain(item) for name, item in zip(names, value, strict=True)}
        return [plain(item) for item in value]
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        return {name: plain(getattr(value, name)) for name in fields}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "numpy" and hasattr(value, "item"):  # a number of numpy's own kind
        return plain(value.tolist())
    raise TypeError(f"{type(value).__qualname__} is neither a plain value nor a dataclass")


def _base(value: Any) -> Any:
    """Without the subclass: an enum or a numpy float is a number to JSON."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value) if kind is not str else str.__str__(value)
    return None


def _key(key: object) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bool | int | float):
        return str(key)
    raise TypeError(f"a key that is a {type(key).__qualname__} cannot be kept")
