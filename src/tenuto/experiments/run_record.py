"""The record of a run: its id, what became of it (``status.json``), its tags, and the lock that it held.
Says nothing of jobs. A lock is waited for no longer than the caller says.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum, unique
from typing import NamedTuple

from tenuto.errors import ExperimentLocked, WorkspaceError
from tenuto.lifecycle.events import CarbonMetricsData
from tenuto.lifecycle.states import JobState
from tenuto.workspace.carbon import metrics_of, plain_metrics
from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.layout import Layout, name_of_directory
from tenuto.workspace.locks import keep_from_children
from tenuto.workspace.ports import Files, LockHandle, Machine
from tenuto.workspace.records import Fields
from tenuto.workspace.run_paths import RunPaths

_STATUS_LIMIT = 1 << 20
_LOCK_LIMIT = 4096


# -- ids: `YYYYMMDD_HHMMSS` in UTC, with `.N` when that second was taken -----------------------------

_FORM = "%Y%m%d_%H%M%S"
_TEXT = re.compile(r"(\d{8}_\d{6})(?:\.([1-9]\d{0,8}))?", re.ASCII)
_BETWEEN = ":"
"""Between the id and the nonce in the name of a writer."""


class RunId(NamedTuple):
    """A run id; ids sort by the time they stand for, and `.2` before `.10`.

    UTC, because the hour that summer time repeats would make two runs look like one moment.
    """

    stamp: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.stamp}.{self.number}" if self.number else self.stamp

    @property
    def started(self) -> datetime:
        """The second that the id names, aware, in UTC."""
        day, second = self.stamp.split("_")
        return datetime.fromisoformat(f"{day}T{second}").replace(tzinfo=UTC)


def parse_run_id(text: str) -> RunId | None:
    """The run id that a text spells; None for any other text, such as the name of a stray directory."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    run_id = RunId(match[1], int(match[2] or 0))
    try:
        _ = run_id.started
    except ValueError:  # the 30th of February
        return None
    return run_id


def candidates(now: datetime) -> Iterator[RunId]:
    """The ids to try for a run that starts now; the first whose directory can be created is its own."""
    if now.tzinfo is None:
        raise ValueError(f"an instant needs a time zone: {now!r}")
    stamp = now.astimezone(UTC).strftime(_FORM).zfill(15)
    return (RunId(stamp, number) for number in itertools.count())


def free_run_id(now: datetime, taken: Iterable[str]) -> RunId:
    """The first id after all that are taken: ids only grow, whatever the clock does.

    An id between others would make the new run look older than they are. After the clock was ahead, new runs
    get numbers after the run of the future until the clock has passed it; `status.json` says when they began.
    """
    first = next(candidates(now))
    last = max((known for text in taken if (known := parse_run_id(text))), default=None)
    return first if last is None or first > last else last._replace(number=last.number + 1)


def writer_name(run_id: str, nonce: str) -> str:
    """The name under which a run writes. Names sort as the runs do."""
    return f"{run_id}{_BETWEEN}{nonce}"


def run_of(writer: str) -> str | None:
    """The run that writes under this name; None if it was none."""
    run_id, between, _ = writer.partition(_BETWEEN)
    return run_id if between else None


# -- status and tags ---------------------------------------------------------------------------------


