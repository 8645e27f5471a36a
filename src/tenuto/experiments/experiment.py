"""`experiment`: the context in which tasks are submitted; entry and exit in the seed's order."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import Token
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tenuto.errors import (
    DirectoryUnusable,
    ExperimentInJob,
    FailedExperiment,
    GracefulExperimentExit,
    ParameterError,
)
from tenuto.experiments.arguments import (
    checked,
    hooks_of,
    launcher_of,
    paths_of,
    settings_of,
    workspace_of,
)
from tenuto.experiments.disk_errors import worded_error
from tenuto.experiments.environment import DirtyGitAction, capture, check_dirty_git, forget
from tenuto.experiments.hooks import SubmitHook, ask_hooks
from tenuto.experiments.interrupts import EXIT_INTERRUPTED, Interrupts
from tenuto.experiments.job_defaults import JobDefaults
from tenuto.experiments.last_used import remember_workspace
from tenuto.experiments.locking import wait_for_lock
from tenuto.experiments.modes import RunMode, imposed_fail_fast, imposed_mode, imposed_rerun
from tenuto.experiments.notes import notes_of
from tenuto.experiments.plan import Intent, PlannedJob, plan_job, without_unneeded
from tenuto.experiments.pruning import clear_after_kills, prune_history
from tenuto.experiments.reporting import Reporter, current_reporter
from tenuto.experiments.results import Finished, Row, result_rows
from tenuto.experiments.run import Run
from tenuto.experiments.run_id import free_run_id
from tenuto.experiments.run_tags import add_tags
from tenuto.experiments.saved_configs import load_submitted, newest_saved, place_of
from tenuto.experiments.services import Service
from tenuto.experiments.shared_workspace import make_root
from tenuto.experiments.status import RunState
from tenuto.experiments.telling import (
    failure_text,
    is_at_terminal,
    printable,
    say,
    say_outcome,
    say_what_goes_on,
)
from tenuto.experiments.workspace import Workspace
from tenuto.jobs.former import FormerJobs
from tenuto.jobs.inquiry import Inquiry
from tenuto.jobs.preparation import Preparations
from tenuto.jobs.rows import row_of
from tenuto.jobs.submission import check_script, make_job
from tenuto.jobs.table import jobs_html
from tenuto.jobs.text import counted
from tenuto.jobs.validity import Validity
from tenuto.launchers.carbon.plan import carbon_plan
from tenuto.launchers.devices import visible_devices
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.script import job_script
from tenuto.lifecycle.events import CarbonMetricsData, Event
from tenuto.lifecycle.states import TransientMode
from tenuto.light import late
from tenuto.scheduler.base import Scheduler
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.tokens import CounterToken, GpuToken, declare
from tenuto.settings import Settings, process_environment
from tenuto.tasks.arguments import flag, member, seconds, text, whole_number
from tenuto.tasks.base import caller
from tenuto.tasks.config import Config
from tenuto.tasks.identity import count_paths
from tenuto.tasks.ports import Submission, Submitter, current_job, current_submitter, open_submitters
from tenuto.tasks.saving import save
from tenuto.tasks.schema import schema_of
from tenuto.tasks.task import check_variable
from tenuto.workspace import job_directory
from tenuto.workspace.layout import RunPaths, directory_name
from tenuto.workspace.ports import LockHandle

if TYPE_CHECKING:
    from tenuto.experiments import monitor_service, script_display, transient
    from tenuto.jobs import notebook_cells
else:
    monitor_service = late("tenuto.experiments.monitor_service")
    script_display = late("tenuto.experiments.script_display")
    transient = late("tenuto.experiments.transient")
    notebook_cells = late("tenuto.jobs.notebook_cells")

Tok = TypeVar("Tok", bound=CounterToken)


class experiment:
    """Runs the tasks that are submitted while it is open, each once, and waits for them on leaving.

    ::

        with experiment("workdir", "sweep") as xp:
            Train.C(lr=0.1).submit()
    """

    def __init__(
        self,
        workdir: Path | str | Workspace,
        name: str,
        *,
        port: int | None = None,
        run_mode: RunMode | str = RunMode.NORMAL,
        launcher: Launcher | str | None = None,
        dirty_git: DirtyGitAction | str | None = None,
        project_paths: Iterable[Path | str] = (),
        register_signals: bool = True,
        wait_for_lock_s: float = 0.0,
        raise_on_failure: bool | None = None,
        submit_hooks: Iterable[SubmitHook] = (),
        rerun_changed: bool | None = None,
        fail_fast: bool | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
    ) -> None:
        """Checks what it is given; nothing is opened before the `with` statement.

        `workdir`: a path, or the name of a workspace in the settings. `launcher`: also by its name, such as
        ``"warm"``. `rerun_changed`: jobs that were done are run again if the file of their task has changed.
        `fail_fast`: after the first failure nothing more is started, and what runs is waited for.
        `settings`: also a dict such as ``{"slots": 2}``, over those that hold here. Members of
        enums can be given by their names. `ParameterError` names an argument that cannot be used.
        """
        self.settings = settings_of(settings)
        self.workspace = workspace_of(workdir, self.settings, "experiment(workdir)")
        self.name = text(name, "experiment(name)")
        self._imposed_mode = imposed_mode.get()
        self.run_mode = self._imposed_mode or member(RunMode, run_mode, "experiment(run_mode=)")
        self._not_run: dict[str, Job] = {}
        """What was submitted where nothing is run."""
        self._carbon_plan = carbon_plan(self.settings.carbon)
        self.plan: list[PlannedJob] = []
        """What a dry run found, job by job."""
        self.is_cut = False
        """Whether an error ended the block of an experiment that runs nothing: its plan may not be whole."""
        self.environment: Mapping[str, str] = {}
        self.port = None if port is None else whole_number(port, "experiment(port=)")
        chosen_launcher = launcher_of(launcher, "experiment(launcher=)")
        self._dirty_git = member(
            DirtyGitAction, dirty_git or self.settings.dirty_git, "experiment(dirty_git=)"
        )
        self._project_paths = paths_of(project_paths, "experiment(project_paths=)") or [Path.cwd()]
        self._wait_for_lock_s = seconds(wait_for_lock_s, "experiment(wait_for_lock_s=)")
        self.raises_on_failure = (
            self.settings.fail_run_on_failed_job
            if raise_on_failure is None
            else flag(raise_on_failure, "experiment(raise_on_failure=)")
        )
        """Whether a failed job makes the run raise, and the exit code 1."""
        imposed = imposed_fail_fast.get()
        self.fails_fast = flag(bool(imposed) if fail_fast is None else fail_fast, "experiment(fail_fast=)")
        """Whether the first failure keeps further jobs from being started."""
        is_signalled = flag(register_signals, "experiment(register_signals=)")
        self._interrupts = Interrupts(self._stop_on_interrupt, say) if is_signalled else None
        self.submit_hooks = hooks_of(submit_hooks)
        """Who is asked before each submission, in order."""
        self._checked: set[type] = set()
        """The classes of tasks that were found to be of no other script."""
        self.notes: list[str] = []
        """What a person should know of the run that was left, though nothing failed."""
        self._scheduler = Scheduler.instance()
        self._inquiry = Inquiry(self._scheduler.machine)
        self._validity = Validity(self._scheduler.machine.files, rerun_changed=self._reruns(rerun_changed))
        self._former = FormerJobs(self._scheduler.machine)
        self._defaults = JobDefaults(
            self.settings, chosen_launcher, self._carbon_plan, self._validity, self._former, self._gpus
        )
        self._preparations = Preparations(self._scheduler.machine, say)
        self._open: contextlib.ExitStack | None = None
        self._run: Run | None = None
        self._lock: LockHandle | None = None
        self._reporter: Reporter | None = None
        """Shows the open run."""
        self._outer: Token[Submitter | None] | None = None

    def _reruns(self, given: bool | None) -> bool:
        imposed = imposed_rerun.get()
        if imposed is not None:
            return imposed
        if given is None:
            return self.settings.rerun_changed
        return flag(given, "experiment(rerun_changed=)")

    # What a script asks

    @property
    def run(self) -> Run:
        """The open run."""
        if self._run is None:
            raise RuntimeError(f"experiment {self.name!r} is not open: use it in a `with` statement")
        return self._run

    @property
    def run_id(self) -> str:
        """The name of this run: when it started."""
        return self.run.run_id

    @property
    def jobs(self) -> list[Job]:
        """The jobs submitted so far, each once."""
        if self.run_mode is not RunMode.NORMAL:
            return list(self._not_run.values())
        return list(self.run.jobs.values())

    @property
    def failed(self) -> list[Job]:
        """The jobs that ended badly so far."""
        return self.run.failed_jobs() if self.run_mode is RunMode.NORMAL else []

    @property
    def jobspath(self) -> Path:
        """The links to the directories of this run's jobs."""
        return Path(self.run.paths.jobs)

    @property
    def resultspath(self) -> Path:
        """A directory of this run for whatever the script wants to keep."""
        return Path(self.run.paths.results)

    def setenv(self, name: str, value: str | int | float | Path, override: bool = True) -> None:
        """Adds a variable to the environment of jobs submitted from now on. It is written to a file.

        A number or a path is written as text. With ``override=False`` a variable that is set, here or for
        this process, stays. `ParameterError` for what no process can have in its environment.
        """
        if not flag(override, "setenv(override=)") and (
            name in self.environment or name in process_environment()
        ):
            return
        is_written = isinstance(value, int | float | Path) and not isinstance(value, bool)
        text_of = str(value) if is_written else value
        try:
            check_variable(name, text_of)
        except ValueError as error:
            raise ParameterError(f"setenv: {error}") from None
        self.environment = {**self.environment, name: str(text_of)}  # jobs submitted before keep the other

    def tag(self, *tags: str) -> None:
        """Gives this run words to find it by, as `tenuto runs tag` does; a tagged run is never pruned."""
        if self.run_mode is RunMode.NORMAL:
            add_tags(self._scheduler.machine.files, self.run.paths, tags)

    def save(self, value: Any, name: str = "default") -> None:
        """Keeps configs in this run's directory, for a later `load`.

        `name`: one word, no path: `ParameterError` for what would lie elsewhere.
        """
        save(value, place_of(self.run.paths, name))

    def load(self, name: str = "default", *, experiment: str | None = None, run_id: str | None = None) -> Any:
        """What this run, or another, kept, as configs.

        `experiment`: another experiment of the workspace. `run_id`: one of its runs, or of this experiment's;
        by default the newest that kept something under the name. Tasks that a config came from, or depends
        on, are submitted as transient: what is done is reused, and made again only if it is gone and needed.
        """
        layout = self.workspace.layout
        if run_id is not None or experiment is None:
            place = place_of(layout.run(experiment or self.name, run_id or self.run_id), name)
        else:
            place = newest_saved(self._scheduler.machine, layout, experiment, name)
        return load_submitted(place)

    def results(self, task: type[Config] | None = None) -> list[Row]:
        """One row for each finished job (of one class of tasks, if given): task, state, tags and result.

        ``pandas.DataFrame(xp.results())`` and ``polars.DataFrame(xp.results())`` work as they are.
        """
        task_id = schema_of(task).id if task is not None else None
        finished = [
            Finished(job.task_id, job.job_id, job.state, job.tags, job.paths, job.marker)
            for job in self.jobs
            if job.state.finished() and task_id in (None, job.task_id)
        ]
        return result_rows(self._scheduler.machine.files, finished)

    def subscribe(self, subscriber: Callable[[Event], object]) -> None:
        """Calls a function with each event of this run from now on, in a thread of the scheduler's.

        One that raises is logged, and changes nothing. Where nothing is run, there are no events.
        """
        if self.run_mode is RunMode.NORMAL:
            self.run.subscribe(subscriber)

    def carbon(self) -> CarbonMetricsData | None:
        """What the jobs of this run used while it was open, as far as measured; None if nothing was."""
        return self.run.carbon() if self._carbon_plan is not None and self._run is not None else None

    def add_service(self, service: Service) -> Service:
        """Starts a service, which is stopped when the experiment is left; not where nothing is run."""
        if self.run_mode is RunMode.NORMAL:
            self.run.add_service(service)
        return service

    def token(self, name: str, count: int) -> CounterToken:
        """A resource of this machine with `count` units, shared by all experiments that name it.

        The last call decides on the count, also while units are in use.
        """
        return self._declared(CounterToken(name, count, self._token_directory))

    def gpu_token(self) -> GpuToken:
        """The GPUs that are visible here, one unit each; a job finds its own in ``CUDA_VISIBLE_DEVICES``."""
        return self._gpus(visible_devices())

    def _gpus(self, devices: Mapping[int, str]) -> GpuToken:
        return self._declared(GpuToken(devices, self._token_directory))

    @property
    def _token_directory(self) -> str:
        host = self._scheduler.machine.processes.own().host
        return f"{self.settings.tokens_path}/{directory_name(host)}"

    def _declared(self, token: Tok) -> Tok:
        if self.run_mode is RunMode.NORMAL:
            declare(self._scheduler.machine, token)
        return token

    def wait(self) -> None:
        """Blocks until every job submitted so far has ended; where nothing is run, there is no waiting."""
        if self.run_mode is not RunMode.NORMAL:
            return
        run = self.run
        self._scheduler.wait_until(lambda: run.counts.at_rest or (run.is_stopping and not run.running_jobs()))

    def stop(self) -> None:
        """Starts nothing more; what runs goes on."""
        self.run.is_stopping = True
        self._scheduler.changed()

    def __repr__(self) -> str:
        at = (
            f", run {self._run.run_id}, {counted(len(self._run.jobs), 'job')}"
            if self._run is not None
            else ""
        )
        return f"<experiment {self.name!r} in {self.workspace.path}{at}>"

    def _repr_html_(self) -> str:
        """The experiment in a notebook."""
        run_id = f" {self._run.run_id}" if self._run is not None else ""
        jobs = self.jobs if self._run is not None or self.run_mode is not RunMode.NORMAL else []
        title = f"experiment {self.name}{run_id} in {self.workspace.path}"
        return jobs_html(title, [row_of(job) for job in jobs])

    # Submitting (`tasks.ports.Submitter`)

    def submit(self, task: Any, submission: Submission) -> Job:
        """Makes a sealed task a job of this run."""
        if self.submit_hooks:
            submission = ask_hooks(self.submit_hooks, task, submission)
        submission = checked(submission, self.settings)
        defaults = self._defaults.get()
        if isinstance(submission.launcher, str):
            submission = submission._replace(launcher=self._defaults.named(submission.launcher))
        mode = self._imposed_mode or submission.run_mode or self.run_mode
        workspace = submission.workspace or self.workspace
        if "IPython" in sys.modules:
            files, is_run = self._scheduler.machine.files, mode is not RunMode.DRY_RUN
            notebook_cells.keep_cells(files, workspace.layout, task, really=is_run)
        job = make_job(
            task,
            submission,
            layout=workspace.layout,
            defaults=defaults,
            environment=self.environment,
            clock=self._scheduler.machine.clock,
        )
        if mode is not RunMode.NORMAL:
            if job.key in self._not_run:
                return self._not_run[job.key]
            self._not_run[job.key] = job
        if mode is RunMode.DRY_RUN:
            planned = plan_job(self._scheduler.machine, job, self._validity, self._inquiry)
            if planned.intent is Intent.REUSE:
                job.scheduler = self._scheduler  # its result can be read; others would never come
            self.plan.append(planned)
            return job
        if type(task) not in self._checked:
            check_script(self._scheduler.machine.files, workspace.layout, task)
            self._checked.add(type(task))
        if mode in (RunMode.NORMAL, RunMode.PREPARE):
            self._preparations.prepare(task, workspace.layout)
        if mode is RunMode.NORMAL:
            if self._run is None:
                raise ParameterError(
                    f"submit(run_mode=NORMAL) in experiment {self.name!r}, which runs nothing "
                    f"({self.run_mode.name}), at {caller()}: give the mode to the experiment"
                )
            self._former.record(workspace.layout, task, job)
            return self._scheduler.submit(job, self._run)
        if mode is RunMode.GENERATE_ONLY:
            self._generate(job)
        return job

    def _generate(self, job: Job) -> None:
        machine = self._scheduler.machine
        lock = job_directory.take_lock(machine, job.paths)
        if lock is not None:
            with contextlib.closing(lock):
                job_directory.write_params(machine.files, job.paths, job.work.params(job.layout, job.paths))
                job_directory.write_script(machine.files, job.paths, job_script(job.paths.script_name))

    # Entering and leaving

    def __enter__(self) -> experiment:
        if current_job.get() is not None:
            raise ExperimentInJob(
                f"experiment {self.name!r} was opened inside a job, which imported the script that opens it: "
                f'put the experiment under `if __name__ == "__main__":`'
            )
        with contextlib.ExitStack() as opening:
            opening.callback(count_paths, self._count_paths())
            if self.run_mode is RunMode.NORMAL:
                with self._explaining("the experiment cannot be opened; nothing was started"):
                    self._enter_run(opening)
            self._outer = current_submitter.set(self)
            open_submitters.append(self)
            opening.callback(open_submitters.remove, self)
            self._open = opening.pop_all()
        if self._interrupts is not None:
            self._interrupts.install()
        return self

    def _count_paths(self) -> bool:
        """Have identities made as the settings say while it is open; returns how they were made before.

        Identities are the process's, so experiments that are open together must agree.
        """
        for other in open_submitters:
            if isinstance(other, experiment) and other.settings.count_paths is not self.settings.count_paths:
                raise ParameterError(
                    f"experiments {other.name!r} and {self.name!r} are open together and do not agree on "
                    f"count_paths: leave the first one before, or give both the same setting"
                )
        return count_paths(self.settings.count_paths)

    @contextlib.contextmanager
    def _explaining(self, what: str) -> Iterator[None]:
        """Says of a disk that cannot be used where it is, and what became of the run."""
        try:
            yield
        except OSError as error:
            worded = worded_error(error, self.workspace.layout.root)
            raise DirectoryUnusable(f"{worded} ({error.strerror or error}); {what}") from error

    def _enter_run(self, opening: contextlib.ExitStack) -> None:
        machine, layout = self._scheduler.machine, self.workspace.layout
        make_root(machine.files, layout.root, self.settings.workspace_group)
        self._lock = wait_for_lock(machine, layout, self.name, self._wait_for_lock_s, say)
        opening.callback(self._lock.close)
        run_id = str(free_run_id(machine.clock.now(), machine.files.list(layout.experiment(self.name))))
        with contextlib.ExitStack() as undo:
            undo.callback(machine.files.remove_tree, layout.run(self.name, run_id).directory)
            self._record_environment(layout.run(self.name, run_id))
            self._run = Run(self._scheduler, layout, self.name, run_id, fails_fast=self.fails_fast)
            undo.pop_all()
        remember_workspace(machine.files, self.workspace.path)
        self._scheduler.experiments[self.name] = self._run
        self._reporter = current_reporter.get() or self._display()
        if self._reporter is not None:
            self._reporter.opened(self)
            self._run.subscribe(self._reporter.hear)
        if self.port is not None:
            monitor_service.start_monitor(self._run, self.port, say)

    def _display(self) -> Reporter | None:
        """The bars of a script that a person started by itself, where that person can see them."""
        if self.settings.show_progress and ("ipykernel" in sys.modules or is_at_terminal()):
            return script_display.script_display()
        return None

    def _record_environment(self, run: RunPaths) -> None:
        forget()
        state = capture(self._project_paths, process_environment(), self.settings.environment.allow)
        files = self._scheduler.machine.files
        files.make_directory(run.directory)
        files.replace(run.environment, json.dumps(state.as_json(), indent=1).encode(), durable=False)
        warning = check_dirty_git(state, self._dirty_git)
        if warning is not None:
            say(warning)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._outer is not None:
            _reset_submitter(self._outer)
        left = isinstance(error, GracefulExperimentExit)
        try:
            if error is None and self._run is not None:
                try:
                    self.wait()
                except GracefulExperimentExit as exit_:
                    error, left = exit_, True
        finally:
            if self._interrupts is not None:
                self._interrupts.remove()
            with contextlib.ExitStack() as leaving:  # whatever fails, the lock is let go
                if self._defaults.launchers is not None:
                    leaving.callback(self._scheduler.call, self._defaults.launchers.close)
                if self._open is not None:
                    leaving.callback(self._open.close)
                if self._run is not None:
                    with self._explaining("the end of the run is not recorded; its jobs keep what they did"):
                        self._leave_run(self._run, error)
        if self.run_mode is RunMode.PREPARE and error is None:
            self._tell_prepared()
        elif self.run_mode is not RunMode.NORMAL:
            self.is_cut = error is not None
            self._tell_plan()
        is_interrupted = self._interrupts is not None and self._interrupts.is_interrupted
        if is_interrupted and (error is None or left):
            raise SystemExit(EXIT_INTERRUPTED)
        if error is None and self._run is not None and self.raises_on_failure:
            if self._run.failedJobs:
                raise FailedExperiment(failure_text(self._run))
            if self._run.counts.problem is not None:
                raise FailedExperiment(f"all jobs are done, but {printable(self._run.counts.problem)}")
        return left

    def _tell_prepared(self) -> None:
        reporter = current_reporter.get()
        if reporter is not None:
            reporter.planned(self)
        done = self._preparations.done_here
        say(f"{len(done)} prepared; {counted(len(self._not_run), 'job')} looked at, none started")

    def _tell_plan(self) -> None:
        self.plan = without_unneeded(self.plan)
        reporter = current_reporter.get()
        if reporter is not None:
            reporter.planned(self)
            return
        for planned in self.plan:
            say(str(planned))

    def _leave_run(self, run: Run, error: BaseException | None) -> None:
        machine = self._scheduler.machine
        run.stop_services()
        self._scheduler.release(run)
        if error is not None:
            state, message = RunState.FAILED, f"{type(error).__name__}: {error}"
            if is_leaving(error):
                state = RunState.INTERRUPTED
                say_what_goes_on(run)
        elif run.unfinishedJobs and run.failedJobs and self.fails_fast:
            left = counted(run.unfinishedJobs, "job")
            state, message = RunState.FAILED, f"stopped at the first failure; {left} not started"
        elif run.unfinishedJobs:
            state, message = RunState.INTERRUPTED, f"{counted(run.unfinishedJobs, 'job')} not started"
        else:
            message = "jobs failed" if run.failedJobs else run.counts.problem or ""
            state = RunState.FAILED if message else RunState.DONE
        run.finish(state, message or None, self.carbon())
        self.notes = notes_of(run, self._validity, self._former)
        if self._reporter is not None:
            self._reporter.closed(self, state)
        if current_reporter.get() is None:
            for note in self.notes:
                say(note)
            say_outcome(self.name, self.workspace.layout.root, run)
        self._scheduler.experiments.pop(self.name, None)
        if state is RunState.DONE and any(job.transient is TransientMode.REMOVE for job in run.jobs.values()):
            transient.remove_transient_jobs(machine, self.workspace.layout, run)
        clear_after_kills(machine, self.workspace.layout, run)
        prune_history(machine, self.workspace.layout, self.name, self.settings, run.run_id)

    def _stop_on_interrupt(self) -> str:
        if self._run is None:
            return "nothing runs"
        self._run.is_stopping = True
        self._scheduler.changed()
        running = len(self._run.running_jobs())
        return f"{counted(running, 'running job')} {'is' if running == 1 else 'are'} waited for"


def _reset_submitter(outer: Token[Submitter | None]) -> None:
    """Gives way to the experiment around this one.

    A notebook may run each cell in a context of its own: then the token is of another one.
    """
    try:
        current_submitter.reset(outer)
    except ValueError:
        current_submitter.set(None if outer.old_value is Token.MISSING else outer.old_value)


def is_leaving(error: BaseException) -> bool:
    """Whether an experiment, or one inside it, was left on purpose."""
    interrupted = isinstance(error, SystemExit) and error.code == EXIT_INTERRUPTED
    return interrupted or isinstance(error, GracefulExperimentExit)
