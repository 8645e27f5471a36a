"""Decorators for the methods of live objects: run once, or keep the result on disk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from tenuto.errors import NotInJob
from tenuto.light import fcntl, pathlib, shutil
from tenuto.tasks.arguments import guarded
from tenuto.tasks.base import class_name
from tenuto.tasks.ports import job_context

if TYPE_CHECKING:
    from pathlib import Path

S = TypeVar("S")
R = TypeVar("R")
P = ParamSpec("P")

IDENTITY_ATTRIBUTE = "__tenuto_identity__"
"""Where a live object keeps the identity of its config, if its class caches."""
CACHES_ATTRIBUTE = "__tenuto_caches__"
_SHARED = 0o2070
"""The bits of a directory that its group shares: files made there are for the group, too."""


@guarded
def initializer(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Runs a method once for each live object; later calls return the first result."""
    slot = f"__initialized_{method.__name__}"

    @functools.wraps(method)
    def once(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if slot not in self.__dict__:
            self.__dict__[slot] = method(self, *args, **kwargs)
        result: R = self.__dict__[slot]
        return result

    return once


@guarded
def cache(name: str) -> Callable[[Callable[Concatenate[S, Path, P], R]], Callable[Concatenate[S, P], R]]:
    """Gives a method a path that all jobs of the workspace share, one caller at a time.

    `name`: of the file or directory. The path belongs to the config's identity. The method reads it if it
    exists, and writes it otherwise. What a method left that raised, or was killed, is removed first.
    """

    def decorate(method: Callable[Concatenate[S, Path, P], R]) -> Callable[Concatenate[S, P], R]:
        @functools.wraps(method)
        def cached(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            folder = _cache_folder(self)
            _make_private(folder)
            with (folder / f"{name}.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                with _whole(folder / name, folder / f"{name}.unfinished"):
                    return method(self, folder / name, *args, **kwargs)

        setattr(cached, CACHES_ATTRIBUTE, True)
        return cached

    return decorate


def _make_private(folder: Path) -> None:
    """Make a directory, and those above it, for their owner alone, or for the group of a shared one above."""
    try:
        above = folder.parent.stat().st_mode
        folder.mkdir(0o770 if above & _SHARED == _SHARED else 0o700)
    except FileNotFoundError:
        _make_private(folder.parent)
        _make_private(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise


@contextmanager
def _whole(path: Path, unfinished: Path) -> Iterator[None]:
    """A path that is there is whole: while it is written, a second file says that it is not."""
    if unfinished.exists():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if path.exists():
        yield
        return
    unfinished.touch()
    yield
    unfinished.unlink(missing_ok=True)


@functools.cache
def caches(cls: type) -> bool:
    """Whether a class has a cached method, so that its live objects need their identity."""
    return any(hasattr(getattr(cls, name, None), CACHES_ATTRIBUTE) for name in dir(cls) if name[:2] != "__")


def _cache_folder(live: Any) -> Path:
    known = live.__dict__.get(IDENTITY_ATTRIBUTE)
    if known is None:
        raise NotInJob(f"a cached method of {class_name(live)} needs a live object made from a config")
    return pathlib.Path(job_context().cache_path, *known)
