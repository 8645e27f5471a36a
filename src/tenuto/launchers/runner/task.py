"""A Python task in its job: find its class, build it, run it, say how it went.
Loaded in the payload only: it is the one part of the runner that needs the tasks' room.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import signal
import sys
from _thread import get_ident
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any

from tenuto.errors import TaskCancelled
from tenuto.launchers.commands import command_of
from tenuto.launchers.runner.context import RunningJob
from tenuto.launchers.runner.partials import hold_partials
from tenuto.launchers.runner.payload import Payload, run_command
from tenuto.launchers.runner.report import Reporter
from tenuto.launchers.runner.results import plain
from tenuto.launchers.runner.signals import pthread_sigmask
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.light import sha256
from tenuto.tasks import Prepare, ResumableTask
from tenuto.tasks.ports import current_job
from tenuto.tasks.saving import read_job
from tenuto.tasks.serialization import MAX_BYTES, loads
from tenuto.workspace.attempt_files import read_stop
from tenuto.workspace.records import to_json

_LONGEST_MESSAGE = 1500
_FAILURES_MODULE = "tenuto.launchers.runner.failures"


def run_task(payload: Payload, reporter: Reporter) -> int:
    """Run the task of the job's directory; the exit code for this process.

    The process then ends as any Python program does: threads joined, `atexit` honoured, files flushed.
    """
    cancellation = _Cancellation(payload)
    signal.signal(signal.SIGTERM, cancellation)
    _leave_forked_children_alone()
    job = RunningJob(payload)
    try:
        exit_code = _run(payload, reporter, job, cancellation)
        _flush()
    except SystemExit as leaving:
        exit_code = _left(leaving, reporter)
    except BaseException as error:  # noqa: BLE001  whatever ends a task, the marker says so
        exit_code = 1
        failures: Any = import_module(_FAILURES_MODULE)  # 6 ms that a good end need not pay
        reporter.failed(*failures.explained(error))
        _say(failures.shown(error))
    cancellation.over = True
    job.close()
    return exit_code


def _run(payload: Payload, reporter: Reporter, job: RunningJob, cancellation: _Cancellation) -> int:
    pthread_sigmask(signal.SIG_SETMASK, ())
    if payload.preloaded is None:
        complete_package()
        look_like_a_plain_program()
    current_job.set(job)
    gc.freeze()  # or every collection would go through all that Tenuto loaded
    gc.enable()
    if payload.preloaded is not None:
        payload.preloaded.settle()
    else:
        parameters = payload.machine.files.read(payload.paths.params, MAX_BYTES)
        sys.path[:] = loads(parameters, payload.paths.params)["import_path"]
    task, init_tasks = read_job(payload.paths.directory)
    job.runs(task)
    cancellation.graceful = isinstance(task, ResumableTask)
    reporter.provenance(_provenance(type(task), payload))
    job.holds(hold_partials(task))
    for init_task in init_tasks:
        if not isinstance(init_task, Prepare):  # it was done before the job was submitted
            init_task.execute()
    command = command_of(task)
    if command is not None:
        return run_command(command, reporter)
    _report_result(reporter, task, task.execute())
    return 0


class _Cancellation:
    """The handler of TERM."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self.graceful = False
        """A timeout is left to the task, which finds that it has no time left."""
        self.over = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.over:
            return
        stop = read_stop(self._payload.machine.files, self._payload.paths, self._payload.launch.attempt)
        if self.graceful and stop is not None and stop.reason is JobFailureStatus.TIMEOUT:
            return
        raise TaskCancelled(stop.message or stop.reason.meaning if stop else "the job is being stopped")


def _leave_forked_children_alone() -> None:
    """Give a forked child, which is not the job, the usual TERM.

    To reset the handler in the child is too late: Python forgets, in a fresh child, every signal that came
    since the fork. A pool that ends its workers right after it started them then waited for one for ever. So
    the kernel holds the signal back across the fork.
    """
    held: dict[int, set[int]] = {}  # thread -> what it had blocked before

    def hold() -> None:
        held[get_ident()] = pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def release() -> None:
        pthread_sigmask(signal.SIG_SETMASK, held.pop(get_ident()))

    def release_in_child() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=release_in_child)


def complete_package() -> None:
    """Run the `__init__` of Tenuto, if this interpreter began with the bare package (see `__main__`)."""
    package = sys.modules["tenuto"]
    if not hasattr(package, "__version__"):
        spec = package.__spec__
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(package)


def look_like_a_plain_program() -> None:
    """Hide the runner: multiprocessing starts its workers by running the file of `__main__` again."""
    sys.modules["__main__"] = ModuleType("__main__")
    sys.argv[1:] = []
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    faulthandler.enable()


def _provenance(cls: type, payload: Payload) -> dict[str, str]:
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if not file:
        return {}
    known = payload.preloaded.digests if payload.preloaded is not None else {}
    return {"file": file, "sha256": known.get(file) or digest(file)}


def digest(file: str) -> str:
    """The SHA-256 of a file."""
    with open(file, "rb") as stream:
        return sha256(stream.read()).hexdigest()


def _report_result(reporter: Reporter, task: Any, result: Any) -> None:
    try:
        kept = plain(result)
        to_json(kept)
    except (TypeError, ValueError, RecursionError) as error:
        # Hours of work may be in the job's directory: what cannot be kept does not undo what was done.
        problem = f"{type(task).__name__}.execute() returned something that cannot be kept: {error}"
        _say(f"tenuto: {problem}; return plain values or dataclasses")
        reporter.done(message=problem, flags=("result_not_kept",))
    else:
        reporter.done(kept)


def _left(leaving: SystemExit, reporter: Reporter) -> int:
    """What `sys.exit` asked for."""
    code = leaving.code
    if code is None or code == 0:
        reporter.done()
        return 0
    if isinstance(code, int):
        reporter.failed(JobFailureStatus.FAILED, f"the task called sys.exit({code})")
        return code & 0xFF
    _say(str(code))
    reporter.failed(JobFailureStatus.FAILED, f"the task called sys.exit: {code}"[:_LONGEST_MESSAGE])
    return 1


def _flush() -> None:
    """Have a full disk noticed now, while it can still be named."""
    if sys.stdout is not None and not getattr(sys.stdout, "closed", True):
        sys.stdout.flush()


def _say(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201  the job's own log
    except (OSError, ValueError):
        return  # the task closed it, or the disk is full: the marker has the gist
