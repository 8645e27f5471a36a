"""`tenuto evolve`."""

from __future__ import annotations

import os.path
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import click

from tenuto.cli import exit_codes
from tenuto.cli.console import print_json
from tenuto.cli.detach import Handshake, detach_option, handshake_option, start_detached
from tenuto.cli.main_module import main_file, run_script
from tenuto.cli.options import given_without, impose_notify, notify_option
from tenuto.cli.program import called_as, short_path
from tenuto.cli.search_screen import LiveReporter
from tenuto.cli.session import let_go_of_closed_streams, output_for_json, script_stopped, tell
from tenuto.errors import TenutoError
from tenuto.experiments.display import steers_terminal
from tenuto.jobs.driver_command import imposed_command
from tenuto.jobs.screen import Screen
from tenuto.jobs.text import safe
from tenuto.search.archive import AUTO
from tenuto.search.evolution import Evolution
from tenuto.search.map_elites import MapElites
from tenuto.search.openevolve import ISLANDS, SEED, OpenEvolveConfig, program_repository, read_config
from tenuto.search.opening import default_workspace
from tenuto.search.programs import AGENT_S, DEFAULT_MEASURES, EVALUATE_S, Repository
from tenuto.search.reporter import RunOptions, SearchReporter, current_options, current_reporter
from tenuto.settings import load_settings, process_environment
from tenuto.settings.search import SEARCH_SECTIONS

# The options of `tenuto evolve` for programs, and the search that they declare.
# Builds the parts; decides nothing.


F = TypeVar("F", bound=Callable[..., Any])
_CELLS = 10
_DIRECTORY = click.Path(exists=True, file_okay=False)
_FILE = click.Path(exists=True, dir_okay=False)
_OPTIONS = (
    click.option("--repo", type=_DIRECTORY, help="Evolve the commits of this git repository."),
    click.option("--program", type=_FILE, help="Evolve this file, with an evaluator of OpenEvolve."),
    click.option(
        "--evaluator", type=_FILE, help="With --program: a file with evaluate(program_path) -> dict."
    ),
    click.option(
        "--agent",
        multiple=True,
        metavar="CMD",
        help="Changes the files in its working directory; several times, also with weights, as in '2:CMD'.",
    ),
    click.option(
        "--evaluate",
        multiple=True,
        metavar="CMD",
        help="With --repo: its last line of output is the outcome as JSON; several times: stages.",
    ),
    click.option("--goal", metavar="TEXT|@FILE", help="The goal, which the agent reads."),
    click.option(
        "--protect", multiple=True, metavar="PATH", help="A file that agents cannot change; repeatable."
    ),
    click.option("--name", help="The name of the search: by default that of the repository or file."),
    click.option("-w", "--workspace", metavar="NAME|PATH", help="Where the jobs of programs are kept."),
    click.option("--max-total", type=click.IntRange(0), help="Programs to evaluate, the first included."),
    click.option("--max-cost", type=float, help="End when the costs that agents report reach this."),
    click.option("--max-seconds", type=click.FloatRange(0, min_open=True), help="End after this much time."),
    click.option("--target", type=float, help="End when the objective reaches this."),
    click.option(
        "--direction", type=click.Choice(["max", "min"]), help="Which objective is better; by default max."
    ),
    click.option(
        "--threshold",
        multiple=True,
        type=float,
        metavar="X",
        help="With several --evaluate: what the objective of a stage must reach for the next; repeatable.",
    ),
    click.option(
        "--agent-s", type=click.FloatRange(0, min_open=True), help="Seconds an agent may take; 900."
    ),
    click.option(
        "--evaluate-s",
        type=click.FloatRange(0, min_open=True),
        help="Seconds that each evaluate command may take; 300, or the timeout of --config.",
    ),
    click.option(
        "--confine",
        type=click.Choice(["auto", "none"]),
        help="Keep agents and evaluations apart from this machine where bubblewrap works; by default auto.",
    ),
    click.option(
        "--pass",
        "pass_variables",
        multiple=True,
        metavar="NAME",
        help="A variable that agents and evaluations see, such as a key; repeatable.",
    ),
    click.option("--agent-home", type=_DIRECTORY, help="A directory that is the home of confined agents."),
    click.option("--measures", metavar="A,B", help="Names of the measures; by default complexity,diversity."),
    click.option("--cells", metavar="10,10", help="Cells along each measure."),
    click.option(
        "--ranges", metavar="0:1,0:1|auto", help="The range of each measure; by default as outcomes come."
    ),
    click.option("--islands", type=click.IntRange(1), help="Archives that evolve apart."),
    click.option("--seed", type=int, help="The seed of the search."),
    click.option(
        "--seed-goal",
        is_flag=True,
        default=None,
        help="Put the prompt.system_message of --config before --goal; without --goal it is the goal anyway.",
    ),
    click.option("--config", type=_FILE, help="With --program: a configuration of OpenEvolve."),
)


