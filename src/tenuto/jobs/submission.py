"""From a sealed task to a job: its directory, its dependencies, its launcher.
A job that was done under the name that its task had before a renaming is moved to its place of now.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.clock import Clock
from tenuto.errors import ParameterError, TenutoError, TokenError, UnsubmittedTask
from tenuto.jobs.directories import JobActed, MovedJobs, is_real_directory
from tenuto.jobs.key import JobKey
from tenuto.jobs.source import ActedAs
from tenuto.launchers.instructions import CarbonPlan, Limits
from tenuto.launchers.protocols import Launcher
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.light import late
from tenuto.scheduler.decisions import NO_RULES, Allowance, RetryLimits, RetryRules
from tenuto.scheduler.entries import JobDependency
from tenuto.scheduler.jobs import Job, Reuse, TaskWork, limits_under
from tenuto.scheduler.tokens import CounterToken, GpuToken, TokenDependency
from tenuto.tasks.arguments import refused
from tenuto.tasks.base import ConfigBase, caller, class_name, is_config, state_of
from tenuto.tasks.deprecation import former_keys
from tenuto.tasks.graph import postorder
from tenuto.tasks.identity import identity
from tenuto.tasks.live import live_class
from tenuto.tasks.location import locate
from tenuto.tasks.ports import SubmitOptions
from tenuto.tasks.schema import schema_of
from tenuto.tasks.tags import tags
from tenuto.tasks.task import CommandTask, MadeMeanwhile, Task
from tenuto.workspace import job_directory
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.markers import Durability
from tenuto.workspace.ports import FileKind, Files, Machine

_LARGEST = 64 << 20
_READS_EACH_S = 0.05
"""Between two looks at which jobs were moved."""
_LINKED = ("done", "out", "err", "py")
"""What a job's directory has under the name of its task, and is wanted under both."""


