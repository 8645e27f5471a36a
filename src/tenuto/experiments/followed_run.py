"""One run as it is followed: its list of jobs, what their directories show, and the rows that follow.
An event is only a hint to look again: the display is that of the command line.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from tenuto.errors import TenutoError
from tenuto.experiments.runs import RunView, run_group
from tenuto.experiments.workspace_view import WorkspaceView, resolved_reading, tokens_of, with_tokens
from tenuto.jobs.key import JobKey
from tenuto.jobs.row import Row, row_key
from tenuto.jobs.source import CHUNK_ROWS
from tenuto.jobs.view import JobReading
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import TransientMode
from tenuto.workspace.carbon import job_total
from tenuto.workspace.jobslist import JobLine
from tenuto.workspace.records import PidRecord, read_record

MOST_FOLLOWED = 200_000
"""Of a run with more jobs the last ones are followed: each takes 2 kB."""


class FollowedRun:
    """The jobs of one run, looked at once, and again when something tells of them. For one thread."""

    def __init__(self, view: WorkspaceView, run: RunView) -> None:
        self.run = run
        self.group = run_group(run)
        self._view = view
        self._lines: dict[str, JobLine] = {}
        self._place: dict[str, int] = {}
        """The place of each job in the order of submission."""
        self._tasks: dict[str, str] = {}
        self._dependents: dict[str, list[str]] = {}
        self._readings: dict[str, JobReading] = {}
        self._resolved: dict[str, JobReading] = {}
        self._offset = view.start_of_last(run, MOST_FOLLOWED)
        self.bad_lines = 0
        """Lines of the list that could not be read."""
        self._has_transient = False
        self._swept = self._checked = 0
        self._launches: dict[str, int | None] = {}
        """The inode of each job's `launch.json` when the job was last looked at, or of its marker."""
        self.open: dict[str, None] = {}
        """Jobs that may change without a word in the journal."""

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._lines

    def load(self) -> Iterator[list[Row]]:
        """All rows, in the order of submission, some at a time; nothing else may be asked meanwhile.

        The list is read as the rows are made, so that the first rows of a long one come at once. Whether a
        transient job is needed is known at the end of the list only: from the first of them on all is read.
        A row is given again if a later line changes it: its job was submitted twice.
        """
        offset = -1
        while offset != self._offset:
            offset = self._offset
            chunk = self._read_list(CHUNK_ROWS)
            if self._has_transient:
                break
            if not chunk:
                continue
            again = [job_id for job_id in chunk if job_id in self._resolved]
            for job_id in chunk:
                self._look(job_id)
            moved = self._stand_from(again)
            for job_id in chunk:
                self._resolve(job_id)
            touched = list(dict.fromkeys((*chunk, *moved)))
            self._wait_for_tokens(touched)
            yield [self._row(job_id) for job_id in touched]
        if self._has_transient:
            self._read_list()
            for job_id in self._lines.keys() - self._readings.keys():
                self._look(job_id)
            changed = iter(self._stand_all())
            while chunk := list(islice(changed, CHUNK_ROWS)):
                yield [self._row(job_id) for job_id in chunk]

    def new_jobs(self) -> list[Row]:
        """The rows of jobs that were listed since."""
        return self.refresh(self._read_list())

    def refresh(self, job_ids: Iterable[str]) -> list[Row]:
        """Rows of the given jobs as their directories are now, and of the jobs that depend on them."""
        wanted = [job_id for job_id in dict.fromkeys(job_ids) if job_id in self._lines]
        if not wanted:
            return []
        for job_id in wanted:
            self._look(job_id)
        if self._has_transient:
            others = self._stand_all()
            return [self._row(job_id) for job_id in dict.fromkeys((*wanted, *others))]
        touched = self._stand_from(wanted)
        self._wait_for_tokens(touched)
        return [self._row(job_id) for job_id in touched]

    def sweep(self, most: int) -> list[Row]:
        """Look again at jobs that have not ended, so many in a turn, one after the other."""
        every = list(self.open)
        if not every:
            return []
        if self._swept >= len(every):
            self._swept = 0
        chosen = every[self._swept : self._swept + most]
        self._swept += len(chosen)
        return self.refresh(chosen)

    def check(self, most: int) -> list[Row]:
        """Look again at jobs that have ended, or never began, and have a new attempt; so many in a turn.

        Any process may try a job again, and be killed before it says so; each attempt has its `launch.json`.
        """
        every = [job_id for job_id in self._launches if job_id not in self.open]
        if self._checked >= len(every):
            self._checked = 0
        chosen = every[self._checked : self._checked + most]
        self._checked += len(chosen)
        return self.refresh([job_id for job_id in chosen if self._launch(job_id) != self._launches[job_id]])

    def waiting_for(self, token: str) -> list[tuple[str, int, JobLine]]:
        """The jobs that need units of a token and have not started: key, amount, line."""
        return [
            (row_key(Door.EXPERIMENTS, line.task_id, line.job_id), line.tokens[token], line)
            for job_id in self.open
            if token in (line := self._lines[job_id]).tokens and not self._resolved[job_id].state.running()
        ]

    def running_with_tokens(self) -> list[JobLine]:
        """The lines of running jobs that hold tokens."""
        return [
            line
            for job_id in self.open
            if (line := self._lines[job_id]).tokens and self._resolved[job_id].state.running()
        ]

    def token_lines(self) -> list[JobLine]:
        """The lines of jobs that need tokens, one for each token and directory."""
        found: dict[tuple[str | None, str], JobLine] = {}
        for line in self._lines.values():
            for token in line.tokens:
                found.setdefault((line.token_directory, token), line)
        return list(found.values())

    def alarms(self) -> list[tuple[str, str]]:
        """key and text of what a person should look at."""
        return [
            (row_key(Door.EXPERIMENTS, self._tasks[job_id], job_id), reading.alarm)
            for job_id, reading in self._resolved.items()
            if reading.alarm
        ]

    def _read_list(self, most: int | None = None) -> list[str]:
        """The jobs of the next lines of the list, each once; all that are left if `most` is None."""
        lines, self._offset, bad_lines = self._view.lines_from(self.run, self._offset, most)
        self.bad_lines += bad_lines
        for line in lines:
            job_id = line.job_id
            if job_id not in self._lines:
                self._place[job_id] = len(self._place)
                for other in line.depends_on:
                    self._dependents.setdefault(other, []).append(job_id)
            self._lines[job_id] = line
            self._tasks[job_id] = line.task_id
            self._has_transient |= line.transient is not TransientMode.NONE
        return [line.job_id for line in lines]

    def _look(self, job_id: str) -> None:
        line = self._lines[job_id]
        self._launches[job_id] = self._launch(job_id)
        reading = self._view.look(JobKey(line.task_id, job_id))
        self._readings[job_id] = reading._replace(marker=None)

    def _launch(self, job_id: str) -> int | None:
        files = self._view.machine.files
        try:
            paths = self._view.layout.job(self._tasks[job_id], job_id)
            found = files.stat(paths.launch) or files.stat(paths.done)
        except (OSError, TenutoError):
            return None  # a look says why
        return None if found is None else found.inode

    def _resolve(self, job_id: str) -> None:
        line = self._lines[job_id]
        self._resolved[job_id] = resolved_reading(
            line, self._readings[job_id], self._resolved, self._tasks, live=self.run.live, needed=True
        )

    def _stand_all(self) -> list[str]:
        """Looks where all jobs stand now; returns the jobs that moved since the last look."""
        lines = list(self._lines.values())
        before = self._resolved
        self._resolved = self._view.resolved_readings(lines, self._readings, self.run)
        return [one for one in self._lines if before.get(one) != self._resolved[one]]

    def _stand_from(self, wanted: Collection[str]) -> list[str]:
        """Where some jobs stand now, and those after them, as far as that changes; in order of submission."""
        pending = [(self._place[job_id], job_id) for job_id in wanted]
        heapq.heapify(pending)
        touched: dict[str, None] = {}
        while pending:
            _, job_id = heapq.heappop(pending)
            if job_id in touched:
                continue
            before = self._resolved.get(job_id)
            self._resolve(job_id)
            touched[job_id] = None
            after = self._resolved[job_id]
            if before is None or before[:3] != after[:3]:
                for other in self._dependents.get(job_id, ()):
                    if other in self._readings:
                        heapq.heappush(pending, (self._place[other], other))
        return list(touched)

    def _wait_for_tokens(self, job_ids: Iterable[str]) -> None:
        if self.run.live:
            lines = [self._lines[job_id] for job_id in job_ids if self._lines[job_id].tokens]
            if lines:
                resolved = {line.job_id: self._resolved[line.job_id] for line in lines}
                self._resolved.update(with_tokens(self._view.machine, lines, resolved))

    def _row(self, job_id: str) -> Row:
        reading = self._resolved[job_id]
        row = self._view.listed_row(self._lines[job_id], reading, self.run)
        is_open = not row.state.finished() if self.run.live else row.state.running()
        if is_open:
            self.open[job_id] = None
        else:
            self.open.pop(job_id, None)
        if reading.attempt and (self.run.live or self.run.carbon is not None):
            used = job_total(self._view.machine.files, self._view.layout.job(*row.job_key))
            row = row._replace(energy_kwh=used.energy_kwh if used is not None else None)
        return row


