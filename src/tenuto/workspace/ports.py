"""What the workspace asks of the machine: files, locks, processes.
Only the adapters (`files`, `locks`, `processes`) and the fakes in `tenuto.testing` implement these.

Missing files, full disks and the like surface as the `OSError` of the system call.
"""

from collections.abc import Callable, Sequence
from enum import Enum, unique
from typing import Protocol

from tenuto.clock import Clock, Randomness
from tenuto.light import NamedTuple

RUNNER_BYTE = 0
"""The byte of a job's lock file that its runner (or a scheduler preparing it) holds."""
DESCENDANTS_BYTE = 1
"""The byte that everything the payload ever forked inherits."""
_TEMPORARY = ".tenuto-tmp"


def temporary_name(path: str, unique: str) -> str:
    """What `Files.replace` calls the file it writes before the rename; `unique` begins with pid and -."""
    return f"{path}.{unique}{_TEMPORARY}"


def is_temporary(name: str) -> bool:
    """Whether a crash in `Files.replace` left this file. Only Tenuto uses such names."""
    return name.endswith(_TEMPORARY)


def writer_of(name: str) -> int | None:
    """The pid of the process that made a temporary file; None if it is none, or does not tell."""
    pid = name.removesuffix(_TEMPORARY).rpartition(".")[2].partition("-")[0]
    return int(pid) if is_temporary(name) and pid.isascii() and pid.isdigit() else None


@unique
class FileKind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


class FileStat(NamedTuple):
    """What `lstat` says, as far as Tenuto cares."""

    kind: FileKind
    size: int
    inode: int
    mode: int
    changed: int = 0
    """When content, entries or names changed last, as the file system counts nanoseconds."""
    names: int = 1
    """How many hard links lead to it."""


class FreeSpace(NamedTuple):
    bytes: int
    inodes: int


class Appender(Protocol):
    """An open file that only grows. One `append` is one write."""

    path: str

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end; on `OSError` a part of it may have been written."""
        ...

    def sync(self) -> None:
        """Return once everything appended so far survives a power loss."""
        ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Files(Protocol):
    """A disk. Created directories are 0700 and files 0600."""

    def read(self, path: str, limit: int) -> bytes:
        """The content of a regular file. Never follows a link, blocks on a pipe, or reads beyond `limit`.

        Raises `NotRegularFile` or `FileTooLarge`.
        """
        ...

    def read_range(self, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`; empty at the end. Raises `NotRegularFile`."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Create or overwrite in place: neither atomic nor durable. For files that no reader opens early."""
        ...

    def replace(self, path: str, data: bytes, *, durable: bool, reserve: str | None = None) -> None:
        """Replace the content atomically: temporary file, rename; if `durable`, both synced.

        `reserve` names a preallocated file of the same directory to use as the temporary one, so that a full
        disk does not stop the write; it is used up. On failure no temporary file stays behind.
        """
        ...

    def create_exclusive(self, path: str, data: bytes = b"") -> None:
        """Create the file; `FileExistsError` if anything has that name."""
        ...

    def open_append(self, path: str, *, exclusive: bool = False) -> Appender:
        """Open for appending, creating the file; `exclusive`: `FileExistsError` if it exists."""
        ...

    def preallocate(self, path: str, size: int) -> None:
        """Create (or keep) a file with `size` bytes of the disk set aside for it."""
        ...

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents; fine if it exists."""
        ...

    def remove(self, path: str) -> bool:
        """Remove a file or a link; False if there was none."""
        ...

    def remove_directory(self, path: str) -> bool:
        """Remove an empty directory; False if there is none, or if it is not empty."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it, never following a link; fine if there is none."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically; replaces a file of that name."""
        ...

    def symlink(self, target: str, path: str) -> None:
        """Make `path` a link to `target`, atomically replacing another link."""
        ...

    def link(self, source: str, path: str) -> None:
        """Make `path` one more name of the file at `source`, which may be a link itself.

        Not every disk can, nor any disk without end: `OSError`, also if something has that name.
        """
        ...

    def read_link(self, path: str) -> str: ...

    def stat(self, path: str) -> FileStat | None:
        """The entry itself, without following a link; None if nothing."""
        ...

    def stat_file(self, path: str) -> FileStat | None:
        """The same of a regular file, opened for it: a network file system asks its server then."""
        ...

    def touch(self, path: str) -> None:
        """Give the file the present as the time of its last change; `FileNotFoundError` if there is none."""
        ...

    def dress(self, path: str, mode: int, modified: int | None) -> None:
        """Give a file or directory its mode, and unless None the time of its last change in nanoseconds."""
        ...

    def modified(self, path: str) -> int | None:
        """A number that differs after each change and each `touch`; None if there is no file.

        The file is opened and not only looked at: a network file system asks its server then.
        """
        ...

    def list(self, path: str) -> list[str]:
        """The sorted names in a directory; `FileNotFoundError` if there is none."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in this directory durable."""
        ...

    def sync_tree(self, path: str, skip: Callable[[str], bool]) -> None:
        """Make every file below a directory durable, and the directories that list them.

        `skip`: asked for the name of each entry of the top, and True for entries that are left out with all
        below them. Links are not followed. A directory of which all is skipped costs one look.
        """
        ...

    def free_space(self, path: str) -> FreeSpace: ...


