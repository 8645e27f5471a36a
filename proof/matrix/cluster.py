"""Owns the cluster of the kill matrix: a process that starts a claimed runner for each task of a submission.
Knows no scheduler and outlives each of them; they learn of its tasks by files.

A submission is a file `submission-{id}` that names a manifest. Each task has a node: a process that starts
the runner, hears of cancellations, and says that the task ended once nothing of it is left.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from proof.matrix.case import Case
from tenuto.launchers.kernel import become_subreaper
from tenuto.launchers.leftovers import kill_descendants
from tenuto.launchers.runner.runner_protocol import BARE, ENTRY
from tenuto.workspace.ports import is_temporary

JOB, TASK = "CLUSTER_JOB", "CLUSTER_TASK"
"""The variables that tell a runner the cluster's id of its job."""
LOOK_S = 0.005
STANDS_S = 1.5
"""How long a runner stands still at most: one that has the locks keeps the next attempt from beginning."""
SCHEDULERS_S = 60.0
"""How long a scheduler takes at most until it says that a job is cancelled, or is struck."""


class Task(NamedTuple):
    """What one node runs: one line of a manifest, and what the list calls it."""

    submission: str
    line: int
    manifest: str
    name: str

    @property
    def id(self) -> str:
        return f"{self.submission}_{self.name}"

    @property
    def order(self) -> str:
        """As schedulers call it, who know nothing of a second start."""
        return f"{self.submission}_{self.line}"


class Files:
    """Where the cluster and the schedulers of a case leave word for each other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "cluster"
        self.ledger = directory / "ledger"
        self.struck_scheduler = directory / "struck-scheduler"
        self.signals = self.directory / "signals"
        self.closing = self.directory / "closing"

    def submission(self, submission: str) -> Path:
        return self.directory / f"submission-{submission}"

    def entry(self, task_id: str) -> Path:
        """The line of the cluster's list that is about a task."""
        return self.directory / f"list-{task_id}"

    def cancelled(self, task_id: str) -> Path:
        return self.directory / f"cancelled-{task_id}"

    def killed(self, task_id: str) -> Path:
        return self.directory / f"killed-{task_id}"

    def tell(self, task_id: str, seen: str, **said: Any) -> None:
        new = self.directory / f"new-{os.getpid()}"
        new.write_text(json.dumps({"seen": seen, **said}))
        new.rename(self.entry(task_id))


