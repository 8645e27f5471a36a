"""`tenuto wait`."""

from __future__ import annotations

import math
import os
import select
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from enum import Enum, unique
from typing import Any, NamedTuple

import click

from tenuto.catalogue import Catalogue
from tenuto.cli import exit_codes
from tenuto.cli.chosen_jobs import is_filter, job_options, job_or_group, kind_beside, meant, question_of
from tenuto.cli.completions import complete_runs
from tenuto.cli.console import note, print_json, say
from tenuto.cli.options import notify_option, open_catalogue
from tenuto.cli.program import hint
from tenuto.clock import Clock
from tenuto.errors import FilterError, NotFound, TenutoError
from tenuto.jobs.notify import Notice, given_on_command_line, send
from tenuto.jobs.row import JOBS_FAILED, Group, Row, plain_row
from tenuto.jobs.source import Feed, Source
from tenuto.jobs.text import counted, safe
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState

TICK_S = 0.1
"""Between two looks at files of a database and of a run, which cost microseconds."""
LOOK_S = 1.0
"""Between two looks at what no source tells of: a driver that died, a change on another machine."""
RETRIED_S = 1.0
"""How long a failed attempt of a job that may have more attempts is given to be followed by the next."""
STILL_S = 6.0
"""How long nothing is seen of a server or a scheduler that is gone: one that lives, or is started again,
says so every 5 s, whatever a clock shows that was set."""
_LIMIT = 100_000
_ENDED_BADLY = ("FAILING", "STOPPED")


@unique
class WaitState(Enum):
    """The outcome of a wait."""

    DONE = "done"
    FAILED = "failed"
    UNATTENDED = "unattended"
    """Jobs are left that no driver will start."""
    WORKING = "working"
    """The time was up before."""
    IDLE = "idle"
    """There was nothing to wait for."""


class Came(NamedTuple):
    """The outcome of a wait."""

    state: WaitState
    event: str
    """``ended``, ``failed``, ``best``, ``timeout`` or ``nothing``."""
    counts: Mapping[JobState, int]
    failed: tuple[Row, ...] = ()
    """Jobs that failed or were cancelled."""
    left: tuple[Row, ...] = ()
    """Jobs that have not ended."""
    about: tuple[Row, ...] = ()
    """The jobs that the event is about."""
    take_up: tuple[str, ...] = ()
    """Commands that start the driver again, of groups that have none."""
    message: str = ""


class Awaited(NamedTuple):
    """A group as a whole, or some jobs of it."""

    group: Group
    keys: frozenset[str] | None = None
    """Keys of the jobs; None: every job of the group, later ones too."""
    names: tuple[str, ...] = ()
    """The jobs, as people call them."""