class FormerJobs:
    """Finds jobs of renamed tasks for one experiment."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._moved: dict[str, tuple[MovedJobs, float]] = {}
        """By workspace, and until when what was read of it is believed."""
        self.found: dict[JobKey, JobKey] = {}
        """By the key of a job that is reused, the key that it would have now."""

    def key(self, layout: Layout, task: Any, now: JobKey) -> JobKey:
        """The key of the job to use for a task: a former one if it is done, and the present one is not."""
        others = [JobKey(*one) for one in former_keys(task)]
        moved, until = self._moved.get(layout.root) or (MovedJobs(self._machine.files, layout), 0.0)
        if (at := self._machine.clock.monotonic()) >= until:
            moved.read()
            self._moved[layout.root] = moved, at + _READS_EACH_S
        if now in moved.known:  # the script is from before, or the task has its former name again
            others.append(moved.present(now))
        for other in others:
            if other != now and self._is_done(layout.job(*other)) and not self._is_done(layout.job(*now)):
                self.found[other] = now
                return other
        return now

    def record(self, layout: Layout, task: Any, job: Job) -> None:
        """Write down where a job is to be moved, and with which parameters, for `tenuto clean --renamed`."""
        former = JobKey(job.task_id, job.job_id)
        now = self.found.get(former)
        if now is None:
            return
        paths = layout.job(*now)
        params = TaskWork(task, {}).params(layout, paths)
        content = {"task": former.task_id, "job": former.job_id, "params": params.decode()}
        self._machine.files.make_directory(layout.renamed)
        self._machine.files.replace(
            layout.renamed_job(*now), json.dumps([now.task_id, now.job_id, content]).encode(), durable=False
        )

    def _is_done(self, paths: JobPaths) -> bool:
        files = self._machine.files
        return files.stat(paths.done) is not None and is_real_directory(files, paths.directory)


class PlannedMove(NamedTuple):
    """A job that is to be found under the present name of its task."""

    former: JobKey
    now: JobKey
    params: bytes
    record: str


def planned_moves(machine: Machine, layout: Layout) -> Iterator[PlannedMove]:
    """The moves that experiments wrote down."""
    try:
        names = machine.files.list(layout.renamed)
    except FileNotFoundError:
        return
    for name in sorted(names):
        file = f"{layout.renamed}/{name}"
        try:
            task, job, content = json.loads(machine.files.read(file, _LARGEST))
            former = JobKey(content["task"], content["job"])
            yield PlannedMove(former, JobKey(task, job), content["params"].encode(), file)
        except (OSError, TenutoError, ValueError, KeyError, TypeError):
            machine.files.remove(file)  # torn, or not ours: the next run writes it again


def move(machine: Machine, layout: Layout, one: PlannedMove, *, really: bool) -> JobActed:
    """Move the directory of a job, and leave a link: runs from before, and jobs that used it, find it.

    A move that was cut short is gone on with by the next one: its record is removed last.
    """
    files = machine.files
    old, new = layout.job(*one.former), layout.job(*one.now)
    moved = JobActed(one.former, ActedAs.MOVED, f"to {one.now}")
    there, place = files.stat(old.directory), files.stat(new.directory)
    if there is None and place is not None and MovedJobs(files, layout).present(one.former) == one.now:
        if really:  # killed before it left the link
            _leave_link(files, new.directory, old.directory)
            files.remove(one.record)
        return moved
    if there is None or there.kind is not FileKind.DIRECTORY:
        files.remove(one.record)
        return JobActed(one.former, ActedAs.GONE, "it has no directory any more")
    is_back = place is not None and place.kind is FileKind.LINK  # it has a former name of its own again
    if place is not None and not is_back:
        return JobActed(one.former, ActedAs.IN_USE, f"{one.now} is there already: remove one of the two")
    if not really:
        return JobActed(one.former, ActedAs.WOULD_MOVE, f"to {one.now}")
    lock = job_directory.take_lock(machine, old)
    if lock is None:
        return JobActed(one.former, ActedAs.IN_USE, "it is locked: it runs, or is about to")
    with closing(lock):
        if job_directory.look(machine, old).derived.state is not JobState.DONE:
            return JobActed(one.former, ActedAs.REFUSED, "it is not done any more")
        for kind in _LINKED:
            source = f"{old.directory}/{old.script_name}.{kind}"
            target = f"{old.directory}/{new.script_name}.{kind}"
            if files.stat(source) is not None and files.stat(target) is None:
                files.link(source, target)
        files.replace(old.params, one.params, durable=True)
        files.make_directory(layout.task(one.now.task_id))
        MovedJobs(files, layout).note(one.former, one.now)
        if is_back:
            files.remove(new.directory)
        files.rename(old.directory, new.directory)
        _leave_link(files, new.directory, old.directory)
    files.remove(one.record)
    return moved


def _leave_link(files: Files, directory: str, former: str) -> None:
    """Relative, so that it holds where the workspace is moved to."""
    files.symlink(os.path.relpath(directory, os.path.dirname(former)), former)


class Placement(NamedTuple):
    """The launcher of a job, and its share there."""

    launcher: Launcher
    limits: Limits
    environment: Mapping[str, str] = {}
    """Variables for the job, unless the experiment sets them."""
    slots: int = 1
    tokens: tuple[TokenDependency, ...] = ()
    asked: str = ""
    """The alternative of the requirement that it satisfies."""


class Defaults(NamedTuple):
    """What holds for a job unless its submission says otherwise."""

    launcher: Launcher
    limits: Limits
    place: Callable[[Any, SubmitOptions, Mapping[str, str]], Placement] | None = None
    """Finds the place of a task that has a requirement; None: requirements are not looked at."""
    max_retries: int = 3
    max_lost_retries: int | None = None
    """None: once for a resumable task, never for another."""
    retry: str | None = None
    """The retry rules of a task that has none of its own."""
    needs_used: Callable[[Layout, str], Allowance] | None = None
    """What done jobs of a task used, so that its next ones begin with that; None: nothing is learned."""
    carbon_plan: CarbonPlan | None = None
    durability: Durability = Durability.MARKER
    reuse: Reuse | None = None
    """Judges jobs that are found done."""
    former: FormerJobs | None = None
    """Finds jobs of tasks whose class was renamed; None: they are not looked for."""
    threads: Mapping[str, str] = {}
    """Variables that hold a job on this machine to one core, where it asks for no more."""


if TYPE_CHECKING:
    from tenuto.jobs import retry_rules
else:
    retry_rules = late("tenuto.jobs.retry_rules")

NO_NEEDS = Allowance()

_retry_limits = lru_cache(RetryLimits)
"""Most jobs of an experiment share one."""


def make_job(
    task: Any,
    submission: SubmitOptions,
    *,
    layout: Layout,
    defaults: Defaults,
    environment: Mapping[str, str],
    clock: Clock,
    once: bool = False,
) -> Job:
    """The job of a sealed task; refuses a task that no other process could find.

    `environment`: variables added to that of the job's process. `once`: whatever attempt the directory shows
    is the answer, and none is opened after it.
    """
    locate(live_class(type(task)))
    resumable = getattr(type(task), "__is_resumable__", False)
    lost = defaults.max_lost_retries
    has_requirement = submission.requires is not None or getattr(type(task), "__requires__", None) is not None
    if defaults.place is None or not has_requirement:
        launcher = submission.launcher or defaults.launcher
        is_free = launcher.external or "OMP_NUM_THREADS" in environment
        placed = Placement(launcher, defaults.limits, {} if is_free else defaults.threads)
    else:
        placed = defaults.place(task, submission, environment)
    rules = _rules(task, submission, defaults, placed)
    needs = NO_NEEDS if rules is NO_RULES else _needs(placed)
    key = JobKey(schema_of(type(task)).id, identity(task))
    if defaults.needs_used is not None and rules is not NO_RULES:
        needs = retry_rules.begun_with(rules, needs, defaults.needs_used(layout, key.task_id))
    if defaults.former is not None:
        key = defaults.former.key(layout, task, key)
    job = Job(
        *key,
        layout=layout,
        launcher=placed.launcher,
        work=TaskWork(task, {**placed.environment, **environment} if placed.environment else environment),
        clock=clock,
        dependencies=dependencies_of(task),
        tokens=_tokens(task, placed),
        limits=placed.limits,
        slots=placed.slots,
        retry=_retry_limits(
            resumable,
            defaults.max_retries if submission.max_retries is None else submission.max_retries,
            int(resumable) if lost is None else lost,
            once,
            rules,
            needs,
        ),
        priority=_priority(task, submission),
        once=once,
        durability=defaults.durability,
        transient=submission.transient or TransientMode.NONE,
        tags=tags(task),
        carbon_plan=defaults.carbon_plan,
    )
    job.reuse, job.asked = defaults.reuse, placed.asked
    if MadeMeanwhile.is_used:
        job.uses = _sources(task)
    return job


def _rules(task: Any, submission: SubmitOptions, defaults: Defaults, placed: Placement) -> RetryRules:
    """The retry rules of a task: of its submission, else of its class, else of the settings."""
    given, said = submission.retry, "submit(retry=)"
    if given is None:
        given, said = getattr(type(task), "__retry__", None), f"{class_name(task)}.__retry__"
    if given is None:
        given, said = defaults.retry, "the setting retry"
    if given is None:
        return NO_RULES
    rules = retry_rules.read_rules(given, said)
    if rules.timeout is not None and submission.max_retries is not None:
        raise ParameterError(
            f"{class_name(task)}: {said} says what follows a timeout, and submit(max_retries=) does too: "
            "leave one of them out"
        )
    retry_rules.check_growth(rules, _needs(placed), said)
    return retry_rules.held_rules(rules, placed.launcher, class_name(task))


def _needs(placed: Placement) -> Allowance:
    """What the first attempt of a placed job may use."""
    limits = limits_under(placed.launcher, placed.limits)
    return Allowance(limits.memory_bytes, limits.walltime_s)


def _sources(task: ConfigBase) -> tuple[str, ...]:
    """The ids of the jobs whose outputs, handed over while they ran, a task uses."""
    inside = postorder(task, lambda node: node is not task and node._state.job is not None)
    found = (node._state.origin._state.job for node in inside if node._state.is_there and node._state.origin)
    return tuple(dict.fromkeys(job.job_id for job in found if isinstance(job, Job)))


def can_run(task: Any) -> bool:
    """True if a task has something to run."""
    return type(task).execute is not Task.execute or isinstance(task, CommandTask)


def _priority(task: Any, submission: SubmitOptions) -> int:
    given: Any = submission.priority
    said = "submit(priority=)"
    if given is None:
        given, said = getattr(type(task), "__priority__", 0), f"{type(task).__name__}.__priority__"
    if type(given) is not int:
        raise ParameterError(f"{said} is a whole number, such as 1 or -1, not {given!r:.60}")
    return given


def dependencies_of(task: ConfigBase) -> list[JobDependency]:
    """The jobs a task waits for: those in its parameters, and those added by hand."""
    state = state_of(task)
    needed: list[Any] = [upstream._state.job for upstream in state.upstream or ()]
    needed += [job for one in state.required if (job := _job_of(task, one)) is not None]
    return [JobDependency(job) for job in dict.fromkeys(needed) if isinstance(job, Job)]


def tokens_of(task: ConfigBase) -> list[TokenDependency]:
    """The tokens of which a task holds units while it runs."""
    required = state_of(task).required
    for one in required:
        if isinstance(one, CounterToken):
            raise TokenError(f"how much of {one!r}? Add {one.name}.dependency(n), for n units of it")
    return [one for one in required if isinstance(one, TokenDependency)]


def _tokens(task: ConfigBase, placed: Placement) -> list[TokenDependency]:
    """The tokens of a placed task; GPUs that it asked for by a token of its own are not asked for again."""
    own = tokens_of(task)
    has_gpus = any(isinstance(one.token, GpuToken) for one in own)
    if has_gpus and placed.launcher.external:
        raise TokenError(
            "the GPUs of gpu_token() are those of this machine, and the job runs elsewhere: "
            'say what it needs by __requires__ = "cuda", or requires="cuda*2"'
        )
    return own if has_gpus else [*own, *placed.tokens]


def _job_of(task: ConfigBase, required: Any) -> Job | None:
    """The job of a dependency that was added by hand; None for units of a token."""
    if isinstance(required, TokenDependency | CounterToken):
        return None
    if isinstance(required, JobDependency):
        return required.origin
    found = required._state.job if is_config(required) else required
    if found is None:
        raise UnsubmittedTask(
            f"{class_name(task)} is to wait for the task {class_name(required)} (by add_dependencies), which "
            f"was not submitted, at {caller()}: submit that first"
        )
    if not isinstance(found, Job):
        raise refused(f"add_dependencies() of {class_name(task)}", "tasks, jobs or units of tokens", required)
    return found
