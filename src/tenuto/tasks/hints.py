"""What a person writes in the body of a Config class: roles, fields and hints.
Only declarations; `schema` reads them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, overload

from tenuto.errors import DeclarationError
from tenuto.light import pathlib
from tenuto.tasks.arguments import guarded

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import TypeVar as DefaultTypeVar

    TPath = DefaultTypeVar("TPath", bound=Path | None, default=Path)
else:
    TPath = TypeVar("TPath")  # in `DataPath` alone it stands for `Path | None`; see `schema`

T = TypeVar("T")


@enum.unique
class Role(enum.Enum):
    """What a parameter means for the identity of its config."""

    PARAM = "counted, unless equal to an ignored default"
    META = "not counted"
    CONSTANT = "counted, fixed by the class"
    DATA = "a path not counted, whose file travels with a saved config"


Param = Annotated[T, Role.PARAM]
Meta = Annotated[T, Role.META]
Option = Annotated[T, Role.META]
Constant = Annotated[T, Role.CONSTANT]
DataPath = Annotated[TPath, Role.DATA]


class Unset(enum.Enum):
    """The value of a parameter that was not given, where None is a legal value."""

    UNSET = "unset"


UNSET = Unset.UNSET


@guarded
class help:
    """A parameter's help as an annotation: ``Annotated[Param[int], help("how many")]``."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


@guarded
class Choices:
    """The only values a parameter may take: ``Annotated[Param[str], Choices(["a", "b"])]``."""

    __slots__ = ("values",)

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = tuple(values)
        if not self.values:
            raise DeclarationError("Choices needs at least one value")


