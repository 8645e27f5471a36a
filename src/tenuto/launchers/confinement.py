"""How a command is kept apart from its machine: bubblewrap, a uid of its own, or not at all.
Makes command lines and environments, and tries them; runners and jobs start commands, with their limits.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, unique
from fnmatch import fnmatchcase
from glob import glob
from types import MappingProxyType
from typing import NamedTuple

from tenuto.errors import InvalidSetting, UnsafeService

FIRST_UID = 61184
UIDS = 4096
INSIDE = "/work"
"""Where a payload sees its directory inside the sandbox."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
_GPU_DEVICES = ("/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/dxg")
_TRY_S = 10.0
COMMON = ("/tmp", "/var/tmp", "/dev/shm")
"""The places that every user may write to, which a payload with a uid alone shares with others."""
RESOLVER = "/run/systemd/resolve"


@unique
class SandboxMode(Enum):
    """How payloads are kept apart."""

    BWRAP = "bwrap"
    UID = "uid"
    NONE = "none"


class Guest(NamedTuple):
    """What one payload may have."""

    work: str
    uid: int | None
    """Its own uid; None: the node's."""
    network: bool = False
    paths: tuple[str, ...] = ()
    """Places that it may read, besides the system's."""
    gpus: bool = False
    """Whether it sees the devices of GPUs."""
    processes: int | None = None
    """How many it may have, counted inside its own user namespace: where all payloads have one uid, a limit
    outside counts the processes of all of them, and one fails the others."""
    memory_bytes: int | None = None
    """The size of each of its file systems in memory."""
    started: str | None = None
    """A file outside, relative to its directory, that is written just before its program begins."""
    inside: str = INSIDE
    """Where it sees its directory."""
    writable: tuple[str, ...] = ()
    """Places that it may write, besides its directory."""


class Private(NamedTuple):
    """What belongs to the service, and no payload may see."""

    directories: tuple[str, ...] = ()
    """The data of server and node."""
    files: tuple[str, ...] = ()
    """Settings, secrets, keys."""
    databases: tuple[str, ...] = ()
    """Files of SQLite: the whole directory of one is hidden, since its journals come and go."""

    def everywhere(self) -> Private:
        """The same by every path that leads to it now: a bind mount shows it once more."""
        return Private(*(tuple(path for given in kind for path in _paths_of(given)) for kind in self))

    def objection(self, place: str) -> str | None:
        """Why a payload must not be shown a place, whatever is hidden in it; None if it may be."""
        real = os.path.realpath(place)
        for directory in self.directories:
            if _below(os.path.realpath(directory), real) is not None:
                return f"{place} lies in the service's own directory {directory}"
        for path in self.databases:
            if real == os.path.realpath(os.path.dirname(path)):
                return f"the database {path} lies directly in {place}"
        if any(real == os.path.realpath(path) for path in self._all_files()):
            return f"{place} is the service's own"
        return None

    def hidden_in(self, place: str, *, by_others: bool) -> tuple[list[str], list[str]]:
        """The directories and the files to be hidden in a place, by their names in it.

        ``by_others``: a payload with a uid of its own sees it, and cannot hide a place that it cannot reach.
        """
        real = os.path.realpath(place)
        directories: list[str] = []
        for path in sorted(map(os.path.realpath, (*self.directories, *map(os.path.dirname, self.databases)))):
            rest = _below(real, path)
            if rest and os.path.isdir(path) and (not by_others or _is_reached(path)):
                directories.append(place + rest)
        files = [
            place + rest
            for path in map(os.path.realpath, self.files)
            if (rest := _below(real, path)) and os.path.exists(path) and (not by_others or _is_reached(path))
        ]
        return directories, [file for file in files if not any(_below(one, file) for one in directories)]

    def readable_by_others(self) -> Iterator[str]:
        """The files that every user of the machine may read."""
        for path in self._all_files():
            if os.path.exists(path) and os.stat(path).st_mode & 0o004 and _is_reached(os.path.realpath(path)):
                yield path

    def _all_files(self) -> Iterator[str]:
        yield from self.files
        for path in self.databases:
            yield from database_files(path)


