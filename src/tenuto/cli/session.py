"""Runs a script or a YAML file, and tells its outcome.
The `ProgressDisplay` that it is given shows its progress.
"""

from __future__ import annotations

import contextlib
import logging
import os
import os.path
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from tenuto.cli import exit_codes
from tenuto.cli.main_module import main_file, module_spec, run_module, run_script
from tenuto.cli.problems import tell_error, tell_problem
from tenuto.cli.program import short_path
from tenuto.clock import SystemClock
from tenuto.compat.experimaestro import ExperimentHelper, install
from tenuto.errors import DirectoryUnusable, ExperimentLocked, FailedExperiment, InvalidOption, TenutoError
from tenuto.experiments.checked_arguments import (
    RunMode,
    imposed_fail_fast,
    imposed_mode,
    imposed_rerun_filter,
)
from tenuto.experiments.display import LiveProgress, PlainProgress, signs_for, steers_terminal, tag_text
from tenuto.experiments.experiment import experiment
from tenuto.experiments.grids import load_call, tasks_of
from tenuto.experiments.overview import ClosedRun, Overview, ProgressDisplay
from tenuto.experiments.reporter import current_reporter
from tenuto.experiments.script_options import GivenOptions, given_options
from tenuto.experiments.workspace import Workspace
from tenuto.experiments.yaml_file import ExperimentFile, read_experiment
from tenuto.jobs.causes import FailureGroup, grouped
from tenuto.jobs.model import Counts
from tenuto.jobs.row import Row
from tenuto.jobs.screen import Screen, let_go_of
from tenuto.jobs.text import counted, duration, safe, safe_lines, truncate
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.settings import Settings, load_settings, process_environment
from tenuto.settings.tree import imposed_rerun
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine

# The outcome of `tenuto run`: the last lines that a person reads, and the same as JSON.


SHOWN_JOBS = 3
SHOWN_GROUPS = 5
SHORT_ID = 12
LONGEST_ERROR = 300


class Summary(NamedTuple):
    """The outcome."""

    runs: tuple[ClosedRun, ...]
    left: tuple[ClosedRun, ...]
    counts: Counts
    failures: tuple[FailureGroup, ...]
    took_s: float
    program: Sequence[str]
    """How Tenuto is called here."""
    retry: Sequence[str]
    """Its arguments that try failed jobs again."""
    exit_code: int = 0
    remarks: tuple[str, ...] = ()
    """What launchers did otherwise than they would by default, and why."""
    names: Mapping[str, Mapping[str, str]] = {}
    """By id, the parameters that tell jobs without tags from others of their task."""
    is_cut: bool = False
    """The script stopped before its end: later submissions are not counted."""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "experiments": [{**run._asdict(), "state": run.state.value} for run in self.runs],
            "jobs": self.counts.known,
            "reused": self.counts.reused,
            "ran": self.counts.ran,
            "failed": self.counts.failed,
            "not_run": self.counts.stranded,
            "unfinished": self.counts.waiting + self.counts.running,
            "duration_s": round(self.took_s, 3),
            "exit_code": self.exit_code,
            "remarks": list(self.remarks),
            "failures": [
                {
                    "reason": group.reason.name,
                    "error": group.error,
                    "place": group.place or None,
                    "jobs": [
                        {**_job_json(row), "parameters": dict(self.names.get(row.id, {}))}
                        for row in group.rows
                    ],
                }
                for group in self.failures
            ],
        }

    def lines(self, directory: str) -> Iterator[str]:
        """For people; paths under `directory` are shown from there."""
        yield self._headline()
        if self.is_cut:
            yield "the script stopped before its end: what it would have submitted after that is not counted"
        yield from map(safe, self.remarks)
        for run in self.left:
            running = self.counts.running
            yield f"{safe(run.name)} was left" + (
                f"; {counted(running, 'job')} still running" if running else ""
            )
        for note in (note for run in self.runs for note in run.notes):
            yield f"note: {safe(note)}"
        for group in self.failures[:SHOWN_GROUPS]:
            yield ""
            yield from self._group(group, directory)
        if len(self.failures) > SHOWN_GROUPS:
            yield ""
            yield f"and {len(self.failures) - SHOWN_GROUPS} other causes"
        if self.failures:
            yield ""
            them = "it" if sum(len(group.rows) for group in self.failures) == 1 else "them"
            yield f"to try {them} again: {shlex.join([*self.program, *self.retry])}"
        elif self.counts.waiting or self.counts.running:
            yield f"to continue: {shlex.join([*self.program, *self.retry])}"

    def _headline(self) -> str:
        names = ", ".join(f"{safe(run.name)} {run.run_id}" for run in self.runs)
        counts = self.counts
        if counts.known and counts.reused == counts.known and not self.is_cut:
            if counts.known == 1:
                return f"{names}: its job was done before, and is reused; nothing had to run"
            return f"{names}: all {counts.known} jobs were done before, and are reused; nothing had to run"
        parts = [f"{counts.reused} reused", f"{counts.ran} ran", f"{counts.failed} failed"]
        if counts.stranded:
            parts.append(f"{counts.stranded} not run because of that")
        if counts.running:
            parts.append(f"{counts.running} still running")
        if counts.waiting:
            parts.append(f"{counts.waiting} not started")
        return f"{names}: {', '.join(parts)}, in {duration(self.took_s)}"

    def _group(self, group: FailureGroup, directory: str) -> Iterator[str]:
        number = len(group.rows)
        shown = "" if group.reason is JobFailureStatus.FAILED else f" ({group.reason.name})"
        error = truncate(safe(group.error), LONGEST_ERROR)
        yield f"{number} {'job' if number == 1 else 'jobs'} failed{shown}: {error}"
        if group.messages > 1:
            yield f"  and {counted(group.messages - 1, 'other message')} from the same line"
        if group.place:
            yield f"  at {safe(_near(group.place, directory))}"
        for row in group.rows[:SHOWN_JOBS]:
            name = tag_text(row.tags or self.names.get(row.id, {}), " ")
            yield f"  {safe(row.task)} {row.id[:SHORT_ID]}{name}"
        if number > SHOWN_JOBS:
            yield f"  and {number - SHOWN_JOBS} more"
        row = group.rows[0]  # the group of a row is its workspace
        command = [*self.program, "why", row.id[:SHORT_ID], "-w", short_path(row.group)]
        yield f"  to see why: {shlex.join(command)}"


