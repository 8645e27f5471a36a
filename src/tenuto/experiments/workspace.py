"""A workspace as a person names it: a path, a name from the settings, or the one last used from a directory.
Makes its root, for the owner alone or for a group, and words the problems of its disk.
Shares no workspace that holds something.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import hashlib
import os
import os.path
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from tenuto.errors import DirectoryUnusable, TenutoError
from tenuto.settings import Settings, expanded, state_directory
from tenuto.tasks.arguments import guarded
from tenuto.workspace.layout import Layout
from tenuto.workspace.modes import DIRECTORY_MODE, SHARED, is_shared
from tenuto.workspace.ports import Files


@guarded
class Workspace:
    """The directory that keeps jobs, experiments and results."""

    def __init__(self, path: Path | str) -> None:
        """`path`: of the directory, which need not exist yet; ``~`` is the home of the user."""
        own = Path(expanded(path))
        self.path = Path(os.path.abspath(own if own.is_absolute() else working_directory() / own))
        self.layout = Layout(str(self.path))

    @classmethod
    def named(cls, given: Path | str | Workspace | None, settings: Settings) -> Workspace:
        """A workspace as it is; the workspace that the settings call so; or a path."""
        return given if isinstance(given, Workspace) else cls(settings.workspace(given))

    def __repr__(self) -> str:
        return f"Workspace({str(self.path)!r})"


def working_directory() -> Path:
    """The working directory; `DirectoryUnusable` if it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise DirectoryUnusable("the working directory was removed: go to one that is there") from None


def make_root(files: Files, root: str, group: str | None) -> None:
    """Make the directory of a workspace, for its owner alone or shared with a group.

    Raises `DirectoryUnusable` if there is no such group, or the workspace exists and is not shared with it.
    """
    number = None if group is None else _number(group)
    files.make_directory(os.path.dirname(root))
    try:
        os.mkdir(root, DIRECTORY_MODE)
        is_new = True
    except FileExistsError:
        is_new = False
    if group is None or number is None:
        return
    found = os.stat(root)
    if is_shared(root) and found.st_gid == number:
        return
    if not is_new and (os.listdir(root) or found.st_uid != os.geteuid()):
        place = shlex.quote(root)
        raise DirectoryUnusable(
            f"{root} exists and is not shared with the group {group!r}. Its owner shares it with all that it "
            f"holds by: chgrp -R {shlex.quote(group)} {place} && chmod -R g+rwX {place} && "
            f"find {place} -type d -exec chmod g+s {{}} +"
        )
    try:
        os.chown(root, -1, number)
    except PermissionError:
        raise DirectoryUnusable(
            f"{root} cannot be shared with the group {group!r}, of which you are no member: "
            f"ask to be added to it, or set workspace_group to one of yours (`id -Gn` lists them)"
        ) from None
    os.chmod(root, DIRECTORY_MODE | SHARED)


def _number(group: str) -> int:
    if group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise DirectoryUnusable(
            f"this machine has no group {group!r}: set workspace_group to one that it has "
            f"(`getent group` lists them)"
        ) from None


_LONGEST = 4096


def remember_workspace(files: Files, workspace: Path) -> None:
    """Note that an experiment was run from the working directory with this workspace."""
    content = os.fsencode(workspace)
    with contextlib.suppress(OSError, TenutoError):  # no home, a full disk: then it is not found so easily
        file = _file(Path.cwd())
        try:
            if files.read(file, _LONGEST) == content:
                return
        except FileNotFoundError:
            files.make_directory(os.path.dirname(file))
        files.replace(file, content, durable=False)


def last_workspace(files: Files, directory: Path) -> Path | None:
    """The workspace that was last used from a directory; None if that is not known."""
    try:
        return Path(os.fsdecode(files.read(_file(directory), _LONGEST)))
    except (OSError, TenutoError):
        return None


def _file(directory: Path) -> str:
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]
    return f"{state_directory()}/workspaces/{digest}"


# -- the problems of a disk, and their remedies ------------------------------------

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


@contextlib.contextmanager
def disk_explained(root: str, consequence: str) -> Iterator[None]:
    """Words an error of a disk: which directory cannot be used, and what follows for the run."""
    try:
        yield
    except OSError as error:
        raise DirectoryUnusable(
            f"{worded_error(error, root)} ({error.strerror or error}); {consequence}"
        ) from error


def worded_error(error: OSError, directory: str) -> str:
    """What an error says of a directory that was to be used."""
    place = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else directory
    if error.errno in _FULL:
        return (
            f"DISK_FULL: {place} cannot be written: {_disk(directory)} is full, or your quota of it. Remove "
            f"what is not needed, as by `tenuto clean --orphans -w {directory}`, and run it again"
        )
    if error.errno == errno.EROFS:
        disk = _disk(directory)
        return f"{place} cannot be written: {disk} is read-only: use another workspace, or have it remounted"
    if error.errno in _FORBIDDEN:
        return (
            f"{place} cannot be written: {_rights(place)}: use another workspace, or have its "
            f"owner share it with a group of yours, see workspace_group in docs/settings.md"
        )
    return f"{place} cannot be used: {error.strerror}: use another workspace"


def _disk(path: str) -> str:
    """The disk that a path lies on, by where it is mounted, and its free space."""
    known = _existing(path)
    mounted = known
    while not os.path.ismount(mounted) and mounted != "/":
        mounted = os.path.dirname(mounted)
    with contextlib.suppress(OSError):
        found = os.statvfs(known)
        free = found.f_bavail * found.f_frsize
        return f"the disk at {mounted} ({free // 2**20} MiB and {found.f_favail} files left)"
    return f"the disk at {mounted}"


def _rights(path: str) -> str:
    known = _existing(path)
    with contextlib.suppress(OSError):
        found = os.stat(known)
        mode = stat.filemode(found.st_mode)
        return f"{known} belongs to user {found.st_uid} ({mode}), and you are user {os.geteuid()}"
    return "you have no right to"


def _existing(path: str) -> str:
    """The nearest directory above a path that is there."""
    known = os.path.abspath(path)
    while not os.path.exists(known) and known != "/":
        known = os.path.dirname(known)
    return known
