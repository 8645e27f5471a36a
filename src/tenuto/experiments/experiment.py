"""`experiment`: the context in which tasks are submitted, and what a script asks of it.
Does nothing itself: submissions, the context of a run and the run do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from tenuto.errors import NoExperiment, TokenError
from tenuto.experiments.checked_arguments import (
    RunMode,
    imposed_fail_fast,
    imposed_mode,
    imposed_rerun_filter,
    launcher_of,
    paths_of,
    settings_of,
    variable,
    workspace_of,
)
from tenuto.experiments.environment import DirtyGitAction
from tenuto.experiments.job_defaults import MachineTokens
from tenuto.experiments.process_service import Service
from tenuto.experiments.run import Run
from tenuto.experiments.run_context import RunContext, RunOpening
from tenuto.experiments.run_record import add_tags
from tenuto.experiments.script_options import given_options
from tenuto.experiments.submissions import Submissions, SubmitHook, hooks_of
from tenuto.experiments.workspace import Workspace, working_directory
from tenuto.jobs.metrics import MetricsReader, metric_rows
from tenuto.jobs.result_table import Cells, Finished, result_of, result_rows
from tenuto.jobs.rows import jobs_html, row_of
from tenuto.jobs.text import counted
from tenuto.launchers.protocols import Launcher
from tenuto.lifecycle.events import CarbonMetricsData, Event
from tenuto.light import late
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.scheduler import Scheduler
from tenuto.scheduler.tokens import CounterToken, GpuToken
from tenuto.settings import Settings, process_environment
from tenuto.settings.tree import imposed_rerun
from tenuto.tasks.arguments import (
    flag,
    function,
    guarded,
    guarded_by,
    member,
    refused,
    seconds,
    text,
    whole_number,
)
from tenuto.tasks.base import caller
from tenuto.tasks.ports import SubmitOptions, open_submitters
from tenuto.tasks.schema import schema_of
from tenuto.tasks.stored_configs import save
from tenuto.tasks.task import Task

if TYPE_CHECKING:
    from tenuto.experiments import run_info
    from tenuto.tasks.functions import TaskFunction
else:
    run_info = late("tenuto.experiments.run_info")


@guarded
class experiment:
    """Runs the tasks that are submitted while it is open, each once, and waits for them on leaving.

    ::

        with experiment("workdir", "sweep") as xp:
            Train.C(lr=0.1).submit()

    Nothing is opened before the `with` statement. `ParameterError` names an argument that cannot be used;
    members of enums may be given by their names.

    `workdir`: the workspace: a path, or the name of one in the settings. `name`: the experiment's; one of its
    runs at a time is open. `port`: also serve the monitor's page there, 0 for a free port.
    `run_mode`: what `submit()` leads to; see `RunMode`. `launcher`: starts the jobs; also by its name, such
    as ``"warm"``. `dirty_git`: the effect of changes that are not committed: nothing, a warning or
    `DirtyGitError`. `project_paths`: the directories whose git state is recorded; by default the current one.
    `register_signals`: Ctrl-C stops the run in order. `wait_for_lock_s`: how long to wait for another run of
    the experiment before `ExperimentLocked`. `raise_on_failure`: leaving raises `FailedExperiment` if a job
    failed. `submit_hooks`: asked before each submission; see `SubmitHook`. `rerun_changed`: jobs that were
    done are run again if their code, or what they were made from, has changed; `rerun`: those that a filter
    of `tenuto jobs` names, as in ``"task~Train"``. `fail_fast`: after the first failure nothing
    more is started, running jobs are waited for. `settings`: also a dict such as ``{"slots": 2}``, over those
    that hold here.
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
        project_paths: Iterable[Path | str] | Path | str = (),
        register_signals: bool = True,
        wait_for_lock_s: float = 0.0,
        raise_on_failure: bool | None = None,
        submit_hooks: Iterable[SubmitHook] = (),
        rerun_changed: bool | None = None,
        rerun: str | None = None,
        fail_fast: bool | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
    ) -> None:
        self.settings = settings_of(settings)
        self.workspace = workspace_of(workdir, self.settings, "experiment(workdir)")
        self.name = text(name, "experiment(name)")
        if "#" in self.name:
            raise refused(
                "experiment(name)", "a name without #, which stands before the number of a job", name
            )
        if (given := given_options.get()) is not None:
            given.check()
        self.run_mode = imposed_mode.get() or member(RunMode, run_mode, "experiment(run_mode=)")
        self.port = None if port is None else whole_number(port, "experiment(port=)")
        fails = self.settings.fail_run_on_failed_job
        self.raises_on_failure = _flag(raise_on_failure, fails, "experiment(raise_on_failure=)")
        """Whether a failed job makes the run raise, and the exit code 1."""
        self.fails_fast = _flag(fail_fast, bool(imposed_fail_fast.get()), "experiment(fail_fast=)")
        """Whether the first failure keeps further jobs from being started."""
        self.submit_hooks = hooks_of(submit_hooks)
        """Hooks that each submission passes, in order."""
        self.environment: Mapping[str, str] = {}
        """Variables for the jobs that are submitted from now on."""
        self.is_cut = False
        """Whether an error ended the block of an experiment that runs nothing: its plan may not be whole."""
        self.notes: list[str] = []
        """What a person should know of the run that was left, though nothing failed."""
        self._scheduler = Scheduler.instance()
        self._tokens = MachineTokens(self._scheduler.machine, self.settings, self.run_mode)
        self._submissions = self._made_submissions(launcher, rerun_changed, rerun)
        self.plan = self._submissions.plan
        """What a dry run found, job by job."""
        self._context = RunContext(
            self._made_opening(project_paths, dirty_git, wait_for_lock_s),
            self._submissions,
            takes_signals=flag(register_signals, "experiment(register_signals=)"),
        )

    def _made_opening(
        self,
        project_paths: Iterable[Path | str] | Path | str,
        dirty_git: DirtyGitAction | str | None,
        wait_s: float,
    ) -> RunOpening:
        return RunOpening(
            self._scheduler,
            self.settings,
            self.workspace,
            self.name,
            paths_of(project_paths, "experiment(project_paths=)") or [working_directory()],
            member(DirtyGitAction, dirty_git or self.settings.dirty_git, "experiment(dirty_git=)"),
            seconds(wait_s, "experiment(wait_for_lock_s=)"),
        )

    def _made_submissions(
        self, launcher: Launcher | str | None, rerun_changed: bool | None, rerun: str | None
    ) -> Submissions:
        usual = _flag(rerun_changed, self.settings.rerun_changed, "experiment(rerun_changed=)")
        imposed = imposed_rerun.get()
        wanted = None if rerun is None else text(rerun, "experiment(rerun=)")
        return Submissions(
            self._scheduler,
            self.settings,
            self.workspace,
            self.run_mode,
            launcher_of(launcher, "experiment(launcher=)"),
            self.submit_hooks,
            self._tokens.gpus,
            reruns_changed=usual if imposed is None else imposed,
            rerun=imposed_rerun_filter.get() or wanted,
        )

    # What a script asks

    @property
    def run(self) -> Run:
        """The open run."""
        if self._context.run is None:
            raise RuntimeError(f"experiment {self.name!r} is not open: use it in a `with` statement")
        return self._context.run

    @property
    def run_id(self) -> str:
        """The name of this run: when it started."""
        return self.run.run_id

    @property
    def jobs(self) -> list[Job]:
        """The jobs submitted so far, each once."""
        if self.run_mode is not RunMode.NORMAL:
            return list(self._submissions.not_run.values())
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

        `name`: the variable's. `value`: text; a number or a path is written as text. With ``override=False``
        a variable that is set, here or for this process, stays. `ParameterError` for what no process can have
        in its environment.
        """
        self._require_jobs("setenv()")
        if flag(override, "setenv(override=)") or not (
            name in self.environment or name in process_environment()
        ):  # jobs submitted before keep the other
            self.environment = {**self.environment, name: variable(name, value)}

    def tag(self, *tags: str) -> None:
        """Gives this run words (`tags`) to find it by, as `tenuto runs tag` does; it is never pruned then."""
        for word in tags:
            text(word, "tag()")
        if self.run_mode is RunMode.NORMAL:
            add_tags(self._scheduler.machine.files, self.run.paths, tags)

    def save(self, value: Any, name: str = "default") -> None:
        """Keeps a value (configs, or lists and dicts of them) in this run's directory, for a later `load`.

        `name`: one word, no path: `ParameterError` for what would lie elsewhere.
        """
        save(value, run_info.place_of(self.run.paths, name))

    def load(self, name: str = "default", *, experiment: str | None = None, run_id: str | None = None) -> Any:
        """What this run, or another, kept, as configs.

        `name`: what `save` was given. `experiment`: another experiment of the workspace. `run_id`: one of its
        runs, or of this experiment's; by default the newest that kept something under the name. Tasks that a
        config came from, or depends on, are submitted as transient: done jobs are reused, and made again
        only if it is gone and needed.
        """
        layout = self.workspace.layout
        if run_id is not None or experiment is None:
            place = run_info.place_of(layout.run(experiment or self.name, run_id or self.run_id), name)
        else:
            place = run_info.newest_saved(self._scheduler.machine, layout, experiment, name)
        return run_info.load_submitted(place)

    @overload
    def results(self, task: type[Task[Any]] | None = None, *, provenance: bool = ...) -> list[Cells]: ...
    @overload
    def results(self, task: TaskFunction[..., Any], *, provenance: bool = ...) -> list[Cells]: ...
    def results(  # type: ignore[misc]
        self, task: type[Task[Any]] | None = None, *, provenance: bool = False
    ) -> list[Cells]:
        """One row for each finished job (of one class of tasks, if given): task, state, tags and result.

        `provenance`: also what each was made of, as in ``provenance.commit``; see docs/valid.md.
        ``pandas.DataFrame(xp.results())`` and ``polars.DataFrame(xp.results())`` work as they are.
        """
        flag(provenance, "results(provenance=)")
        given: Any = task
        task_id = None if given is None else schema_of(given).id
        files = self._scheduler.machine.files
        finished = [
            Finished(
                job.task_id,
                job.job_id,
                job.state,
                job.tags,
                result_of(files, job.paths, row_of(job)),
                self._submissions.validity.made_of(job) if provenance else {},
            )
            for job in self.jobs
            if job.state.finished() and task_id in (None, job.task_id)
        ]
        return result_rows(finished)

    def metrics(self, name: str | None = None) -> list[Cells]:
        """One row for each point that the jobs logged so far: job, task, tags, metric, step, time, value.

        ``pandas.DataFrame(xp.metrics())`` and ``polars.DataFrame(xp.metrics())`` work as they are. `name`:
        the metric that is wanted, also one that runners measure (``system/cpu``); by default all that jobs
        logged.
        """
        given: Any = name
        if given is not None and not isinstance(given, str):
            raise refused("metrics(name)", 'the name of a metric, such as "loss"', given)
        reader = MetricsReader(self._scheduler.machine.files)
        read = ((row_of(job)._replace(tags=job.tags), reader.of_job(job.paths)) for job in self.jobs)
        rows = metric_rows(read, () if name is None else (name,))
        left_out = ("id", "kind", "group")
        return [
            {"job": row["id"], **{cell: value for cell, value in row.items() if cell not in left_out}}
            for row in rows
        ]

    def subscribe(self, subscriber: Callable[[Event], object]) -> None:
        """Calls `subscriber` with each event of this run from now on, in a thread of the scheduler's.

        A callback that raises is logged, and changes nothing. Where nothing is run, there are no events.
        """
        function(subscriber, "subscribe()")
        if self.run_mode is RunMode.NORMAL:
            self.run.subscribe(subscriber)

    def carbon(self) -> CarbonMetricsData | None:
        """What the jobs of this run used while it was open, as far as measured; None if nothing was."""
        run = self._context.run
        return run.carbon() if self._submissions.carbon_plan is not None and run is not None else None

    def add_service(self, service: Service) -> Service:
        """Starts a service, which is stopped when the experiment is left; not where nothing is run."""
        if not isinstance(service, Service):
            raise refused("add_service()", "an object of a subclass of Service", service)
        if self.run_mode is RunMode.NORMAL:
            self.run.add_service(service)
        return service

    @guarded_by(TokenError)
    def token(self, name: str, count: int) -> CounterToken:
        """A resource of this machine with `count` units, shared by all experiments that name it.

        The last call decides on the count, also while units are in use.
        """
        self._require_jobs("token()")
        return self._tokens.counter(name, count)

    def gpu_token(self) -> GpuToken:
        """The GPUs that are visible here, one unit each; a job finds its own in ``CUDA_VISIBLE_DEVICES``."""
        self._require_jobs("gpu_token()")
        return self._tokens.gpus()

    def _require_jobs(self, what: str) -> None:
        """Refuses calls about later jobs once the experiment was left."""
        if self._context.is_left:
            raise NoExperiment(
                f"{what} of experiment {self.name!r} comes after its block, where no job can be "
                f"submitted any more, at {caller()}: call it inside of `with`"
            )

    def wait(self) -> None:
        """Blocks until every job submitted so far has ended; where nothing is run, there is no waiting."""
        if self.run_mode is not RunMode.NORMAL:
            return
        run = self.run
        self._scheduler.wait_until(lambda: run.counts.at_rest or (run.is_stopping and not run.running_jobs()))

    def stop(self) -> None:
        """Starts nothing more; running jobs continue."""
        self.run.stop_starting()

    def __repr__(self) -> str:
        run = self._context.run
        at = f", run {run.run_id}, {counted(len(run.jobs), 'job')}" if run is not None else ""
        return f"<experiment {self.name!r} in {self.workspace.path}{at}>"

    def _repr_html_(self) -> str:
        """The experiment in a notebook."""
        run = self._context.run
        jobs = self.jobs if run is not None or self.run_mode is not RunMode.NORMAL else []
        run_id = f" {run.run_id}" if run is not None else ""
        title = f"experiment {self.name}{run_id} in {self.workspace.path}"
        return jobs_html(title, [row_of(job) for job in jobs])

    # Submitting (`tasks.ports.Submitter`)

    def submit(self, task: Any, submission: SubmitOptions) -> Job:
        """Makes a sealed task a job of this run; `submission`: what `.submit()` was given besides."""
        return self._submissions.submit(task, submission, self.environment, self._context.run)

    # Entering and leaving

    def __enter__(self) -> experiment:
        self._context.enter(self, [other for other in open_submitters if isinstance(other, experiment)])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._context.leave(self, error)


def _flag(given: bool | None, usual: bool, what: str) -> bool:
    return usual if given is None else flag(given, what)
