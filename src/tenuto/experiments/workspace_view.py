"""A workspace as a reader sees it, in any process at any time: its experiments, and their jobs.
Reads only. It needs no scheduler, and survives whatever lies on the disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from tenuto.errors import InvalidName, TenutoError
from tenuto.experiments.runs import RunsView, RunView, by_age, run_group
from tenuto.jobs.columns import WITHOUT_COLUMN, Columns, ColumnsWriter, NotKept, Sieve
from tenuto.jobs.directories import entries, job_keys
from tenuto.jobs.filters import names
from tenuto.jobs.key import JobKey
from tenuto.jobs.query import Sieved
from tenuto.jobs.row import Row
from tenuto.jobs.source import CHUNK_ROWS
from tenuto.jobs.view import REMOVED, JobReading, JobsView, ReadDepth, StoredDetail
from tenuto.lifecycle.owner_names import Door, OwnerName, run_owner
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.workspace import packs
from tenuto.workspace.attempt_files import read_launch
from tenuto.workspace.jobslist import (
    JobLine,
    last_listed,
    lines_about,
    listed_again,
    listed_at,
    listed_jobs,
    names_listed,
    read_jobs,
    start_of_last,
)
from tenuto.workspace.layout import JobPaths, is_job_id
from tenuto.workspace.ports import FileKind, Files, Machine
from tenuto.workspace.run_paths import RunPaths
from tenuto.workspace.token_files import TokenFiles, TokenPlace, TokenState, waiting_text


def is_settled(line: JobLine, reading: JobReading, *, live: bool) -> bool:
    """Whether the directory alone says where a job stands in its run."""
    return reading.state is not JobState.UNSCHEDULED and not (live and _failed_before(reading, line))


def concerning(
    lines: Sequence[JobLine], wanted: Collection[str], look: Callable[[JobLine], JobReading], *, live: bool
) -> list[JobLine]:
    """The lines that decide where some jobs stand, in their order; each of them is looked at.

    A job that was not started stands where those leave it that it depends on; of a transient one the jobs
    that depend on it count as well.
    """
    by_id = {line.job_id: line for line in lines}
    dependents: dict[str, list[str]] = {}
    if any(by_id[one].transient is not TransientMode.NONE for one in wanted if one in by_id):
        for line in lines:
            for other in line.depends_on:
                dependents.setdefault(other, []).append(line.job_id)
    found: set[str] = set()
    pending = [one for one in wanted if one in by_id]
    while pending:
        job_id = pending.pop()
        if job_id in found:
            continue
        found.add(job_id)
        line = by_id[job_id]
        reading = look(line)
        if not is_settled(line, reading, live=live):
            pending += [other for other in line.depends_on if other in by_id]
        if line.transient is not TransientMode.NONE and reading.state is not JobState.DONE:
            pending += dependents.get(job_id, ())  # also of one that failed: a need passes through it
    return [line for line in lines if line.job_id in found]


def resolved_readings(
    lines: Sequence[JobLine], seen: Mapping[str, JobReading], *, live: bool
) -> dict[str, JobReading]:
    """What a run makes of the directories of its jobs: which wait, which are ready, which were stranded.

    A scheduler keeps this in memory; from outside it follows from what each job depends on.
    """
    resolved: dict[str, JobReading] = {}
    _resolve(lines, seen, resolved, {}, live=live)
    return resolved


def _resolve(
    lines: Sequence[JobLine],
    seen: Mapping[str, JobReading],
    resolved: dict[str, JobReading],
    tasks: dict[str, str],
    *,
    live: bool,
) -> None:
    """Adds the readings and the tasks of these jobs to those of the jobs that were submitted before."""
    needed = _needed(lines, seen)
    tasks.update((line.job_id, line.task_id) for line in lines)
    for line in lines:
        resolved[line.job_id] = resolved_reading(
            line, seen[line.job_id], resolved, tasks, live=live, needed=line.job_id in needed
        )


def resolved_reading(
    line: JobLine,
    reading: JobReading,
    resolved: Mapping[str, JobReading],
    tasks: Mapping[str, str],
    *,
    live: bool,
    needed: bool,
) -> JobReading:
    """What a run makes of the directory of one job, once it is known where those stand that it depends on."""
    if live and _failed_before(reading, line):
        reason = reading.reason.name if reading.reason else "FAILED"
        reading = reading._replace(
            state=JobState.UNSCHEDULED,
            reason=None,
            message=f"to be run again; it failed before ({reason})",
        )
    if reading.state is not JobState.UNSCHEDULED:
        return reading
    dependencies = [(other, resolved[other]) for other in line.depends_on if other in resolved]
    for other, found in dependencies:
        if found.state is JobState.ERROR and found.reason is not JobFailureStatus.DELETED:
            reason = found.reason.name if found.reason else "FAILED"
            stranded = found.reason is JobFailureStatus.DEPENDENCY and found.message
            message = stranded or f"{tasks[other]} {other[:12]} failed ({reason})"
            return reading._replace(state=JobState.ERROR, reason=JobFailureStatus.DEPENDENCY, message=message)
    if not live:
        # A job that was listed has a directory, with its lock, even if it was never started.
        if not reading.is_there and not reading.alarm and line.transient is TransientMode.NONE:
            return reading._replace(state=JobState.ERROR, reason=JobFailureStatus.DELETED, message=REMOVED)
        return reading._replace(message=reading.message or "the run ended before it was started")
    if not needed:
        return reading._replace(message="transient, and no job needs it yet")
    waits_for = [other for other, found in dependencies if found.state is not JobState.DONE]
    if not waits_for:
        return reading._replace(state=JobState.READY, message=reading.message or "waits for a free slot")
    more = f" and {len(waits_for) - 1} more" if len(waits_for) > 1 else ""
    return reading._replace(
        state=JobState.WAITING,
        message=reading.message or f"waits for {tasks[waits_for[0]]} {waits_for[0][:12]}{more}",
    )


def _failed_before(reading: JobReading, line: JobLine) -> bool:
    """Whether a failure is older than the request to run the job, which then is only waiting for its turn."""
    return (
        reading.state is JobState.ERROR and reading.decided is not None and reading.decided < line.submittime
    )


def _needed(lines: Sequence[JobLine], seen: Mapping[str, JobReading]) -> set[str]:
    """Jobs that run for their own sake, or because such a job that is not done depends on them."""
    needed: set[str] = set()
    for line in reversed(lines):  # what depends on a job was submitted after it
        if line.transient is TransientMode.NONE:
            needed.add(line.job_id)
        if line.job_id in needed and seen[line.job_id].state is not JobState.DONE:
            needed.update(line.depends_on)
    return needed


def with_tokens(
    machine: Machine, lines: Sequence[JobLine], resolved: Mapping[str, JobReading]
) -> dict[str, JobReading]:
    """The same readings, where jobs that have all but their tokens wait for these."""
    found = dict(resolved)
    states: dict[tuple[str, str], TokenState] = {}
    for line in lines:
        if not line.tokens or resolved[line.job_id].state is not JobState.READY:
            continue
        files = tokens_of(machine, line)
        for token, amount in sorted(line.tokens.items()):
            key = (files.place.directory, token)
            try:
                state = states[key] = states.get(key) or files.state(token)
            except (OSError, TenutoError):
                continue  # an unreadable file says nothing
            if state.free_count < amount:
                message = waiting_text(token, amount, state)
                reading = resolved[line.job_id]
                found[line.job_id] = reading._replace(state=JobState.WAITING, message=message)
                break
    return found


def tokens_of(machine: Machine, line: JobLine) -> TokenFiles:
    """The files of the tokens that a job needs."""
    return TokenFiles(machine, TokenPlace(line.token_directory or "/nonexistent"))


def owner_of(files: Files, paths: JobPaths) -> OwnerName | None:
    """The owner that asked first for a job; None if its directory does not say."""
    try:
        launch = read_launch(files, paths)
        named = launch.owner if launch is not None else None
        return OwnerName.parse(named) if named else None
    except (OSError, InvalidName):
        return None


def is_of_no_run(owner: OwnerName | None) -> bool:
    """Whether a search or a service asked for the job: no run lists it, and none has to."""
    return owner is not None and owner.door is not Door.EXPERIMENTS


_JOBS_LIST_LIMIT = 1 << 30
"""Some three million jobs; a larger file was not written by Tenuto, and reading it would take minutes."""
MOST_COUNTED = 20_000
"""Jobs of a run that are looked at one by one to be counted."""
_FEW = 16
"""Jobs that are searched for in a list; for more of them the whole list is decoded."""


class ListedPart(NamedTuple):
    """A part of the list of a run."""

    lines: list[JobLine]
    """Each job once."""
    offset: int
    """Where the next part begins."""
    bad_lines: int
    """Lines that could not be read."""


class WorkspaceView(RunsView, JobsView):
    """Looks at one workspace."""

    # Jobs of a run

    def lines(self, run: RunView) -> list[JobLine]:
        """What the run asked for, as far as it can be read."""
        paths = self._list_of(run)
        if paths is None:
            return []
        try:
            found = read_jobs(self._files, paths).jobs
        except OSError:
            return []
        return self._sound(found)

    def lines_from(self, run: RunView, offset: int, most: int | None = None) -> ListedPart:
        """What the run asked for after a place in its list; `most`: how many jobs are read."""
        paths = self._list_of(run)
        found: dict[str, JobLine] = {}
        bad_lines = 0
        try:
            for line, end in listed_jobs(self._files, paths, offset) if paths is not None else ():
                offset = end
                if line is not None:
                    found[line.job_id] = line
                else:
                    bad_lines += 1
                if most is not None and len(found) >= most:
                    break
        except OSError:
            pass  # the next look continues from here
        return ListedPart(self._sound(list(found.values())), offset, bad_lines)

    def start_of_last(self, run: RunView, most: int) -> int:
        """Where the last jobs of the list of a run begin, about `most` of them."""
        paths = self._list_of(run)
        try:
            return start_of_last(self._files, paths, most) if paths is not None else 0
        except OSError:
            return 0

    def _sound(self, lines: Sequence[JobLine]) -> list[JobLine]:
        """Of what a list says the jobs of this workspace, under the names that they have now."""
        if self.moved.read():
            lines = self._under_present_names(lines)
        tasks = {line.task_id for line in lines}
        sound = {task_id for task_id in tasks if self._task_is_sound(task_id)}
        return [line for line in lines if line.task_id in sound and is_job_id(line.job_id)]

    def _under_present_names(self, lines: Sequence[JobLine]) -> list[JobLine]:
        ids = {one.job_id: self.moved.present(one).job_id for one in self.moved.read()}
        found: dict[str, JobLine] = {}
        for line in lines:
            now = self.moved.present(JobKey(line.task_id, line.job_id))
            depends_on = tuple(ids.get(one, one) for one in line.depends_on)
            uses = tuple(ids.get(one, one) for one in line.uses)
            found[now.job_id] = line._replace(
                task_id=now.task_id, job_id=now.job_id, depends_on=depends_on, uses=uses
            )
        return list(found.values())

    def _list_of(self, run: RunView) -> RunPaths | None:
        """The paths of a run whose list can be read."""
        paths = self.layout.run(run.experiment_id, run.run_id)
        try:
            size = self._files.stat(paths.jobs_list)
        except OSError:
            return None
        return None if size is None or size.size > _JOBS_LIST_LIMIT else paths

    def counts(self, run: RunView) -> Counter[JobState]:
        """How many jobs of a run are in which state: of very many jobs as its process has written it."""
        if sum(run.counts.values()) > MOST_COUNTED:
            return Counter(run.counts)
        lines = self.lines(run)
        seen = {}
        for line in lines:
            key = JobKey(line.task_id, line.job_id)
            reading = self.look(key, ReadDepth.STATE)
            may_be_earlier = reading.state is JobState.ERROR and run.live  # the failure of an earlier run
            seen[line.job_id] = self.look(key) if may_be_earlier else reading
        return Counter(reading.state for reading in self.resolved_readings(lines, seen, run).values())

    def jobs(self, run: RunView) -> list[Row]:
        """The jobs of a run, in the order they were submitted."""
        return [row for chunk in self.job_chunks(run) for row in chunk]

    def job_chunks(self, run: RunView) -> Iterator[list[Row]]:
        """As `jobs`, in chunks; of an earlier chunk the view keeps only what later jobs may wait for.

        Whether a transient job is needed is known at the end of the list only: from the first on of which
        that is asked all are given at once.
        """
        resolved: dict[str, JobReading] = {}
        tasks: dict[str, str] = {}
        chunks = self._line_chunks(run)
        for lines in chunks:
            seen = {line.job_id: self._brief(line) for line in lines}
            if run.live and any(
                line.transient is not TransientMode.NONE
                and not is_settled(line, seen[line.job_id], live=run.live)
                for line in lines
            ):
                rest = [line for chunk in chunks for line in chunk]
                seen.update((line.job_id, self._brief(line)) for line in rest)
                lines += rest
            _resolve(lines, seen, resolved, tasks, live=run.live)
            shown = {line.job_id: resolved[line.job_id] for line in lines}
            if run.live:
                shown = with_tokens(self.machine, lines, shown)
            yield [self.listed_row(line, shown[line.job_id], run) for line in lines]
            for line in lines:
                if resolved[line.job_id].state is JobState.DONE:  # as good as one that is not listed
                    del resolved[line.job_id], tasks[line.job_id]

    def _line_chunks(self, run: RunView) -> Iterator[list[JobLine]]:
        """As `lines`, some at a time: a job with several lines has the place of the first."""
        paths = self._list_of(run)
        try:
            found = self._files.stat(paths.jobs_list) if paths is not None else None
            if paths is None or found is None:
                return
            again = listed_again(self._files, paths)
            if again is None or len(again) > _FEW or self.moved.read():
                every = self.lines(run)
                yield from (every[at : at + CHUNK_ROWS] for at in range(0, len(every), CHUNK_ROWS))
                return
            last = {line.job_id: line for line in lines_about(self._files, paths, again)} if again else {}
            lines: list[JobLine] = []
            for job, end in listed_jobs(self._files, paths):
                if end > found.size:  # listed since, perhaps again
                    break
                if job is not None and job.job_id in again:
                    job = last.pop(job.job_id, None)
                if job is not None:
                    lines.append(job)
                if len(lines) == CHUNK_ROWS:
                    yield self._sound(lines)
                    lines = []
            yield self._sound(lines)
        except OSError:
            return

    def sieved(self, run: RunView, sieve: Sieve) -> Sieved | None:
        """The jobs of a run that may match a filter; None where the caller has to look at all.

        Of a run that ended with very many jobs, which are packed, the fields are kept by column.
        """
        paths, is_few = self._list_of(run), sum(run.counts.values()) <= MOST_COUNTED
        is_kept = WITHOUT_COLUMN.isdisjoint(names(sieve.tree)) and not self.moved.read()
        if run.live or paths is None or is_few or not is_kept:
            return None
        try:
            columns = self._columns(paths) or self._kept_columns(run, paths)
            return None if columns is None else self._sieved(run, paths, sieve, columns)
        except (LookupError, OSError, TenutoError, ValueError, TypeError):
            return None  # torn, or of another version; or they have not what is asked for

    def _sieved(self, run: RunView, paths: RunPaths, sieve: Sieve, columns: Columns) -> Sieved | None:
        tags, others = columns.names("t:"), columns.others
        found = bytearray(columns.matching(sieve.tree, tags | sieve.tags))
        for place in others:
            found[place] = 0
        total, end, wanted = found.count(1), len(found), [*others]
        if sieve.most is None and total > MOST_COUNTED:
            return None
        most = total if sieve.most is None else min(sieve.most, total)
        while len(wanted) < most + len(others):
            end = found.rfind(1, 0, end)
            wanted.append(end)
        lines = [listed_at(self._files, paths, *columns.places[at : at + 2]) for at in sorted(wanted)]
        sound = self._sound([line for line in lines if line is not None])
        if len(sound) < len(lines):
            return None
        seen = [(line, self._brief(line)) for line in sound]
        if all(is_settled(line, reading, live=False) for line, reading in seen):
            rows = Sieved(self.listed_row(line, reading, run) for line, reading in seen)
        else:
            rows = Sieved(self._some_jobs(run, {line.job_id for line in sound}))
        rows.more, rows.left_out = total - most, columns.count - len(others) - total
        rows.names, rows.tags = columns.names("p:"), tags
        return rows

    def keep_columns(self, *, ending: str = "") -> None:
        """Keeps the fields of packed jobs, of runs that ended and of one that is `ending`."""
        for run in self.find_runs(None):
            is_over = not run.live or run.run_id == ending
            if is_over and sum(run.counts.values()) > MOST_COUNTED and not self.moved.read():
                with suppress(OSError, ValueError):
                    self._kept_columns(run, self.layout.run(run.experiment_id, run.run_id))

    def _columns(self, paths: RunPaths) -> Columns | None:
        """What is kept of a run, if its list and the packs of its jobs are as they were."""
        try:
            columns = Columns(partial(self._files.read_range, paths.columns))
        except (NotKept, FileNotFoundError):
            return None
        return columns if columns.stamp == self._stamp(paths, *columns.stamp) else None

    def _stamp(self, paths: RunPaths, *tasks: str) -> dict[str, list[int] | None]:
        """What tells that a pack, or the list of the run (""), is as it was: they grow, or are replaced."""
        files = {task: self.layout.pack(task) if task else paths.jobs_list for task in tasks}
        found = {task: self._files.stat(file) for task, file in files.items()}
        return {task: one and [one.inode, one.size, one.changed] for task, one in found.items()}

    def _kept_columns(self, run: RunView, paths: RunPaths) -> Columns | None:
        """Reads all jobs of a run, and keeps their fields; None where few of them are packed."""
        self._files.replace(paths.columns, b"", durable=False)  # `OSError`: in a workspace of another person
        self._files.remove(paths.columns)
        writer, stamp, start, now = ColumnsWriter(), self._stamp(paths, ""), 0, self.machine.clock.now()
        known: set[int] = set()
        if listed_again(self._files, paths) != set():
            return None
        for line, end in listed_jobs(self._files, paths):
            if line is None or writer.is_in_vain() or not self._sound([line]):
                return None
            key = JobKey(line.task_id, line.job_id)
            if key.task_id not in stamp:
                stamp |= self._stamp(paths, key.task_id)
            row = None
            is_packed = packs.pack_at(self._files, self.layout.pack(key.task_id)).find(key.job_id) is not None
            # The parameters of a job are also those of the jobs that it depends on.
            if is_packed and known.issuperset(map(hash, (*line.depends_on, *line.uses))):
                row = self.listed_row(line, self._brief(line), run)
                row = row if row.state.finished() else None
            if row is not None:
                known.add(hash(key.job_id))
            writer.add(start, row, self.parameters(row) if row is not None else {}, now)
            start = end
        if writer.is_in_vain(0):
            return None
        self._files.replace(paths.columns, writer.encoded(stamp, start), durable=False)
        return self._columns(paths)

    def _brief(self, line: JobLine) -> JobReading:
        """What the directory of a job shows, without its marker, which takes more room than all of a row."""
        return self.look(JobKey(line.task_id, line.job_id))._replace(marker=None)

    def newest_jobs(self, most: int) -> tuple[list[Row], int] | None:
        """Of the last run of each experiment the jobs submitted last, `most` of each run, and how many all
        have; no other directory is looked at. None where a list has something that only `jobs` understands.
        """
        rows: list[Row] = []
        known: set[bytes] = set()
        runs = self.find_runs(None)
        for run in runs:
            paths = self._list_of(run)
            total = sum(run.counts.values())
            is_counted = len(runs) == 1 and total > MOST_COUNTED and not run.live
            try:
                last = last_listed(self._files, paths, most, known) if paths is not None else None
                names = names_listed(self._files, paths) if paths is not None and not is_counted else set()
            except OSError:
                return None
            newest = self._newest_rows(run, last) if last is not None and names is not None else None
            if newest is None or names is None:
                return None
            if is_counted:
                return newest, total
            rows += newest
            known |= names
        return rows, len(known)

    def _newest_rows(self, run: RunView, lines: list[JobLine]) -> list[Row] | None:
        """Some jobs of a run; None where a list has something that only `jobs` understands."""
        if len(self._sound(lines)) != len(lines):
            return None
        seen = [(line, self.look(JobKey(line.task_id, line.job_id))) for line in lines]
        if all(is_settled(line, reading, live=run.live) for line, reading in seen):
            return [self.listed_row(line, reading, run) for line, reading in seen]
        return self._some_jobs(run, {line.job_id for line in lines})

    def failed_jobs(self, name: str | None) -> dict[JobKey, int]:
        """The failed jobs of a run, or of the last run of each experiment, and the attempts that failed.

        Not those whose directories a person removed: there is nothing left to run them from.
        """
        return {
            job.job_key: job.attempt
            for run in self.find_runs(name)
            for job in self.jobs(run)
            if job.state is JobState.ERROR and job.reason is not JobFailureStatus.DELETED
        }

    def _some_jobs(self, run: RunView, wanted: Collection[str]) -> list[Row]:
        """Some jobs of a run, in their order; beside them only those are looked at that these wait for."""
        seen: dict[str, JobReading] = {}

        def look(line: JobLine) -> JobReading:
            if line.job_id not in seen:
                seen[line.job_id] = self._brief(line)
            return seen[line.job_id]

        if len(wanted) <= _FEW:
            few = [line for line in self._lines_about(run, wanted) if line.job_id in wanted]
            if all(is_settled(line, look(line), live=run.live) for line in few):
                return [self.listed_row(line, seen[line.job_id], run) for line in few]
        lines = concerning(self.lines(run), wanted, look, live=run.live)
        resolved = self.resolved_readings(lines, seen, run)
        return [self.listed_row(line, resolved[line.job_id], run) for line in lines if line.job_id in wanted]

    def _lines_about(self, run: RunView, job_ids: Collection[str]) -> list[JobLine]:
        """The lines of some jobs of a run, and of the jobs that depend on them; no other is decoded."""
        paths = self._list_of(run)
        former = [one.job_id for one in self.moved.read() if self.moved.present(one).job_id in job_ids]
        named = [*job_ids, *former]
        try:
            return self._sound(lines_about(self._files, paths, named)) if paths is not None else []
        except OSError:
            return []

    def resolved_readings(
        self, lines: Sequence[JobLine], seen: Mapping[str, JobReading], run: RunView
    ) -> dict[str, JobReading]:
        """Where the jobs of a run stand, by what their directories show; live ones also by their tokens."""
        resolved = resolved_readings(lines, seen, live=run.live)
        return with_tokens(self.machine, lines, resolved) if run.live else resolved

    def listed_row(self, line: JobLine, reading: JobReading, run: RunView) -> Row:
        """A job as it stands in its run."""
        return self.row(JobKey(line.task_id, line.job_id), reading, run_group(run))._replace(
            tags=line.tags,
            depends_on=(*line.depends_on, *line.uses),
            transient=line.transient,
            owner=run_owner(run.experiment_id, run.run_id),
            submitted=line.submittime,
            tokens=line.tokens,
        )

    # Jobs of the workspace

    def all_jobs(self, keys: Iterable[JobKey] | None = None) -> list[Row]:
        """Every job that has a directory, also jobs of no run; each as its newest run sees it."""
        wanted = list(self.job_keys() if keys is None else keys)
        missing = set(wanted)
        known: dict[JobKey, Row] = {}
        for run in self.all_runs():
            if not missing:
                break
            here = {line.job_id for line in self.lines(run) if JobKey(line.task_id, line.job_id) in missing}
            for job in self._some_jobs(run, here) if here else ():
                if job.job_key in missing:
                    known[job.job_key] = job
                    missing.discard(job.job_key)
        return [known.get(key) or self.job_alone(key) for key in wanted]

    def listed(self, *, live_only: bool = False) -> set[JobKey]:
        """The jobs that some run, or some live run, asked for."""
        found: set[JobKey] = set()
        for run in self.all_runs():
            if run.live or not live_only:
                found |= self.asked_for(run)
        return found

    def asked_for(self, run: RunView) -> set[JobKey]:
        """The jobs that a run asked for; by its list and by its links."""
        listed = {JobKey(line.task_id, line.job_id) for line in self.lines(run)}
        linked = job_keys(self._files, self.layout.run(run.experiment_id, run.run_id).jobs)
        return listed.union(map(self.moved.present, linked))

    def orphans(self) -> list[Row]:
        """Finished jobs of no run: their runs were pruned. Those of a search or a service are none."""
        listed = self.listed()
        jobs = (self.job_alone(key) for key in self.job_keys() if key not in listed)
        return [job for job in jobs if job.state.finished() and not is_of_no_run(self.owner(job.job_key))]

    def unowned(self) -> list[Row]:
        """Running jobs that no live run waits for: their run was left or killed.

        Those of a search or a service are none: their owner finds them again when it is started.
        """
        waited_for = self.listed(live_only=True)
        keys = [
            key
            for key in self.job_keys()
            if key not in waited_for
            and self.look(key, ReadDepth.STATE).state.running()
            and not is_of_no_run(self.owner(key))
        ]
        return [job for job in self.all_jobs(keys) if job.state.running()]

    def owner(self, key: JobKey) -> OwnerName | None:
        """The owner that asked first for a job."""
        return owner_of(self._files, self.layout.job(*key))

    def jobs_of_no_run(self) -> dict[str, dict[JobKey, JobState]]:
        """The jobs of searches and services that no run lists, by the names of their owners.

        None are looked for among very many jobs, unless a door other than experiments has written events.
        """
        if self._is_of_experiments_alone():
            return {}
        listed = self.listed()
        found: dict[str, dict[JobKey, JobState]] = {}
        for key in self.job_keys():
            owner = None if key in listed else self.owner(key)
            if owner is not None and is_of_no_run(owner):
                found.setdefault(str(owner), {})[key] = self.look(key, ReadDepth.STATE).state
        return dict(sorted(found.items()))

    def _is_of_experiments_alone(self) -> bool:
        """Whether runs with very many jobs are here, and no owner of another door has kept a journal."""
        largest = max((sum(run.counts.values()) for run in self.find_runs(None)), default=0)
        doors = {Door.SERVICE.value, Door.SEARCH.value}
        return largest > MOST_COUNTED and not doors.intersection(entries(self._files, self.layout.events))

    # One job

    def runs_of(self, key: JobKey) -> list[RunView]:
        """The runs that asked for a job, newest first, also under a name that it had before."""
        found = {run.name: run for run in RunsView.runs_of(self, key)}
        for one in self.moved.former(key):
            found |= {run.name: run for run in RunsView.runs_of(self, one)}
        return sorted(found.values(), key=lambda run: (run.live, by_age(run)), reverse=True)

    def job(self, key: JobKey) -> Row:
        """One job, as its newest run sees it."""
        runs = self.runs_of(key)
        found = self._some_jobs(runs[0], {key.job_id}) if runs else []
        return next((job for job in found if job.job_key == key), None) or self.job_alone(key)

    def cancel_waiting(self, key: JobKey, message: str, *, really: bool = True) -> bool:
        """Asks the drivers whose queue a job waits in to cancel it; False if it waits in none."""
        runs = [run for run in self.runs_of(key) if run.live]
        if not runs or self.job(key).state not in (JobState.WAITING, JobState.READY):
            return False
        for run in runs if really else ():
            asked = self.layout.run(run.experiment_id, run.run_id).cancellations
            self.machine.files.make_directory(asked)
            self.machine.files.replace(f"{asked}/{key.job_id}", message.encode()[:1000], durable=False)
        return True

    def detail(self, key: JobKey) -> StoredDetail:
        """Everything about one job, as its newest run sees it."""
        alone, runs = super().detail(key), self.runs_of(key)
        if not runs:
            return alone
        about = {line.job_id: line for line in self._lines_about(runs[0], {key.job_id})}
        own = about.get(key.job_id)
        needs = (*own.depends_on, *own.uses) if own is not None else ()
        dependents = [line.job_id for line in about.values() if key.job_id in (*line.depends_on, *line.uses)]
        jobs = {job.id: job for job in self._some_jobs(runs[0], {key.job_id, *needs, *dependents})}
        job = jobs.get(key.job_id, alone.job)
        if job.state is alone.job.state:
            job = job._replace(started=alone.job.started or job.started)
        jobs = {**{one.id: one for one in alone.dependencies}, **jobs}
        wanted = dict.fromkeys((*needs, *(one.id for one in alone.dependencies)))
        return alone._replace(
            job=job,
            dependencies=tuple(jobs[one] for one in wanted if one in jobs),
            dependents=tuple(jobs[one] for one in dependents if one in jobs),
            asked_by=tuple(run.name for run in runs),
            max_retries=own.max_retries if own is not None else 0,
        )

    def _task_is_sound(self, task_id: str) -> bool:
        """Whether the jobs of a task lie in a real directory of this workspace, or nowhere yet."""
        try:
            found = self._files.stat(self.layout.task(task_id))
            return found is None or found.kind is FileKind.DIRECTORY
        except (OSError, TenutoError):
            return False
