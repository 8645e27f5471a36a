"""What jobs measured: the files that they log metrics to, rows of these for data frames, usage against order.
Reads on from its last look; follows no link, and draws nothing.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tenuto.errors import BadQuestion, NotRegularFile
from tenuto.jobs.row import Row
from tenuto.jobs.text import duration
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.requirements import Requirement, about_size
from tenuto.workspace.attempt_files import read_launch
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.points import SYSTEM, Curves, MetricPoint, Points, is_record
from tenuto.workspace.ports import FileKind, Files

_CHUNK = 8 << 20
_MOST_KEPT = 2_000_000
"""Points that a reader remembers; the files that were not asked for longest are forgotten."""


def points_in(data: bytes) -> dict[str, list[MetricPoint]]:
    """The points in the content of a file of metrics."""
    curves, begin = Curves(), 0
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + _CHUNK) + 1
        if end <= begin:  # one line, whatever its length
            end = data.find(b"\n", begin) + 1 or len(data)
        curves.add(data[begin:end])
        begin = end
    return curves.sorted()


class MetricColumn(NamedTuple):
    """One number of a curve, as a column of results."""

    metric: str
    pick: str = "last"
    """The last point, or the smallest or largest finite one: one of `PICKS`."""

    @property
    def name(self) -> str:
        return self.metric if self.pick == "last" else f"{self.metric}:{self.pick}"

    def of(self, points: Points) -> float | None:
        """The number of one job's points; None if it logged no such metric, or no finite number of it."""
        curve = points.get(self.metric, ())
        if self.pick == "last":
            return last_point(curve).value if curve else None
        finite = [point.value for point in curve if math.isfinite(point.value)]
        return PICKS[self.pick](finite) if finite else None


def last_point(curve: Sequence[MetricPoint]) -> MetricPoint:
    """The last point of the last attempt: an earlier one, begun anew, may have come further."""
    return max(curve, key=lambda point: (point.attempt, point.step))


PICKS: dict[str, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1],
    "min": min,
    "max": max,
}
"""What a column of a metric shows of a job's curve."""


def metric_column(text: str) -> MetricColumn:
    """The column that `loss`, `loss:min` and their like stand for; `BadQuestion` for anything else."""
    metric, colon, pick = text.rpartition(":")
    if not colon:
        metric, pick = text, "last"
    if not metric.strip() or pick not in PICKS:
        raise BadQuestion(
            f"{text!r:.80} is no metric: give its name, or NAME:{'|'.join(PICKS)}, as in loss:min"
        )
    return MetricColumn(metric.strip(), pick)


class _Seen(NamedTuple):
    inode: int
    end: int
    curves: Curves
    sorted: dict[str, list[MetricPoint]]


class MetricsReader:
    """Reads files of metrics while they grow, each line once; from any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

    def read(self, path: str) -> Points:
        """The points of a file as it is now; none if there is no such file."""
        with self._lock:
            try:
                return self._read(path)
            except (OSError, NotRegularFile):
                return {}

    def of_job(self, paths: JobPaths) -> Points:
        """The points that a job logged, and after them what its runner measured."""
        logged, used = self.read(paths.metrics), self.read(paths.usage)
        return {**logged, **{name: points for name, points in used.items() if name not in logged}}

    def stamp(self, paths: JobPaths) -> object:
        """What differs once a job has more points; None: it has none."""
        sizes = self.size(paths.metrics), self.size(paths.usage)
        return sizes if any(sizes) else None

    def size(self, path: str) -> tuple[int, int] | None:
        """What differs once the file has grown or was written anew: its inode and size; None: no file."""
        try:
            found = self._files.stat(path)
        except OSError:
            found = None
        return (found.inode, found.size) if found is not None and found.kind is FileKind.FILE else None

    def _read(self, path: str) -> Points:
        found = self.size(path)
        seen = self._seen.pop(path, None)
        if found is None:
            return {}
        inode, size = found
        if seen is None or seen.inode != inode or size < seen.end:
            seen = _Seen(inode, 0, Curves(), {})
        if size > seen.end:
            end = seen.end
            while data := self._files.read_range(path, end, _CHUNK):
                cut = data.rfind(b"\n") + 1
                if not cut and not is_record(data):  # a line that is being written
                    break
                cut = cut or len(data)
                seen.curves.add(data[:cut])
                end += cut
            seen = seen._replace(end=end, sorted=seen.curves.sorted())
        self._seen[path] = seen
        kept = sum(len(points) for one in self._seen.values() for points in one.sorted.values())
        while kept > _MOST_KEPT and len(self._seen) > 1:
            _, forgotten = self._seen.popitem(last=False)
            kept -= sum(map(len, forgotten.sorted.values()))
        return seen.sorted


def is_wanted(name: str, names: Sequence[str]) -> bool:
    """True if `names` has the metric; without names, if the job itself logged it."""
    return name in names if names else not name.startswith(SYSTEM)


def metric_rows(jobs: Iterable[tuple[Row, Points]], names: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """One row for each point: the job, its tags, metric, step, time, value and attempt.

    `names`: the metrics that are wanted; by default all that jobs logged. Every row has the same columns.
    """
    known = [(row, points) for row, points in jobs if points]
    fixed = ("id", "kind", "group", "task", "metric", "step", "time", "value", "attempt")
    tags = dict.fromkeys(name for row, _ in known for name in row.tags)
    for row, points in known:
        job = {"id": row.id, "kind": row.door.kind, "group": row.group.partition(":")[2], "task": row.task}
        said = {f"tag.{name}" if name in fixed else name: row.tags.get(name) for name in tags}
        for name, curve in points.items():
            if is_wanted(name, names):
                for point in curve:
                    yield {
                        **job,
                        **said,
                        "metric": name,
                        "step": point.step,
                        "time": point.time,
                        "value": point.value,
                        "attempt": point.attempt,
                    }


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
