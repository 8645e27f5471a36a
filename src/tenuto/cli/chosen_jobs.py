"""The jobs that a command is about: by name, by group, by filter; and the options that choose them.
Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from tenuto.catalogue import Catalogue
from tenuto.cli.completions import complete_runs
from tenuto.cli.console import is_terminal, note
from tenuto.errors import NotFound
from tenuto.jobs.query import Question, read_question
from tenuto.jobs.row import Row
from tenuto.lifecycle.owner_names import Door

TERMINAL_LIMIT = 100
"""How many jobs a person is shown at a time."""

F = TypeVar("F", bound=Callable[..., Any])


def run_option(command: F) -> F:
    """`-r`, `--run`."""
    text = "One group: an experiment (its last run), one of its runs, a search or a service."
    return click.option("-r", "--run", metavar="GROUP", shell_complete=complete_runs, help=text)(command)


def all_option(command: F) -> F:
    """`-a`, `--all`."""
    text = "Every job: also of older runs and of none, and what ended longer ago."
    return click.option("-a", "--all", "every", is_flag=True, help=text)(command)


def limit_option(command: F) -> F:
    """`-n`, `--limit`."""
    text = f"Show at most so many; at a terminal {TERMINAL_LIMIT} unless you say more."
    return click.option("-n", "--limit", type=click.IntRange(min=1), help=text)(command)


def kind_option(command: F) -> F:
    """`--kind`."""
    text = "Of which kind JOB is, where a search and a service have one name."
    return click.option("--kind", type=click.Choice([door.kind for door in Door]), help=text)(command)


def shown_limit(limit: int | None, *, as_json: bool) -> int | None:
    """How many jobs are shown: as many as were asked for, else a page at a terminal and all elsewhere."""
    return TERMINAL_LIMIT if limit is None and is_terminal() and not as_json else limit


def question_of(words: Sequence[str], sort: str | None = None) -> Question:
    """The question on a command line; several arguments are one filter. A filter that is none is refused."""
    text = " ".join(words).strip()
    read_question(text, regex=True)
    return Question(None, text, sort or "", regex=True)


def chosen(catalogue: Catalogue, question: Question, jobs: Sequence[Row]) -> list[Row]:
    """The jobs that a question finds, in its order; a name that no job has is told."""
    if not question.filter and not question.sort:
        return list(jobs)
    if jobs:
        for name in catalogue.unknown(question, jobs):
            if name == question.sort.removeprefix("-"):
                raise NotFound(f"no job here has a field, tag, parameter or result {name!r} to sort by")
            note(f"no job here has a field, tag, parameter or result {name!r}")
    return list(catalogue.search(question, jobs))


def jobs_of(catalogue: Catalogue, run: str | None, *, every: bool = False) -> list[Row]:
    """The jobs of a group, or those that a person means without naming one; the newest first."""
    return catalogue.jobs(every=every) if run is None else catalogue.jobs_of(catalogue.group(run))


def named(catalogue: Catalogue, names: Iterable[str], kind: str | None = None) -> list[Row]:
    """The jobs that were named, each name standing for one."""
    return list({row.key: row for name in names for row in [catalogue.row(name, kind=kind)]}.values())


def need_one_of(ctx: click.Context, given: Iterable[object], message: str) -> None:
    """Refuses a command that does not say what it is about."""
    if not any(given):
        raise click.UsageError(message, ctx)
