"""The retry of failed jobs from what their own directories hold: no script is needed.
Waits for nothing: the caller of `prepare` has the scheduler, and waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from tenuto.errors import JournalError, LauncherNotFound, SerializationError, TenutoError
from tenuto.jobs.directories import JobActed, Seen, is_real_directory, stale
from tenuto.jobs.key import JobKey
from tenuto.jobs.parameters import read_stored
from tenuto.jobs.source import ActedAs
from tenuto.jobs.validity import renewed_record
from tenuto.jobs.view import JobsView
from tenuto.launchers.instructions import Command, Instructions
from tenuto.launchers.outputs import TaskOutput
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.requirements import Requirement
from tenuto.launchers.selection import Launchers, cluster_names
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.events import Event, JobStateChangedEvent
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.decisions import RetryLimits
from tenuto.scheduler.entries import JobDependency
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.listeners import Subscriber
from tenuto.scheduler.scheduler import Scheduler
from tenuto.scheduler.tokens import TokenDependency, from_record
from tenuto.settings import Settings
from tenuto.tasks.serialization import MAX_BYTES, PARAMS_FILE, loads
from tenuto.workspace import job_directory
from tenuto.workspace.event_writer import EventWriter, file_numbers
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.records import LaunchRecord


class StoredWork:
    """What a job runs, as its ``params.json`` has it."""

    def __init__(
        self,
        params: bytes,
        environment: Mapping[str, str] | None = None,
        command: Command | None = None,
        *,
        keeps_logs: bool = False,
    ) -> None:
        """`params`: the content of ``params.json``. `command`: a program to run instead of a task."""
        self.environment: Mapping[str, str] = environment or {}
        self.keeps_logs = keeps_logs
        self._params = params
        self._command = command

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        return self._params

    def command(self) -> Command | None:
        return self._command

    def output(self, output: TaskOutput, method: Callable[..., Any]) -> Any:
        return None  # without the task no output can be made


_UNSEEN: Seen = {}
NEVER_STARTED = "it was never started, so its parameters are not kept: run the experiment again"


_MOST_JOURNALS = 100
"""Retries whose events are kept: the directory is listed by all who follow runs."""


class Retrying:
    """The owner of jobs that a person runs again: no door's.

    It lists no job: each belongs to the runs that asked for it. Its journal is that of all retries, which the
    monitors of those runs follow: a job may end before its runner writes a word.
    """

    id = "person/retry"

    def __init__(self, view: JobsView, subscriber: Subscriber) -> None:
        machine = view.machine
        for number in file_numbers(machine.files, view.layout.retry_journal)[:-_MOST_JOURNALS]:
            with suppress(FileNotFoundError):  # another retry removes them, too
                machine.files.remove(view.layout.retry_journal.path(number))
        self._writer = EventWriter(machine.files, view.layout.retry_journal, machine.randomness.nonce())
        self._subscriber = subscriber

    def hear(self, event: Event) -> None:
        """Write the event down, and pass it on."""
        with suppress(OSError, JournalError):  # events are a convenience
            self._writer.write(event)
        self._subscriber(event)


class PreparedRetries(NamedTuple):
    """The jobs that will be run again, causes before their dependents, and the refused jobs."""

    jobs: list[Job]
    refused: list[JobActed]
    """Refused, gone, running already, or tried again since they were seen."""


def prepare(
    view: JobsView,
    keys: Iterable[JobKey],
    scheduler: Scheduler,
    launcher: Launcher | None = None,
    *,
    seen: Seen = _UNSEEN,
) -> PreparedRetries:
    """Makes jobs of what their directories hold; changes nothing.

    `seen`: the attempts that the person saw; a job that was tried again since is left alone.
    """
    wanted = list(dict.fromkeys(keys))
    made: dict[JobKey, Job] = {}
    refused: dict[JobKey, JobActed] = {}
    launcher = launcher or SpawnLauncher(scheduler.machine, shares_slots=True)
    pending = list(reversed(wanted))
    opened: set[JobKey] = set()
    while pending:
        key = pending[-1]
        if key in made or key in refused:
            pending.pop()
            continue
        upstream = list(read_stored(view.machine.files, view.layout.job(*key)).upstream.values())
        first = [one for one in upstream if one in wanted and one not in made and one not in refused]
        if first and key not in opened:
            opened.add(key)
            pending += first
            continue
        pending.pop()
        try:
            dependencies = [_dependency(view, one, made) for one in dict.fromkeys(upstream)]
            made[key] = _job(view, key, scheduler, launcher, [job for job in dependencies if job], seen)
        except _CannotRun as why:
            refused[key] = why.acted or JobActed(key, why.outcome, str(why))
    return PreparedRetries(list(made.values()), list(refused.values()))


def retry_launcher(settings: Settings, launchers: Launchers) -> Launcher:
    """The cluster that the settings name; else `spawn`: there is no script to keep a parent warm for."""
    return launchers.named(settings.launcher if settings.launcher in cluster_names(settings) else "spawn")


def submit(scheduler: Scheduler, jobs: Iterable[Job], owner: Retrying) -> list[Job]:
    """Hands the jobs to a scheduler, in their order."""
    return [scheduler.submit(job, owner) for job in jobs]


class Retries:
    """Runs failed jobs again, as a monitor asks; from any thread. A job about to run is not submitted."""

    def __init__(self, view: JobsView, settings: Settings) -> None:
        self._view = view
        self._settings = settings
        self._lock = threading.Lock()
        self._launcher: Launcher | None = None
        self._owner = Retrying(view, self._hear)
        self._under_way: dict[JobKey, int] = {}
        """Jobs that were submitted, and the attempts that had failed."""

    def retry(self, seen: Mapping[JobKey, int], *, dry_run: bool) -> list[JobActed]:
        """Submit failed jobs; a job with a newer attempt than the one seen is left alone."""
        with self._lock:
            busy = [key for key in seen if key in self._under_way]
            acted = [
                JobActed(key, ActedAs.STARTING, "it is about to be run again", seen[key]) for key in busy
            ]
            wanted = {key: attempt for key, attempt in seen.items() if key not in busy}
            if not wanted:
                return acted
            scheduler = Scheduler.instance()
            if self._launcher is None:
                self._launcher = retry_launcher(self._settings, Launchers(self._settings))
            prepared = prepare(self._view, wanted, scheduler, self._launcher, seen=wanted)
            acted += prepared.refused
            keys = [JobKey(job.task_id, job.job_id) for job in prepared.jobs]
            outcome = ActedAs.WOULD_RETRY if dry_run else ActedAs.RETRIED
            acted += [JobActed(key, outcome, f"attempt {wanted[key] + 1}", wanted[key]) for key in keys]
            if not dry_run:
                self._under_way.update({key: wanted[key] for key in keys})
                submit(scheduler, prepared.jobs, self._owner)
            return acted

    def _hear(self, event: Event) -> None:
        if isinstance(event, JobStateChangedEvent) and event.state.finished():
            with self._lock:
                self._under_way.pop(JobKey(event.task_id, event.job_id), None)


class _CannotRun(Exception):
    """A job cannot be run from its directory."""

    def __init__(self, why: str, outcome: ActedAs = ActedAs.REFUSED, acted: JobActed | None = None) -> None:
        super().__init__(why)
        self.outcome = outcome
        self.acted = acted


def _dependency(view: JobsView, key: JobKey, made: Mapping[JobKey, Job]) -> JobDependency | None:
    if key in made:
        return JobDependency(made[key])
    paths = view.layout.job(*key)
    if is_real_directory(view.machine.files, paths.directory):
        state = job_directory.look(view.machine, paths, ask=view.inquiry).derived.state
        if state is JobState.DONE:
            return None
        raise _CannotRun(f"it depends on {key}, which is {state.name.lower()}: retry that one too")
    raise _CannotRun(f"it depends on {key}, whose directory was removed: run the experiment again")


def _how_to_run(
    launch: LaunchRecord, launcher: Launcher
) -> tuple[Instructions, RetryLimits, list[TokenDependency], Launcher]:
    """The instructions of the last attempt, and the launcher with what the job asked of it."""
    try:
        instructions = Instructions.of(launch)
        retry = RetryLimits.of_record(instructions.retry)
        tokens = from_record(instructions.tokens)
        if instructions.slots < 1:
            raise ValueError(f"a job takes one slot or more, not {instructions.slots}")
        if instructions.asked and launcher.external:
            (needs,) = Requirement.parse(instructions.asked).alternatives
            launcher = launcher.adapted(needs)
        return instructions, retry, tokens, launcher
    except LauncherNotFound as error:
        raise _CannotRun(f"{launcher.name} cannot run it: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _CannotRun(f"its launch.json cannot be used: {error!r}; run the experiment again") from error


def _job(
    view: JobsView,
    key: JobKey,
    scheduler: Scheduler,
    launcher: Launcher,
    dependencies: list[JobDependency],
    seen: Seen,
) -> Job:
    machine, paths = view.machine, view.layout.job(*key)
    if not is_real_directory(machine.files, paths.directory):
        raise _CannotRun("its directory was removed: run the experiment again", ActedAs.GONE)
    try:
        found = job_directory.look(machine, paths, ask=view.inquiry).derived
        if (other := stale(key, seen, found.attempt)) is not None:
            raise _CannotRun(other.detail, acted=other)
        if found.state is JobState.DONE:
            raise _CannotRun("it is done")
        if found.state.running() and not found.unsure:  # of that the scheduler watches the beats
            raise _CannotRun("it is running already", ActedAs.IN_USE)
        launch = job_directory.read_launch(machine.files, paths)
        params = machine.files.read(paths.params, MAX_BYTES)
        loads(params, PARAMS_FILE)
    except FileNotFoundError:
        raise _CannotRun(NEVER_STARTED) from None
    except SerializationError as error:
        raise _CannotRun(f"{error}: run the experiment again") from error
    except (OSError, TenutoError) as error:
        raise _CannotRun(str(error)) from error
    if launch is None:
        raise _CannotRun(NEVER_STARTED)
    instructions, retry, tokens, launcher = _how_to_run(launch, launcher)
    job = Job(
        key.task_id,
        key.job_id,
        layout=view.layout,
        launcher=launcher,
        work=StoredWork(
            params, instructions.environment, instructions.command, keeps_logs=instructions.keeps_logs
        ),
        clock=scheduler.machine.clock,
        dependencies=dependencies,
        tokens=tokens,
        limits=instructions.limits,
        slots=instructions.slots,
        retry=retry,
        carbon_plan=instructions.carbon,
    )
    job.asked = instructions.asked
    job.kept_record = partial(renewed_record, machine.files, view.layout, instructions.record)
    return job
