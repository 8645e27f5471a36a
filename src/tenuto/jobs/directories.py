"""Directories read with care, and the files in them: a link could lead anywhere, and any may go meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.errors import TenutoError
from tenuto.jobs.key import JobKey
from tenuto.jobs.source import ActedAs
from tenuto.tasks.arguments import guarded
from tenuto.tasks.stored_configs import read_stored, read_task
from tenuto.workspace import job_directory, packs
from tenuto.workspace.layout import JobPaths, Layout, is_job_id, job_at, name_of_directory
from tenuto.workspace.lines import read_lines, seal
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import FileKind, Files, FileStat


class JobActed(NamedTuple):
    """One job, and the outcome of an action on it."""

    key: JobKey
    outcome: ActedAs
    detail: str = ""
    attempt: int = 0
    size: int = 0
    """Bytes of its directory, where it was deleted or would be; or in its pack."""


Seen = Mapping[JobKey, int]
"""The attempts that a person saw, of jobs to act on; a job that is not among them is meant as it is."""


def stale(key: JobKey, seen: Seen, attempt: int) -> JobActed | None:
    """The outcome of a request for another attempt than the current one; None if the request holds."""
    wanted = seen.get(key, attempt)
    if wanted == attempt:
        return None
    return JobActed(key, ActedAs.STALE, f"attempt {attempt} is the current one, not {wanted}", attempt)


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


def job_keys(
    files: Files, path: str, begins: Callable[[str], str | None] = lambda task_id: ""
) -> Iterator[JobKey]:
    """The jobs that a directory has an entry for, as `TASK/ID`.

    `begins`: how the ids that are wanted begin, of each task; None for a task of which none is.
    """
    for directory in subdirectories(files, path):
        task_id = name_of_directory(directory)
        beginning = begins(task_id) if task_id is not None else None
        if task_id is not None and beginning is not None:
            for name in entries(files, f"{path}/{directory}"):
                if name.startswith(beginning) and is_job_id(name):
                    yield JobKey(task_id, name)


class MovedJobs:
    """Which jobs of a workspace were moved to other names, for readers of lists that have the former ones."""

    def __init__(self, files: Files, layout: Layout) -> None:
        self._files, self._layout, self._path = files, layout, layout.moved
        self._seen: FileStat | None = None
        self.known: dict[JobKey, JobKey] = {}
        """What `read` gave last."""

    def present(self, key: JobKey) -> JobKey:
        """The key under which a job lies now, however often it was moved."""
        known = self.read()
        for _ in range(len(known)):
            if key not in known:
                break
            key = known[key]
        return key

    def former(self, key: JobKey) -> list[JobKey]:
        """The keys that a job had before."""
        return [one for one in self.read() if one != key and self.present(one) == key]

    def read(self) -> dict[JobKey, JobKey]:
        """By former key, the present one; read again when a job was moved since.

        A line is written before its job is moved: it holds once no directory is left under the former key.
        """
        try:
            found = self._files.stat(self._path)
            if found is not None and found != self._seen:
                contents = [line.content or {} for line in read_lines(self._files, self._path)]
                lines = dict(filter(None, map(_moved, contents)))
                self.known = {key: now for key, now in lines.items() if not self._is_there(key)}
                self._seen = found if len(self.known) == len(lines) else None
        except OSError:
            pass  # the lines read so far hold
        return self.known

    def _is_there(self, key: JobKey) -> bool:
        return is_real_directory(self._files, self._layout.job(*key).directory)

    def note(self, former: JobKey, now: JobKey) -> None:
        """Have a job be found under another key from now on."""
        file = self._files.open_append(self._path)
        try:
            file.append(seal({"former": list(former), "now": list(now)}))
            file.sync()
        finally:
            file.close()


def _moved(content: dict[str, Any]) -> tuple[JobKey, JobKey] | None:
    keys = [content.get("former"), content.get("now")]
    if all(isinstance(key, list) and len(key) == 2 and is_job_id(str(key[1])) for key in keys):
        return JobKey(*map(str, keys[0] or ())), JobKey(*map(str, keys[1] or ()))
    return None


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


# -- the task of a job's directory ---------------------------------------------------------------------


@guarded
def from_task_dir(directory: Path | str, *, as_instance: bool = False) -> Any:
    """The task whose job has this directory, with the tasks it depends on; live with `as_instance`.

    Jobs that were packed are put back first, since a task may open their files. Raises as `load`.
    """
    machine = this_machine()

    def read(file: str) -> bytes:
        try:
            job_directory.unpacked(machine, job_at(os.path.dirname(file)))
        except (OSError, TenutoError):  # a workspace that cannot be written to is read as it is
            return machine.files.read(file, packs.LARGEST_FILE)
        return read_stored(file)

    return read_task(os.fspath(directory), read, as_instance=as_instance)


# -- the files of a job's directory ----------------------------------------------------------------------


_DEEPEST = 40


class JobFile(NamedTuple):
    """One file."""

    path: str
    """From the job's directory on."""
    kind: FileKind
    size: int
    made_by_task: bool
    """False for what Tenuto keeps there."""


def job_files(files: Files, paths: JobPaths) -> Iterator[JobFile]:
    """The files of a job, a folder's after the files beside it; `OSError` without a directory."""
    own = {path.removeprefix(f"{paths.directory}/") for path in _kept(paths)}
    folders = [""]
    while folders:
        folder = folders.pop(0)
        try:
            names = files.list(f"{paths.directory}/{folder}".rstrip("/"))
        except OSError:
            if not folder:
                raise
            continue  # removed meanwhile, or closed to this user
        for name in names:
            path = f"{folder}{name}"
            found = files.stat(f"{paths.directory}/{path}")
            if found is None:
                continue
            if found.kind is FileKind.DIRECTORY:
                if path.count("/") < _DEEPEST:
                    folders.append(f"{path}/")
                continue
            root = path.partition("/")[0]
            kept = root in own or any(root.startswith(f"{one}.") for one in own)  # x.out.1, x.done.corrupt-1
            yield JobFile(path, found.kind, found.size, not kept)


def _kept(paths: JobPaths) -> tuple[str, ...]:
    return (
        paths.private,
        paths.params,
        paths.script,
        paths.out,
        paths.err,
        paths.done,
        paths.failed,
        paths.pid,
        paths.lock,
        paths.locks,
    )
