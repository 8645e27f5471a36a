"""The limits of a payload: the memory it may take, the disk for its logs, what a confined command gives up.
Also answers whether the kernel killed something for want of memory, limit or not; ends nothing itself.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from tenuto.launchers.kernel import gain_no_privileges, punch_hole
from tenuto.light import NamedTuple
from tenuto.workspace.modes import file_mode

if TYPE_CHECKING:
    from tenuto.launchers.instructions import Confinement
    from tenuto.workspace.layout import JobPaths

_GROUPS = "/sys/fs/cgroup"
_OWN_GROUP = "/proc/self/cgroup"
_GROUP_PREFIX = "tenuto-"
_LEAST_LIMIT = 1 << 20
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_BLOCK = 4096
_SHORTEST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
LOG_NOTICE = b"\n[tenuto: what followed here was dropped, the log had reached its limit]\n"

# Memory: a control group where one may be made, else a limit on each process.


class MemoryLimit(Protocol):
    def enter(self) -> None:
        """In the payload, before it runs anything: be limited."""
        ...

    def count(self, size: int) -> None:
        """In the payload, before it enters: count memory that it has filled already."""
        ...

    def kills(self) -> int:
        """How many processes the kernel has killed to keep to the limit."""
        ...

    def close(self) -> None:
        """Clear away, once every process of the attempt is gone."""
        ...


class _Files(NamedTuple):
    """How a version of control groups calls things."""

    limit: str
    limit_with_swap: str
    swap_is_total: bool
    """The swap file bounds memory and swap together, rather than swap alone."""
    events: str


_V1 = _Files("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", True, "memory.oom_control")
_V2 = _Files("memory.max", "memory.swap.max", False, "memory.events")


def limit_memory(size: int | None, name: str) -> MemoryLimit | None:
    """The best limit to be had here; `name` is unique to the attempt."""
    if size is None:
        return None
    return _group_limit(size, name) or ProcessLimit(size)


def counts_together() -> bool:
    """Whether a limit made here counts all processes of an attempt together, and not each by itself."""
    limit = _group_limit(_LEAST_LIMIT, f"trial-{os.getpid()}")
    if limit is not None:
        limit.close()
    return limit is not None


def limit_in_force(size: int | None, name: str) -> MemoryLimit | None:
    """The limit that `limit_memory` made in another process."""
    if size is None:
        return None
    place = _own_group()
    path = place and f"{place[0]}/{_GROUP_PREFIX}{name}"
    if place and path and os.path.isdir(path):
        return GroupLimit(path, place[1], size)
    return ProcessLimit(size)


class GroupLimit:
    """A control group of the attempt's own: counts all its processes together."""

    def __init__(self, path: str, files: _Files, size: int = 0) -> None:
        self._path = path
        self._files = files
        self._size = size

    def enter(self) -> None:
        _write(f"{self._path}/cgroup.procs", "0")

    def count(self, size: int) -> None:
        # The kernel leaves a page with the group in which it was filled.
        left = str(max(self._size - size, _LEAST_LIMIT))
        _write(f"{self._path}/{self._files.limit}", left)
        with suppress(OSError):  # a kernel that does not count swap
            _write(f"{self._path}/{self._files.limit_with_swap}", left if self._files.swap_is_total else "0")

    def kills(self) -> int:
        return _count(f"{self._path}/{self._files.events}", b"oom_kill")

    def close(self) -> None:
        with suppress(OSError):  # something of it would not die; an empty group left behind costs nothing
            os.rmdir(self._path)


class ProcessLimit:
    """A limit on the private memory of each process: Python raises `MemoryError`, others fail as they do."""

    def __init__(self, size: int) -> None:
        self._size = size

    def enter(self) -> None:
        # Not RLIMIT_AS: CUDA, and much else that reserves addresses without using them, cannot live under it.
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        size = self._size if hard == resource.RLIM_INFINITY else min(self._size, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))

    def count(self, size: int) -> None:
        pass  # the kernel counts all that a process has, whenever it was filled

    def kills(self) -> int:
        return 0

    def close(self) -> None:
        pass


def clear_group(name: str) -> None:
    """Remove the control group that the runner of an attempt made and could not remove."""
    place = _own_group()
    if place is not None:
        GroupLimit(f"{place[0]}/{_GROUP_PREFIX}{name}", place[1]).close()


def group_members(name: str) -> list[int]:
    """The processes in the control group of an attempt; empty if it has none."""
    place = _own_group()
    if place is None:
        return []
    try:
        with open(f"{place[0]}/{_GROUP_PREFIX}{name}/cgroup.procs", "rb") as stream:
            return [int(line) for line in stream]
    except OSError:
        return []


def machine_kills() -> int:
    """How many processes the kernel of this machine has killed for want of memory since it started."""
    return _count("/proc/vmstat", b"oom_kill")


def group_kills() -> int:
    """How many processes of the runner's own control group the kernel has killed for want of memory."""
    place = _own_group()
    return 0 if place is None else _count(f"{place[0]}/{place[1].events}", b"oom_kill")


def is_large(size: int) -> bool:
    """Whether a process of this size is one that the kernel would pick.

    It tells it from one that a person killed while another job happened to run out of memory.
    """
    return size >= min(256 << 20, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 16)


def _group_limit(size: int, name: str) -> GroupLimit | None:
    place = _own_group()
    if place is None:
        return None
    parent, files = place
    path = f"{parent}/{_GROUP_PREFIX}{name}"
    if files is _V2:
        with suppress(OSError):  # there are processes in it, or it is another user's
            _write(f"{parent}/cgroup.subtree_control", "+memory")
    try:
        os.mkdir(path)
    except OSError:
        return None
    try:
        _write(f"{path}/{files.limit}", str(size))
    except OSError:  # the controller is not enabled here
        os.rmdir(path)
        return None
    with suppress(OSError):  # a kernel that does not count swap
        _write(f"{path}/{files.limit_with_swap}", str(size if files.swap_is_total else 0))
    return GroupLimit(path, files)


