"""Renaming without losing results: deprecated classes and parameters.
A deprecated config has the identity of its replacement.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, TypeVar, overload

from tenuto.errors import DeclarationError, MissingValue
from tenuto.tasks.arguments import flag, refused
from tenuto.tasks.base import ConfigBase, caller, caller_depth, class_name, state_of
from tenuto.tasks.config import Config, Replacing, copyconfig
from tenuto.tasks.identity import former_digest, former_identity
from tenuto.tasks.live import live_class
from tenuto.tasks.schema import DeprecatedParameter, Replacement, Schema, deprecated, schema_of

T = TypeVar("T")

_predecessors: dict[type, list[type]] = {}
"""By class, the deprecated ones that have its parameters and that it replaces, the last one first."""


@overload
def deprecate(target: type[T]) -> Any: ...
@overload
def deprecate(target: Callable[[Any, Any], None]) -> Any: ...
@overload
def deprecate(*, replace: bool) -> Callable[[type[T]], type[T]]: ...
def deprecate(target: Any = None, *, replace: bool = False) -> Any:
    """Marks a class, or the method that translates an old parameter, as superseded.

    A class derives from its successor and adds nothing, or names it, as in ``@deprecate(New)``, or defines
    ``__convert__``, which returns the config to use instead. With ``replace=True``, ``Old.C(...)`` makes that
    config right away.
    """
    flag(replace, "deprecate(replace=)")
    if target is None:
        return lambda cls: _deprecate_class(cls, replace)
    if not callable(target) or (isinstance(target, type) and not issubclass(target, ConfigBase)):
        raise refused("deprecate(target)", "a Config class, or a method that translates a parameter", target)
    if isinstance(target, type):
        if _is_bound(target, sys._getframe(1)):
            return lambda cls: _deprecate_class(cls, replace, target)
        return _deprecate_class(target, replace)
    return _deprecate_parameter(target)


def _is_bound(cls: type, frame: FrameType) -> bool:
    """True for a class that has a name already: a class that is being decorated gets its name afterwards."""
    if frame.f_locals.get(cls.__name__) is cls or frame.f_globals.get(cls.__name__) is cls:
        return True
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls


def successor_of(config: Any) -> Any:
    """The config that one of a deprecated class stands for; itself, if its class is not deprecated."""
    while (replacement := schema_of(type(config)).replacement) is not None:
        config = (replacement.convert or _as_successor)(config)
    return config


def former_keys(task: Any) -> list[tuple[str, str]]:
    """The task ids and identities that a task had before classes in it were renamed, the last one first."""
    keys: list[tuple[str, str]] = list(task._state.former)
    names = max(map(len, _predecessors.values()), default=0)
    for position in range(max(names, int(Replacing.is_used))):
        try:
            digest = former_digest(task, partial(_former, position=position))
        except MissingValue:  # a class that was named has parameters that this one has not
            continue
        if digest is not None:
            old = task._state.replaces
            former = _former(task, position) if old is None else schema_of(type(old))
            schema = former or schema_of(type(task))
            keys.append((schema.id, digest.hex()))
    return list(dict.fromkeys(keys))


def _former(config: ConfigBase, position: int) -> Schema | None:
    """What a config was counted by before its class was renamed; None if it was not."""
    schema = schema_of(type(config))
    if schema.replacement is not None:
        return schema
    known = _predecessors.get(live_class(type(config)))
    return schema_of(known[min(position, len(known) - 1)]) if known else None


def replacement_of(old: Any) -> Any:
    """The successor of a deprecated task, ready to be submitted in its place."""
    new = copyconfig(successor_of(old))
    state, before = state_of(new), state_of(old)
    for name in ("own_tags", "required", "watchers", "completion_callbacks"):
        if name in before.__dict__:
            setattr(state, name, before.__dict__[name])
    state.former = ((schema_of(type(old)).id, former_identity(old) or ""),)
    return new


def _deprecate_class(cls: Any, replace: bool, target: Any = None) -> Any:
    if not isinstance(cls, type) or not issubclass(cls, Config):
        raise DeclarationError(f"@deprecate marks a Config class or a method, not {cls!r}")
    converts = hasattr(cls, "__convert__")
    successor = target or next((base for base in cls.__mro__[1:] if _is_successor(base)), None)
    if not converts and successor is None:
        raise DeclarationError(
            f"@deprecate: {cls.__qualname__} must derive from the class that replaces it, "
            f"name it, as in @deprecate(New), or define __convert__"
        )
    if target is not None and not issubclass(target, Config):
        raise DeclarationError(f"@deprecate names a Config class, not {target.__qualname__}")
    convert: Callable[[Any], Any] | None = None
    if converts:
        convert = _checked_convert
    elif replace or (target is not None and not issubclass(cls, target)):
        convert = _as_successor
    if not converts and successor is not None:
        _predecessors.setdefault(successor, []).insert(0, cls)
    deprecated.append(cls)
    type.__setattr__(cls, "__deprecated__", Replacement(successor, convert, replace))
    return cls


def _is_successor(base: type) -> bool:
    return (
        issubclass(base, Config)
        and "__deprecated__" not in base.__dict__
        and not base.__module__.startswith("tenuto.")
    )


def _checked_convert(config: Any) -> Any:
    converted = config.__convert__()
    if not isinstance(converted, ConfigBase) or not type(converted).__is_config__:
        raise DeclarationError(f"{class_name(config)}.__convert__ must return a config, not {converted!r}")
    return _coming_from_the_same(config, converted)


def _coming_from_the_same(config: Any, converted: Any) -> Any:
    """What counts besides the parameters: the task a config came from, and its init tasks."""
    state = state_of(config)
    if state.origin is None and not state.init_tasks and state.seed is None:
        return converted
    copied = copyconfig(converted)  # __convert__ may return a config that others use
    state_of(copied).origin = state.origin
    state_of(copied).init_tasks = state.init_tasks
    state_of(copied).seed = state.seed
    return copied


def _as_successor(config: Any) -> Any:
    successor: Any = schema_of(live_class(type(config))).replacement.target  # type: ignore[union-attr]
    known = schema_of(successor).parameters
    values = {name: value for name, value in config.__dict__.items() if name in known}
    return _coming_from_the_same(config, successor.C(**values))


def _deprecate_parameter(method: Callable[[Any, Any], None]) -> DeprecatedParameter:
    def translate(config: Any, value: Any) -> None:
        warnings.warn(
            f"{class_name(config)}.{method.__name__} is deprecated, at {caller()}: "
            f"{(method.__doc__ or 'see its class').strip()}",
            DeprecationWarning,
            stacklevel=caller_depth(),
        )
        method(config, value)

    return DeprecatedParameter(translate)
