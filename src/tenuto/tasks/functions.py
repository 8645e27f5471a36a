"""Plain functions as tasks: `@task def train(lr: float) -> float` is a Task class that can still be called.
It makes the class; identity, checks and submission are every task's.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from tenuto.errors import DeclarationError
from tenuto.tasks.arguments import refused, text
from tenuto.tasks.base import is_config
from tenuto.tasks.config import ConfigMeta
from tenuto.tasks.hints import UNSET, Field
from tenuto.tasks.schema import FUNCTION
from tenuto.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Awaited = TypeVar("Awaited")
_VARIABLE, _KEYWORDS, _GENERATOR, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x200
"""Flags of a function's code, as `inspect` names them."""

if TYPE_CHECKING:

    class FunctionTask(Task, Generic[R]):
        """The config of a function."""

        def execute(self) -> R:
            """What the job does: it calls the function."""
            ...

    class TaskFunction(Generic[P, R_co]):
        """A function that is a task: called, it runs here and now; ``.C(...)`` makes its config."""

        __name__: str
        __wrapped__: Callable[P, R_co]

        def __call__(self, *arguments: P.args, **named: P.kwargs) -> R_co:
            """Runs the function here and now."""
            ...

        @overload
        def C(
            self: TaskFunction[P, Coroutine[Any, Any, Awaited]], *arguments: P.args, **named: P.kwargs
        ) -> FunctionTask[Awaited]: ...
        @overload
        def C(self, *arguments: P.args, **named: P.kwargs) -> FunctionTask[R_co]: ...
        def C(self, *arguments: P.args, **named: P.kwargs) -> FunctionTask[Any]:
            """Makes a config, whose parameters are given by name."""
            ...


class _FunctionMeta(ConfigMeta):
    """Lets a class that was made of a function be called as the function."""

    if not TYPE_CHECKING:

        def __call__(cls, *arguments: Any, **given: Any) -> Any:
            if cls.__is_config__:
                return super().__call__(*arguments, **given)
            return cls.__wrapped__(*arguments, **_completed(cls, arguments, given))


def _completed(cls: Any, arguments: Sequence[Any], given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a plain call by name, with what the defaults stand for that are no plain values."""
    made = {}
    for name, default in cls.__stated__.items():
        if name in given or name in cls.__positional__[: len(arguments)]:
            continue
        if isinstance(default, Field):
            default = default.default if default.default_factory is None else default.default_factory()
        if default is UNSET:
            raise TypeError(f"{cls.__name__}() missing the argument {name!r}")
        made[name] = default.instance() if is_config(default) else default
    return {**given, **made}


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...
@overload
def task(*, id: str | None = None) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...
def task(function: Any = None, /, *, id: str | None = None) -> Any:
    """Makes a task of a function: ``train.C(lr=0.1)`` is its config, and ``train(0.1)`` calls it plainly.

    Its parameters are the task's, each with an annotation; a default is ignored in the identity, as in
    ``lr: Param[float] = 0.1``. Its return value is the job's result. `id`: the task's id in place of
    ``module.function``. `DeclarationError` for a lambda, a function inside another, and a parameter that
    has no annotation or no name.
    """
    if id is not None:
        text(id, "task(id=)")
    if function is None:
        return lambda decorated: _made(decorated, id)
    return _made(function, id)


def _made(function: Any, id: str | None) -> Any:
    if not isinstance(function, types.FunctionType):
        raise refused("@task", "a function: `@task def name(...)`, or `@task(id=...)`", function)
    name = function.__qualname__
    if name == "<lambda>" or "." in name:
        what = "a lambda" if "<lambda>" in name else "inside another function or class"
        raise DeclarationError(f"@task: {name} is {what}, so a job could not find it: define it in a module")
    code, notes = function.__code__, function.__annotations__
    if code.co_flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise DeclarationError(
            f"@task: {name} has a `yield`, so calling it would run none of it: return the result"
        )
    if code.co_posonlyargcount or code.co_flags & (_VARIABLE | _KEYWORDS):
        raise DeclarationError(f"@task: {name} takes *, ** or / arguments, which no config can give by name")
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for one in parameters:
        if one not in notes:
            raise DeclarationError(f"@task: {name}({one}) has no annotation: say its type, as in x: float")
    positional = code.co_varnames[: code.co_argcount]
    given = function.__defaults__ or ()
    defaults = dict(zip(positional[len(positional) - len(given) :], given, strict=True))
    defaults |= function.__kwdefaults__ or {}
    namespace: dict[str, Any] = {
        "__module__": function.__module__,
        "__qualname__": name,
        "__doc__": function.__doc__,
        "__annotations__": {one: notes[one] for one in parameters},
        "__wrapped__": staticmethod(function),
        "__positional__": positional,
        "__stated__": {
            one: made for one, made in defaults.items() if isinstance(made, Field) or is_config(made)
        },
        FUNCTION: True,
        **defaults,
    }

    def execute(self: Any) -> Any:
        return function(**{parameter: getattr(self, parameter) for parameter in parameters})

    namespace["execute"] = execute
    if id is not None:
        namespace["__xpmid__"] = id
    return _FunctionMeta(function.__name__, (Task,), namespace)
