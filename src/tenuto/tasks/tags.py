"""Tags: names for what varies, carried along to every config that uses a tagged one.
Tags never count in an identity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, TypeVar

from tenuto.errors import InvalidValue
from tenuto.light import NamedTuple, pattern
from tenuto.tasks.arguments import refused
from tenuto.tasks.base import ConfigBase, caller, class_name, is_config, shown, state_of
from tenuto.tasks.graph import edges, postorder

T = TypeVar("T")
C = TypeVar("C", bound=ConfigBase)

_UNSAFE = pattern(r"[^A-Za-z0-9_.+=-]+")
_ORIGIN = "<origin>"


class Tagged:
    """A value on its way into a parameter, which will be tagged by the parameter's name."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def tag(value: T) -> T:
    """Marks a value so that the parameter it is given to becomes a tag: ``lr=tag(0.1)``."""
    return Tagged(value)  # type: ignore[return-value]


def add_tag(config: ConfigBase, name: Any, value: Any) -> None:
    """Tags a config; a later tag of the same name replaces the earlier one."""
    state = state_of(config)
    if not isinstance(name, str):
        raise refused(f"the name of a tag of {class_name(config)}", "a text", name)
    kept = plain(value)
    if not isinstance(kept, str | int | float | bool | None):
        raise InvalidValue(
            f"the value of the tag {name!r} of {class_name(config)} expects str, int, float, bool or None, "
            f"but got {shown(value)}, at {caller()}"
        )
    state.own_tags = {**(state.own_tags or {}), name: kept}
    if state.tags is not None:
        state.tags = {**state.tags, name: kept}


def plain(value: Any) -> Any:
    """The value of a tag as it comes back from a file: members of enums and NumPy's scalars are plain."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not getattr(value, "ndim", 1):
        return value.item()
    for kind in (str, float) if isinstance(value, str | float) else (int,):
        if isinstance(value, kind) and type(value) not in (kind, bool):
            return kind.__str__(value) if kind is str else kind(value)
    return value


def tags(config: ConfigBase) -> dict[str, Any]:
    """All tags of a config: its own, and tags of the configs in it.

    Where two of these have one name and different values, each is named by its path, as in ``data.noise`` and
    ``test.noise``; a config's own tag keeps its name. Of the configs in a list, only the tags that all
    of them have alike.
    """
    if not is_config(config):
        raise refused("tags()", "a config", config)
    found: dict[int, dict[str, Any]] = {}
    for node in postorder(config, lambda node: node._state.tags is not None):
        found[id(node)] = merged(node, found)
    known = config._state.tags
    return dict(found[id(config)] if known is None else known)


def merged(config: ConfigBase, below: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """The tags of one config from its children's; shared with a child's when equal."""
    own = config._state.own_tags or {}
    parts = _parts(config, below)
    if not parts:
        return own
    result = parts[0][2]
    if not own and all(inner is result for _, _, inner in parts):
        return result
    result = {}
    differing: dict[str, None] = {}
    for inner in (*(inner for _, _, inner in parts), own):
        for name, value in inner.items():
            if name in result and not _agree(result, name, value):
                differing[name] = None
            result[name] = value
    for name in differing:
        result.pop(name, None)
        for label, child, inner in parts:
            if name in inner and not _agree(own, name, inner[name]):
                result[_path(label, child, name, below)] = inner[name]
    return {**result, **own}


def _parts(
    config: ConfigBase, below: Mapping[int, dict[str, Any]]
) -> list[tuple[str, ConfigBase, dict[str, Any]]]:
    """Where a config has its tags from: parameter, config, tags; of a list, those that all have alike."""
    parts: list[tuple[str, ConfigBase, dict[str, Any]]] = []
    for label, child in edges(config):
        if child._state.tags_stop:
            continue
        inner = _known(child, below)
        if label[-1] == "]" and label[0] != "<":  # one of several alternatives
            label = label.partition("[")[0]
            if parts and parts[-1][0] == label:
                agreed = parts[-1][2]
                if agreed is not inner:
                    agreed = {name: value for name, value in agreed.items() if _agree(inner, name, value)}
                parts[-1] = label, child, agreed
            else:
                parts.append((label, child, inner))
        elif inner:
            parts.append((label, child, inner))
    return [part for part in parts if part[2]]


def _known(config: ConfigBase, below: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    known: dict[str, Any] | None = config._state.tags
    return below.get(id(config), {}) if known is None else known


def _agree(tags: Mapping[str, Any], name: str, value: Any) -> bool:
    """True if a tag has this value, and not only an equal one: True is not 1."""
    return name in tags and (type(tags[name]), repr(tags[name])) == (type(value), repr(value))


def _path(label: str, config: ConfigBase, name: str, below: Mapping[int, dict[str, Any]]) -> str:
    """The name of an inherited tag with the way to the config that has it: ``fitted.data.noise``."""
    steps = [label]
    while name not in (config._state.own_tags or {}):
        for label, child in edges(config):
            if not child._state.tags_stop and label[-1] != "]" and name in _known(child, below):
                steps.append(label)
                config = child
                break
        else:
            break
    return ".".join([*(_step(label) for label in steps if label != _ORIGIN or len(steps) == 1), name])


def _step(label: str) -> str:
    return label.replace("<", "").replace(">", "")


# -- the jobs of a task ------------------------------------------------------------------------------


class _Route(NamedTuple):
    """Where a job has a tag that is named by its path."""

    labels: tuple[str, ...]
    name: str
    """Of the tag, at the end of the labels."""
    instead: frozenset[str]
    """The shorter names that no tag has beside it."""


class CrossedTags:
    """The tags that are named by their paths in some jobs of a task, so that all jobs of it have them so.

    Where `data.noise` and `test.noise` are crossed, jobs with one value for both have `noise` by themselves,
    and a table of the two would lack its diagonal.
    """

    def __init__(self) -> None:
        self._routes: dict[str, dict[str, _Route]] = {}

    def note(self, task_id: str, config: ConfigBase, tags: Mapping[str, Any]) -> bool:
        """Notes the names by path among the tags of a job; True if one is new."""
        known = self._routes.get(task_id, {})
        found = {
            name: route
            for name in tags
            if "." in name and name not in known and (route := _route(config, name, tags))
        }
        if found:
            self._routes[task_id] = known | found
        return bool(found)

    def completed(self, task_id: str, config: ConfigBase, tags: Mapping[str, Any]) -> Mapping[str, Any]:
        """The tags of a job, by path where another job of its task has them so."""
        added: dict[str, Any] = {}
        dropped: set[str] = set()
        routes = self._routes.get(task_id, {})
        for name, route in routes.items():
            inner = {} if name in tags else _tags_at(config, route.labels)
            if route.name in inner:
                added[name] = inner[route.name]
                dropped |= route.instead - routes.keys()
        if not added:
            return tags
        own = config._state.own_tags or {}
        dropped = {name for name in dropped if name not in own and not isinstance(tags.get(name), list)}
        return {name: value for name, value in tags.items() if name not in dropped} | added


def _route(root: ConfigBase, path: str, tags: Mapping[str, Any]) -> _Route | None:
    """The labels that lead from a sealed config to the tag of this path; None if it is a name of its own."""
    if path in (root._state.own_tags or {}):
        return None
    pending, seen = deque[tuple[ConfigBase, str, tuple[str, ...]]]([(root, path, ())]), set[tuple[int, str]]()
    last = path.rpartition(".")[2]
    while pending:
        config, rest, labels = pending.popleft()
        for label, child, inner in _parts(config, {}):
            left, way = rest.removeprefix(f"{_step(label)}."), (*labels, label)
            if left != rest and left in inner:
                shorter = (path[place + 1 :] for place, sign in enumerate(path) if sign == ".")
                return _Route(way, left, frozenset(name for name in shorter if name not in tags))
            for one in (left, rest):  # the label may be one of the path, or one above it
                if (id(child), one) not in seen and any(name.endswith(last) for name in inner):
                    seen.add((id(child), one))
                    pending.append((child, one, way))
    return None


def _tags_at(config: ConfigBase, labels: tuple[str, ...]) -> Mapping[str, Any]:
    """The tags of the config to which labels lead; none if there is no such way."""
    inner: Mapping[str, Any] = {}
    for label in labels:
        parts = [(child, tags) for name, child, tags in _parts(config, {}) if name == label]
        if len(parts) != 1:
            return {}
        ((config, inner),) = parts
    return inner


# -- a job that was asked for several times ----------------------------------------------------------


def tag_sets(tags: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tags under which a job was asked for, one dict each; one for most jobs.

    A tag with several values is a list, and all lists of a job have the same length.
    """
    count = max((len(value) for value in tags.values() if isinstance(value, list)), default=1)
    return [
        {name: value[place] if isinstance(value, list) else value for name, value in tags.items()}
        for place in range(count)
    ]


