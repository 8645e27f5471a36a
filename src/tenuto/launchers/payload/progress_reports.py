"""What a task says of its progress, on its way to the journal of the job: thinned out, and never in the way.
Lives in the payload; a report that cannot be written is no reason to fail a job.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from tenuto.errors import JournalError
from tenuto.launchers.payload.assignment import Assignment
from tenuto.light import late

if TYPE_CHECKING:
    from tenuto.lifecycle import events
    from tenuto.workspace import event_writer
    from tenuto.workspace.event_writer import EventWriter
else:
    events = late("tenuto.lifecycle.events")
    event_writer = late("tenuto.workspace.event_writer")

_SHORTEST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_PAUSE_PER_AGE = 1 / 1000
"""The longer a job runs, the less often it reports: its journal stays small, however long that is."""
_SAY_OUTER_AGAIN = 20
"""After so many reports of inner loops the outer ones are said again, for a reader of only the last ones."""

RANK_VARIABLES = (
    "RANK",  # torchrun, Accelerate
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
    "LOCAL_RANK",  # Lightning, where nothing better is known
)
"""Where launchers of distributed programs say which of its processes this is; the first one found counts."""


def rank(environ: Mapping[str, str]) -> int:
    """The number of this process in a distributed program; 0 for the first one, and for a lone one."""
    for name in RANK_VARIABLES:
        text = environ.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return 0


class LoopProgress(NamedTuple):
    """How far a loop is."""

    value: float
    desc: str | None
    timestamp: datetime


class ProgressReports:
    """The reports of one process of the payload; one that was forked from it has a file of its own."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._clock = assignment.machine.clock
        self._began = self._clock.monotonic()
        self._lock = allocate_lock()
        self._writer: EventWriter | None = None
        self._pid = os.getpid()
        self._written: dict[int, tuple[float, LoopProgress]] = {}
        """level -> when the last report was written, and which."""
        self._held_back: dict[int, LoopProgress] = {}
        self._inner = 0

    def report(self, value: float, level: int, desc: str | None) -> None:
        """Passes a report on, or holds it back until the next one, or the end."""
        value = min(max(float(value), 0.0), 1.0) if value == value else 0.0  # nan is not itself
        now = self._clock.monotonic()
        pause_s = min(max((now - self._began) * _PAUSE_PER_AGE, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
        with self._lock:
            self._held_back[level] = LoopProgress(value, desc, self._clock.now())
            is_end = value == 1 and level == 0
            for held in sorted(self._held_back):  # outer loops first
                then, last = self._written.get(held, (-pause_s, None))
                is_news = held == level and is_end and (last is None or last.value < 1)
                if now - then >= pause_s or is_news:
                    self._pass_on(held, now)

    def close(self) -> None:
        """Pass on the report that was held back."""
        with self._lock:
            for level in sorted(self._held_back):
                self._pass_on(level, self._clock.monotonic())
            if self._writer is not None and os.getpid() == self._pid:
                self._writer.close()
                self._writer = None

    def _pass_on(self, level: int, now: float) -> None:
        report = self._held_back.pop(level)
        self._written[level] = (now, report)
        self._inner = self._inner + 1 if level else 0
        if self._inner >= _SAY_OUTER_AGAIN:
            self._inner = 0
            for outer in sorted(known for known in self._written if known < level):
                said = self._written[outer][1]
                self._write(outer, said._replace(timestamp=report.timestamp))
        self._write(level, report)

    def _write(self, level: int, report: LoopProgress) -> None:
        if rank(os.environ) > 0:
            return  # the first process of a distributed program speaks for all
        # 8 ms that a task without progress need not pay
        event = events.JobProgressEvent(
            timestamp=report.timestamp,
            job_id=self._assignment.job_id,
            task_id=self._assignment.task_id,
            attempt=self._assignment.attempt,
            progress=report.value,
            level=level,
            desc=report.desc,
            owner=self._assignment.owner,
        )
        try:
            self._open_writer().write(event)
        except (OSError, JournalError) as error:
            print(f"tenuto: progress cannot be recorded: {error}", file=sys.stderr)  # noqa: T201  the job's log

    def _open_writer(self) -> EventWriter:
        if self._writer is None or os.getpid() != self._pid:  # a forked child must not write to our file
            self._pid = os.getpid()
            assignment = self._assignment
            place = assignment.layout.job_journal(assignment.task_id, assignment.job_id)
            machine = assignment.machine
            writer = event_writer.EventWriter(machine.files, place, machine.randomness.nonce())
            self._writer = writer
        return self._writer