class LockHandle(Protocol):
    """A lock held through one open file description. A process that inherits the descriptor holds it too."""

    path: str
    byte: int

    def fileno(self) -> int: ...

    def intact(self) -> bool:
        """False if the path no longer leads to the locked file: a person deleted or replaced it."""
        ...

    def close(self) -> None:
        """Close this copy of the descriptor; the lock falls with the last copy. Never unlocks explicitly."""
        ...


class Locks(Protocol):
    """Kernel locks on bytes of a file. A lock file is never deleted."""

    def try_lock(self, path: str, byte: int = RUNNER_BYTE) -> LockHandle | None:
        """Lock without waiting; None if it is held. Creates the file (0600), but not its directory."""
        ...

    def try_lock_all(self, path: str, numbers: Sequence[int]) -> tuple[LockHandle, ...] | None:
        """Lock several bytes of one file without waiting, all or none, by as few descriptors as can be."""
        ...

    def locked(self, path: str) -> frozenset[int]:
        """Every byte of the file that a process holds. Takes nothing, and wakes no watcher of the file."""
        ...

    def adopt(self, fd: int, path: str, byte: int = RUNNER_BYTE) -> LockHandle:
        """The handle of an inherited descriptor; `LockLost` if it does not hold the lock of that path."""
        ...

    def is_locked(self, path: str, byte: int = RUNNER_BYTE, length: int = 1) -> bool:
        """True if a process, this one included, holds one of `length` bytes from `byte` on. Takes nothing."""
        ...

    def holders(self, path: str, byte: int = RUNNER_BYTE) -> tuple[int, ...]:
        """The pids that hold the byte, as far as this user may see. Slow: for messages and for sweeping."""
        ...


class ProcessIdentity(NamedTuple):
    """A process, told apart from any other that ever had its pid."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    start_time: int
    """Clock ticks after boot."""


@unique
class Liveness(Enum):
    ALIVE = "alive"
    DEAD = "dead"
    REBOOTED = "dead, since its machine was started again"
    UNKNOWN = "of another machine or pid namespace"


class ProcessHandle(Protocol):
    """A pidfd: refers to one process for ever, whatever becomes of its pid."""

    identity: ProcessIdentity

    def fileno(self) -> int:
        """Readable once the process has ended."""
        ...

    def send_signal(self, signal: int) -> bool:
        """False if the process had ended."""
        ...

    def ended(self) -> bool: ...

    def close(self) -> None: ...


class Processes(Protocol):
    """The processes of this machine. A zombie counts as dead: it holds no lock any more."""

    def own(self) -> ProcessIdentity: ...

    def identify(self, pid: int) -> ProcessIdentity | None:
        """The process that has this pid now; None if no process has it."""
        ...

    def liveness(self, identity: ProcessIdentity) -> Liveness: ...

    def open(self, identity: ProcessIdentity) -> ProcessHandle | None:
        """A handle on exactly that process, checked after opening; None unless alive and of this machine."""
        ...


class Machine(NamedTuple):
    """All ports together: what a simulator swaps."""

    files: Files
    locks: Locks
    processes: Processes
    clock: Clock
    randomness: Randomness