def _near(path: str, directory: str) -> str:
    return os.path.relpath(path, directory) if path.startswith(f"{directory}/") else path


def _job_json(row: Row) -> dict[str, Any]:
    paths = Layout(row.group).job(row.task, row.id)
    return {
        "task": row.task,
        "job": row.id,
        "tags": dict(row.tags),
        "message": row.message,
        "directory": paths.directory,
        "stderr": paths.err,
    }


_LAUNCHERS = logging.getLogger("tenuto.launchers")


class Request(NamedTuple):
    """What a person wants to be run."""

    file: str
    arguments: tuple[str, ...] = ()
    """Of a script."""
    overrides: tuple[str, ...] = ()
    """``name=value``: of a YAML file, or of the options that a script declares."""
    name: str | None = None
    workspace: str | None = None
    is_module: bool = False
    """The file is the name of a module, as after ``python -m``."""
    rerun_changed: bool | None = None
    """Whether jobs are run again whose code has changed; None: as the script and the settings say."""
    rerun: str | None = None
    """A filter of jobs that are run again; None: as the script says."""
    fail_fast: bool = False
    """Whether nothing more is started after the first failure."""

    @property
    def is_yaml(self) -> bool:
        return is_yaml(self.file) and not self.is_module


def is_yaml(file: str) -> bool:
    """Whether a file describes an experiment, rather than being a script."""
    return file.endswith((".yaml", ".yml"))


