"""What this process knows of the attempts that Slurm has: one thread follows all of them, and tells.
Asks by its `Poller`, and submits nothing.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cache

from tenuto.launchers.instructions import Instructions
from tenuto.launchers.slurm import submission
from tenuto.launchers.slurm.attempt import SlurmAttempt, Wish
from tenuto.launchers.slurm.bell import Bells
from tenuto.launchers.slurm.calls import Calls
from tenuto.launchers.slurm.commands import SlurmRow
from tenuto.launchers.slurm.places import OpenPlaces
from tenuto.launchers.slurm.poller import Poller
from tenuto.launchers.slurm.process import SlurmProcess
from tenuto.launchers.slurm.room import Room
from tenuto.launchers.slurm.roster import Roster
from tenuto.launchers.slurm.wishes import Wishes
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


class SlurmCluster:
    """Every attempt of this process that Slurm has; its methods may be called from any thread."""

    def __init__(self, settings: SlurmSettings | None = None, machine: Machine | None = None) -> None:
        self.settings = settings or SlurmSettings()
        self.machine = machine or this_machine()
        clock, calls = self.machine.clock, Calls(ASKING)
        self.room = Room(clock)
        self._roster = Roster(self.machine)
        self._poller = Poller(self._roster, calls, clock, self.settings.poll_s, self.hurry)
        self._wishes = Wishes(self._roster, calls, clock, self.hurry)
        self._listening: list[str] = []
        self._thread: threading.Thread | None = None
        self._wake_end, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._gathering = threading.Event()
        """Never set: to wait for it is to let more rings come in."""
        self._steps: list[Callable[[], None]] = []
        self._open_places = OpenPlaces(self.machine.files, self.machine.clock, self._wishes.drop_submission)
        atexit.register(self._wishes.finish)

    # What schedulers and commands ask (`clusters.Cluster`)

    def report(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        report = self._known(paths, launch).report
        if self._poller.trouble and report.says in (ClusterSays.NOTHING, ClusterSays.PENDING):
            return report._replace(message=f"Slurm does not answer: {self._poller.trouble}")
        return report

    def process(self, paths: JobPaths, launch: LaunchRecord) -> SlurmProcess | None:
        with self._roster.lock:
            attempt = self._known(paths, launch)
            if attempt.is_ended:
                return None
            return self.process_of(attempt)

    def stop(self, paths: JobPaths, launch: LaunchRecord) -> None:
        self.wish(self._known(paths, launch), Wish.STOP)

    def report_within(self, paths: JobPaths, launch: LaunchRecord, timeout_s: float) -> ClusterReport:
        """Like `report`, after a wait until something is known, if that takes no longer."""
        deadline = self.machine.clock.monotonic() + timeout_s
        attempt = self._known(paths, launch)
        told = threading.Event()
        with self.listening(attempt, told.set):
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

        One that nothing is known of is about to be submitted: Slurm is not asked for it before.
        """
        with self._roster.lock:
            is_known = launch.nonce in self._roster
            attempt = self._roster.known(paths, launch, self.settings.beat_s)
            attempt.is_submitting = attempt.is_submitting or not is_known
        return self.listening(attempt, tell)

    # What the launcher and its processes ask

    def expect(self, paths: JobPaths, launch: LaunchRecord) -> SlurmAttempt:
        """An attempt that this process is about to submit."""
        with self._roster.lock:
            attempt = self._known(paths, launch)
            attempt.is_submitting = True
            return attempt

    def submitted(self, attempt: SlurmAttempt, found: submission.SubmittedAttempt | None) -> None:
        """The answer for an attempt: where Slurm has it, or None if it refused it."""
        with self._roster.lock:
            attempt.is_submitting = False
            attempt.since = self.machine.clock.monotonic()
            attempt.report = ClusterReport()  # it waits for sbatch no longer
            if found is not None:
                self._take_found(attempt, found)
                if not found.is_pilot:
                    self._open_places.add(found.place, attempt.launch.nonce)
        self._poller.pace.soon(self.machine.clock.monotonic())
        self.hurry()

    def process_of(self, attempt: SlurmAttempt) -> SlurmProcess:
        with self._roster.lock:
            attempt.processes += 1
            return SlurmProcess(self, attempt)

    def let_go(self, attempt: SlurmAttempt) -> None:
        """A process of the attempt was closed."""
        self._roster.let_go(attempt)

    def wish(self, attempt: SlurmAttempt, wish: Wish) -> None:
        """Has Slurm end a job, as soon as its id is known."""
        self._roster.wish(attempt, wish)
        self.hurry()

    def listening(self, attempt: SlurmAttempt, tell: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `tell`, in another thread, whenever something new is known of the attempt."""
        return self._roster.listening(attempt, tell)

    def use(self, settings: SlurmSettings) -> None:
        """Follows jobs as the settings of a launcher say."""
        self.settings = settings
        self._poller.pace.poll_s = settings.poll_s

    def row_of(self, job: str) -> SlurmRow | None:
        """What the last answer said of a job that stands for no attempt."""
        return self._poller.rows.get(job)

    def add_step(self, step: Callable[[], None]) -> None:
        """Calls a function, in the thread, each time that something may have changed."""
        with self._roster.lock:
            self._steps = [*self._steps, step]

    def remove_step(self, step: Callable[[], None]) -> None:
        """Calls it no more."""
        with self._roster.lock:
            self._steps = [known for known in self._steps if known != step]

    def new_id(self) -> str:
        """A fresh name of 16 hexadecimal digits."""
        return self.machine.randomness.nonce()[:16]

    def explain(self, attempts: list[SlurmAttempt], problem: str) -> None:
        """Attempts wait for Slurm to take them: their jobs say why."""
        for attempt in attempts:
            attempt.report = ClusterReport(message=f"Slurm did not take it yet: {problem}")
            attempt.tell_listeners()
        logger.warning("Slurm takes no job: %s", problem, extra={"action": "slurm_refuses"})

    def configuration(self) -> dict[str, str]:
        """The settings of the cluster, asked once; empty while it does not answer."""
        return self._poller.configuration()

    def hurry(self) -> None:
        """Wakes the thread, which is started if there is none."""
        with self._roster.lock:
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
                with self._roster.lock:
                    if not len(self._roster) and not self._poller.is_asking and not self._wishes.are_open:
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
        self._poller.take_answers()
        self._open_places.sweep(self._poller.rows.values(), self._poller.heard)
        now = self.machine.clock.monotonic()
        self._roster.drop_unasked(now)
        with self._roster.lock:
            attempts = self._roster.all()
            heard, self._listening = self._listening, []
        for path in heard:
            bells.listen(path)
        rung = bells.rung()
        new = [a for a in attempts if a.is_new and not a.is_submitting]
        # To read every submission for each job that this process submits takes time by the square.
        self._find_submissions([attempt for attempt in new if attempt.found is None])
        self._poller.recall(new, now)
        for attempt in attempts:  # a thousand may wait, and each ring of a runner comes here
            if attempt.is_due or attempt.launch.nonce in rung:
                self._look_again(attempt, is_rung=attempt.launch.nonce in rung)
        if self._wishes.grant():
            self._poller.pace.soon(now)
        for step in self._steps:
            step()
        if any(a.is_active for a in attempts):
            self._poller.ask_if_due(now)

    def _look_again(self, attempt: SlurmAttempt, *, is_rung: bool) -> None:
        with self._roster.lock:
            before = attempt.has_begun, attempt.is_active
            needless = attempt.needless
            # An attempt that waits to be submitted is looked at when a runner rings, not at every step.
            is_unseen = attempt.is_new and not attempt.is_submitting
            if is_rung or is_unseen or attempt.is_watched_closely:
                attempt.is_new = attempt.is_submitting
                attempt.look()
                if is_rung and attempt.has_begun and not attempt.is_marked:
                    self._poller.pace.soon(self.machine.clock.monotonic())
                if attempt.needless != needless:
                    self._wishes.drop_needless(attempt)
            is_news = attempt.is_active and attempt.is_due and attempt.judge()
            is_news = is_news or before != (attempt.has_begun, attempt.is_active)
        if attempt.is_marked and attempt.found is not None:  # before a driver that hears of it may end
            self._open_places.settle(attempt.found.place, attempt.launch.nonce)
        if is_news:
            attempt.tell_listeners()

    def _wait(self, bells: Bells) -> None:
        closely = [min(CLOSELY_S, a.beat_s / 2) for a in self._roster.all() if a.is_watched_closely]
        rest_s = self._poller.pace.due - self.machine.clock.monotonic()
        timeout_s = min([LISTEN_S, max(rest_s, 0.0) or LISTEN_S, *closely])
        with suppress(OSError, ValueError):  # a watch of a directory that is gone
            select.select([self._wake_end, *bells.descriptors()], [], [], timeout_s)
        self._gathering.wait(GATHER_S)
        with suppress(BlockingIOError):
            while os.read(self._wake_end, 4096):
                pass

    # Finding submissions

    def _known(self, paths: JobPaths, launch: LaunchRecord) -> SlurmAttempt:
        with self._roster.lock:
            is_known = launch.nonce in self._roster
            attempt = self._roster.known(paths, launch, self.settings.beat_s)
        if not is_known:
            self._poller.pace.now(self.machine.clock.monotonic())
            self.hurry()
        return attempt

    def _find_submissions(self, attempts: list[SlurmAttempt]) -> None:
        """Finds what other processes submitted, by the manifests that the workspaces keep."""
        by_layout: dict[str, dict[str, SlurmAttempt]] = {}
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
                        with self._roster.lock:
                            self._take_found(wanted[order.nonce], found)

    def _take_found(self, attempt: SlurmAttempt, found: submission.SubmittedAttempt) -> None:
        attempt.take_found(found)
        if found.header.bell is not None:
            self._listening.append(found.header.bell)


@cache
def this_cluster() -> SlurmCluster:
    """The cluster that this process knows; one for all schedulers in it."""
    return SlurmCluster(load_settings().slurm)
