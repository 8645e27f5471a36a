"""Tasks: configs that can run, and what `.submit()` does before the submitter takes over.
Nothing here starts anything; an open experiment does (see `ports`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from tenuto.errors import GraphError, NoResult, ParameterError, SealedConfig
from tenuto.light import hashlib, late, pathlib
from tenuto.tasks.arguments import check_variable, function, guarded, refused, whole_number
from tenuto.tasks.base import caller, class_name, is_config, state_of
from tenuto.tasks.config import Config, copyconfig, open_parameters
from tenuto.tasks.deprecation import replacement_of
from tenuto.tasks.graph import folder_in, folders, postorder
from tenuto.tasks.hints import Meta, Param, field
from tenuto.tasks.identity import forget_digest
from tenuto.tasks.live import check, note_place, seal
from tenuto.tasks.ports import SubmitOptions, SubmittedJob, current_job, job_context, submitter
from tenuto.tasks.schema import schema_of
from tenuto.tasks.seeds import check_seed, give_seed

C = TypeVar("C", bound=Config)
pickle: Any = late("pickle")
_CHECKPOINT = ".pickle"
_TAKES_MORE = 0x04
"""The flag of a function's code that has ``*args``, as `inspect` names it."""
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Own:
    """What `Task` without brackets returns from `submit()`: the task itself."""


if TYPE_CHECKING:
    import asyncio
    from pathlib import Path
    from typing import Self

    from typing_extensions import TypeVar as DefaultTypeVar

    Out_co = DefaultTypeVar("Out_co", default=Own, covariant=True)
    OwnTask = TypeVar("OwnTask", bound="Task[Own]")
else:
    asyncio = late("asyncio")
    Out_co = TypeVar("Out_co", covariant=True)


