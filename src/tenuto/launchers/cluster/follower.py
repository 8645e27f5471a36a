"""The follower: one thread for all attempts of this process that a batch system has.
It asks once for all, reads claims, beats and markers, has needless jobs cancelled, and tells; it judges none.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import Any

from tenuto.clock import Clock
from tenuto.launchers.cluster import submission
from tenuto.launchers.cluster.cancellations import Cancellations
from tenuto.launchers.cluster.dialect import (
    NEVER,
    ClusterError,
    CommandThreads,
    Dialect,
    QueueRow,
    dialect_of,
)
from tenuto.launchers.cluster.submission import OpenSubmissions, QueueLimit, SubmittedAttempt
from tenuto.launchers.cluster.tracked import (
    MISSING_ANSWERS,
    ClusterProcess,
    EndRequest,
    Handed,
    Tracked,
    TrackedAttempt,
)
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.manifest import Header
from tenuto.launchers.observation import AWAITED
from tenuto.settings import load_settings
from tenuto.settings.clusters import ClusterSettings
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.inotify import DirectoryWatch, watch_directory
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Files, Machine
from tenuto.workspace.records import LaunchRecord

logger = logging.getLogger("tenuto.cluster")

ASKING = 2
"""Commands that ask or cancel at once; besides those that submit."""
GATHER_S = 0.02
"""How long signals of runners are gathered: a thousand jobs may end in a second."""
LISTEN_S = 1.0
"""How often the signals are read, whatever the kernel says of them."""
CLOSELY_S = 1.0
"""How often the directory of an attempt is looked at whose end is believed and not certain."""


class ClusterFollower:
    """Every attempt of this process that one cluster has; its methods may be called from any thread."""

    def __init__(
        self, settings: ClusterSettings | None = None, machine: Machine | None = None, *, name: str = "slurm"
    ) -> None:
        """`name`: of the cluster, and so of its launcher."""
        self.name = name
        self.settings = settings or ClusterSettings()
        self.dialect = dialect_of(name, self.settings)
        self.machine = machine or this_machine()
        clock, calls = self.machine.clock, CommandThreads(ASKING)
        self.limit = QueueLimit(clock, self.dialect)
        self.tracked = Tracked(self.machine, self.dialect)
        self._poller = Poller(self.tracked, self.dialect, calls, clock, self.settings.poll_s, self.hurry)
        self._cancellations = Cancellations(self.tracked, self.dialect, calls, clock, self.hurry)
        self._signals_id = self.new_id()
        self._listening: list[str] = []
        self._thread: threading.Thread | None = None
        self._wake_end, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._gathering = threading.Event()
        """Never set: to wait for it is to let more signals come in."""
        self._warned: set[str] = set()
        self._steps: list[Callable[[], None]] = []
        drop = self._cancellations.drop_submission
        self._open_submissions = OpenSubmissions(self.machine.files, clock, self.dialect, drop)
        atexit.register(self._cancellations.finish)

    # What schedulers and commands ask (`clusters.Cluster`)

    def report(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        report = self._known(paths, launch).report
        if self._poller.trouble and report.says in (ClusterSays.NOTHING, ClusterSays.PENDING):
            return report._replace(message=f"{self.dialect.title} does not answer: {self._poller.trouble}")
        return report

    def process(self, paths: JobPaths, launch: LaunchRecord) -> ClusterProcess | None:
        with self.tracked.lock:
            attempt = self._known(paths, launch)
            if attempt.is_ended:
                return None
            return self.process_of(attempt)

    def stop(self, paths: JobPaths, launch: LaunchRecord) -> None:
        self.end(self._known(paths, launch), EndRequest.STOP)

    def report_within(self, paths: JobPaths, launch: LaunchRecord, timeout_s: float) -> ClusterReport:
        """Like `report`, after a wait until something is known, if that takes no longer."""
        deadline = self.machine.clock.monotonic() + timeout_s
        attempt = self._known(paths, launch)
        told = threading.Event()
        with self.tracked.listening(attempt, told.set):
            while attempt.report.says is ClusterSays.NOTHING and attempt.is_active:
                rest_s = deadline - self.machine.clock.monotonic()
                if rest_s <= 0 or not told.wait(rest_s):
                    break
                told.clear()
        return self.report(paths, launch)

    def told(
        self, paths: JobPaths, launch: LaunchRecord, tell: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Calls `tell`, in another thread, whenever `report` may say something new of an attempt.

        One that nothing is known of is about to be submitted: the system is not asked for it before.
        """
        with self.tracked.lock:
            is_known = launch.nonce in self.tracked
            attempt = self.tracked.known(paths, launch, self.settings.beat_s)
            attempt.is_submitting = attempt.is_submitting or not is_known
        return self.tracked.listening(attempt, tell)

    # What the launcher and its processes ask

    def expect(self, paths: JobPaths, launch: LaunchRecord) -> TrackedAttempt:
        """An attempt that this process is about to submit."""
        with self.tracked.lock:
            attempt = self._known(paths, launch)
            attempt.is_submitting = True
            return attempt

    def submitted(
        self, attempt: TrackedAttempt, found: SubmittedAttempt | None, doubtful: str | None = None
    ) -> None:
        """The answer for an attempt: where the system has it, or None if it refused it.

        `doubtful`: the name of the submission's jobs, if the system may have them twice.
        """
        with self.tracked.lock:
            attempt.is_submitting = False
            attempt.since = self.machine.clock.monotonic()
            attempt.report = ClusterReport()  # it waits to be submitted no longer
            if found is not None:
                self._take_found(attempt, found)
                if not found.is_pilot:
                    self._open_submissions.add(found.place, attempt.launch.nonce, doubtful)
        self._poller.interval.soon(self.machine.clock.monotonic())
        self.hurry()

    def take(self, handed: Handed, found: SubmittedAttempt, doubtful: str | None = None) -> None:
        """The system has an order, or may have it: see `submitted`."""
        self.submitted(handed.attempt, found, doubtful)
        handed.answer(self.process_of(handed.attempt))

    def give_up(self, orders: Iterable[Handed], error: Exception) -> None:
        """The system refused orders."""
        for handed in orders:
            self.submitted(handed.attempt, None)
            handed.answer(error)

    def process_of(self, attempt: TrackedAttempt) -> ClusterProcess:
        with self.tracked.lock:
            attempt.processes += 1
            return ClusterProcess(self, attempt)

    def end(self, attempt: TrackedAttempt, ending: EndRequest) -> None:
        """Has the system end a job, as soon as its id is known."""
        self.tracked.end(attempt, ending)
        self.hurry()

    def use(self, settings: ClusterSettings) -> None:
        """Follows jobs as the settings of a launcher say."""
        self.settings = settings
        self._poller.interval.poll_s = settings.poll_s

    def row_of(self, job: str) -> QueueRow | None:
        """What the last answer said of a job that stands for no attempt."""
        return self._poller.rows.get(job)

    def queue(self) -> list[QueueRow]:
        """The jobs that the system has; of one without a list, the jobs that this process follows."""
        if self.dialect.has_list:
            return self.dialect.queue()
        places = [one.found.place for one in self.tracked.all() if one.is_active and one.found is not None]
        return [QueueRow("", "", "", None, None, place.suffix) for place in places]

    def add_step(self, step: Callable[[], None]) -> None:
        """Calls a function, in the thread, each time that something may have changed."""
        with self.tracked.lock:
            self._steps = [*self._steps, step]

    def remove_step(self, step: Callable[[], None]) -> None:
        """Calls it no more."""
        with self.tracked.lock:
            self._steps = [known for known in self._steps if known != step]

    def new_id(self) -> str:
        """A fresh name of 16 hexadecimal digits."""
        return self.machine.randomness.nonce()[:16]

    def header(self, root: str, settings: ClusterSettings, *, is_array: bool = False) -> Header:
        """What a submission of this process says to its runners; they write into a file that they never make.

        `root`: of the workspace.
        """
        signals = f"{Layout(root).launchers}/signals/{self._signals_id}"
        self.machine.files.make_directory(signals.rpartition("/")[0])
        with suppress(FileExistsError):
            self.machine.files.create_exclusive(signals)
        variables = self.dialect.job_variables(is_array=is_array)
        return Header(settings.beat_s, signals, variables, task=self.dialect.task_template)

    def explain(self, attempts: list[TrackedAttempt], problem: str) -> None:
        """Attempts wait for the system to take them: their jobs say why."""
        for attempt in attempts:
            attempt.report = ClusterReport(message=f"{self.dialect.title} did not take it yet: {problem}")
            attempt.tell_listeners()
        if problem not in self._warned:  # it is tried again and again
            self._warned.add(problem)
            told = {"action": "cluster_refuses"}
            logger.warning("%s takes no job: %s", self.dialect.title, problem, extra=told)

    def hurry(self) -> None:
        """Wakes the thread, which is started if there is none."""
        with self.tracked.lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="tenuto-cluster", daemon=True)
                self._thread.start()
        with suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    # The thread

    def _run(self) -> None:
        signals = RunnerSignals(self.machine.files)
        try:
            while True:
                with self.tracked.lock:
                    if (
                        not len(self.tracked)
                        and not self._poller.is_asking
                        and not self._cancellations.are_open
                    ):
                        self._thread = None
                        return
                try:
                    self._step(signals)
                except Exception:
                    logger.exception("following jobs failed", extra={"action": "cluster_step_failed"})
                self._wait(signals)
        finally:
            signals.close()

    def _step(self, signals: RunnerSignals) -> None:
        self._poller.take_answers()
        self._open_submissions.sweep(self._poller.rows.values(), self._poller.heard)
        now = self.machine.clock.monotonic()
        self.tracked.drop_unasked(now)
        with self.tracked.lock:
            attempts = self.tracked.all()
            heard, self._listening = self._listening, []
        for path in heard:
            signals.listen(path)
        signalled = signals.take()
        new = [a for a in attempts if a.is_new and not a.is_submitting]
        # To read every submission for each job that this process submits takes time by the square.
        self._find_submissions([attempt for attempt in new if attempt.found is None])
        self._poller.recall(new, now)
        for attempt in attempts:  # a thousand may wait, and each signal of a runner comes here
            if attempt.is_due or attempt.launch.nonce in signalled:
                self._look_again(attempt, is_signalled=attempt.launch.nonce in signalled)
        if self._cancellations.tell():
            self._poller.interval.soon(now)
        for step in self._steps:
            step()
        if any(a.is_active for a in attempts):
            self._poller.ask_if_due(now)

    def _look_again(self, attempt: TrackedAttempt, *, is_signalled: bool) -> None:
        with self.tracked.lock:
            before = attempt.has_begun, attempt.is_active
            needless = attempt.needless
            # An attempt that waits to be submitted is looked at when a runner signals, not at every step.
            is_unseen = attempt.is_new and not attempt.is_submitting
            if is_signalled or is_unseen or attempt.is_watched_closely:
                attempt.is_new = attempt.is_submitting
                attempt.look()
                if is_signalled and attempt.has_begun and not attempt.is_marked:
                    self._poller.interval.soon(self.machine.clock.monotonic())
                if attempt.needless != needless:
                    self._cancellations.drop_needless(attempt)
            is_news = attempt.is_active and attempt.is_due and attempt.judge()
            is_news = is_news or before != (attempt.has_begun, attempt.is_active)
        if attempt.is_marked and attempt.found is not None:  # before a driver that hears of it may end
            self._open_submissions.settle(attempt.found.place, attempt.launch.nonce)
        if is_news:
            self._warn_of(attempt.report.message or "")
            attempt.tell_listeners()

    def _warn_of(self, message: str) -> None:
        """Says once, and at once, what a driver without a terminal would not show: a job waits for long."""
        key = AWAITED if AWAITED in message else message
        if (NEVER in message or key is AWAITED) and key not in self._warned:
            self._warned.add(key)
            logger.warning("a job is in trouble: %s", message, extra={"action": "cluster_trouble"})

    def _wait(self, signals: RunnerSignals) -> None:
        closely = [min(CLOSELY_S, a.beat_s / 2) for a in self.tracked.all() if a.is_watched_closely]
        rest_s = self._poller.interval.due - self.machine.clock.monotonic()
        timeout_s = min([LISTEN_S, max(rest_s, 0.0) or LISTEN_S, *closely])
        with suppress(OSError, ValueError):  # a watch of a directory that is gone
            select.select([self._wake_end, *signals.descriptors()], [], [], timeout_s)
        self._gathering.wait(GATHER_S)
        with suppress(BlockingIOError):
            while os.read(self._wake_end, 4096):
                pass

    # Finding submissions

    def _known(self, paths: JobPaths, launch: LaunchRecord) -> TrackedAttempt:
        with self.tracked.lock:
            is_known = launch.nonce in self.tracked
            attempt = self.tracked.known(paths, launch, self.settings.beat_s)
        if not is_known:
            self._poller.interval.soon(self.machine.clock.monotonic(), 0.0)
            self.hurry()
        return attempt

    def _find_submissions(self, attempts: list[TrackedAttempt]) -> None:
        """Finds what other processes submitted, by the manifests that the workspaces keep."""
        by_layout: dict[str, dict[str, TrackedAttempt]] = {}
        for attempt in attempts:
            root = Instructions.of(attempt.launch).layout(attempt.paths).root
            by_layout.setdefault(root, {})[attempt.launch.nonce] = attempt
        for root, wanted in by_layout.items():
            for place in submission.places(self.machine.files, Layout(root), self.name):
                named = list(submission.attempts_of(self.machine.files, place, self.dialect))
                if not place.is_pilot:
                    self._open_submissions.review(place, [order for order, _ in named])
                for order, found in named:
                    if order.nonce in wanted:
                        with self.tracked.lock:
                            self._take_found(wanted[order.nonce], found)

    def _take_found(self, attempt: TrackedAttempt, found: SubmittedAttempt) -> None:
        attempt.take_found(found)
        if found.header.signals is not None:
            self._listening.append(found.header.signals)


