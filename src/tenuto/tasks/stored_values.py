"""What of a stored task still holds: the values it was run with, against those that the script gives now.
It compares; whether a difference makes a result invalid is the caller's decision.

A value equal to an ignored default is not part of the identity, and neither is a `Meta`. When a default
changes, or the data moves, two different tasks therefore share an identity.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tenuto.light import NamedTuple, sha256
from tenuto.tasks.base import ConfigBase, brief, is_config
from tenuto.tasks.graph import configs_in, edges, postorder
from tenuto.tasks.hints import Role
from tenuto.tasks.identity import encode, identity_plan
from tenuto.tasks.live import live_class
from tenuto.tasks.schema import Schema, schema_of
from tenuto.tasks.values import to_json

Stored = Mapping[str, Any]
"""The document of a job."""


# The values at ignored defaults, as one digest


def defaults_digest(task: ConfigBase) -> str:
    """A short digest of the values of a task, and of configs in it, that equal an ignored default.

    Empty where there is none. Tasks with a job of their own count for themselves. The task is sealed.
    """
    return _digest(task)[:8].hex()


def _digest(config: Any) -> bytes:
    if config._state.defaults is None:
        for node in postorder(
            config, lambda node: _is_known(node) or (node is not config and _is_task(node))
        ):
            schema: Schema = type(node).__schema__  # type: ignore[attr-defined]
            own = _own(node, schema)
            below = [child._state.defaults for child in _children(node, schema)]
            node._state.defaults = sha256(b"|".join([own, *below])).digest() if any(below) else own
    digest: bytes = config._state.defaults
    return digest


def _is_known(config: ConfigBase) -> bool:
    return config._state.defaults is not None


def _is_task(config: ConfigBase) -> bool:
    return type(config).__is_task__


def _own(config: Any, schema: Schema) -> bytes:
    """The digest of one config; most configs of a class share it, and it is computed once for them."""
    names = _at_default(config, schema)
    if not names:
        return b""
    key = tuple(names)
    found = schema.default_forms.get(key)
    if found is None:
        forms = [s.prefix + (s.ignored_form or b"") for s in identity_plan(schema) if s.name in names]
        found = schema.default_forms[key] = sha256(schema.id.encode() + b"".join(forms)).digest()
    return found


def _at_default(config: Any, schema: Schema) -> list[str]:
    """The parameters of a config whose values do not count, since they equal an ignored default."""
    values = config.__dict__
    names = []
    for step in identity_plan(schema):
        if step.ignored_form is not None and step.name in values:
            value = values[step.name]
            if value is step.ignored or encode(value) == step.ignored_form:
                names.append(step.name)
    return names


def _children(config: Any, schema: Schema) -> Iterator[Any]:
    if not schema.config_names and not config._state.init_tasks:
        return
    yield from (child for _, child in edges(config) if not _is_task(child))


# Value by value


class ChangedValue(NamedTuple):
    """A counted parameter whose value is not the one that the job was run with."""

    path: str
    now: Any
    then: Any
    """In its stored form."""
    default_of: str
    """The parameter whose default has changed, as ``Class.name``: this one, or one that holds its config."""
    is_inside: bool

    def __str__(self) -> str:
        return f"{self.path} was {_shown(self.then)} and is {brief(self.now)} now"

    def remedy(self) -> str:
        """The line by which the old results stay those of the old value."""
        owner, _, name = self.default_of.rpartition(".")
        new, old = brief(self.now), _shown(self.then)
        if self.is_inside:
            new, old = "<as it is now>", f"<as it was, where {self.path} is {old}>"
        keyword = "ignore_value" if isinstance(self.now, bool) and not self.is_inside else "ignore_default"
        return f"in {owner} `{name}: ... = field(default={new}, {keyword}={old})`"


class Comparison(NamedTuple):
    """A task against the document of its job."""

    changed: tuple[ChangedValue, ...]
    """Counted values that differ: the result is another's."""
    renewed: dict[str, dict[str, Any]]
    """By the number of an object in the document: what does not count, as the script gives it now."""


