"""The memory limit of an attempt: a control group where one may be made, else a limit on each process.
Also answers whether the kernel killed something for want of memory, limit or not.
"""

import os
import resource
from contextlib import suppress
from typing import Protocol

from tenuto.light import NamedTuple

_GROUPS = "/sys/fs/cgroup"
_GROUP_PREFIX = "tenuto-"
_LEAST_LIMIT = 1 << 20


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
        with open("/proc/self/cgroup") as stream:
            lines = [line.rstrip("\n").split(":", 2) for line in stream]
    except OSError:
        return None
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return f"{_GROUPS}/memory{path.rstrip('/')}", _V1
    for _, controllers, path in lines:
        if not controllers:
            return f"{_GROUPS}{path.rstrip('/')}", _V2
    return None


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