@guarded
class param_group:
    """The name of a group of parameters that a `partial` can leave out."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"param_group({self.name!r})"


@guarded
class partial:
    """A directory shared by the configs that differ only in the excluded groups (`exclude_groups`).

    Written in the class body; the name of the attribute is the name of the partial. `DeclarationError`
    without a group.
    """

    __slots__ = ("excluded_groups", "name")
    is_exclusive = True
    """Only one job at a time has the directory."""

    def __init__(self, *, exclude_groups: Iterable[param_group]) -> None:
        self.excluded_groups = frozenset(group.name for group in exclude_groups)
        self.name = ""
        if not self.excluded_groups:
            raise DeclarationError("partial() needs at least one group in exclude_groups")

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


class PreparedHint(partial):
    """The directory of a `Prepare` config, shared by all that use it; written before any job reads it."""

    __slots__ = ()
    is_exclusive = False

    def __init__(self) -> None:
        self.excluded_groups = frozenset()
        self.name = "prepared"


@enum.unique
class StandardStream(enum.Enum):
    """A log of the job, as the path of a `PathGenerator`."""

    STDOUT = "stdout"
    STDERR = "stderr"


STDOUT = StandardStream.STDOUT
STDERR = StandardStream.STDERR


@guarded
class PathGenerator:
    """A path inside the job's directory (or inside a `partial`'s), known when the job is.

    Empty, it is the directory itself. A function makes the path from the config, or from nothing;
    `STDOUT` and `STDERR` are the logs of the job.
    """

    __slots__ = ("_function", "partial", "path", "stream")

    def __init__(
        self,
        path: str | Path | Callable[..., str | Path] | StandardStream = "",
        *,
        partial: partial | None = None,
    ) -> None:
        self.stream = path if isinstance(path, StandardStream) else None
        self._function = path if callable(path) else None
        if partial is not None and (self.stream or self._function):
            raise DeclarationError("PathGenerator: in a partial, the path is given as text")
        code, default = (getattr(path, name, None) for name in ("__code__", "__defaults__"))
        if code is not None and code.co_argcount - len(default or ()) - hasattr(path, "__self__") > 1:
            raise DeclarationError(f"PathGenerator({path!r}): its function is given the config, or nothing")
        self.path = "" if self.stream or self._function else self._checked(path)
        self.partial = partial

    def place(self, config: Any) -> str:
        """The path for one config, relative to its directory."""
        if self.stream is not None:
            return self.stream.value
        if self._function is None:
            return self.path
        takes_config = getattr(getattr(self._function, "__code__", None), "co_argcount", 1) > 0
        return self._checked(self._function(config) if takes_config else self._function())

    def _checked(self, path: Any) -> str:
        if not isinstance(path, str | pathlib.PurePath):
            raise DeclarationError(f"PathGenerator({path!r}): give a path, a function, STDOUT or STDERR")
        parts = pathlib.PurePosixPath(path).parts
        if parts[:1] == ("/",) or ".." in parts or "\0" in str(path):
            raise DeclarationError(
                f"PathGenerator({str(path)!r}): give a relative path that stays inside the job's directory"
            )
        return str(path)

    def __call__(self) -> Path:
        """The path relative to its directory, which makes it a ``default_factory``."""
        return pathlib.Path(self.path)

    def __repr__(self) -> str:
        return f"PathGenerator({self.stream or self._function or self.path!r})"


def pathgenerator(path: str | Path | Callable[..., str | Path] | StandardStream = "") -> PathGenerator:
    """A `PathGenerator` for a path as an annotation: ``Annotated[Path, pathgenerator("model.pt")]``."""
    return PathGenerator(path)


@guarded
class Field:
    """The right-hand side of a parameter: default, help, groups."""

    __slots__ = ("default", "default_factory", "groups", "help", "ignore_default", "is_flag", "overrides")

    def __init__(
        self,
        default: Any = UNSET,
        default_factory: Callable[[], Any] | None = None,
        ignore_default: Any = UNSET,
        help: str = "",
        groups: Sequence[param_group] = (),
        overrides: bool = False,
        ignore_value: Any = UNSET,
    ) -> None:
        if default is not UNSET and default_factory is not None:
            raise DeclarationError("field() takes a default or a default_factory, not both")
        has_default = default is not UNSET or default_factory is not None
        if ignore_value is not UNSET and (ignore_default is not UNSET or not has_default):
            raise DeclarationError("field(ignore_value=) stands beside a default, and no ignore_default")
        self.is_flag = has_default and ignore_default is True
        """The default itself does not count."""
        if has_default and ignore_default is False:
            ignore_default = UNSET
        if ignore_value is not UNSET:
            ignore_default = ignore_value
        self.default = default
        self.default_factory = default_factory
        self.ignore_default = ignore_default
        self.help = help
        self.groups = frozenset(group.name for group in groups)
        self.overrides = overrides


class OutputField(Field):
    """What `Output` makes: a parameter, also where its annotation does not say so."""

    __slots__ = ()


def Output(
    path: str | Path | Callable[..., str | Path] | StandardStream = "",
    *,
    partial: partial | None = None,
    help: str = "",
) -> Path:
    """A file or folder that the task makes: ``model: Meta[Path] = Output("model.pt")``.

    The annotation may also be ``Path``, or missing. It stands for ``Meta[Path]`` and
    ``field(default_factory=PathGenerator(...))``: no part of the identity, and `path` is relative to the
    job's directory, or in the one of a `partial`. `help`: a line about it.
    """
    made: Any = OutputField(default_factory=PathGenerator(path, partial=partial), help=help)
    return made  # type: ignore[no-any-return]


@overload
def field(
    *,
    default: T,
    ignore_default: T | bool = ...,
    ignore_value: T = ...,
    help: str = ...,
    groups: Sequence[param_group] = ...,
    overrides: bool = ...,
) -> T: ...
@overload
def field(
    *,
    default_factory: Callable[[], T],
    ignore_default: T | bool = ...,
    ignore_value: T = ...,
    help: str = ...,
    groups: Sequence[param_group] = ...,
    overrides: bool = ...,
) -> T: ...
@overload
def field(
    *, ignore_default: T, help: str = ..., groups: Sequence[param_group] = ..., overrides: bool = ...
) -> T: ...
@overload
def field(*, help: str = ..., groups: Sequence[param_group] = ..., overrides: bool = ...) -> Any: ...
def field(**given: Any) -> Any:
    """Describes a parameter beyond its type.

    ``default=3`` counts in the identity, ``ignore_default=3`` does not (as in ``x: Param[int] = 3``);
    ``default_factory`` is called for each config and counts, unless it is a `PathGenerator`. Beside one of
    these, ``ignore_default=True`` has the default not count, and ``ignore_default=old`` another value: that
    of results from before the default changed. For a bool, whose values are such flags, that is
    ``ignore_value=old``.
    """
    return Field(**given)
