"""The graph of jobs: which job waits for which, by layers, and drawn together by task.
Pure: views of jobs in, nodes out; how a face draws them is its own affair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tenuto.jobs.row import Row
from tenuto.lifecycle.states import JobState
from tenuto.tasks.tags import tag_words


class GraphNode(NamedTuple):
    """A job, or all jobs of one task."""

    name: str
    """Unique in its graph."""
    title: str
    detail: str
    states: Mapping[JobState, int]
    needs: tuple[str, ...] = ()
    """The names of the nodes that it waits for."""

    @property
    def state(self) -> JobState:
        """The state to colour it by: of several, the one that a person should know of first."""
        order = (JobState.ERROR, JobState.RUNNING, JobState.SCHEDULED, JobState.READY, JobState.WAITING)
        return next((state for state in order if self.states.get(state)), max(self.states))


def job_nodes(jobs: Sequence[Row]) -> list[GraphNode]:
    """A node for each job, in the order the jobs were submitted."""
    known = {job.id for job in jobs}
    return [
        GraphNode(
            job.id,
            job.task,
            tag_words(job.tags) or job.name,
            {job.state: 1},
            tuple(one for one in job.depends_on if one in known),
        )
        for job in jobs
    ]


def task_nodes(jobs: Sequence[Row]) -> list[GraphNode]:
    """A node for each task, which waits for the tasks of the jobs that its own wait for."""
    task_of = {job.id: job.task for job in jobs}
    states: dict[str, Counter[JobState]] = {}
    needs: dict[str, dict[str, None]] = {}
    for job in jobs:
        states.setdefault(job.task, Counter())[job.state] += 1
        needed = (task_of[one] for one in job.depends_on if one in task_of)
        needs.setdefault(job.task, {}).update(dict.fromkeys(needed))
    return [
        GraphNode(
            task, task, _counted(counts), dict(counts), tuple(one for one in needs[task] if one != task)
        )
        for task, counts in states.items()
    ]


def _counted(counts: Mapping[JobState, int]) -> str:
    total = sum(counts.values())
    told = ", ".join(f"{number} {state.name.lower()}" for state, number in sorted(counts.items()))
    return f"{total} {'job' if total == 1 else 'jobs'}: {told}"


def layers(nodes: Sequence[GraphNode]) -> list[list[GraphNode]]:
    """Sorts the nodes by the number of nodes before them: nodes that wait for nothing come first.

    Tasks may wait for each other in a circle (jobs cannot): what is left then is one last layer.
    """
    left = {node.name: node for node in nodes}
    found: list[list[GraphNode]] = []
    while left:
        free = [node for node in left.values() if not any(one in left for one in node.needs)]
        layer = free or list(left.values())
        found.append(layer)
        for node in layer:
            del left[node.name]
    return found