class Remarks(logging.Handler):
    """Keeps what launchers say of jobs that they do not fork, for the summary."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "action", None) == "not_warm" and record.getMessage() not in self.said:
            self.said.append(record.getMessage())


class Session:
    """One call of the command line, from its first experiment to its exit code."""

    def __init__(self, progress: ProgressDisplay, *, as_json: bool = False) -> None:
        """`as_json`: an error that stops the script is told for programs, besides."""
        self.progress = progress
        self._as_json = as_json
        self.problem: str | None = None
        """Why the script stopped before its end, in one line."""
        self.remarks = Remarks()
        self._clock = progress.overview.clock
        self._began = self._clock.monotonic()

    def run(self, request: Request, mode: RunMode | None = None) -> int:
        """Runs the file to its end, whatever happens in it; the exit code."""
        reporting, imposed = current_reporter.set(self.progress), imposed_mode.set(mode)
        _LAUNCHERS.addHandler(self.remarks)
        rerun = imposed_rerun.set(request.rerun_changed)
        rerun_filter = imposed_rerun_filter.set(request.rerun)
        fail_fast = imposed_fail_fast.set(request.fail_fast or None)
        given = GivenOptions(() if request.is_yaml else request.overrides)
        options = given_options.set(given)
        try:
            code = self._run(request, given)
        finally:
            _LAUNCHERS.removeHandler(self.remarks)
            self.progress.end()
            current_reporter.reset(reporting)
            imposed_mode.reset(imposed)
            imposed_rerun.reset(rerun)
            imposed_rerun_filter.reset(rerun_filter)
            imposed_fail_fast.reset(fail_fast)
            given_options.reset(options)
        if code == exit_codes.OK and self.progress.failed():
            return exit_codes.FAILED  # the script may have caught the error
        return exit_codes.INTERRUPTED if self.progress.left() and code == exit_codes.OK else code

    def _run(self, request: Request, given: GivenOptions) -> int:
        module = module_spec(request.file) if request.is_module else None
        try:
            if request.is_yaml:
                run_yaml(request)
            elif module is not None:
                run_module(module, request.arguments)
            else:
                run_script(request.file, request.arguments)
            given.check()
        except FailedExperiment as failed:
            self.problem = str(failed)
            return exit_codes.FAILED
        except tuple(_REFUSED) as refused:
            self.problem = str(refused)
            code = next(code for kind, code in _REFUSED.items() if isinstance(refused, kind))
            self.progress.end()
            if self._as_json:
                tell_error(refused, str(refused), code)
            else:
                tell(f"tenuto: {safe(str(refused))}")
            return code
        except BaseException as error:
            if request.is_yaml and isinstance(error, TenutoError):
                raise
            self.problem = _problem_of(error)
            self.progress.end()
            return script_stopped(error, main_file() or request.file, as_json=self._as_json)
        return exit_codes.OK

    def summary(self, program: list[str], retry: list[str], exit_code: int) -> Summary:
        """The outcome; `retry`: the arguments for `program` to try again."""
        overview = self.progress.overview
        failures = grouped(overview.rows())
        return Summary(
            tuple(self.progress.runs),
            tuple(self.progress.left()),
            overview.counts(),
            tuple(failures),
            self._clock.monotonic() - self._began,
            program,
            retry,
            exit_code,
            tuple(self.remarks.said),
            overview.names(row for group in failures for row in group.rows),
            self.problem is not None and not failures and not self.progress.left(),
        )


def run_yaml(request: Request) -> None:
    """Submits the tasks that a YAML file stands for, and waits for them."""
    settings = load_settings()
    file = read_experiment(request.file, request.overrides)
    workspace = _workspace(request, file, settings)
    if file.is_function:
        install()
        function, configuration = load_call(file)
    else:
        tasks = tasks_of(file)
    paths = [file.path.resolve()]
    with experiment(workspace, request.name or file.name, settings=settings, project_paths=paths) as xp:
        if file.is_function:
            function(ExperimentHelper(xp), configuration)
            return
        for task in tasks:
            task.submit()


def _workspace(request: Request, file: ExperimentFile, settings: Settings) -> Workspace:
    given = request.workspace
    if given is None and file.workspace is not None:
        given = file.workspace
        if given not in settings.workspaces:  # a path in a file starts where the file lies
            given = os.path.join(file.path.parent, given)
    return Workspace.named(given, settings)


def open_progress(stream: TextIO) -> ProgressDisplay:
    """The display that fits where a stream leads."""
    machine, environ = this_machine(), process_environment()
    overview = Overview(SystemClock(), machine.files)
    if steers_terminal(stream, environ):
        return LiveProgress(overview, Screen(stream, color="NO_COLOR" not in environ), signs_for(stream))

    def write(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the reader of the lines has gone; the jobs continue
            stream.write(text)
            stream.flush()

    return PlainProgress(overview, write)


@contextlib.contextmanager
def output_for_json(json: bool) -> Iterator[None]:
    """With `--json`, what a script prints goes to standard error, so that standard output is only JSON."""
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        yield


_REFUSED: Mapping[type[TenutoError], int] = {
    InvalidOption: exit_codes.USAGE,
    ExperimentLocked: exit_codes.LOCKED,
    DirectoryUnusable: exit_codes.FAILED,
}
"""Errors that the script gets from us, which a sentence explains; and their exit codes."""


def _problem_of(error: BaseException) -> str | None:
    """Why a script stopped, in one line; None if it left with a number."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, SystemExit):
        return None if error.code is None or isinstance(error.code, int) else str(error.code)
    return f"{type(error).__name__}: {error}"


def script_stopped(error: BaseException, script: str, *, as_json: bool) -> int:
    """Tells why a script stopped before its end, as Python would; the exit code.

    `as_json`: and once more for programs, in the last line.
    """
    message = _problem_of(error)
    if isinstance(error, KeyboardInterrupt):
        return exit_codes.INTERRUPTED
    if message is None:
        return getattr(error, "code", None) or exit_codes.OK
    tell(message if isinstance(error, SystemExit) else safe_lines(_trace(error, script)))
    if as_json:
        tell_problem("ScriptStopped", message, exit_codes.FAILED, None)
    return exit_codes.FAILED


def _trace(error: BaseException, script: str) -> str:
    """The traceback, from the script on."""
    file = os.path.abspath(script)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    if trace is None and not isinstance(error, SyntaxError):
        step = trace = error.__traceback__
        while step is not None:  # from where this program left its own code
            trace = step.tb_next or trace if step.tb_frame.f_code.co_filename == __file__ else trace
            step = step.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def tell(text: str) -> None:
    """Says something to the person at the terminal, if there still is one."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr)  # noqa: T201


def let_go_of_closed_streams() -> None:
    """Have nothing more written to a closed window."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            let_go_of(stream)
