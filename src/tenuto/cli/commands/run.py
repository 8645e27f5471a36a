"""`tenuto run`."""

from __future__ import annotations

import json as jsons
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from tenuto.cli import exit_codes
from tenuto.cli.completions import complete_files
from tenuto.cli.detach import Handshake, detach_option, handshake_option, start_detached
from tenuto.cli.options import impose_notify, notify_option, without_notify
from tenuto.cli.plans import plan_of
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
from tenuto.jobs.query import read_question
from tenuto.jobs.text import safe
from tenuto.tasks.arguments import text
from tenuto.workspace.machine import this_machine

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
    """The file, and what can be said of it."""
    for decorate in (
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]..."),
        click.argument("file", metavar="FILE", shell_complete=complete_files),
        click.option(
            "-m", "--module", is_flag=True, help="FILE is the name of a module, such as package.module."
        ),
        click.option(
            "-w", "--workspace", metavar="DIR", help="Of a YAML file: the workspace, by name or path."
        ),
        click.option(
            "--rerun-changed/--no-rerun-changed",
            "rerun_changed",
            default=None,
            help="Run jobs again whose code, or what they were made from, has changed since they were done.",
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


def request_of(
    file: str,
    arguments: tuple[str, ...],
    overrides: tuple[str, ...],
    name: str | None,
    workspace: str | None,
    module: bool = False,
    rerun_changed: bool | None = None,
    rerun: str | None = None,
) -> Request:
    """What was asked for; refuses what a script decides for itself."""
    if not module:
        click.Path(exists=True, dir_okay=False).convert(file, None, None)
    if rerun is not None:
        try:
            read_question(text(rerun, "--rerun"))
        except TenutoError as error:
            raise click.UsageError(f"--rerun: {error}") from error
    request = Request(file, arguments, overrides, name, workspace, module, rerun_changed, rerun)
    if request.is_yaml and arguments:
        raise click.UsageError(f"a YAML file takes no arguments: {' '.join(arguments)}; use -c key=value")
    given = [option for option, value in {"--name": name, "-w": workspace}.items() if value]
    if not request.is_yaml and given:
        raise click.UsageError(
            f"{', '.join(given)}: only for YAML files; a script says itself how it runs "
            f"(its own arguments come after its name)"
        )
    return request


@click.command(cls=FileCommand)
@file_options
@click.option("--dry-run", is_flag=True, help="Only say what would run, as `tenuto plan` does.")
@click.option("--generate-only", is_flag=True, help="Write the jobs' directories, and run nothing.")
@click.option("--prepare", is_flag=True, help="Only do what tasks need prepared, such as downloads.")
@click.option("--fail-fast", is_flag=True, help="Start nothing more after the first failure.")
@click.option("--json", is_flag=True, help="Print the summary as JSON to standard output.")
@detach_option
@notify_option
@handshake_option
@click.pass_context
def command(
    ctx: click.Context,
    file: str,
    arguments: tuple[str, ...],
    overrides: tuple[str, ...],
    name: str | None,
    workspace: str | None,
    module: bool,
    rerun_changed: bool | None,
    rerun: str | None,
    dry_run: bool,
    generate_only: bool,
    prepare: bool,
    fail_fast: bool,
    json: bool,
    detach: bool,
    notify: str | None,
    handshake: int | None,
) -> None:
    """Run an experiment: a Python script, or a YAML file.

    A script is run as `python FILE ARGS` would run it, and its tasks have the same identities. Progress and
    the summary go to standard error: live on a terminal, elsewhere one line for each event.

    Exit codes: 0 all is done; 1 jobs failed, or the script raised; 2 wrong usage; 4 another run has the
    experiment; 5 interrupted, and jobs may continue.
    """
    request = request_of(file, arguments, overrides, name, workspace, module, rerun_changed, rerun)
    if dry_run + generate_only + prepare > 1:
        raise click.UsageError("one of --dry-run, --generate-only and --prepare, not several")
    if detach and (dry_run or generate_only or prepare):
        raise click.UsageError(
            "--detach is for a run, which --dry-run, --generate-only and --prepare are not"
        )
    impose_notify(notify)
    if detach:
        ctx.exit(start_detached("run", sys.argv[2:], json))
    if dry_run:
        ctx.exit(show_plan(request, json=json, everything=False))
    request = request._replace(fail_fast=fail_fast)
    mode = RunMode.GENERATE_ONLY if generate_only else RunMode.PREPARE if prepare else None
    ctx.exit(
        run_request(
            request, without_notify(sys.argv[1:]), json=json, mode=mode, handshake=Handshake(handshake)
        )
    )


def run_request(
    request: Request,
    retry: list[str],
    *,
    json: bool = False,
    mode: RunMode | None = None,
    handshake: Handshake | None = None,
) -> int:
    """Runs a file, shows how it goes, and says at the end what came of it."""
    program = called_as()  # before the script sees arguments of its own
    session = Session(open_progress(sys.stderr))
    if handshake is not None:
        session.progress.on_opened = handshake.run_begun
    with output_for_json(json):
        code = session.run(request, mode)
    if mode is RunMode.GENERATE_ONLY:
        _show_generated(session, json)
        return code
    summary = session.summary(program, retry, code)
    if json:
        click.echo(jsons.dumps(summary.as_json()))
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
        click.echo(
            jsons.dumps({"experiments": [plan.as_json() for plan in plans], "problem": session.problem})
        )
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
        click.echo(jsons.dumps({"jobs": written, "problem": session.problem}))
        return
    directories = "1 job directory is" if len(jobs) == 1 else f"{len(jobs)} job directories are"
    tell(f"{directories} written, and nothing was run")
    if jobs:
        tell(f"to run the first by hand: python {short_path(jobs[0].paths.script)}")
