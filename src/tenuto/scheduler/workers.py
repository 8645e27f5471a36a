"""Work that must not block a loop: completions in four threads, notifications in one.
A function that raises is logged and harms no other.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tenuto.launchers.outputs import TaskOutput, read_outputs
from tenuto.scheduler.decisions import worded
from tenuto.workspace.ports import Files

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job
    from tenuto.scheduler.owners import Owner, OwnerLedger

logger = logging.getLogger("tenuto.scheduler")

Call = Callable[[], object]


class Worker(Protocol):
    """Runs functions somewhere; the simulator's runs them on the spot."""

    def call(self, function: Call) -> None:
        """Has the function called once, soon."""
        ...

    def hurry(self) -> None:
        """Lets queued functions be called at once."""
        ...

    def close(self) -> None:
        """Returns once everything handed over was called."""
        ...


class ThreadWorker:
    """A few threads, started when first needed, that call functions in the order they came."""

    def __init__(self, name: str, threads: int, gather_s: float = 0.0) -> None:
        """`gather_s`: how long a thread with nothing left to do lets calls pile up before it looks again."""
        self._name = name
        self._gather_s = gather_s
        self._gathering = threading.Lock()
        """Taken, but for a moment after `hurry`: its waiters let calls pile up until then."""
        self._gathering.acquire()
        self._wanted = threads
        self._queue: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0
        """Calls not yet finished: a second thread is started only when the first is busy."""

    def call(self, function: Call) -> None:
        with self._lock:
            self._unfinished += 1
            if len(self._threads) < min(self._wanted, self._unfinished):
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._queue.put(function)

    def hurry(self) -> None:
        with self._lock:
            if self._gathering.locked():
                self._gathering.release()

    def close(self) -> None:
        with self._lock:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put(None)
        self.hurry()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _serve(self) -> None:
        while (function := self._queue.get()) is not None:
            call_safely(function)
            del function  # or the thread holds on to its last job until the next one comes
            with self._lock:
                self._unfinished -= 1
            if self._gather_s and self._queue.empty():
                self._gathering.acquire(timeout=self._gather_s)


def call_safely(function: Call) -> BaseException | None:
    """Calls a function of the user's; its error is logged, and returned.

    Also SystemExit: a thread that it ended would leave those hanging who wait for the next call.
    """
    try:
        function()
    except BaseException as error:
        logger.exception("a callback raised", extra={"action": "callback_raised"})
        return error
    return None


def takes(function: Callable[..., object], number: int) -> bool:
    """Whether a function can be called with that many arguments by position; True if it does not tell."""
    try:
        signature(function).bind(*range(number))
    except TypeError:
        return False
    except ValueError:  # some built-in functions
        return True
    return True


class DoneHandlerWorker(ThreadWorker):
    """Processes the ends of jobs: task outputs and the final status, off the loop."""

    def __init__(self) -> None:
        super().__init__("tenuto-done", 4)


class NotificationWorker(ThreadWorker):
    """Tells listeners what happened, one event after the other, off the loop."""

    def __init__(self) -> None:
        super().__init__("tenuto-notify", 1, gather_s=0.02)


# What running tasks hand over: each output goes to its watchers, in order, off the loop.


logger = logging.getLogger("tenuto.scheduler")


class OutputKey(NamedTuple):
    """Which output of which job: the same whenever the output is handed over, in any process."""

    job: str
    """The id of the job."""
    sequence: int
    """Its place among all outputs of the job, from 1, over all attempts."""


class WatchedOutput:
    """A callback for what a running task registers through one of its methods."""

    def __init__(self, method: Callable[..., Any], callback: Callable[..., Any]) -> None:
        self.method = method
        self.callback = callback
        self.takes_key = _takes_key(callback)
        self.context = copy_context()
        """Where to call back: the experiment that is open for the watcher is open there, too."""
        self.offset = 0
        """How far the outputs of the job were read."""
        self.sequence = 0
        """How many they were."""

    def call(self, value: Any, key: OutputKey) -> None:
        """Calls back, in the context of the watcher, with the key if it wants that."""
        named = {"key": key} if self.takes_key else {}
        self.context.copy().run(self.callback, value, **named)


def _takes_key(callback: Callable[..., Any]) -> bool:
    """Whether a callback has a parameter of that name."""
    try:
        return "key" in signature(callback).parameters
    except (TypeError, ValueError):  # some built-in functions do not tell
        return False


class TaskOutputsWorker:
    """Calls the watchers of outputs, one after the other, in a thread of its own."""

    def __init__(
        self, files: Files, ledger: OwnerLedger, changed: Callable[[], None], worker: Worker | None = None
    ) -> None:
        """`changed` is told whenever an owner has less to wait for."""
        self._files = files
        self._ledger = ledger
        self._changed = changed
        self._worker = worker or ThreadWorker("tenuto-outputs", 1)
        self._lock = threading.Lock()

    def read(self, job: Job) -> None:
        """Hands over the new outputs, once for each watcher; from any thread, returns at once."""
        self.call(job, lambda: self._read(job))

    def call(self, job: Job, function: Callable[[], None]) -> None:
        """Calls a function after all that was handed over before; the owners of the job wait for it."""
        release = self.hold(job)

        def called() -> None:
            try:
                function()
            finally:
                release()

        self._worker.call(called)

    def hold(self, job: Job) -> Callable[[], None]:
        """The owners of the job wait until the function that this returns is called."""
        waiting = job.owners
        self._add(waiting, 1)

        def release() -> None:
            self._add(waiting, -1)
            self._changed()

        return release

    def failed(self, owners: Sequence[Owner], problem: str) -> None:
        """Notes for the owners of a job that a callback raised; the first problem counts."""
        with self._lock:
            for owner in owners:
                counts = self._ledger.of(owner)
                counts.problem = counts.problem or problem

    def close(self) -> None:
        """Returns once everything handed over was dealt with."""
        self._worker.close()

    def _read(self, job: Job) -> None:
        problem = hand_over_outputs(self._files, job)
        if problem is not None:
            self.failed(job.owners, problem)

    def _add(self, waiting: Sequence[Owner], change: int) -> None:
        with self._lock:
            for owner in waiting:
                self._ledger.of(owner).outputs += change


def hand_over_outputs(files: Files, job: Job) -> str | None:
    """Call the watchers of a job with each output that is new to them, in order; what the first raised."""
    problem: str | None = None
    if job.empties:  # it is about to be run again: its earlier outputs are not of that
        return None
    for watched in job.watched_outputs:
        outputs, watched.offset = read_outputs(files, job.paths, watched.offset)
        for output in outputs:
            watched.sequence += 1
            raised = _hand_over(job, watched, output, OutputKey(job.job_id, watched.sequence))
            problem = problem or raised
    return problem


def _hand_over(job: Job, watched: WatchedOutput, output: TaskOutput, key: OutputKey) -> str | None:
    try:
        value = job.work.output(output, watched.method)
        if value is not None:
            watched.call(value, key)
    except BaseException as error:  # whatever it raises, also SystemExit: the rest continue
        logger.exception(
            "a watcher of %s of job %s raised",
            output.method,
            job.job_id,
            extra={"action": "watcher_raised"},
        )
        return f"a watcher of {output.method} of {job.task_id} raised {worded(error)}"
    return None
