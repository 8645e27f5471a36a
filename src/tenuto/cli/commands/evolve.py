"""`tenuto evolve`."""

from __future__ import annotations

import json as jsons
import shlex
import sys
import traceback
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import click

from tenuto.cli import exit_codes
from tenuto.cli.main_module import run_script
from tenuto.cli.program import called_as, short_path
from tenuto.cli.program_options import ProgramOptions, declare, program_options
from tenuto.cli.search_screen import LiveReporter
from tenuto.cli.session import let_go_of_closed_streams, output_for_json, tell
from tenuto.errors import TenutoError
from tenuto.jobs.screen import Screen
from tenuto.jobs.text import safe, safe_lines
from tenuto.search.reporter import RunOptions, SearchReporter, current_options, current_reporter
from tenuto.settings import process_environment

DEMOS = {"arm": "arm.py", "program": "program/evolve.py"}
_PROGRAM = ("evolve.py", "agent.py", "repository/curve.py", "repository/evaluate.py")
DEMO_DIRECTORY = "tenuto-search-demo"


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False), required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option("--slots", type=click.IntRange(1), help="Candidates evaluated at once on this machine.")
@click.option(
    "--no-workers", is_flag=True, help="Only schedule; `tenuto worker` evaluates, here or elsewhere."
)
@click.option("--once", is_flag=True, help="Do what can be done without waiting, and leave.")
@click.option(
    "--no-reuse", is_flag=True, help="Evaluate every candidate, also those whose outcome is known elsewhere."
)
@click.option("--json", "as_json", is_flag=True, help="Print what came of each search as JSON.")
@click.option(
    "--demo",
    is_flag=False,
    flag_value="arm",
    type=click.Choice(list(DEMOS)),
    help="Run an example, to see what a search does: a robot's arm that learns to reach everywhere, or a "
    "program that a small agent improves.",
)
@program_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    script: str | None,
    arguments: tuple[str, ...],
    slots: int | None,
    no_workers: bool,
    once: bool,
    no_reuse: bool,
    as_json: bool,
    demo: str | None,
    **given: Any,
) -> None:
    """Run a search: a script that declares an `Evolution` and calls its `run()`; or evolve a program: a git
    repository (--repo) or a single file (--program), changed by an agent.

    Shows the archive as it fills: live on a terminal, elsewhere in lines, on standard error. Run again, a
    search goes on where it stopped. Ctrl-C once waits for what runs, twice leaves and jobs go on.

    Exit codes: 0 the search ended for a reason of its own; 1 nothing succeeded; 2 wrong usage, or the stored
    search was declared otherwise; 5 interrupted.
    """
    programs = ProgramOptions(**given)
    if [script is not None, demo is not None, programs.is_given].count(True) != 1:
        raise click.UsageError("give one of: a script, --repo, --program, --demo")
    if not programs.is_given and programs.others:
        raise click.UsageError(f"{programs.others[0]} goes with --repo or --program")
    if demo is not None:
        script = str(write_demo(demo))
        tell(f"the script is {short_path(script)}, yours to change; again: {again(script)}")
    options = RunOptions(slots, not no_workers, once, not no_reuse)
    reporter = open_reporter(is_quiet=as_json)
    with output_for_json(as_json):
        if script is not None:
            path = script
            code = run(lambda: run_script(path, arguments), options, reporter)
        else:
            code = run_program(programs, options, reporter)
    if as_json:
        click.echo(jsons.dumps([summary(result) for result in options.results]))
    let_go_of_closed_streams()
    ctx.exit(code)


def run_program(programs: ProgramOptions, options: RunOptions, reporter: SearchReporter | None) -> int:
    """Runs the search of programs that the options declare; the exit code."""
    declared = declare(programs)
    if declared.ignored:
        tell(safe(f"ignored of {programs.config}: {', '.join(declared.ignored)}"))
    evolution = declared.evolution
    code = run(lambda: evolution.run(options.slots or declared.slots), options, reporter)
    if any(result.best is not None for result in options.results):
        branch = f"tenuto/{evolution.name}/best"
        tell(safe(f"the best program is the branch {branch} of {short_path(declared.repository)}"))
    return code


def run(search: Callable[[], object], options: RunOptions, reporter: SearchReporter | None) -> int:
    """Runs what runs searches, which are shown by a reporter; the exit code."""
    _silence_loguru()
    reporting, optional = current_reporter.set(reporter), current_options.set(options)
    try:
        search()
    except TenutoError:
        raise
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except SystemExit as leaving:
        return (
            leaving.code
            if isinstance(leaving.code, int)
            else exit_codes.FAILED
            if leaving.code
            else exit_codes.OK
        )
    except Exception:  # noqa: BLE001  the script's own trouble, shown as Python would
        tell(safe_lines(traceback.format_exc().rstrip()))
        return exit_codes.FAILED
    finally:
        current_reporter.reset(reporting)
        current_options.reset(optional)
    return exit_code(options.results)


def exit_code(results: list[Any]) -> int:
    """What the searches that were run make of the exit code."""
    if any(result.is_interrupted and result.state != "ENDED" for result in results):
        return exit_codes.INTERRUPTED
    if any(result.reason == "FAILING" or (result.scheduled and not result.succeeded) for result in results):
        return exit_codes.FAILED
    return exit_codes.OK


def summary(result: Any) -> dict[str, Any]:
    """A result for programs."""
    best = result.best
    archive = result.archive
    return {
        "name": result.name,
        "state": result.state,
        "reason": result.reason,
        "message": result.message,
        "scheduled": result.scheduled,
        "succeeded": result.succeeded,
        "failed": result.failed,
        "reused": result.reused,
        "cost": result.cost,
        "best": None
        if best is None
        else {
            "number": best.number,
            "objective": best.objective,
            "measures": list(best.measures),
            "values": best.values if isinstance(best.values, dict) else None,
        },
        "cells": archive.cells if archive is not None else None,
        "filled": len(archive) if archive is not None else None,
        "qd_score": archive.qd_score if archive is not None else None,
    }


def open_reporter(is_quiet: bool = False) -> SearchReporter | None:
    """The face that fits where standard error leads; None: lines."""
    environ = process_environment()
    if is_quiet or not sys.stderr.isatty() or environ.get("TERM", "dumb") == "dumb":
        return None
    is_unicode = "utf" in (sys.stderr.encoding or "").lower()
    return LiveReporter(Screen(sys.stderr, color="NO_COLOR" not in environ), is_unicode=is_unicode)


def write_demo(name: str) -> Path:
    """The script of a demo, written where a person can change it."""
    script = Path(DEMO_DIRECTORY) / DEMOS[name]
    files = [f"program/{one}" for one in _PROGRAM] if name == "program" else [DEMOS[name]]
    for file in files:
        target = Path(DEMO_DIRECTORY) / file
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(resources.files("tenuto.examples").joinpath(file).read_text("utf-8"), "utf-8")
    return script


def again(script: str) -> str:
    """The command that runs a script again, ready to type."""
    return shlex.join([*called_as(), "evolve", short_path(script)])


def _silence_loguru() -> None:
    """What is logged is also told on the screen, where a log would tear the picture."""
    try:
        from loguru import logger
    except ModuleNotFoundError:
        return
    logger.remove()
