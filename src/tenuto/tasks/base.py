"""What every config object carries, below all other modules of this room.
It knows nothing of parameters, types or identities.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenuto.tasks.ports import SubmittedJob

_PACKAGE = __name__.partition(".")[0]


class ConfigState:
    """What a config knows about itself besides its values.

    The class attributes are the state of a fresh config: most configs never
    write one of them, so a fresh state costs a few dozen bytes.
    """

    sealed: bool = False
    digest: bytes | None = None
    digest_epoch: int = -1
    is_meta: bool | None = None
    """Set by ``setmeta``: overrides what the parameter says about counting."""
    own_tags: dict[str, Any] | None = None
    tags: dict[str, Any] | None = None
    """Own tags and those from below, merged; known once sealed."""
    tags_stop: bool = False
    origin: ConfigBase | None = None
    """The task whose output this config is."""
    is_there: bool = False
    """Whether it was made while its task ran, so that a task which uses it need not wait for its task."""
    init_tasks: tuple[ConfigBase, ...] = ()
    seed: int | None = None
    """The seed of its job, where its class declares no ``__seed__``; see `seeds`."""
    required: tuple[Any, ...] = ()
    """Dependencies added by hand: tasks, jobs or tokens."""
    upstream: tuple[ConfigBase, ...] | None = None
    """The submitted tasks that this config needs; known once sealed."""
    job: SubmittedJob | None = None
    defaults: bytes | None = None
    """The digest of the values at ignored defaults, here and below; known once `stored_values` was asked."""
    renewed: dict[str, dict[str, Any]] | None = None
    """By file, what the script says otherwise than the stored tasks here and above; see `serialization`."""
    generated_in: tuple[ConfigBase, str] | None = None
    """The submitted task, and the folder in its job directory, for generated paths."""
    also_generated_in: ConfigBase | None = None
    """Another task that has this config as a part: its generated paths lie in the jobs of both."""
    is_given_out: bool = False
    """Whether it is a part of its origin, in whose job its generated paths lie."""
    successor: ConfigBase | None = None
    """The task that was submitted in place of this one, whose class is deprecated."""
    former: tuple[tuple[str, str], ...] = ()
    """Task ids and identities of the deprecated tasks in whose place this one was submitted."""
    replaces: ConfigBase | None = None
    """The config of a deprecated class for which this one was made at once."""
    watchers: tuple[tuple[Any, Callable[..., Any]], ...] = ()
    completion_callbacks: tuple[Callable[..., Any], ...] = ()


class ConfigBase:
    """The common base of configurations and live objects.

    ``_state`` is a `ConfigState` for a configuration. For a live object it is
    absent, or knows the job of the task: it reads its result, and in a job it is also a function that fills
    the object in on first use.
    """

    __slots__ = ("_state",)

    _state: Any
    __is_config__ = False
    __is_task__ = False


def is_config(value: object) -> bool:
    """True for what ``X.C(...)`` makes; False for live objects and anything else."""
    return isinstance(value, ConfigBase) and type(value).__is_config__


def state_of(config: ConfigBase) -> ConfigState:
    """The state of a configuration; a live object has none and is refused."""
    if not type(config).__is_config__:
        raise TypeError(
            f"{class_name(config)} is a live object: this is only possible on a configuration, "
            f"made by {class_name(config)}.C(...)"
        )
    state: ConfigState = config._state
    return state


def class_name(config: ConfigBase) -> str:
    """The name a person wrote after ``class``."""
    return type(config).__name__


def caller() -> str:
    """``file:line`` of the nearest frame outside Tenuto."""
    frame = sys._getframe(caller_depth() - 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def caller_depth() -> int:
    """How many calls above the caller the nearest frame outside Tenuto is: a ``stacklevel``."""
    depth = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
        depth += 1
    return depth


def shown(value: object, limit: int = 80) -> str:
    """A value for a message: its representation, cut, with its type."""
    return f"{brief(value, limit)} ({type(value).__name__})"


def brief(value: object, limit: int = 80) -> str:
    """The representation of a value, cut."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  a message must come out, whatever the object does
        text = hex(value) if isinstance(value, int) else "<not representable>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def key_text(key: object) -> str:
    """A key of a dict as part of a path, whole, so that two keys never share one.

    Python refuses to print an integer of more than 4,300 digits, except in hexadecimal.
    """
    if isinstance(key, tuple):
        return f"({', '.join(map(key_text, key))},)"
    return hex(key) if type(key) is int and abs(key) >> 64 else repr(key)