def joined(known: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tags of a job that was asked for under some, and is now under others: it has both."""
    if known == given:
        return known
    asked = [*tag_sets(known), dict(given)]
    found: dict[str, dict[tuple[Any, str], Any]] = {}
    for one in asked:
        for name, value in one.items():
            found.setdefault(name, {})[type(value), repr(value)] = value
    several = [name for name, values in found.items() if len(values) > 1]
    rows = [tuple(one.get(name) for name in several) for one in asked if any(name in one for name in several)]
    columns = dict(zip(several, map(list, zip(*dict.fromkeys(rows), strict=True)), strict=True))
    return {name: columns[name] if name in columns else next(iter(found[name].values())) for name in found}


def tag_text(value: Any) -> str:
    """The value of a tag for a person: several values as ``A,B``."""
    return ",".join(dict.fromkeys(map(str, value))) if isinstance(value, list) else str(value)


def tag_words(tags: Mapping[str, Any]) -> str:
    """Tags in one line: ``epochs=10 lr=0.1``."""
    return " ".join(f"{name}={tag_text(value)}" for name, value in tags.items())


def tagspath(config: ConfigBase) -> str:
    """The tags of a config as a name for files: ``epochs=10_lr=0.1``, sorted, safe in a path."""
    parts = (f"{name}={value}" for name, value in sorted(tags(config).items()))
    return "_".join(_UNSAFE.sub("-", part) for part in parts)


def stop_tags(config: C) -> C:
    """Keeps the tags of a config, and of its parts, from the configs that use it.

    ``stop_tags(tag(config))`` stops them, and is still a tag of the parameter that it is given to.
    """
    given: Any = config
    marked = given.value if type(given) is Tagged else given
    if not is_config(marked):
        raise refused("stop_tags()", "a config", marked)
    state_of(marked).tags_stop = True
    return config
