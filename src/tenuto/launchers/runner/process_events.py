"""What a supervisor does besides watching, once a job has run for a moment: events of the process; energy.
Loaded then and not before: most of what a short job costs is what its runner loads. Nothing here fails a job.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tenuto.errors import JournalError
from tenuto.launchers.carbon.sampler import CarbonSampler
from tenuto.launchers.payload.payload import Payload
from tenuto.lifecycle.events import (
    CarbonMetricsData,
    CarbonMetricsEvent,
    Event,
    ProcessStartedEvent,
    ProcessStateEvent,
)
from tenuto.lifecycle.states import ProcessState
from tenuto.workspace.carbon import Measured, read_carbon, write_carbon
from tenuto.workspace.event_writer import EventWriter


class ProcessEvents:
    """For one attempt; lives in the supervisor, and is asked when `due`."""

    def __init__(self, payload: Payload, began: float) -> None:
        """`began`: when the payload was forked, on the monotonic clock."""
        self._payload = payload
        self._clock = payload.machine.clock
        instructions = payload.instructions
        place = instructions.layout(payload.paths).job_journal(instructions.task_id, instructions.job_id)
        self._writer = EventWriter(payload.machine.files, place, payload.machine.randomness.nonce())
        plan = instructions.carbon
        self._sampler = CarbonSampler(plan, began, instructions.environment) if plan is not None else None
        self._measured: dict[int, Measured] | None = None
        self._told_problem: str | None = None
        self._tell_started(self._clock.monotonic() - began)

    @property
    def due(self) -> float:
        """When to be asked to `act` again."""
        return float("inf") if self._sampler is None else self._sampler.due

    def act(self, now: float) -> None:
        """Do what is due."""
        if self._sampler is not None:
            metrics = self._sampler.look(now)
            if metrics is not None or self._sampler.problem != self._told_problem:
                self._record(metrics)

    def stopping(self) -> None:
        """The payload was asked to end."""
        self._write(ProcessStateEvent(**self._fields(), state=ProcessState.STOPPING.value))

    def payload_gone(self) -> None:
        """The payload has ended; what it left has not yet."""
        if self._sampler is not None:
            metrics = self._sampler.last_words(self._clock.monotonic())
            if metrics is not None or self._sampler.problem is not None:
                self._record(metrics, final=True)

    def ended(self, exit_code: int | None, signal: int | None) -> None:
        """Nothing of the payload is left."""
        state = ProcessState.ENDED.value
        self._write(ProcessStateEvent(**self._fields(), state=state, exit_code=exit_code, signal=signal))
        self._writer.close()

    def took_leave(self, pid: int) -> bool:
        """A child has ended: whether it was not the payload's, but ours."""
        return self._sampler is not None and self._sampler.took_leave(pid)

    def is_alone(self) -> bool:
        """Whether nothing of the payload is left below this process."""
        return self._sampler is not None and self._sampler.is_alone()

    def _tell_started(self, ago_s: float) -> None:
        own = self._payload.machine.processes.own()
        fields = self._fields()
        fields["timestamp"] -= timedelta(seconds=ago_s)
        launcher = self._payload.launch.launcher
        self._write(ProcessStartedEvent(**fields, launcher=launcher, host=own.host, pid=own.pid))

    def _record(self, metrics: CarbonMetricsData | None, *, final: bool = False) -> None:
        assert self._sampler is not None
        files, paths, attempt = self._payload.machine.files, self._payload.paths, self._payload.launch.attempt
        self._told_problem = self._sampler.problem
        if metrics is not None:
            self._write(CarbonMetricsEvent(**self._fields(), metrics=metrics, final=final))
        try:
            if self._measured is None:
                self._measured = read_carbon(files, paths)  # of earlier attempts
            before = self._measured.get(attempt)
            known = metrics or (before.metrics if before else None)
            self._measured[attempt] = Measured(self._clock.now(), known, self._sampler.problem)
            write_carbon(files, paths, self._measured)
        except OSError:
            return  # a full disk takes the numbers

    def _fields(self) -> dict[str, Any]:
        return {
            "timestamp": self._clock.now(),
            "job_id": self._payload.instructions.job_id,
            "task_id": self._payload.instructions.task_id,
            "attempt": self._payload.launch.attempt,
            "owner": self._payload.launch.owner,
        }

    def _write(self, event: Event) -> None:
        files, directory = self._payload.machine.files, self._payload.paths.directory
        try:
            if files.stat(directory) is not None:  # or a workspace that was deleted would rise again
                self._writer.write(event)
        except (OSError, JournalError):
            return  # events are a convenience
