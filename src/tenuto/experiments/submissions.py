"""The tasks that are submitted to one experiment: each passes the hooks, is prepared, and run or planned.
Starts nothing: the scheduler does.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from enum import Enum, unique
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.errors import (
    DeclarationError,
    DefaultChanged,
    ParameterError,
    PreparationFailed,
    SubmissionRefused,
    SubmitHookError,
)
from tenuto.experiments.checked_arguments import RunMode, checked, imposed_mode
from tenuto.experiments.job_defaults import JobDefaults
from tenuto.experiments.reporter import say
from tenuto.experiments.run import Run
from tenuto.experiments.workspace import Workspace
from tenuto.jobs.submission import FormerJobs, can_run, make_job
from tenuto.jobs.text import counted
from tenuto.jobs.validity import (
    PREPARED,
    SharedRecord,
    SharedThings,
    Validity,
    Validness,
    check_classes,
    is_shared,
    remove_path,
    shared_record,
)
from tenuto.jobs.view import Inquiry
from tenuto.launchers.carbon.carbon_plan import carbon_plan
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.script import job_script
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.light import late
from tenuto.scheduler.decisions import Arrival, on_arrival
from tenuto.scheduler.jobs import Job, TaskWork
from tenuto.scheduler.scheduler import Scheduler
from tenuto.scheduler.workers import hand_over_outputs
from tenuto.settings import Settings
from tenuto.tasks.arguments import refused
from tenuto.tasks.base import ConfigBase, caller, class_name
from tenuto.tasks.code import classes_of
from tenuto.tasks.graph import postorder
from tenuto.tasks.identity import identity
from tenuto.tasks.live import generated_paths, instantiate
from tenuto.tasks.ports import SubmitOptions
from tenuto.tasks.schema import schema_of
from tenuto.tasks.tags import joined, tag_words
from tenuto.tasks.task import Following, Prepare, run_to_end
from tenuto.workspace import job_directory
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import LockHandle, Machine
from tenuto.workspace.records import LaunchRecord
from tenuto.workspace.run_paths import PreparedPaths

if TYPE_CHECKING:
    from tenuto.experiments import rerun as reruns
    from tenuto.jobs import notebook_cells, placement
else:
    reruns = late("tenuto.experiments.rerun")
    notebook_cells = late("tenuto.jobs.notebook_cells")


class Submissions:
    """Makes jobs of the tasks of one experiment, by the mode of the experiment or of the submission."""

    def __init__(
        self,
        scheduler: Scheduler,
        settings: Settings,
        workspace: Workspace,
        mode: RunMode,
        launcher: Launcher | str | None,
        hooks: list[SubmitHook],
        declare_gpus: placement.DeclareGpus,
        *,
        reruns_changed: bool,
        rerun: str | None = None,
    ) -> None:
        """`launcher`: the script's choice; `hooks`: asked before each submission, in order.

        `reruns_changed`: results of other code are made again; `rerun`: a filter of jobs to run again.
        """
        self._scheduler = scheduler
        self._settings = settings
        self._workspace = workspace
        self._imposed_mode = imposed_mode.get()
        self._mode = mode
        self._hooks = hooks
        self.carbon_plan = carbon_plan(settings.carbon)
        self.rerun = None if rerun is None else reruns.RerunFilter(scheduler.machine, rerun)
        self.validity = Validity(
            scheduler.machine,
            rerun_changed=reruns_changed,
            reruns=self.rerun,
            checks_outputs=settings.check_outputs,
        )
        self._shared = SharedThings(scheduler.machine, self.validity)
        self.former = FormerJobs(scheduler.machine)
        self.defaults = JobDefaults(
            settings,
            launcher,
            self.carbon_plan,
            self.validity,
            self.former,
            declare_gpus,
            scheduler.machine.files,
        )
        self.preparations = Preparations(scheduler.machine, say, self._shared, remakes=reruns_changed)
        self.plan: list[PlannedJob] = []
        """What a dry run found, job by job."""
        self.not_run: dict[str, Job] = {}
        """The jobs of tasks that were submitted in a mode that runs none, by key."""
        self._inquiry = Inquiry(scheduler.machine)
        self._checked: frozenset[type] = frozenset()
        """The classes of tasks and configs whose ids no other script of the workspace has."""

    def submit(
        self, task: Any, submission: SubmitOptions, environment: Mapping[str, str], run: Run | None
    ) -> Job:
        """The job of a sealed task, which the scheduler was given if the mode is `NORMAL`.

        `environment`: variables for the job's process. `run`: the owner of the job; None where none is open.
        """
        submission = self._completed(task, submission)
        mode = self._imposed_mode or submission.run_mode or self._mode
        layout = (submission.workspace or self._workspace).layout
        job = self._make(task, submission, environment, layout, mode)
        if mode is not RunMode.NORMAL:
            if job.key in self.not_run:
                known = self.not_run[job.key]
                known.tags = joined(known.tags, job.tags)
                return known
            self.not_run[job.key] = job
        if mode is RunMode.NORMAL and not can_run(task) and self._is_to_run(job):
            raise DeclarationError(
                f"{class_name(task)} has no execute(), so there is nothing to run, at {caller()}: define it"
            )
        is_real = mode is not RunMode.DRY_RUN
        classes = classes_of(task)
        if not classes <= self._checked:
            check_classes(self._scheduler.machine.files, layout, task, really=is_real)
            self._checked |= classes
        if mode is not RunMode.GENERATE_ONLY:
            try:
                if any(map(is_shared, classes)):
                    self._shared.check(task, layout, really=is_real)
                self.preparations.prepare(task, layout, really=is_real)
            except DefaultChanged as refusal:
                if is_real:
                    raise
                self.plan.append(PlannedJob(job, Intent.REFUSE, str(refusal)))
                return job
        if mode is RunMode.DRY_RUN:
            return self._planned(job)
        if mode is RunMode.NORMAL:
            if run is None:
                raise ParameterError(
                    f"submit(run_mode=NORMAL) in an experiment which runs nothing ({self._mode.name}), "
                    f"at {caller()}: give the mode to the experiment"
                )
            self.former.record(layout, task, job)
            return self._scheduler.submit(job, run)
        if mode is RunMode.GENERATE_ONLY:
            self._generate(job)
        return job

    def replay(self) -> str | None:
        """Call the watchers of planned jobs that are done, in the order of the plan; what the first raised.

        Not while the script still submits: a plan is the same each time. What they submit is planned, too.
        """
        problem: str | None = None
        for planned in self.plan:  # it grows meanwhile
            job = planned.job
            if planned.intent is Intent.REUSE:
                raised = hand_over_outputs(self._scheduler.machine.files, job)
                problem = problem or raised or job.done_handler(JobState.DONE)
        return problem

    def _is_to_run(self, job: Job) -> bool:
        found = job_directory.look(self._scheduler.machine, job.paths, ask=self._inquiry).derived
        return job.transient is TransientMode.NONE and on_arrival(found) is Arrival.RUN

    def prepared_text(self) -> str:
        """What `PREPARE` came to, in words."""
        jobs = counted(len(self.not_run), "job")
        return f"{len(self.preparations.done_here)} prepared; {jobs} looked at, none started"

    def _completed(self, task: Any, submission: SubmitOptions) -> SubmitOptions:
        """The submission after all hooks, checked, with its launcher."""
        if self._hooks:
            submission = ask_hooks(self._hooks, task, submission)
        submission = checked(submission, self._settings)
        if isinstance(submission.launcher, str):
            submission = submission._replace(launcher=self.defaults.named(submission.launcher))
        return submission

    def _make(
        self,
        task: Any,
        submission: SubmitOptions,
        environment: Mapping[str, str],
        layout: Layout,
        mode: RunMode,
    ) -> Job:
        machine = self._scheduler.machine
        defaults = self.defaults.get()
        if "IPython" in sys.modules:
            notebook_cells.keep_cells(machine.files, layout, task, really=mode is not RunMode.DRY_RUN)
        return make_job(
            task, submission, layout=layout, defaults=defaults, environment=environment, clock=machine.clock
        )

    def _planned(self, job: Job) -> Job:
        planned = plan_job(self._scheduler.machine, job, self.validity, self._inquiry)
        if planned.intent.runs and job.transient is TransientMode.NONE:
            for needed in self.validity.dropped(job):
                assert needed.marker is not None
                needed.rerun_of = needed.marker.nonce
                again = PlannedJob(needed, Intent.RERUN, "its files were removed, and what runs needs them")
                self.plan[:] = [again if one.job is needed else one for one in self.plan]
        if planned.intent is Intent.REUSE:
            job.scheduler, job.is_planned = self._scheduler, True  # its result can be read
        then = [_followed(job) if planned.intent.runs else ""]
        if "changed since" not in planned.why:
            then += [f"; {why}" for why in self.validity.older_of(job)]
        self.plan.append(planned._replace(then="".join(then)))
        return job

    def _generate(self, job: Job) -> None:
        """Write the directory of a job, ready to be run by hand, unless a runner has it.

        The parameters that a result was made with stay; `DefaultChanged` if the task has others.
        """
        machine = self._scheduler.machine
        planned = plan_job(machine, job, self.validity, self._inquiry)
        if planned.intent is Intent.REFUSE:
            raise DefaultChanged(planned.why)
        lock = job_directory.take_lock(machine, job.paths)
        if lock is not None:
            with contextlib.closing(lock):
                if planned.intent not in (Intent.REUSE, Intent.RERUN):
                    params = job.work.params(job.layout, job.paths)
                    job_directory.write_params(machine.files, job.paths, params)
                job_directory.write_script(machine.files, job.paths, job_script(job.paths.script_name))


# -- hooks -------------------------------------------------------------------------------------------


class SubmitHook:
    """Asked at each `submit()`, in the order the hooks were given; override `before_submit`."""

    def before_submit(self, task: Any, submission: SubmitOptions) -> SubmitOptions | None:
        """What to make of a submission: another one, as in ``submission._replace(launcher=...)``, or None.

        The task is sealed: its submission can be changed, its parameters not. To refuse it, raise
        `SubmissionRefused` with the reason.
        """
        return None


def hooks_of(given: Any) -> list[SubmitHook]:
    """Submit hooks; a single one need not be in a list."""
    hooks = [given] if isinstance(given, SubmitHook) or not isinstance(given, Iterable) else list(given)
    for hook in hooks:
        if isinstance(hook, type) or not callable(getattr(hook, "before_submit", None)):
            raise refused("experiment(submit_hooks=)", "objects with a method before_submit()", hook)
    return hooks


def ask_hooks(hooks: Iterable[SubmitHook], task: Any, submission: SubmitOptions) -> SubmitOptions:
    """The submission that all hooks agree to; their errors name the hook and the task."""
    for hook in hooks:
        name, what = type(hook).__name__, class_name(task)
        try:
            changed = hook.before_submit(task, submission)
        except SubmissionRefused as refusal:
            raise SubmissionRefused(f"{name} refuses {what}: {refusal}") from refusal
        except Exception as error:
            raise SubmitHookError(
                f"{name}.before_submit failed for {what} ({type(error).__name__}: {error}); "
                f"the task was not submitted"
            ) from error
        if changed is not None:
            if not isinstance(changed, SubmitOptions):
                raise SubmitHookError(
                    f"{name}.before_submit returned {type(changed).__name__} for {what}: "
                    f"return the submission, changed by its _replace(), or None"
                )
            submission = changed
    return submission


# -- the plan of a dry run ---------------------------------------------------------------------------


@unique
class Intent(Enum):
    """What would happen to a job."""

    REUSE = "reused"
    WAIT = "running already"
    RUN = "to run"
    RETRY = "to run again"
    RERUN = "to run once more"
    REFUSE = "refused"
    SKIP = "not needed"

    @property
    def runs(self) -> bool:
        """Whether the job would be started."""
        return self in (Intent.RUN, Intent.RETRY, Intent.RERUN)


class PlannedJob(NamedTuple):
    """One line of a plan."""

    job: Job
    intent: Intent
    why: str
    then: str = ""
    """The tasks that are submitted for each output of the job, and doubts about shared files."""

    def __str__(self) -> str:
        tags = tag_words(self.job.tags)
        name = f"{self.job.task_id} {self.job.job_id[:12]}{' ' * bool(tags)}{tags}"
        return f"{self.intent.value}: {name} ({self.why}{self.then})"


def _followed(job: Job) -> str:
    """The submissions for each output of a job that would run."""
    watchers = job.work.task._state.watchers if isinstance(job.work, TaskWork) else ()
    names = [(method, call.template) for method, call in watchers if isinstance(call, Following)]
    return "".join(f"; then {class_name(one)} for each {method.__name__}" for method, one in names)


def plan_job(machine: Machine, job: Job, validity: Validity, inquiry: Inquiry) -> PlannedJob:
    """What submitting a job would lead to, by its directory and its cluster; writes nothing.

    `inquiry`: asks the clusters that may have the job, for two seconds in all of a plan.
    A job that is done is shown as done, so that a script can read its result while it is planned.
    """
    settled = job_directory.look(machine, job.paths, ask=inquiry)
    found = settled.derived
    arrival = on_arrival(found)
    if arrival is Arrival.REUSE:
        marker = found.marker
        try:
            is_valid = marker is None or validity.is_valid(job, marker)
        except DefaultChanged as refusal:
            return PlannedJob(job, Intent.REFUSE, str(refusal))
        doubt = None if marker is None else validity.judged(job, marker)
        is_sure = doubt is None or doubt.finding is Validness.VALID
        if not is_valid:
            assert marker is not None
            job.rerun_of = marker.nonce
            again = "what it depends on is run again; reused if that has the same result"
            usual = again if job.is_doubtful else "asked for by --rerun"
            return PlannedJob(job, Intent.RERUN, usual if is_sure else f"{doubt}")
        job.marker = marker
        job.state = JobState.DONE
        return PlannedJob(job, Intent.REUSE, "done before" if is_sure else f"done before; {doubt}")
    launch = settled.evidence.launch
    doubt_text = ""
    if isinstance(launch, LaunchRecord):
        job.life = launch.life
        try:
            is_anew = validity.begins_anew(job, launch, runs=arrival is Arrival.ADOPT)
        except DefaultChanged as refusal:
            return PlannedJob(job, Intent.REFUSE, str(refusal))
        doubt_text = "; begins anew" if is_anew and job.retry.resumable else validity.doubt(job)
    if arrival is Arrival.ADOPT:
        return PlannedJob(job, Intent.WAIT, f"another run has started it{doubt_text}")
    if found.state is JobState.ERROR:
        reason = found.reason.name if found.reason else "FAILED"
        return PlannedJob(job, Intent.RETRY, f"failed before ({reason}){doubt_text}")
    return PlannedJob(job, Intent.RUN, "never run")


def without_unneeded(plan: Iterable[PlannedJob]) -> list[PlannedJob]:
    """The plan, in which a transient job runs only if a job that runs depends on it."""
    planned = list(plan)
    needed: set[str] = set()
    for position in range(len(planned) - 1, -1, -1):  # what a job depends on was submitted before it
        job, intent = planned[position][:2]
        if intent.runs and job.transient is not TransientMode.NONE and job.key not in needed:
            planned[position] = PlannedJob(job, Intent.SKIP, "transient, and nothing that runs needs it")
        elif intent.runs:
            needed.update(dependency.origin.key for dependency in job.dependencies)
    return planned


# -- what tasks need prepared ----------------------------------------------------------------------------


_PAUSE_S = 0.1


class Preparations:
    """The configs prepared while an experiment is open; asks the disk once for each config."""

    def __init__(
        self, machine: Machine, say: Callable[[str], None], shared: SharedThings, *, remakes: bool
    ) -> None:
        """`remakes`: data that other code prepared is prepared again."""
        self._machine = machine
        self._shared = shared
        self._remakes = remakes
        self._say = say
        self._done: set[str] = set()
        self.done_here: list[str] = []
        """What this process has done, in order, by type and identity."""

    def prepare(self, task: ConfigBase, layout: Layout, *, really: bool = True) -> None:
        """Does what a task needs prepared, inner configs first, and returns once it is done.

        Raises `DefaultChanged` for data prepared with other values. Without `really` it only looks.
        """
        if not Prepare.__subclasses__():
            return  # most scripts have none, and their tasks need not be searched
        for config in postorder(task, lambda node: node is not task and node._state.job is not None):
            if isinstance(config, Prepare):
                self._prepare(config, layout) if really else self._look(config, layout)

    def _prepare(self, config: Any, layout: Layout) -> None:
        type_id, key = schema_of(type(config)).id, identity(config)
        paths = layout.prepared(type_id, key)
        if paths.directory in self._done:
            return
        name = f"{type_id} {key[:12]}"
        with closing(self._wait_for_lock(paths, name)):
            record = SharedRecord.read(self._machine.files, self._done_file(paths))
            why = self._why_again(config, layout, paths, record)
            if why is not None:
                self._say(f"preparing {name}{why}")
                made = self._execute(config, layout, name, empties=record is not None)
                record = self._record(config, paths, made, record)
                self.done_here.append(name)
            if record is not None:
                self._use(config, record)
        self._done.add(paths.directory)

    def _look(self, config: Any, layout: Layout) -> None:
        """Tell the sources of jobs as if all configs were prepared."""
        paths = layout.prepared(schema_of(type(config)).id, identity(config))
        record = SharedRecord.read(self._machine.files, self._done_file(paths))
        if record is not None:
            record = (
                SharedRecord("new", shared_record(config, "new")) if self._is_old(config, record) else record
            )
            self._use(config, record)

    def _use(self, config: Any, record: SharedRecord) -> None:
        self._shared.use(
            config, self._shared.key(config, PREPARED), record, self._shared.judged(config, record)
        )

    def _is_old(self, config: Any, record: SharedRecord) -> bool:
        """True for what other code prepared, if that is prepared again."""
        return self._remakes and self._shared.judged(config, record).finding is not Validness.VALID

    def _why_again(
        self, config: Any, layout: Layout, paths: PreparedPaths, record: SharedRecord | None
    ) -> str | None:
        """Why a config is to be prepared, in words; None if it is not."""
        if record is None:
            return None if self._is_done(paths) else ""
        if self._is_old(config, record):
            return f" again: {self._shared.judged(config, record)}"
        gone = [name for name in record.fields.get("outputs") or () if not self._is_there(layout, name)]
        return f" again: {gone[0]} is gone" if gone else None

    def _is_there(self, layout: Layout, name: str) -> bool:
        return self._machine.files.stat(os.path.join(layout.root, name)) is not None

    def _execute(self, config: Any, layout: Layout, name: str, *, empties: bool) -> list[str]:
        """Prepare a config; the generated paths that are there after it, in the workspace.

        `empties`: the earlier files are removed first.
        """
        try:
            live = instantiate(config, Path(layout.root))
            for path in generated_paths(live):
                self._machine.files.make_directory(str(path.parent))
                if empties:
                    remove_path(self._machine.files, str(path))
            run_to_end(live.execute())
            made = [os.path.relpath(path, layout.root) for path in generated_paths(live)]
            return [path for path in made if self._is_there(layout, path)]
        except Exception as error:
            raise PreparationFailed(
                f"{name} could not be prepared ({type(error).__name__}: {error}): fix that, and run again; "
                f"nothing that needs it was started"
            ) from error

    def _wait_for_lock(self, paths: PreparedPaths, name: str) -> LockHandle:
        self._machine.files.make_directory(paths.directory)
        said = False
        while (lock := self._machine.locks.try_lock(paths.lock)) is None:
            if not said:
                self._say(f"waiting for {name}, which another process prepares")
                said = True
            time.sleep(_PAUSE_S)
        return lock

    def _is_done(self, paths: PreparedPaths) -> bool:
        return self._machine.files.stat(self._done_file(paths)) is not None

    def _done_file(self, paths: PreparedPaths) -> str:
        return paths.done(self._machine.processes.own().host)

    def _record(
        self, config: Any, paths: PreparedPaths, made: list[str], before: SharedRecord | None
    ) -> SharedRecord:
        """Record that a config is prepared; made again by the same code, it counts as the same."""
        record = shared_record(config, self._machine.randomness.nonce())
        if before is not None and before.fields.get("code") == record["code"]:
            record["life"] = before.life
        host = self._machine.processes.own().host
        record |= {"host": host, "since": self._machine.clock.now().isoformat(timespec="seconds")}
        record["outputs"] = made
        self._machine.files.replace(self._done_file(paths), json.dumps(record).encode(), durable=True)
        return SharedRecord(record["life"], record)
