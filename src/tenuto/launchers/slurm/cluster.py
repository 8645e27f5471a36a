"""What this process knows of the attempts that Slurm has: one thread asks for all of them, and tells.
Decides by `states` and `attempt`; submits nothing.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import Any

from tenuto.launchers.instructions import Instructions
from tenuto.launchers.slurm import commands, submission
from tenuto.launchers.slurm.attempt import MISSING_ANSWERS, Attempt, Wish
from tenuto.launchers.slurm.bell import Bells
from tenuto.launchers.slurm.calls import Calls
from tenuto.launchers.slurm.commands import Row, SlurmError
from tenuto.launchers.slurm.pace import Pace
from tenuto.launchers.slurm.places import OpenPlaces
from tenuto.launchers.slurm.process import SlurmProcess
from tenuto.settings import load_settings
from tenuto.settings.slurm import SlurmSettings
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord

logger = logging.getLogger("tenuto.slurm")

ASKING = 2
"""Commands that ask or cancel at once; besides those that submit."""
GATHER_S = 0.02
"""How long rings are gathered: a thousand jobs may end in a second."""
LISTEN_S = 1.0
"""How often the bells are read, whatever the kernel says of them."""
CLOSELY_S = 1.0
"""How often the directory of an attempt is looked at whose end is believed and not certain."""
FRESH_S = 5.0
"""How long an answer of squeue also tells of attempts that were not asked for then."""
UNASKED_S = 300.0
"""How long an attempt is followed for a reader that asked for it once."""
LAST_WISHES_S = 5.0
"""How long the end of this process waits until Slurm was told of wishes to stop."""


class SlurmCluster:
    """Every attempt of this process that Slurm has; its methods may be called from any thread."""

    def __init__(self, settings: SlurmSettings | None = None, machine: Machine | None = None) -> None:
        self.settings = settings or SlurmSettings()
        self.machine = machine or this_machine()
        self._calls = Calls(ASKING)
        self._lock = threading.RLock()
        self._attempts: dict[str, Attempt] = {}
        self._asked: dict[str, float] = {}
        self._listening: list[str] = []
        self._answers: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._wake_end, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._pace = Pace(self.settings.poll_s)
        self._is_asking = False
        self._trouble = ""
        self._configuration: dict[str, str] | None = None
        self._wishes: set[Future[Any]] = set()
        self._gathering = threading.Event()
        """Never set: to wait for it is to let more rings come in."""
        self._steps: list[Callable[[], None]] = []
        self._open_places = OpenPlaces(self.machine.files)
        self._rows: dict[str, Row] = {}
        """The last answer of squeue."""
        self._heard = -FRESH_S
        """When it was asked for."""
        atexit.register(self._finish_wishes)

    # What schedulers and commands ask (`clusters.Cluster`)

    def report(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        with self._lock:
            attempt = self._known(paths, launch)
            self._asked[launch.nonce] = self.machine.clock.monotonic()
            report = attempt.report
        if self._trouble and report.says in (ClusterSays.NOTHING, ClusterSays.PENDING):
            return report._replace(message=f"Slurm does not answer: {self._trouble}")
        return report

    def process(self, paths: JobPaths, launch: LaunchRecord) -> SlurmProcess | None:
        with self._lock:
            attempt = self._known(paths, launch)
            if attempt.is_ended:
                return None
            return self.process_of(attempt)

    def stop(self, paths: JobPaths, launch: LaunchRecord) -> None:
        with self._lock:
            self.wish(self._known(paths, launch), Wish.STOP)

    def report_within(self, paths: JobPaths, launch: LaunchRecord, timeout_s: float) -> ClusterReport:
        """Like `report`, after a wait until something is known, if that takes no longer."""
        deadline = self.machine.clock.monotonic() + timeout_s
        with self._lock:
            attempt = self._known(paths, launch)
        told = threading.Event()
        with self.listening(attempt, told.set):
            while attempt.report.says is ClusterSays.NOTHING and attempt.is_active:
                rest_s = deadline - self.machine.clock.monotonic()
                if rest_s <= 0 or not told.wait(rest_s):
                    break
                told.clear()
        return self.report(paths, launch)

    # What the launcher and its processes ask

    def expect(self, paths: JobPaths, launch: LaunchRecord) -> Attempt:
        """An attempt that this process is about to submit."""
        with self._lock:
            attempt = self._known(paths, launch)
            attempt.is_submitting = True
            return attempt

    def submitted(self, attempt: Attempt, found: submission.Found | None) -> None:
        """The answer for an attempt: where Slurm has it, or None if it refused it."""
        with self._lock:
            attempt.is_submitting = False
            attempt.since = self.machine.clock.monotonic()
            if found is not None:
                self._take_found(attempt, found)
                if not found.is_pilot:
                    self._open_places.add(found.place, attempt.launch.nonce)
        self._pace.soon(self.machine.clock.monotonic())
        self.hurry()

    def process_of(self, attempt: Attempt) -> SlurmProcess:
        with self._lock:
            attempt.processes += 1
            return SlurmProcess(self, attempt)

    def let_go(self, attempt: Attempt) -> None:
        """A process of the attempt was closed; one that nobody awaits is followed no longer."""
        with self._lock:
            attempt.processes -= 1
            if not attempt.processes and attempt.wish <= attempt.granted:
                self._attempts.pop(attempt.launch.nonce, None)
                self._asked.pop(attempt.launch.nonce, None)

    def wish(self, attempt: Attempt, wish: Wish) -> None:
        """Has Slurm end a job, as soon as its id is known."""
        with self._lock:
            attempt.wish = max(attempt.wish, wish)
            self._attempts[attempt.launch.nonce] = attempt
        self.hurry()

    @contextmanager
    def listening(self, attempt: Attempt, tell: Callable[[], None]) -> Iterator[None]:
        """Calls `tell`, in another thread, whenever something is known of the attempt that was not."""
        with self._lock:
            attempt.listeners.append(tell)
        try:
            yield
        finally:
            with self._lock:
                attempt.listeners.remove(tell)

    def use(self, settings: SlurmSettings) -> None:
        """Follows jobs as the settings of a launcher say."""
        self.settings = settings
        self._pace.poll_s = settings.poll_s

    def row_of(self, job: str) -> Row | None:
        """What the last answer said of a job that stands for no attempt."""
        return self._rows.get(job)

    def add_step(self, step: Callable[[], None]) -> None:
        """Calls a function, in the thread, each time that something may have changed."""
        with self._lock:
            self._steps = [*self._steps, step]

    def remove_step(self, step: Callable[[], None]) -> None:
        """Calls it no more."""
        with self._lock:
            self._steps = [known for known in self._steps if known != step]

    def new_id(self) -> str:
        """A fresh name of 16 hexadecimal digits."""
        return self.machine.randomness.nonce()[:16]

    def explain(self, attempts: list[Attempt], problem: str) -> None:
        """Attempts wait for Slurm to take them: `explain` of each says why."""
        with self._lock:
            for attempt in attempts:
                attempt.report = ClusterReport(message=f"Slurm did not take it yet: {problem}")
        logger.warning("Slurm takes no job: %s", problem, extra={"action": "slurm_refuses"})

    def configuration(self) -> dict[str, str]:
        """The settings of the cluster, asked once; empty while it does not answer."""
        if self._configuration is None:
            with suppress(SlurmError):
                self._configuration = commands.configuration()
                age_s = commands.leading_number(self._configuration.get("MinJobAge", ""), 300)
                self._pace.slowest_s = min(self._pace.slowest_s, max(age_s / 3, 1.0))
        return self._configuration or {}

    def has_accounting(self) -> bool:
        """True if sacct can be asked."""
        return "slurmdbd" in self.configuration().get("AccountingStorageType", "")

    def hurry(self) -> None:
        """Wakes the thread, which is started if there is none."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="tenuto-slurm", daemon=True)
                self._thread.start()
        with suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    # The thread

    def _run(self) -> None:
        bells = Bells(self.machine.files)
        try:
            while True:
                with self._lock:
                    if not self._attempts and not self._is_asking:
                        self._thread = None
                        return
                try:
                    self._step(bells)
                except Exception:
                    logger.exception("following Slurm failed", extra={"action": "slurm_step_failed"})
                self._wait(bells)
        finally:
            bells.close()

    def _step(self, bells: Bells) -> None:
        with suppress(Empty):
            while True:
                self._answers.get_nowait()()
        now = self.machine.clock.monotonic()
        with self._lock:
            self._forget_unasked(now)
            attempts = list(self._attempts.values())
            heard, self._listening = self._listening, []
        for path in heard:
            bells.listen(path)
        rung = bells.rung()
        new = [a for a in attempts if a.is_new and not a.is_submitting]
        self._find_submissions(new)
        self._recall(new, now)
        for attempt in attempts:
            self._look_again(attempt, is_rung=attempt.launch.nonce in rung)
        self._grant_wishes([a for a in attempts if a.wish > a.granted])
        for step in self._steps:
            step()
        if any(a.is_active for a in attempts) and not self._is_asking and self._pace.is_due(now):
            self._ask(partial(commands.queue), self._take_queue)

    def _recall(self, new: list[Attempt], now: float) -> None:
        """Takes what the last answer said of attempts that were not asked for then."""
        if now - self._heard > FRESH_S:
            return
        for attempt in new:
            row = _own(attempt, self._rows.get(attempt.job or ""))
            if row is not None:
                attempt.take(row)

    def _look_again(self, attempt: Attempt, *, is_rung: bool) -> None:
        with self._lock:
            before = attempt.has_begun, attempt.is_active
            if is_rung or attempt.is_new or attempt.is_watched_closely:
                attempt.is_new = attempt.is_submitting
                attempt.look()
                if is_rung and attempt.has_begun and not attempt.is_marked:
                    self._pace.soon(self.machine.clock.monotonic())
            is_due = attempt.is_to_be_judged or attempt.is_watched_closely
            is_news = attempt.is_active and is_due and attempt.judge()
            is_news = is_news or before != (attempt.has_begun, attempt.is_active)
            listeners = list(attempt.listeners) if is_news else []
        for tell in listeners:
            tell()
        if attempt.is_marked and attempt.found is not None:
            self._open_places.settle(attempt.found.place, attempt.launch.nonce)

    def _wait(self, bells: Bells) -> None:
        with self._lock:
            closely = [min(CLOSELY_S, a.beat_s / 2) for a in self._attempts.values() if a.is_watched_closely]
        now = self.machine.clock.monotonic()
        timeout_s = min([LISTEN_S, max(self._pace.due - now, 0.0) or LISTEN_S, *closely])
        with suppress(OSError, ValueError):  # a watch of a directory that is gone
            select.select([self._wake_end, *bells.descriptors()], [], [], timeout_s)
        self._gathering.wait(GATHER_S)
        with suppress(BlockingIOError):
            while os.read(self._wake_end, 4096):
                pass

    def _ask(self, function: Callable[[], Any], take: Callable[[Any, float], None]) -> None:
        """Has Slurm asked in another thread; the answer is taken in this one."""
        self._is_asking = True
        began = self.machine.clock.monotonic()

        def answered(future: Future[Any]) -> None:
            self._answers.put(partial(self._take_answer, future, take, began))
            self.hurry()

        self._calls.submit(function).add_done_callback(answered)

    def _take_answer(self, future: Future[Any], take: Callable[[Any, float], None], began: float) -> None:
        self._is_asking = False
        error = future.exception()
        if error is None:
            self._trouble = ""
            take(future.result(), began)
            return
        if not isinstance(error, SlurmError):
            raise error
        if str(error) != self._trouble:
            logger.warning("Slurm does not answer: %s", error, extra={"action": "slurm_silent"})
        self._trouble = str(error)
        self._pace.asked(self.machine.clock.monotonic(), is_news=False)

    def _take_queue(self, rows: list[Row], began: float) -> None:
        by_job = self._rows = {row.job: row for row in rows}
        self._heard = began
        is_news = False
        lost: list[Attempt] = []
        with self._lock:
            active = [a for a in self._attempts.values() if a.is_active and not a.is_submitting]
        for attempt in active:
            if attempt.job is None:
                self._find_by_name(attempt, rows)
            row = _own(attempt, by_job.get(attempt.job or ""))
            if row is None and began < attempt.since:
                continue
            is_news = attempt.take(row) or is_news
            if row is None and attempt.found is None:
                attempt.is_new = True  # the process that submits it may not have written its manifest yet
            is_missing = attempt.missing >= MISSING_ANSWERS and not attempt.is_forgotten
            if is_missing and attempt.job is not None:
                lost.append(attempt)
        is_close = is_news or any(a.is_watched_closely for a in active)
        self._pace.asked(self.machine.clock.monotonic(), is_news=is_close)
        if lost:
            self._look_up(lost)

    def _look_up(self, lost: list[Attempt]) -> None:
        """Asks for jobs that squeue no longer shows: Slurm may remember how they ended."""
        jobs = [str(attempt.job) for attempt in lost]

        def look_up() -> dict[str, Row]:
            return commands.look_up(jobs, accounting=self.has_accounting())

        def take(found: dict[str, Row], began: float) -> None:
            for attempt in lost:
                row = _own(attempt, found.get(str(attempt.job)))
                if row is not None:
                    attempt.take(row)
                elif attempt.missing >= MISSING_ANSWERS:
                    attempt.is_forgotten = True

        self._ask(look_up, take)

    def _grant_wishes(self, attempts: list[Attempt]) -> None:
        """Tells Slurm, once for all, which jobs to stop and which to kill."""
        ready = [attempt for attempt in attempts if attempt.job is not None]
        for attempt in attempts:
            # A pilot reads the wish from the job's directory; to cancel it would end others, too.
            is_of_pilot = attempt.found is not None and attempt.found.is_pilot
            if not attempt.is_active or is_of_pilot:
                attempt.granted = attempt.wish
        ready = [attempt for attempt in ready if attempt.wish > attempt.granted]
        for wish, function in ((Wish.STOP, _stop), (Wish.KILL, commands.kill)):
            jobs = [str(attempt.job) for attempt in ready if attempt.wish is wish and attempt.is_active]
            if not jobs:
                continue
            for attempt in ready:
                attempt.granted = max(attempt.granted, attempt.wish)
            future = self._calls.submit(partial(function, jobs))
            self._wishes.add(future)
            future.add_done_callback(self._wishes.discard)
            self._pace.soon(self.machine.clock.monotonic())

    def _finish_wishes(self) -> None:
        """At the end of this process: jobs that it wanted to end must not go on because it was too quick."""
        deadline = self.machine.clock.monotonic() + LAST_WISHES_S
        event = threading.Event()
        while self.machine.clock.monotonic() < deadline:
            with self._lock:
                waiting = any(a.wish > a.granted and a.is_active for a in self._attempts.values())
            if not waiting and not self._wishes:
                return
            event.wait(0.02)

    # Finding submissions

    def _known(self, paths: JobPaths, launch: LaunchRecord) -> Attempt:
        attempt = self._attempts.get(launch.nonce)
        if attempt is None:
            attempt = Attempt(self.machine, paths, launch, self.settings.beat_s)
            self._attempts[launch.nonce] = attempt
            self._asked[launch.nonce] = self.machine.clock.monotonic()
            self._pace.now(self.machine.clock.monotonic())
            self.hurry()
        return attempt

    def _forget_unasked(self, now: float) -> None:
        for nonce, asked in list(self._asked.items()):
            attempt = self._attempts.get(nonce)
            if attempt is None or (
                not attempt.processes and not attempt.is_submitting and now - asked > UNASKED_S
            ):
                self._attempts.pop(nonce, None)
                del self._asked[nonce]

    def _find_submissions(self, attempts: list[Attempt]) -> None:
        """Finds what other processes submitted, by the manifests that the workspaces keep."""
        by_layout: dict[str, dict[str, Attempt]] = {}
        for attempt in attempts:
            root = Instructions.of(attempt.launch).layout(attempt.paths).root
            by_layout.setdefault(root, {})[attempt.launch.nonce] = attempt
        for root, wanted in by_layout.items():
            for place in submission.places(self.machine.files, Layout(root)):
                named = list(submission.attempts_of(self.machine.files, place))
                if place.kind != submission.PILOTS:
                    self._open_places.review(place, [order for order, _ in named])
                for order, found in named:
                    if order.nonce in wanted:
                        with self._lock:
                            self._take_found(wanted[order.nonce], found)

    def _take_found(self, attempt: Attempt, found: submission.Found) -> None:
        attempt.take_found(found)
        if found.header.bell is not None:
            self._listening.append(found.header.bell)

    def _find_by_name(self, attempt: Attempt, rows: list[Row]) -> None:
        """Finds the job of a submission whose answer was lost."""
        found = attempt.found
        if found is None:
            return
        for row in rows:
            job, _, index = row.job.partition("_")
            if row.name.endswith(found.place.suffix) and (index or "0") == str(found.position):
                attempt.job = submission.task_id(job, found.position, is_array=found.is_array)
                return


def _own(attempt: Attempt, row: Row | None) -> Row | None:
    """A row, if it is of this attempt: Slurm gives ids out again after its controller lost its state."""
    if row is None or attempt.found is None or row.name.endswith(attempt.found.place.suffix):
        return row
    return None


def _stop(jobs: list[str]) -> None:
    commands.cancel_pending(jobs)
    commands.signal_running(jobs)


@cache
def this_cluster() -> SlurmCluster:
    """The cluster that this process knows; one for all schedulers in it."""
    return SlurmCluster(load_settings().slurm)
