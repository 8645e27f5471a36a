"""From a sealed task to a job: where it is kept, what it waits for, how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from tenuto.clock import Clock
from tenuto.errors import ClassNotFound, DeclarationError, ParameterError, TokenError, UnsubmittedTask
from tenuto.jobs.former import FormerJobs
from tenuto.jobs.key import JobKey
from tenuto.launchers.instructions import CarbonPlan, Limits
from tenuto.launchers.protocols import Launcher
from tenuto.lifecycle.states import TransientMode
from tenuto.scheduler.decisions import RetryLimits
from tenuto.scheduler.entries import JobDependency
from tenuto.scheduler.jobs import Job, Reuse
from tenuto.scheduler.tokens import CounterToken, GpuToken, TokenDependency
from tenuto.scheduler.work import TaskWork
from tenuto.tasks.arguments import refused
from tenuto.tasks.base import ConfigBase, caller, class_name, is_config, state_of
from tenuto.tasks.identity import identity
from tenuto.tasks.live import live_class
from tenuto.tasks.location import known_file, locate
from tenuto.tasks.ports import SubmitOptions
from tenuto.tasks.schema import schema_of
from tenuto.tasks.tags import tags
from tenuto.tasks.task import CommandTask, Task
from tenuto.workspace.classes import claim_task_id
from tenuto.workspace.layout import Layout
from tenuto.workspace.markers import Durability
from tenuto.workspace.ports import Files


class Placement(NamedTuple):
    """The launcher of a job, and what it gets there."""

    launcher: Launcher
    limits: Limits
    environment: Mapping[str, str] = {}
    """Variables for the job, unless the experiment sets them."""
    slots: int = 1
    tokens: tuple[TokenDependency, ...] = ()


class Defaults(NamedTuple):
    """What holds for a job unless its submission says otherwise."""

    launcher: Launcher
    limits: Limits
    place: Callable[[Any, SubmitOptions, Mapping[str, str]], Placement] | None = None
    """Finds the place of a task that has a requirement; None: requirements are not looked at."""
    max_retries: int = 3
    max_lost_retries: int | None = None
    """None: once for a resumable task, never for another."""
    carbon_plan: CarbonPlan | None = None
    durability: Durability = Durability.MARKER
    reuse: Reuse | None = None
    """Judges jobs that are found done."""
    former: FormerJobs | None = None
    """Finds jobs of tasks whose class was renamed; None: they are not looked for."""


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
    if type(task).execute is Task.execute and not isinstance(task, CommandTask):
        raise DeclarationError(
            f"{class_name(task)} has no execute(), so there is nothing to run, at {caller()}: define it"
        )
    resumable = getattr(type(task), "__is_resumable__", False)
    lost = defaults.max_lost_retries
    has_requirement = submission.requires is not None or getattr(type(task), "__requires__", None) is not None
    if defaults.place is None or not has_requirement:
        placed = Placement(submission.launcher or defaults.launcher, defaults.limits)
    else:
        placed = defaults.place(task, submission, environment)
    key = JobKey(schema_of(type(task)).id, identity(task))
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
        ),
        priority=_priority(task, submission),
        once=once,
        durability=defaults.durability,
        transient=submission.transient or TransientMode.NONE,
        tags=tags(task),
        carbon_plan=defaults.carbon_plan,
    )
    job.reuse = defaults.reuse
    return job


def _priority(task: Any, submission: SubmitOptions) -> int:
    given: Any = submission.priority
    said = "submit(priority=)"
    if given is None:
        given, said = getattr(type(task), "__priority__", 0), f"{type(task).__name__}.__priority__"
    if type(given) is not int:
        raise ParameterError(f"{said} is a whole number, such as 1 or -1, not {given!r:.60}")
    return given


def check_script(files: Files, layout: Layout, task: Any) -> None:
    """Refuses a class if another file, of a module of the same name, has its task id in this workspace.

    A class of an installed module is told apart by its module's name, and one with an ``__xpmid__`` by that.
    """
    cls = live_class(type(task))
    if "__xpmid__" in cls.__dict__:
        return
    file = known_file(cls)
    if "-packages/" in file:
        return
    other = claim_task_id(files, layout, schema_of(cls).id, file)
    if other is not None:
        raise ClassNotFound(
            f"{cls.__qualname__} of {file} would share its results with the class of the same name "
            f"in {other}: rename one of the files, or give one class an id of its own, as in "
            f'__xpmid__ = "my.{cls.__qualname__.lower()}"'
        )


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
