"""Jobs that were done under the name that their task had before its class was renamed, and their move.
It looks at directories and moves them; what a former name is comes from `tasks.deprecation`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from tenuto.errors import TenutoError
from tenuto.jobs.directories import MovedJobs, is_real_directory
from tenuto.jobs.key import JobKey
from tenuto.jobs.outcome import JobActed, Outcome
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.work import TaskWork
from tenuto.tasks.deprecation import former_keys
from tenuto.workspace import job_directory
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.ports import Machine

_LARGEST = 64 << 20
_LINKED = ("done", "out", "err", "py")
"""What a job's directory has under the name of its task, and is wanted under both."""


class FormerJobs:
    """Finds jobs of renamed tasks for one experiment."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.found: dict[JobKey, JobKey] = {}
        """By the key of a job that is reused, the key that it would have now."""

    def key(self, layout: Layout, task: Any, now: JobKey) -> JobKey:
        """The key of the job to use for a task: a former one if it is done, and the present one is not."""
        for former in [JobKey(*one) for one in former_keys(task)]:
            if former != now and self._is_done(layout.job(*former)) and not self._is_done(layout.job(*now)):
                self.found[former] = now
                return former
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
        return self._machine.files.stat(paths.done) is not None


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
    """Move the directory of a job, and leave a link: runs from before, and jobs that used it, find it."""
    old, new = layout.job(*one.former), layout.job(*one.now)
    if not is_real_directory(machine.files, old.directory):
        machine.files.remove(one.record)
        return JobActed(one.former, Outcome.GONE, "it has no directory any more")
    if machine.files.stat(new.directory) is not None:
        return JobActed(one.former, Outcome.IN_USE, f"{one.now} is there already: remove one of the two")
    if not really:
        return JobActed(one.former, Outcome.WOULD_MOVE, f"to {one.now}")
    lock = machine.locks.try_lock(old.lock)
    if lock is None:
        return JobActed(one.former, Outcome.IN_USE, "it is locked: it runs, or is about to")
    with closing(lock):
        if job_directory.look(machine, old).derived.state is not JobState.DONE:
            return JobActed(one.former, Outcome.REFUSED, "it is not done any more")
        for kind in _LINKED:
            source = f"{old.directory}/{old.script_name}.{kind}"
            target = f"{old.directory}/{new.script_name}.{kind}"
            if machine.files.stat(source) is not None and machine.files.stat(target) is None:
                machine.files.link(source, target)
        machine.files.replace(old.params, one.params, durable=True)
        machine.files.make_directory(layout.task(one.now.task_id))
        MovedJobs(machine.files, layout).note(one.former, one.now)
        machine.files.rename(old.directory, new.directory)
        machine.files.symlink(new.directory, old.directory)
    machine.files.remove(one.record)
    return JobActed(one.former, Outcome.MOVED, f"to {one.now}")
