"""Kills the process it runs in, with SIGKILL, right before a chosen operation on the machine.
Knows nothing of Tenuto, and no module of Tenuto knows of it: it wraps functions of `os` and `fcntl`.

A killed process keeps nothing in memory, so what matters is only which of its operations others can see. To
be killed *before* each of these, and after the last, is therefore to be killed everywhere. An operation is
called by what it does and to which file (``rename launch.json``), so that a case says by itself where it
strikes; the second of a name has ``#2`` behind it.
"""

from __future__ import annotations

import _ctypes
import _thread
import fcntl
import os
import re
import signal
from collections.abc import Callable
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR
_GETLK, _SETLK = 36, 37
_by_path = ("mkdir", "rmdir", "unlink", "rename", "chdir")
_by_descriptor = ("write", "fsync", "ftruncate", "posix_fallocate", "close", "pwrite")
_plain = ("fork", "posix_spawn", "setsid", "setpgid", "dup2", "pidfd_open", "waitid", "execvp", "_exit")

_open, _write, _close, _getpid = os.open, os.write, os.close, os.getpid


class Strike:
    """Where one process is to die, or to stand still: at the first operation of this name, once in a case."""

    def __init__(self, at: str | None, claim: str, blow: int = signal.SIGKILL) -> None:
        self.at = at
        self.claim = claim
        self.blow = blow


class Watcher:
    """Sees every operation of one process."""

    def __init__(
        self,
        strike: Strike,
        trace: str | None = None,
        *,
        role: str = "parent",
        children: tuple[tuple[str, Strike], ...] = (),
        names: dict[int, str] | None = None,
        looks: bool = False,
        locks: bool = True,
    ) -> None:
        """`children`: what is to happen in what this process forks, in what that forks, and so on; `names`
        of descriptors; `looks`: also operations that nobody can see, for who makes hardly any other; `locks`:
        those that this process takes exclude others.
        """
        self._strike = strike
        self._trace = trace
        self._children = children
        self._seen: dict[str, int] = {}
        self._names = names or {}
        self._role = role
        self._looks = looks
        self._locks = locks
        self._pid = _getpid()

    def install(self) -> None:
        """From now on, in this process and in what it forks."""
        os.open = self._watched_open
        for name in _by_path:
            setattr(os, name, self._watch_path(name, getattr(os, name)))
        for name in _by_descriptor:
            setattr(os, name, self._watch_descriptor(name, getattr(os, name)))
        for name in _plain:
            if name != "fork":
                setattr(os, name, self._watch_plain(name, getattr(os, name)))
        os.fork = self._watched_fork(os.fork)
        _ctypes.dlsym = _without_fork(_ctypes.dlsym)
        fcntl.fcntl = self._watched_fcntl(fcntl.fcntl)

    def knows(self, fd: int, name: str) -> None:
        """What a descriptor is called that came by other ways than `open`."""
        self._names[fd] = name

    def sees(self, operation: str) -> None:
        """An operation is about to be made."""
        if _getpid() != self._pid:
            return
        times = self._seen[operation] = self._seen.get(operation, 0) + 1
        if times > 1:
            operation += f" #{times}"
        if self._trace is not None:
            self._note(operation)
        if operation == self._strike.at and claim(self._strike.claim):
            # To this thread: sent to the process, another one could take it while this one goes on.
            signal.pthread_kill(_thread.get_ident(), self._strike.blow)

    def _note(self, operation: str) -> None:
        # Opened each time: a runner closes every descriptor that it does not know.
        fd = _open(f"{self._trace}-{self._role}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        _write(fd, f"{operation}\n".encode())
        _close(fd)

    def _watched_open(self, path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        name = _name(path)
        if not flags & _WRITING:
            if self._looks and not os.fspath(path).startswith("/proc"):
                self.sees(f"read {name}")
            return _open(path, flags, mode, **options)
        self.sees(f"open {name}")
        fd = _open(path, flags, mode, **options)
        self._names[fd] = name
        return fd

    def _watch_path(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Any, *arguments: Any, **options: Any) -> Any:
            if name != "rmdir" or not os.fspath(path).startswith(
                "/sys"
            ):  # a control group: not on each machine
                self.sees(f"{name} {_name(arguments[0] if name == 'rename' else path)}")
            return function(path, *arguments, **options)

        return watched

    def _watch_descriptor(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(fd: int, *arguments: Any) -> Any:
            known = self._names.get(fd)
            if known is not None:
                self.sees(f"{name} {known}")
                if name == "close":
                    self._names.pop(fd, None)
            return function(fd, *arguments)

        return watched

    def _watch_plain(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            self.sees(name)
            return function(*arguments, **options)

        return watched

    def _watched_fork(self, function: Callable[[], int]) -> Callable[[], int]:
        def watched() -> int:
            self.sees("fork")
            pid = function()
            if pid == 0 and self._children:
                (self._role, self._strike), *rest = self._children
                self._children = tuple(rest)
                self._seen.clear()
                self._pid = _getpid()
                self.sees("begin")
            return pid

        return watched

    def _watched_fcntl(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(fd: Any, command: int, argument: Any = 0) -> Any:
            if command == _SETLK or (command == _GETLK and self._looks):
                number = fd if isinstance(fd, int) else fd.fileno()
                byte = argument[8] if isinstance(argument, bytes) else "?"
                name = self._names.get(number, "")
                self.sees(f"lock{byte} {name}" if command == _SETLK else f"look{byte}")
                if not self._locks and command == _SETLK:
                    return argument
            return function(fd, command, argument)

        return watched


def claim(path: str) -> bool:
    """True for the first caller: each blow falls once."""
    try:
        _close(_open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def _name(path: Any) -> str:
    """The last part of a path; temporary files are all called alike, and so are those named after a nonce."""
    name = os.fsdecode(path).rpartition("/")[2]
    name = re.sub(r"-?[0-9a-f]{32}", "", name)
    return re.sub(r"\.\d+-\d+\.tenuto-tmp$", ".tmp", name)


def _without_fork(dlsym: Callable[[int, str], int]) -> Callable[[int, str], int]:
    """Hide the fork of the C library, which nobody sees: a warm parent then uses the one of `os`."""

    def found(library: int, name: str) -> int:
        if name == "fork":
            raise OSError("hidden")
        return dlsym(library, name)

    return found
