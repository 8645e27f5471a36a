"""The directory of one submission: manifest, script, complaints of runners, and id; and how long it stays.
Written in the order in which a crash does no harm; read back by a scheduler that comes later.
A directory is removed when every attempt in it has left its marker. One of another process, and one that may
have been queued twice, is kept until the system shows none of its tasks: a task that starts would miss its
manifest and the place of its output. One whose attempt left no marker is kept, for the complaints in it,
until the job has another attempt.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from tenuto.clock import Clock
from tenuto.launchers.cluster.dialect import NAMED_BY, Dialect, QueueRow
from tenuto.launchers.manifest import (
    SETUP_OVER,
    Header,
    ManifestUnreadable,
    Order,
    encode_manifest,
    read_header,
    read_order,
    setup_path,
)
from tenuto.launchers.runner.runner_protocol import ENTRY, PLAIN, SETUP_FAILED, STARVED
from tenuto.workspace.attempt_files import read_launch
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.json_bytes import from_json
from tenuto.workspace.layout import Layout
from tenuto.workspace.markers import has_marker
from tenuto.workspace.ports import Files

LONGEST_NAME = 40
_ID_BYTES = 64
_PILOTS = "-pilots"
"""What the kind of a submission ends with that holds pilots."""
_ORDERS_BYTES = 1 << 28
_SETUP = """tenuto_said={said}
tenuto_failed() {{
    tenuto_code=$?
    trap - EXIT
    set +e
    exec 1>&3 2>&4 3>&- 4>&-
    cat "$tenuto_said"
    printf '\\n%s\\n' "$tenuto_code" >>"$tenuto_said"
    case $tenuto_code in
        0|138|143) ;;
        *) {mark} ;;
    esac
    {leave} {code}
}}
exec 3>&1 4>&2
true >"$tenuto_said" && exec >"$tenuto_said" 2>&1
trap tenuto_failed EXIT
set -e
eval {setup}
trap - EXIT
exec 1>&3 2>&4 3>&- 4>&-
printf '\\n{over}\\n' >>"$tenuto_said" || :
"""
"""The lines before a runner. What a setup says is kept, and its failure ends the script: `trap` also sees an
`exit`. A shell that is told to end has no failed setup (0 in bash; 138 and 143, of a command of the setup's):
the batch system says why, and its word counts before the exit code.
"""


_KEPT = """trap : TERM
tenuto_kills() {{
    while IFS=: read -r _ tenuto_has tenuto_group; do
        case ",$tenuto_has:$tenuto_group" in
            *:/) ;;
            *,memory[:,]*) grep -s '^oom_kill ' "/sys/fs/cgroup/memory$tenuto_group/memory.oom_control" ;;
            ,:*) grep -s '^oom_kill ' "/sys/fs/cgroup$tenuto_group/memory.events" ;;
        esac
    done </proc/self/cgroup
}}
tenuto_before=$(tenuto_kills)
{runner}tenuto_code=$?
[ $tenuto_code = 137 ] && [ "$(tenuto_kills)" != "$tenuto_before" ] && tenuto_code={code}
{leave} $tenuto_code
"""
"""A runner for which the shell waits, to tell whether the kernel killed it for want of memory: by the count
of their control group, since the machine's counts for all jobs on it, and a need must not grow for another's.

