"""The fields of very many jobs by column, so that a filter reads only the jobs that it finds.
Pure: the caller keeps the bytes, and knows whether they hold still.
"""

from __future__ import annotations

import operator
from array import array
from binascii import crc32
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from enum import Enum
from json import dumps, loads
from typing import Any, NamedTuple

from tenuto.jobs.filters import ANY, ORDER, And, Filter, Form, Not, Or, Term, compare, literal
from tenuto.jobs.query import FIELDS, OURS, PLAIN_FIELDS
from tenuto.jobs.row import Row
from tenuto.workspace.lines import seal, unseal

_VERSION = 1
_MOST_CODES = 1 << 16
"""A column with more distinct values has each as often as it comes."""
_MOST_OTHERS = 10_000
_PLACES = "places"
WITHOUT_COLUMN = frozenset({ANY, *FIELDS} - PLAIN_FIELDS.keys())
"""What a filter may ask that differs from job to job, or is several texts."""


class Sieve(NamedTuple):
    """What a source may leave out of the jobs that it lists."""

    tree: Filter
    most: int | None
    """The caller shows so many matching rows, the last of the list; None: all."""
    tags: set[str]
    """What is known to be a tag of some job, and so no parameter of any."""


class NotKept(LookupError):
    """A filter asks for something that has no column."""


class _Column:
    def __init__(self, earlier: int) -> None:
        self.codes: array[int] | None = array("H", bytes(2 * earlier))
        self.known: dict[tuple[type, Any], int] = {(type(None), None): 0}
        self.texts = [b"null"]
        """The distinct values."""
        self.whole = bytearray()
        """Without codes, the value of each job."""

    def add(self, value: Any) -> None:
        if self.codes is None:
            self.whole += b"," + dumps(value).encode()
            return
        code = self.known.setdefault((type(value), value), len(self.texts))
        if code == len(self.texts):
            self.texts.append(dumps(value).encode())
        if code < _MOST_CODES:
            self.codes.append(code)
        else:
            self.whole += b",".join([*map(self.texts.__getitem__, self.codes), self.texts[-1]])
            self.codes, self.known, self.texts = None, {}, []

    def encoded(self) -> tuple[bytes, bytes]:
        if self.codes is None:
            return b"[%b]" % bytes(self.whole), b""
        return b"[%b]" % b",".join(self.texts), self.codes.tobytes()


class ColumnsWriter:
    """Takes the jobs of a list one by one, in its order."""

    def __init__(self) -> None:
        self._columns: dict[str, _Column | None] = {}
        self._places = array("Q")
        self._others: list[int] = []

    def add(self, place: int, row: Row | None, parameters: Mapping[str, Any], now: datetime) -> None:
        """`place`: where the line of the job begins. `row`: None for a job that is looked at each time."""
        count = len(self._places)
        self._places.append(place)
        fields: dict[str, Any] = {}
        if row is None:
            self._others.append(count)
        else:
            fields = {f"f:{name}": read(row, now) for name, read in PLAIN_FIELDS.items()}
            fields |= {f"t:{name}": value for name, value in row.tags.items()}
            fields |= {f"p:{name}": value for name, value in parameters.items()}
        for name in fields.keys() - self._columns.keys():
            self._columns[name] = _Column(count)
        for name, column in self._columns.items():
            if column is not None:
                value = fields.get(name)
                value = value.name.lower() if isinstance(value, Enum) else value
                value = value.isoformat() if isinstance(value, datetime) else value
                if isinstance(value, str | int | float | None):
                    column.add(value)
                else:  # several values, which a filter compares one by one
                    self._columns[name] = None

    def is_in_vain(self, fewest: int = 1_000) -> bool:
        """True if most of the jobs, `fewest` or more, are to be looked at each time."""
        return fewest <= len(self._places) < 2 * len(self._others) or len(self._others) > _MOST_OTHERS

    def encoded(self, stamp: Any, end: int) -> bytes:
        """The file's bytes. `stamp`: a reader believes them while it is the same; `end`: of the list."""
        columns: dict[str, tuple[int, ...] | None] = {}
        parts: list[bytes] = []
        start = 0
        self._places.append(end)
        encoded = {
            name: None if column is None else column.encoded() for name, column in self._columns.items()
        }
        for name, both in {**encoded, _PLACES: (b"", self._places.tobytes())}.items():
            if both is not None:
                columns[name] = start, len(both[0]), len(both[1]), crc32(both[1], crc32(both[0]))
                parts += both
                start += len(both[0]) + len(both[1])
            else:
                columns[name] = None
        head = {"version": _VERSION, "stamp": stamp, "columns": columns, "others": self._others}
        return seal(head) + b"".join(parts)


