"""`jobs.jsonl` and the links of a run: which jobs it asked for.
A submission survives a power loss once its line is synced, which happens in groups, within 100 ms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tenuto.errors import NotRegularFile
from tenuto.lifecycle.events import is_tag
from tenuto.lifecycle.states import TransientMode
from tenuto.workspace.lines import read_lines, seal, sealed_lines, unseal
from tenuto.workspace.ports import Appender, Files
from tenuto.workspace.records import Fields
from tenuto.workspace.run_paths import RunPaths

GROUP_SYNC_S = 0.1
_MISSES = 8
"""After so many jobs in a row that the run before did not have, it is not asked for more."""


class JobLine(NamedTuple):
    """One job of a run, as it was submitted."""

    job_id: str
    task_id: str
    submittime: datetime
    tags: Mapping[str, Any] = {}
    depends_on: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    """The jobs whose outputs, handed over while they ran, it uses: it does not wait for them."""
    transient: TransientMode = TransientMode.NONE
    max_retries: int = 0
    tokens: Mapping[str, int] = {}
    """The units that it holds while it runs."""
    token_directory: str | None = None
    """Where its tokens are counted."""


class JobsList:
    """The writer of one run's `jobs.jsonl`. Its caller calls `sync` in time."""

    def __init__(self, files: Files, run: RunPaths) -> None:
        """Opens the file and seals what a crash may have torn; only one writer at a time."""
        self._files = files
        self._run = run
        self._file: Appender = files.open_append(run.jobs_list)
        try:
            self._torn = self._file.size() > 0
        except OSError:
            self._file.close()
            raise
        self._created = not self._torn
        self._is_synced = True

    def append(self, line: JobLine) -> None:
        sealed = b"\n" * self._torn + seal(_to_fields(line))
        self._torn = True
        self._file.append(sealed)
        self._torn = False
        self._is_synced = False

    def sync(self) -> None:
        self._file.sync()
        if self._created:
            self._files.sync_directory(self._run.directory)
            self._created = False
        self._is_synced = True

    def close(self) -> None:
        """Sync the rest and close."""
        try:
            if not self._is_synced:
                self.sync()
        finally:
            self._file.close()


class JobsRead(NamedTuple):
    jobs: list[JobLine]
    bad_lines: int


class ListedJob(NamedTuple):
    """A line of a list as found, and where the next one starts. `job` is None if it cannot be read."""

    job: JobLine | None
    end: int


def listed_jobs(
    files: Files, run: RunPaths, offset: int = 0, *, about: Collection[str] = ()
) -> Iterator[ListedJob]:
    """The lines of a list from `offset` on, as they come; none if there is no file.

    A job that was submitted twice has two lines, of which the last counts. `about`: only lines that name one
    of these ids are decoded and given.
    """
    named = [job_id.encode() for job_id in about]
    try:
        for line in read_lines(files, run.jobs_list, offset, naming=named):
            try:
                yield ListedJob(_from_fields(Fields(line.content)), line.end)
            except ValueError:
                yield ListedJob(None, line.end)
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        pass


def read_jobs(files: Files, run: RunPaths) -> JobsRead:
    """Every job listed, each once (the last line of a job counts); empty if there is no file."""
    jobs: dict[str, JobLine] = {}
    bad_lines = 0
    for job, _ in listed_jobs(files, run):
        if job is None:
            bad_lines += 1
        else:
            jobs[job.job_id] = job
    return JobsRead(list(jobs.values()), bad_lines)


_FIRST, _SECOND = b'{"job_id":"', b'","task_id":"'
"""How each line begins, and what follows the id."""
_REPEATS = 4
"""How many times as many lines are read as jobs are wanted, since a job may have several."""
_LINE_BYTES = 1 << 10
"""More than most lines have."""


def names_listed(files: Files, run: RunPaths) -> set[bytes] | None:
    """The names of all jobs of a list, which are not decoded; None where a line begins otherwise."""
    names: set[bytes] = set()
    try:
        for line in sealed_lines(files, run.jobs_list):
            if _SECOND not in line or not line.startswith(_FIRST):
                return None
            names.add(_name(line))
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        pass
    return names


def listed_again(files: Files, run: RunPaths) -> set[str] | None:
    """The ids of jobs that have several lines, perhaps a few more; None where a line begins otherwise.

    No line is decoded, and of each id only its hash is kept.
    """
    seen: set[int] = set()
    again: set[str] = set()
    try:
        for line in sealed_lines(files, run.jobs_list):
            end = line.find(_SECOND)
            if end < 0 or not line.startswith(_FIRST):
                return None
            name = line[len(_FIRST) : end]
            if (hashed := hash(name)) in seen:
                again.add(name.decode(errors="replace"))
            seen.add(hashed)
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        pass
    return again


def _name(line: bytes) -> bytes:
    """The id and the task of a line."""
    return line[len(_FIRST) : line.find(b'"', line.find(_SECOND) + len(_SECOND))]


