"""Where a server keeps uploads and results: every path below its data directory, spelled once.
Makes and removes directories; reads no file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from contextlib import suppress
from typing import NamedTuple

from tenuto.workspace.modes import DIRECTORY_MODE, FILE_MODE

FILES = "files"
RESULT = "result.zip"
ACCEPTED_MODE = DIRECTORY_MODE | stat.S_ISVTX
"""Of the directory of a job whose row was written: if it is missing, the database is older than the data."""
_DIGITS = 19
"""Of the largest number that a database gives."""


class StoredJobPaths(NamedTuple):
    """The directory of one job."""

    directory: str

    @property
    def files(self) -> str:
        """The uploaded files, until a node took it or the job ended."""
        return f"{self.directory}/{FILES}"

    @property
    def result(self) -> str:
        return f"{self.directory}/{RESULT}"

    def incoming(self, claim: int) -> str:
        """Where a result arrives; two servers that both believe to own a job do not share it."""
        return f"{self.directory}/result-{claim}.zip"

    def is_tidy(self) -> bool:
        """True if `tidy` has nothing to remove."""
        return all(name == RESULT for name in _listed(self.directory))

    def tidy(self) -> None:
        """Removes all but the result: uploads, and what servers that were killed had of results.

        Also the second name of a result: to rename a file to another name of itself does nothing.
        """
        for name in _listed(self.directory):
            if name != RESULT:
                path = f"{self.directory}/{name}"
                if name == FILES:
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    remove_quietly(path)


class DataPaths:
    """The data directory of a server."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.jobs = f"{root}/jobs"
        self.trash = f"{root}/trash"
        self._numbers = f"{root}/last-job"

    def make(self) -> None:
        """Makes the directories, and empties the trash."""
        for path in (self.root, self.jobs, self.trash):
            os.makedirs(path, mode=DIRECTORY_MODE, exist_ok=True)
        self.empty_trash()

    def job(self, name: str) -> StoredJobPaths:
        return StoredJobPaths(f"{self.jobs}/{name}")

    def open_job(self, name: str) -> StoredJobPaths:
        """Makes the directory of a new job."""
        place = self.job(name)
        os.mkdir(place.directory, DIRECTORY_MODE)
        os.mkdir(place.files, DIRECTORY_MODE)
        return place

    def accept(self, name: str, number: int) -> None:
        """Notes that a directory has its row, and the number of its job."""
        with suppress(FileNotFoundError):  # the job has ended, and was cleaned
            os.chmod(self.job(name).directory, ACCEPTED_MODE)
        with suppress(OSError):  # the row is there, whatever becomes of the note
            self.last_number(number)

    def last_number(self, given: int = 0) -> int:
        """The largest number that a job of this data ever had, once ``given`` counts, too; 0 of new data.

        The database knows it, unless it was restored: then it would give numbers to other jobs once more.
        """
        descriptor = os.open(self._numbers, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # of other threads, and servers that share the data
            text = os.pread(descriptor, _DIGITS, 0)
            last = int(text) if text.isdigit() else 0
            if given > last:
                os.pwrite(descriptor, b"%0*d" % (_DIGITS, given), 0)
            return max(last, given)
        finally:
            os.close(descriptor)

    def was_accepted(self, name: str) -> bool:
        """True if a directory has had a row, of whatever database; a kill may cut an upload before that."""
        directory = self.job(name).directory
        with suppress(FileNotFoundError):
            return bool(os.stat(directory).st_mode & stat.S_ISVTX) or os.path.exists(f"{directory}/{RESULT}")
        return False

    def sync(self) -> None:
        """Has the kernel write the list of jobs' directories to the disk."""
        synced(self.jobs)

    def discard(self, name: str) -> None:
        """Removes the directory of a job: out of sight by one rename, then file by file."""
        target = f"{self.trash}/{name}"
        try:
            os.rename(self.job(name).directory, target)
        except FileNotFoundError:
            return
        shutil.rmtree(target, ignore_errors=True)

    def empty_trash(self) -> None:
        """Deletes what a crash left in the trash."""
        for name in os.listdir(self.trash):
            shutil.rmtree(f"{self.trash}/{name}", ignore_errors=True)

    def names(self) -> list[str]:
        """The directories of jobs that are there."""
        return os.listdir(self.jobs)

    def age_s(self, name: str, now: float) -> float | None:
        """How long ago a directory changed last; None if it is gone."""
        try:
            return now - os.stat(self.job(name).directory).st_mtime
        except FileNotFoundError:
            return None


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:  # the cleaner was faster
        return []


def private(path: str, flags: int) -> int:
    """Opens a new file for this account alone, whatever the umask: the ``opener`` of `open`."""
    return os.open(path, flags, FILE_MODE)


def synced(path: str) -> None:
    """Has the kernel write a file to the disk, or the list of a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_quietly(path: str) -> None:
    """Removes a file that may not be there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def free_bytes(directory: str) -> int:
    """The room that is left on the disk of a directory."""
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize
