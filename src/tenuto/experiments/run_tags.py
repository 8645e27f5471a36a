"""Tags of a run: words that a person keeps it by. A tagged run is never pruned.
Each is a file of its own, so that two processes never undo each other's.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenuto.workspace.layout import RunPaths, name_of_directory
from tenuto.workspace.ports import Files


def read_tags(files: Files, run: RunPaths) -> tuple[str, ...]:
    """The tags of a run, in order; none if they cannot be read."""
    try:
        names = files.list(run.tags)
    except OSError:
        return ()
    return tuple(sorted(tag for name in names if (tag := name_of_directory(name)) is not None))


def add_tags(files: Files, run: RunPaths, tags: Iterable[str]) -> None:
    """Adds tags; `InvalidName` for a word that cannot be one."""
    paths = [run.tag(tag) for tag in tags]
    files.make_directory(run.tags)
    for path in paths:
        files.write(path, b"")


def remove_tags(files: Files, run: RunPaths, tags: Iterable[str]) -> list[str]:
    """Takes tags away; returns those that it had."""
    return [tag for tag in tags if files.remove(run.tag(tag))]
