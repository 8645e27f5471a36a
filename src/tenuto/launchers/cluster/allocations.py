"""The driver's side of pilots: allocations that run many short jobs each, opened as orders wait for them.
Sends orders and reads nothing back: what becomes of an order is in its job's directory, as for every attempt.
"""

from __future__ import annotations

import logging
import math
import shlex
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tenuto.errors import LaunchRefused
from tenuto.launchers.cluster import submission
from tenuto.launchers.cluster.allocation import END, KEPT, AllocationOrder, append, needed_s
from tenuto.launchers.cluster.dialect import (
    ClusterError,
    ClusterOptions,
    CommandThreads,
    JobScript,
    QueueRow,
    SubmissionAnswer,
    SubmissionOutcome,
)
from tenuto.launchers.cluster.follower import ClusterFollower
from tenuto.launchers.cluster.submission import Place, SubmittedAttempt
from tenuto.launchers.cluster.tracked import Handed
from tenuto.launchers.manifest import Header
from tenuto.launchers.requirements import Gpu, Host, unfit
from tenuto.launchers.runner.runner_protocol import LAST_WORDS_S, SETUP_FAILED, SPARE_S
from tenuto.settings.clusters import ClusterSettings, PartitionSettings
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import Layout

logger = logging.getLogger("tenuto.cluster")

SUPPLY = 2
"""How many orders a pilot has for each of its cores: the next one lies there when one ends."""
MOST_SUPPLY = 8
"""How many it has of jobs so short that it would run them all before more can come,"""
SUPPLY_S = 0.5
"""which is as many as ended within so long."""
FORGOTTEN_S = 60.0
"""How long a pilot is unknown to the system before it counts as ended."""
MOST_PENDING = 2
MOST_BARREN = 3
"""Pilots in a row that ended without having run anything, before it is given up."""


def why_alone(name: str, options: ClusterOptions, settings: ClusterSettings, grace_s: float) -> str | None:
    """Why a job with these options gets an allocation of its own; None if it is one for a pilot.

    `name`: of the cluster, whose settings the answer names.
    """
    if not settings.pilots:
        return f"{name}.pilots is 0"
    for wanted in ("memory_bytes", "gpus", "nodes", "tasks"):
        if getattr(options, wanted):
            return f"{name}.{wanted} is asked for, which a pilot does not share out"
    for wanted, most in (("time_s", "pilot_time_s"), ("cpus", "pilot_cpus")):
        asked, has = getattr(options, wanted) or 0, getattr(settings, most)
        if asked > has:
            return f"{name}.{wanted} ({asked:g}) is more than {name}.{most} ({has:g})"
    told = (settings.partitions or {}).items()
    hosts = {one: host_of(has, grace_s) for one, has in told if options.partition in (None, one)}
    needs = pilot_options(options, settings).needs()
    small = [f"partition {one} has no room for a pilot: {unfit(needs, host)}" for one, host in hosts.items()]
    return "; ".join(small) if small and all(unfit(needs, host) for host in hosts.values()) else None


def host_of(told: PartitionSettings, grace_s: float) -> Host:
    """A partition, as the settings tell of it; the request beside a duration must fit there, too."""
    gpus = (Gpu(told.gpu_kind, told.gpu_memory_bytes, told.gpu_type),) * told.gpus
    longest_s = None if told.time_s is None else max(told.time_s - grace_s - LAST_WORDS_S, 1.0)
    return Host(told.cores, told.memory_bytes, gpus, longest_s, priority=told.priority, nodes=told.nodes)


def pilot_slots(settings: ClusterSettings) -> int:
    """Cores' worth of jobs that are handed over at once: what all pilots can have, and as much that waits."""
    return 2 * MOST_SUPPLY * settings.pilot_cpus * settings.pilots


def shared(options: ClusterOptions) -> ClusterOptions:
    """What jobs must have in common to run in one pilot."""
    return replace(options, cpus=1, time_s=None)


def pilot_options(options: ClusterOptions, settings: ClusterSettings) -> ClusterOptions:
    """What a pilot for jobs with these options asks for."""
    return replace(options, cpus=settings.pilot_cpus, time_s=settings.pilot_time_s)


