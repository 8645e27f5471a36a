"""Why two configs have different identities, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tenuto.tasks.arguments import guarded
from tenuto.tasks.base import ConfigBase, brief, is_config, key_text
from tenuto.tasks.identity import encode, identity
from tenuto.tasks.location import class_id
from tenuto.tasks.schema import Parameter, Schema, schema_of

MAX_DIFFERENCES = 100


class Difference(NamedTuple):
    """One reason: the place, and the values of both sides."""

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


@guarded
def explain(first: ConfigBase, second: ConfigBase) -> Explanation:
    """Says which counted parameters, at which path, make the identities of `first` and `second` differ."""
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
    (left, ours), (right, theirs) = _counted_as(left), _counted_as(right)
    if ours.id != theirs.id:
        yield Difference(path, f"it is a {ours.id}", f"it is a {theirs.id}")
        return
    is_found = False
    for place, one, other in _counted_places(left, ours, right, theirs):
        for difference in _in_values(_join(path, place), one, other):
            is_found = True
            yield difference
    if not is_found:  # the same values, so the classes themselves count them differently
        yield Difference(path, *(f"declared by {class_id(schema.cls)}" for schema in (ours, theirs)))


def _counted_as(config: ConfigBase) -> tuple[ConfigBase, Schema]:
    """What a config of a deprecated class stands for; any other config itself."""
    schema = schema_of(type(config))
    while schema.replacement is not None:
        if schema.replacement.convert is None:
            assert schema.replacement.target is not None
            return config, schema_of(schema.replacement.target)
        config = schema.replacement.convert(config)
        schema = schema_of(type(config))
    return config, schema


def _counted_places(left: ConfigBase, ours: Schema, right: ConfigBase, theirs: Schema) -> Iterator[Pair]:
    for name in {**ours.parameters, **theirs.parameters}:
        yield name, _counted(left, ours.parameters.get(name)), _counted(right, theirs.parameters.get(name))
    yield "<task it came from>", left._state.origin, right._state.origin
    yield "<seed>", left._state.seed, right._state.seed
    yield "<init_tasks>", list(left._state.init_tasks), list(right._state.init_tasks)


def _in_values(path: str, left: Any, right: Any) -> Iterator[Difference | Pair]:
    left, right = _unless_meta(left), _unless_meta(right)
    if _form(left) == _form(right):
        return
    if is_config(left) and is_config(right):
        yield path, left, right
    elif isinstance(left, list | tuple) and type(left) is type(right) and len(left) == len(right):
        for position, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _in_values(f"{path}[{position}]", one, other)
    elif isinstance(left, dict) and isinstance(right, dict) and _by_key(left).keys() == _by_key(right).keys():
        others = _by_key(right)
        for form, (key, one) in _by_key(left).items():
            yield from _in_values(f"{path}[{key_text(key)}]", one, others[form][1])
    else:
        yield Difference(path, _worded(left), _worded(right))


def _by_key(items: dict[Any, Any]) -> dict[bytes, tuple[Any, Any]]:
    """By the form of the key: for Python, 1 and True are the same key."""
    return {encode(key): (key, item) for key, item in items.items()}


class _Absent:
    """A parameter that does not count here."""

    def __init__(self, why: str) -> None:
        self.why = why


_NOT_COUNTED = _Absent("not counted (marked as meta)")


def _counted(config: ConfigBase, parameter: Parameter | None) -> Any:
    if parameter is None:
        return _Absent("no such parameter")
    value = config.__dict__.get(parameter.name)
    if not parameter.counted and not (is_config(value) and value._state.is_meta is False):  # type: ignore[union-attr]
        return _NOT_COUNTED
    return value


def _unless_meta(value: Any) -> Any:
    return _NOT_COUNTED if is_config(value) and value._state.is_meta else value


def _form(value: Any) -> bytes:
    """A form to compare by; two absent values are equal."""
    return b"" if isinstance(value, _Absent) else encode(value)


def _worded(value: Any) -> str:
    if isinstance(value, _Absent):
        return value.why
    if is_config(value):
        return f"a {schema_of(type(value)).id}"
    if value is None:
        return "None"
    kind = type(value).__name__.removeprefix("Frozen").lower()
    if isinstance(value, list | tuple) and any(map(is_config, value)):
        return f"{len(value)} configs ({kind})"  # spelled out, they would only hide the number
    return f"{brief(value)} ({kind})"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