def last_listed(
    files: Files, run: RunPaths, most: int, known: Collection[bytes] = ()
) -> list[JobLine] | None:
    """The last jobs of a list that are not `known`, `most` at most, in its order; its beginning is not read.

    None where its end does not tell: long lines, strange ones, or a few jobs submitted again and again.
    """
    found = files.stat(run.jobs_list)
    if found is None:
        return []
    start = max(found.size - most * _REPEATS * _LINE_BYTES, 0)
    data = files.read_range(run.jobs_list, start, found.size - start)
    jobs: dict[str, JobLine] = {}
    try:
        for line in reversed(data[: data.rfind(b"\n") + 1].splitlines(keepends=True)[bool(start) :]):
            if (content := unseal(line)) is not None and _name(line) not in known:
                job = _from_fields(Fields(content))
                jobs.setdefault(job.job_id, job)
            if len(jobs) == most:
                break
    except ValueError:
        return None
    return list(jobs.values())[::-1] if len(jobs) == most or not start else None


def start_of_last(files: Files, run: RunPaths, most: int) -> int:
    """Where about the last `most` lines of a list begin: 0 for a shorter one."""
    found = files.stat(run.jobs_list)
    size = found.size if found is not None else 0
    sample = files.read_range(run.jobs_list, max(size - (_LINE_BYTES << 6), 0), _LINE_BYTES << 6)
    start = size - most * len(sample) // max(sample.count(b"\n"), 1)
    if start <= 0:
        return 0
    return start + files.read_range(run.jobs_list, start, _LINE_BYTES << 6).find(b"\n") + 1


def lines_about(files: Files, run: RunPaths, job_ids: Collection[str]) -> list[JobLine]:
    """The lines that count of some jobs and their dependents; the others are passed over."""
    found = (job for job, _ in listed_jobs(files, run, about=job_ids) if job is not None)
    return list({job.job_id: job for job in found}.values())


def listed_at(files: Files, run: RunPaths, start: int, end: int) -> JobLine | None:
    """The job of the line that lies there; None if it is none."""
    content = unseal(files.read_range(run.jobs_list, start, end - start).lstrip(b"\n"))
    return None if content is None else _from_fields(Fields(content))


MOST_LINKS = 1000
"""Of its further jobs a run has the line alone: a link takes an inode, and a block of the disk."""


class JobLinks:
    """The links of one run to the directories of its jobs, for people who look there.

    A job that the run before had, too, shares that run's link: a second name costs a disk a third of what a
    new link does, and next to nothing when old runs are removed.
    """

    def __init__(self, files: Files, run: RunPaths, before: RunPaths | None = None) -> None:
        self._files = files
        self._run = run
        self._before = before
        self._misses = 0
        """How many jobs in a row had nothing to share."""
        self._made: set[str] = set()
        """Directories that are there: to ask again for each job takes as long as its link."""
        self.left = MOST_LINKS

    def add(self, task_id: str, job_id: str) -> None:
        if not self.left:
            return
        self.left -= 1
        link = self._run.job_link(task_id, job_id)
        directory = link.rpartition("/")[0]
        if directory not in self._made:
            self._files.make_directory(directory)
            self._made.add(directory)
        if not self._shared(task_id, job_id, link):
            self._files.symlink(self._run.job_link_target(task_id, job_id), link)

    def _shared(self, task_id: str, job_id: str, link: str) -> bool:
        if self._before is None or self._misses >= _MISSES:
            return False
        try:
            self._files.link(self._before.job_link(task_id, job_id), link)
        except OSError:  # it was not there, or has names enough, or the disk cannot
            self._misses += 1
            return False
        self._misses = 0
        return True


def _to_fields(line: JobLine) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "job_id": line.job_id,
        "task_id": line.task_id,
        "submittime": line.submittime.isoformat(),
        "tags": dict(line.tags),
        "depends_on": line.depends_on,
        "transient": line.transient.name,
        "max_retries": line.max_retries,
    }
    if line.uses:
        fields["uses"] = line.uses
    if line.tokens:
        fields |= {"tokens": dict(line.tokens), "token_directory": line.token_directory}
    return fields


def _tags(fields: Fields) -> dict[str, Any]:
    found = fields.mapping("tags")
    for name, value in found.items():
        if not is_tag(value):
            raise ValueError(f"tags: {name!r:.60} is {value!r:.60}, which no tag can be")
    return found


def _from_fields(fields: Fields) -> JobLine:
    transient = fields.text("transient")
    if transient not in TransientMode.__members__:
        raise ValueError(f"transient: {transient!r:.60} is not a mode")
    return JobLine(
        job_id=fields.text("job_id"),
        task_id=fields.text("task_id"),
        submittime=fields.instant("submittime"),
        tags=_tags(fields),
        depends_on=fields.words("depends_on"),
        uses=fields.words("uses"),
        transient=TransientMode[transient],
        max_retries=fields.integer("max_retries", default=0),
        tokens={name: int(amount) for name, amount in fields.numbers("tokens").items()},
        token_directory=fields.optional_text("token_directory"),
    )
