"""What a supervisor does besides watching, once a job has run for a moment: events, energy, usage.
Loaded then and not before: most of what a short job costs is what its runner loads. Nothing here fails a job.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from tenuto.errors import JournalError
from tenuto.launchers.carbon.sampler import CarbonSampler, start_meter, visible_devices
from tenuto.launchers.leftovers import descendants
from tenuto.launchers.payload.payload import Payload
from tenuto.lifecycle.events import (
    CarbonMetricsData,
    CarbonMetricsEvent,
    Event,
    ProcessStartedEvent,
    ProcessStateEvent,
)
from tenuto.lifecycle.states import ProcessState
from tenuto.light import signal
from tenuto.workspace.carbon import Measured, read_carbon, write_carbon
from tenuto.workspace.event_writer import EventWriter
from tenuto.workspace.json_bytes import to_json
from tenuto.workspace.points import SYSTEM

USAGE_AFTER_S = 3.0
"""Shorter jobs have no usage over time: their marker has the sum."""
USAGE_EVERY_S = 10.0
USAGE_POINTS = 500
"""An attempt that runs for longer than so many pauses is looked at less often."""


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
        self._usage = UsageSampler(payload, began, self._is_meter)
        self._tell_started(self._clock.monotonic() - began)

    @property
    def due(self) -> float:
        """When to be asked to `act` again."""
        return self._usage.due if self._sampler is None else min(self._usage.due, self._sampler.due)

    def act(self, now: float) -> None:
        """Do the due work."""
        if now >= self._usage.due:
            self._usage.look(now)
        if self._sampler is not None and now >= self._sampler.due:
            metrics = self._sampler.look(now)
            if metrics is not None or self._sampler.problem != self._told_problem:
                self._record(metrics)

    def stopping(self) -> None:
        """The payload was asked to end."""
        self._write(ProcessStateEvent(**self._fields(), state=ProcessState.STOPPING.value))

    def payload_gone(self) -> None:
        """The payload has ended; its children have not yet."""
        self._usage.close()
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
        if self._usage.took_leave(pid):
            return True
        return self._sampler is not None and self._sampler.took_leave(pid)

    def is_alone(self) -> bool:
        """Whether nothing of the payload is left below this process."""
        return self._sampler is not None and self._sampler.is_alone()

    def _is_meter(self, pid: int) -> bool:
        return self._sampler is not None and self._sampler.is_ours(pid)

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


class UsageSampler:
    """What the payload and its host use over time: a few points at each look, appended to `usage.jsonl`."""

    def __init__(self, payload: Payload, began: float, is_meter: Callable[[int], bool]) -> None:
        """`began`: when the payload was forked, on the monotonic clock. `is_meter`: of processes of ours."""
        self._payload = payload
        self._began = self._looked = began
        self._is_meter = is_meter
        self.due = began + USAGE_AFTER_S
        self._cpu_s = 0.0
        self._host = (0.0, 0.0)
        environment = payload.instructions.environment
        self._devices = visible_devices(environment)
        has_gpu = bool(self._devices.get("CUDA_VISIBLE_DEVICES"))
        self._gpu_program = shutil.which("nvidia-smi") if has_gpu else None
        self._gpu_pid: int | None = None
        self._gpu_pipe = -1

    def look(self, now: float) -> None:
        """Appends the use since the last look."""
        self.due = now + max(USAGE_EVERY_S, (now - self._began) / USAGE_POINTS)
        with suppress(OSError, ValueError, IndexError):  # a kernel that hides it, or a disk that is full
            cpu_s, memory = self._used()
            busy, total = _host_ticks()
            values = {
                "cpu": max(cpu_s - self._cpu_s, 0.0) / max(now - self._looked, 0.001),
                "memory": memory,
                "host_memory": _host_memory(),
            }
            if self._host[1]:  # the first count is that since the host was started
                values["host_cpu"] = (busy - self._host[0]) / max(total - self._host[1], 1.0)
            self._cpu_s, self._host, self._looked = cpu_s, (busy, total), now
            self._append(values | self._gpus())

    def took_leave(self, pid: int) -> bool:
        """A child has ended: whether it was the question to the devices."""
        is_ours = pid == self._gpu_pid
        if is_ours:
            self._gpu_pid = None
        return is_ours

    def close(self) -> None:
        """Ends the question to the devices; the runner reaps it."""
        self.due = float("inf")
        if self._gpu_pid is not None:
            with suppress(OSError):
                os.kill(self._gpu_pid, signal.SIGKILL)

    def _used(self) -> tuple[float, int]:
        """Seconds of CPU, of ended processes too, and bytes of memory."""
        times = os.times()
        ticks, pages = 0, 0
        for pid in descendants():
            if pid != self._gpu_pid and not self._is_meter(pid):
                with suppress(OSError):
                    with open(f"/proc/{pid}/stat", "rb") as stream:
                        fields = stream.read().rpartition(b")")[2].split()
                    ticks += sum(map(int, fields[11:15]))
                    pages += int(fields[21])
        ended_s = times.children_user + times.children_system
        return ended_s + ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")

    def _gpus(self) -> dict[str, float]:
        """What the devices of the job did, asked at the look before: their program may take a second."""
        if self._gpu_program is None or self._gpu_pid is not None:
            return {}
        values: dict[str, float] = {}
        if self._gpu_pipe >= 0:
            with suppress(OSError, ValueError):
                answer = os.read(self._gpu_pipe, 1 << 16).decode()
                rows = [[float(cell) for cell in line.split(",")] for line in answer.splitlines()]
                values = {
                    "gpu": sum(row[0] for row in rows) / 100,
                    "gpu_memory": sum(row[1] for row in rows) * 2**20,
                }
            os.close(self._gpu_pipe)
            self._gpu_pipe = -1
        with suppress(OSError):
            self._gpu_pid, self._gpu_pipe = start_meter(
                [
                    self._gpu_program,
                    f"--id={self._devices['CUDA_VISIBLE_DEVICES']}",
                    "--query-gpu=utilization.gpu,memory.used",
                    "--format=csv,noheader,nounits",
                ],
                {},
            )
        return values

    def _append(self, values: dict[str, float]) -> None:
        payload = self._payload
        head = {"time": round(payload.machine.clock.now().timestamp(), 3), "attempt": payload.launch.attempt}
        lines = [
            to_json({**head, "name": SYSTEM + name, "value": round(value, 4)}) + b"\n"
            for name, value in values.items()
        ]
        if payload.machine.files.stat(payload.paths.private) is not None:
            file = payload.machine.files.open_append(payload.paths.usage)
            try:
                file.append(b"".join(lines))
            finally:
                file.close()


def _host_ticks() -> tuple[float, float]:
    """Ticks that all processors of the host were busy, and all ticks."""
    with open("/proc/stat", "rb") as stream:
        ticks = [float(field) for field in stream.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _host_memory() -> float:
    """The part of the host's memory that is taken."""
    with open("/proc/meminfo", "rb") as stream:
        sizes = {line.split()[0]: float(line.split()[1]) for line in stream}
    return 1 - sizes[b"MemAvailable:"] / sizes[b"MemTotal:"]
