"""The jobs that a command is about: by name, by group, by filter; and the options that choose them.
Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import click

from tenuto.catalogue import Catalogue, check_sort, job_chunks, sifted, submitted
from tenuto.cli.completions import complete_jobs, complete_runs
from tenuto.cli.console import is_terminal, note
from tenuto.cli.options import common_options
from tenuto.errors import Ambiguous, FilterError, NotFound
from tenuto.jobs.query import KINDS, Arranged, Chunks, Question, group_names, read_question
from tenuto.jobs.row import Group, Row
from tenuto.jobs.source import newest_first
from tenuto.lifecycle.owner_names import Door

TERMINAL_LIMIT = 100
"""How many jobs a person is shown at a time."""

MOST_NAMED = 8
"""How many jobs a refusal names."""
_SIGNS = frozenset("=<>~!")
"""A word with one of these is a filter, or part of one."""

_JOINING = frozenset({"and", "or", "not", "(", ")"})
"""Words of a filter that a shell divided."""
_HEX = frozenset("0123456789abcdef")

F = TypeVar("F", bound=Callable[..., Any])


def run_option(command: F) -> F:
    """`-r`, `--run`."""
    text = "One group: an experiment (its last run), one of its runs, a search or a service."
    return click.option("-r", "--run", metavar="GROUP", shell_complete=complete_runs, help=text)(command)


def all_option(command: F) -> F:
    """`-a`, `--all`."""
    text = "Every job: also of older runs, of no run, and what ended long ago."
    return click.option("-a", "--all", "every", is_flag=True, help=text)(command)


def limit_option(command: F) -> F:
    """`-n`, `--limit`."""
    text = f"Show at most so many; at a terminal {TERMINAL_LIMIT} by default."
    return click.option("-n", "--limit", type=click.IntRange(min=1), help=text)(command)


def kind_option(command: F) -> F:
    """`--kind`."""
    text = "Only jobs and groups of this kind; also tells a search and a service of one name apart."
    return click.option("--kind", type=click.Choice([door.kind for door in Door]), help=text)(command)


def job_options(command: F) -> F:
    """`--kind`, `--workspace` and `--json`, which every command about jobs has."""
    return kind_option(common_options(command))


def job_argument(command: F) -> F:
    """JOB: its name, also with `kind=KIND` beside it, or a filter that one job matches."""
    named = click.argument("words", metavar="JOB", nargs=-1, required=True, shell_complete=complete_jobs)
    return named(command)


def shown_limit(limit: int | None, *, as_json: bool) -> int | None:
    """How many jobs are shown: as many as were asked for, else a page at a terminal and all elsewhere."""
    return TERMINAL_LIMIT if limit is None and is_terminal() and not as_json else limit


def question_of(words: Sequence[str], sort: str | None = None) -> Question:
    """The question on a command line; several arguments are one filter. A filter that is none is refused."""
    text = " ".join(words).strip()
    read_question(text, regex=True)
    return Question(None, text, sort or "", regex=True)


def chosen(
    catalogue: Catalogue,
    question: Question,
    chunks: Chunks,
    *,
    arranged: Arranged = newest_first,
    most: int | None = None,
) -> Meant:
    """The jobs that a question finds, in its order; a name that no job has is told."""
    found = sifted(catalogue, question, chunks, arranged=arranged, most=most, tells_unknown=True)
    check_sort(question, found)
    for name in found.unknown if found.known else ():
        note(f"no job here has a field, tag, parameter or result {name!r}")
    return Meant(found.rows, total=found.total, known=found.known)


def jobs_of(catalogue: Catalogue, run: str | None, *, every: bool = False, kind: str | None = None) -> Chunks:
    """The jobs of a group, or the jobs that a person means without naming one."""
    if run is None:
        return partial(job_chunks, catalogue, every=every, kind=kind)
    rows = submitted(catalogue, catalogue.group(run, kind=kind))
    return lambda: (rows,)


def is_filter(word: str) -> bool:
    """True if a word compares something; names of jobs and groups do not."""
    return bool(_SIGNS & {*word})


def kind_beside(words: Sequence[str], kind: str | None) -> tuple[Sequence[str], str | None]:
    """Words without `kind=KIND`, and that kind, where it stands beside names: they are of this kind."""
    names = [word for word in words if not (word.startswith("kind=") and word[5:] in KINDS)]
    kinds = {word[5:] for word in words if word not in names}
    is_beside = names and len(kinds) == 1 and not any(is_filter(one) or one in _JOINING for one in names)
    return (names, kinds.pop()) if is_beside and kind is None else (words, kind)


class Meant(NamedTuple):
    """The jobs that the words of a command line stand for."""

    rows: list[Row]
    named: frozenset[str] = frozenset()
    """The keys of the jobs that were named one by one, and not by a group or a filter."""
    known: int = 0
    """How many jobs a filter chose from."""
    total: int = 0
    """How many are meant; `rows` may be the first of them."""


def meant(
    catalogue: Catalogue,
    words: Sequence[str],
    *,
    run: str | None = None,
    every: bool = False,
    sort: str | None = None,
    kind: str | None = None,
    most: int | None = None,
) -> Meant:
    """What words stand for: jobs and groups by their names, or a filter; no words: what `tenuto jobs` lists.

    Beside names, or each other, several filters are one: a job matches all of them.
    `run` and `every`: the jobs that a filter chooses from. `kind`: of which kind they are. `most`: how many
    rows are wanted; of very many jobs the others are not kept.
    """
    words, kind = kind_beside(words, kind)
    if words and run is not None and not any(map(is_filter, words)):
        raise click.UsageError("--run goes with a filter: a name says by itself which jobs are meant")
    try:
        question = question_of(words if any(map(is_filter, words)) else (), sort)
        is_asked = question.filter or not words
        jobs = jobs_of(catalogue, run, every=every, kind=kind) if is_asked else tuple
    except FilterError:
        if len(words) > 1:
            names, filters = _divided(catalogue, words)
            each = [*names, " and ".join(f"({one})" for one in filters)] if len(filters) > 1 else words
            parts = [meant(catalogue, [word], run=run, every=every, kind=kind) for word in each]
            rows = _each_once(row for part in parts for row in part.rows)
            named = frozenset(key for part in parts for key in part.named)
            return Meant(rows, named, max(part.known for part in parts), len(rows))
        with suppress(NotFound):  # such as the path of a directory
            return _named(catalogue, words, kind)
        raise
    found = chosen(catalogue, question, jobs, most=most)
    if words and not found.rows and (not question.filter or _is_group(catalogue, words)):
        named_ones = _named(catalogue, words, kind)
        by_sort = Question(None, "", sort or "", regex=True)
        rows = chosen(catalogue, by_sort, lambda: (named_ones.rows,), arranged=list).rows
        return named_ones._replace(rows=rows)
    return found


def _divided(catalogue: Catalogue, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names among words, and the filters."""
    filters = [word for word in words if _reads_as_filter(word) and not _is_group(catalogue, [word])]
    return [word for word in words if word not in filters], filters


