"""Whether a stored task still holds: the values it was run with, against the script's values of now.
It compares; whether a difference makes a result invalid is the caller's decision.

A value equal to an ignored default is not part of the identity, and neither is a `Meta`. When a default
changes, or the data moves, two different tasks therefore share an identity.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tenuto.light import NamedTuple, sha256
from tenuto.tasks.base import ConfigBase, brief, class_name, is_config
from tenuto.tasks.graph import edges, postorder
from tenuto.tasks.hints import Role
from tenuto.tasks.identity import encode, identity_plan
from tenuto.tasks.live import live_class
from tenuto.tasks.schema import Schema, is_of_deprecated, schema_of
from tenuto.tasks.values import from_json, to_json

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


_SHORT = 60


def values_shown(task: ConfigBase, *, defaults: bool) -> dict[str, dict[str, str]]:
    """The counted values of a task and of configs in it: by the id of a class, parameter -> value.

    A value as a script writes it; of a long one, a digest; of configs, their classes. `defaults`: only those
    that `defaults_digest` tells of, with what is in configs.
    """
    found: dict[str, dict[str, str]] = {}
    for node in postorder(task, lambda node: node is not task and _is_task(node)):
        schema: Schema = type(node).__schema__  # type: ignore[attr-defined]
        for name in _at_default(node, schema) if defaults else _counted_names(node, schema):
            known = found.setdefault(schema.id, {})
            if name not in known:
                value, held = node.__dict__[name], list[Any]()
                form = _form(value, held)
                text = _shown(form, held) if defaults or not held else ", ".join(map(class_name, held))
                known[name] = (
                    text if len(text) <= _SHORT else f"{_CUT}{sha256(encode(value)).hexdigest()[:12]}"
                )
    return found


def _counted_names(config: Any, schema: Schema) -> list[str]:
    given = (one for one in schema.parameters.values() if one.counted and one.role is not Role.CONSTANT)
    return [one.name for one in given if one.name in config.__dict__]


def changed_defaults(
    then: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]
) -> tuple[ChangedValue, ...]:
    """The parameters that both tell of, with different values."""
    changed = []
    for of, names in then.items():
        for name in names.keys() & now.get(of, {}).keys():
            if names[name] != now[of][name]:
                own = f"{of.rpartition('.')[2]}.{name}"
                both = now[of][name], names[name]
                changed.append(ChangedValue(own, *both, ChangedDefault(own, *both)))
    return tuple(changed)


# Value by value


class ChangedValue(NamedTuple):
    """A counted parameter whose value is not the one of the job's run."""

    path: str
    now: str
    then: str
    default: ChangedDefault

    def __str__(self) -> str:
        return f"{self.path} was {self.then} and is {self.now} now"

    def remedy(self) -> str:
        """The line by which the old results stay the old value's."""
        owner, _, name = self.default.of.rpartition(".")
        now, then = self.default.now, self.default.then
        keyword = "ignore_value" if now in ("True", "False") else "ignore_default"
        if _CUT in now + then:
            now, then = "<its value now>", "<its value then>"
        return f"in {owner} `{name}: ... = field(default={now}, {keyword}={then})`"


class ChangedDefault(NamedTuple):
    """A parameter at its ignored default, and what that was."""

    of: str
    """``Class.name``: of the parameter whose value differs, or of the outermost that holds its config."""
    now: str
    then: str


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
    root = stored["value"]
    pending = [_Place("", task, root.get("$ref"), None, True)] if isinstance(root, dict) else []
    seen: set[tuple[int, int]] = set()
    while pending:
        place = pending.pop()
        config, number = place.config, place.number
        if type(number) is not int or not 0 <= number < len(objects) or (id(config), number) in seen:
            continue
        seen.add((id(config), number))
        written = objects[number]
        schema = schema_of(live_class(type(config)))
        if "upstream" in written:
            continue
        if written.get("type") != schema.id:
            # Of one identity, it is a default, or its class was renamed.
            was = written.get("type")
            if place.counts and place.default is not None and not is_of_deprecated(was, schema.id):
                here, there = ({"$ref": one} for one in (0, number))
                both = _shown(here, [config]), _shown(there, objects)
                changed.append(ChangedValue(place.path, *both, place.default))
            continue
        news = _News(schema, objects, place, excluded)
        changed += news.changed
        pending += news.inner
        if any(news.renew(generated).values()):
            renewed[str(number)] = {key: value for key, value in news.renew(generated).items() if value}
    return Comparison(tuple(changed), renewed)