@cache
def this_follower(name: str) -> ClusterFollower:
    """The follower of a cluster in this process; one for all schedulers in it."""
    return ClusterFollower(load_settings().cluster(name), name=name)


FRESH_S = 5.0
"""How long a list also tells of attempts that were not asked for then."""


class Poller:
    """Asks the system for all attempts at once, and looks up those that its list no longer shows."""

    def __init__(
        self,
        tracked: Tracked,
        dialect: Dialect,
        calls: CommandThreads,
        clock: Clock,
        poll_s: float,
        wake: Callable[[], None],
    ) -> None:
        """`wake`: has the thread that takes the answers look for them."""
        self._tracked = tracked
        self._dialect = dialect
        self._calls = calls
        self._clock = clock
        self._wake = wake
        self._answers: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.heard = -FRESH_S
        """When the last list was asked for."""
        self._is_memory_asked = False
        self.interval = PollInterval(poll_s)
        self.is_asking = False
        self.rows: dict[str, QueueRow] = {}
        """The last list, by job."""
        self.trouble = ""
        """Why the system does not answer; empty while it does."""

    def take_answers(self) -> None:
        """Takes every answer that came in."""
        with suppress(Empty):
            while True:
                self._answers.get_nowait()()

    def ask_if_due(self, now: float) -> None:
        """Asks for the list, unless it was asked for a moment ago."""
        if self.is_asking or now < self.interval.due:
            return
        if not self._dialect.has_list:
            self._look_at_all()
            return
        if not self._is_memory_asked:
            self._is_memory_asked = True
            self._calls.submit(self._learn_memory)
        self._ask(self._dialect.queue, self._take_queue)

    def _learn_memory(self) -> None:
        """Asks often enough to see each end before the system forgets it."""
        memory_s = self._dialect.remembers_s()
        if memory_s is not None:
            self.interval.slowest_s = min(self.interval.slowest_s, max(memory_s / 3, 1.0))

    def _look_at_all(self) -> None:
        """Of a system without a list: has each attempt looked at, whose claim, beats and marker tell."""
        active = [a for a in self._tracked.all() if a.is_active and not a.is_submitting]
        for attempt in active:
            attempt.is_new = attempt.is_to_be_judged = True
            if attempt.job is None:
                attempt.take(None)  # the process that submits it may not have written its id yet
        self._look_up([attempt for attempt in active if attempt.job is not None])
        self.interval.asked(self._clock.monotonic(), is_news=any(a.has_begun for a in active))

    def recall(self, attempts: Iterable[TrackedAttempt], now: float) -> None:
        """Takes what the last answer said of attempts that were not asked for then."""
        if now - self.heard > FRESH_S:
            return
        for attempt in attempts:
            row = attempt.own(self.rows.get(attempt.job or ""))
            if row is not None:
                attempt.take(row)

    def _ask(self, function: Callable[[], Any], take: Callable[[Any, float], None]) -> None:
        """Has the system asked in another thread; the answer is taken in this one."""
        self.is_asking = True
        began = self._clock.monotonic()

        def answered(future: Future[Any]) -> None:
            self._answers.put(partial(self._take_answer, future, take, began))
            self._wake()

        self._calls.submit(function).add_done_callback(answered)

    def _take_answer(self, future: Future[Any], take: Callable[[Any, float], None], began: float) -> None:
        self.is_asking = False
        error = future.exception()
        if error is None:
            self._say("")
            take(future.result(), began)
            return
        if not isinstance(error, ClusterError):
            logger.error("asking failed", exc_info=error, extra={"action": "cluster_asking_failed"})
        self._say(str(error) or type(error).__name__)
        self.interval.asked(self._clock.monotonic(), is_news=False)

    def _say(self, trouble: str) -> None:
        """Tells once, in the log and to attempts that wait, that the system is silent, or answers again."""
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if trouble:
            title = self._dialect.title
            logger.warning("%s does not answer: %s", title, trouble, extra={"action": "cluster_silent"})
        for attempt in self._tracked.all():
            attempt.tell_listeners()

    def _take_queue(self, rows: list[QueueRow], began: float) -> None:
        self.rows = {row.job: row for row in rows}
        self.heard = began
        is_news = False
        active = [a for a in self._tracked.all() if a.is_active and not a.is_submitting]
        for attempt in active:
            if attempt.job is None:
                _find_by_name(attempt, rows)
            row = attempt.own(self.rows.get(attempt.job or ""))
            if row is None and began < attempt.since:
                continue
            is_news = attempt.take(row) or is_news
            if row is None and attempt.found is None:
                attempt.is_new = True  # the process that submits it may not have written its manifest yet
        is_close = is_news or any(a.is_watched_closely for a in active)
        self.interval.asked(self._clock.monotonic(), is_news=is_close)
        if any(0 < a.missing < MISSING_ANSWERS for a in active):
            self.interval.soon(
                self._clock.monotonic()
            )  # a command that asks for two seconds needs two answers
        lost = [a for a in active if a.missing >= MISSING_ANSWERS and not a.is_forgotten]
        self._look_up([attempt for attempt in lost if attempt.job is not None])

    def _look_up(self, lost: list[TrackedAttempt]) -> None:
        """Asks for jobs that the list no longer shows: the system may remember how they ended."""
        if not lost:
            return
        jobs = {str(a.job): a.found.place.code(a.found.position) if a.found is not None else "" for a in lost}

        def take(found: dict[str, QueueRow], began: float) -> None:
            for attempt in lost:
                row = attempt.own(found.get(str(attempt.job)))
                if row is not None:
                    attempt.take(row)
                elif began - attempt.missing_since >= self._dialect.end_late_s:
                    attempt.is_forgotten = attempt.missing >= MISSING_ANSWERS

        self._ask(partial(self._dialect.look_up, jobs), take)


