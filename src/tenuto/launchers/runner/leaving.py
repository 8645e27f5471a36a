"""The end of a payload that was forked from a warm parent, without tearing an interpreter down if it can be.
To take apart what the parent had built touches all of its memory: it costs more than all the rest of a job.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import threading
from itertools import islice
from types import ModuleType
from typing import Any, NoReturn

from tenuto.launchers.runner.kernel import exit_like_c

_KNOWN_EXTENSIONS = ("numpy",)
"""Packages with machine code of which nothing has to be closed when a process ends."""
_STANDARD = f"{os.path.dirname(os.__file__)}/"
_PACKAGES = f"{_STANDARD}site-packages/"
_STANDARD_STREAMS = (0, 1, 2)


def leave(exit_code: int, *, known: int | None) -> NoReturn:
    """End the process, with everything done that the interpreter does at its end and anybody could notice.

    `known`: how many modules were loaded before the fork, after which `must_be_torn_down` said no; None if
    it said yes.
    """
    shutdown: Any = threading._shutdown  # type: ignore[attr-defined]
    shutdown()
    atexit._run_exitfuncs()
    if known is not None and not must_be_torn_down(known):
        try:
            _flush()
        except (OSError, ValueError):
            pass  # the interpreter knows what to say of a full disk
        else:
            exit_like_c(exit_code)  # what libraries want done at the end is done
    gc.unfreeze()  # or what a module made before the fork still holds would not be let go
    sys.exit(exit_code)


def must_be_torn_down(known: int = 0) -> bool:
    """Whether something waits for the end: a file to be written out, a method `__del__`, a `finally`.

    After a fork only what came since is looked at: modules after the first `known`, and what is not frozen.
    To look at the rest would copy its pages.
    """
    modules = islice(reversed(sys.modules.values()), len(sys.modules) - known)
    return any(map(_is_foreign_extension, modules)) or any(map(_has_last_words, gc.get_objects()))


def _is_foreign_extension(module: ModuleType) -> bool:
    """Whether it is machine code that may want to be told of the end, beyond Python's knowledge."""
    file = getattr(module, "__file__", None)
    return (
        isinstance(file, str)
        and file.endswith(".so")
        and (not file.startswith(_STANDARD) or file.startswith(_PACKAGES))
        and str(module.__name__).partition(".")[0] not in _KNOWN_EXTENSIONS
    )


def _has_last_words(made: object) -> bool:
    kind = type(made)
    if kind in _SUSPENDABLE:
        return getattr(made, "gi_suspended", True)
    if not hasattr(kind, "__del__"):
        return False
    if isinstance(made, io.IOBase):
        return not made.closed and made.fileno() not in _STANDARD_STREAMS
    return True


def _suspendable() -> tuple[type, ...]:
    def generator() -> Any:
        yield

    async def coroutine() -> None: ...

    async def agenerator() -> Any:
        yield

    waiting = coroutine()
    kinds = (type(generator()), type(waiting), type(agenerator()))
    waiting.close()
    return kinds


_SUSPENDABLE = _suspendable()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
