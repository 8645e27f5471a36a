"""Tasks of a workspace that look like one that was renamed: same parameters, another name.
It reads stored parameters and guesses; nothing is reused because of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tenuto.errors import TenutoError
from tenuto.jobs.key import JobKey
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.work import TaskWork
from tenuto.tasks.hints import Role
from tenuto.tasks.schema import schema_of
from tenuto.tasks.serialization import PARAMS_FILE, loads
from tenuto.workspace.layout import Layout, name_of_directory
from tenuto.workspace.ports import Files

_LARGEST = 4 << 20
_MOST_TASKS = 300
_MOST_JOBS = 5


def renamed_from(files: Files, job: Job, planned: set[str]) -> str | None:
    """The task id that a task without earlier jobs may have had; None if no task has the same parameters.

    `planned`: task ids that are still in use. Of several that fit, one whose class has the same name wins.
    """
    if not isinstance(job.work, TaskWork):
        return None
    parameters = schema_of(type(job.work.task)).parameters.values()
    names = frozenset(one.name for one in parameters if one.role is not Role.CONSTANT)
    own = job.task_id.rpartition(".")[2]
    fitting = [
        task_id
        for task_id, stored in _tasks(files, job.layout).items()
        if task_id not in planned and stored == names and names
    ]
    return max(fitting, key=lambda task_id: task_id.rpartition(".")[2] == own, default=None)


def _tasks(files: Files, layout: Layout) -> Mapping[str, frozenset[str]]:
    """The tasks of a workspace, with the names of the parameters of one of their jobs."""
    found: dict[str, frozenset[str]] = {}
    for folder in _listed(files, f"{layout.root}/jobs")[:_MOST_TASKS]:
        task_id = name_of_directory(folder)
        if task_id is None:
            continue
        for job_id in _listed(files, layout.task(task_id))[:_MOST_JOBS]:
            names = _stored_names(files, layout, JobKey(task_id, job_id))
            if names is not None:
                found[task_id] = names
                break
    return found


def _stored_names(files: Files, layout: Layout, key: JobKey) -> frozenset[str] | None:
    try:
        read: dict[str, Any] = loads(files.read(layout.job(*key).params, _LARGEST), PARAMS_FILE)
        root = read["objects"][read["value"]["$ref"]]
        return frozenset([*root.get("values", {}), *root.get("generated", {})])
    except (OSError, TenutoError, LookupError, TypeError, json.JSONDecodeError):
        return None


def _listed(files: Files, directory: str) -> list[str]:
    try:
        return sorted(files.list(directory))
    except OSError:
        return []
