"""Turns canonical forms (see `tenuto.tasks.identity`) back into values: the proof that no two
values share one. It is written from the description of the form alone, without Tenuto's code.

A nested config comes back as its digest, for that is all a form says of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

HEADER = b"tenuto-identity-1\n"


class Digest(NamedTuple):
    """A nested config."""

    value: bytes


class Member(NamedTuple):
    """A member of an enum."""

    class_id: str
    name: str


@dataclass(frozen=True)
class Form:
    """A config's form, read."""

    type_id: str
    parameters: dict[str, Any]
    origin: Digest | None
    init_tasks: list[Digest]
    seed: Any = None


class NotCanonical(Exception):
    """Bytes that no value has as its form."""


def decode(data: bytes) -> Any:
    """The value whose canonical form this is."""
    reader = _Reader(data)
    value = reader.value()
    reader.end()
    return value


def decode_config(data: bytes) -> Form:
    """The config whose canonical form this is."""
    reader = _Reader(data)
    reader.expect(HEADER)
    type_id = reader.value()
    reader.expect(b"P")
    parameters = {}
    for _ in range(reader.count()):
        name = reader.value()
        if not isinstance(name, str) or name in parameters:
            raise NotCanonical(f"parameter {name!r}")
        parameters[name] = reader.value()
    if list(parameters) != sorted(parameters):
        raise NotCanonical("parameters out of order")
    reader.expect(b"o")
    origin = None if reader.next_is(b"-") else reader.value()
    reader.expect(b"I")
    init_tasks = [reader.value() for _ in range(reader.count())]
    seed = reader.value() if reader.next_is(b"R") else None
    reader.end()
    return Form(type_id, parameters, origin, init_tasks, seed)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        taken = self.data[self.position : self.position + size]
        if len(taken) != size:
            raise NotCanonical("the form ends early")
        self.position += size
        return taken

    def until(self, stop: bytes) -> bytes:
        end = self.data.find(stop, self.position)
        if end < 0:
            raise NotCanonical(f"no {stop!r}")
        taken = self.data[self.position : end]
        self.position = end + 1
        return taken

    def expect(self, expected: bytes) -> None:
        if self.take(len(expected)) != expected:
            raise NotCanonical(f"no {expected!r}")

    def next_is(self, expected: bytes) -> bool:
        found = self.data.startswith(expected, self.position)
        self.position += len(expected) * found
        return found

    def end(self) -> None:
        if self.position != len(self.data):
            raise NotCanonical("bytes are left over")

    def count(self) -> int:
        text = self.until(b":")
        count = int(text)
        if b"%d" % count != text:
            raise NotCanonical(f"the number {text!r}")
        return count

    def text(self) -> str:
        return self.take(self.count()).decode("utf-8", "surrogatepass")

    def integer(self) -> int:
        text = self.until(b";")
        value = int(text, 16)
        if b"%x" % value != text:
            raise NotCanonical(f"the integer {text!r}")
        return value

    def forms(self, count: int, parts: int) -> list[tuple[bytes, list[Any]]]:
        """Values in groups of `parts`, each with its bytes: what is sorted is checked by them."""
        found = []
        for _ in range(count):
            start = self.position
            values = [self.value() for _ in range(parts)]
            found.append((self.data[start : self.position], values))
        if found != sorted(found, key=lambda item: item[0]):
            raise NotCanonical("items out of order")
        return found

    def value(self) -> Any:
        kind = self.take(1)
        if kind == b"n":
            return None
        if kind == b"T":
            return True
        if kind == b"F":
            return False
        if kind == b"i":
            return self.integer()
        if kind == b"f":
            return struct.unpack(">d", self.take(8))[0]
        if kind == b"s":
            return self.text()
        if kind == b"p":
            return Path(self.text())
        if kind == b"e":
            return Member(self.value(), self.value())
        if kind == b"c":
            return Digest(self.take(32))
        if kind == b"l":
            return [self.value() for _ in range(self.count())]
        if kind == b"t":
            return tuple([self.value() for _ in range(self.count())])
        if kind == b"S":
            return {values[0] for _, values in self.forms(self.count(), 1)}
        if kind == b"d":
            return {values[0]: values[1] for _, values in self.forms(self.count(), 2)}
        raise NotCanonical(f"the kind {kind!r}")
