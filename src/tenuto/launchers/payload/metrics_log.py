"""The metrics that a task logs, on their way to the file of its job: in batches, bounded, never in the way.
Lives in the payload; a point that cannot be written is no reason to fail a job.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Mapping

from tenuto.errors import TenutoError
from tenuto.launchers.payload.assignment import Assignment
from tenuto.launchers.payload.progress_reports import rank
from tenuto.workspace.points import MOST_POINTS, Curves, MetricPoint, line_of, lines_of, thinned
from tenuto.workspace.ports import FileKind

INFINITY = float("inf")
BATCH_S = 0.5
"""How long a point waits for others before it is written."""
_IDLE_BATCHES = 10
"""After so many batches without a point the thread that writes ends, until there is one again."""
_LONGEST_FILE = 1 << 30


class _Curve:
    """The facts about the points of one name."""

    __slots__ = ("high", "highest", "last", "low", "lowest", "next_step", "seen", "stride", "written")

    def __init__(self) -> None:
        self.next_step = 0
        self.seen = 0
        self.written = 0
        """Lines in the file."""
        self.stride = 1
        """Every so many points one is written at once."""
        self.low, self.high = INFINITY, -INFINITY
        """Of finite values: another value hides no extreme."""
        self.lowest: MetricPoint | None = None
        """The smallest point since the last batch, if it was passed over; likewise the other two."""
        self.highest: MetricPoint | None = None
        self.last: MetricPoint | None = None

    def passed_over(self) -> list[MetricPoint]:
        """The points that the next batch has besides, by step."""
        found = [point for point in (self.lowest, self.highest, self.last) if point is not None]
        self.lowest = self.highest = self.last = None
        return sorted(set(found)) if len(found) > 1 else found


def close_at_end(log: MetricsLog) -> None:
    """Has the last batch of a forked child written, which ends without its job, as a `Process` does."""
    atexit.register(log.close)
    processes = sys.modules.get("multiprocessing.util")
    if processes is not None:
        processes.Finalize(None, log.close, exitpriority=0)


class MetricsLog:
    """The points of one process of the payload."""

    def __init__(self, assignment: Assignment, *, goes_on: bool) -> None:
        """`goes_on`: the attempt resumes an earlier one, and counts its steps on."""
        self._assignment = assignment
        self._files = assignment.machine.files
        self._clock = assignment.machine.clock
        self._path = assignment.paths.metrics
        self.pid = os.getpid()
        self._is_silent = rank(os.environ) > 0  # the first process of a distributed program speaks for all
        self._lock = allocate_lock()
        self._writing = allocate_lock()
        self._pause = allocate_lock()
        self._pause.acquire()
        self._pending: list[tuple[str, MetricPoint]] = []
        self._curves: dict[str, _Curve] = {}
        self._has_thread = False
        self._is_closed = False
        self._is_torn = False
        self._is_shared = False
        """Lines of the file are another writer's: it is never written anew."""
        self._has_complained = False
        self._read_earlier(goes_on)

    def log(self, values: Mapping[str, float], step: int | None) -> None:
        """Has the points written by the next batch."""
        if self._is_silent:
            return
        time, attempt = self._clock.now().timestamp(), self._assignment.attempt
        with self._lock:
            for name, value in values.items():
                curve = self._curves.get(name)
                if curve is None:
                    curve = self._curves[name] = _Curve()
                at = curve.next_step if step is None else step
                curve.next_step = at + 1
                self._add(name, curve, MetricPoint(at, time, value, attempt))
            starts, self._has_thread = not (self._has_thread or self._is_closed), True
        if self._is_closed:
            self._write_batch()
        elif starts:
            start_new_thread(self._write_on, ())

    def close(self) -> None:
        """Writes the waiting points; later points are written at once."""
        self._is_closed = True
        if self._pause.locked():
            self._pause.release()
        self._write_batch()

    def _add(self, name: str, curve: _Curve, point: MetricPoint) -> None:
        curve.seen += 1
        value = point.value
        is_low, is_high = -INFINITY < value < curve.low, INFINITY > value > curve.high
        if is_low:
            curve.low = value
        if is_high:
            curve.high = value
        if curve.seen % curve.stride == 0:
            self._pending.append((name, point))
            return
        curve.last = point
        if is_low:
            curve.lowest = point
        if is_high:
            curve.highest = point

    def _write_on(self) -> None:
        """The thread that writes batches while points come."""
        idle = 0
        while not self._is_closed:
            self._pause.acquire(True, BATCH_S)
            idle = 0 if self._write_batch() else idle + 1
            with self._lock:
                if idle >= _IDLE_BATCHES and not self._pending:
                    self._has_thread = False
                    return

    def _write_batch(self) -> bool:
        """Appends the waiting points; False if there are none."""
        with self._writing:
            with self._lock:
                pending, self._pending = self._pending, []
                for name, curve in self._curves.items():
                    pending += [(name, point) for point in curve.passed_over()]
                for name, _ in pending:
                    self._curves[name].written += 1
                is_full = any(curve.written > MOST_POINTS for curve in self._curves.values())
            if not pending:
                return False
            try:
                self._append(b"".join(line_of(name, point) for name, point in pending))
                if is_full and not self._is_shared:
                    self._thin()
            except (OSError, TenutoError) as error:
                self._complain(error)
            return True

    def _append(self, data: bytes) -> None:
        # Opened for each batch: another process of the payload may have written the file anew.
        file = self._files.open_append(self._path)
        try:
            torn, self._is_torn = self._is_torn, True
            file.append(b"\n" + data if torn else data)
            self._is_torn = False
        finally:
            file.close()

    def _thin(self) -> None:
        """Writes the file anew, with half of the points of each name that has too many."""
        found = self._read()
        if found.strange:
            self._is_shared = True
            return
        kept = found.sorted(_LONGEST_FILE)
        with self._lock:
            for name, points in kept.items():
                curve = self._curves.setdefault(name, _Curve())
                if found.counts[name] > MOST_POINTS:
                    kept[name] = thinned(points, MOST_POINTS // 2)
                    curve.stride *= max(round(len(points) / len(kept[name])), 2)
                curve.written = len(kept[name])
        self._files.replace(self._path, lines_of(kept), durable=False)

    def _read_earlier(self, goes_on: bool) -> None:
        """Counts the points of earlier attempts."""
        try:
            if self._files.stat(self._path) is None:
                return
            found = self._read()
        except (OSError, TenutoError) as error:
            self._complain(error)
            return
        self._is_shared = found.strange > 0
        for name, count in found.counts.items():
            curve = self._curves[name] = _Curve()
            curve.written = count
            for point in found.points[name].values():
                if -INFINITY < point.value < INFINITY:
                    curve.low, curve.high = min(curve.low, point.value), max(curve.high, point.value)
            curve.next_step = found.next_steps[name] if goes_on else 0

    def _read(self) -> Curves:
        found = Curves()
        stat = self._files.stat(self._path)
        if stat is not None and stat.kind is FileKind.FILE:
            data = self._files.read_range(self._path, 0, _LONGEST_FILE)
            self._is_torn = bool(data) and not data.endswith(b"\n")
            found.add(data)
        return found

    def _complain(self, error: Exception) -> None:
        if not self._has_complained:
            self._has_complained = True
            print(f"tenuto: metrics cannot be recorded: {error}", file=sys.stderr)  # noqa: T201  the job's log
