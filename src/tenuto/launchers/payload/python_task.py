"""A Python task in its job: find its class, build it, run it, say how it went.
Loaded in the payload only: it is the one part of the runner that needs the tasks' room.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import sys
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from tenuto.errors import TaskCancelled
from tenuto.launchers.payload.assignment import Assignment
from tenuto.launchers.payload.report import ReportWriter, disk_message
from tenuto.light import fcntl, late, pathlib, signal
from tenuto.tasks import CommandTask, Prepare, ResumableTask
from tenuto.tasks.base import ConfigBase
from tenuto.tasks.code import code_of, file_digest
from tenuto.tasks.location import be_process_of_a_job
from tenuto.tasks.ports import current_job, jobs_of_process
from tenuto.tasks.schema import schema_of
from tenuto.tasks.seeds import draw_seed, seed_generators
from tenuto.tasks.serialization import Document
from tenuto.tasks.stored_configs import build_job, declared_outputs, job_classes, read_params, seed_in
from tenuto.tasks.task import run_to_end
from tenuto.workspace.flags import RESULT_NOT_KEPT
from tenuto.workspace.modes import file_mode

if TYPE_CHECKING:
    from tenuto.launchers import commands, outputs, results
    from tenuto.launchers.outputs import OutputsWriter
    from tenuto.launchers.payload import failures, metrics_log, payload, process_end, progress_reports
    from tenuto.launchers.payload.metrics_log import MetricsLog
    from tenuto.launchers.payload.progress_reports import ProgressReports
    from tenuto.lifecycle import states
    from tenuto.workspace import attempt_files
    from tenuto.workspace.ports import Files
else:
    attempt_files = late("tenuto.workspace.attempt_files")
    commands = late("tenuto.launchers.commands")
    failures = late("tenuto.launchers.payload.failures")
    metrics_log = late("tenuto.launchers.payload.metrics_log")
    outputs = late("tenuto.launchers.outputs")
    payload = late("tenuto.launchers.payload.payload")
    process_end = late("tenuto.launchers.payload.process_end")
    progress_reports = late("tenuto.launchers.payload.progress_reports")
    results = late("tenuto.launchers.results")
    states = late("tenuto.lifecycle.states")


class RunningJob:
    """The job that this process runs."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._task: Any = None
        self.is_executing = False
        """Everything that comes before `execute()` is done."""
        self._held: list[int] = []
        self._lock = allocate_lock()
        self._outputs: OutputsWriter | None = None
        self._reports: ProgressReports | None = None
        self._metrics: MetricsLog | None = None
        self._pid = os.getpid()

    def holds(self, descriptors: list[int]) -> None:
        """Keeps the files that stay open until the process ends."""
        self._held = descriptors

    def runs(self, task: Any) -> None:
        """The live task, once it is built."""
        self._task = task

    @property
    def attempt(self) -> int:
        return self._assignment.attempt

    @property
    def path(self) -> pathlib.Path:
        return pathlib.Path(self._assignment.paths.directory)

    @property
    def cache_path(self) -> pathlib.Path:
        return pathlib.Path(self._assignment.layout.config)

    def remaining_time(self) -> float | None:
        deadline = self._assignment.deadline
        return None if deadline is None else max(deadline - self._assignment.machine.clock.monotonic(), 0.0)

    def result(self, directory: str) -> Any:
        return results.read_upstream_result(self._assignment.machine.files, directory)

    def progress(self, value: float, level: int, desc: str | None) -> None:
        with self._lock:
            if self._reports is None:
                self._reports = progress_reports.ProgressReports(self._assignment)
                assert self._reports is not None
        self._reports.report(value, level, desc)

    def log_metrics(self, values: Mapping[str, float], step: int | None) -> None:
        log = self._metrics
        if log is None or log.pid != os.getpid():  # a forked child has no thread that writes
            with self._lock:
                log = self._metrics
                if log is None or log.pid != os.getpid():
                    goes_on = isinstance(self._task, ResumableTask)
                    log = self._metrics = metrics_log.MetricsLog(self._assignment, goes_on=goes_on)
                    if os.getpid() != self._pid:
                        metrics_log.close_at_end(log)
        assert log is not None
        log.log(values, step)

    def close(self) -> None:
        """Send the report that was held back."""
        if self._reports is not None:
            self._reports.close()
        if self._metrics is not None and self._metrics.pid == os.getpid():
            self._metrics.close()

    def register_task_output(
        self, method: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        way = outputs.way_to(getattr(method, "__self__", None), self._task)
        if way is None:
            raise ValueError(f"{method!r} is not a method of this task or of a config inside it")
        given, by_name = [outputs.plain(value) for value in arguments], outputs.plain(named)
        assignment = self._assignment
        with self._lock:
            if self._outputs is None:
                self._outputs = outputs.OutputsWriter(
                    assignment.machine.files, assignment.paths, assignment.attempt
                )
                assert self._outputs is not None
            self._outputs.write(way, method.__name__, given, by_name)


def hold_partials(assignment: Assignment, task: Any) -> list[int]:
    """Make the directories that jobs share through a `partial`, and lock them, waiting for their holders.

    All in one order, so that two jobs never wait for each other. Returns the descriptors that hold them: the
    kernel frees them with the process, however that ends.
    """
    return [_hold(assignment.machine.files, folder) for folder in sorted(_folders(task))]


def _hold(files: Files, folder: str) -> int:
    files.make_directory(folder)
    lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, file_mode(folder))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"tenuto: waits for another job that uses {folder}", file=sys.stderr, flush=True)  # noqa: T201  the job's log
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _folders(task: Any) -> set[str]:
    """The shared directories of the configs that run in this job."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = [task]
    while waiting:
        value = waiting.pop()
        if isinstance(value, ConfigBase):
            if id(value) in seen:
                continue
            seen.add(id(value))
            values = vars(value)
            if callable(values.get("_state")):
                continue  # a task with a job of its own, not read yet
            schema = schema_of(type(value))
            for name, generator in schema.generators.items():
                if generator.partial is not None and generator.partial.is_exclusive and name in values:
                    path = os.path.normpath(values[name])
                    found.add(path.removesuffix(os.path.normpath(generator.path)).rstrip("/"))
            waiting += [values.get(name) for name in schema.config_names]
        elif isinstance(value, list | tuple | set):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
    return found


_UNEXPLAINED = "the job is being stopped"


def run_task(assignment: Assignment, reporter: ReportWriter) -> int:
    """Run the task of the job's directory; the exit code for this process.

    The process then ends as any Python program does: threads joined, `atexit` honoured, files flushed.
    """
    cancellation = _Cancellation(assignment)
    signal.signal(signal.SIGTERM, cancellation)
    _leave_forked_children_alone()
    job = RunningJob(assignment)
    try:
        exit_code = _run(assignment, reporter, job, cancellation)
        _flush()
    except SystemExit as leaving:
        exit_code = _left(leaving, reporter, job, cancellation)
    except BaseException as error:  # noqa: BLE001  whatever ends a task, the marker says so
        exit_code = 1
        reporter.failed(*failures.explained(error))
        _say(failures.shown(error))
    cancellation.over = True
    job.close()
    return exit_code


def _run(assignment: Assignment, reporter: ReportWriter, job: RunningJob, cancellation: _Cancellation) -> int:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if assignment.preloaded is None:
        complete_package()
        look_like_a_plain_program()
    current_job.set(job)
    jobs_of_process.append(job)
    gc.freeze()  # or every collection would go through all that Tenuto loaded
    gc.enable()
    params = read_params(assignment.directory)
    if assignment.preloaded is not None:
        assignment.preloaded.settle()
    else:
        sys.path[:] = params["import_path"]
    be_process_of_a_job()
    drawn = draw_seed()
    seed_generators(drawn)  # before the modules of the task, of which one may seed them itself
    given = seed_in(params)
    if given is not None:
        seed_generators(given)
    task, init_tasks = build_job(params, assignment.directory)
    job.runs(task)
    if getattr(task, "__full_end__", False):
        process_end.ask_for_full_end()
    if isinstance(task, ResumableTask):
        cancellation.leave_timeouts_to_the_task()
    about = _told(params, assignment, drawn if given is None else given)
    reporter.provenance(about, executes=not isinstance(task, CommandTask))
    job.holds(hold_partials(assignment, task))
    cancellation.raise_again()
    for init_task in init_tasks:
        if not isinstance(init_task, Prepare):  # it was done before the job was submitted
            run_to_end(init_task.execute())
    if isinstance(task, CommandTask):
        return payload.run_command(commands.written_command(task), reporter)
    job.is_executing = True
    result = run_to_end(task.execute())
    if cancellation.raised is None:
        _report_result(assignment, reporter, task, result, cancellation)
    else:
        _given_up(reporter, cancellation.raised)
    return 0


class _Cancellation:
    """The handler of TERM."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._graceful = False
        self.raised: TaskCancelled | None = None
        """The error raised in the task, which may have caught it."""
        self.over = False

    def settle(self) -> dict[str, Any]:
        """Before a good end is reported: TERM is ignored from now on, or it would take the report back.

        What the report is to say of the two ways in which a good end may be half of one.
        """
        self.over = True
        deadline = self._assignment.deadline
        return {
            "handles_term": signal.getsignal(signal.SIGTERM) is not self,
            "is_late": deadline is not None and self._assignment.machine.clock.monotonic() >= deadline,
        }

    def leave_timeouts_to_the_task(self) -> None:
        """From now on a timeout does not end the task, which finds that it has no time left."""
        # Loaded now, since a signal that comes while other modules load cannot do it.
        _ = attempt_files.read_stop, states.JobFailureStatus
        self._graceful = True

    def raise_again(self) -> None:
        """Raise the error of making the task, if a module or a config of it caught that."""
        if self.raised is not None:
            raise self.raised

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.over:
            return
        try:
            message, is_timeout = self._wish()
        except Exception:  # noqa: BLE001  e.g. while the task loads what this needs, or with no descriptor left
            message, is_timeout = _UNEXPLAINED, False  # to be told why is a courtesy; to end is a must
        if self._graceful and is_timeout:
            self._assignment.deadline = 0.0  # a cluster may know of a time that the runner does not
            return
        self.raised = TaskCancelled(message)
        raise self.raised

    def _wish(self) -> tuple[str, bool]:
        """What `stop.json` says to the task, and whether its time is up."""
        assignment = self._assignment
        stop = attempt_files.read_stop(assignment.machine.files, assignment.paths, assignment.attempt)
        if stop is None:
            return _UNEXPLAINED, False
        return stop.message or stop.reason.meaning, stop.reason is states.JobFailureStatus.TIMEOUT


