"""Requirements: what a job needs, as alternatives in the order of preference, and the hosts that satisfy one.
Starts and chooses nothing; `choice` finds a launcher for a requirement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tenuto.errors import RequirementError
from tenuto.launchers.requirements_text import read_alternatives
from tenuto.launchers.requirements_values import KINDS, Alternative, Gpus, about_size, size_text, time_text


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device of a host."""

    kind: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Host:
    """What a machine, or a partition of a cluster, offers to one job; None is without limit."""

    cores: int | None = None
    memory_bytes: int | None = None
    gpus: tuple[Gpu, ...] = ()
    max_duration_s: float | None = None
    least_gpus: int = 0
    """Jobs that ask for fewer GPUs are not wanted here."""
    priority: int = 0
    """Of two hosts that fit, the one with the larger number is chosen."""


@dataclass(frozen=True, slots=True)
class Match:
    """How a host satisfies a requirement; of several matches the largest score is the best."""

    alternative: Alternative
    score: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a job needs: alternatives, the preferred one first. ``str()`` is canonical and reads back."""

    alternatives: tuple[Alternative, ...]

    def __post_init__(self) -> None:
        given: Any = self.alternatives
        if not isinstance(given, tuple) or not given or not all(isinstance(a, Alternative) for a in given):
            told = f"a requirement is a tuple of one or more alternatives, not {given!r:.60}"
            raise RequirementError(told, "", 0)

    @classmethod
    def parse(cls, text: Any) -> Requirement:
        """Reads a text such as ``"duration=4h & cuda*2 | duration=1d"``; returns a requirement as it is.

        Raises `RequirementError`, with the position of the first character that cannot be.
        """
        if isinstance(text, Requirement):
            return text
        if not isinstance(text, str):
            shown = f"{type(text).__name__}: {text!r:.60}"
            raise RequirementError(f"a requirement is a text, such as 'cpu(cores=2)', not {shown}", "", 0)
        return cls(read_alternatives(text))

    def __str__(self) -> str:
        return " | ".join(map(str, self.alternatives))

    def __and__(self, other: Requirement) -> Requirement:
        """Both: each alternative of the one joined with each of the other; nothing may be said by both."""
        if not isinstance(other, Requirement):
            return NotImplemented
        pairs = [f"{mine} & {its}" for mine in self.alternatives for its in other.alternatives]
        return Requirement(tuple(joined for pair in pairs for joined in read_alternatives(pair)))

    def __or__(self, other: Requirement) -> Requirement:
        """Either: the alternatives of this one first."""
        if not isinstance(other, Requirement):
            return NotImplemented
        return Requirement(self.alternatives + other.alternatives)

    def match(self, host: Host) -> Match | None:
        """How a host satisfies this requirement: by the first alternative that fits; None if none does."""
        for number, alternative in enumerate(self.alternatives):
            if unfit(alternative, host) is None:
                return Match(alternative, (-number, host.priority, -_waste(alternative, host)))
        return None


class Devices(NamedTuple):
    """Which devices of a host a job gets."""

    chosen: tuple[int, ...]
    wasted_bytes: int


def choose_devices(gpus: Gpus, host: Host) -> Devices | None:
    """Positions of the smallest devices that fit, none twice; None if there are too few."""
    fitting = sorted(
        (device.memory_bytes, position)
        for position, device in enumerate(host.gpus)
        if gpus.kind in ("gpu", device.kind) and device.memory_bytes >= (gpus.memory_bytes or 0)
    )[: gpus.count]
    if len(fitting) < gpus.count:
        return None
    wasted = sum(size - (gpus.memory_bytes or 0) for size, _ in fitting)
    return Devices(tuple(position for _, position in fitting), wasted)


def unfit(alternative: Alternative, host: Host) -> str | None:
    """Why a host cannot run an alternative; None if it can."""
    cores, memory, gpus = alternative.cores or 1, alternative.memory_bytes, alternative.gpus
    if host.cores is not None and cores > host.cores:
        return f"{cores} cores are asked for, and it offers {host.cores}"
    if memory is not None and host.memory_bytes is not None and memory > host.memory_bytes:
        return f"{size_text(memory)} of memory are asked for, and it offers {about_size(host.memory_bytes)}"
    duration = alternative.duration_s
    if duration is not None and host.max_duration_s is not None and duration > host.max_duration_s:
        return f"{time_text(duration)} are asked for, and it allows {time_text(host.max_duration_s)}"
    if (gpus.count if gpus else 0) < host.least_gpus:
        return f"it is for jobs with at least {host.least_gpus} GPUs"
    if gpus is not None and choose_devices(gpus, host) is None:
        return f"{gpus} is asked for, and it has {_devices(host)}"
    return None


def _waste(alternative: Alternative, host: Host) -> float:
    """How much of a host a job would leave unused, from 0 to about 3."""
    waste = 0.0
    if host.cores:
        waste += 1 - (alternative.cores or 1) / host.cores
    if host.memory_bytes:
        waste += 1 - (alternative.memory_bytes or 0) / host.memory_bytes
    everything = sum(device.memory_bytes for device in host.gpus)
    if everything:
        gpus = alternative.gpus
        devices = choose_devices(gpus, host) if gpus else None
        used = sum(host.gpus[position].memory_bytes for position in devices.chosen) if devices else 0
        waste += 1 - (used - (devices.wasted_bytes if devices else 0)) / everything
    return waste


def _devices(host: Host) -> str:
    if not host.gpus:
        return "no GPU"
    return ", ".join(f"{device.kind}(mem={about_size(device.memory_bytes)})" for device in host.gpus)


__all__ = ["KINDS", "Alternative", "Gpu", "Gpus", "Host", "Match", "Requirement", "choose_devices", "unfit"]
