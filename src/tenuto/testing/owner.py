"""The smallest owner of jobs: counts them, and remembers what it was told."""

from __future__ import annotations

from tenuto.lifecycle.states import JobState, Standing
from tenuto.scheduler.jobs import Job


class FakeOwner:
    """Accepts everything; `history` has each state that each job went through."""

    def __init__(self, name: str = "owner") -> None:
        self.name = name
        self.unfinishedJobs = 0
        self.failedJobs = 0
        self.taskOutputQueueSize = 0
        self.is_stopping = False
        self.accepted: list[Job] = []
        self.history: dict[str, list[JobState]] = {}

    def accept(self, job: Job) -> None:
        self.accepted.append(job)

    def job_submitted(self, job: Job) -> None:
        self.history.setdefault(job.job_id, [])

    def job_state(self, job: Job, standing: Standing) -> None:
        self.history.setdefault(job.job_id, []).append(standing.state)