def _leave_forked_children_alone() -> None:
    """Give a forked child, which is not the job, the usual TERM.

    To reset the handler in the child is too late: Python forgets, in a fresh child, every signal that came
    since the fork. A pool that ends its workers right after it started them then waited for one for ever. So
    the kernel holds the signal back across the fork.
    """
    held: dict[int, set[int]] = {}  # thread -> the signals that it had blocked before

    def hold() -> None:
        held[get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held.pop(get_ident()))

    def release_in_child() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=release_in_child)


def complete_package() -> None:
    """Run the `__init__` of Tenuto, if this interpreter began with the bare package (see `__main__`)."""
    package = sys.modules["tenuto"]
    if not hasattr(package, "__all__"):
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


def _told(params: Document, assignment: Assignment, seed: int) -> dict[str, Any]:
    """What the marker is to say of the process and of the code that it has loaded."""
    preloaded = assignment.preloaded
    known = {} if preloaded is None else preloaded.digests

    def digest_of(file: str) -> str:
        return known.get(file) or file_digest(file)

    code = code_of(job_classes(params), digest_of)
    record: dict[str, Any] = {"code": code.digest, "files": dict(code.files)}
    outputs = declared_outputs(params, (f"{assignment.script_name}.out", f"{assignment.script_name}.err"))
    if outputs:
        record["outputs"] = dict.fromkeys(outputs)
    return {**({} if preloaded is None else preloaded.provenance), "seed": str(seed), "record": record}