@dataclass(slots=True, eq=False)
class Pilot:
    """One pilot."""

    place: Place
    job: str
    header: Header
    sent: list[Handed] = field(default_factory=list)
    """Each order that has not ended."""
    ends: deque[tuple[float, int]] = field(default_factory=deque)
    """When orders ended in the last moment, and the cores that they took."""
    is_barren: bool = True
    """True until something that was sent to it has begun."""
    began: float | None = None
    """When it was first seen running, by the monotonic clock."""
    is_over: bool = False
    """True once it was told that nothing more comes."""
    ask_at: float = 0.0
    """When the system is asked for it by its id, unless its list shows it."""
    gone_at: float = math.inf
    """When it counts as ended, since the system has forgotten it."""

    def renew(self, now: float) -> None:
        """Takes note of the orders that have ended."""
        if self.is_barren:
            self.is_barren = not any(one.attempt.has_begun or one.attempt.is_marked for one in self.sent)
        if self.began is None and not self.is_barren:
            self.began = now
        cores = self.cores
        self.sent = [one for one in self.sent if one.attempt.is_active]
        ended = cores - self.cores
        if ended:
            self.ends.append((now, ended))
        while self.ends and self.ends[0][0] < now - SUPPLY_S:
            self.ends.popleft()

    @property
    def cores(self) -> int:
        """How many cores its orders take."""
        return sum(one.options.cpus for one in self.sent)

    def wanted(self, cpus: int) -> int:
        """Cores' worth of orders that it should have besides those it has: the shorter jobs are, the more."""
        supply = SUPPLY * cpus + sum(cores for _, cores in self.ends)
        return min(supply, MOST_SUPPLY * cpus) - self.cores

    def holds(self, options: ClusterOptions, now: float, settings: ClusterSettings) -> bool:
        """True if its time is enough for a job, which may have to wait for the longest of those it has."""
        if self.is_over:
            return False
        left_s = settings.pilot_time_s + SPARE_S - (0.0 if self.began is None else now - self.began)
        is_full = self.cores + options.cpus > settings.pilot_cpus
        waits_s = max((one.options.time_s or 0.0 for one in self.sent), default=0.0) if is_full else 0.0
        return waits_s + needed_s(options.time_s, settings.pilot_time_s) <= left_s


