"""The files of a job's directory, for a list.
Reads only, and follows no link.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import FileKind, Files

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
    """The files of a job, those of a folder after those beside it; `OSError` without a directory."""
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
