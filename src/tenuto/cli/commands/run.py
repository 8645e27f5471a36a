"""`tenuto run`."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tenuto.cli import exit_codes
from tenuto.cli.completions import complete_files
from tenuto.cli.console import print_json
from tenuto.cli.detach import Handshake, detach_option, handshake_option, start_detached
from tenuto.cli.options import given_without, impose_notify, notify_option
from tenuto.cli.problems import remedy_of, tell_problem
from tenuto.cli.program import called_as, short_path
from tenuto.cli.session import (
    Request,
    Session,
    is_yaml,
    let_go_of_closed_streams,
    open_progress,
    output_for_json,
    tell,
)
from tenuto.errors import TenutoError
from tenuto.experiments.checked_arguments import RunMode
from tenuto.experiments.display import tag_text
from tenuto.experiments.overview import Durations, ForecastJob, makespan
from tenuto.experiments.submissions import Intent, PlannedJob
from tenuto.jobs.driver_command import imposed_command
from tenuto.jobs.key import JobKey
from tenuto.jobs.nearest import Nearest, nearest_earlier
from tenuto.jobs.parameters import plain_side
from tenuto.jobs.query import read_question
from tenuto.jobs.text import duration, safe
from tenuto.scheduler.jobs import Job, TaskWork
from tenuto.tasks.arguments import text
from tenuto.tasks.hints import Role
from tenuto.tasks.schema import schema_of
from tenuto.tasks.serialization import PARAMS_FILE, loads
from tenuto.workspace.layout import Layout, name_of_directory
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Files

if TYPE_CHECKING:
    from tenuto.experiments.experiment import experiment

_LARGEST = 4 << 20
_MOST_TASKS = 300
_MOST_JOBS = 5


def renamed_from(files: Files, job: Job, planned: set[str]) -> str | None:
    """The task id that a task without earlier jobs may have had; None if no task has the same parameters.

    `planned`: task ids that are still in use. Of several that fit, one whose class has the same name wins.
    """
    if not isinstance(job.work, TaskWork):
        return None
    parameters = schema_of(type(job.work.task)).parameters.values()
    names = frozenset(one.name for one in parameters if one.role is not Role.CONSTANT)
    own = job.task_id.rpartition(".")[2]
    fitting = [
        task_id
        for task_id, stored in _tasks(files, job.layout).items()
        if task_id not in planned and stored == names and names
    ]
    return max(fitting, key=lambda task_id: task_id.rpartition(".")[2] == own, default=None)


def _tasks(files: Files, layout: Layout) -> Mapping[str, frozenset[str]]:
    """The tasks of a workspace, with the names of the parameters of one of their jobs."""
    found: dict[str, frozenset[str]] = {}
    for folder in _listed(files, f"{layout.root}/jobs")[:_MOST_TASKS]:
        task_id = name_of_directory(folder)
        if task_id is None:
            continue
        for job_id in _listed(files, layout.task(task_id))[:_MOST_JOBS]:
            names = _stored_names(files, layout, JobKey(task_id, job_id))
            if names is not None:
                found[task_id] = names
                break
    return found


def _stored_names(files: Files, layout: Layout, key: JobKey) -> frozenset[str] | None:
    try:
        read: dict[str, Any] = loads(files.read(layout.job(*key).params, _LARGEST), PARAMS_FILE)
        root = read["objects"][read["value"]["$ref"]]
        return frozenset([*root.get("values", {}), *root.get("generated", {})])
    except (OSError, TenutoError, LookupError, TypeError, json.JSONDecodeError):
        return None


def _listed(files: Files, directory: str) -> list[str]:
    try:
        return sorted(files.list(directory))
    except OSError:
        return []


SHOWN = {
    Intent.REFUSE: 10,
    Intent.RUN: 30,
    Intent.RETRY: 30,
    Intent.RERUN: 30,
    Intent.WAIT: 10,
    Intent.REUSE: 10,
    Intent.SKIP: 3,
}
METHOD = "median time of earlier jobs of each task, in the order of the dependencies"


class Prediction(NamedTuple):
    """How long it would take, and for how many jobs the past does not tell."""

    seconds: float
    slots: int
    unknown: Counter[str]
    """Jobs of tasks that never ran, by task."""


class Plan(NamedTuple):
    """An experiment that was planned, with all that is to be said of it."""

    name: str
    workspace: str
    jobs: tuple[PlannedJob, ...]
    nearest: dict[str, Nearest]
    prediction: Prediction
    renamed: Mapping[str, str] = {}
    """Tasks that have no job yet, and the ids that they may have had before."""

    def counted(self) -> Counter[Intent]:
        """How many jobs there are of each kind."""
        return Counter(planned.intent for planned in self.jobs)

    def why(self, planned: PlannedJob) -> str:
        """Why this job would run, or would not, and what would follow."""
        return self._reason(planned) + planned.then

    def _reason(self, planned: PlannedJob) -> str:
        if planned.intent is not Intent.RUN:
            return planned.why
        near = self.nearest.get(planned.job.key)
        if near:
            return str(near)
        former = self.renamed.get(planned.job.task_id)
        if former is None:
            return "the first of its task here"
        return (
            f"the first of its task here; {former} has the same parameters: if it was renamed or moved, "
            f'keep its results by @deprecate, or by __xpmid__ = "{former}" (docs/valid.md)'
        )

    def lines(self, *, everything: bool = False) -> Iterator[str]:
        """For people."""
        counted = self.counted()
        parts = [f"{counted[intent]} {intent.value}" for intent in SHOWN if counted[intent]]
        yield f"{safe(self.name)} in {safe(self.workspace)}: {', '.join(parts) or 'no jobs'}"
        for intent, most in SHOWN.items():
            jobs = [planned for planned in self.jobs if planned.intent is intent]
            for planned in jobs if everything else jobs[:most]:
                job = planned.job
                name = f"{safe(job.task_id)} {job.job_id[:12]}{tag_text(job.tags, ' ')}"
                yield f"  {intent.value}: {name}: {safe(self.why(planned))}"
            if len(jobs) > most and not everything:
                yield f"  {intent.value}: and {len(jobs) - most} more (--all shows them)"
        yield from self._predicted(counted)

    def _predicted(self, counted: Counter[Intent]) -> Iterator[str]:
        if not any(intent.runs for intent in counted.elements()):
            yield "nothing would run"
            return
        unknown = self.prediction.unknown
        if unknown.total() < sum(intent.runs for intent in counted.elements()):
            took = duration(self.prediction.seconds)
            yield f"predicted time: {took}, {self.prediction.slots} jobs at once ({METHOD})"
        for task_id, number in unknown.items():
            jobs = "1 job" if number == 1 else f"{number} jobs"
            yield f"no prediction for {jobs} of {safe(task_id)}: none has ended well yet"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "name": self.name,
            "workspace": self.workspace,
            "predicted_s": round(self.prediction.seconds, 3),
            "unpredicted": self.prediction.unknown.total(),
            "slots": self.prediction.slots,
            "method": METHOD,
            "jobs": [self._job_json(planned) for planned in self.jobs],
        }

    def _job_json(self, planned: PlannedJob) -> dict[str, Any]:
        job, near = planned.job, self.nearest.get(planned.job.key)
        return {
            "task": job.task_id,
            "job": job.job_id,
            "tags": dict(job.tags),
            "intent": planned.intent.name,
            "why": self.why(planned),
            "depends_on": list(job.linked),
            "nearest": None
            if near is None
            else {
                "job": near.key.job_id,
                "differences": [
                    {"path": one.path, "new": plain_side(one.here), "old": plain_side(one.there)}
                    for one in near.changed
                ],
            },
        }


def plan_of(xp: experiment, files: Files) -> Plan:
    """Looks up what a plan is to say; writes nothing."""
    new = [planned.job for planned in xp.plan if planned.intent is Intent.RUN]
    nearest = nearest_earlier(files, new)
    planned = {one.job.task_id for one in xp.plan}
    first = {job.task_id: job for job in new if job.key not in nearest}
    renamed = {task_id: renamed_from(files, job, planned) for task_id, job in first.items()}
    return Plan(
        xp.name,
        str(xp.workspace.path),
        tuple(xp.plan),
        nearest,
        _predict(xp.plan, files),
        {task_id: former for task_id, former in renamed.items() if former is not None},
    )


def _predict(plan: list[PlannedJob], files: Files) -> Prediction:
    known: dict[str, Durations] = {}
    unknown: Counter[str] = Counter()
    steps: list[ForecastJob] = []
    slots: dict[str, int] = {}
    for job, intent, *_ in plan:
        if not (intent.runs or intent is Intent.WAIT):
            continue
        durations = known.setdefault(job.layout.root, Durations(files, job.layout))
        expected = durations.expected(job.task_id)
        if expected is None and intent.runs:
            unknown[job.task_id] += 1
        # What another run has started takes none of our slots.
        launcher = job.launcher.name if intent.runs else f"elsewhere {job.key}"
        slots[launcher] = job.launcher.slots if intent.runs else 1
        needs = tuple(dependency.origin.key for dependency in job.dependencies)
        steps.append(ForecastJob(job.key, expected or 0.0, needs, launcher))
    ours = {job.launcher.name: job.launcher.slots for job, intent, *_ in plan if intent.runs}
    return Prediction(makespan(steps, slots), sum(ours.values()), unknown)


NO_EXPERIMENT = '; a script does so by `with experiment("workspace", "name"):`'


class FileCommand(click.Command):
    """What follows the name of a script is the script's; what follows that of a YAML file is ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = False
        ctx.ignore_unknown_options = False
        found, _, _ = self.make_parser(ctx).parse_args(list(args))
        if is_yaml(str(found.get("file"))) and not found.get("module"):
            ctx.allow_interspersed_args = True
        return super().parse_args(ctx, args)


