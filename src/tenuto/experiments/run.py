"""One run of an experiment: the owner of its jobs, and the keeper of its directory."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain, count
from pathlib import Path
from typing import Any

from tenuto.errors import WorkspaceError
from tenuto.experiments.process_service import MONITOR, Service, ServiceState
from tenuto.experiments.run_record import (
    RunState,
    RunStatus,
    parse_run_id,
    run_of,
    write_run_status,
    writer_name,
)
from tenuto.jobs.driver_command import running_command
from tenuto.jobs.text import counted
from tenuto.lifecycle.events import (
    CarbonMetricsData,
    Event,
    JobEvent,
    JobStateChangedEvent,
    RunCompletedEvent,
    ServiceAddedEvent,
    ServiceStateChangedEvent,
)
from tenuto.lifecycle.owner_names import run_owner
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.listeners import OwnerJournal, StateListener, Subscriber
from tenuto.scheduler.scheduler import Scheduler
from tenuto.workspace import journal
from tenuto.workspace.carbon import job_total, read_carbon, total
from tenuto.workspace.event_writer import EventWriter
from tenuto.workspace.jobslist import GROUP_SYNC_S, JobLine, JobLinks, JobsList
from tenuto.workspace.layout import Layout
from tenuto.workspace.packs import is_packed
from tenuto.workspace.ports import FileKind, Files, Machine
from tenuto.workspace.run_paths import RunPaths

logger = logging.getLogger("tenuto.experiments")
CANCELLATIONS_S = 0.5
"""Between two looks at what people want cancelled."""
_LONGEST_MESSAGE = 4096

COUNTED_EACH = 10_000
"""After so many ends, or a tenth of its jobs, an open run writes its counts, for readers of very many."""


class Run:
    """Lists the jobs of a run, and writes what happens to them."""

    def __init__(
        self,
        scheduler: Scheduler,
        layout: Layout,
        experiment_id: str,
        run_id: str,
        *,
        fails_fast: bool = False,
    ) -> None:
        """`fails_fast`: nothing more is started once a job has failed."""
        self._fails_fast = fails_fast
        self.id = run_owner(experiment_id, run_id)
        self.is_stopping = False
        """Nothing more of this run is started."""
        self.jobs: dict[str, Job] = {}
        self.reused: set[str] = set()
        self.found_before: set[str] = set()
        """Ids of jobs that were done for an earlier experiment of this process: no event tells of that."""
        self.layout = layout
        self.experiment_id = experiment_id
        self.run_id = run_id
        self.paths = layout.run(experiment_id, run_id)
        self.started: datetime = scheduler.machine.clock.now()
        self._began = scheduler.machine.clock.uptime()
        self.counts = scheduler.counts(self)
        self._scheduler = scheduler
        self._machine: Machine = scheduler.machine
        self._journal = layout.experiment_journal(experiment_id)
        for directory in (self.paths.jobs, self.paths.results, self.paths.data):
            self._machine.files.make_directory(directory)
        self._list = JobsList(self._machine.files, self.paths)
        self._links = JobLinks(self._machine.files, self.paths, self._run_before())
        self._sync_is_due = False
        archive_forsaken(self._machine.files, layout, experiment_id)
        writer = writer_name(run_id, self._machine.randomness.nonce())
        self._writer = OwnerJournal(EventWriter(self._machine.files, self._journal, writer), scheduler.tell)
        self._events = StateListener(self._writer)
        self._services: list[Service] = []
        self._command = running_command("tenuto", "run")
        self._directory = os.getcwd() if self._command else ""
        self._ended = 0
        """How often a job ended."""
        self._counted_at = COUNTED_EACH
        """At how many ends the counts are written next."""
        self._is_over = False
        self._write_status(RunState.RUNNING)
        scheduler.keep_list(self, self._list_job)
        scheduler.loop.call_soon_threadsafe(self._take_cancellations)

    def _run_before(self) -> RunPaths | None:
        names = self._machine.files.list(self.layout.experiment(self.experiment_id))
        others = [known for name in names if name != self.run_id and (known := parse_run_id(name))]
        return self.layout.run(self.experiment_id, str(max(others))) if others else None

    def _take_cancellations(self) -> None:
        """Cancels jobs that people wanted cancelled while they waited, in the loop; some began since."""
        if self._is_over:
            return
        self._scheduler.loop.call_later(CANCELLATIONS_S, self._take_cancellations)
        with contextlib.suppress(OSError, WorkspaceError):
            for job_id in self._machine.files.list(self.paths.cancellations):
                path = f"{self.paths.cancellations}/{job_id}"
                message = self._machine.files.read(path, _LONGEST_MESSAGE).decode(errors="replace")
                self._machine.files.remove(path)
                for job in self.jobs.values():
                    if job.job_id == job_id and not job.state.finished():
                        self._scheduler.cancel(job, message)

    # What the scheduler tells its owner

    def _list_job(self, job: Job) -> None:
        """Lists a job, in the loop; the list is synced for a group of jobs at a time."""
        if job.state is JobState.DONE and job.key not in self.jobs:
            self.reused.add(job.key)
            self.found_before.add(job.job_id)
        self.jobs[job.key] = job
        self._list.append(
            JobLine(
                job_id=job.job_id,
                task_id=job.task_id,
                submittime=self._machine.clock.now(),
                tags=job.tags,
                depends_on=tuple(dependency.origin.job_id for dependency in job.dependencies),
                uses=job.uses,
                transient=job.transient,
                max_retries=job.retry.max_retries,
                tokens={token.name: amount for token, amount in job.tokens},
                token_directory=job.tokens[0].token.directory if job.tokens else None,
            )
        )
        if not is_packed(self._machine.files, job.paths.directory):
            self._links.add(job.task_id, job.job_id)
        if not self._sync_is_due:
            self._sync_is_due = True
            self._scheduler.loop.call_later(GROUP_SYNC_S, self._sync_list)

    def hear(self, event: Event) -> None:
        """Notes which jobs were reused, and writes the event; off the loop."""
        if isinstance(event, JobStateChangedEvent):
            if event.state is JobState.WAITING and self.reused:
                self.reused.discard(self.job_of(event).key)  # it was found done, and has been removed since
            elif event.state is JobState.ERROR and self._fails_fast and not self.is_stopping:
                self.stop_starting()
            elif event.state is JobState.DONE and _is_found(event):
                self.reused.add(self.job_of(event).key)
        self._events.hear(event)
        if isinstance(event, JobStateChangedEvent) and event.state.finished():
            self._ended += 1
            if self._ended >= self._counted_at and not self._is_over:
                self._counted_at = self._ended + max(COUNTED_EACH, len(self.jobs) // 10)
                with suppress(OSError):
                    self._write_status(RunState.RUNNING)

    def _sync_list(self) -> None:
        if self._sync_is_due:
            self._sync_is_due = False
            self._list.sync()

    def _close_list(self) -> None:
        self._sync_is_due = False
        self._list.close()

    # What the experiment asks

    @property
    def unfinishedJobs(self) -> int:
        """Jobs that have not reached a final state."""
        return self.counts.unfinished

    @property
    def failedJobs(self) -> int:
        """Jobs that ended badly."""
        return self.counts.failed

    @property
    def taskOutputQueueSize(self) -> int:
        """Outputs of jobs that were not yet handed to their watchers."""
        return self.counts.outputs

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tells a subscriber of each event of the run from now on, off the loop."""
        self._writer.subscribe(subscriber)

    def job_of(self, event: JobEvent) -> Job:
        """The job that an event of this run is about."""
        job = self.jobs.get(self.layout.job(event.task_id, event.job_id).directory)
        if job is None:  # submitted to another workspace
            identity = (event.task_id, event.job_id)
            job = next(job for job in list(self.jobs.values()) if (job.task_id, job.job_id) == identity)
        return job

    def stop_starting(self) -> None:
        """Starts nothing more; running jobs continue."""
        self.is_stopping = True
        self._scheduler.stop_starting(self)

    def running_jobs(self) -> list[Job]:
        """The jobs that have a process now, or are about to."""
        return [job for job in list(self.jobs.values()) if job.state.running()]  # the loop may add to them

    def failed_jobs(self) -> list[Job]:
        """The jobs that ended badly, causes before what they stranded."""
        failed = [job for job in list(self.jobs.values()) if job.state is JobState.ERROR]
        return sorted(failed, key=lambda job: job.failure_status is JobFailureStatus.DEPENDENCY)

    def add_service(self, service: Service) -> None:
        """Starts a service; it is stopped with the run."""
        service.id = self._free_service_id(service.id)
        service.log = Path(self.paths.service_log(service.id))
        service.move(ServiceState.STARTING)
        event = ServiceAddedEvent(
            **self._event_fields(),
            service_id=service.id,
            state=service.state.value,
            description=service.description(),
            url=service.url,
        )
        self._scheduler.tell(self._writer.write, event)
        service._listener = self._service_moved
        try:
            service.start()
        except BaseException as error:
            service.move(ServiceState.FAILED, f"{type(error).__name__}: {error}")
            raise
        self._services.append(service)
        if not service.tells_when_running and service.state is ServiceState.STARTING:
            service.move(ServiceState.RUNNING)

    def monitor_url(self) -> str:
        """The address of the page beside the run; empty without one."""
        return next((one.url or "" for one in list(self._services) if one.id == MONITOR), "")

    def stop_services(self) -> None:
        """Stops the services, the last one first; a service that cannot stop does not hold up the others."""
        while self._services:
            service = self._services.pop()
            has_failed = service.state is ServiceState.FAILED
            if has_failed:
                service._listener = None  # that it is tidied up is no news
            service.move(ServiceState.STOPPING, service.message)
            try:
                service.stop()
            except Exception as error:
                logger.exception("service %s did not stop", service.id, extra={"action": "service_failed"})
                service.move(ServiceState.FAILED, f"{type(error).__name__}: {error}")
            else:
                service.move(ServiceState.FAILED if has_failed else ServiceState.STOPPED, service.message)
            service._listener = None

    def _free_service_id(self, wanted: str) -> str:
        taken = {service.id for service in self._services}
        numbered = (f"{wanted}-{number}" for number in count(2))
        return next(one for one in chain([wanted], numbered) if one not in taken)

    def _service_moved(self, service: Service) -> None:
        event = ServiceStateChangedEvent(
            **self._event_fields(),
            service_id=service.id,
            state=service.state.value,
            message=service.message,
            url=service.url,
        )
        self._scheduler.tell(self._writer.write, event)

    def _event_fields(self) -> dict[str, Any]:
        return {"timestamp": self._machine.clock.now(), "owner": self.id}

    def carbon(self) -> CarbonMetricsData | None:
        """What the jobs of this run used since it began; a job of two runs counts for both."""
        files = self._machine.files
        ran = [job for key, job in list(self.jobs.items()) if key not in self.reused]
        found = [job_total(files, job.paths, self.started) for job in ran]
        return total(one for one in found if one is not None)

    def unmeasured(self) -> int:
        """How many jobs that ran in this run were to be measured, and were not."""
        ran = [job for key, job in list(self.jobs.items()) if key not in self.reused and job.state.finished()]
        files = self._machine.files
        return sum(job.carbon_plan is not None and not read_carbon(files, job.paths) for job in ran)

    def finish(
        self, state: RunState, message: str | None = None, carbon: CarbonMetricsData | None = None
    ) -> None:
        """Writes the last event and the final status, and archives the events; no writer is left."""
        done = sum(job.state is JobState.DONE for job in self.jobs.values())
        self._is_over = True
        self._writer.end(
            RunCompletedEvent(
                **self._event_fields(),
                failed=state is not RunState.DONE,
                done_jobs=done,
                failed_jobs=self.failedJobs,
                message=message,
                carbon=carbon,
            )
        )
        self._scheduler.call(self._close_list)
        journal.archive(self._machine.files, self._journal, self.paths.events)
        self._write_status(state, message, carbon)
        logger.info(
            "%s/%s: %s, %s, %d reused, %d failed",
            self.experiment_id,
            self.run_id,
            state.value,
            counted(len(self.jobs), "job"),
            len(self.reused),
            self.failedJobs,
            extra={"action": "run_ended"},
        )

    def _lasted(self) -> timedelta:
        """How long the run is open, whatever was done to the clock."""
        return timedelta(seconds=self._machine.clock.uptime() - self._began)

    def _write_status(
        self, state: RunState, message: str | None = None, carbon: CarbonMetricsData | None = None
    ) -> None:
        own = self._machine.processes.own()
        status = RunStatus(
            experiment_id=self.experiment_id,
            run_id=self.run_id,
            state=state,
            started=self.started,
            host=own.host,
            pid=own.pid,
            ended=None if state is RunState.RUNNING else self.started + self._lasted(),
            jobs=len(self.jobs),
            reused=len(self.reused),
            failed=self.failedJobs,
            message=message,
            carbon=carbon,
            command=self._command,
            directory=self._directory,
            counts=Counter(job.state for job in list(self.jobs.values())),
        )
        write_run_status(self._machine.files, self.paths, status)


def _is_found(event: JobStateChangedEvent) -> bool:
    """True if a job that is done did not run, though it may have waited for its dependencies."""
    if event.submittime is None or event.endtime is None:
        return event.starttime is None
    return event.starttime is None and event.endtime <= event.submittime


def archive_forsaken(files: Files, layout: Layout, experiment_id: str) -> None:
    """Gives the events of runs that were killed to those runs; what belongs to a run that is gone goes, too.

    Under the experiment's lock, before a run writes. Otherwise they would count for the next run that ends.
    """
    place = layout.experiment_journal(experiment_id)
    of_run: dict[str, list[int]] = {}
    for number, writer in journal.writers(files, place).items():
        run_id = run_of(writer)
        if run_id is not None:
            of_run.setdefault(run_id, []).append(number)
    for run_id, numbers in of_run.items():
        run = layout.run(experiment_id, run_id)
        found = files.stat(run.directory)
        if found is not None and found.kind is FileKind.DIRECTORY:
            journal.archive(files, place, run.events, numbers)
        else:
            for number in numbers:
                files.remove(place.path(number))