def token_panel(view: WorkspaceView, followed: Sequence[FollowedRun]) -> list[dict[str, Any]]:
    """Each token that a live run needs, once."""
    runs = [run for run in followed if run.run.live]
    places: dict[tuple[str, str], JobLine] = {}
    for run in runs:
        for line in run.token_lines():
            for token in line.tokens:
                places.setdefault((line.token_directory or "", token), line)
    pids = _runners(view, runs)
    found = []
    for (_, token), needing in places.items():
        files = tokens_of(view.machine, needing)
        try:
            state = files.state(token)
            holders = files.holders(token)
        except (OSError, TenutoError):
            continue  # an unreadable file says nothing
        waiting = [one for run in runs for one in run.waiting_for(token)]
        found.append(
            {
                "name": token,
                "capacity": state.capacity,
                "held": len(state.held),
                "free": state.free_count,
                "holders": [{"pid": pid, "key": pids.get(pid)} for pid in holders],
                "waiting": [
                    {"key": key, "amount": amount, "since": line.submittime.isoformat()}
                    for key, amount, line in waiting
                ],
            }
        )
    return found


def _runners(view: WorkspaceView, runs: Sequence[FollowedRun]) -> dict[int, str]:
    """The runners of running jobs that hold tokens, by pid."""
    found: dict[int, str] = {}
    for run in runs:
        for line in run.running_with_tokens():
            paths = view.layout.job(line.task_id, line.job_id)
            try:
                record = read_record(view.machine.files, paths.pid, PidRecord.decode)
            except (OSError, TenutoError):
                continue
            if isinstance(record, PidRecord):
                found[record.identity.pid] = row_key(Door.EXPERIMENTS, line.task_id, line.job_id)
    return found