NOTHING = Private()


def database_files(path: str) -> tuple[str, ...]:
    """The files of a SQLite database: its own, and those that SQLite keeps beside it."""
    return (path, f"{path}-wal", f"{path}-shm", f"{path}-journal")


def passed_on(variables: Mapping[str, str], patterns: Sequence[str]) -> dict[str, str]:
    """The variables that a command sees; never Tenuto's own: a `tenuto` inside refuses them."""
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith("TENUTO_") and any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def _below(above: str, path: str) -> str | None:
    """The rest of a path below another one: empty for the same, None if it is not below."""
    if path == above:
        return ""
    return path[len(above.rstrip("/")) :] if path.startswith(above.rstrip("/") + "/") else None


class _Mount(NamedTuple):
    """A part of a file system, from `root` on, that is shown at `point`."""

    device: str
    root: str
    point: str


def _mounts() -> list[_Mount]:
    """The mounts that this process sees, the later ones over the earlier."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            found = [line.split(" ")[2:5] for line in file]
    except OSError:  # not Linux
        return []
    # A space is written as \040.
    return [
        _Mount(*(re.sub(r"\\([0-7]{3})", lambda at: chr(int(at[1], 8)), word) for word in one))
        for one in found
    ]


def _paths_of(path: str) -> Iterator[str]:
    """All paths that lead to a place, or to something in it; the given one first."""
    yield path
    real, mounts = os.path.realpath(path), _mounts()

    def shown(place: str) -> _Mount | None:
        above = [mount for mount in mounts if _below(mount.point, place) is not None]
        return max(reversed(above), key=lambda mount: len(mount.point), default=None)

    own = shown(real)
    if own is None:
        return
    inner = own.root.rstrip("/") + (_below(own.point, real) or "") or "/"
    for mount in mounts:
        if mount is own or mount.device != own.device or shown(mount.point) is not mount:
            continue
        rest = "" if _below(inner, mount.root) is not None else _below(mount.root, inner)
        if rest is not None:
            yield mount.point.rstrip("/") + rest


def _is_reached(path: str) -> bool:
    """Whether every user may pass through the directories above a path."""
    above = os.path.dirname(path)
    return bool(os.stat(above).st_mode & 0o001) and (above == "/" or _is_reached(above))


class Sandbox(NamedTuple):
    """The sandbox of a node."""

    mode: SandboxMode
    is_root: bool
    private: Private = NOTHING

    def uid_of(self, payload_id: int) -> int | None:
        """The uid of a payload: one of its own if the node may give it one, and keeps payloads apart."""
        if not self.is_root or self.mode is SandboxMode.NONE:
            return None
        return FIRST_UID + payload_id % UIDS

    def command(self, guest: Guest, program: Sequence[str]) -> tuple[str, ...]:
        """The command line of a payload, to be run in its directory."""
        if self.mode is not SandboxMode.BWRAP:
            return tuple(program)
        return _begun(guest, (*bwrap(guest, self.private), *_limited(guest, program)))

    def home(self, guest: Guest) -> str:
        """The directory of a payload, as it sees it."""
        return INSIDE if self.mode is SandboxMode.BWRAP else guest.work


def bwrap(guest: Guest, private: Private = NOTHING) -> list[str]:
    """The arguments of bubblewrap: its own places, those that it may read, and its directory.

    Files private to the service are hidden in each place that is shown; a place that is shown later, below
    one that is hidden, is there.
    """
    line = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    if guest.network:
        line.append("--share-net")
    for path in SYSTEM:
        if os.path.islink(path):
            line += ["--symlink", os.readlink(path), path]
    size = [] if guest.memory_bytes is None else ["--size", str(guest.memory_bytes)]
    line += [*size, "--tmpfs", "/tmp", "--dev", "/dev", "--proc", "/proc"]
    if size:
        line += [*size, "--tmpfs", "/dev/shm"]
    if guest.network:  # systemd-resolved keeps there what /etc/resolv.conf leads to
        line += ["--ro-bind-try", RESOLVER, RESOLVER]
    if guest.gpus:
        for device in gpu_devices():
            line += ["--dev-bind", device, device]
        line += ["--ro-bind-try", "/sys", "/sys"]  # drivers look devices up there
    emptied: dict[str, None] = {}
    for place in (*_shown(), *guest.paths):
        line += ["--ro-bind", place, place]
        directories, files = private.hidden_in(place, by_others=guest.uid is not None)
        for directory in directories:
            line += ["--tmpfs", directory]
            emptied[directory] = None
        for file in files:
            line += ["--ro-bind", "/dev/null", file]
    for place in guest.writable:
        line += ["--bind", place, place]
    line += ["--bind", guest.work, guest.inside]
    for directory in emptied:  # at last: places that are shown below it are made in it
        line += ["--remount-ro", directory]
    if size:  # /dev is a file system in memory, too
        line += ["--remount-ro", "/dev"]
    return [*line, "--chdir", guest.inside, "--"]


def _limited(guest: Guest, program: Sequence[str]) -> tuple[str, ...]:
    """The program inside the sandbox, after the limits that count there alone and the sign that it begins."""
    steps = []
    if guest.processes is not None:
        steps.append(f"ulimit -u {guest.processes}")
    if guest.started is not None:
        steps += ["echo begun >&9", "exec 9>&-"]
    if not steps:
        return tuple(program)
    return ("bash", "-c", " && ".join([*steps, 'exec "$@"']), "bash", *program)


def _begun(guest: Guest, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command with the file open that says whether its program has begun."""
    if guest.started is None:
        return command
    return ("sh", "-c", 'exec "$@" 9>>"$0"', guest.started, *command)


