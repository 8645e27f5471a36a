"""Jobs that were done under the name that their task had before its class was renamed, and their move.
It looks at directories and moves them; what a former name is comes from `tasks.deprecation`.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from tenuto.errors import TenutoError
from tenuto.jobs.directories import JobActed, MovedJobs, Outcome, is_real_directory
from tenuto.jobs.key import JobKey
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job, TaskWork
from tenuto.tasks.deprecation import former_keys
from tenuto.workspace import job_directory
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.ports import FileKind, Files, Machine

_LARGEST = 64 << 20
_LINKED = ("done", "out", "err", "py")
"""What a job's directory has under the name of its task, and is wanted under both."""


class FormerJobs:
    """Finds jobs of renamed tasks for one experiment."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._moved: dict[str, MovedJobs] = {}
        """By workspace."""
        self.found: dict[JobKey, JobKey] = {}
        """By the key of a job that is reused, the key that it would have now."""

    def key(self, layout: Layout, task: Any, now: JobKey) -> JobKey:
        """The key of the job to use for a task: a former one if it is done, and the present one is not."""
        moved = self._moved.setdefault(layout.root, MovedJobs(self._machine.files, layout))
        others = [JobKey(*one) for one in former_keys(task)]
        if now in moved.read():  # the script is from before, or the task has its former name again
            others.append(moved.present(now))
        for other in others:
            if other != now and self._is_done(layout.job(*other)) and not self._is_done(layout.job(*now)):
                self.found[other] = now
                return other
        return now

    def record(self, layout: Layout, task: Any, job: Job) -> None:
        """Write down where a job is to be moved, and with which parameters, for `tenuto clean --renamed`."""
        former = JobKey(job.task_id, job.job_id)
        now = self.found.get(former)
        if now is None:
            return
        paths = layout.job(*now)
        params = TaskWork(task, {}).params(layout, paths)
        content = {"task": former.task_id, "job": former.job_id, "params": params.decode()}
        self._machine.files.make_directory(layout.renamed)
        self._machine.files.replace(
            layout.renamed_job(*now), json.dumps([now.task_id, now.job_id, content]).encode(), durable=False
        )

    def _is_done(self, paths: JobPaths) -> bool:
        files = self._machine.files
        return files.stat(paths.done) is not None and is_real_directory(files, paths.directory)


class PlannedMove(NamedTuple):
    """A job that is to be found under the present name of its task."""

    former: JobKey
    now: JobKey
    params: bytes
    record: str


def planned_moves(machine: Machine, layout: Layout) -> Iterator[PlannedMove]:
    """The moves that experiments wrote down."""
    try:
        names = machine.files.list(layout.renamed)
    except FileNotFoundError:
        return
    for name in sorted(names):
        file = f"{layout.renamed}/{name}"
        try:
            task, job, content = json.loads(machine.files.read(file, _LARGEST))
            former = JobKey(content["task"], content["job"])
            yield PlannedMove(former, JobKey(task, job), content["params"].encode(), file)
        except (OSError, TenutoError, ValueError, KeyError, TypeError):
            machine.files.remove(file)  # torn, or not ours: the next run writes it again


def move(machine: Machine, layout: Layout, one: PlannedMove, *, really: bool) -> JobActed:
    """Move the directory of a job, and leave a link: runs from before, and jobs that used it, find it.

    A move that was cut short is gone on with by the next one: its record is removed last.
    """
    files = machine.files
    old, new = layout.job(*one.former), layout.job(*one.now)
    moved = JobActed(one.former, Outcome.MOVED, f"to {one.now}")
    there, place = files.stat(old.directory), files.stat(new.directory)
    if there is None and place is not None and MovedJobs(files, layout).present(one.former) == one.now:
        if really:  # killed before it left the link
            _leave_link(files, new.directory, old.directory)
            files.remove(one.record)
        return moved
    if there is None or there.kind is not FileKind.DIRECTORY:
        files.remove(one.record)
        return JobActed(one.former, Outcome.GONE, "it has no directory any more")
    is_back = place is not None and place.kind is FileKind.LINK  # it has a former name of its own again
    if place is not None and not is_back:
        return JobActed(one.former, Outcome.IN_USE, f"{one.now} is there already: remove one of the two")
    if not really:
        return JobActed(one.former, Outcome.WOULD_MOVE, f"to {one.now}")
    lock = job_directory.take_lock(machine, old)
    if lock is None:
        return JobActed(one.former, Outcome.IN_USE, "it is locked: it runs, or is about to")
    with closing(lock):
        if job_directory.look(machine, old).derived.state is not JobState.DONE:
            return JobActed(one.former, Outcome.REFUSED, "it is not done any more")
        for kind in _LINKED:
            source = f"{old.directory}/{old.script_name}.{kind}"
            target = f"{old.directory}/{new.script_name}.{kind}"
            if files.stat(source) is not None and files.stat(target) is None:
                files.link(source, target)
        files.replace(old.params, one.params, durable=True)
        files.make_directory(layout.task(one.now.task_id))
        MovedJobs(files, layout).note(one.former, one.now)
        if is_back:
            files.remove(new.directory)
        files.rename(old.directory, new.directory)
        _leave_link(files, new.directory, old.directory)
    files.remove(one.record)
    return moved


def _leave_link(files: Files, directory: str, former: str) -> None:
    """Relative, so that it holds where the workspace is moved to."""
    files.symlink(os.path.relpath(directory, os.path.dirname(former)), former)
