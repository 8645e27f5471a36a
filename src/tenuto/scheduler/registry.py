"""The registry of jobs: those that an owner wants, and former ones that a caller still has.
Decides nothing about them.
"""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from tenuto.errors import GraphError, UnsubmittedTask
from tenuto.scheduler.jobs import Job


class Registry:
    """One job for each key; a thread that reads or changes them has the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.current: dict[str, Job] = {}
        self._former: WeakValueDictionary[str, Job] = WeakValueDictionary()
        """A process may run experiments for weeks. What they are done with can be read from its directory; it
        stays known only while a script has its task, or another job needs it, so that there are no two of it.
        """

    def get(self, key: str) -> Job | None:
        return self.current.get(key) or self._former.get(key)

    def keep(self, job: Job) -> Job:
        """The job that counts for this key, kept from now on: the known one, else this."""
        key = job.key
        return self.current.setdefault(key, self._former.pop(key, job))

    def needed_by(self, job: Job, origin: Job) -> Job:
        """The job that counts for a dependency: it must be known, so there can be no cycle."""
        if origin.key == job.key:
            raise GraphError(f"{job.task_id} {job.job_id[:12]} depends on itself")
        known = self.get(origin.key)
        if known is None:
            raise UnsubmittedTask(
                f"{job.task_id} {job.job_id[:12]} depends on {origin.task_id} {origin.job_id[:12]}, "
                f"which was not submitted: submit it first"
            )
        return known

    def let_go(self) -> None:
        """Keep no longer the jobs that no owner wants and that are at rest."""
        for job in list(self.current.values()):
            self.let_go_of(job)

    def let_go_of(self, job: Job) -> None:
        """Keep one job no longer, if no owner wants it and it is at rest."""
        if job.is_at_rest and not job.owners and self.current.get(job.key) is job:
            self._former[job.key] = self.current.pop(job.key)