def have_same_values(now: Stored, then: Stored) -> bool:
    """Whether two documents of one identity have the same counted values, at ignored defaults, too."""
    objects = now["objects"], then["objects"]
    pending = [(now["value"], then["value"])]
    seen: set[tuple[int, int]] = set()
    while pending:
        try:
            found = {(here, there) for _, here, there in _paired(*pending.pop(), "", *objects)}
        except _Differ:
            return False
        for here, there in found - seen:
            one, other = objects[0][here], objects[1][there]
            if "upstream" in other or one.get("meta"):
                continue
            if one.get("type") != other.get("type"):
                if not is_of_deprecated(one.get("type"), other.get("type")):
                    return False
                continue
            uncounted = {*one.get("uncounted", ()), *other.get("uncounted", ())}
            shared = one["values"].keys() & other["values"].keys() - uncounted
            pending += [(one["values"][name], other["values"][name]) for name in shared]
        seen |= found
    return True


class _Place(NamedTuple):
    """A config, and the number of the object that is stored in its place."""

    path: str
    config: Any
    number: Any
    default: ChangedDefault | None
    """The outermost parameter that has it by default: its content does not count for the identity."""
    counts: bool
    """False for a `Meta`, and for all inside one."""


class _News:
    """The new values of one config."""

    def __init__(self, schema: Schema, objects: Sequence[Any], at: _Place, excluded: frozenset[str]) -> None:
        self.changed: list[ChangedValue] = []
        self.inner: list[_Place] = []
        self._values: dict[str, Any] = {}
        self._schema = schema
        self._config = config = at.config
        self._written = objects[at.number]
        stored, at_default = self._written.get("values", {}), _at_default(config, schema)
        for name, parameter in schema.parameters.items():
            if name not in config.__dict__ or parameter.role is Role.CONSTANT or parameter.groups & excluded:
                continue
            value, path = config.__dict__[name], f"{at.path}.{name}" if at.path else name
            own = f"{schema.cls.__qualname__}.{name}"
            counts = at.counts and _counts(value, parameter.counted)
            held: list[Any] = []
            now = _form(value, held)
            default = at.default
            if default is None and held and name in at_default and name in stored:
                default = ChangedDefault(own, _shown(now, held), _shown(stored[name], objects))
            try:
                for place, here, there in _paired(now, stored.get(name, _Differ), path, held, objects):
                    inner = held[here]
                    self.inner.append(_Place(place, inner, there, default, counts and _counts(inner)))
            except _Differ:
                if not counts and not held:
                    self._values[name] = now
                elif counts and name in stored and (default is not None or not held):
                    both = _shown(now, held), _shown(stored[name], objects)
                    self.changed.append(ChangedValue(path, *both, default or ChangedDefault(own, *both)))
        for task, number in zip(
            at.config._state.init_tasks, self._written.get("init_tasks", []), strict=False
        ):
            path = f"{at.path}.<init_tasks>" if at.path else "<init_tasks>"
            self.inner.append(_Place(path, task, number, None, at.counts))

    def renew(self, generated: Mapping[tuple[int, str], str]) -> dict[str, Any]:
        known = {**self._written.get("values", {}), **self._written.get("generated", {})}
        paths = {
            name: generated[id(self._config), name]
            for name in self._schema.generators
            if name not in known and (id(self._config), name) in generated
        }
        return {"values": self._values, "generated": paths}


def _counts(value: Any, counted: bool = True) -> bool:
    is_meta = value._state.is_meta if is_config(value) else None
    return counted if is_meta is None else not is_meta


class _Differ(Exception):
    """Two values differ, whatever the configs in them are."""


