"""The end of a payload that was forked from a warm parent, without tearing an interpreter down if it can be.
To take apart what the parent had built touches all of its memory: it costs more than all the rest of a job.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from _thread import _count as threads
from collections.abc import Iterator
from itertools import compress, islice
from types import ModuleType
from typing import Any, NoReturn

from tenuto.launchers.runner.kernel import exit_like_c

_KNOWN_EXTENSIONS = ("numpy",)
"""Packages with machine code of which nothing has to be closed when a process ends."""
_CLOSED_AT_THE_END = ("_dbm", "_gdbm", "_sqlite3")
"""Modules of the standard library that write something out when what they opened is taken apart."""
_STANDARD = f"{os.path.dirname(os.__file__)}/"
_PACKAGES = f"{_STANDARD}site-packages/"
_IN_MEMORY = (io.BytesIO, io.StringIO)


def leave(exit_code: int, *, known: int | None) -> NoReturn:
    """End the process, with everything done that the interpreter does at its end and anybody could notice.

    `known`: how many modules were loaded before the fork, after which `must_be_torn_down` said no; None if
    it said yes.
    """
    threading: Any = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
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
    """Whether something waits for the end: a file to be written out, `__del__`, a `finally`, a thread.

    After a fork only what came since is looked at: modules after the first `known`, and what is not frozen.
    To look at the rest would copy its pages.
    """
    modules = islice(reversed(sys.modules.values()), len(sys.modules) - known)
    return threads() > 0 or any(map(_wants_an_end, modules)) or _any_last_words(gc.get_objects())


def _wants_an_end(module: ModuleType) -> bool:
    """Whether it is machine code that may want to be told of the end, beyond Python's knowledge."""
    name = str(getattr(module, "__name__", ""))
    if name in _CLOSED_AT_THE_END:
        return True
    file = getattr(module, "__file__", None)
    return (
        isinstance(file, str)
        and file.endswith(".so")
        and (not file.startswith(_STANDARD) or file.startswith(_PACKAGES))
        and name.partition(".")[0] not in _KNOWN_EXTENSIONS
    )


def _any_last_words(made: list[Any]) -> bool:
    # There are tens of thousands of objects, and a hundred kinds: only objects of a few kinds are looked at.
    kinds = {kind for kind in set(map(type, made)) if kind in _SUSPENDABLE or hasattr(kind, "__del__")}
    own = list(_own_streams())
    return any(_has_last_words(one, own) for one in compress(made, map(kinds.__contains__, map(type, made))))


def _has_last_words(made: Any, own_streams: list[Any]) -> bool:
    kind = type(made)
    if kind in _SUSPENDABLE:
        return getattr(made, "gi_suspended", True)
    if isinstance(made, io.IOBase):
        return kind not in _IN_MEMORY and not made.closed and not any(made is own for own in own_streams)
    return True


def _own_streams() -> Iterator[Any]:
    """The standard streams as the interpreter made them, which `_flush` takes care of."""
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        buffer = getattr(stream, "buffer", None)
        yield from (stream, buffer, getattr(buffer, "raw", None))


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
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed:
            stream.flush()