class Waiting:
    """Follows some groups until there is news; for one thread."""

    def __init__(self, source_of: Callable[[str], Source], awaited: Sequence[Awaited], clock: Clock) -> None:
        self._source_of = source_of
        self._awaited = list(awaited)
        self._clock = clock
        self._rows: dict[str, dict[str, Row]] = {}
        """Group -> key -> row."""
        self._groups = {one.group.group: one.group for one in awaited}
        self._failed_since: dict[str, float] = {}
        self._unseen_since: dict[str, float] = {}
        """Group -> since when nothing was seen of its driver."""
        self._stamps: dict[str, object] = {}
        self._feeds: list[tuple[Source, Feed, list[str]]] = []
        self.is_told = True
        """False if a change is only found by a look once a second."""

    # The loop

    def run(self, *, timeout_s: float | None, first_end: bool = False, changes: bool = False) -> Came:
        """Sleeps until all has ended; `first_end`: one job; `changes`: anything worth telling happened."""
        began = self._clock.monotonic()
        with ExitStack() as stack:
            poll, drained = self._open(stack)
            before = self._ended()
            best = self._bests() if changes else {}
            while True:
                came = self._news(before, best, first_end=first_end, changes=changes) or self._whole()
                if came is not None:
                    return came
                left_s = None if timeout_s is None else timeout_s - (self._clock.monotonic() - began)
                if left_s is not None and left_s <= 0:
                    return self._came(WaitState.WORKING, "timeout")
                self._sleep(poll, drained, left_s)

    def _open(self, stack: ExitStack) -> tuple[select.poll, int]:
        wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        stack.callback(os.close, wake)
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        of_door: dict[Door, list[str]] = {}
        for group in self._groups.values():
            of_door.setdefault(group.door, []).append(group.group)
        for groups in of_door.values():
            source = self._source_of(groups[0])
            stop = source.listen(lambda: os.eventfd_write(wake, 1))
            if stop is not None:
                stack.callback(stop)
            feed = stack.enter_context(closing(source.feed()))
            self._feeds.append((source, feed, groups))
            fd = feed.fileno()
            if fd is not None:
                poll.register(fd, select.POLLIN)
            is_stamped = all(source.stamp(name) is not None for name in groups)
            self.is_told = self.is_told and (fd is not None or stop is not None or is_stamped)
            for name in groups:
                rows = [row for chunk in source.rows(name) for row in chunk]
                self._rows[name] = {row.key: row for row in rows}
        return poll, wake

    def _sleep(self, poll: select.poll, wake: int, left_s: float | None) -> None:
        """Returns when a source told of something, a file changed, or a second has passed."""
        end = self._clock.monotonic() + (LOOK_S if left_s is None else min(LOOK_S, left_s))
        while (pause_s := end - self._clock.monotonic()) > 0:
            ready = bool(poll.poll(min(TICK_S, pause_s) * 1000))
            with suppress(BlockingIOError):
                os.eventfd_read(wake)
            stamps = self._stamps_now()
            if ready or stamps != self._stamps:
                self._stamps = stamps
                break
        self._read()

    def _stamps_now(self) -> dict[str, object]:
        return {group: self._source_of(group).stamp(group) for group in self._groups}

    def _read(self) -> None:
        for source, feed, groups in self._feeds:
            changes = feed.read(groups, _LIMIT)
            for row in changes.rows:
                if row.group in self._rows:
                    self._rows[row.group][row.key] = row
            for gone in changes.gone:
                self._rows.get(gone.group, {}).pop(gone.key, None)
            for group in groups:
                known = source.group(group)
                if known is not None:
                    self._groups[group] = known

    # The groups so far

    def _rows_of(self, awaited: Awaited) -> Iterator[Row]:
        for key, row in self._rows.get(awaited.group.group, {}).items():
            if awaited.keys is None or key in awaited.keys:
                yield row

    def _every(self) -> list[Row]:
        return list({row.key: row for one in self._awaited for row in self._rows_of(one)}.values())

    def _has_ended(self, row: Row) -> bool:
        """True if the job has reached its end; a failure that is tried again is none."""
        if row.state is not JobState.ERROR or not self._groups[row.group].live:
            self._failed_since.pop(row.key, None)
            return row.state.finished()
        now = self._clock.monotonic()
        since = self._failed_since.setdefault(row.key, now)
        if now - since >= RETRIED_S:
            return True
        with suppress(TenutoError, OSError):
            most = self._source_of(row.key).detail(row.key).fields.get("most_attempts")
            return not most or row.attempt >= most
        return True

    def _ended(self) -> set[str]:
        """The jobs of whole groups that had ended when the wait began, and are no news."""
        groups = [one for one in self._awaited if one.keys is None]
        return {row.key for one in groups for row in self._rows_of(one) if row.state.finished()}

    def _bests(self) -> dict[str, Any]:
        return {
            name: self._source_of(name).about(name).get("best")
            for name, group in self._groups.items()
            if group.door is Door.SEARCH
        }

    # Verdicts

    def _news(
        self, before: set[str], best: Mapping[str, Any], *, first_end: bool, changes: bool
    ) -> Came | None:
        if not (first_end or changes):
            return None
        ended = [row for row in self._every() if row.key not in before and self._has_ended(row)]
        if ended:
            failed = [row for row in ended if row.state is JobState.ERROR]
            first = min(ended, key=lambda row: row.ended.timestamp() if row.ended is not None else 0.0)
            about = failed or [first] if changes else [first]
            is_failed = about[0].state is JobState.ERROR
            state = WaitState.FAILED if is_failed else WaitState.DONE
            return self._came(state, "failed" if is_failed else "ended", about=about)
        if changes and (new := {name: one for name, one in self._bests().items() if one != best.get(name)}):
            name, found = next(iter(new.items()))
            objective = found.get("objective") if isinstance(found, dict) else found
            text = f"the best of {name.partition(':')[2]} is {objective}"
            return self._came(WaitState.DONE, "best", message=text)
        return None

    def _whole(self) -> Came | None:
        """The outcome of all that was awaited; None while it is at work."""
        found = [self._verdict(one) for one in self._awaited]
        if any(state is None for state in found):
            return None
        for state in (WaitState.UNATTENDED, WaitState.FAILED):
            if state in found:
                return self._came(state, "ended")
        return self._came(WaitState.DONE, "ended")

    def _verdict(self, awaited: Awaited) -> WaitState | None:
        group = self._groups[awaited.group.group]
        rows = list(self._rows_of(awaited))
        if group.door is Door.SEARCH and awaited.keys is None:
            return self._of_search(group, rows)
        # A run that is done started all that it needed: a transient job that none needed stays unscheduled.
        is_done = awaited.keys is None and not group.live and group.state.lower() == "done"
        ended = [
            row for row in rows if self._has_ended(row) or (is_done and row.state is JobState.UNSCHEDULED)
        ]
        has_ended = len(ended) == len(rows) and (awaited.keys is not None or not group.live)
        if not has_ended:
            return self._unless_unattended(group, rows)
        is_failed = any(row.state is JobState.ERROR for row in rows)
        is_retried = not is_failed and group.message == JOBS_FAILED
        if awaited.keys is None and not is_retried and group.state.lower() not in ("done", "running"):
            is_failed = True  # the script raised, or a person ended it
        return WaitState.FAILED if is_failed else WaitState.DONE

    def _of_search(self, group: Group, rows: Sequence[Row]) -> WaitState | None:
        if group.ended is not None and group.state.startswith("ENDED"):
            is_failed = any(f"({reason})" in group.state for reason in _ENDED_BADLY)
            succeeded = any(row.state is JobState.DONE for row in rows)
            return WaitState.FAILED if is_failed or not succeeded else WaitState.DONE
        return self._unless_unattended(group, rows)

    def _unless_unattended(self, group: Group, rows: Sequence[Row]) -> WaitState | None:
        """None while a driver is at work, or a job runs without one: else nothing more will happen."""
        is_running = any(row.state.running() for row in rows)
        if group.door is Door.EXPERIMENTS and (group.live or is_running):
            return None  # their rows are what directories show
        driver = self._source_of(group.group).driver(group.group)
        now = self._clock.monotonic()
        if driver.is_at_work is not False:
            self._unseen_since.pop(group.group, None)
            return None
        has_payloads = is_running if driver.has_payloads is None else driver.has_payloads
        if has_payloads:
            return None
        since = self._unseen_since.setdefault(group.group, now)
        return WaitState.UNATTENDED if group.door is Door.EXPERIMENTS or now - since >= STILL_S else None

    def _came(self, state: WaitState, event: str, *, about: Iterable[Row] = (), message: str = "") -> Came:
        rows = self._every()
        groups = {row.group for row in rows} | {one.group.group for one in self._awaited}
        take_up: tuple[str, ...] = ()
        if state is WaitState.UNATTENDED:
            drivers = (self._source_of(name).driver(name) for name in sorted(groups))
            take_up = tuple(one.take_up for one in drivers if one.is_at_work is False)
        said = () if state is WaitState.DONE else self._groups.values()
        return Came(
            state,
            event,
            Counter(row.state for row in rows),
            tuple(row for row in rows if row.state is JobState.ERROR),
            tuple(row for row in rows if not row.state.finished()),
            tuple(about),
            take_up,
            message or next((one.message for one in said if one.message), "") or "",
        )


