"""Directories read with care: a link could lead anywhere, and any of them may go meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from tenuto.jobs.key import JobKey
from tenuto.workspace.layout import is_job_id, name_of_directory
from tenuto.workspace.ports import FileKind, Files

_MOST_ENTRIES = 200_000


def is_real_directory(files: Files, path: str) -> bool:
    """Whether a directory lies there, and not a link to one; raises `OSError` if that cannot be told."""
    found = files.stat(path)
    return found is not None and found.kind is FileKind.DIRECTORY


def entries(files: Files, path: str) -> list[str]:
    """The names in a directory; none if it cannot be read."""
    try:
        return files.list(path)
    except OSError:
        return []


def subdirectories(files: Files, path: str) -> list[str]:
    """The names of the real directories in a real directory; none if it cannot be read."""
    try:
        if not is_real_directory(files, path):
            return []
        return [name for name in files.list(path) if is_real_directory(files, f"{path}/{name}")]
    except OSError:
        return []


def job_keys(files: Files, path: str) -> Iterator[JobKey]:
    """The jobs that a directory has an entry for, as `TASK/ID`."""
    for directory in subdirectories(files, path):
        task_id = name_of_directory(directory)
        if task_id is not None:
            for name in entries(files, f"{path}/{directory}"):
                if is_job_id(name):
                    yield JobKey(task_id, name)


def directory_size(files: Files, path: str) -> int:
    """The bytes of all files below a directory, without following links; of very many files, a part."""
    size = count = 0
    pending = [path]
    while pending and count < _MOST_ENTRIES:
        directory = pending.pop()
        for name in entries(files, directory):
            count += 1
            found = files.stat(f"{directory}/{name}")
            if found is not None and found.kind is FileKind.DIRECTORY:
                pending.append(f"{directory}/{name}")
            elif found is not None:
                size += found.size
    return size
