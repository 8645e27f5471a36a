"""Owns the bugs planted in the readers, to see whether garbage finds them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from proof.fuzz import readers_of_documents as reading
from proof.fuzz.engines import plain
from proof.fuzz.targets import NONCE
from proof.report import Planted
from tenuto.jobs import parameters
from tenuto.lifecycle import events
from tenuto.workspace import json_bytes, lines, records
from tenuto.workspace.markers import Marker
from tenuto.workspace.records import Fields

EXECUTIONS = 4000


class _Bug(NamedTuple):
    name: str
    stands_for: str
    target: str
    place: Any
    attribute: str
    broken: Callable[..., Any]


def _lenient_marker(data: bytes) -> Marker:
    try:
        return Marker(1, NONCE, message=str(json.loads(data)))
    except ValueError:
        return Marker(1, NONCE)


def _read_and_import(files: Any, paths: Any) -> Any:
    found = _RIGHT_STORED(files, paths)
    try:
        for written in json.loads(files.read(paths.params, 1 << 20))["objects"]:
            import_module(written["class"][0])
    except (ImportError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        pass
    return found


def _any_integer(self: Fields, name: str, *, least: int = 0, default: int | None = None) -> int:
    return int(self._values.get(name, default))  # type: ignore[arg-type]


def _unseal_unchecked(line: bytes) -> Any:
    return json_bytes.from_json(line)


_RIGHT_STORED = parameters.read_stored

BUGS = [
    _Bug(
        "nesting",
        "`from_json` does not catch RecursionError",
        "record-status",
        records,
        "from_json",
        json.loads,
    ),
    _Bug(
        "any JSON is a marker",
        "`Marker.decode` fills in what is missing",
        "marker-done",
        Marker,
        "decode",
        staticmethod(_lenient_marker),
    ),
    _Bug(
        "modules are imported",
        "whoever shows parameters loads their classes",
        "params",
        reading,
        "read_stored",
        _read_and_import,
    ),
    _Bug(
        "any number is an integer",
        "`Fields.integer` calls int()",
        "record-locks",
        Fields,
        "integer",
        _any_integer,
    ),
    _Bug(
        "lines are not checked",
        "`unseal` does not compare the checksum",
        "jobs-list",
        lines,
        "unseal",
        _unseal_unchecked,
    ),
    _Bug(
        "events are not checked",
        "`from_record` trusts the types of fields",
        "journal-sealed",
        events,
        "_decode",
        lambda name, annotation, content: content,
    ),
]


def hunt() -> list[Planted]:
    return [_hunted(bug) for bug in BUGS]


def _hunted(bug: _Bug) -> Planted:
    began = time.perf_counter()
    right = bug.place.__dict__[bug.attribute]
    setattr(bug.place, bug.attribute, bug.broken)
    try:
        findings = plain(bug.target, EXECUTIONS).findings
    finally:
        setattr(bug.place, bug.attribute, right)
    how = findings[0].what if findings else ""
    return Planted(bug.target, bug.name, bug.stands_for, bool(findings), how, time.perf_counter() - began)