def _own_group() -> tuple[str, _Files] | None:
    try:
        with open(_OWN_GROUP) as stream:
            lines = [line.rstrip("\n").split(":", 2) for line in stream]
    except OSError:
        return None
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return f"{_GROUPS}/memory{path.rstrip('/')}", _V1
    for _, controllers, path in lines:
        if not controllers:
            group = f"{_GROUPS}{path.rstrip('/')}"
            above = os.path.dirname(group)
            # A group of version 2 has processes in it or limited groups, never both: with DelegateSubgroup=
            # systemd starts a unit in a group below its own, which then is for the groups of jobs.
            return (above if _is_delegated(above) else group), _V2
    return None


def _is_delegated(group: str) -> bool:
    """Whether systemd gave a control group to its unit."""
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            return os.getxattr(group, name) == b"1"
    return False


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _count(path: str, name: bytes) -> int:
    """The number behind a name, in one of the kernel's lists of `name number`; 0 if there is none."""
    try:
        with open(path, "rb") as stream:
            for line in stream:
                words = line.split()
                if words[0] == name:
                    return int(words[1])
    except OSError:
        pass  # not this kernel
    return 0


# The logs: a payload writes to them directly, so no death of a runner breaks it; the bound comes from behind.


def log_gap(size: int, log_bytes: int) -> tuple[int, int] | None:
    """The range of a log of this size that no reader needs: the part between its kept head and tail.

    None if the whole log fits into its limit. The hole that `BoundedLogs` makes lies within the range.
    """
    limit = max(log_bytes, 8 * _BLOCK)
    return None if size <= limit else (limit // 4 // _BLOCK * _BLOCK, size - limit // 2)


class OutputLimit(Exception):
    """The logs cannot be bounded, since the file system cannot make holes."""


def open_logs(paths: JobPaths) -> tuple[int, int]:
    """Descriptors to append to `.out` and `.err`."""
    mode = file_mode(paths.out)
    out = os.open(paths.out, _OPEN | os.O_APPEND, mode)
    return out, os.open(paths.err, _OPEN | os.O_APPEND, mode)


class BoundedLogs:
    """Both logs of an attempt, looked at now and then; the more they grow, the more often."""

    def __init__(self, paths: JobPaths, log_bytes: int) -> None:
        self._logs = [_BoundedLog(path, log_bytes) for path in (paths.out, paths.err)]
        self.pause_s = _SHORTEST_PAUSE_S
        """How long not to look again."""

    @property
    def truncated(self) -> bool:
        return any(log.truncated for log in self._logs)

    def check(self) -> None:
        """Cut a text that is too long; `OutputLimit` where that is impossible."""
        fullest = max([log.check() for log in self._logs])
        # A log that fills a good part of its limit between two looks could overshoot by as much.
        self.pause_s = (
            max(self.pause_s / 4, _SHORTEST_PAUSE_S)
            if fullest > 0.1
            else min(self.pause_s * 2, _LONGEST_PAUSE_S)
        )


class _BoundedLog:
    """One log: its head and its tail stay, a hole grows between them."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = max(limit, 8 * _BLOCK)
        self._size = 0
        self.truncated = False

    def check(self) -> float:
        """Cut the log if need be; the growth since the last look, as a part of the limit."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return 0.0  # the task removed its log, and with it the need for a bound
        growth = found.st_size - self._size
        self._size = found.st_size
        if found.st_blocks * 512 > self._limit:
            self._cut(found.st_size)
        return growth / self._limit

    def _cut(self, size: int) -> None:
        start = self._limit // 4 // _BLOCK * _BLOCK
        end = (size - self._limit // 2) // _BLOCK * _BLOCK
        if end <= start + _BLOCK:
            return
        # Not opened for appending: there Linux appends what `pwrite` was told to put elsewhere.
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            punch_hole(fd, start, end - start)
            os.pwrite(fd, LOG_NOTICE, start)
        except OSError as error:
            raise OutputLimit(f"{self._path} has reached {self._limit} bytes: {error.strerror}") from error
        finally:
            os.close(fd)
        self.truncated = True


# Confinement, of a command that is not trusted.


def confine(confinement: Confinement) -> None:
    """Confine this process; a right that stays raises, and the command is not run.

    The order matters: after each step there is less that the next may do.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, confinement.open_files)
    _limit(resource.RLIMIT_FSIZE, confinement.file_bytes)
    _limit(resource.RLIMIT_NPROC, confinement.processes)
    _become(confinement)
    gain_no_privileges()


def _limit(which: int, most: int | None) -> None:
    """Set a limit that cannot be raised again; a lower one that holds already stays."""
    if most is None:
        return
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def _become(confinement: Confinement) -> None:
    """Become another user: groups first, since only root may change them, the user last."""
    if min(confinement.uid or 0, confinement.gid or 0) < 0:  # -1 would mean: stay who you are
        raise ValueError(f"no user or group has the number {confinement.uid}, {confinement.gid}")
    groups = confinement.groups
    if groups is None and confinement.uid is not None and confinement.uid != os.geteuid():
        groups = ()
    if groups is not None:
        os.setgroups(groups)
    if confinement.gid is not None:
        os.setresgid(confinement.gid, confinement.gid, confinement.gid)
    if confinement.uid is not None:
        os.setresuid(confinement.uid, confinement.uid, confinement.uid)
