"""Renaming without losing results: deprecated classes and parameters.
A deprecated config has the identity of what it stands for now.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar, overload

from tenuto.errors import DeclarationError
from tenuto.tasks.base import ConfigBase, caller, caller_depth, class_name, state_of
from tenuto.tasks.config import Config, copyconfig
from tenuto.tasks.live import live_class
from tenuto.tasks.schema import DeprecatedParameter, Replacement, schema_of

T = TypeVar("T")


@overload
def deprecate(target: type[T]) -> type[T]: ...
@overload
def deprecate(target: Callable[[Any, Any], None]) -> Any: ...
@overload
def deprecate(*, replace: bool) -> Callable[[type[T]], type[T]]: ...
def deprecate(target: Any = None, *, replace: bool = False) -> Any:
    """Marks a class, or the method that translates an old parameter, as superseded.

    A class either derives from its successor and adds nothing, or defines ``__convert__``,
    which returns the config to use instead. With ``replace=True``, ``Old.C(...)`` makes that
    config right away.
    """
    if target is None:
        return lambda cls: _deprecate_class(cls, replace)
    if isinstance(target, type):
        return _deprecate_class(target, replace)
    return _deprecate_parameter(target)


def _deprecate_class(cls: Any, replace: bool) -> Any:
    if not isinstance(cls, type) or not issubclass(cls, Config):
        raise DeclarationError(f"@deprecate marks a Config class or a method, not {cls!r}")
    converts = hasattr(cls, "__convert__")
    successor = next((base for base in cls.__mro__[1:] if _is_successor(base)), None)
    if not converts and successor is None:
        raise DeclarationError(
            f"@deprecate: {cls.__qualname__} must derive from the class that replaces it, "
            f"or define __convert__"
        )
    convert: Callable[[Any], Any] | None = None
    if converts:
        convert = _checked_convert
    elif replace:
        convert = _as_successor
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
    if state.origin is None and not state.init_tasks:
        return converted
    copied = copyconfig(converted)  # __convert__ may return a config that others use
    state_of(copied).origin = state.origin
    state_of(copied).init_tasks = state.init_tasks
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
