"""Why two configs have different identities, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tenuto.tasks.base import ConfigBase, is_config
from tenuto.tasks.identity import encode, identity
from tenuto.tasks.schema import Parameter, schema_of

MAX_DIFFERENCES = 100


class Difference(NamedTuple):
    """One reason: where, and what is on either side."""

    path: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.path or 'the config itself'}: {self.first} in the first, {self.second} in the second"


class Explanation(NamedTuple):
    """The answer of `explain`; its text is for people."""

    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether the identities are equal."""
        return not self.differences

    def __str__(self) -> str:
        if self.same:
            return "same identity"
        return "different identities, because\n" + "\n".join(f"- {reason}" for reason in self.differences)


def explain(first: ConfigBase, second: ConfigBase) -> Explanation:
    """Says which counted parameters, at which path, make two identities differ."""
    found: list[Difference] = []
    pending = [("", first, second)]
    seen: set[tuple[int, int]] = set()
    while pending and len(found) < MAX_DIFFERENCES:
        path, left, right = pending.pop()
        if identity(left) == identity(right) or (id(left), id(right)) in seen:
            continue
        seen.add((id(left), id(right)))
        deeper: list[Pair] = []
        for difference in _between(path, left, right):
            if isinstance(difference, Difference):
                found.append(difference)
            else:
                deeper.append(difference)
        pending.extend(reversed(deeper))
    return Explanation(tuple(found))


Pair = tuple[str, Any, Any]


def _between(path: str, left: ConfigBase, right: ConfigBase) -> Iterator[Difference | Pair]:
    """The differences of two configs themselves, and the pairs of configs in which others lie."""
    ours, theirs = schema_of(type(left)), schema_of(type(right))
    if ours.id != theirs.id:
        yield Difference(path, f"it is a {ours.id}", f"it is a {theirs.id}")
        return
    for name, parameter in ours.parameters.items():
        values = [_counted(config, parameter) for config in (left, right)]
        yield from _in_values(_join(path, name), *values)
    yield from _in_values(_join(path, "<task it came from>"), left._state.origin, right._state.origin)
    init_tasks = [list(config._state.init_tasks) for config in (left, right)]
    yield from _in_values(_join(path, "<init_tasks>"), *init_tasks)


def _in_values(path: str, left: Any, right: Any) -> Iterator[Difference | Pair]:
    if is_config(left) and is_config(right):
        yield path, left, right
    elif encode_or_absent(left) == encode_or_absent(right):
        return
    elif isinstance(left, list | tuple) and type(left) is type(right) and len(left) == len(right):
        for position, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _in_values(f"{path}[{position}]", one, other)
    elif isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        for key, one in left.items():
            yield from _in_values(f"{path}[{key!r}]", one, right[key])
    else:
        yield Difference(path, _worded(left), _worded(right))


class _Absent:
    """A parameter that does not count here."""

    def __init__(self, why: str) -> None:
        self.why = why


def _counted(config: ConfigBase, parameter: Parameter) -> Any:
    value = config.__dict__.get(parameter.name)
    is_meta = value._state.is_meta if is_config(value) else None  # type: ignore[union-attr]
    if is_meta or (is_meta is None and not parameter.counted):
        return _Absent("not counted (marked as meta)")
    return value


def encode_or_absent(value: Any) -> bytes:
    """A form to compare by; what is absent is equal to what is absent."""
    return b"" if isinstance(value, _Absent) else encode(value)


def _worded(value: Any) -> str:
    if isinstance(value, _Absent):
        return value.why
    if is_config(value):
        return f"a {schema_of(type(value)).id}"
    if value is None:
        return "None"
    text = repr(value)
    kind = type(value).__name__.removeprefix("Frozen").lower()
    return f"{text if len(text) <= 80 else text[:79] + '…'} ({kind})"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