def _find_by_name(attempt: TrackedAttempt, rows: list[QueueRow]) -> None:
    """Finds the job of a submission whose answer was lost."""
    found = attempt.found
    if found is None:
        return
    for row in rows:
        array = row.job.rpartition("_")[0] or row.job
        own = attempt.dialect.task_id(array, found.position, is_array=found.is_array)
        if row.name.endswith(found.place.suffix) and row.job == own:
            attempt.job = own
            return


SLOWEST_S = 60.0
SOON_S = 1.0
_GROWTH = 1.5


class PollInterval:
    """When to ask next, by a monotonic clock."""

    def __init__(self, poll_s: float) -> None:
        self.poll_s = poll_s
        self._pause_s = poll_s
        self.slowest_s = max(SLOWEST_S, poll_s)
        self.due = 0.0

    def soon(self, now: float, within_s: float = SOON_S) -> None:
        """Something may have changed, or is asked for of which nothing is known."""
        self._pause_s = self.poll_s
        self.due = min(self.due, now + min(within_s, self.poll_s))

    def asked(self, now: float, *, is_news: bool) -> None:
        """An answer came, or none."""
        self._pause_s = self.poll_s if is_news else min(self._pause_s * _GROWTH, self.slowest_s)
        self.due = now + self._pause_s