def _report_result(
    assignment: Assignment, reporter: ReportWriter, task: Any, result: Any, cancellation: _Cancellation
) -> None:
    stem = f"{assignment.directory}/{assignment.script_name}.result"
    try:
        form = kept(result, stem, pickles=getattr(task, "__pickle_result__", False))
        reporter.done(form, caveats=cancellation.settle())
    except Exception as error:  # noqa: BLE001  libraries raise what they like, and disks are full
        # Hours of work may be in the job's directory: a result that cannot be kept does not undo them.
        why = str(error) or type(error).__name__
        if isinstance(error, OSError):  # of one without a number NumPy says how many of the items it wrote
            why = disk_message(error) if error.errno else f"the disk is full, or has a limit ({why})"
        problem = f"{type(task).__name__}.execute() returned something that cannot be kept: {why}"
        _say(f"tenuto: {problem}; see docs/experiments.md for what can")
        reporter.done(message=problem, flags=(RESULT_NOT_KEPT,), caveats=cancellation.settle())


def kept(value: Any, stem: str, *, pickles: bool = False) -> Any:
    """The JSON form of a result; `TypeError` or `ValueError` with the reason if there is none.

    `stem`: what the paths of its files begin with. `pickles`: the task asked for pickle, where nothing else
    keeps a value.
    """
    if _is_plain(value, 0):
        return value
    encoder = results.Encoder(stem, pickles=pickles)
    try:
        return encoder.encoded(value)
    except BaseException:
        encoder.discard()
        raise


def _is_plain(value: Any, depth: int) -> bool:
    """True for what JSON says, and gives back, as it is."""
    kind = type(value)
    if value is None or kind in (bool, int, float):
        return True
    if kind is str:
        return value.isascii() or results.is_text(value)
    if depth > 50:
        return False
    if kind is list:
        return all(_is_plain(item, depth + 1) for item in value)
    if kind is not dict:
        return False
    return all(
        type(key) is str and key[:1] != "$" and _is_plain(key, depth) and _is_plain(item, depth + 1)
        for key, item in value.items()
    )


def _given_up(reporter: ReportWriter, raised: TaskCancelled) -> None:
    """The task was told to stop, and left its partial work: half a result must not pass for a whole one."""
    reporter.failed(*failures.explained(raised))


def _left(leaving: SystemExit, reporter: ReportWriter, job: RunningJob, cancellation: _Cancellation) -> int:
    """What `sys.exit` asked for."""
    code = leaving.code
    if code is None or code == 0:
        if cancellation.raised is not None:
            _given_up(reporter, cancellation.raised)
        elif job.is_executing:
            reporter.done(caveats=cancellation.settle())
        else:
            reporter.failed(*failures.left_early())
        return 0
    reporter.failed(*failures.left(code))
    if isinstance(code, int):
        return code & 0xFF
    _say(str(code))
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
