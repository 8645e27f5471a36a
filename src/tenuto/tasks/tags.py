"""Tags: names for what varies, carried along to every config that uses a tagged one.
Tags never count in an identity.
"""

from __future__ import annotations

from typing import Any, TypeVar

from tenuto.errors import InvalidValue
from tenuto.light import pattern
from tenuto.tasks.base import ConfigBase, caller, class_name, is_config, shown, state_of
from tenuto.tasks.graph import edges, postorder

T = TypeVar("T")
C = TypeVar("C", bound=ConfigBase)

_UNSAFE = pattern(r"[^A-Za-z0-9_.+=-]+")


class Tagged:
    """A value on its way into a parameter, which will be tagged by the parameter's name."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def tag(value: T) -> T:
    """Marks a value so that the parameter it is given to becomes a tag: ``lr=tag(0.1)``."""
    return Tagged(value)  # type: ignore[return-value]


def add_tag(config: ConfigBase, name: str, value: Any) -> None:
    """Tags a config; a later tag of the same name replaces the earlier one."""
    state = state_of(config)
    if not isinstance(value, str | int | float | bool | None):
        raise InvalidValue(
            f"the tag {name!r} of {class_name(config)} expects str, int, float, bool or None, "
            f"but got {shown(value)}, at {caller()}"
        )
    state.own_tags = {**(state.own_tags or {}), name: value}
    if state.tags is not None:
        state.tags = {**state.tags, name: value}


def tags(config: ConfigBase) -> dict[str, Any]:
    """All tags of a config: its own, and those of the configs it is made of.

    Where two have the same name the nearest wins, then the parameter declared last.
    """
    state_of(config)
    found: dict[int, dict[str, Any]] = {}
    for node in postorder(config, lambda node: node._state.tags is not None):
        found[id(node)] = merged(node, found)
    known = config._state.tags
    return dict(found[id(config)] if known is None else known)


def merged(config: ConfigBase, below: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The tags of one config from those of its children; shared with a child's when equal."""
    result: dict[str, Any] = {}
    for _, child in edges(config):
        if child._state.tags_stop:
            continue
        inner = below[id(child)] if child._state.tags is None else child._state.tags
        if inner and result is not inner:
            result = {**result, **inner} if result else inner
    own = config._state.own_tags
    return {**result, **own} if own else result


def tagspath(config: ConfigBase) -> str:
    """The tags of a config as a name for files: ``epochs=10_lr=0.1``, sorted, safe in a path."""
    parts = (f"{name}={value}" for name, value in sorted(tags(config).items()))
    return "_".join(_UNSAFE.sub("-", part) for part in parts)


def stop_tags(config: C) -> C:
    """Keeps the tags of a config, and of what is inside it, from those that use it.

    ``stop_tags(tag(config))`` stops them, and is still a tag of the parameter that it is given to.
    """
    given: Any = config
    marked = given.value if type(given) is Tagged else given
    if not is_config(marked):
        raise InvalidValue(f"stop_tags() expects a config, but got {shown(marked)}, at {caller()}")
    state_of(marked).tags_stop = True
    return config
