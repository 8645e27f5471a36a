"""Owns the list of a run that asked for many jobs that were done before.

The run itself asked for one; the lines of the others are written by the code that writes lists, without a
scheduler: a run of 100,000 jobs takes minutes, and leaves the same list.
"""

import json
import os
from datetime import timedelta
from typing import NamedTuple

from bench_tasks import Work

from tenuto import experiment
from tenuto.clock import SystemClock
from tenuto.workspace.jobslist import JobLine, JobsList
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine


class Listed(NamedTuple):
    """A run, and its jobs in the order of the list."""

    run_id: str
    jobs: list[str]


def write(workspace, count, name="listed"):
    """List `count` prepared jobs in a run that ended."""
    with experiment(workspace, name) as run:
        first = Work.C(number=0).submit().job
    layout = Layout(os.path.abspath(workspace))
    place = layout.run(name, run.run_id)
    others = sorted(set(os.listdir(f"{layout.jobs}/{first.task_id}")) - {first.job_id})[: count - 1]
    now = SystemClock().now()
    listed = JobsList(this_machine().files, place)
    for number, job_id in enumerate(others):
        listed.append(
            JobLine(job_id, first.task_id, now + timedelta(milliseconds=number), {"n": str(number % 10)})
        )
    listed.close()
    with open(place.status) as file:
        status = json.load(file)
    with open(place.status, "w") as file:
        json.dump({**status, "jobs": count, "reused": count}, file)
    return Listed(run.run_id, [first.job_id, *others])
