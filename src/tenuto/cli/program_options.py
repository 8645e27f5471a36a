"""The options of `tenuto evolve` for programs, and the search that they declare.
Builds the parts; decides nothing.
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from tenuto.search.evolution import Evolution
from tenuto.search.map_elites import MapElites
from tenuto.search.openevolve import OpenEvolveConfig, read_config
from tenuto.search.opening import default_workspace
from tenuto.search.repository import DEFAULT_MEASURES, DEFAULT_RANGES, Repository
from tenuto.search.single_program import program_repository
from tenuto.settings import load_settings
from tenuto.settings.search import SEARCH_SECTIONS

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
    click.option("--agent", metavar="CMD", help="Changes the files in its working directory."),
    click.option(
        "--evaluate",
        multiple=True,
        metavar="CMD",
        help="With --repo: its last line of output is the outcome as JSON; several times: stages.",
    ),
    click.option("--goal", metavar="TEXT|@FILE", help="What the agent is told to achieve."),
    click.option("--protect", multiple=True, metavar="PATH", help="What agents cannot change; repeatable."),
    click.option("--name", help="The name of the search: by default that of the repository or file."),
    click.option("-w", "--workspace", metavar="NAME|PATH", help="Where the jobs of programs are kept."),
    click.option("--max-total", type=click.IntRange(0), help="Programs to evaluate, the first included."),
    click.option("--max-cost", type=float, help="End when the costs that agents report reach this."),
    click.option("--measures", metavar="A,B", help="Names of the measures; by default complexity,diversity."),
    click.option("--cells", metavar="10,10", help="Cells along each measure."),
    click.option("--ranges", metavar="0:1,0:1", help="The range of each measure."),
    click.option("--islands", type=click.IntRange(1), help="Archives that evolve apart."),
    click.option("--seed", type=int, help="The seed of the search."),
    click.option("--config", type=_FILE, help="With --program: a configuration of OpenEvolve."),
)


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """What the command line says of a search of programs."""

    repo: str | None
    program: str | None
    evaluator: str | None
    agent: str | None
    evaluate: tuple[str, ...]
    goal: str | None
    protect: tuple[str, ...]
    name: str | None
    workspace: str | None
    max_total: int | None
    max_cost: float | None
    measures: str | None
    cells: str | None
    ranges: str | None
    islands: int | None
    seed: int | None
    config: str | None

    @property
    def is_given(self) -> bool:
        """True if a program is to be evolved, and not a script run."""
        return self.repo is not None or self.program is not None

    @property
    def others(self) -> list[str]:
        """The options that were given and mean nothing without a program."""
        return [f"--{name.replace('_', '-')}" for name in self.__slots__ if getattr(self, name)]


def program_options(command: F) -> F:
    """Adds the options for programs to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class DeclaredSearch:
    """A search of programs, how many are evaluated at once (None: the settings'), and what was ignored."""

    evolution: Evolution
    slots: int | None
    ignored: tuple[str, ...]
    repository: str


def declare(options: ProgramOptions) -> DeclaredSearch:
    """The search that the options declare; raises `click.UsageError` for options that do not fit together."""
    _check(options)
    settings = load_settings(foreign=SEARCH_SECTIONS)
    given = options.workspace
    workspace = Path(os.path.abspath(settings.workspace(given))) if given else default_workspace(settings)
    config = OpenEvolveConfig()
    if options.config is not None:
        config = read_config(Path(options.config).read_text("utf-8"), options.config)
    name = options.name or _named(options.repo or options.program or "")
    measures = tuple(options.measures.split(",")) if options.measures else config.feature_dimensions
    measures = measures or DEFAULT_MEASURES
    repository = _repository(options, config, workspace / "programs" / name, measures)
    total = options.max_total
    if total is None and config.max_iterations is not None:
        total = config.max_iterations + 1
    seed = options.seed if options.seed is not None else config.random_seed
    evolution = Evolution(
        name,
        repository,
        sampler=_sampler(options, config, measures),
        seed=seed if seed is not None else 0,
        workdir=workspace,
        max_total_jobs=total,
        max_cost=options.max_cost,
        stall=config.early_stopping_patience,
        settings=settings,
    )
    return DeclaredSearch(evolution, config.parallel_evaluations, config.ignored, repository.path)


def _check(options: ProgramOptions) -> None:
    if options.repo is not None and options.program is not None:
        raise click.UsageError("give --repo or --program, not both")
    if options.agent is None:
        raise click.UsageError("--agent is missing: the command that changes the program")
    if options.repo is not None:
        if not options.evaluate:
            raise click.UsageError("--evaluate is missing: the command that prints the outcome")
        wrong = "--evaluator" if options.evaluator else "--config" if options.config else None
        if wrong:
            raise click.UsageError(f"{wrong} goes with --program")
    else:
        if options.evaluator is None:
            raise click.UsageError("--evaluator is missing: the file with evaluate(program_path)")
        if options.evaluate:
            raise click.UsageError("--evaluate goes with --repo; --program has an --evaluator")
        if options.protect:
            raise click.UsageError("--protect goes with --repo: --program varies a single file")


def _repository(
    options: ProgramOptions, config: OpenEvolveConfig, directory: Path, measures: tuple[str, ...]
) -> Repository:
    agent = shlex.split(options.agent or "")
    goal = options.goal or ""
    if goal.startswith("@"):
        try:
            goal = Path(goal[1:]).read_text("utf-8")
        except OSError as error:
            raise click.UsageError(f"--goal {goal}: {error.strerror}") from None
    if options.program is not None:
        program, evaluator = Path(options.program), Path(options.evaluator or "")
        return program_repository(
            program, evaluator, directory, agent=agent, goal=goal, config=config, features=measures
        )
    return Repository(
        options.repo or "",
        agent=agent,
        evaluate=[shlex.split(command) for command in options.evaluate],
        goal=goal,
        protect=options.protect,
    )


def _sampler(options: ProgramOptions, config: OpenEvolveConfig, names: tuple[str, ...]) -> MapElites:
    ranges = [DEFAULT_RANGES.get(name, (0.0, 1.0)) for name in names]
    if options.ranges:
        ranges = [_range(text) for text in options.ranges.split(",")]
    more: dict[str, Any] = {}
    if config.migration_interval is not None:
        more["migrate_every"] = config.migration_interval
    return MapElites(
        cells=_cells(options, config, names),
        ranges=ranges,
        measures=names,
        islands=options.islands or config.num_islands or 1,
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
