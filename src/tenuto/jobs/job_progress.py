"""How far a job said it was: its last report, and the time that is left.
Reads both ends of a journal, however long it is, and never follows a link.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from tenuto.errors import MalformedEvent, NotRegularFile
from tenuto.lifecycle.events import JobProgressEvent, from_record
from tenuto.workspace.layout import JournalPlace
from tenuto.workspace.lines import unseal
from tenuto.workspace.ports import FileKind, Files

_PROGRESS_BYTES = 16 * 1024
_MOST_FILES = 100_000


class ProgressStart(NamedTuple):
    """Where an attempt was when it began."""

    fraction: float
    reported: datetime


class Progress(NamedTuple):
    """How far a job said it was."""

    fraction: float
    desc: str | None
    reported: datetime
    start: ProgressStart | None = None
    inner: tuple[str, ...] = ()
    """The loops inside, in words, the outer first."""

    @property
    def words(self) -> str:
        """What the job is at, and how far the loops inside are."""
        return " > ".join(part for part in (self.desc, *self.inner) if part)

    def left_s(self, now: datetime) -> float | None:
        """The time that is left, if work continues as it did since the job began; None while unknown."""
        if self.start is None or not self.start.fraction < self.fraction <= 1:
            return None
        took = (self.reported - self.start.reported).total_seconds()
        left = took * (1 - self.fraction) / (self.fraction - self.start.fraction)
        return max(left - max((now - self.reported).total_seconds(), 0.0), 0.0) if took > 0 else None


class ProgressSoFar:
    """Puts the reports of one attempt together, as they come.

    The first attempt began with nothing, when it was started; where a later one began is known when it first
    says so, since it may have found a checkpoint.
    """

    def __init__(self, attempt: int, since: datetime | None) -> None:
        self.progress: Progress | None = None
        self._start = ProgressStart(0.0, since) if attempt == 1 and since is not None else None
        self._inner: dict[int, str] = {}

    def add(self, event: JobProgressEvent) -> None:
        """One more report, in the order of the journal."""
        fraction = min(max(event.progress, 0.0), 1.0)
        if event.level > 0:
            self._inner = {level: text for level, text in self._inner.items() if level < event.level}
            self._inner[event.level] = f"{event.desc} {fraction:.0%}" if event.desc else f"{fraction:.0%}"
        else:
            self._start = self._start or ProgressStart(fraction, event.timestamp)
            self.progress = Progress(fraction, event.desc, event.timestamp, self._start)
            self._inner = {}
        if self.progress is not None:
            inner = tuple(self._inner[level] for level in sorted(self._inner))
            self.progress = self.progress._replace(inner=inner)


def last_progress(
    files: Files, place: JournalPlace, attempt: int, since: datetime | None = None
) -> Progress | None:
    """What a job reported last, in the attempt that began at `since`; of a long journal reads both ends."""
    paths = _paths(files, place)
    for path in reversed(paths):  # the runner has a file of its own, and so has each process that reports
        found = ProgressSoFar(attempt, since)
        for event in _reports(files, path, attempt):
            found.add(event)
        if found.progress is not None:
            return found.progress
    return None


def _reports(files: Files, path: str, attempt: int) -> Iterator[JobProgressEvent]:
    """The first and the last reports in a file."""
    try:
        found = files.stat(path)
        if found is None or found.kind is not FileKind.FILE:
            return
        data = files.read_range(path, 0, _PROGRESS_BYTES)
        if found.size > len(data):
            data = data[: data.rfind(b"\n") + 1]
            # The line that is cut at its beginning is no line of ours, and is passed over.
            data += files.read_range(path, max(found.size - _PROGRESS_BYTES, len(data)), _PROGRESS_BYTES)
    except (OSError, NotRegularFile):
        return
    for line in data.split(b"\n")[:-1]:
        content = unseal(line + b"\n")
        if content is None or "e" not in content:
            continue
        try:
            event = from_record(content["e"])
        except MalformedEvent:
            continue
        if isinstance(event, JobProgressEvent) and event.attempt == attempt:
            yield event


def _paths(files: Files, place: JournalPlace) -> list[str]:
    paths: list[str] = []
    for number in range(_MOST_FILES):
        path = place.path(number)
        if files.stat(path) is None:
            break
        paths.append(path)
    return paths