def _paired(
    now: Any, then: Any, path: str, held: Sequence[Any], objects: Sequence[Any]
) -> Iterator[tuple[str, int, Any]]:
    """The configs at the same places of two values in their stored form, by their numbers in `held` and in
    `objects`; raises `_Differ` if the values are otherwise not the same. 1 is not True, and not 1.0.
    """
    inner: Iterable[tuple[str, Any, Any]] = ()
    if isinstance(now, dict) and isinstance(then, dict) and now.keys() == then.keys():
        if "$ref" in now:
            yield path, now["$ref"], then["$ref"]
        elif "$enum" in now:  # the file of its class may have moved
            inner = [(path, [*now["$enum"][:2], now["$enum"][3]], [*then["$enum"][:2], then["$enum"][3]])]
        elif "$dict" in now:
            inner = [(path, _by_key(now["$dict"]), _by_key(then["$dict"]))]
        elif "$set" in now:
            inner = [(path, _in_order(now["$set"], held), _in_order(then["$set"], objects))]
        else:
            inner = [(path if key[:1] == "$" else f"{path}[{key!r}]", now[key], then[key]) for key in now]
    elif isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        inner = [(f"{path}[{at}]", *both) for at, both in enumerate(zip(now, then, strict=True))]
    elif type(now) is not type(then) or now != then:
        raise _Differ
    for place, here, there in inner:
        yield from _paired(here, there, place, held, objects)


def _by_key(pairs: list[Any]) -> dict[str, Any]:
    return {json.dumps(key): value for key, value in pairs}


def _in_order(items: list[Any], objects: Sequence[Any]) -> list[Any]:
    """The items of a set, in an order in which the numbers of configs do not matter."""

    def form(item: Any) -> str:
        if not isinstance(item, dict) or "$ref" not in item:
            return json.dumps(item, sort_keys=True)
        return json.dumps(
            _counted(objects[item["$ref"]], lambda value: to_json(value, lambda _: 0)), sort_keys=True
        )

    return sorted(items, key=form)


def _form(value: Any, held: list[Any]) -> Any:
    """The stored form of a value; the configs in it are added to `held`."""

    def number(config: Any) -> int:
        held.append(config)
        return len(held) - 1

    return to_json(value, number)


def _shown(stored: Any, objects: Sequence[Any], depth: int = 0) -> str:
    """A value in its stored form, as a person writes it in a script; cut."""

    def listed(items: Iterable[Any]) -> str:
        return ", ".join(_shown(item, objects, depth) for item in items)

    if isinstance(stored, list):
        text = f"[{listed(stored)}]"
    elif not isinstance(stored, dict):
        text = brief(stored, _LONGEST)
    elif "$ref" in stored:
        text = _config_shown(objects[stored["$ref"]], objects, depth)
    elif "$enum" in stored:
        text = f"{stored['$enum'][1]}.{stored['$enum'][3]}"
    elif "$tuple" in stored:
        items = stored["$tuple"]
        text = f"({listed(items)}{',' * (len(items) == 1)})"
    elif "$set" in stored:
        text = f"{{{listed(stored['$set'])}}}" if stored["$set"] else "set()"
    elif "$float" in stored:
        text = f"float({stored['$float']!r})"
    elif "$int" in stored or "$str" in stored or "$path" in stored:
        text = brief(from_json(next(iter(stored.values())) if "$path" in stored else stored, int), _LONGEST)
    else:
        pairs = stored["$dict"] if "$dict" in stored else ([brief(key), stored[key]] for key in stored)
        names = ((key if "$dict" not in stored else _shown(key, objects, depth), one) for key, one in pairs)
        text = f"{{{', '.join(f'{key}: {_shown(one, objects, depth)}' for key, one in names)}}}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}{_CUT}"


_LONGEST, _DEEPEST, _CUT = 200, 4, "…"


def _config_shown(config: Any, objects: Sequence[Any], depth: int) -> str:
    """A config, or its stored form, with the values that count."""
    held: list[Any] = []
    name, values = _counted(config, lambda value: _form(value, held))
    objects = held if is_config(config) else objects
    given = "…" if depth == _DEEPEST and values else ""
    given = given or ", ".join(f"{one}={_shown(value, objects, depth + 1)}" for one, value in values.items())
    return f"{name.rpartition('.')[2]}.C({given})"


def _counted(config: Any, form: Callable[[Any], Any]) -> tuple[str, dict[str, Any]]:
    """The id of the class of a config, or of its stored form, and the forms of the values that count."""
    if is_config(config):
        schema, values = schema_of(live_class(type(config))), config.__dict__
        return schema.id, {name: form(values[name]) for name in _counted_names(config, schema)}
    values, uncounted = config.get("values", {}), config.get("uncounted", ())
    return str(config.get("type")), {one: values[one] for one in values if one not in uncounted}