The shell outlives TERM: the runner, which would be killed with it, hears that too, and may take its time.
"""
_LEAVE = """tenuto_leave() {{
    echo "$1" >{code}.new && mv {code}.new {code}
    exit "$1"
}}
"""
"""The end of a script whose exit code no system tells."""


class Place(NamedTuple):
    """Where one submission is kept."""

    root: str
    """`.launchers` of the workspace."""
    id: str
    """16 hexadecimal digits."""
    kind: str
    """The name of the cluster; of pilots with an ending of their own."""

    @classmethod
    def of_pilot(cls, root: str, id_: str, cluster: str) -> Place:
        return cls(root, id_, f"{cluster}{_PILOTS}")

    @property
    def is_pilot(self) -> bool:
        return self.kind.endswith(_PILOTS)

    @property
    def directory(self) -> str:
        return f"{self.root}/{self.kind}/{self.id}"

    @property
    def manifest(self) -> str:
        return f"{self.directory}/manifest"

    @property
    def script(self) -> str:
        return f"{self.directory}/script.sh"

    @property
    def out(self) -> str:
        return f"{self.directory}/out"

    @property
    def answer(self) -> str:
        return f"{self.directory}/id"

    @property
    def vanished(self) -> str:
        """Of a pilot: the attempts whose runners left no marker."""
        return f"{self.directory}/vanished"

    def code(self, index: int | str) -> str:
        """Where the script of a task leaves its exit code, if the system does not tell it."""
        return f"{self.directory}/code-{index}"

    @property
    def suffix(self) -> str:
        """What the names of its jobs end with."""
        return f"-{self.id[:NAMED_BY]}"


class SubmittedAttempt(NamedTuple):
    """One attempt, as a submission names it."""

    place: Place
    position: int
    """Of its line in the manifest, and so of its task in the array."""
    is_array: bool
    job: str | None
    """The system's id of it; None if the answer was never written down."""
    header: Header

    @property
    def is_pilot(self) -> bool:
        """True if the job is a pilot, which runs others besides."""
        return self.place.is_pilot


def job_name(dialect: Dialect, orders: Sequence[Order], place: Place) -> str:
    """The name of the jobs in the system's own lists."""
    names = {order.script_name for order in orders}
    name = (names.pop() if len(names) == 1 else "tenuto")[:LONGEST_NAME]
    return dialect.job_name(name + place.suffix)


def write(files: Files, place: Place, header: Header, orders: Sequence[Order], script: str) -> None:
    """Keeps a submission, before the system is told of it."""
    files.make_directory(place.directory)
    files.write(place.script, script.encode())
    files.replace(place.manifest, encode_manifest(header, orders), durable=False)


def write_answer(files: Files, place: Place, job: str) -> None:
    """Keeps the system's id of the job, for a scheduler that comes later."""
    files.replace(place.answer, f"{job}\n".encode(), durable=False)


def script_of(dialect: Dialect, python: str, place: Place, time_s: float | None, index: str) -> str:
    """The script that the system runs: one runner, which finds its attempt by the index of its task."""
    kind = "--kept-claim" if dialect.keeps_shell else "--claim"
    runner = shlex.join([python, *PLAIN, ENTRY, kind, python, place.manifest])
    runner += f" {index} " + ("-" if time_s is None else f"{time_s:g}")
    return script_around(dialect, place, runner, index)


def script_around(dialect: Dialect, place: Place, runner: str, index: str | None = None) -> str:
    """A script that runs the setup, and then becomes a runner, or keeps it.

    `index`: given if a setup that fails has the same runner mark its attempt. The exit code 78 has the
    driver do so where the runner cannot: there is no Python without the setup, or a pilot has many attempts.
    Dash would drop the functions that bash exports, such as `module`.
    """
    settings = dialect.settings
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    begin = f"#!{shell}{' -l' if settings.login_shell else ''}\n"
    start = " ".join([*map(shlex.quote, settings.wrap or ()), f"{runner}\n"])
    leave = "tenuto_leave" if dialect.leaves_code else "exit"
    if dialect.leaves_code:
        begin += _LEAVE.format(code=f"{shlex.quote(place.code(''))}{index or 0}")
    start = _KEPT.format(runner=start, code=STARVED, leave=leave) if dialect.keeps_shell else f"exec {start}"
    if not settings.setup:
        return begin + start
    said = f"{shlex.quote(setup_path(place.manifest, ''))}{index or 0}"
    mark = f'{runner} "$tenuto_said" && {leave} 0' if index is not None else ":"
    setup = shlex.quote(settings.setup)
    words = {"said": said, "mark": mark, "setup": setup, "code": SETUP_FAILED, "leave": leave}
    return begin + _SETUP.format(over=SETUP_OVER, **words) + start


