"""`tenuto logs`."""

from __future__ import annotations

import codecs
import select
import time
from enum import Enum, unique
from types import TracebackType

import click

from tenuto.catalogue import Catalogue
from tenuto.cli import exit_codes
from tenuto.cli.chosen_jobs import job_argument, job_options, one_job
from tenuto.cli.console import note, print_json
from tenuto.cli.options import open_catalogue
from tenuto.cli.program import hint
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.key import JobKey
from tenuto.jobs.log import Follower, Tail, read_tail
from tenuto.jobs.row import Row
from tenuto.jobs.text import safe_lines
from tenuto.lifecycle.states import JobState
from tenuto.workspace.inotify import watch_directories
from tenuto.workspace.layout import JobPaths

POLL_S = 0.2
"""The pause where the kernel does not tell."""
_LEAST_S = 0.05
"""Between two answers: a job may write thousands of times a second."""


@unique
class News(Enum):
    """What a wait brought."""

    NOTHING = "nothing was told"
    FILES = "files were written"
    STATE = "the job may stand elsewhere"


class JobWatch:
    """Waits for changes of one job; a context manager."""

    def __init__(self, paths: JobPaths) -> None:
        self._directories = (paths.directory, paths.private)
        self._telling = {path.rpartition("/")[2] for path in (paths.done, paths.failed, paths.launch)}
        self._watches = watch_directories()
        self._answered = 0.0

    def __enter__(self) -> JobWatch:
        self._watch_more()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.distrust()

    @property
    def is_told(self) -> bool:
        """Whether the kernel tells of changes."""
        return self._watches is not None and all(path in self._watches for path in self._directories)

    def distrust(self) -> None:
        """Polls from now on: a change was found that the kernel did not tell, as on a network disk."""
        if self._watches is not None:
            self._watches.close()
            self._watches = None

    def wait(self, timeout_s: float) -> News:
        """Returns when the kernel tells of a change, or after `timeout_s`; sooner where it cannot tell."""
        if self._watch_more():
            return News.STATE  # the watch tells no change from before it began
        if self._watches is None or not self.is_told:
            time.sleep(min(timeout_s, POLL_S))
            return News.NOTHING
        poll = select.poll()
        poll.register(self._watches.fileno(), select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return News.NOTHING
        time.sleep(max(self._answered + _LEAST_S - time.monotonic(), 0.0))
        self._answered = time.monotonic()
        changes = self._watches.read()
        return News.STATE if any(self._tells(change.name) for change in changes) else News.FILES

    def _tells(self, name: str | None) -> bool:
        return name is None or name in self._telling

    def _watch_more(self) -> bool:
        """Whether a directory is watched that was not before: it may come late, or be replaced."""
        if self._watches is None:
            return False
        missing = [path for path in self._directories if path not in self._watches]
        return bool([path for path in missing if self._watches.add(path)])


LOOK_EVERY_S = 2.0
"""A runner that was killed leaves no sign in the directory."""
LOOK_ELSEWHERE_S = 0.5
"""How often a log is read that no directory of the workspace holds."""
LONGEST_LINE = 8192
TAIL_LIMIT = 1 << 20


@click.command()
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Continue until the job ends.")
@click.option("--err", is_flag=True, help="Its standard error.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=200, show_default=True, help="Last lines.")
@job_options
def command(
    words: tuple[str, ...],
    follow: bool,
    err: bool,
    lines: int,
    kind: str | None,
    workspace: str | None,
    as_json: bool,
) -> int:
    """Show the output of JOB; of a failed job also its standard error.

    JOB is the beginning of its id, TASK/ID, or a task that has one job; NAME#N of a search or a service; or a
    filter that one job matches.
    With --follow the exit code is 1 if the job failed.
    """
    if follow and as_json:
        raise click.UsageError("--follow and --json exclude each other")
    catalogue = open_catalogue(workspace)
    wanted = one_job(catalogue, words, kind)
    detail = catalogue.source(wanted).detail(wanted)
    key = catalogue.job_key(detail)
    if key is None:
        return _show_elsewhere(catalogue, detail.row, "err" if err else "out", follow, lines, as_json)
    view = catalogue.view
    paths = view.layout.job(*key)
    path = paths.err if err else paths.out
    tail = read_tail(view.machine.files, path, limit=TAIL_LIMIT)
    if tail is None and detail.row.state.finished():
        tail = Tail("", 0, True)  # it was empty, and is gone
    found = tail.text.splitlines() if tail else []
    kept = found[max(len(found) - lines, 0) :]
    if as_json:
        whole = tail is not None and tail.is_whole and len(kept) == len(found)
        text = "\n".join(kept) + "\n" * bool(kept)
        print_json(_plain(detail.row, path, text, whole))
        return exit_codes.OK
    for line in kept:
        click.echo(safe_lines(line))
    if not follow:
        has_more = not err and _show_errors(view, key, lines)
        if not found and not has_more:
            other = "it printed nothing" if tail else "it has printed nothing yet"
            why = hint(f"tenuto why {detail.row.name}")
            note(f"{other}; try {'without --err' if err else '--err'}, or: {why}")
        return exit_codes.OK
    return _follow(view, key, Follower(view.machine.files, path, tail))


def _plain(row: Row, path: str | None, text: str, whole: bool) -> dict[str, object]:
    return {"id": row.id, "name": row.name, "task": row.task, "path": path, "text": text, "whole": whole}


def _show_elsewhere(
    catalogue: Catalogue, row: Row, stream: str, follow: bool, lines: int, as_json: bool
) -> int:
    """Shows what a job printed that has no directory in the workspace: a payload's, or another machine's."""
    source = catalogue.source(row.key)
    log = source.log(row.key, stream, 0)
    size = log.size()
    offset = max(size - TAIL_LIMIT, 0)
    found = log.read(offset, TAIL_LIMIT).decode("utf-8", "replace").splitlines()
    kept = found[max(len(found) - lines, 0) :]
    if as_json:
        text = "\n".join(kept) + "\n" * bool(kept)
        print_json(_plain(row, None, text, not offset and len(kept) == len(found)))
        return exit_codes.OK
    for line in kept:
        click.echo(safe_lines(line))
    if not found and not follow:
        note(f"it printed nothing that is kept here; try --err, or: {hint(f'tenuto why {row.name}')}")
    printed = _Lines()
    while follow:
        has_ended = log.ended()
        data = log.read(size, TAIL_LIMIT)
        size += len(data)
        printed.print(data)
        if has_ended and not data:
            printed.end()
            row = source.detail(row.key).row
            note(f"{row.name} is {row.state.name.lower()}")
            return exit_codes.FAILED if row.state is JobState.ERROR else exit_codes.OK
        if not data:
            time.sleep(LOOK_ELSEWHERE_S)
            log = source.log(row.key, stream, 0)
    return exit_codes.OK


def _show_errors(view: WorkspaceView, key: JobKey, lines: int) -> bool:
    """Shows what a failed job printed to standard error, where the reason is; False if that is nothing."""
    if view.look(key).state is not JobState.ERROR:
        return False
    tail = read_tail(view.machine.files, view.layout.job(*key).err, limit=TAIL_LIMIT)
    found = tail.text.splitlines() if tail else []
    if found:
        note("it failed; this is its standard error:")
    for line in found[max(len(found) - lines, 0) :]:
        click.echo(safe_lines(line))
    return bool(found)


def _follow(view: WorkspaceView, key: JobKey, log: Follower) -> int:
    lines = _Lines()
    look_at = 0.0
    is_untold = has_ended = False
    with JobWatch(view.layout.job(*key)) as watch:
        while True:
            data = log.read()
            lines.print(data)
            if data:
                if is_untold:
                    watch.distrust()
                continue
            if has_ended:
                break
            now = view.machine.clock.monotonic()
            if now >= look_at:
                look_at = now + LOOK_EVERY_S
                has_ended = _has_ended(view, key)
                if has_ended:
                    continue  # its last lines, between the last read and its end
            news = watch.wait(LOOK_EVERY_S)
            is_untold = news is News.NOTHING and watch.is_told
            if news is News.STATE:
                look_at = 0.0
    lines.end()
    job = view.job(key)
    reason = f" ({job.reason.name})" if job.reason else ""
    note(f"{key} is {job.state.name.lower()}{reason}")
    return exit_codes.FAILED if job.state is JobState.ERROR else exit_codes.OK


def _has_ended(view: WorkspaceView, key: JobKey) -> bool:
    """Whether the job will print no more. Its run is asked only where its directory does not say."""
    state = view.look(key).state
    if state is not JobState.DONE and not state.running():
        state = view.job(key).state
    return state.finished() or state is JobState.UNSCHEDULED


class _Lines:
    """Prints a log as it comes, line by line."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""

    def print(self, data: bytes) -> None:
        self._pending += self._decoder.decode(data.replace(b"\0", b""))
        *complete, self._pending = self._pending.split("\n")
        if len(self._pending) > LONGEST_LINE:
            complete.append(self._pending)
            self._pending = ""
        for line in complete:
            click.echo(safe_lines(line))

    def end(self) -> None:
        """Prints the unfinished line."""
        if self._pending:
            click.echo(safe_lines(self._pending))