MOST_NAMED = 20
"""How many failed jobs a line of text names."""
MOST_IN_TITLE = 3
"""So few jobs are named one by one; of more, their groups."""
_CODES = {
    WaitState.DONE: exit_codes.OK,
    WaitState.IDLE: exit_codes.OK,
    WaitState.FAILED: exit_codes.FAILED,
    WaitState.UNATTENDED: exit_codes.FAILED,
    WaitState.WORKING: exit_codes.TIME_UP,
}


@click.command()
@click.argument("names", metavar="[GROUP|JOB|FILTER]...", nargs=-1, shell_complete=complete_runs)
@click.option(
    "--timeout", "timeout_s", metavar="S", type=click.FloatRange(min=0), help="Wait at most so many seconds."
)
@click.option("--any", "first_end", is_flag=True, help="Until the first of the jobs has ended.")
@click.option("--changes", is_flag=True, help="Until an end, a failure, or a better best of a search.")
@click.option("-v", "--verbose", is_flag=True, help="Say where changes are only found by a look each second.")
@notify_option
@job_options
def command(
    names: tuple[str, ...],
    timeout_s: float | None,
    first_end: bool,
    changes: bool,
    verbose: bool,
    notify: str | None,
    kind: str | None,
    workspace: str | None,
    as_json: bool,
) -> int:
    """Wait until runs, searches or jobs have ended, also if their driver dies; say how they ended.

    Each name is a JOB (an id, NAME#N), a GROUP (an experiment, a run, a search) or a FILTER, which stands for
    the jobs that it matches now. Without names: the groups that are at work.

    Exit codes: 0 all is done; 1 something failed or was cancelled, or no driver will start the rest; 2 a
    service was named and not its jobs; 3 nothing of that name; 6 still at work when the time was up.
    """
    if first_end and changes:
        raise click.UsageError("--any and --changes exclude each other")
    if timeout_s is not None and math.isnan(timeout_s):
        raise click.UsageError("--timeout is a number of seconds, not nan")
    told = given_on_command_line(notify)  # refused now, and not after the wait
    catalogue = open_catalogue(workspace)
    awaited = _awaited(catalogue, names, kind) if names else _at_work(catalogue, kind)
    if not awaited:
        came = Came(WaitState.IDLE, "nothing", {}, message="nothing is at work")
    else:
        wait = Waiting(catalogue.source, awaited, catalogue.view.machine.clock)
        came = wait.run(timeout_s=timeout_s, first_end=first_end, changes=changes)
        if verbose and not wait.is_told:
            note("changes are found by a look once a second: the kernel or the database tells of none here")
    groups = list(dict.fromkeys(one.group.group.partition(":")[2] for one in awaited))
    title = _title(awaited)
    _show(catalogue, came, groups, title, as_json)
    if not awaited:
        _tell_unattended(catalogue, kind)
    if told is not None:
        state = came.state.value
        notice = Notice(
            came.event, f"{title}: {state}", _line(came, title), ", ".join(groups), state, len(came.failed)
        )
        problem = send(told, notice)
        if problem is not None:
            note(f"the notice could not be sent: {problem}")
    return _CODES[came.state]


