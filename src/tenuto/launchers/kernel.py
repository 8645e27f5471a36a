"""What the system offers and the standard library does not: `prctl`, holes in files, the C library's `exit`.
Knows nothing of jobs; each answers False, or raises `OSError`, where the system has no such thing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_FALLOC_FL_KEEP_SIZE = 0x01
_FALLOC_FL_PUNCH_HOLE = 0x02

_found: dict[str, tuple[Callable[..., int], int]] = {}
"""Functions of the C library, each with how to call it and where it lies."""


def look_up_functions() -> None:
    """Find what a runner will call, before it is forked: 1 ms that each would take."""
    for function in ("prctl", "exit", "fork"):
        _find(function)


def fork_quietly() -> int:
    """Fork without what Python, its library and the user's modules want done in a child: half of its price.

    Only for a process of a single thread, and a child that runs nothing but Tenuto.
    """
    pid = _call("fork")
    return os.fork() if pid is None or pid < 0 else pid  # the second try names the error


def become_subreaper() -> bool:
    """From now on orphaned descendants become children of this process."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal: int) -> bool:
    """Have the kernel send `signal` to this process when its parent ends."""
    return _prctl(_PR_SET_PDEATHSIG, signal)


def gain_no_privileges() -> None:
    """From now on no program that this process becomes or starts has more rights than it."""
    if not _prctl(_PR_SET_NO_NEW_PRIVS, 1):
        raise OSError(errno.ENOSYS, "the kernel cannot forbid new privileges")


def close_all_but(kept: set[int]) -> None:
    """Close every other descriptor of this process."""
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd not in kept:
            try:
                os.close(fd)
            except OSError:
                continue  # the descriptor that listed the directory


def is_unlinked(fd: int) -> bool:
    """Whether the open file has no name left in any directory."""
    return os.fstat(fd).st_nlink == 0


def punch_hole(fd: int, offset: int, length: int) -> None:
    """Give a range of a file back to the disk; it reads as zeros, and the file stays as long as it is."""
    import ctypes  # noqa: PLC0415  2 ms that only a job with far too much output pays

    fallocate = ctypes.CDLL(None, use_errno=True).fallocate64
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate(fd, _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE, offset, length) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def exit_like_c(exit_code: int) -> None:
    """End this process as a program in C does. Returns only where that cannot be had."""
    _call("exit", exit_code)


def _prctl(option: int, value: int) -> bool:
    return _call("prctl", option, value, 0, 0, 0) == 0


def _call(function: str, *arguments: int) -> int | None:
    found = _found.get(function) or _find(function)
    return None if found is None else int(found[0](found[1], arguments))


def _find(function: str) -> tuple[Callable[..., int], int] | None:
    # `_ctypes` is what `ctypes` wraps. Every job would pay 2 ms for the wrapper, to pass five small integers.
    try:
        from _ctypes import call_function, dlopen, dlsym  # noqa: PLC0415  absent in some builds of Python

        _found[function] = call_function, dlsym(dlopen(None, 0), function)  # type: ignore[arg-type]
    except (ImportError, OSError):
        return None
    return _found[function]