class Checkpoint:
    """The states that a task has saved in its directory; an attempt that continues loads the last of them."""

    def __init__(self, directory: Any) -> None:
        self.directory = pathlib.Path(directory)

    def save(self, state: Any, *, keep: int = 1) -> None:
        """Writes a state, whatever can be pickled: whole, on the disk, or not at all.

        `keep`: how many of the last states stay.
        """
        whole_number(keep, "checkpoint.save(keep=)", least=1)
        content = pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
        self.directory.mkdir(exist_ok=True)
        saved = self._saved()
        number = saved[-1] + 1 if saved else 1
        part = self.directory / f"{number}.part"
        with open(part, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(self._path(number))
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        for old in [*saved, number][:-keep]:
            self._path(old).unlink(missing_ok=True)

    def load(self, default: Any = None) -> Any:
        """The state that was saved last; `default` if there is none.

        A state that a damaged disk cut short is passed over, if there is an earlier one.
        """
        saved = self._saved()
        for number in reversed(saved):
            try:
                return pickle.loads(self._path(number).read_bytes())
            except (EOFError, pickle.UnpicklingError):
                if number == saved[0]:
                    raise
        return default

    def _saved(self) -> list[int]:
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            names = os.listdir(self.directory)
        numbers = (name.removesuffix(_CHECKPOINT) for name in names if name.endswith(_CHECKPOINT))
        return sorted(int(number) for number in numbers if number.isdecimal())

    def _path(self, number: int) -> Any:
        return self.directory / f"{number}{_CHECKPOINT}"


class CheckpointOfTask:
    """`self.checkpoint` of a live task. A parameter or method of that name is the class's own."""

    def __get__(self, task: Any, owner: Any) -> Any:
        if task is None:
            return self
        if "checkpoint" in schema_of(type(task)).parameters:
            raise AttributeError("checkpoint")  # its value is elsewhere: asked for next
        if type(task).__is_config__:
            raise AttributeError(f"{class_name(task)}.checkpoint is there once the task runs, in execute()")
        job = current_job.get()
        return Checkpoint(os.path.join(os.getcwd() if job is None else job.path, ".checkpoint"))


_OF_TASK: Any = CheckpointOfTask()  # of no declared type: a class may say what its own is


class Dependency(Protocol):
    """Marks a config as an output: a task that uses it waits for this one."""

    def __call__(self, config: C) -> C:
        """Returns the config, which now depends on the task."""
        ...


class Executed(Protocol[Result_co]):
    """A task whose `execute()` declares its result."""

    def execute(self) -> Result_co:
        """What the job does."""
        ...


class Task(Config, Generic[Out_co]):
    """A config that can run, once: define `execute()`.

    ``Task[Out]`` declares what `task_outputs()`, and so `submit()`, returns.
    """

    __is_task__ = True

    def execute(self) -> Any:
        """The work of the job; its return value is kept as the job's result."""
        raise NotImplementedError(f"{class_name(self)} does not define execute()")

    if TYPE_CHECKING:

        def task_outputs(self, dep: Dependency) -> Out_co:
            """The configs that this task makes, each marked by ``dep``; by default the task itself."""
            ...

    @overload
    def submit(
        self: OwnTask,
        *,
        launcher: Any = ...,
        workspace: Any = ...,
        run_mode: Any = ...,
        init_tasks: Sequence[LightweightTask] = ...,
        max_retries: int | None = ...,
        retry: str | None = ...,
        transient: Any = ...,
        requires: Any = ...,
        priority: int | None = ...,
        seed: int | None = ...,
    ) -> OwnTask: ...
    @overload
    def submit(
        self: Task[Result],
        *,
        launcher: Any = ...,
        workspace: Any = ...,
        run_mode: Any = ...,
        init_tasks: Sequence[LightweightTask] = ...,
        max_retries: int | None = ...,
        retry: str | None = ...,
        transient: Any = ...,
        requires: Any = ...,
        priority: int | None = ...,
        seed: int | None = ...,
    ) -> Result: ...
    def submit(
        self,
        *,
        launcher: Any = None,
        workspace: Any = None,
        run_mode: Any = None,
        init_tasks: Sequence[LightweightTask] = (),
        max_retries: int | None = None,
        retry: str | None = None,
        transient: Any = None,
        requires: Any = None,
        priority: int | None = None,
        seed: int | None = None,
    ) -> Any:
        """Hands the task to the open experiment, which runs it once, and returns its output at once.

        `launcher`: starts the job; also by its name. `workspace`: another one than the experiment's.
        `run_mode`: another mode than the experiment's; see `RunMode`. `init_tasks`: lightweight tasks that
        run in the job's process first. `max_retries`: how often a resumable task is started again after a
        timeout. `retry`: after which causes the job gets further attempts, and what grows for them, as in
        ``"memory: mem*2 to 32G; failed: 1 after 30s"``, in place of the ``__retry__`` of its class.
        `transient`: run only if another job needs it; see `TransientMode`. `requires`: what the job needs, as
        in ``"duration=2h & cpu(cores=4)"``, in place of the ``__requires__`` of its class; see
        docs/requirements.md for both. `priority`: of the jobs that could start, those with the highest start
        first; in place of the ``__priority__`` of its class. `seed`: of the random numbers of its job, which
        counts for the identity; sets its parameter ``__seed__`` where it has one; see docs/experiments.md.
        """
        target = submitter()
        _set_init_tasks(self, init_tasks)
        if seed is not None:
            give_seed(self, seed)
        check_seed(self)
        state = state_of(self)
        for method, _ in state.watchers:
            _check_output(self, method)
        seal(self, to_run=True)
        submission = SubmitOptions(
            launcher, workspace, run_mode, max_retries, retry, transient, requires, priority
        )
        if type(self).__schema__.replacement is not None:  # type: ignore[attr-defined]
            return self._submit_successor(submission)
        job = target.submit(self, submission)
        is_known, state.job = job is state.job, job
        for node, folder in folders(self):
            note_place(node, self, folder)
        if not is_known:
            for method, callback in state.watchers:
                job.watch_output(method, callback)
            for completed in state.completion_callbacks:
                job.on_completed(completed)
        return _outputs(self)

    def _submit_successor(self, submission: SubmitOptions) -> Any:
        """Submits what a task of a deprecated class stands for, and becomes the same job."""
        state = state_of(self)
        if state.successor is None:
            state.successor = replacement_of(self)
        new: Any = state.successor
        new.submit(**submission._asdict(), init_tasks=new._state.init_tasks)
        state.job = new.job
        for node, folder in folders(self):
            note_place(node, self, folder)
        return _outputs(self)

    @property
    def job(self) -> SubmittedJob:
        """The job that this task became."""
        job = state_of(self).job
        if job is None:
            raise GraphError(f"{class_name(self)} was not submitted, so it has no job, at {caller()}")
        return job

    @property
    def jobpath(self) -> Path:
        """The directory of the job."""
        return self.job.path

    def stdout(self) -> Path:
        """The file with what the job prints.

        A job that is done keeps no empty file: asked for after that, it is made again; asked for before, it
        may be gone.
        """
        return self.job.stdout

    def stderr(self) -> Path:
        """The file with what the job prints to standard error, as `stdout()`."""
        return self.job.stderr

    def result(self: Executed[Result]) -> Result:
        """What the job returned.

        In a script it waits for the job. In `execute()` of a task that depends on this one, as in
        ``self.trained.result()``, the job is done already. `NoResult` says why there is none.
        """
        task: Any = self
        is_config = type(task).__is_config__
        if is_config and task._state.job is None:
            raise NoResult(f"{class_name(task)} has no result, at {caller()}: submit it first")
        job = task.job if is_config else getattr(task, "_state", None)
        if job is None:
            raise NoResult(
                f"this {class_name(task)} has no result: only a task that was submitted before, and given to "
                f"this one as a parameter, has one here"
            )
        return job.result()  # type: ignore[no-any-return]

    def wait(self) -> Any:
        """Blocks until the job reached a final state, and returns that state."""
        return self.job.wait()

    @guarded
    def watch_output(self, method: Callable[..., Any] | str, callback: Callable[..., Any]) -> None:
        """Calls back with each output that the running task registers through `method`, or that of a name.

        ``callback(output)``, or with a parameter of that name ``callback(output, key)``: the key stays the
        same when, after a restart, the output is handed over again.
        """
        state = state_of(self)
        method = getattr(self, method) if isinstance(method, str) else method
        _check_output(self, method)
        function(callback, "watch_output(callback)")
        if state.job is not None:
            state.job.watch_output(method, callback)
        state.watchers = (*state.watchers, (method, callback))

    @guarded
    def on(self, output: Callable[..., Any] | str, task: Any, **given: Any) -> Self:
        """Has a task submitted for each output that this one registers through `output` while it runs.

        ``net.on(net.checkpoint, Evaluate, data=test)`` submits ``Evaluate.C(data=test)`` with the output in
        the one parameter that accepts it, and returns `net`. `given`: parameter -> value of `task`.
        """
        if not isinstance(task, type) or not issubclass(task, Task):
            raise refused("on(task)", "a class of tasks, such as Evaluate", task)
        following = Following(task.C(**given))
        _check_follower(following.template)
        self.watch_output(output, following)
        return self

    @guarded
    def needs(self, token: Any, count: int = 1) -> Self:
        """Has the task hold `count` units of a `token` while it runs; returns the task."""
        if not callable(getattr(token, "dependency", None)):
            raise refused("needs(token)", "a token, such as xp.token(name, count)", token)
        self.add_dependencies(token.dependency(count))
        return self

    checkpoint = _OF_TASK
    """In `execute()`: ``self.checkpoint.save(state)`` and ``.load()``; see `Checkpoint`.

    A class may have a parameter or method of this name instead.
    """

    def on_completed(self, callback: Callable[..., Any]) -> None:
        """Calls back once the job is done: with the job, unless the callback takes no argument."""
        state = state_of(self)
        function(callback, "on_completed()")
        if state.job is not None:
            state.job.on_completed(callback)
        state.completion_callbacks = (*state.completion_callbacks, callback)

    @property
    def job_attempt(self) -> int:
        """In the job: the number of this try, from 1."""
        return job_context().attempt

    def remaining_time(self) -> float | None:
        """In the job: seconds until the launcher stops it; None without a limit."""
        return job_context().remaining_time()


class Following:
    """Submits a task for each output that it is called with."""

    def __init__(self, template: Task[Any]) -> None:
        self.template = template

    def __call__(self, output: Any) -> None:
        (self.template @ output).submit()


def _check_follower(template: Task[Any]) -> None:
    """The output goes into one open parameter: all others must have a value when it comes."""
    takes = open_parameters(template)
    missing = [name for name in schema_of(type(template)).required if name not in template.__dict__]
    if not takes or len(missing) > 1 or not {*missing} <= {*takes}:
        problem = f"lacks {', '.join(missing)}" if missing else "has no open parameter that holds a config"
        raise ParameterError(
            f"on(): {class_name(template)} {problem}, at {caller()}: give all but the one for the output"
        )


class ResumableTask(Task[Out_co]):
    """A task that can continue where it stopped: after a timeout it is started again in its directory."""

    __is_resumable__ = True


class LightweightTask(Config):
    """Work done inside another task's job before it (see ``init_tasks``): define `execute()`."""

    def execute(self) -> None:
        """The work before the task."""
        raise NotImplementedError(f"{class_name(self)} does not define execute()")


class Prepare(LightweightTask):
    """Work done once on the machine that submits, such as a download, before any job needs it.

    Define `execute()`. Tasks have it as a parameter, or among their ``init_tasks``; its generated paths lie
    in a directory that all of them share.
    """

    __is_prepare__ = True


class InputFile(Config):
    """A file given to a `CommandTask`: counted by its content, wherever it lies."""

    sha256: Param[str]
    source: Meta[pathlib.Path]


@guarded
def input_file(path: Path | str) -> InputFile:
    """An `InputFile` for the file at a path on this machine; `ParameterError` if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ParameterError(
            f"the input file {path} cannot be read ({error.strerror}), at {caller()}"
        ) from None
    return InputFile.C(sha256=content, source=pathlib.Path(path).resolve())


def run_to_end(returned: Any) -> Any:
    """The return value of `execute()`: an ``async def`` runs to its end in a loop of its own.

    `TypeError` for a generator, of which no line has run.
    """
    if hasattr(returned, "cr_frame"):
        return asyncio.run(returned)
    if hasattr(returned, "gi_frame") or hasattr(returned, "ag_frame"):
        raise TypeError("execute() is a generator, of which no line has run: return the result instead")
    return returned


class CommandTask(Task):
    """A program to run as a job, with no Python of the user's in it."""

    command: Param[list[str]]
    """The program and its arguments."""
    files: Param[dict[str, InputFile]] = field(default_factory=dict)
    """What the job directory holds when the program starts, by name."""
    environment: Param[dict[str, str]] = field(default_factory=dict)
    """Variables added to the environment."""
    key: Param[str] = ""
    """An id of the caller's: two equal commands with different keys are two jobs."""

    def __validate__(self) -> None:
        if not self.command or not self.command[0]:
            raise ValueError("command is empty: give the program and its arguments")
        for name, value in self.environment.items():
            check_variable(name, value)
        for name in self.files:
            parts = pathlib.Path(name).parts
            if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
                raise ValueError(f"the file name {name!r} must be relative and stay in the job's directory")


def _set_init_tasks(task: Task[Any], init_tasks: Sequence[LightweightTask]) -> None:
    state = state_of(task)
    try:
        given = tuple(init_tasks)
    except TypeError:
        raise refused("submit(init_tasks=)", "a list of LightweightTask configs", init_tasks) from None
    for position, init_task in enumerate(given):
        if not (is_config(init_task) and isinstance(init_task, LightweightTask)):
            raise ParameterError(
                f"init_tasks[{position}] of {class_name(task)} must be a LightweightTask config, "
                f"at {caller()}"
            )
        check(init_task)
    if given == state.init_tasks:
        return
    if state.sealed:
        raise SealedConfig(
            f"{class_name(task)} was submitted before with other init_tasks, at {caller()}: "
            f"submit a copy, made by copyconfig(task)"
        )
    forget_digest(state)
    state.init_tasks = given


def _check_output(task: Any, method: Any) -> None:
    """Refuses what the running task cannot register outputs through."""
    owner, body = getattr(method, "__self__", None), getattr(method, "__func__", None)
    code = getattr(body, "__code__", None)
    takes_dep = code is not None and (code.co_argcount > 1 or bool(code.co_flags & _TAKES_MORE))
    is_own = code is not None and str(body.__module__).partition(".")[0] != "tenuto"
    if not (is_own and takes_dep and any(node is owner for node in postorder(task, lambda _: False))):
        raise refused(
            f"watch_output(method) of {class_name(task)}",
            "a method of this task, or of a config in it, that makes an output: `def name(self, dep, ...)`",
            method,
        )


def _outputs(task: Any) -> Any:
    task_outputs = getattr(type(task), "task_outputs", None)
    if task_outputs is None:
        return task

    return task_outputs(task, lambda config: _marked(config, task))


class MadeMeanwhile:
    """Spares submissions a walk through their configs."""

    is_used = False
    """This process was handed an output of a running task."""


def made_meanwhile(task: Any) -> Dependency:
    """Marks what a running task has made: it counts as the task's output, but does not wait for the task."""

    def dep(config: C) -> C:
        marked = _marked(config, task)
        state_of(marked).is_there = MadeMeanwhile.is_used = True
        return marked

    return dep


def _marked(config: C, task: Any) -> C:
    if not state_of(config).sealed:
        forget_digest(state_of(config))
        state_of(config).origin = task
        return config
    given = copyconfig(config)  # a part of the task itself: what the task made of it is another
    state = state_of(given)
    state.origin = task
    folder = folder_in(task, config)
    if folder is not None:
        state.is_given_out, state.generated_in = True, (task, folder)
    return given
