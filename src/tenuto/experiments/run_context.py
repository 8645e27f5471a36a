"""The context of a run: an experiment is entered and left in order, and Ctrl-C is heard in between.
Whatever fails, the lock of the experiment is let go. Submits nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Token
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.errors import ExperimentInJob, GracefulExperimentExit, ParameterError
from tenuto.experiments.checked_arguments import RunMode
from tenuto.experiments.environment import DirtyGitAction, capture, check_dirty_git, forget, keep_provenance
from tenuto.experiments.pruning import clear_up
from tenuto.experiments.reporter import (
    EXIT_INTERRUPTED,
    Reporter,
    current_reporter,
    is_at_terminal,
    is_leaving,
    notes_of,
    outcome,
    raise_failure,
    say,
    say_outcome,
    say_what_runs_on,
)
from tenuto.experiments.run import Run
from tenuto.experiments.run_record import free_run_id, wait_for_lock
from tenuto.experiments.submissions import Submissions, without_unneeded
from tenuto.experiments.workspace import Workspace, disk_explained, make_root, remember_workspace
from tenuto.jobs.text import counted
from tenuto.lifecycle.events import Event, JobStateChangedEvent
from tenuto.lifecycle.states import JobState
from tenuto.light import late
from tenuto.scheduler.scheduler import Scheduler
from tenuto.settings import Settings, process_environment
from tenuto.settings.tree import imposed_notify
from tenuto.tasks.identity import count_paths
from tenuto.tasks.notebook import notebook_shell
from tenuto.tasks.ports import Submitter, current_job, current_submitter, open_submitters
from tenuto.workspace.run_paths import RunPaths

if TYPE_CHECKING:
    from tenuto.experiments import display, process_service
    from tenuto.experiments.experiment import experiment
    from tenuto.jobs import notify
    from tenuto.jobs.notify import Notifier
else:
    display = late("tenuto.experiments.display")
    notify = late("tenuto.jobs.notify")
    process_service = late("tenuto.experiments.process_service")

EXIT_QUIT = 130
"""The exit code of a script that a third Ctrl-C ended at once."""


class RunContext:
    """Enters and leaves one experiment; knows the run that was opened last."""

    run: Run | None = None
    _held: contextlib.ExitStack | None = None
    """Releases what the open experiment holds."""
    _reporter: Reporter | None = None
    """Shows the open run."""
    _outer: Token[Submitter | None] | None = None
    is_left = False
    """The experiment was left: no job is submitted to it any more."""

    def __init__(self, opening: RunOpening, submissions: Submissions, *, takes_signals: bool) -> None:
        self.opening = opening
        self._scheduler = opening.scheduler
        self._submissions = submissions
        self._interrupts = Interrupts(self._stop, say) if takes_signals else None
        self._notifier: Notifier | None = None

    def enter(self, xp: experiment, others: Iterable[experiment]) -> None:
        """Opens the run of an experiment that runs jobs; tasks are submitted to it from now on.

        `others`: the experiments that are open.
        """
        if current_job.get() is not None:
            raise ExperimentInJob(
                f"experiment {xp.name!r} was opened inside a job: execute() opens none, and in a script, "
                f'which its jobs import, put it under `if __name__ == "__main__":`'
            )
        check_agreement(xp, others)
        self.is_left = False
        with contextlib.ExitStack() as held:
            held.callback(count_paths, count_paths(xp.settings.count_paths))
            if xp.run_mode is RunMode.NORMAL:
                said = "the experiment cannot be opened; nothing was started"
                with disk_explained(xp.workspace.layout.root, said):
                    self._enter_run(xp, held)
            self._outer = current_submitter.set(xp)
            open_submitters.append(xp)
            held.callback(open_submitters.remove, xp)
            self._held = held.pop_all()
        if self._interrupts is not None:
            self._interrupts.install()

    def _enter_run(self, xp: experiment, held: contextlib.ExitStack) -> None:
        self.run = self.opening.open(held, self._submissions.validity.be_at, fails_fast=xp.fails_fast)
        self._reporter = current_reporter.get() or self._display()
        if self._reporter is not None:
            self._reporter.opened(xp)
            self.run.subscribe(self._reporter.hear)
        self._notify(xp, self.run)
        if xp.port is not None:
            process_service.start_monitor(self.run, xp.port, say)

    def _notify(self, xp: experiment, run: Run) -> None:
        """Has a person told of the first failure, and at the end."""
        settings = imposed_notify.get() or xp.settings.notify
        if not settings.is_on:
            return
        notifier = self._notifier = notify.Notifier(settings)

        def hear(event: Event) -> None:
            if isinstance(event, JobStateChangedEvent) and event.state is JobState.ERROR and not has_told:
                has_told.append(True)
                title, group = f"{xp.name}: a job failed", f"{xp.name}/{xp.run_id}"
                text = f"{event.task_id} {event.job_id[:8]}: {event.message or ''}"
                page = run.monitor_url()
                notifier.tell(notify.Notice("first_failure", title, text, group, "running", 1, page))

        has_told: list[bool] = []
        run.subscribe(hear)

    def _display(self) -> Reporter | None:
        """The bars of a script that a person started by itself, where that person can see them."""
        if self.opening.settings.show_progress and ("ipykernel" in sys.modules or is_at_terminal()):
            return display.script_display()
        return None

    def leave(self, xp: experiment, error: BaseException | None) -> bool:
        """Waits for the jobs, unless an error ended the block, and closes the run.

        Returns True if the error asked to leave, which is done now.
        """
        if error is None and self.run is None and (problem := self._submissions.replay()) is not None:
            say(problem)
        self.is_left = True
        if self._outer is not None:
            reset_submitter(self._outer)
        left = isinstance(error, GracefulExperimentExit)
        try:
            if error is None and self.run is not None:
                try:
                    xp.wait()
                except GracefulExperimentExit as exit_:
                    error, left = exit_, True
        finally:
            if self._interrupts is not None:
                self._interrupts.remove()
            with contextlib.ExitStack() as leaving:  # whatever fails, the lock is let go
                if self._submissions.defaults.launchers is not None:
                    leaving.callback(self._scheduler.call, self._submissions.defaults.launchers.close)
                if self._held is not None:
                    leaving.callback(self._held.close)
                if self.run is not None:
                    said = "the end of the run is not recorded; its jobs keep what they did"
                    with disk_explained(xp.workspace.layout.root, said):
                        self._leave_run(xp, self.run, error)
        if self._notifier is not None:
            self._notifier.close()  # after the lock was let go: an address that is silent holds no one up
        if xp.run_mode is not RunMode.NORMAL:
            self._tell_plan(xp, is_cut=error is not None)
        is_interrupted = self._interrupts is not None and self._interrupts.is_interrupted
        if is_interrupted and (error is None or left):
            if notebook_shell() is not None:
                raise KeyboardInterrupt  # it ends the cell, and the kernel stays
            raise SystemExit(EXIT_INTERRUPTED)
        if error is None and self.run is not None and xp.raises_on_failure:
            raise_failure(self.run)
        return left

    def _tell_plan(self, xp: experiment, *, is_cut: bool) -> None:
        xp.is_cut = is_cut
        xp.plan = without_unneeded(xp.plan)
        reporter = current_reporter.get()
        if reporter is not None:
            reporter.planned(xp)
        if xp.run_mode is RunMode.PREPARE and not is_cut:
            say(self._submissions.prepared_text())
        elif reporter is None:
            for planned in xp.plan:
                say(str(planned))

    def _leave_run(self, xp: experiment, run: Run, error: BaseException | None) -> None:
        run.stop_services()
        self._scheduler.release(run)
        if error is not None and is_leaving(error):
            say_what_runs_on(run)
        state, message = outcome(run, error, fails_fast=xp.fails_fast)
        run.finish(state, message, xp.carbon())
        xp.notes = notes_of(run, self._submissions.validity, self._submissions.former)
        rerun = self._submissions.rerun
        if rerun is not None and (note := rerun.note(run.jobs.values())) is not None:
            xp.notes.append(note)
        if self._reporter is not None:
            self._reporter.closed(xp, state)
        done = sum(job.state is JobState.DONE for job in run.jobs.values())
        if self._notifier is not None:
            notice = notify.run_notice(xp.name, xp.run_id, state.value, done, run.failedJobs, message)
            self._notifier.tell(notice)
        if current_reporter.get() is None:
            for note in xp.notes:
                say(note)
            say_outcome(xp.name, xp.workspace.layout.root, run)
        self._scheduler.experiments.pop(xp.name, None)
        clear_up(self._scheduler.machine, xp.workspace.layout, run, state, xp.settings)

    def _stop(self) -> str:
        """Starts nothing more; says what still runs."""
        if self.run is None:
            return "nothing runs"
        self.run.stop_starting()
        running = len(self.run.running_jobs())
        return f"{counted(running, 'running job')} {'is' if running == 1 else 'are'} waited for"


def reset_submitter(outer: Token[Submitter | None]) -> None:
    """Gives way to the experiment around this one.

    A notebook may run each cell in a context of its own: then the token is of another one.
    """
    try:
        current_submitter.reset(outer)
    except ValueError:
        current_submitter.set(None if outer.old_value is Token.MISSING else outer.old_value)


def check_agreement(xp: experiment, others: Iterable[experiment]) -> None:
    """An experiment that makes identities in another way than an open experiment is refused.

    Whether paths count is a switch of the process: experiments that are open together must agree.
    """
    for other in others:
        if other.settings.count_paths is not xp.settings.count_paths:
            raise ParameterError(
                f"experiments {other.name!r} and {xp.name!r} are open together and do not agree on "
                f"count_paths: leave the first one before, or give both the same setting"
            )


class RunOpening(NamedTuple):
    """What an experiment opens its run with."""

    scheduler: Scheduler
    settings: Settings
    workspace: Workspace
    name: str
    """The experiment's."""
    project_paths: Sequence[Path]
    """Directories whose git state is recorded."""
    dirty_git: DirtyGitAction
    wait_for_lock_s: float

    def open(
        self, held: contextlib.ExitStack, where: Callable[[Mapping[str, Any]], None], *, fails_fast: bool
    ) -> Run:
        """The new run; `held` closes the experiment's lock. A run that cannot be made leaves no directory.

        `where` is told what the records of jobs say of their surroundings.
        """
        machine, layout = self.scheduler.machine, self.workspace.layout
        make_root(machine.files, layout.root, self.settings.workspace_group)
        lock = wait_for_lock(machine, layout, self.name, self.wait_for_lock_s, say)
        held.callback(lock.close)
        run_id = str(free_run_id(machine.clock.now(), machine.files.list(layout.experiment(self.name))))
        paths = layout.run(self.name, run_id)
        with contextlib.ExitStack() as undo:
            undo.callback(machine.files.remove_tree, paths.directory)
            where(self._record_environment(paths))
            run = Run(self.scheduler, layout, self.name, run_id, fails_fast=fails_fast)
            undo.pop_all()
        remember_workspace(machine.files, self.workspace.path)
        self.scheduler.experiments[self.name] = run
        return run

    def _record_environment(self, run: RunPaths) -> Mapping[str, Any]:
        """Write the surroundings of a run; returns the part for the records of its jobs."""
        forget()
        state = capture(self.project_paths, process_environment(), self.settings.environment.allow)
        files = self.scheduler.machine.files
        files.make_directory(run.directory)
        files.replace(run.environment, json.dumps(state.as_json(), indent=1).encode(), durable=False)
        warning = check_dirty_git(state, self.dirty_git)
        if warning is not None:
            say(warning)
        return keep_provenance(files, self.workspace.layout, state, process_environment())


