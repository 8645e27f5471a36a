"""codecarbon as a tracker: the energy of this machine, of which a job is charged the part of its CPU time.
Asks nothing of the network; loaded in the meter's process only.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from tenuto.light import late

codecarbon: Any = late("codecarbon")
psutil: Any = late("psutil")  # which codecarbon needs itself

JOULES_PER_KWH = 3.6e6
VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Which codecarbon reads as well."""


class Usage(NamedTuple):
    """CPU seconds so far."""

    job: float
    machine: float


def share(before: Usage, after: Usage) -> float:
    """The part of the machine's work that was the job's."""
    busy = after.machine - before.machine
    return min(max((after.job - before.job) / busy, 0.0), 1.0) if busy > 0 else 0.0


def device_share(visible: str | None, share: float) -> float:
    """The part of what the GPUs use that is the job's, by the list of those it may see.

    Devices that were given to it are its own; of all devices it has its part, as it has of the rest.
    """
    if visible is None:
        return share
    return 1.0 if visible.strip() else 0.0


class CodecarbonTracker:
    """Measures from one sample to the next, each a task of codecarbon's, and adds up."""

    def __init__(self, runner: int, country: str | None) -> None:
        self._runner = runner
        self._visible = next((os.environ[name] for name in VISIBLE_DEVICES if name in os.environ), None)
        self._tracker = codecarbon.OfflineEmissionsTracker(
            country_iso_code=country,
            tracking_mode="machine",  # "process" would be the meter itself
            save_to_file=False,
            allow_multiple_runs=True,
            log_level="critical",
        )
        self._total = {"co2_kg": 0.0, "energy_kwh": 0.0, "duration_s": 0.0}
        self._samples = 0
        self._before = self._begin()

    def sample(self) -> dict[str, Any]:
        """What the job used since the tracker was made."""
        measured = self._tracker.stop_task()
        usage = self._usage()
        part = share(self._before, usage)
        devices = device_share(self._visible, part) * measured.gpu_energy
        energy = devices + part * (measured.cpu_energy + measured.ram_energy)
        intensity = measured.emissions / measured.energy_consumed if measured.energy_consumed else 0.0
        self._total["energy_kwh"] += energy
        self._total["co2_kg"] += energy * intensity
        self._total["duration_s"] += measured.duration
        self._before = self._begin()
        watts = JOULES_PER_KWH / measured.duration if measured.duration else 0.0
        return {
            **self._total,
            "cpu_power_w": part * measured.cpu_energy * watts,
            "gpu_power_w": devices * watts,
            "ram_power_w": part * measured.ram_energy * watts,
            "region": measured.country_iso_code,
        }

    def _begin(self) -> Usage:
        self._samples += 1
        self._tracker.start_task(f"sample {self._samples}")
        return self._usage()

    def _usage(self) -> Usage:
        times = psutil.cpu_times()
        machine = sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
        job = 0.0
        runner = psutil.Process(self._runner)
        for process in [runner, *runner.children(recursive=True)]:
            if process.pid == os.getpid():
                continue
            try:
                used = process.cpu_times()
            except psutil.Error:
                continue  # it ended; its parent is charged when it takes note
            job += used.user + used.system + used.children_user + used.children_system
        return Usage(job, machine)


def codecarbon_tracker(runner: int, country: str | None) -> CodecarbonTracker:
    """The tracker that is used unless the setting `carbon.tracker` names another."""
    return CodecarbonTracker(runner, country)
