"""`task-outputs.jsonl`: what a running task hands to the watchers of one of its methods.
Written by the payload, line by line; read by a scheduler, in order, again after a restart.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

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
    """The outputs from `offset` on, and where to go on next time. What is torn or garbled is skipped."""
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
