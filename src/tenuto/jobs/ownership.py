"""The owner of a job, as its launch record names it: the one that asked first.
Reads only. Jobs that an experiment took over from a search, or the reverse, keep their first owner.
"""

from __future__ import annotations

from tenuto.errors import InvalidName
from tenuto.lifecycle.owner_names import Door, OwnerName
from tenuto.workspace.attempt_files import read_launch
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Files


def owner_of(files: Files, paths: JobPaths) -> OwnerName | None:
    """The owner that asked first for a job; None if its directory does not say."""
    try:
        launch = read_launch(files, paths)
        named = launch.owner if launch is not None else None
        return OwnerName.parse(named) if named else None
    except (OSError, InvalidName):
        return None


def is_of_no_run(owner: OwnerName | None) -> bool:
    """Whether a search or a service asked for the job: no run lists it, and none has to."""
    return owner is not None and owner.door is not Door.EXPERIMENTS