_CHUNK = 1 << 20


class RunnerSignals:
    """The signals that one process listens to; used by one thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._read: dict[str, int] = {}
        """file -> how far it was read."""
        self._unfinished: dict[str, bytes] = {}
        self._watches: dict[str, DirectoryWatch] = {}

    def listen(self, path: str) -> None:
        """Reads a file from its beginning."""
        if path in self._read:
            return
        self._read[path] = 0
        directory = path.rpartition("/")[0]
        if directory not in self._watches:
            with suppress(OSError):
                watch = watch_directory(directory)
                if watch is not None:
                    self._watches[directory] = watch

    def descriptors(self) -> list[int]:
        """What becomes readable when a runner of this host writes; of another host's the kernel
        says nothing."""
        return [watch.fileno() for watch in self._watches.values()]

    def take(self) -> set[str]:
        """The attempts, by nonce, whose runners have written since the last call."""
        for watch in self._watches.values():
            watch.drain()
        nonces: set[str] = set()
        for path in self._read:
            while data := self._next(path):
                *lines, rest = (self._unfinished.pop(path, b"") + data).split(b"\n")
                self._unfinished[path] = rest
                nonces.update(line[:-1].decode("ascii", "replace") for line in lines if line)
        return nonces

    def close(self) -> None:
        """Listens to none any more."""
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()
        self._read.clear()

    def _next(self, path: str) -> bytes:
        try:
            data = self._files.read_range(path, self._read[path], _CHUNK)
        except OSError:
            return b""
        self._read[path] += len(data)
        return data