def places(files: Files, layout: Layout, cluster: str) -> list[Place]:
    """Every submission to a cluster that the workspace keeps."""
    found: list[Place] = []
    for kind in (cluster, f"{cluster}{_PILOTS}"):
        with suppress(FileNotFoundError, NotADirectoryError):
            names = files.list(f"{layout.launchers}/{kind}")
            found += [Place(layout.launchers, name, kind) for name in names]
    return found


def attempts_of(files: Files, place: Place, dialect: Dialect) -> Iterator[tuple[Order, SubmittedAttempt]]:
    """The attempts of a submission, in the order of their index; none if it was never written whole."""
    job = None
    with suppress(OSError, ValueError):
        job = files.read(place.answer, _ID_BYTES).decode("ascii").strip() or None
    if place.is_pilot:
        own = None if job is None else dialect.task_id(job, 0, is_array=False)
        yield from _of_pilot(files, place, own)
        return
    index = 0
    while True:
        try:
            header, order = read_order(files, place.manifest, index)
        except (OSError, ManifestUnreadable):
            return
        is_array = header.orders > 1
        own = None if job is None else dialect.task_id(job, index, is_array=is_array)
        yield order, SubmittedAttempt(place, index, is_array, own, header)
        index += 1


def has_vanished(files: Files, found: SubmittedAttempt, nonce: str) -> bool:
    """True if the pilot that had an attempt says that its runner left no marker."""
    with suppress(OSError):
        return nonce.encode() in files.read(found.place.vanished, _ORDERS_BYTES).split(b"\n")
    return False


def _of_pilot(files: Files, place: Place, job: str | None) -> Iterator[tuple[Order, SubmittedAttempt]]:
    """The orders that a pilot was sent."""
    try:
        header, *_ = read_header(files, place.manifest)
        lines = files.read(place.manifest, _ORDERS_BYTES).split(b"\n")
    except (OSError, ManifestUnreadable):
        return
    for line in lines[1:]:
        with suppress(ValueError, TypeError):
            directory, script_name, nonce, *_ = from_json(line)
            order = Order(str(directory), str(script_name), str(nonce))
            yield order, SubmittedAttempt(place, 0, False, job, header)


class OpenSubmissions:
    """The submissions that this process knows, with the attempts that have not ended; for any thread."""

    def __init__(self, files: Files, clock: Clock, dialect: Dialect, drop: Callable[[str], None]) -> None:
        """`drop`: takes the waiting tasks of a submission, by the name of its jobs, out of the queue."""
        self._files = files
        self._dialect = dialect
        self._clock = clock
        self._drop = drop
        self._lock = threading.Lock()
        self._open: dict[Place, set[str]] = {}
        self._names: dict[Place, str] = {}
        """What other processes submitted, or this one perhaps twice, and the name of its jobs."""
        self._over: dict[Place, float] = {}
        """What of that is over, and since when."""

    def add(self, place: Place, nonce: str, doubtful: str | None = None) -> None:
        """An attempt was submitted. `doubtful`: the name of its jobs, if the system may have them twice."""
        with self._lock:
            self._open.setdefault(place, set()).add(nonce)
            if doubtful is not None:
                self._names[place] = doubtful

    def settle(self, place: Place, nonce: str) -> None:
        """An attempt has left its marker."""
        with self._lock:
            nonces = self._open.get(place)
            if nonces is None:
                return
            nonces.discard(nonce)
            if nonces:
                return
            del self._open[place]
            name = self._names.pop(place, None)
        if name is None:
            self._remove(place)  # this process takes each needless task away
        else:
            self._leave(place, name)

    def review(self, place: Place, orders: Sequence[Order]) -> None:
        """A submission was found in a workspace, perhaps one of another process."""
        if not orders:
            return  # its manifest is just being written
        nonces = {order.nonce for order in orders if self._is_open(order)}
        name = job_name(self._dialect, orders, place)
        with self._lock:
            if place in self._open or place in self._over:
                return
            if nonces:
                self._open[place] = nonces
                self._names[place] = name
                return
        self._leave(place, name)

    def sweep(self, rows: Iterable[QueueRow], asked: float) -> None:
        """Removes folders that are over if the system, when asked, had no job of theirs that may begin."""
        with self._lock:
            over = [place for place, since in self._over.items() if since < asked]
        if not over:
            return
        meaning = self._dialect.meaning
        names = [row.name for row in rows if meaning(row.state).says is not ClusterSays.ENDED]
        for place in over:
            if not any(name.endswith(place.suffix) for name in names):
                with self._lock:
                    self._over.pop(place, None)
                self._remove(place)

    def _leave(self, place: Place, name: str) -> None:
        with self._lock:
            self._over[place] = self._clock.monotonic()
        self._drop(name)

    def _is_open(self, order: Order) -> bool:
        try:
            launch = read_launch(self._files, order.paths)
            is_marked = has_marker(self._files, order.paths, order.nonce)
        except OSError:
            return True
        if launch is None:
            return False  # the job's directory is gone
        return launch.nonce == order.nonce and not is_marked

    def _remove(self, place: Place) -> None:
        with suppress(OSError):
            self._files.remove_tree(place.directory)