def _awaited(catalogue: Catalogue, names: Sequence[str], kind: str | None) -> list[Awaited]:
    """The job or group of each name; or the jobs that a filter matches."""
    names, kind = kind_beside(names, kind)
    filters = [name for name in names if is_filter(name)]
    if filters and _is_one_filter(names):
        filters, names = [*names], ()
    found = [one for name in names if name not in filters for one in _of_name(catalogue, name, kind)]
    if filters:
        rows = meant(catalogue, filters, kind=kind).rows
        if not rows:
            raise NotFound(f"no job matches {' '.join(filters)!r}; `tenuto jobs` lists them")
        found += _of_rows(catalogue, rows)
    return found


def _is_one_filter(names: Sequence[str]) -> bool:
    """True if the words are one filter, as a shell divides it where it was not quoted."""
    try:
        question_of(names)
    except FilterError:
        return len(names) == 1  # it says what is wrong
    return True


def _of_name(catalogue: Catalogue, name: str, kind: str | None) -> list[Awaited]:
    group = job_or_group(catalogue, name, kind)
    if isinstance(group, Row):
        return _of_rows(catalogue, [group])
    if group.door is Door.SERVICE:
        raise click.UsageError(
            f"{name} is a service, which never ends: name jobs, such as {name}#1, or a filter, such as "
            f"'group={name} and state=running'"
        )
    return [Awaited(group)]


