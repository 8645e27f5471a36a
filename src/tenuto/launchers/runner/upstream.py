"""The result of a job that the running job depends on, read from that job's directory.
It reads only; the scheduler started the running job after the other one was done.
"""

from __future__ import annotations

import os.path
from typing import Any

from tenuto.errors import NoResult
from tenuto.launchers.results import decoded
from tenuto.workspace.attempt_files import read_result
from tenuto.workspace.flags import RESULT_NOT_KEPT
from tenuto.workspace.layout import JobPaths, name_of_directory, script_name
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import Files


def read_upstream_result(files: Files, directory: str) -> Any:
    """What the task of the job in `directory` returned; `NoResult` says why there is nothing."""
    parent, job_id = os.path.split(directory)
    task_id = name_of_directory(os.path.basename(parent)) or os.path.basename(parent)
    paths = JobPaths(directory, script_name(task_id))
    name = f"{task_id} {job_id[:12]}"
    try:
        found = read_markers(files, paths)
        done, failed = found
        has_failed = isinstance(failed, Marker) and not (
            isinstance(done, Marker) and done.attempt > failed.attempt
        )
        if has_failed or not isinstance(done, Marker):
            raise NoResult(
                f"{name} has no result: it {'failed' if has_failed else 'is not done'} ({directory})"
            )
        if RESULT_NOT_KEPT in done.flags:
            raise NoResult(f"{name} is done, but has no result: {done.message}")
        return decoded(read_result(files, paths, done), directory)
    except (OSError, ValueError) as error:
        raise NoResult(f"the result of {name} cannot be read: {error}") from None