class Queued(NamedTuple):
    """What the system may have of one submission."""

    jobs: int
    since: float
    """When the submission was answered."""
    job: str | None
    """The system's id; None if the answer was lost."""


class QueueLimit:
    """The jobs of this process that the system may have, of which `max_jobs` are too many; for any thread.

    A job counts from its submission until the system shows that it has left: its marker comes before that.
    """

    def __init__(self, clock: Clock, dialect: Dialect) -> None:
        self._clock = clock
        self._dialect = dialect
        self._lock = threading.Lock()
        self._reserved = 0
        """Jobs whose submission is about to be called, or has not been answered."""
        self._queued: dict[str, Queued] = {}
        """By the suffix of the submission."""

    def reserve(self, wanted: int, most: int) -> int:
        """Reserves places for as many of the wanted jobs as fit under `most`; returns how many."""
        with self._lock:
            taken = self._reserved + sum(queued.jobs for queued in self._queued.values())
            granted = max(min(wanted, most - taken), 0)
            self._reserved += granted
            return granted

    def release(self, count: int) -> None:
        """Ends a reservation: what became of it is counted by its submissions."""
        with self._lock:
            self._reserved -= count

    def queue(self, place: Place, count: int, job: str | None) -> None:
        """Counts the jobs of a submission that the system has, or may have."""
        with self._lock:
            self._queued[place.suffix] = Queued(count, self._clock.monotonic(), job)

    def look(self, rows: Sequence[QueueRow], asked: float) -> dict[str, str]:
        """Takes a list that was `asked` for then, by the monotonic clock.

        Returns the submissions of which the answer shows nothing, with their ids: a list may be empty by
        mistake, so that each has to be `asked_for` by its id.
        """
        shown = {_suffix(row) for row in rows}
        there = Counter(_suffix(row) for row in rows if self._is_there(row))
        unseen: dict[str, str] = {}
        with self._lock:
            for suffix, queued in list(self._queued.items()):
                if queued.since >= asked:
                    continue
                if suffix in shown or queued.job is None:
                    self._keep(suffix, min(queued.jobs, there[suffix]))
                else:
                    unseen[suffix] = queued.job
        return unseen

    def asked_for(self, suffix: str, rows: Iterable[QueueRow]) -> None:
        """Takes what the system says of one submission, of which its list showed nothing."""
        if not any(map(self._is_there, rows)):
            with self._lock:
                self._keep(suffix, 0)

    def _keep(self, suffix: str, count: int) -> None:
        if count:
            self._queued[suffix] = self._queued[suffix]._replace(jobs=count)
        else:
            self._queued.pop(suffix, None)

    def _is_there(self, row: QueueRow) -> bool:
        return self._dialect.meaning(row.state).says is not ClusterSays.ENDED


def _suffix(row: QueueRow) -> str:
    return "-" + row.name.rpartition("-")[2]