class Pilots:
    """The pilots for the orders of one workspace with one set of options; for any thread."""

    def __init__(
        self,
        follower: ClusterFollower,
        settings: ClusterSettings,
        python: str,
        grace_s: float,
        root: str,
        options: ClusterOptions,
    ) -> None:
        self._follower = follower
        self._settings = settings
        self._python = python
        self._grace_s = grace_s
        self._root = root
        self._options = options
        self._waiting: deque[Handed] = deque()
        self._flights: list[Pilot] = []
        self._ended: list[Pilot] = []
        """Pilots that ended well, and whose orders may not know it yet."""
        self._barren = 0
        self._unset: Pilot | None = None
        """The pilot that ended last, if its setup failed."""
        self._calls = CommandThreads(1)
        self._lock = threading.Lock()
        self._is_due = False
        follower.add_step(self.pump_soon)

    def add(self, handed: Handed) -> None:
        """An order that waits for a pilot."""
        with self._lock:
            self._waiting.append(handed)
        self.pump_soon()

    def pump_soon(self) -> None:
        """Sends the orders that can be sent, in a thread of its own."""
        with self._lock:
            if self._is_due or not (self._waiting or self._flights or self._ended):
                return
            self._is_due = True
        self._calls.submit(self._pump)

    def close(self) -> None:
        """Nothing more comes: pilots end when they have run what they have."""
        with self._lock:
            flights, self._flights = self._flights, []
        for flight in flights:
            append(flight.place.manifest, END)
        self._follower.remove_step(self.pump_soon)

    def _pump(self) -> None:
        with self._lock:
            self._is_due = False
        try:
            self._forget_ended()
            self._send()
            self._open_one()
        except Exception as error:
            logger.exception("supplying pilots failed", extra={"action": "cluster_pilots_failed"})
            self._answer_all(LaunchRefused(f"no pilot could be opened: {error}"))

    def _forget_ended(self) -> None:
        now = self._follower.machine.clock.monotonic()
        for flight in list(self._flights):
            flight.renew(now)
            row = self._row(flight, now)
            says = self._says(row)
            if flight.began is None and says is ClusterSays.RUNNING:
                flight.began = now
            if says is not ClusterSays.ENDED and now < flight.gone_at:
                continue
            self._flights.remove(flight)
            self._unset = flight if row is not None and row.exit_code == SETUP_FAILED else None
            is_barren = flight.is_barren or self._unset is not None
            self._barren = self._barren + 1 if is_barren else 0
            if not is_barren:
                self._ended.append(flight)
        self._clear_away(now)
        if self._barren >= MOST_BARREN and self._unset is not None:
            self._supply(self._unset, math.inf)  # they fail as those do that it was sent
        elif self._barren >= MOST_BARREN:
            place = Place.of_pilot(Layout(self._root).launchers, "", self._follower.name).directory
            message = f"{MOST_BARREN} pilots in a row ended without having run anything: see {place}"
            self._answer_all(LaunchRefused(message))

    def _clear_away(self, now: float) -> None:
        """Removes the directories of pilots that ended well, once no order needs the exit code in them."""
        for flight in list(self._ended):
            flight.renew(now)
            if not flight.sent:
                self._ended.remove(flight)
                with suppress(OSError):
                    self._follower.machine.files.remove_tree(flight.place.directory)

    def _row(self, flight: Pilot, now: float) -> QueueRow | None:
        """What the system says of a pilot: one that its list does not show has ended, or is not shown yet."""
        row, dialect = self._follower.row_of(flight.job), self._follower.dialect
        if row is None and now >= flight.ask_at:
            flight.ask_at = now + self._settings.poll_s
            with suppress(ClusterError):
                row = dialect.look_up({flight.job: flight.place.code(0)}).get(flight.job)
                if row is None and dialect.has_list and flight.gone_at == math.inf:
                    flight.gone_at = now + dialect.end_late_s + FORGOTTEN_S
        if row is not None:
            flight.gone_at = math.inf
        return row

    def _says(self, row: QueueRow | None) -> ClusterSays:
        return ClusterSays.NOTHING if row is None else self._follower.dialect.meaning(row.state).says

    def _send(self) -> None:
        """Keeps each pilot supplied, those that run first."""
        for flight in self._flights:
            self._supply(flight, flight.wanted(self._settings.pilot_cpus))

    def _supply(self, flight: Pilot, cores: float) -> None:
        """Sends orders to a pilot, until they take so many cores."""
        taken = self._taken(flight, cores)
        orders = [AllocationOrder(*one.order, one.options.cpus, one.options.time_s) for one in taken]
        if orders:
            append(flight.place.manifest, *orders)
        found = SubmittedAttempt(flight.place, 0, False, flight.job, flight.header)
        for handed in taken:
            self._follower.take(handed, found)

    def _taken(self, flight: Pilot, cores: float) -> list[Handed]:
        """The orders that have waited longest and fit into a pilot, until they take so many cores."""
        now = self._follower.machine.clock.monotonic()
        taken: list[Handed] = []
        left: deque[Handed] = deque()
        with self._lock:
            for one in self._waiting:
                if cores > 0 and (flight is self._unset or flight.holds(one.options, now, self._settings)):
                    taken.append(one)
                    flight.sent.append(one)
                    cores -= one.options.cpus
                else:
                    left.append(one)
            self._waiting = left
        return taken

    def _open_one(self) -> None:
        """Opens one more pilot while orders wait, as far as the settings and the queue allow."""
        with self._lock:
            is_needed = bool(self._waiting)
        pending = sum(self._is_pending(flight) for flight in self._flights)
        if not is_needed or pending >= MOST_PENDING:
            return
        if len(self._flights) >= self._settings.pilots:
            self._end_used_up()
            return
        flight_or_answer = self._submit()
        if isinstance(flight_or_answer, Pilot):
            self._flights.append(flight_or_answer)
            self.pump_soon()
        elif flight_or_answer.outcome is SubmissionOutcome.REFUSED:
            self._answer_all(
                LaunchRefused(f"{self._follower.dialect.title} refused a pilot: {flight_or_answer.text}")
            )

    def _end_used_up(self) -> None:
        """Has an idle pilot with too little time for waiting jobs make room for another."""
        now = self._follower.machine.clock.monotonic()
        with self._lock:
            waiting = [one.options for one in self._waiting]
        for flight in self._flights:
            if flight.sent or flight.is_over:
                continue
            if not any(flight.holds(options, now, self._settings) for options in waiting):
                flight.is_over = True
                append(flight.place.manifest, END)

    def _is_pending(self, flight: Pilot) -> bool:
        says = self._says(self._follower.row_of(flight.job))
        return flight.began is None and says in (ClusterSays.NOTHING, ClusterSays.PENDING)

    def _submit(self) -> Pilot | SubmissionAnswer:
        files, settings, dialect = self._follower.machine.files, self._settings, self._follower.dialect
        place = Place.of_pilot(Layout(self._root).launchers, self._follower.new_id(), self._follower.name)
        header = self._follower.header(self._root, settings)._replace(
            slots=settings.pilot_cpus, time_s=settings.pilot_time_s, idle_s=settings.pilot_idle_s
        )
        runner = [self._python, "-P", "-m", "tenuto.launchers.cluster.allocation", place.manifest]
        runner += [KEPT] * dialect.keeps_shell
        script = submission.script_around(dialect, place, shlex.join(runner))
        submission.write(files, place, header, (), script)
        words = dialect.arguments(pilot_options(self._options, settings), self._grace_s)
        name = dialect.job_name(f"pilot{place.suffix}")
        answer = dialect.submit(JobScript(name, 1, words, script, place.directory))
        if answer.outcome is not SubmissionOutcome.TAKEN:
            with suppress(OSError):
                files.remove_tree(place.directory)
            return answer
        submission.write_answer(files, place, answer.text)
        pilot = Pilot(place, dialect.task_id(answer.text, 0, is_array=False), header)
        pilot.ask_at = self._follower.machine.clock.monotonic() + settings.poll_s
        return pilot

    def _answer_all(self, error: Exception) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        self._follower.give_up(waiting, error)
