"""A payload that imports its job's modules before there is a job; then it becomes that job, once.
It is never forked, so whatever the modules do on import (threads, CUDA) is as good as in a fresh interpreter.
"""

from __future__ import annotations

import os
import sys
import time
from _socket import MSG_DONTWAIT, MSG_PEEK, socket
from typing import NoReturn

from tenuto.launchers.leftovers import SPARE_NAME
from tenuto.launchers.payload import process_end
from tenuto.launchers.payload.assignment import CANNOT_EXECUTE, NOT_FOUND, Assignment, live_no_longer_than
from tenuto.launchers.payload.failures import not_begun
from tenuto.launchers.payload.limits import limit_in_force
from tenuto.launchers.payload.python_task import run_task
from tenuto.launchers.payload.report import ReportWriter
from tenuto.launchers.runner.payload_start import payload_arguments
from tenuto.launchers.runner.runner_protocol import SIGNALS
from tenuto.launchers.warm import fork_safety
from tenuto.launchers.warm.import_watch import ImportQuestions
from tenuto.launchers.warm.order import apply_variables
from tenuto.launchers.warm.preload import Sources, digests_of, import_classes, look_like_a_job
from tenuto.launchers.warm.wire import Received, receive, send
from tenuto.light import signal

SPARE = "spare"
"""In a marker's provenance: the job started from a spare."""
READY, LATE = "ready", "late"
"""The spare had imported everything when its job came, or not yet."""


class Ahead:
    """The modules imported ahead of time: the `Preloaded` of a payload that was not forked."""

    def __init__(self, asked: ImportQuestions, sources: Sources, digests: dict[str, str]) -> None:
        self.asked = asked
        self.sources = sources
        self.digests = digests
        self.provenance = {SPARE: LATE}

    def is_stale(self, changes: dict[str, str | None]) -> bool:
        """Whether the modules would be others now, with these variables changed."""
        return self.sources.changed() is not None or any(map(self.asked.matters, changes))

    def settle(self) -> None:
        """Nothing shows: this interpreter is the job's alone."""


def be_spare(fd: str, runner: str) -> int:
    """Import, wait for the job, and run it; the exit code for this process.

    `fd`: a socket with the runner at its other end; `runner`: its pid.
    """
    live_no_longer_than(int(runner))
    own = socket(fileno=int(fd))
    os.set_inheritable(own.fileno(), False)
    first = receive(own)
    if first is None:
        return NOT_FOUND
    name = _rename(SPARE_NAME)
    send(own, {"here": True})
    began_with = dict(os.environ)
    python = first.content.pop("python")
    ahead = _import_ahead(**first.content)
    if isinstance(ahead, str):
        send(own, {"unfit": ahead})
    else:
        if not _has_message(own):
            ahead.provenance = {SPARE: READY}
        send(own, {"loaded": fork_safety.private_bytes()})
    order = receive(own)
    if order is None:
        return NOT_FOUND
    own.close()
    job = _Job(order, int(runner), name)
    if isinstance(ahead, str) or ahead.is_stale(order.content["changes"]):
        job.begin_afresh(python, began_with)
    return job.run(ahead)


def _import_ahead(
    classes: list[list[str]], import_path: list[str], environment: dict[str, str]
) -> Ahead | str:
    """Import the modules; the reason, if their job needs an interpreter that has not imported them yet."""
    began_ns = time.time_ns()
    look_like_a_job(import_path)
    os.environ.update(environment)
    then = fork_safety.before()
    asked = ImportQuestions()
    asked.watch()
    try:
        import_classes(classes)
    except BaseException as error:  # noqa: BLE001  the job will say it better: it fails in its own log
        return f"cannot be imported ({type(error).__name__})"
    finally:
        asked.stop()
    if fork_safety.keeps_files_open(then):
        process_end.ask_for_full_end()  # what a module wrote into a file that it keeps open must not be lost
    why = fork_safety.why_not_ahead(then, asked)
    return why or Ahead(asked, Sources(began_ns), digests_of(classes))


def _rename(name: str) -> str:
    """Give this process a name, by which others find it; the one that it had."""
    with open("/proc/self/comm", "r+") as stream:
        before = stream.read().strip()
        stream.seek(0)
        stream.write(name)
    return before


def _has_message(own: socket) -> bool:
    try:
        own.recv(1, MSG_PEEK | MSG_DONTWAIT)
    except BlockingIOError:
        return False
    return True


class _Job:
    """The job that a spare was given."""

    def __init__(self, order: Received, runner: int, name: str) -> None:
        """`name`: of the process, before it was a spare."""
        self._content = order.content
        self._name = name
        self._runner = runner
        self._report, self._descendants, *self._logs = order.descriptors
        self._assignment = Assignment(**order.content["assignment"])

    def run(self, ahead: Ahead) -> int:
        reporter = ReportWriter(self._report)
        self._assignment.preloaded = ahead
        try:
            self._settle_in()
        except OSError as error:
            reporter.failed(*not_begun(error))
            return CANNOT_EXECUTE
        return run_task(self._assignment, reporter)

    def begin_afresh(self, python: str, environment: dict[str, str]) -> NoReturn:
        """Become a fresh interpreter, in the same process: its runner need not know."""
        self._open_logs(keep=False)
        for name, value in self._content["changes"].items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        os.set_inheritable(self._report, True)
        os.set_inheritable(self._descendants, True)
        signal.pthread_sigmask(signal.SIG_SETMASK, SIGNALS)  # signals meanwhile are kept for the task
        os.chdir("/")
        arguments = payload_arguments(
            python,
            self._assignment,
            runner=self._runner,
            report=self._report,
            descendants=self._descendants,
            memory_bytes=self._content["memory_bytes"],
            nonce=self._content["nonce"],
        )
        os.execve(python, arguments, {**environment, **self._content["variables"]})

    def _settle_in(self) -> None:
        memory_bytes = self._content["memory_bytes"]
        memory = limit_in_force(memory_bytes, self._content["nonce"])
        if memory is not None:
            memory.count(fork_safety.private_bytes())
            memory.enter()
        self._open_logs(keep=True)
        apply_variables(self._content["changes"])
        os.environ.update(self._content["variables"])
        # All that the payload ever starts holds the second byte of the lock file, unless it closes it.
        os.set_inheritable(self._descendants, True)
        os.chdir(self._assignment.directory)
        _rename(self._name)

    def _open_logs(self, *, keep: bool) -> None:
        """Have the standard streams lead to the job's logs, after what the imports wrote, if that is kept."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
        for standard, log in enumerate(self._logs, start=1):
            text = os.pread(standard, os.fstat(standard).st_size, 0) if _is_kept(standard) else b""
            if text:
                os.ftruncate(standard, 0)
            os.dup2(log, standard)
            os.close(log)
            if keep and text:
                os.write(standard, text)


def _is_kept(standard: int) -> bool:
    """Whether a standard stream leads to the memory that the runner keeps; a module may have closed it."""
    try:
        return os.readlink(f"/proc/self/fd/{standard}").startswith("/memfd:")
    except OSError:
        return False