def file_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The file, and its options."""
    for decorate in (
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]..."),
        click.argument("file", metavar="FILE", shell_complete=complete_files),
        click.option(
            "-m",
            "--module",
            "is_module",
            is_flag=True,
            help="FILE is the name of a module, such as package.module.",
        ),
        click.option(
            "-w", "--workspace", metavar="DIR", help="Of a YAML file: the workspace, by name or path."
        ),
        click.option(
            "--rerun-changed/--no-rerun-changed",
            "rerun_changed",
            default=None,
            help="Run jobs again whose code or sources have changed since they were done.",
        ),
        click.option(
            "--rerun",
            metavar="FILTER",
            help="Run jobs again that were done before, as in --rerun 'task~Train and lr=0.1'.",
        ),
        click.option("--name", metavar="NAME", help="Of a YAML file: the experiment's name."),
        click.option(
            "-c",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set an option of the script, as in -c lr=0.1; of a YAML file a key or a parameter.",
        ),
    ):
        function = decorate(function)
    return function


def request_of(**given: Any) -> Request:
    """The options given; refuses options that a script decides for itself."""
    request = Request(**given)
    if not request.is_module:
        click.Path(exists=True, dir_okay=False).convert(request.file, None, None)
    if request.rerun is not None:
        try:
            read_question(text(request.rerun, "--rerun"))
        except TenutoError as error:
            raise click.UsageError(f"--rerun: {error}") from error
    if request.is_yaml and request.arguments:
        words = " ".join(request.arguments)
        raise click.UsageError(f"a YAML file takes no arguments: {words}; use -c key=value")
    of_yaml = {"--name": request.name, "-w": request.workspace}
    wrong = [option for option, value in of_yaml.items() if value]
    if not request.is_yaml and wrong:
        raise click.UsageError(
            f"{', '.join(wrong)}: only for YAML files; a script says itself how it runs "
            f"(its own arguments come after its name)"
        )
    return request


@click.command(cls=FileCommand)
@file_options
@click.option("--dry-run", is_flag=True, help="Only say which jobs would run, as `tenuto plan` does.")
@click.option("--generate-only", is_flag=True, help="Write the jobs' directories, and run nothing.")
@click.option("--prepare", is_flag=True, help="Only prepare what tasks declare, such as downloads.")
@click.option("--fail-fast", is_flag=True, help="Start nothing more after the first failure.")
@click.option("--json", is_flag=True, help="Print the summary as JSON to standard output.")
@detach_option
@notify_option
@handshake_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    dry_run: bool,
    generate_only: bool,
    prepare: bool,
    fail_fast: bool,
    json: bool,
    detach: bool,
    notify: str | None,
    handshake: int | None,
    **given: Any,
) -> None:
    """Run an experiment: a Python script, or a YAML file.

    A script is run as `python FILE ARGS` would run it, and its tasks have the same identities. Progress and
    the summary go to standard error: live on a terminal, elsewhere one line for each event.

    Exit codes: 0 all is done; 1 jobs failed, or the script raised; 2 wrong usage; 4 another run has the
    experiment; 5 interrupted, and jobs may continue.
    """
    request = request_of(**given)
    if dry_run + generate_only + prepare > 1:
        raise click.UsageError("one of --dry-run, --generate-only and --prepare, not several")
    if detach and (dry_run or generate_only or prepare):
        raise click.UsageError(
            "--detach is for a run, which --dry-run, --generate-only and --prepare are not"
        )
    impose_notify(notify)
    if detach:
        ctx.exit(start_detached("run", request.arguments, json))
    if dry_run:
        ctx.exit(show_plan(request, json=json, everything=False))
    request = request._replace(fail_fast=fail_fast)
    mode = RunMode.GENERATE_ONLY if generate_only else RunMode.PREPARE if prepare else None
    retry = given_without(request.arguments, options=("--notify", "--handshake"))
    imposed_command.set(("tenuto", *retry))
    ctx.exit(run_request(request, retry, json=json, mode=mode, handshake=Handshake(handshake)))


def run_request(
    request: Request,
    retry: list[str],
    *,
    json: bool = False,
    mode: RunMode | None = None,
    handshake: Handshake | None = None,
) -> int:
    """Runs a file, shows its progress, and tells its outcome."""
    program = called_as()  # before the script sees arguments of its own
    session = Session(open_progress(sys.stderr), as_json=json)
    if handshake is not None:
        session.progress.on_opened = handshake.run_begun
    with output_for_json(json):
        code = session.run(request, mode)
    if mode is RunMode.GENERATE_ONLY:
        _show_generated(session, json)
        return code
    summary = session.summary(program, retry, code)
    if json:
        print_json(summary.as_json(), None)
    elif summary.runs:
        for line in summary.lines(os.getcwd()):
            tell(line)
    elif code == exit_codes.OK and not session.progress.plans:
        tell(f"{safe(request.file)} opened no experiment, so nothing was run{NO_EXPERIMENT}")
    let_go_of_closed_streams()
    return code


def show_plan(request: Request, *, json: bool, everything: bool) -> int:
    """Says what running a file would do, and does nothing."""
    session = Session(open_progress(sys.stderr))
    with output_for_json(True):
        code = session.run(request, RunMode.DRY_RUN)
    plans = [plan_of(xp, this_machine().files) for xp in session.progress.plans]
    is_whole = bool(plans) and not any(xp.is_cut for xp in session.progress.plans)
    if json:
        print_json({"experiments": [plan.as_json() for plan in plans], "problem": session.problem}, None)
        if session.problem and not is_whole:
            tell_problem("ScriptStopped", session.problem, code, remedy_of(session.problem))
        return exit_codes.OK if is_whole else code
    for plan in plans:
        for line in plan.lines(everything=everything):
            click.echo(line)
    if not session.problem:
        if not plans and code == exit_codes.OK:
            tell(f"{safe(request.file)} opened no experiment: there is nothing to plan{NO_EXPERIMENT}")
        return code
    if is_whole:
        tell(f"after its experiments the script stopped ({safe(session.problem)}): a plan has no results")
        return exit_codes.OK
    if code == exit_codes.USAGE:  # an option that the script does not take: that was said
        return code
    stopped = f"the script stopped there ({safe(session.problem)})"
    tell(f"{stopped}: it may need results that a plan does not have")
    return code


def _show_generated(session: Session, json: bool) -> None:
    jobs = [job for xp in session.progress.plans for job in xp.jobs]
    if json:
        written = [{"task": job.task_id, "job": job.job_id, "script": job.paths.script} for job in jobs]
        print_json({"jobs": written, "problem": session.problem}, None)
        return
    directories = "1 job directory is" if len(jobs) == 1 else f"{len(jobs)} job directories are"
    tell(f"{directories} written, and nothing was run")
    if jobs:
        tell(f"to run the first by hand: python {short_path(jobs[0].paths.script)}")
