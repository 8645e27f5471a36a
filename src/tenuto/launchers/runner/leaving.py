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
from typing import Any, NoReturn

from tenuto.launchers.runner.kernel import exit_like_c

_KNOWN_EXTENSIONS = ("numpy",)
"""Packages with machine code of which nothing has to be closed when a process ends."""
_STANDARD = f"{os.path.dirname(os.__file__)}/"
_PACKAGES = f"{_STANDARD}site-packages/"
_STANDARD_STREAMS = (0, 1, 2)


def leave(exit_code: int, *, tear_down: bool) -> NoReturn:
    """End the process, with everything done that the interpreter does at its end and anybody could notice.

    `tear_down`: something from before the fork needs the interpreter's own end.
    """
    shutdown: Any = threading._shutdown  # type: ignore[attr-defined]
    shutdown()
    atexit._run_exitfuncs()
    if not tear_down and not must_be_torn_down():
        try:
            _flush()
        except (OSError, ValueError):
            pass  # the interpreter knows what to say of a full disk
        else:
            exit_like_c(exit_code)  # what libraries want done at the end is done
    gc.unfreeze()  # or what a module made before the fork still holds would not be let go
    sys.exit(exit_code)


def must_be_torn_down() -> bool:
    """Whether something waits for the end: a file to be written out, a method `__del__`, a `finally`.

    After a fork, what the parent had is frozen and not looked at; the parent has asked for itself.
    """
    return _has_foreign_extensions() or any(map(_has_last_words, gc.get_objects()))


def _has_foreign_extensions() -> bool:
    """Whether machine code is loaded that may want to be told of the end, beyond Python's knowledge."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if (
            isinstance(file, str)
            and file.endswith(".so")
            and (not file.startswith(_STANDARD) or file.startswith(_PACKAGES))
            and name.partition(".")[0] not in _KNOWN_EXTENSIONS
        ):
            return True
    return False


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