class Interrupts:
    """Counts the signals of an impatient person, from the outermost open experiment on."""

    def __init__(self, stop: Callable[[], str], say: Callable[[str], None]) -> None:
        """`stop` has nothing more started, and says what still runs."""
        self._stop = stop
        self._say = say
        self.count = 0
        self.is_interrupted = False
        """A person wants the script to end, or has gone."""
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Takes over the signals; does nothing outside of the main thread.

        One that is ignored stays so: under `nohup`, a closed window is no reason to leave.
        """
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)

    def remove(self) -> None:
        """Gives the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            # A shell and the kernel both send one; the second must not end us while we leave.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            self._previous.pop(signal.SIGHUP, None)
            self.is_interrupted = True
            raise GracefulExperimentExit("the terminal is gone")
        self.count += 1
        self.is_interrupted = True
        if self.count == 1:
            running = self._stop()
            again = "Ctrl-C" if notebook_shell() is None else "Interrupt"
            self._say(
                f"Interrupted: nothing more is started, {running}. {again} again to leave them running, "
                f"a third time to quit at once."
            )
        elif self.count == 2:
            raise GracefulExperimentExit("interrupted twice")
        elif notebook_shell() is not None:
            raise KeyboardInterrupt
        else:
            os._exit(EXIT_QUIT)
