"""Owns jobs that end again and again: what a runner and a scheduler write at the end of an attempt.

The marker of a prepared job is written anew, and its event into the journal of the run that listed it.
"""

from datetime import UTC, datetime

from tenuto.lifecycle.events import JobStateChangedEvent
from tenuto.lifecycle.owner_names import run_owner
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.event_writer import EventWriter
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Durability, Marker, write_marker
from tenuto.workspace.records import read_record

TASK = "bench_tasks.Work"


class Ends:
    """Ends jobs of a run, each as done or as failed."""

    def __init__(self, workspace, experiment, run_id):
        self._layout = Layout(workspace)
        self._files = this_machine().files
        self._owner = run_owner(experiment, run_id)
        self._journal = EventWriter(self._files, self._layout.experiment_journal(experiment), "f" * 32)

    def end(self, job_id, *, failed):
        """Write the marker and the event of an end; gives back the instant after the marker was written."""
        paths = self._layout.job(TASK, job_id)
        was = read_record(self._files, paths.failed, Marker.decode)
        if not isinstance(was, Marker):
            was = read_record(self._files, paths.done, Marker.decode)
        now = datetime.now(UTC)
        reason = JobFailureStatus.FAILED if failed else None
        if not failed:
            self._files.remove(paths.failed)
        write_marker(self._files, paths, was._replace(endtime=now, reason=reason), Durability.NONE)
        written = datetime.now(UTC)
        self._journal.write(
            JobStateChangedEvent(
                timestamp=now,
                task_id=TASK,
                job_id=job_id,
                owner=self._owner,
                state=JobState.ERROR if failed else JobState.DONE,
                attempt=was.attempt,
                reason=reason,
                endtime=now,
            )
        )
        return written
