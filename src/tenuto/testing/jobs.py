"""Jobs ready to be started, for tests of launchers: what a scheduler does up to the start, without one.
Works on any `Machine`, real or fake.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenuto.launchers.commands import command_of, environment_of
from tenuto.launchers.instructions import NO_LIMITS, CarbonPlan, Command, Instructions, Limits
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.script import job_script
from tenuto.lifecycle.events import Event, JobStateChangedEvent, JobSubmittedEvent
from tenuto.lifecycle.states import JobState
from tenuto.tasks.serialization import dumps, job_document
from tenuto.workspace import job_directory
from tenuto.workspace.derive import Derived
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.markers import Durability, Marker, read_markers
from tenuto.workspace.ports import DESCENDANTS_BYTE, LockHandle, Machine

TASK_ID = "bench.work"
OWNER = "service/bench"


class JobBench:
    """A workspace in which jobs are made ready, one after another."""

    def __init__(
        self, root: str, machine: Machine, *, launcher: str = "bench", external: bool = False
    ) -> None:
        """`launcher`: the name that its jobs record; `external`: another system is to start them."""
        self.layout = Layout(root)
        self.machine = machine
        self.launcher = launcher
        self.external = external
        self.jobs: list[ReadyJob] = []
        """Every job that was made."""

    def command(self, *arguments: str, files: Mapping[str, str] | None = None, **options: Any) -> ReadyJob:
        """A job that runs a command."""
        return self.of(Command(arguments, files or {}), **options)

    def of(self, command: Command, **options: Any) -> ReadyJob:
        """A job that runs a command, confined or elsewhere as it says."""
        return self._add(ReadyJob(self, self._next_id(), command=command, **options))

    def task(self, task: Any, *, import_path: Sequence[str] | None = None, **options: Any) -> ReadyJob:
        """A job that runs a task, given as a config."""
        job_id = self._next_id()
        directory = Path(self.layout.job(TASK_ID, job_id).directory)
        path = sys.path if import_path is None else import_path
        params = dumps(job_document(task, directory, Path(self.layout.partials), path))
        options = {**_variables(task), **options}
        return self._add(ReadyJob(self, job_id, command=command_of(task), params=params, **options))

    def _next_id(self) -> str:
        return f"job-{len(self.jobs) + 1}"

    def _add(self, job: ReadyJob) -> ReadyJob:
        self.jobs.append(job)
        return job


class ReadyJob:
    """A job whose attempt is open, and whose locks are taken if it is local."""

    def __init__(
        self,
        bench: JobBench,
        job_id: str,
        *,
        command: Command | None = None,
        params: bytes | None = None,
        limits: Limits = NO_LIMITS,
        environment: Mapping[str, str] | None = None,
        durability: Durability = Durability.NONE,
        tokens: tuple[LockHandle, ...] = (),
        launcher: str | None = None,
        carbon: CarbonPlan | None = None,
        behind: int = 0,
    ) -> None:
        self.machine = bench.machine
        self.job_id = job_id
        self.paths: JobPaths = bench.layout.job(TASK_ID, job_id)
        self._params = params
        self._tokens = tokens
        self._behind = behind
        self._launcher = launcher or bench.launcher
        self._external = bench.external
        self._instructions = Instructions(
            TASK_ID,
            job_id,
            limits=limits,
            environment=environment or {},
            durability=durability,
            command=command,
            carbon=carbon,
        ).encode()
        self.open_attempt()

    def open_attempt(self) -> None:
        """Take the locks and record the intent to run once more."""
        lock = job_directory.take_lock(self.machine, self.paths)
        assert lock is not None, f"{self.paths.lock} is taken"
        descendants = self.machine.locks.try_lock(self.paths.lock, DESCENDANTS_BYTE)
        assert descendants is not None, f"something of {self.paths.directory} still runs"
        found = job_directory.settle(self.machine, self.paths, lock)
        self.launch = job_directory.open_attempt(
            self.machine,
            self.paths,
            lock,
            found,
            launcher=self._launcher,
            job_name=self.job_id,
            external=self._external,
            owner=OWNER,
            instructions=self._instructions,
        )
        if self._params is not None:
            job_directory.write_params(self.machine.files, self.paths, self._params)
        job_directory.write_script(self.machine.files, self.paths, job_script(self.paths.script_name))
        self.order = StartOrder(self.paths, self.launch, lock, descendants, self._tokens, behind=self._behind)
        if self._external:  # its runner takes the locks, and the tokens stay where they are
            lock.close()
            descendants.close()
            self.order = StartOrder(self.paths, self.launch, None, None)

    def release(self) -> None:
        """Close the scheduler's copies of all locks; of an external job it has none."""
        if self.order.runner_lock is None:
            return
        for lock in (*self.order.locks, *self.order.tokens):
            lock.close()

    def derived(self) -> Derived:
        return job_directory.look(self.machine, self.paths).derived

    def marker(self) -> Marker:
        """The marker of the attempt; an `AssertionError` if there is none."""
        markers = [m for m in read_markers(self.machine.files, self.paths) if isinstance(m, Marker)]
        assert len(markers) == 1, f"{len(markers)} markers in {self.paths.directory}"
        assert markers[0].nonce == self.launch.nonce
        return markers[0]

    def has_marker(self) -> bool:
        return any(marker is not None for marker in read_markers(self.machine.files, self.paths))


def _variables(task: Any) -> dict[str, Any]:
    environment = environment_of(task)
    return {"environment": environment} if environment else {}


# The smallest owner of jobs: remembers each call.


class FakeOwner:
    """`history` has each state that each job went through, `events` all it heard."""

    def __init__(self, name: str = "owner") -> None:
        self.id = f"search/{name}"
        self.events: list[Event] = []
        self.history: dict[str, list[JobState]] = {}

    def hear(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, JobSubmittedEvent):
            self.history.setdefault(event.job_id, [])
        elif isinstance(event, JobStateChangedEvent):
            self.history.setdefault(event.job_id, []).append(event.state)
