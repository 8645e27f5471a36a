"""Owns the bugs planted in the readers, to see whether garbage finds them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from proof.fuzz.engines import plain
from proof.fuzz.readers import targets
from proof.fuzz.targets import CANARY, IMPORTED, NONCE, Bench, Target
from proof.report import Planted
from proof.spread import spread
from tenuto.lifecycle import events
from tenuto.workspace import json_bytes, lines, records
from tenuto.workspace.markers import Marker
from tenuto.workspace.records import Fields

EXECUTIONS = 4000
_DEEPEST = 1000


class _Bug(NamedTuple):
    name: str
    stands_for: str
    target: str
    place: Any
    attribute: str
    broken: Callable[..., Any]


def _bounded_json(data: bytes) -> Any:
    """`json.loads` with the bound of Python 3.11: later ones follow garbage to its end, however nested."""
    if data.count(b"[") + data.count(b"{") > _DEEPEST:
        raise RecursionError
    return json.loads(data)


def _lenient_marker(data: bytes) -> Marker:
    try:
        return Marker(1, NONCE, message=str(json.loads(data)))
    except ValueError:
        return Marker(1, NONCE)


def _importing(target: Target) -> Target:
    """A reader that imports the modules that a file names, whether it accepts the file in the end or not."""

    def call(data: bytes) -> None:
        for word in set(_WORD.findall(data)):
            with suppress(ImportError, ValueError):
                if word.partition(b".")[0] == CANARY.encode():  # other modules are not ours to run
                    import_module(word.decode())
        target.call(data)

    return target._replace(call=call)


def _any_integer(self: Fields, name: str, *, least: int = 0, default: int | None = None) -> int:
    return int(self._values.get(name, default))  # type: ignore[arg-type]


def _unseal_unchecked(line: bytes) -> Any:
    return json_bytes.from_json(line)


_WORD = re.compile(rb"[A-Za-z_][\w.]*")

BUGS = [
    _Bug(
        "nesting",
        "`from_json` does not catch RecursionError",
        "record-status",
        records,
        "from_json",
        _bounded_json,
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


def hunt(workers: int = 1) -> list[Planted]:
    """Every planted bug, and in every reader of its own: it imports what a file names."""
    bench = Bench()
    try:
        names = [target.name for target in targets(bench)]
    finally:
        bench.close()
    return [*spread(hunted, range(len(BUGS)), workers), *spread(hunted_import, names, workers)]


def hunted_import(name: str) -> Planted:
    """The bug of a reader that imports what a file names."""
    began = time.perf_counter()
    findings = [
        one
        for one in plain(name, EXECUTIONS, first_only=True, broken=_importing).findings
        if IMPORTED in one.what
    ]
    how = findings[0].what if findings else ""
    stands_for = "the reader imports the modules that a file names"
    seconds = time.perf_counter() - began
    return Planted(name, "modules are imported", stands_for, bool(findings), how, seconds)


def hunted(number: int) -> Planted:
    """A bug that one reader has."""
    bug = BUGS[number]
    began = time.perf_counter()
    right = bug.place.__dict__[bug.attribute]
    setattr(bug.place, bug.attribute, bug.broken)
    try:
        findings = plain(bug.target, EXECUTIONS, first_only=True).findings
    finally:
        setattr(bug.place, bug.attribute, right)
    how = findings[0].what if findings else ""
    return Planted(bug.target, bug.name, bug.stands_for, bool(findings), how, time.perf_counter() - began)
