"""The parameters of a job as its `params.json` keeps them: flat, by path; differences; and their importance.
Plain JSON only: no class is looked up, and no code of a task is ever loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.errors import SerializationError, WorkspaceError
from tenuto.jobs.key import JobKey
from tenuto.light import late
from tenuto.tasks.serialization import PARAMS_FILE, loads
from tenuto.workspace import packs
from tenuto.workspace.layout import JobPaths, is_job_id, name_of_directory
from tenuto.workspace.ports import FileKind, Files

if TYPE_CHECKING:
    import random
else:
    random = late("random")

LARGEST = 4 << 20
_DEEPEST = 20
_MOST = 1000


class Stored(NamedTuple):
    """What `params.json` says."""

    parameters: Mapping[str, Any] = {}
    """path -> plain value, such as `model.lr`; a config is named by its type."""
    upstream: Mapping[str, JobKey] = {}
    """path -> the job whose result lies there."""
    uncounted: frozenset[str] = frozenset()
    """The paths that are no part of the identity."""
    problem: str | None = None
    """Why nothing could be read."""


def read_stored(files: Files, paths: JobPaths) -> Stored:
    """The parameters of a job; `problem` says why there are none."""
    try:
        if (packed := packs.find(files, paths.directory)) is not None:
            return stored_in(packed[0].read(paths.params, PARAMS_FILE, LARGEST))
        found = files.stat(paths.directory)
        if found is None or found.kind is not FileKind.DIRECTORY:
            return Stored(problem="the job has no directory")
        content = files.read(paths.params, LARGEST)
    except FileNotFoundError:
        return Stored(problem="it was never started, so its parameters were not written down")
    except (OSError, WorkspaceError) as error:
        return Stored(problem=str(error))
    return stored_in(content)


def stored_in(content: bytes) -> Stored:
    """The parameters in the bytes of a `params.json`; `problem` says why there are none."""
    try:
        return stored_of(loads(content, PARAMS_FILE))
    except SerializationError as error:
        return Stored(problem=str(error))


def stored_of(document: Mapping[str, Any]) -> Stored:
    """The parameters in a document that was read."""
    reader = _Reader(document["objects"])
    reader.read("", document["value"], 0)
    return Stored(reader.parameters, reader.upstream, frozenset(reader.uncounted))


class _Reader:
    """Walks one document."""

    def __init__(self, objects: list[Any]) -> None:
        self.parameters: dict[str, Any] = {}
        self.upstream: dict[str, JobKey] = {}
        self.uncounted: set[str] = set()
        self._objects = objects
        self._open: set[int] = set()

    def read(self, path: str, value: Any, depth: int, counted: bool = True) -> None:
        if len(self.parameters) >= _MOST:
            return
        if depth > _DEEPEST:
            self._note(path, "…", counted)
        elif isinstance(value, dict) and len(value) == 1 and "$ref" in value:
            self._read_config(path, value["$ref"], depth, counted)
        elif _holds_configs(value):
            for place, item in _items(value):
                self.read(f"{path}{place}", item, depth + 1, counted)
        else:
            self._note(path, plain(value), counted)

    def _note(self, path: str, value: Any, counted: bool) -> None:
        self.parameters[path] = value
        if not counted:
            self.uncounted.add(path)

    def _read_config(self, path: str, number: Any, depth: int, counted: bool = True) -> None:
        known = type(number) is int and 0 <= number < len(self._objects) and number not in self._open
        if not known or depth > _DEEPEST:
            self._note(path, "?" if depth <= _DEEPEST else "…", counted)
            return
        config = self._objects[number]
        marked = config.get("meta")
        counted = not marked if isinstance(marked, bool) else counted
        if "upstream" in config:
            key = _job_of(config["upstream"])
            self._note(path, str(key) if key else "another job", counted)
            if key is not None:
                self.upstream[path] = key
            return
        if path:
            self._note(path, str(config.get("type", "?")), counted)
        self._open.add(number)
        values, others = config.get("values"), config.get("uncounted")
        others = others if isinstance(others, list) else []
        for name, value in values.items() if isinstance(values, dict) else ():
            self.read(f"{path}.{name}" if path else name, value, depth + 1, counted and name not in others)
        if "seed" in config:
            self._note(_joined(path, "<seed>"), config["seed"], counted)
        for name in ("origin", "init_tasks"):
            numbers = config.get(name, [])
            for position, other in enumerate(numbers if isinstance(numbers, list) else [numbers]):
                self._read_config(_joined(path, f"<{name}>[{position}]"), other, depth + 1, counted)
        self._open.discard(number)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _job_of(file: Any) -> JobKey | None:
    """The job that a relative path such as `../../mine.Train/1f3a/params.json` leads to."""
    parts = str(file).split("/")
    if len(parts) < 3 or parts[-1] != PARAMS_FILE or not is_job_id(parts[-2]):
        return None
    task_id = name_of_directory(parts[-3])
    return None if task_id is None else JobKey(task_id, parts[-2])


def _holds_configs(value: Any, depth: int = 0) -> bool:
    if depth > _DEEPEST:
        return False
    if isinstance(value, dict):
        return "$ref" in value or any(_holds_configs(item, depth + 1) for item in value.values())
    return isinstance(value, list) and any(_holds_configs(item, depth + 1) for item in value)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in ("$tuple", "$set", "$dict"):
        (value,) = value.values()
    if isinstance(value, dict):
        yield from ((f"[{key}]", item) for key, item in value.items())
    elif isinstance(value, list):
        yield from ((f"[{position}]", item) for position, item in enumerate(value))


def plain(value: Any, depth: int = 0) -> Any:
    """A stored value without the marks of its kind: what a person would write."""
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((kind, content),) = value.items()
        if kind in ("$tuple", "$set"):
            return plain(content, depth + 1)
        if kind == "$enum" and isinstance(content, list) and len(content) == 4:
            return f"{content[1]}.{content[3]}"
        if kind in ("$path", "$float", "$str", "$int"):
            return plain(content, depth + 1)
        if kind == "$dict" and isinstance(content, list):
            return [plain(pair, depth + 1) for pair in content]
    return {str(key): plain(item, depth + 1) for key, item in value.items()}


# -- parameters in which two jobs differ -----------------------------------------------------------------


class Changed(NamedTuple):
    """A parameter that two jobs do not share."""

    path: str
    here: Any
    there: Any


class _Absent:
    def __repr__(self) -> str:
        return "not set"


ABSENT: Any = _Absent()


def changed(here: Stored, there: Stored) -> list[Changed]:
    """Returns the parameters in which two jobs differ, as far as parameters count for the identity."""
    paths = {**here.parameters, **there.parameters}
    uncounted = here.uncounted | there.uncounted
    return [
        Changed(path, here.parameters.get(path, ABSENT), there.parameters.get(path, ABSENT))
        for path in paths
        if path not in uncounted
        and not _same(here.parameters.get(path, ABSENT), there.parameters.get(path, ABSENT))
    ]


def plain_side(value: Any) -> Any:
    """One side of a difference for JSON: null for an unset value."""
    return None if value is ABSENT else value


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)  # for Python 1, 1.0 and True are equal


TREES = 16
DEPTH = 6
FEWEST = 8
"""Rows below which nothing is said."""
MOST = 400
_LEAF = 3
_CUTS = 8

Example = tuple[Mapping[str, Any], float]
"""The parameters of a job, and the number that is to be explained."""


def importance(examples: Sequence[Example]) -> dict[str, float]:
    """The share of each parameter in what the splits of the forest explain, the largest first; sum 1.

    A parameter that a row does not have (it was not chosen) is a value of its own. Empty for few rows, and
    where nothing varies. The same rows give the same shares.
    """
    rng = random.Random(0)
    known = [one for one in examples if math.isfinite(one[1])]
    if len(known) > MOST:
        known = rng.sample(known, MOST)
    names = list(dict.fromkeys(name for values, _ in known for name in values))
    varying = [name for name in names if len({repr(values.get(name)) for values, _ in known}) > 1]
    if len(known) < FEWEST or not varying:
        return {}
    gains = dict.fromkeys(varying, 0.0)
    for _ in range(TREES):
        _grow([rng.choice(known) for _ in known], varying, gains, DEPTH, rng)
    total = math.fsum(gains.values())
    shares = {name: gain / total for name, gain in gains.items()} if total > 0 else {}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _grow(
    rows: list[Example], names: list[str], gains: dict[str, float], depth: int, rng: random.Random
) -> None:
    """One node of a tree: the best split of some of the parameters, and the nodes below."""
    error = _error([target for _, target in rows])
    if depth == 0 or len(rows) < 2 * _LEAF or error <= 0:
        return
    best: tuple[float, str, list[Example], list[Example]] | None = None
    for name in rng.sample(names, max(1, math.ceil(len(names) / 2))):
        for left, right in _splits(rows, name):
            gain = error - _error([target for _, target in left]) - _error([target for _, target in right])
            if best is None or gain > best[0]:
                best = (gain, name, left, right)
    if best is None or best[0] <= 0:
        return
    gain, name, left, right = best
    gains[name] += gain
    _grow(left, names, gains, depth - 1, rng)
    _grow(right, names, gains, depth - 1, rng)


def _splits(rows: list[Example], name: str) -> list[tuple[list[Example], list[Example]]]:
    """The divisions of rows by one parameter: numbers by size, all else by one value against the others."""
    values = [values.get(name) for values, _ in rows]
    numbers = sorted({float(value) for value in values if value is not None and _is_number(value)})
    step = max(1, len(numbers) // _CUTS)
    tests: list[tuple[Any, bool]] = [(cut, True) for cut in numbers[:-1:step]]
    others = {repr(value): value for value in values if not _is_number(value)}
    tests += [(value, False) for value in list(others.values())[:_CUTS]]
    found = []
    for cut, is_number in tests:
        is_left = [
            _is_number(value) and value <= cut if is_number else repr(value) == repr(cut) for value in values
        ]
        left = [row for row, here in zip(rows, is_left, strict=True) if here]
        right = [row for row, here in zip(rows, is_left, strict=True) if not here]
        if len(left) >= _LEAF and len(right) >= _LEAF:
            found.append((left, right))
    return found


def _error(targets: list[float]) -> float:
    mean = math.fsum(targets) / len(targets)
    return math.fsum((target - mean) ** 2 for target in targets)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
