"""The runner's end of the meter: starts it, takes its output, and ends it without waiting for anything.
Whatever the meter does, a call here takes as long as a few system calls.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tenuto.launchers.instructions import CarbonPlan
from tenuto.launchers.leftovers import descendants
from tenuto.lifecycle.events import CarbonMetricsData
from tenuto.workspace.carbon import metrics_of
from tenuto.workspace.json_bytes import from_json

_METER = f"{__file__.rpartition('/')[0]}/meter.py"
_LOOK_EVERY_S = 1.0
_MOST_BYTES = 1 << 16
_JOULES_PER_KWH = 3.6e6


def visible_devices(environment: Mapping[str, str]) -> dict[str, str]:
    """Which devices are the job's. A meter sees nothing else that the job was given."""
    return {name: value for name, value in environment.items() if name.endswith("_VISIBLE_DEVICES")}


def start_meter(arguments: Sequence[str], variables: Mapping[str, str]) -> tuple[int, int]:
    """Starts a program beside the payload, in a session of its own: its pid, and a pipe that never blocks."""
    # A meter that had the lock would keep it when the runner is killed.
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            os.set_inheritable(int(name), False)
    pipe, told = os.pipe()
    try:
        os.set_blocking(pipe, False)
        pid = os.posix_spawn(
            arguments[0],
            list(arguments),
            {**os.environ, **variables},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, told, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            # The kernel shares cores between sessions first: the job must not pay for its meter.
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGTERM, signal.SIGPIPE),
        )
    except OSError:
        os.close(pipe)
        raise
    finally:
        os.close(told)
    return pid, pipe


class CarbonSampler:
    """One meter, from its start to its end."""

    def __init__(self, plan: CarbonPlan, began: float, environment: Mapping[str, str]) -> None:
        """`began`: when the job did, on the monotonic clock. `environment`: the job's additions."""
        self._plan = plan
        self._environment = environment
        self.due = began + plan.after_s
        self._pid: int | None = None
        self.problem: str | None = None
        """Why nothing is measured, in the words of the tracker."""
        self._pipe = -1
        self._unread = b""
        self._last: CarbonMetricsData | None = None
        self._heard = 0.0

    def look(self, now: float) -> CarbonMetricsData | None:
        """Start the meter when its time has come; returns its output since the last look, if any."""
        self.due = now + _LOOK_EVERY_S
        if self._pipe < 0:
            self._start()
            return None
        heard = self._take(now)
        if self._pid is None:
            self.due = float("inf")  # it has ended, and said all it had to say
        return heard

    def last_words(self, now: float) -> CarbonMetricsData | None:
        """End the meter; returns the use in all. Since it spoke, the power that it measured last was used."""
        self.due = float("inf")
        if self._pipe < 0:
            return None
        self._take(now)
        if self._pid is not None:
            with suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
        if self._last is None:
            return None
        return _extended(self._last, max(now - self._heard, 0.0))

    def took_leave(self, pid: int) -> bool:
        """A child has ended: whether it was the meter. From now on its pid may be another process's."""
        if pid != self._pid:
            return False
        self._pid = None
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)  # its children; now, while the number cannot be another's
        return True

    def is_alone(self) -> bool:
        """Whether the only processes below the runner are the meter and its children."""
        return self._pid is not None and all(self.is_ours(pid) for pid in descendants())

    def is_ours(self, pid: int) -> bool:
        """True for the meter and its children, and for a process that is gone."""
        try:
            return os.getpgid(pid) == self._pid
        except ProcessLookupError:
            return True  # it is gone

    def _start(self) -> None:
        plan = self._plan
        arguments = [plan.tracker, str(os.getpid()), str(plan.every_s), plan.country or "", plan.beside]
        try:
            self._pid, self._pipe = start_meter(
                [sys.executable, "-P", _METER, *arguments], visible_devices(self._environment)
            )
        except OSError as error:
            self.due = float("inf")
            self.problem = f"the meter cannot be started: {error.strerror}"

    def _take(self, now: float) -> CarbonMetricsData | None:
        heard: CarbonMetricsData | None = None
        with suppress(OSError):  # nothing to read yet
            self._unread += os.read(self._pipe, _MOST_BYTES)
        *lines, self._unread = self._unread.split(b"\n")
        self._unread = self._unread[:_MOST_BYTES]
        for line in lines[-1:]:  # they are totals: the last one says it all
            heard = self._understood(line)
        if heard is not None:
            self._last, self._heard = heard, now
        return heard

    def _understood(self, line: bytes) -> CarbonMetricsData | None:
        try:
            content: Any = from_json(line)
            if "problem" in content:
                self.problem = str(content["problem"])
                return None
            return metrics_of(content)
        except (ValueError, TypeError, KeyError, RecursionError):
            self.problem = "the tracker says what cannot be understood"
            return None


def _extended(last: CarbonMetricsData, seconds: float) -> CarbonMetricsData:
    watts = last.cpu_power_w + last.gpu_power_w + last.ram_power_w
    more = watts * seconds / _JOULES_PER_KWH
    intensity = last.co2_kg / last.energy_kwh if last.energy_kwh else 0.0
    return CarbonMetricsData(
        co2_kg=last.co2_kg + more * intensity,
        energy_kwh=last.energy_kwh + more,
        duration_s=last.duration_s + seconds,
        cpu_power_w=last.cpu_power_w,
        gpu_power_w=last.gpu_power_w,
        ram_power_w=last.ram_power_w,
        region=last.region,
    )