def compared(
    task: ConfigBase,
    stored: Stored,
    generated: Mapping[tuple[int, str], str],
    excluded: frozenset[str] = frozenset(),
) -> Comparison:
    """Compares a task with the document that its job was run from; `generated`: its generated paths;
    `excluded`: groups of parameters that are not looked at.

    A parameter that the document does not have was added since, and changes nothing.
    """
    changed: list[ChangedValue] = []
    renewed: dict[str, dict[str, Any]] = {}
    objects = stored["objects"]
    pending = [_Place(*found) for found in _pairs(task, stored["value"], "")]
    seen: set[tuple[int, int]] = set()
    while pending:
        place = pending.pop()
        _, config, number, _ = place
        if (id(config), number) in seen or not 0 <= number < len(objects):
            continue
        seen.add((id(config), number))
        written = objects[number]
        schema = schema_of(live_class(type(config)))
        if "upstream" in written or written.get("type") != schema.id:
            continue
        news = _News(schema, written, place, excluded)
        changed += news.changed
        pending += news.inner
        if any(news.renew(generated).values()):
            renewed[str(number)] = {key: value for key, value in news.renew(generated).items() if value}
    return Comparison(tuple(changed), renewed)


class _Place(NamedTuple):
    """A config, and the number of the object that is stored in its place."""

    path: str
    config: Any
    number: int
    default_of: str | None = None
    """The outermost parameter that has it by default: what lies in there does not count."""


class _News:
    """What is new of one config."""

    def __init__(self, schema: Schema, written: Stored, at: _Place, excluded: frozenset[str]) -> None:
        path, config, _, outer = at
        self.changed: list[ChangedValue] = []
        self.inner: list[_Place] = []
        self._values: dict[str, Any] = {}
        self._schema = schema
        self._config = config
        self._written = written
        stored = written.get("values", {})
        for name, parameter in schema.parameters.items():
            if name not in config.__dict__ or parameter.role is Role.CONSTANT or parameter.groups & excluded:
                continue
            value, place = config.__dict__[name], f"{path}.{name}" if path else name
            own = f"{schema.cls.__qualname__}.{name}"
            if any(configs_in(value)):
                default_of = outer or (own if name in _at_default(config, schema) else None)
                pairs = _pairs(value, stored.get(name), place)
                self.inner += [_Place(*found, default_of) for found in pairs]
                continue
            now = to_json(value, _no_reference)
            if name in stored and _normal(now) == _normal(stored[name]):
                continue
            if not parameter.counted:
                self._values[name] = now
            elif name in stored:
                self.changed.append(ChangedValue(place, value, stored[name], outer or own, outer is not None))
        for task, number in zip(config._state.init_tasks, written.get("init_tasks", []), strict=False):
            self.inner.append(_Place(f"{path}.<init_tasks>" if path else "<init_tasks>", task, number))

    def renew(self, generated: Mapping[tuple[int, str], str]) -> dict[str, Any]:
        known = {**self._written.get("values", {}), **self._written.get("generated", {})}
        paths = {
            name: generated[id(self._config), name]
            for name in self._schema.generators
            if name not in known and (id(self._config), name) in generated
        }
        return {"values": self._values, "generated": paths}


def _pairs(value: Any, stored: Any, path: str) -> Iterator[tuple[str, Any, int]]:
    """The configs in a value, each with the number of the object that is stored at the same place."""
    if is_config(value):
        number = stored.get("$ref") if isinstance(stored, dict) else None
        if type(number) is int:
            yield path, value, number
    elif isinstance(value, list | tuple):
        items = stored.get("$tuple") if isinstance(stored, dict) else stored
        for position, (item, other) in enumerate(zip(value, items or (), strict=False)):
            yield from _pairs(item, other, f"{path}[{position}]")
    elif isinstance(value, dict) and isinstance(stored, dict):
        for key, item in value.items():
            yield from _pairs(item, stored.get(key), f"{path}[{key!r}]")


def _normal(stored: Any) -> str:
    """A stored value as text, in which the order of a set or a dict does not matter, and 1 is not True."""
    return json.dumps(_sorted(stored), sort_keys=True)


def _sorted(stored: Any) -> Any:
    if isinstance(stored, list):
        return [_sorted(item) for item in stored]
    if isinstance(stored, dict):
        kept = {key: _sorted(item) for key, item in stored.items()}
        for kind in ("$set", "$dict"):
            if isinstance(kept.get(kind), list):
                kept[kind] = sorted(kept[kind], key=_normal)
        return kept
    return stored


def _no_reference(config: ConfigBase) -> int:
    raise TypeError(f"{config!r} is no plain value")


def _shown(stored: Any) -> str:
    if isinstance(stored, dict) and len(stored) == 1:
        ((kind, content),) = stored.items()
        if kind == "$enum":
            return f"{content[1]}.{content[3]}"
        if kind.startswith("$"):
            return brief(content)
    return brief(stored)
