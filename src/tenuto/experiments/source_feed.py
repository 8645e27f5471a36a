"""News of the experiments of a workspace: told by the kernel, with a slow look underneath.
Every hint leads to a look at a directory; a hint that is missed is found by the look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from tenuto.errors import TenutoError
from tenuto.experiments.followed_run import FollowedRun
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.directories import is_real_directory, subdirectories
from tenuto.jobs.row import Group, Row
from tenuto.jobs.source import Changes
from tenuto.lifecycle.events import (
    Event,
    JobEvent,
    JobSubmittedEvent,
    ServiceAddedEvent,
    ServiceStateChangedEvent,
)
from tenuto.workspace.inotify import DirectoryWatches, remote_kind, watch_directories
from tenuto.workspace.journal import EventReader
from tenuto.workspace.layout import JournalPlace, is_job_id, name_of_directory
from tenuto.workspace.run_paths import RunPaths

SWEEP_S = 2.0
"""How often all is looked at that may have changed without a word."""
POLL_S = 0.4
"""The same, where the kernel tells of nothing."""
SWEPT_ROWS = 2_000
CHECKED_ROWS = 1_000
"""How many jobs that have ended are checked for another attempt in a turn."""
_EVENTS_AT_ONCE = 10_000
_LIST = RunPaths("").jobs_list.strip("/")


class Followed(Protocol):
    """What a feed needs of its source."""

    view: WorkspaceView

    def followed(self, groups: Collection[str]) -> list[FollowedRun]: ...

    def groups(self) -> Collection[Group]: ...

    def services_changed(self, owner: str) -> None: ...

    def lines_skipped(self, count: int) -> None: ...

    def acted_on(self) -> Collection[str]: ...


class RunsFeed:
    """News of runs and of their jobs; for one thread."""

    def __init__(self, source: Followed) -> None:
        self._source = source
        self._view = source.view
        self._layout = source.view.layout
        self._files = source.view.machine.files
        self._clock = source.view.machine.clock
        # Of a network disk the kernel tells only what this machine does: all is looked at instead.
        is_deaf = remote_kind(self._layout.root) is not None
        self._watches: DirectoryWatches | None = None if is_deaf else watch_directories()
        self._is_refused = False
        """True once the kernel refused to watch a directory: too many are watched."""
        self._readers: dict[str, EventReader] = {}
        """Directory of a journal -> its reader."""
        self._hints: dict[str, None] = {}
        """Jobs to look at, by id."""
        self._lists_due = True
        self._groups_due = False
        self._swept_at = self._checked_at = self._clock.monotonic()
        self._watch(at_start=True)

    def fileno(self) -> int | None:
        return None if self._watches is None else self._watches.fileno()

    def close(self) -> None:
        if self._watches is not None:
            self._watches.close()
            self._watches = None

    def read(self, groups: Collection[str], limit: int) -> Changes:
        followed = self._source.followed(groups)
        self._hear()
        self._hints.update(dict.fromkeys(self._source.acted_on()))
        now = self._clock.monotonic()
        is_deaf = self._watches is None or self._is_refused
        is_due = now - self._swept_at >= (POLL_S if is_deaf else SWEEP_S)
        if is_due:
            self._swept_at = now
            self._watch()
            self._lists_due = True
        events = self._read_journals()
        rows: list[Row] = []
        if self._lists_due:
            self._lists_due = False
            for run in followed:
                rows += run.new_jobs()
        rows += self._look(followed, limit)
        if is_due:
            for run in followed:
                rows += run.sweep(SWEPT_ROWS)
        if now - self._checked_at >= SWEEP_S:
            self._checked_at = now
            for run in followed:
                rows += run.check(CHECKED_ROWS)
        told = list(self._source.groups()) if self._groups_due else []
        self._groups_due = False
        return Changes(rows, (), told, events)

    def _look(self, followed: Iterable[FollowedRun], limit: int) -> list[Row]:
        """Follow the hints, some at a time."""
        chosen = list(self._hints)[:limit]
        for job_id in chosen:
            del self._hints[job_id]
        return [row for run in followed for row in run.refresh(job_id for job_id in chosen if job_id in run)]

    # What the kernel tells

    def _hear(self) -> None:
        if self._watches is None:
            return
        has_new_runs = has_new_directories = False
        for directory, name in self._watches.read():
            kind, _, rest = directory.removeprefix(self._layout.root + "/").partition("/")
            if name is None:
                self._lists_due = self._groups_due = True
                self._swept_at = 0.0
            elif kind == "experiments":
                self._lists_due |= name == _LIST
                self._groups_due |= name != _LIST
                has_new_runs |= name != _LIST
            elif kind == "jobs" and rest:
                self._hint(name)
            elif kind == ".events" and rest.startswith("jobs/"):
                self._hint(_job_of(name))
            elif not (kind == ".events" and rest.startswith("experiments/")):
                has_new_directories = True
        if has_new_directories:
            self._watch()
        elif has_new_runs:
            self._watch_runs()

    def _hint(self, job_id: str | None) -> None:
        if job_id is not None and is_job_id(job_id):
            self._hints[job_id] = None

    # Journals

    def _read_journals(self) -> list[Event]:
        events: list[Event] = []
        for reader in self._readers.values():
            try:
                entries = reader.read(_EVENTS_AT_ONCE)
            except (OSError, TenutoError):
                continue  # it is being archived: the next look finds its words
            events += [entry.event for entry in entries]
        self._source.lines_skipped(sum(reader.bad_lines for reader in self._readers.values()))
        for event in events:
            if isinstance(event, JobEvent):
                self._hint(event.job_id)
                self._lists_due |= isinstance(event, JobSubmittedEvent)
            elif isinstance(event, ServiceAddedEvent | ServiceStateChangedEvent):
                self._source.services_changed(event.owner)
                self._groups_due = True
            else:
                self._groups_due = True
        return events

    # The watched files

    def _watch(self, *, at_start: bool = False) -> None:
        """Watch the journals found by now. A journal found at the start is read from its end on."""
        root, layout = self._layout.root, self._layout
        journals = f"{root}/.events/experiments"
        job_journals = f"{root}/.events/jobs"
        for directory in (root, f"{root}/.events", journals, job_journals, layout.jobs, layout.experiments):
            self._add(directory)
        for parent in (layout.jobs, job_journals):
            for name in subdirectories(self._files, parent):
                if self._add(f"{parent}/{name}") and not at_start and parent == layout.jobs:
                    self._swept_at = 0.0
        names = subdirectories(self._files, journals)
        for directory in (layout.retry_journal.directory, *(f"{journals}/{name}" for name in names)):
            if directory not in self._readers:
                reader = self._readers[directory] = EventReader(
                    self._files, JournalPlace(directory, "events-")
                )
                if at_start:
                    reader.skip()
            self._add(directory)
        self._watch_runs()

    def _watch_runs(self) -> None:
        for name in subdirectories(self._files, self._layout.experiments):
            experiment_id = name_of_directory(name)
            if experiment_id is None:
                continue
            self._add(f"{self._layout.experiments}/{name}")
            newest = max(subdirectories(self._files, f"{self._layout.experiments}/{name}"), default=None)
            if newest is not None:
                self._add(f"{self._layout.experiments}/{name}/{newest}")

    def _add(self, directory: str) -> bool:
        """Watch one more directory; True if it was not watched before."""
        if self._watches is None or directory in self._watches:
            return False
        is_watched = self._watches.add(directory)
        self._is_refused |= not is_watched and is_real_directory(self._files, directory)
        return is_watched


def _job_of(name: str) -> str | None:
    """The job whose journal has this file name."""
    if not name.startswith("event-"):
        return None
    return name.removeprefix("event-").rpartition("-")[0] or None
