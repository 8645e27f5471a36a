"""The end of jobs that were wanted for others only: their directories go, unless an experiment uses them.
Which jobs are run at all is the scheduler's business.
"""

from __future__ import annotations

from tenuto.experiments.run import Run
from tenuto.experiments.users import keepers, users
from tenuto.experiments.view import WorkspaceView
from tenuto.jobs.key import JobKey
from tenuto.jobs.removal import remove
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Machine


def remove_transient_jobs(machine: Machine, layout: Layout, run: Run) -> None:
    """Removes the directories of jobs that were only wanted for the others, unless an experiment uses them.

    After a clean end, when the run no longer counts as live. What another experiment asked for stays: if it
    runs, in any case; if it has ended, unless it wanted the job removed, too.
    """
    view = WorkspaceView(layout, machine)
    keys = [
        JobKey(job.task_id, job.job_id)
        for job in run.jobs.values()
        if job.transient is TransientMode.REMOVE and job.state is JobState.DONE
    ]
    if keys:
        remove(view, keys, lambda keys: {**keepers(view, keys, run.experiment_id), **users(view, keys)})
