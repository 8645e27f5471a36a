"""What a job asked for against what it used: time, memory, processors; of its last attempt.
Reads the launch record and the marker of a job's directory; measures nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tenuto.jobs.text import duration
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.requirements import Requirement, about_size
from tenuto.workspace.attempt_files import read_launch
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import Files


class JobUsage(NamedTuple):
    """Asked and used; None: there was no limit, or it was not measured."""

    attempt: int
    asked_s: float | None
    used_s: float | None
    asked_bytes: int | None
    used_bytes: int | None
    cores: int
    cpu_s: float | None

    @property
    def cpu_share(self) -> float | None:
        """How much of its processors the job kept busy, from 0 to 1, or more if it took others'."""
        return None if self.cpu_s is None or not self.used_s else self.cpu_s / (self.used_s * self.cores)

    def sentences(self) -> list[str]:
        """Each kind of thing in one line, such as ``memory: 1.2G of 4.0G (30 %)``."""
        told = []
        if self.used_s is not None:
            told.append(f"time: {_against(self.used_s, self.asked_s, duration)}")
        if self.used_bytes is not None:
            told.append(f"memory: {_against(self.used_bytes, self.asked_bytes, about_size)}")
        if self.cpu_s is not None and self.cpu_share is not None:
            cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
            told.append(f"processors: {duration(self.cpu_s)} of CPU time, {self.cpu_share:.0%} of {cores}")
        return told


def usage_of(files: Files, paths: JobPaths) -> JobUsage | None:
    """The usage of a job whose last attempt ended; None if nothing was measured."""
    launch, found = read_launch(files, paths), read_markers(files, paths)
    ends = [one for one in found if isinstance(one, Marker) and launch and one.nonce == launch.nonce]
    if launch is None or not ends or not ends[0].usage:
        return None
    try:
        told = Instructions.of(launch)
        asked = Requirement.parse(told.asked).alternatives[0] if told.asked else None
    except (ValueError, TypeError, KeyError):
        return None
    used = ends[0].usage
    rss = used.get("max_rss_bytes")
    cpu = [used[name] for name in ("user_s", "system_s") if name in used]
    return JobUsage(
        launch.attempt,
        told.limits.walltime_s or (asked.duration_s if asked else None),
        used.get("wall_s"),
        told.limits.memory_bytes,
        None if rss is None else int(rss),
        asked.cores_per_node if asked else told.slots,
        sum(cpu) if cpu else None,
    )


def _against(used: Any, asked: Any, text: Any) -> str:
    return text(used) if not asked else f"{text(used)} of {text(asked)} ({used / asked:.0%})"