def _of_rows(catalogue: Catalogue, rows: Sequence[Row]) -> list[Awaited]:
    jobs: dict[str, dict[str, str]] = {}
    for row in rows:
        jobs.setdefault(row.group, {})[row.key] = row.name
    found = []
    for name, some in jobs.items():
        group = catalogue.source(name).group(name) if name else None
        if group is None:
            raise NotFound(f"no run lists {', '.join(sorted(some)[:3])}: nothing will start or end it")
        found.append(Awaited(group, frozenset(some), tuple(some.values())))
    return found


def _at_work(catalogue: Catalogue, kind: str | None) -> list[Awaited]:
    groups = [group for group in catalogue.groups(kind) if group.live and group.door is not Door.SERVICE]
    return [
        Awaited(group) for group in groups if catalogue.source(group.group).driver(group.group).is_at_work
    ]


def _tell_unattended(catalogue: Catalogue, kind: str | None) -> None:
    """Says which groups would be at work if they had a driver."""
    for group in catalogue.groups(kind):
        if group.take_up is not None and group.door is not Door.SERVICE:
            counts = catalogue.source(group.group).counts(group.group)
            if any(number for state, number in counts.items() if not state.finished()):
                note(f"no driver is at work for {safe(group.group.partition(':')[2])}: {group.take_up}")


def _title(awaited: Sequence[Awaited]) -> str:
    """The groups, or the jobs where a few are awaited."""
    found: dict[str, None] = {}
    for one in awaited:
        is_short = 0 < len(one.names) <= MOST_IN_TITLE
        found |= dict.fromkeys(one.names if is_short else [one.group.group.partition(":")[2]])
    return ", ".join(found) or "nothing"


def _show(catalogue: Catalogue, came: Came, groups: Sequence[str], title: str, as_json: bool) -> None:
    if as_json:
        print_json(_plain(catalogue, came, groups))
        return
    say(_line(came, title))
    is_named = came.state in (WaitState.FAILED, WaitState.WORKING)
    told = [row for row in came.about or came.failed if row in came.failed] if is_named else []
    for row in told[:MOST_NAMED]:
        cause = row.message or (row.reason.name.lower() if row.reason else "")
        note(f"{row.name} {row.task} failed: {cause}; {hint(f'tenuto why {row.name}')}")
    if len(told) > MOST_NAMED:
        note(f"and {len(told) - MOST_NAMED} more: {hint('tenuto jobs state=error')}")
    for command in came.take_up:
        note(f"no driver is at work; {counted(len(came.left), 'job')} left: {command}")


def _line(came: Came, title: str) -> str:
    if came.state is WaitState.IDLE:
        return came.message
    numbers = [
        (came.counts.get(JobState.DONE, 0), "done"),
        (len(came.failed), "failed"),
        (sum(row.state.running() for row in came.left), "running"),
        (sum(not row.state.running() for row in came.left), "not started"),
    ]
    told = ", ".join(f"{number} {word}" for number, word in numbers if number) or "no jobs"
    what = {WaitState.WORKING: "still at work", WaitState.UNATTENDED: "without a driver"}
    about = ", ".join(f"{row.name} {row.state.name.lower()}" for row in came.about)
    said = came.message if came.event == "best" else about or what.get(came.state, came.state.value)
    return f"{safe(title)}: {safe(said)} ({told})"


def _plain(catalogue: Catalogue, came: Came, groups: Sequence[str]) -> dict[str, Any]:
    now = catalogue.now()
    return {
        "state": came.state.value,
        "event": came.event,
        "exit": _CODES[came.state],
        "groups": list(groups),
        "counts": {state.name.lower(): came.counts.get(state, 0) for state in JobState},
        "about": [plain_row(row, now) for row in came.about],
        "failed": [plain_row(row, now) for row in came.failed],
        "left": [row.id for row in came.left],
        "take_up": list(came.take_up),
        "message": came.message or None,
    }
