"""Submits gathered orders: writes the submission, runs sbatch, tries again where that is due.
Blocks threads of its own, two at most. Each attempt has a claim: what is submitted twice runs once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from tenuto.errors import LaunchRefused
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.manifest import Header, Order
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.slurm import commands, submission
from tenuto.launchers.slurm.attempt import SlurmAttempt
from tenuto.launchers.slurm.bell import bell_path, hang_up
from tenuto.launchers.slurm.calls import Calls
from tenuto.launchers.slurm.cluster import SlurmCluster
from tenuto.launchers.slurm.commands import SlurmError, SubmissionOutcome
from tenuto.launchers.slurm.options import SlurmOptions
from tenuto.launchers.slurm.process import SlurmProcess
from tenuto.launchers.slurm.submission import Place, SubmittedAttempt
from tenuto.settings.slurm import SlurmSettings
from tenuto.workspace.claims import is_claimed
from tenuto.workspace.layout import Layout

logger = logging.getLogger("tenuto.slurm")

AT_ONCE = 2
FIRST_LOOK_S = 0.2
LONGEST_LOOK_S = 2.0
"""How long squeue is not asked again for room in the queue."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
_LARGEST_ARRAY = 1001
"""Of a cluster that does not say."""


class Handed(NamedTuple):
    """An order, as it is submitted."""

    root: str
    """Of its workspace."""
    order: Order
    attempt: SlurmAttempt

    @classmethod
    def of(cls, order: StartOrder, attempt: SlurmAttempt) -> Handed:
        layout = Instructions.of(order.launch).layout(order.paths)
        line = Order(order.paths.directory, order.paths.script_name, order.launch.nonce)
        return cls(layout.root, line, attempt)


Answer = Callable[[Handed, SlurmProcess | Exception], None]


class SlurmSubmitter:
    """Submits the orders of one launcher."""

    def __init__(self, cluster: SlurmCluster, settings: SlurmSettings, python: str, grace_s: float) -> None:
        self._cluster = cluster
        self._settings = settings
        self._python = python
        self._grace_s = grace_s
        self._calls = Calls(AT_ONCE)
        self._bell_id = cluster.new_id()
        self._pause = threading.Event()

    def submit(self, orders: Sequence[Handed], options: SlurmOptions, answer: Answer) -> None:
        """Submits orders of one workspace, in arrays; `answer` is called, in a thread, once for each."""
        self._calls.submit(partial(self._submit_all, list(orders), options, answer))

    def _submit_all(self, orders: list[Handed], options: SlurmOptions, answer: Answer) -> None:
        size = self._array_size()
        while orders:
            count = self._await_room(orders[:size])
            part, orders = orders[:count], orders[count:]
            try:
                self._submit(part, options, answer)
            except OSError as error:  # the workspace cannot be written
                self._give_up(part, error, answer)
            except Exception as error:
                logger.exception("a submission failed", extra={"action": "slurm_submission_failed"})
                self._give_up(part, LaunchRefused(f"the submission failed: {error}"), answer)
            finally:
                self._cluster.room.release(count)

    def _await_room(self, orders: list[Handed]) -> int:
        """Waits until the queue has room for one of these orders; returns for how many it has."""
        room, most = self._cluster.room, self._settings.max_jobs
        pause_s = FIRST_LOOK_S
        while not (count := room.reserve(len(orders), most)):
            asked = self._cluster.machine.clock.monotonic()
            with suppress(SlurmError):
                for suffix, job in room.look(commands.queue(), asked).items():
                    room.asked_for(suffix, commands.shown(job))
                if count := room.reserve(len(orders), most):
                    break
            self._pause.wait(pause_s)
            if pause_s < LONGEST_LOOK_S <= 2 * pause_s:
                problem = f"it has {most} jobs of this process, as many as max_jobs allows"
                self._cluster.explain([handed.attempt for handed in orders], problem)
            pause_s = min(2 * pause_s, LONGEST_LOOK_S)
        return count

    def _array_size(self) -> int:
        largest = commands.leading_number(
            self._cluster.configuration().get("MaxArraySize", ""), _LARGEST_ARRAY
        )
        return max(min(self._settings.array_size, largest), 1)

    def _submit(self, orders: list[Handed], options: SlurmOptions, answer: Answer) -> None:
        """One sbatch, until it is answered; where the queue is full, two of half the size."""
        files = self._cluster.machine.files
        layout = Layout(orders[0].root)
        place = Place(layout.launchers, self._cluster.new_id())
        header = self._header(orders)
        lines = [handed.order for handed in orders]
        script = submission.script_of(self._settings, self._python, place, options.time_s)
        submission.write(files, place, header, lines, script)
        name = submission.job_name(lines, place)
        arguments = submission.arguments_of(options.arguments(self._grace_s), name, place, len(orders))
        pause_s = FIRST_PAUSE_S
        while True:
            said = commands.submit(arguments, script)
            if said.outcome is SubmissionOutcome.TAKEN:
                self._take(said.text, place, header, orders, answer)
                return
            if said.outcome is SubmissionOutcome.REFUSED:
                files.remove_tree(place.directory)
                self._give_up(orders, LaunchRefused(f"Slurm refused the job: {said.text}"), answer)
                return
            if said.outcome is SubmissionOutcome.FULL and len(orders) > 1:
                files.remove_tree(place.directory)
                half = len(orders) // 2
                self._submit(orders[:half], options, answer)
                self._submit(orders[half:], options, answer)
                return
            self._cluster.explain([handed.attempt for handed in orders], said.text)
            self._pause.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            job = self._queued(place)
            if job is not None:
                self._take(job, place, header, orders, answer)
                return
            if all(self._is_claimed(handed) for handed in orders):
                self._take(None, place, header, orders, answer)  # all of them were given up meanwhile
                return

    def _header(self, orders: Sequence[Handed]) -> Header:
        bell = bell_path(Layout(orders[0].root), self._bell_id)
        hang_up(self._cluster.machine.files, bell)
        variables = submission.ARRAY_VARIABLES if len(orders) > 1 else submission.JOB_VARIABLES
        return Header(self._settings.beat_s, bell, variables, self._settings.reuse_s)

    def _queued(self, place: Place) -> str | None:
        """The id of a job whose answer was lost, if the queue shows it."""
        with suppress(SlurmError):
            for row in commands.queue():
                if row.name.endswith(place.suffix):
                    return row.job.partition("_")[0]
        return None

    def _is_claimed(self, handed: Handed) -> bool:
        return is_claimed(self._cluster.machine, handed.attempt.paths, handed.order.nonce)

    def _take(
        self, job: str | None, place: Place, header: Header, orders: Sequence[Handed], answer: Answer
    ) -> None:
        self._cluster.room.queue(place, len(orders), job)
        if job is not None:
            # A command that found every job of it ended may have cleared the directory away by now.
            with suppress(OSError):
                submission.write_answer(self._cluster.machine.files, place, job)
        is_array = len(orders) > 1
        for index, handed in enumerate(orders):
            own = None if job is None else submission.task_id(job, index, is_array=is_array)
            self._cluster.submitted(handed.attempt, SubmittedAttempt(place, index, is_array, own, header))
            answer(handed, self._cluster.process_of(handed.attempt))

    def _give_up(self, orders: Sequence[Handed], error: Exception, answer: Answer) -> None:
        for handed in orders:
            self._cluster.submitted(handed.attempt, None)
            answer(handed, error)
