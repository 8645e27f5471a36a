"""Owns the machine on which the Nth operation fails: the modules `os` and `fcntl` as the adapters see them.
Everything else is real: a real disk, real locks, the real adapters.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, unique
from typing import Any

from tenuto.workspace import files, locks, tree_removal

_WRITING = frozenset("write fsync fdatasync ftruncate posix_fallocate mkdir rename symlink link".split())
_NAMING = frozenset(
    "open rename unlink mkdir rmdir symlink link readlink lstat stat listdir scandir statvfs chmod".split()
)
_OTHERS = frozenset("read lseek fstat fchmod close fcntl flock".split())
OPERATIONS = _WRITING | _NAMING | _OTHERS


@unique
class Fault(Enum):
    """How an operation fails."""

    ENOSPC = "the disk is full"
    STAYS_FULL = "the disk is full, and stays so"
    EIO = "the device fails"
    STAYS_BROKEN = "the device fails, and stays so"
    EACCES = "permission is denied"
    EINTR = "a signal interrupts it"
    EMFILE = "no descriptor is left"
    SHORT = "half of the bytes are written"
    TORN = "half of the bytes are written, then the disk is full for a moment"
    SHORT_THEN_FULL = "half of the bytes are written, then the disk is full"
    KILL = "the process dies there"


_ERRORS = {
    Fault.ENOSPC: errno.ENOSPC,
    Fault.STAYS_FULL: errno.ENOSPC,
    Fault.SHORT_THEN_FULL: errno.ENOSPC,
    Fault.TORN: errno.ENOSPC,
    Fault.EIO: errno.EIO,
    Fault.STAYS_BROKEN: errno.EIO,
    Fault.EACCES: errno.EACCES,
    Fault.EINTR: errno.EINTR,
    Fault.EMFILE: errno.EMFILE,
}
_HALVING = (Fault.SHORT, Fault.TORN, Fault.SHORT_THEN_FULL)
_LASTING = (Fault.STAYS_FULL, Fault.STAYS_BROKEN, Fault.SHORT_THEN_FULL)


class Killed(BaseException):
    """The process is dead: whatever it still does in `finally` reaches nothing."""


class FailingMachine:
    """Counts the operations, and lets the Nth fail."""

    def __init__(self, at: int, fault: Fault) -> None:
        self._at = at
        self._fault = fault
        self._count = 0
        self.struck: str | None = None
        """The operation that failed; None if there were too few."""
        self._failing = False
        self._thread = threading.get_ident()
        """Other threads of this process have nothing to do with the scenario."""

    def module(self, real: Any) -> Any:
        return _Module(self, real)

    def call(self, name: str, real: Callable[..., Any], arguments: Any, named: Any) -> Any:
        if threading.get_ident() != self._thread:
            return real(*arguments, **named)
        if self._fault is Fault.KILL and self.struck is not None:
            raise Killed
        if self._failing and self._can_fail(name, arguments, named):
            if name == "close":
                real(*arguments)
            self._failing = self._fault in _LASTING
            raise OSError(_ERRORS[self._fault], os.strerror(_ERRORS[self._fault]))
        if self.struck is None and self._can_fail(name, arguments, named):
            self._count += 1
            if self._count == self._at:
                self.struck = name
                return self._strike(name, real, arguments, named)
        return real(*arguments, **named)

    def _strike(self, name: str, real: Callable[..., Any], arguments: Any, named: Any) -> Any:
        if self._fault is Fault.KILL:
            raise Killed
        self._failing = self._fault in _LASTING or self._fault is Fault.TORN
        if self._fault in _HALVING:
            fd, data = arguments
            return real(fd, data[: len(data) // 2])
        if name == "close":
            real(*arguments)  # Linux has closed it, whatever it says
        raise OSError(_ERRORS[self._fault], os.strerror(_ERRORS[self._fault]))

    def _can_fail(self, name: str, arguments: Any, named: Any) -> bool:
        """Whether the fault can come of this operation."""
        creates = name == "open" and bool(arguments[1] & os.O_CREAT)
        match self._fault:
            case Fault.SHORT | Fault.TORN | Fault.SHORT_THEN_FULL if self.struck is None:
                return name == "write" and len(arguments[1]) > 1
            case Fault.ENOSPC | Fault.STAYS_FULL | Fault.TORN | Fault.SHORT_THEN_FULL:
                return name in _WRITING or creates
            case Fault.EACCES:
                return name in _NAMING
            case Fault.EMFILE:
                return name in ("open", "listdir")
            case _:
                return True


class _Module:
    def __init__(self, machine: FailingMachine, real: Any) -> None:
        self._machine = machine
        self._real = real

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if name not in OPERATIONS:
            return real
        return lambda *arguments, **named: self._machine.call(name, real, arguments, named)


@contextmanager
def failing(at: int, fault: Fault) -> Iterator[FailingMachine]:
    """While this lasts, the adapters meet the fault at their operation number `at`."""
    machine = FailingMachine(at, fault)
    replaced = {
        (files, "os"): os,
        (tree_removal, "os"): os,
        (locks, "os"): os,
        (locks, "fcntl"): fcntl,
    }
    for (module, name), real in replaced.items():
        setattr(module, name, machine.module(real))
    try:
        yield machine
    finally:
        for (module, name), real in replaced.items():
            setattr(module, name, real)
