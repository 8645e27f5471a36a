"""The end of a Python task's process: as of a child of `multiprocessing`, with every open file written out.
A payload forked from a warm parent does not take the interpreter apart: that touches all of the parent's
memory, and costs more than all the rest of a job.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from _thread import _count as threads
from collections.abc import Iterator
from itertools import compress
from typing import Any, NoReturn

from tenuto.launchers.kernel import exit_like_c

_CONTAINERS = frozenset(
    (
        ("zipfile", "ZipFile"),
        ("sqlite3", "Connection"),
        ("_dbm", "dbm"),
        ("_gdbm", "gdbm"),
        ("dbm.dumb", "_Database"),
    )
)
"""Classes of the standard library that are no streams, and write something out when they are closed."""
_LOST = 1
"""The exit code of a task whose file could not be written out."""

_asked_for: list[bool] = []


def ask_for_full_end() -> None:
    """Has `leave` take the interpreter apart, for a task that says so (`__full_end__ = True`)."""
    _asked_for.append(True)


def leave(exit_code: int, *, fully: bool = False) -> NoReturn:
    """Ends the process.

    Non-daemon threads are joined, `atexit` is honoured, garbage of the task is collected, files that the task
    left open are closed, standard streams flushed, and the C library's exit handlers run. Finalizers of
    objects that are still referred to (by a global of a module, say) run only if the process ends `fully`.
    """
    threading: Any = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    gc.collect()
    if not _close_files():
        exit_code = exit_code or _LOST
    # A daemon thread may be in the middle of anything: only the interpreter can hold it still.
    if not fully and not _asked_for and threads() == 0:
        try:
            _flush()
        except (OSError, ValueError):
            pass  # the interpreter knows what to say of a full disk
        else:
            exit_like_c(exit_code)
    gc.unfreeze()  # or what a module made before the fork still holds would not be let go
    sys.exit(exit_code)


def _close_files() -> bool:
    """Closes what the task opened and left open; False if something of it could not be written out.

    Only objects made since the task began are looked at (the others are frozen): a module that leaves a file
    open while it is imported is not forked. A hundred kinds are looked at before thousands of objects.
    """
    made = gc.get_objects()
    kinds = {kind for kind in set(map(type, made)) if issubclass(kind, io.IOBase) or _is_container(kind)}
    own = list(_own_streams())
    left = [
        one
        for one in compress(made, map(kinds.__contains__, map(type, made)))
        if not any(one is stream for stream in own)
    ]
    left.sort(key=lambda one: isinstance(one, io.IOBase))  # a container writes into a stream
    failed = [one for one in left if not _closed(one)]
    return not failed


def _closed(one: Any) -> bool:
    try:
        one.close()
    except OSError as error:
        name = getattr(one, "name", None) or type(one).__name__
        os.write(2, f"tenuto: {name!s:.200} was left open and cannot be written out: {error}\n".encode())
        return False
    except Exception:  # noqa: BLE001  a close() of the user's may raise anything; at an exit Python ignores it
        return True
    return True


def _is_container(kind: type) -> bool:
    """By name: `_gdbm` keeps its class to itself."""
    return any((one.__module__, one.__name__) in _CONTAINERS for one in kind.__mro__)


def _own_streams() -> Iterator[Any]:
    """The standard streams as the interpreter made them, which `_flush` takes care of."""
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        buffer = getattr(stream, "buffer", None)
        yield from (stream, buffer, getattr(buffer, "raw", None))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed:
            stream.flush()