class MatrixCluster:
    """Starts what is submitted, as many tasks at once as it has slots, until it is closed."""

    def __init__(self, case: Case, directory: Path, interpreter: str, *, trace: bool) -> None:
        self._case = case
        self._files = Files(directory)
        self._interpreter = interpreter
        self._environment = {**os.environ, "FAULTS_DIRECTORY": str(directory), **_faults(case, trace)}
        self._slots = 1 if case.orders > 1 else 4
        self._taken: set[str] = set()
        self._pending: list[Task] = []
        self._running: dict[int, Task] = {}

    def serve(self) -> None:
        """Return once it is closed and every task has ended."""
        while True:
            is_closing = self._files.closing.exists()
            self._take_submissions()
            self._drop_cancelled()
            if is_closing or self._case.cancel != "pending" or self._case.stands:
                self._start_pending()  # else nothing is started while a scheduler is there
            if is_closing and not self._pending and not self._running:
                return
            self._reap()
            time.sleep(LOOK_S)

    def _take_submissions(self) -> None:
        for path in sorted(self._files.directory.glob("submission-*")):
            submission = path.name.partition("-")[2]
            if submission in self._taken or is_temporary(path.name):
                continue
            self._taken.add(submission)
            manifest, orders = json.loads(path.read_text())
            for index in range(orders):
                self._pending.append(Task(submission, index, manifest, str(index)))
                if self._case.fate == "twice":
                    self._pending.append(Task(submission, index, manifest, f"{index}.again"))
                elif self._case.fate == "lying":  # one job to the cluster, whose first end counts
                    self._pending.append(Task(submission, index, manifest, str(index)))

    def _drop_cancelled(self) -> None:
        if self._case.fate == "deaf":
            return
        for task in [task for task in self._pending if self._files.cancelled(task.order).exists()]:
            self._pending.remove(task)
            self._files.tell(task.id, "ENDED", reason="CANCELLED", message="cancelled while it was pending")

    def _start_pending(self) -> None:
        while self._pending and len(self._running) < self._slots:
            task = self._pending.pop(0)
            self._files.tell(task.id, "RUNNING")
            pid = os.fork()
            if pid == 0:
                self._be_node(task)
            self._running[pid] = task

    def _forget(self, task: Task) -> None:
        self._files.submission(task.submission).unlink(missing_ok=True)
        self._files.entry(task.id).unlink(missing_ok=True)

    def _reap(self) -> None:
        while self._running:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            del self._running[pid]

    # A node

    def _be_node(self, task: Task) -> NoReturn:
        try:
            become_subreaper()
            arguments = [self._interpreter, *BARE, ENTRY, "--claim", sys.executable, task.manifest]
            environment = {**self._environment, JOB: task.submission, TASK: task.name}
            with open(self._files.directory / "out", "ab") as out:
                streams = [(os.POSIX_SPAWN_DUP2, out.fileno(), 2)]
                runner = os.posix_spawn(
                    self._interpreter, [*arguments, str(task.line), "-"], environment, file_actions=streams
                )
            self._tell_end(task, self._end_of(task, runner))
        finally:
            os._exit(0)

    def _end_of(self, task: Task, runner: int) -> int:
        """The exit code of the runner, once nothing that it started is left; negative for a signal."""
        is_told = False
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == runner and os.WIFSTOPPED(status):
                self._tell_end(task, -signal.SIGSTOP)
                if self._case.cancel is not None:
                    _wait_for(self._files.closing.exists, SCHEDULERS_S)
                elif self._case.scheduler is not None:
                    _wait_for(self._is_scheduler_struck, SCHEDULERS_S)
                else:
                    _wait_for(self._has_next_begun, STANDS_S)
                os.kill(runner, signal.SIGCONT)
            elif pid == runner:
                break
            if not is_told and self._case.fate != "deaf" and self._files.cancelled(task.order).exists():
                os.kill(runner, signal.SIGTERM)
                is_told = True
            if self._case.fate == "forgotten" and self._files.signals.stat().st_size:  # a runner has begun
                self._forget(task)
            if self._files.killed(task.order).exists():
                os.kill(runner, signal.SIGKILL)
            if pid == 0:
                time.sleep(LOOK_S)
        self._end_the_rest()
        return os.waitstatus_to_exitcode(status)

    def _end_the_rest(self) -> None:
        """As a cluster does before it says that a job ended: with its runner, all of the job ends."""
        while True:
            kill_descendants()
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(LOOK_S)
            except ChildProcessError:
                return

    def _is_scheduler_struck(self) -> bool:
        return self._files.struck_scheduler.exists() or self._files.closing.exists()

    def _has_next_begun(self) -> bool:
        return self._files.ledger.exists() or self._files.closing.exists()

    def _tell_end(self, task: Task, code: int) -> None:
        """A node that is lost, or whose runner stands still, cannot confirm the end."""
        if self._case.fate == "forgotten":
            self._forget(task)
            return
        is_lost = code < 0 and (self._case.fate == "unconfirmed" or code == -signal.SIGSTOP)
        known = None if code < 0 else code
        message = f"its runner ended with {code}"
        self._files.tell(
            task.id, "ENDED", exit_code=known, message=message, confirmed=not is_lost, blameless=is_lost
        )


def _faults(case: Case, trace: bool) -> dict[str, str]:
    """What `killed_runner` is told by variables."""
    told = {"FAULTS_RUNNER": case.runner, "FAULTS_PAYLOAD": case.payload, "FAULTS_TRACE": trace and "1"}
    told |= {"FAULTS_STANDS": case.stands and "1", "FAULTS_APART": case.apart and "1"}
    return {name: value for name, value in told.items() if value}


def _wait_for(condition: Callable[[], bool], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(LOOK_S)