class ProgramOptions(SimpleNamespace):
    """What the command line says of a search of programs: each of the options above, by its name."""

    @property
    def is_given(self) -> bool:
        """True if a program is to be evolved, and not a script run."""
        return self.repo is not None or self.program is not None

    @property
    def others(self) -> list[str]:
        """The options that were given and mean nothing without a program."""
        given = {name.replace("pass_variables", "pass"): value for name, value in vars(self).items()}
        return [f"--{name.replace('_', '-')}" for name, value in given.items() if value not in (None, ())]


def program_options(command: F) -> F:
    """Adds the options for programs to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class DeclaredSearch:
    """A search of programs, how many run at once (None: the settings'), and the ignored settings."""

    evolution: Evolution
    slots: int | None
    ignored: tuple[str, ...]
    repository: str


def declare(options: ProgramOptions) -> DeclaredSearch:
    """The search that the options declare; raises `click.UsageError` for options that do not fit together."""
    _check(options)
    settings = load_settings(foreign=SEARCH_SECTIONS)
    place = options.workspace
    workspace = Path(os.path.abspath(settings.workspace(place))) if place else default_workspace(settings)
    config = OpenEvolveConfig()
    if options.config is not None:
        config = read_config(Path(options.config).read_text("utf-8"), options.config)
    name = options.name or _named(options.repo or options.program or "")
    given = options.measures
    measures = tuple(map(str.strip, given.split(","))) if given else config.feature_dimensions
    measures = measures or DEFAULT_MEASURES
    repository = _repository(options, config, workspace / "programs" / name, measures)
    total = options.max_total
    if total is None and config.max_iterations is not None:
        total = config.max_iterations + 1
    seed = options.seed if options.seed is not None else config.random_seed
    if seed is None and options.config is not None:
        seed = SEED
    evolution = Evolution(
        name,
        repository,
        sampler=_sampler(options, config, measures),
        seed=seed if seed is not None else 0,
        workdir=workspace,
        max_total_jobs=total,
        max_cost=options.max_cost,
        max_seconds=options.max_seconds,
        target=options.target,
        direction=options.direction or "max",
        stall=config.early_stopping_patience,
        settings=settings,
    )
    return DeclaredSearch(evolution, config.parallel_evaluations, config.ignored, repository.path)


def _check(options: ProgramOptions) -> None:
    if options.repo is not None and options.program is not None:
        raise click.UsageError("give --repo or --program, not both")
    if not options.agent:
        raise click.UsageError("--agent is missing: the command that changes the program")
    if options.repo is not None:
        if not options.evaluate:
            raise click.UsageError("--evaluate is missing: the command that prints the outcome")
        wrong = "--evaluator" if options.evaluator else "--config" if options.config else None
        wrong = wrong or ("--seed-goal" if options.seed_goal else None)
        if wrong:
            raise click.UsageError(f"{wrong} goes with --program")
    else:
        if options.evaluator is None:
            raise click.UsageError("--evaluator is missing: the file with evaluate(program_path)")
        if options.evaluate:
            raise click.UsageError("--evaluate goes with --repo; --program has an --evaluator")
        if options.threshold:
            raise click.UsageError("--threshold goes with --repo; --config has cascade_thresholds")
        if options.seed_goal and options.config is None:
            raise click.UsageError("--seed-goal goes with --config")
        if options.protect:
            raise click.UsageError("--protect goes with --repo: --program varies a single file")


def _repository(
    options: ProgramOptions, config: OpenEvolveConfig, directory: Path, measures: tuple[str, ...]
) -> Repository:
    agents, weights = zip(*map(_weighted, options.agent), strict=True)
    goal = options.goal or ""
    if goal.startswith("@"):
        try:
            goal = Path(goal[1:]).read_text("utf-8")
        except OSError as error:
            raise click.UsageError(f"--goal {goal}: {error.strerror}") from None
    message = config.system_message or ""
    if message and (options.seed_goal or not goal):
        goal = f"{message.rstrip()}\n\n{goal}".strip()
    shared: dict[str, Any] = {
        "agent": agents,
        "weights": weights,
        "goal": goal,
        "agent_s": options.agent_s or AGENT_S,
        "confine": options.confine or "auto",
        "pass_variables": options.pass_variables,
        "agent_home": options.agent_home,
    }
    if options.program is not None:
        program, evaluator = Path(options.program), Path(options.evaluator or "")
        more: dict[str, Any] = {"config": config, "features": measures, "evaluate_s": options.evaluate_s}
        return program_repository(program, evaluator, directory, **shared, **more)
    return Repository(
        options.repo or "",
        evaluate=[_words("--evaluate", command) for command in options.evaluate],
        protect=options.protect,
        evaluate_s=options.evaluate_s or EVALUATE_S,
        thresholds=options.threshold,
        **shared,
    )


def _words(option: str, command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"{option} {command!r}: {error}") from None


def _weighted(text: str) -> tuple[list[str], float]:
    """An agent and its weight: `2:CMD` is drawn twice as often as `CMD`."""
    weight, sign, command = text.partition(":")
    is_weighted = bool(sign) and re.fullmatch(r"\d+(\.\d+)?", weight) is not None
    words = _words("--agent", command if is_weighted else text)
    if not words or (is_weighted and not float(weight) > 0):
        raise click.UsageError(f"--agent {text!r}: give a command, or a weight above 0 and a command: 2:CMD")
    return words, float(weight) if is_weighted else 1.0


def _sampler(options: ProgramOptions, config: OpenEvolveConfig, names: tuple[str, ...]) -> MapElites:
    ranges: Any = AUTO
    if options.ranges and options.ranges != AUTO:
        ranges = [_range(text) for text in options.ranges.split(",")]
    more: dict[str, Any] = {}
    if config.migration_interval is not None:
        more["migrate_every"] = config.migration_interval
    return MapElites(
        cells=_cells(options, config, names),
        ranges=ranges,
        measures=names,
        islands=options.islands or config.num_islands or (1 if options.config is None else ISLANDS),
        **more,
    )


def _cells(options: ProgramOptions, config: OpenEvolveConfig, names: tuple[str, ...]) -> list[int]:
    if options.cells:
        try:
            return [int(count) for count in options.cells.split(",")]
        except ValueError:
            raise click.UsageError(f"--cells {options.cells}: give whole numbers, as in 10,10") from None
    bins = config.feature_bins
    if isinstance(bins, int):
        return [bins] * len(names)
    return [(bins or {}).get(name, _CELLS) for name in names]


def _range(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise click.UsageError(f"--ranges: {text!r} is no range; give LOW:HIGH, as in 0:1") from None


def _named(path: str) -> str:
    stem = Path(os.path.abspath(path)).stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).strip("-.")[:64] or "program"


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
@click.option("--once", is_flag=True, help="Do one round of work without waiting, and leave.")
@click.option(
    "--no-reuse", is_flag=True, help="Evaluate every candidate, also those whose outcome is known elsewhere."
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome of each search as JSON.")
@click.option(
    "--demo",
    is_flag=False,
    flag_value="arm",
    type=click.Choice(list(DEMOS)),
    help="Run an example, to see what a search does: a robot's arm that learns to reach everywhere, or a "
    "program that a small agent improves.",
)
@detach_option
@notify_option
@handshake_option
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
    detach: bool,
    notify: str | None,
    handshake: int | None,
    **given: Any,
) -> None:
    """Run a search: a script that declares an `Evolution` and calls its `run()`; or evolve a program: a git
    repository (--repo) or a single file (--program), changed by an agent.

    Shows the archive as it fills: live on a terminal, elsewhere in lines, on standard error. Run again, a
    search continues where it stopped. Ctrl-C once waits for running jobs, twice leaves and jobs continue.

    Exit codes: 0 the search ended for a reason of its own; 1 nothing succeeded, or it paused because its
    surroundings failed (no agent, no sandbox); 2 wrong usage, or the stored
    search was declared otherwise; 5 interrupted.
    """
    programs = ProgramOptions(**given)
    if [script is not None, demo is not None, programs.is_given].count(True) != 1:
        raise click.UsageError("give one of: a script, --repo, --program, --demo")
    if not programs.is_given and programs.others:
        raise click.UsageError(f"{programs.others[0]} goes with --repo or --program")
    impose_notify(notify)
    if detach:
        ctx.exit(start_detached("evolve", arguments, as_json))
    if demo is not None:
        script = str(write_demo(demo))
        tell(f"the script is {short_path(script)}, yours to change; again: {again(script)}")
    begun = Handshake(handshake)
    imposed_command.set(("tenuto", *given_without(arguments, options=("--notify", "--handshake"))))
    options = RunOptions(slots, not no_workers, once, not no_reuse, on_started=begun.search_begun)
    reporter = open_reporter(is_quiet=as_json)
    with output_for_json(as_json):
        if script is not None:
            path = script
            code = run(lambda: run_script(path, arguments), options, reporter, as_json=as_json)
            if not options.results and code == exit_codes.OK:
                tell(safe(f"{short_path(path)} ran no search: call run() of the Evolution that it declares"))
            if demo is not None and options.results:
                where = short_path(Path(path).with_name("workspace"))
                tell(f"look at it: tenuto results {options.results[0].name} -w {where}")
        else:
            code = run_program(programs, options, reporter, as_json=as_json)
    if as_json:
        print_json([summary(result) for result in options.results], None)
    let_go_of_closed_streams()
    ctx.exit(code)


def run_program(
    programs: ProgramOptions, options: RunOptions, reporter: SearchReporter | None, *, as_json: bool
) -> int:
    """Runs the search of programs that the options declare; the exit code."""
    declared = declare(programs)
    if declared.ignored:
        tell(safe(f"ignored of {programs.config}: {', '.join(declared.ignored)}"))
    evolution = declared.evolution
    code = run(lambda: evolution.run(options.slots or declared.slots), options, reporter, as_json=as_json)
    if any(result.best is not None for result in options.results):
        branch = f"tenuto/{evolution.name}/best"
        tell(safe(f"the best program is the branch {branch} of {short_path(declared.repository)}"))
    return code


def run(
    search: Callable[[], object], options: RunOptions, reporter: SearchReporter | None, *, as_json: bool
) -> int:
    """Runs a script of searches, which a reporter shows; the exit code."""
    _silence_loguru()
    reporting, optional = current_reporter.set(reporter), current_options.set(options)
    try:
        search()
    except TenutoError:
        raise
    except BaseException as error:  # noqa: BLE001  the script's own trouble, shown as Python would
        return script_stopped(error, main_file() or "", as_json=as_json)
    finally:
        current_reporter.reset(reporting)
        current_options.reset(optional)
    return exit_code(options.results)


def exit_code(results: list[Any]) -> int:
    """What the searches that were run make of the exit code."""
    if any(result.is_paused_by_itself for result in results):
        return exit_codes.FAILED
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
    if is_quiet or not steers_terminal(sys.stderr, environ):
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
    """Log lines are told on the screen, where a log would tear the picture."""
    try:
        from loguru import logger
    except ModuleNotFoundError:
        return
    logger.remove()