@unique
class RunState(Enum):
    """Where a run stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """Stopped by a person before all its jobs were started, or left while jobs continue."""


class RunStatus(NamedTuple):
    """One run of an experiment."""

    experiment_id: str
    run_id: str
    state: RunState
    started: datetime
    host: str
    pid: int
    ended: datetime | None = None
    jobs: int = 0
    reused: int = 0
    failed: int = 0
    message: str | None = None
    carbon: CarbonMetricsData | None = None
    """What its jobs used while it was open, as far as that was measured."""
    command: tuple[str, ...] = ()
    """What starts it again, in `directory`; empty at a prompt."""
    directory: str = ""
    counts: Mapping[JobState, int] = {}
    """How many jobs are in which state; of a run that is open, when it wrote this last."""

    def encode(self) -> bytes:
        fields = {
            **self._asdict(),
            "state": self.state.value,
            "started": self.started.isoformat(),
            "ended": self.ended.isoformat() if self.ended else None,
            "carbon": plain_metrics(self.carbon) if self.carbon else None,
            "counts": {state.name.lower(): number for state, number in sorted(self.counts.items())},
        }
        return json.dumps(fields, indent=1).encode()


def write_run_status(files: Files, run: RunPaths, status: RunStatus) -> None:
    """Replaces the status of a run."""
    files.replace(run.status, status.encode(), durable=status.state is not RunState.RUNNING)


def read_run_status(files: Files, run: RunPaths) -> RunStatus | None:
    """The status of a run; None if there is none, or none that can be read."""
    try:
        fields = json.loads(files.read(run.status, _STATUS_LIMIT))
        return RunStatus(
            experiment_id=str(fields["experiment_id"]),
            run_id=str(fields["run_id"]),
            state=RunState(fields["state"]),
            started=datetime.fromisoformat(fields["started"]),
            host=str(fields["host"]),
            pid=int(fields["pid"]),
            ended=datetime.fromisoformat(fields["ended"]) if fields.get("ended") else None,
            jobs=int(fields.get("jobs", 0)),
            reused=int(fields.get("reused", 0)),
            failed=int(fields.get("failed", 0)),
            message=fields.get("message"),
            carbon=metrics_of(fields["carbon"]) if fields.get("carbon") else None,
            command=tuple(map(str, fields.get("command") or ())),
            directory=str(fields.get("directory") or ""),
            counts=_counts(fields.get("counts")),
        )
    except (OSError, WorkspaceError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _counts(said: object) -> Mapping[JobState, int]:
    """The counts of a status; none where they cannot be read, for they can be made anew."""
    try:
        return {JobState[name.upper()]: int(number) for name, number in said.items()}  # type: ignore[attr-defined]
    except (AttributeError, KeyError, ValueError, TypeError):
        return {}


def read_tags(files: Files, run: RunPaths) -> tuple[str, ...]:
    """The tags of a run, in order; none if they cannot be read."""
    try:
        names = files.list(run.tags)
    except OSError:
        return ()
    return tuple(sorted(tag for name in names if (tag := name_of_directory(name)) is not None))


def add_tags(files: Files, run: RunPaths, tags: Iterable[str]) -> None:
    """Adds tags; `InvalidName` for a word that cannot be one."""
    paths = [run.tag(tag) for tag in tags]
    files.make_directory(run.tags)
    for path in paths:
        files.write(path, b"")


def remove_tags(files: Files, run: RunPaths, tags: Iterable[str]) -> list[str]:
    """The run loses these tags; returns the tags that it had."""
    return [tag for tag in tags if files.remove(run.tag(tag))]


# -- the lock of an experiment, of which one run at a time is open -----------------------------------


class LockHolder(NamedTuple):
    """The process that holds the lock of an experiment, as it wrote there; without a host it is not known."""

    host: str | None
    pid: int
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"

    def fits(self, status: RunStatus) -> bool:
        """Whether the process may be the one of a run."""
        return self.host is None or (self.host, self.pid) == (status.host, status.pid)


def read_holder(files: Files, path: str) -> LockHolder:
    """The process that a lock's file names; `ValueError` if it names none."""
    fields = Fields(from_json(files.read(path, _LOCK_LIMIT)))
    return LockHolder(fields.text("host"), fields.integer("pid"), fields.text("since"))


def lock_experiment(machine: Machine, layout: Layout, experiment_id: str) -> LockHandle:
    """Takes the lock of an experiment; `ExperimentLocked` names the process that has it."""
    keep_from_children()
    path = layout.experiment_lock(experiment_id)
    machine.files.make_directory(layout.experiment(experiment_id))
    lock = machine.locks.try_lock(path)
    if lock is None:
        raise ExperimentLocked(
            f"experiment {experiment_id!r} is already running ({_holder_text(machine, path)}): "
            f"wait for it, stop it, or choose another name"
        )
    own = machine.processes.own()
    since = machine.clock.now().isoformat(timespec="seconds")
    try:
        machine.files.write(path, to_json({"host": own.host, "pid": own.pid, "since": since}))
    except OSError:
        lock.close()  # the caller, which would close it, does not get it
        raise
    return lock


def wait_for_lock(
    machine: Machine,
    layout: Layout,
    experiment_id: str,
    timeout_s: float,
    say: Callable[[str], None],
) -> LockHandle:
    """Like `lock_experiment`, but waits up to `timeout_s` for the run that has it."""
    end = machine.clock.monotonic() + timeout_s
    said = False
    while True:
        try:
            return lock_experiment(machine, layout, experiment_id)
        except ExperimentLocked as error:
            if machine.clock.monotonic() >= end:
                raise
            if not said:
                say(f"waiting: {error}")
                said = True
            time.sleep(0.2)


def _holder_text(machine: Machine, path: str) -> str:
    try:
        return f"by {read_holder(machine.files, path)}"
    except (OSError, WorkspaceError, ValueError):
        return "by another process"