def gpu_devices() -> list[str]:
    """The devices of GPUs of any maker, and what their drivers are asked by."""
    return sorted(path for pattern in _GPU_DEVICES for path in glob(pattern))


def missing_program(
    sandbox: Sandbox, program: str, paths: Sequence[os.PathLike[str]], search: str | None
) -> str | None:
    """Why payloads cannot run a program; None if they can, or if it is one of their own files.

    ``search``: the PATH of payloads; ``paths``: the places that they see besides the system's.
    """
    if "/" in program and not program.startswith("/"):
        return None  # relative to the files of the upload
    found = shutil.which(program, path=search)
    if found is None:
        return f"there is no program {program} here, or it is not executable"
    if sandbox.mode is SandboxMode.BWRAP:
        seen = [os.path.realpath(place) for place in (*_shown(), *map(str, paths))]
        if not any(_below(place, os.path.realpath(found)) is not None for place in seen):
            return f"{found} is not seen in the sandbox: name its directory in paths"
    return None


def _shown() -> list[str]:
    """The places of the system that every payload sees."""
    return [path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]


def refuse_exposed(wanted: str, private: Private, paths: Mapping[str, Sequence[str]]) -> None:
    """Refuses places that payloads cannot be shown, before anything is made; ``paths``: by setting."""
    for setting, places in paths.items():
        for place in places:
            if not os.path.exists(place):
                raise InvalidSetting(f"{setting}: {place} is not there: correct it, or leave it out")
            real = os.path.realpath(place)
            for own in ("/", "/tmp", "/dev", "/proc", INSIDE):
                if real == own or (own in ("/proc", INSIDE) and _below(own, place)):
                    raise InvalidSetting(
                        f"{setting}: {place} cannot be shown: payloads have {own} of their own"
                    )
    if wanted in ("auto", "bwrap") and shutil.which("bwrap") is not None:
        for place in (*_shown(), *(place for places in paths.values() for place in places)):
            if (objection := private.objection(place)) is not None:
                raise UnsafeService(f"payloads would see what is not theirs: {objection}; move one of them")