def _reads_as_filter(word: str) -> bool:
    with suppress(FilterError):
        return bool(is_filter(word) and question_of([word]).filter)
    return False


def _is_group(catalogue: Catalogue, words: Sequence[str]) -> bool:
    """True for the name of a group that reads like a filter, such as ``lr=0.1``."""
    return len(words) == 1 and any(words[0] in group_names(one.group) for one in catalogue.groups())


def _named(catalogue: Catalogue, names: Iterable[str], kind: str | None) -> Meant:
    """The jobs with these names, and the jobs of groups with these names."""
    rows: list[Row] = []
    named: set[str] = set()
    for name in names:
        found = job_or_group(catalogue, name, kind)
        if isinstance(found, Group):
            rows += catalogue.jobs_of(found)
        else:
            rows.append(found)
            named.add(found.key)
    found_rows = _each_once(rows)
    return Meant(found_rows, frozenset(named), len(rows), len(found_rows))


def job_or_group(catalogue: Catalogue, name: str, kind: str | None = None) -> Row | Group:
    """The job, else the group, that a person calls so; a group's name outranks the beginning of an id."""
    if name and not set(name) - _HEX:
        with suppress(NotFound):
            return catalogue.group(name, kind=kind)
    try:
        return catalogue.row(name, kind=kind)
    except NotFound:
        if "#" in name:
            raise
    with suppress(NotFound):
        return catalogue.group(name, kind=kind)
    raise NotFound(
        f"no job, run, search or service is called {name!r}; "
        "`tenuto status` and `tenuto jobs --all` list them"
    )


def _each_once(rows: Iterable[Row]) -> list[Row]:
    return list({row.key: row for row in rows}.values())


def one_job(catalogue: Catalogue, words: Sequence[str], kind: str | None = None) -> str:
    """The key of the one job that words stand for: its name, or a group or filter with one job."""
    words, kind = kind_beside(words, kind)
    word = " ".join(words)
    if len(words) == 1 and "#" in word and not is_filter(word):
        return catalogue.key(word, kind=kind)  # the agent of a candidate has the row of the candidate
    rows = meant(catalogue, words, kind=kind).rows
    if len(rows) == 1:
        return rows[0].key
    if not rows:
        raise NotFound(f"no job matches {word!r}; `tenuto jobs --all` lists them")
    names = ", ".join(row.name for row in rows[:MOST_NAMED])
    more = "" if len(rows) <= MOST_NAMED else f", and {len(rows) - MOST_NAMED} more"
    raise Ambiguous(f"{word!r} stands for {len(rows)} jobs: {names}{more}; name one of them")


def groups_of(catalogue: Catalogue, rows: Iterable[Row], kind: str | None = None) -> list[Group]:
    """The groups that jobs belong to."""
    groups = (catalogue.source(key).group(key) for key in dict.fromkeys(row.group for row in rows) if key)
    return [group for group in groups if group is not None and kind in (None, group.door.kind)]


def need_one_of(ctx: click.Context, given: Iterable[object], message: str) -> None:
    """Refuses a command without an object."""
    if not any(given):
        raise click.UsageError(message, ctx)