class Columns:
    """The fields of the jobs of a list, each read when it is asked for."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        """`read`: reads a part of the bytes. Raises `NotKept` if they are torn."""
        head = read(0, 1 << 20).partition(b"\n")[0] + b"\n"
        said = unseal(head) or {}
        if said.get("version") != _VERSION:
            raise NotKept
        self.stamp: dict[str, Any] = said["stamp"]
        self._read, self._start, self._said = read, len(head), said
        self.others: list[int] = said["others"]
        self.places = array("Q", self._part(_PLACES)[1])
        self.count = len(self.places) - 1

    def names(self, kind: str) -> frozenset[str]:
        """The parameters (`p:`) or the tags (`t:`) that jobs have."""
        return frozenset(name[2:] for name in self._said["columns"] if name.startswith(kind))

    def matching(self, tree: Filter, tags: Collection[str]) -> bytes:
        """For each job 1 if it matches, else 0; what is said of `others` means nothing."""
        match tree:
            case Term():
                return self._holds(tree, self._name(tree.field, tags))
            case Not():
                return self.matching(tree.inner, tags).translate(b"\1\0".ljust(256))
            case And() | Or():
                join = operator.and_ if isinstance(tree, And) else operator.or_
                parts = [int.from_bytes(self.matching(one, tags), "big") for one in tree.parts]
                found = parts[0]
                for part in parts[1:]:
                    found = join(found, part)
                return found.to_bytes(self.count, "big")

    def _name(self, field: str, tags: Collection[str]) -> str:
        if field in PLAIN_FIELDS and not (field in tags and field not in OURS):
            return f"f:{field}"
        if field in FIELDS or field in WITHOUT_COLUMN:
            raise NotKept(field)
        return f"{'t' if field in tags else 'p'}:{field}"

    def _part(self, name: str) -> tuple[bytes, bytes]:
        start, length, more, crc = self._said["columns"][name]
        data = self._read(self._start + start, length + more)
        if crc32(data) != crc:
            raise NotKept(name)
        return data[:length], data[length:]

    def _holds(self, asked: Term, name: str) -> bytes:
        if name not in self._said["columns"]:
            return bytes([compare(asked, None)]) * self.count
        if self._said["columns"][name] is None:
            raise NotKept(name)
        texts, codes = self._part(name)
        verdicts = bytes(_verdicts(asked, loads(texts)))
        return bytes(map(verdicts.__getitem__, array("H", codes))) if codes else verdicts


def _verdicts(asked: Term, values: list[Any]) -> Iterable[bool]:
    """What `compare` says of each value; the plain cases of many numbers or texts in one go."""
    kinds = set(map(type, values)) - {type(None)}
    number = next((one for one in literal(asked.value.text) if one is not None), None)
    order = ORDER.get(asked.operator)
    if number is not None and asked.value.form is Form.WORD and kinds <= {int, float}:
        if order is not None:
            return [value is not None and order(value, number) for value in values]
        if asked.operator != "~":
            return [(value == number) is (asked.operator == "=") for value in values]
    if number is None and order is not None and kinds <= {str}:
        text = asked.value.text
        return [value is not None and order(value, text) for value in values]
    if len(kinds) > 1:  # for Python 1, 1.0 and True are one
        return [compare(asked, value) for value in values]
    known = {value: compare(asked, value) for value in set(values)}
    return map(known.__getitem__, values)