def may_change_uid(wanted: str) -> bool:
    """Whether payloads may get uids of their own, which pass through the directories above theirs."""
    return os.geteuid() == 0 and wanted != SandboxMode.NONE.value


def choose(
    wanted: str,
    data: str,
    *,
    must: bool,
    private: Private = NOTHING,
    paths: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Sandbox:
    """The sandbox that was asked for, tried out in the node's directory; raises `UnsafeService`.

    ``must``: without any sandbox the node must not run, unless that was asked for by name. ``private``: what
    no payload may see. ``paths``: what payloads are shown, by the setting that says so.
    """
    is_root = os.geteuid() == 0
    why: list[str] = []
    if wanted in ("auto", "bwrap"):
        sandbox = Sandbox(SandboxMode.BWRAP, is_root, private)
        problem = trial(sandbox, data)
        if problem is None:
            for setting, places in paths.items():
                if places and (problem := trial(sandbox, data, places)) is not None:
                    raise InvalidSetting(f"{setting}: payloads cannot be shown them: {problem}")
            return sandbox
        why.append(f"bubblewrap: {problem}")
    if wanted in ("auto", "uid"):
        if is_root:
            sandbox = Sandbox(SandboxMode.UID, is_root, private)
            problem = trial(sandbox, data)
            if problem is None:
                if (readable := next(private.readable_by_others(), None)) is not None:
                    raise UnsafeService(f"payloads could read {readable}: chmod 600 {readable}")
                return sandbox
            why.append(f"uid: {problem}")
        else:
            why.append("uid: only root can give payloads a uid of their own")
    if wanted in ("bwrap", "uid") or (wanted == "auto" and must):
        raise UnsafeService(
            f"no sandbox for what users upload ({'; '.join(why)}): install bubblewrap, or allow their "
            "programs everything that this account may do with --sandbox none"
        )
    return Sandbox(SandboxMode.NONE, is_root)


def trial(sandbox: Sandbox, data: str, paths: Sequence[str] = ()) -> str | None:
    """What keeps a sandbox from working here; None if it works."""
    if sandbox.mode is SandboxMode.BWRAP and shutil.which("bwrap") is None:
        return "it is not installed"
    work = os.path.join(data, ".sandbox-trial")
    os.makedirs(work, mode=0o700, exist_ok=True)
    uid = sandbox.uid_of(0)
    try:
        if uid is not None:
            os.chown(work, uid, uid)
        command = sandbox.command(Guest(work, uid, paths=tuple(paths)), ["/bin/sh", "-c", "touch x"])
        try:
            ended = subprocess.run(
                command,
                cwd=work,
                user=uid,
                group=uid,
                extra_groups=[] if uid is not None else None,
                capture_output=True,
                text=True,
                timeout=_TRY_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        if ended.returncode == 0:
            return None
        said = ended.stderr.strip()[:200]
        if "ermission denied" in said and uid is not None:
            return f"{said} (the directories above {data} must let other users pass: chmod a+x)"
        return said or f"exit code {ended.returncode}"
    finally:
        shutil.rmtree(work, ignore_errors=True)


def clear_common(uid: int) -> None:
    """Removes what the processes of a uid, which have ended, left in the places that all users share."""
    for place in COMMON:
        with suppress(OSError), os.scandir(place) as found:
            for entry in found:
                with suppress(OSError):  # another user may remove it, too
                    if entry.stat(follow_symlinks=False).st_uid != uid:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    else:
                        os.unlink(entry.path)


def hand_over(work: str, uid: int) -> None:
    """Gives the files of a payload to its uid alone."""
    for above, folders, files in os.walk(work):
        for name in (*folders, *files):
            os.chown(os.path.join(above, name), uid, uid, follow_symlinks=False)
    os.chmod(work, 0o700)
    os.chown(work, uid, uid)
