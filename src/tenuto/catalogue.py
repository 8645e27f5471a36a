"""The catalogue of a workspace: its jobs, whichever door they came by, asked and steered in one way.
Commands, the page, the terminal and notebooks stand on it; it shows nothing itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.errors import Ambiguous, BadQuestion, NotFound
from tenuto.experiments.source import ExperimentSource
from tenuto.experiments.workspace import Workspace
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.columns import Sieve
from tenuto.jobs.key import JobKey
from tenuto.jobs.metrics import JobUsage, MetricColumn, metric_column, metric_rows, usage_of
from tenuto.jobs.query import (
    KINDS,
    Arranged,
    Chunks,
    Question,
    Sifted,
    group_names,
    read_question,
    sift,
)
from tenuto.jobs.result_table import ResultReader, ResultRow, by_tags, flat_result, result_of
from tenuto.jobs.row import Detail, Group, Row, Why, group_key
from tenuto.jobs.source import Acted, Action, Source, Target, newest_first, newest_listed
from tenuto.jobs.text import there_are
from tenuto.lifecycle.owner_names import Door, OwnerName
from tenuto.lifecycle.states import JobState
from tenuto.light import late
from tenuto.settings import Settings, load_settings
from tenuto.settings.search import SEARCH_FILE
from tenuto.settings.service import ServiceSettings
from tenuto.settings.urls import Url
from tenuto.tasks.arguments import guarded
from tenuto.workspace.machine import this_machine
from tenuto.workspace.points import Points

if TYPE_CHECKING:
    from tenuto.search import opening as searches
    from tenuto.search import source as search_source
    from tenuto.service import configuration, tables
    from tenuto.service import source as service_source
else:
    searches = late("tenuto.search.opening")
    search_source = late("tenuto.search.source")
    configuration = late("tenuto.service.configuration")
    service_source = late("tenuto.service.source")
    tables = late("tenuto.service.tables")

PATIENCE_S = 5.0
"""How long a reader waits for a database that does not answer."""
_SHOWN = 8
_OF_GROUPS = frozenset({Action.PAUSE, Action.RESUME})


@guarded
class Catalogue:
    """The jobs of one workspace: of its experiments, and of its searches and services where there are any."""

    def __init__(self, path: Path | str | WorkspaceView | None = None, *, settings: Settings | None = None):
        """`path`: the workspace, or its name in the settings. `settings`: by default those of this place.

        Raises `NotFound` if there is neither such a workspace nor a service or a search in the settings.
        """
        settings = settings or load_settings()
        if not isinstance(path, WorkspaceView):
            path = WorkspaceView(Workspace.named(path, settings).layout, this_machine())
            if not Path(path.layout.root).is_dir() and not has_databases(settings):
                raise NotFound(
                    f"there is no workspace {path.layout.root}: give the path of one, or run something there"
                )
        self.view = path
        self.experiments = ExperimentSource(path, settings)
        self.missing: dict[str, str] = {}
        """kind -> the package that is not installed, of doors that cannot be shown for want of it."""
        self._databases = ExitStack()
        self.sources: list[Source] = [self.experiments]
        for door, is_used, opened in (
            (Door.SEARCH, _has_searches, _search),
            (Door.SERVICE, lambda _, settings: _has_service(settings), _service),
        ):
            if is_used(path, settings):
                try:
                    self.sources.append(opened(path, settings, self._databases))
                except ModuleNotFoundError as error:
                    self.missing[door.kind] = error.name or str(error)
        self.experiments.beside = frozenset(source.door for source in self.sources[1:])

    def close(self) -> None:
        """Closes the databases that were opened."""
        self._databases.close()

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Looking

    def now(self) -> datetime:
        """The instant that durations are measured at."""
        return self.view.machine.clock.now()

    def groups(self, kind: str | None = None) -> list[Group]:
        """The runs, services and searches of the workspace, the newest of each kind first.

        `kind`: ``experiment``, ``service`` or ``search``.
        """
        return [group for source in self._of(kind) for group in source.groups()]

    def rows(self, filter: str = "", *, every: bool = False, sort: str = "") -> list[Row]:
        """The jobs that a filter matches, the newest first.

        `filter`: as in ``tenuto jobs``, such as ``state=error and lr<0.1``. `every`: also jobs of older runs,
        of searches and of services that ended longer ago. `sort`: a field, tag, parameter or result;
        ``-FIELD``: the largest first. Raises `NotFound` if no job has it.
        """
        question = Question(None, filter, sort, regex=True)
        found = sifted(self, question, partial(job_chunks, self, every=every), tells_unknown=bool(sort))
        check_sort(question, found)
        return found.rows

    def jobs(self, *, every: bool = False) -> list[Row]:
        """The jobs that a person means without a filter, the newest first."""
        return newest_first(row for chunk in job_chunks(self, every=every) for row in chunk)

    def newest(self, most: int) -> tuple[list[Row], int]:
        """The first `most` of what `jobs` gives, and how many it would give; made for very many jobs."""
        others = [newest_listed(one, most) for one in self.sources if one is not self.experiments]
        found = [self.experiments.newest(most), *others]
        return newest_first(row for rows, _ in found for row in rows[::-1])[:most], sum(
            total for _, total in found
        )

    def jobs_of(self, group: Group) -> list[Row]:
        """The jobs of a group, the newest first."""
        return newest_first(submitted(self, group))

    def group(self, name: str, *, kind: str | None = None) -> Group:
        """The newest group that a person calls so: an experiment, one of its runs, a search or a service.

        `kind`: which of them, where a search and a service have one name. Raises `NotFound` or `Ambiguous`.
        """
        groups = self.groups(kind)
        found = [
            group for group in groups if name in group_names(group.group) or (name and name == group.run)
        ]
        if not found:
            known = there_are(name, (group.group.partition(":")[2] for group in groups))
            raise NotFound(f"no run, search or service is called {name!r}; {known}")
        kinds = sorted({group.door.kind for group in found})
        if len(kinds) > 1:
            raise Ambiguous(f"{name!r} is a {' and a '.join(kinds)}: add --kind {' or --kind '.join(kinds)}")
        return found[0]

    def counts(self, group: Group) -> Mapping[JobState, int]:
        """How many jobs of a group are in which state."""
        return self.source(group.group).counts(group.group)

    def unlisted(self) -> list[tuple[Group, Mapping[JobState, int]]]:
        """Owners of jobs here that no run, service or search lists, such as a node, and their counts."""
        found = self.view.jobs_of_no_run()
        owners = {name: OwnerName.parse(name) for name in found}
        return [
            (Group(group_key(owner), owner.door, owner.name), Counter(found[name].values()))
            for name, owner in owners.items()
            if owner.door not in self.experiments.beside
        ]

    def running_unlisted(self) -> list[Row]:
        """The running jobs of those owners."""
        return [
            self.view.job_alone(key)
            for name, jobs in self.view.jobs_of_no_run().items()
            if OwnerName.parse(name).door not in self.experiments.beside
            for key, state in jobs.items()
            if state.running()
        ]

    def search(self, question: Question, rows: Sequence[Row]) -> Sequence[Row]:
        """Of these rows the ones that a question finds, in its order."""
        return sifted(self, question, lambda: (rows,), arranged=list).rows

    def unknown(self, question: Question, rows: Sequence[Row]) -> list[str]:
        """The names in a question that no row has."""
        return list(sifted(self, question, lambda: (rows,), tells_unknown=True).unknown)

    def row(self, name: str, *, kind: str | None = None) -> Row:
        """The one job that a person calls so; `NotFound` if none is, `Ambiguous` if several are.

        `name`: the beginning of an id, ``TASK/ID`` or a task with one job; ``NAME#N`` of a search,
        ``SERVICE#N`` of a service. `kind`: which of them, where a search and a service have one name.
        """
        key = self.key(name, kind=kind)
        if self.source(key) is self.experiments:
            return self.view.job(self.experiments.parsed(key))
        return self.source(key).detail(key).row

    def detail(self, name: str, *, kind: str | None = None) -> Detail:
        """Everything about the one job that a person calls so."""
        key = self.key(name, kind=kind)
        return self.source(key).detail(key)

    def job_key(self, detail: Detail) -> JobKey | None:
        """Where the job's directory lies in this workspace: its own, or that of a candidate's evaluation."""
        directory = detail.fields.get("directory")
        return self.view.key_of(directory) if directory is not None else None

    def usage(self, row: Row) -> JobUsage | None:
        """A job's order against its use; None if no attempt ended, or nothing was measured."""
        key = row.job_key if row.door is Door.EXPERIMENTS else self.job_key(self.detail(row.id))
        return None if key is None else usage_of(self.view.machine.files, self.view.layout.job(*key))

    def why(self, name: str, *, kind: str | None = None) -> Why:
        """Why the one job that a person calls so is where it is."""
        key = self.key(name, kind=kind)
        return self.source(key).why(key)

    def key(self, name: str, *, kind: str | None = None) -> str:
        """The key of the one job that a person calls so."""
        found: list[str] = []
        unknown = NotFound(f"no job is called {name!r}; `tenuto jobs --all` lists them")
        for source in self._of(kind) if name else ():
            try:
                found += source.find(name)
            except NotFound as said:  # such as of a service, where a search has a candidate of this name
                unknown = said
        if not found:
            raise unknown
        doors = {key.partition(":")[0] for key in found}
        if len(doors) > 1:
            kinds = " or ".join(f"--kind {Door(door).kind}" for door in sorted(doors))
            raise Ambiguous(f"{name!r} names a job of several kinds: add {kinds}")
        if len(found) > 1:
            more = "" if len(found) <= _SHOWN else f", and {len(found) - _SHOWN} more"
            names = ", ".join(_short(key) for key in found[:_SHOWN])
            raise Ambiguous(f"{len(found)} jobs are called {name!r}: {names}{more}; give more of the id")
        return found[0]

    def parameters(self, key: str) -> Mapping[str, Any]:
        """The parameters and the result of a job, by name."""
        return self.source(key).parameters(key)

    def own_parameters(self) -> Callable[[Row], Mapping[str, Any]]:
        """Reads parameters of jobs; a job of an experiment has also the parameters of the jobs it used."""
        reader = ResultReader(self.view.machine.files, self.view.layout)

        def read(row: Row) -> Mapping[str, Any]:
            if row.door is Door.EXPERIMENTS:
                return reader.parameters(row.job_key)
            return self.parameters(row.key)

        return read

    def result_rows(self, rows: Sequence[Row], metrics: Sequence[MetricColumn] = ()) -> list[ResultRow]:
        """The results and parameters of the jobs that are done, in the order of the jobs.

        `metrics`: columns of what jobs logged; with them also jobs that are not done and logged one of them.
        """
        read, files, layout = self.own_parameters(), self.view.machine.files, self.view.layout
        found: list[ResultRow] = []
        for row in rows:
            points = self.points(row.key) if metrics else {}
            logged = {one.name: one.of(points) for one in metrics if one.metric in points}
            if row.state is not JobState.DONE:
                result = None
                if not logged:
                    continue
            elif row.door is Door.EXPERIMENTS:
                result = result_of(files, layout.job(*row.job_key), row)
            else:
                result = row.result
            found += [ResultRow(tagged, read(row), result, logged) for tagged in by_tags(row)]
        return found

    def results(
        self, filter: str = "", *, every: bool = False, metric: str | Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """One row for each job that is done: id, name, kind, group, task, its tags, parameters and result.

        `filter` and `every`: as of `rows`. `metric`: ``loss``, ``loss:min`` or ``loss:max``, or several:
        columns of what jobs logged; with them also jobs that are not done.
        """
        wanted = [metric_column(one) for one in ((metric,) if isinstance(metric, str) else metric)]
        return [
            {
                "id": row.job.id,
                "name": row.job.name,
                "kind": row.job.door.kind,
                "group": row.job.group.partition(":")[2],
                "task": row.job.task,
                **row.parameters,
                **row.job.tags,
                **row.values,
            }
            for row in self.result_rows(self.rows(filter, every=every), wanted)
        ]

    def metrics(
        self, filter: str = "", *, name: str | Sequence[str] = (), every: bool = False
    ) -> list[dict[str, Any]]:
        """One row for each point that jobs logged: metric, step, time and value, and which job did.

        ``pandas.DataFrame(catalogue.metrics())`` works as it is. `filter` and `every`: as of `rows`. `name`:
        the metric, or several, also what runners measure (``system/cpu``); by default all that jobs logged.
        """
        names = (name,) if isinstance(name, str) else tuple(name)
        rows = self.rows(filter, every=every)
        return list(metric_rows(((row, self.points(row.key)) for row in rows), names))

    def points(self, key: str) -> Points:
        """The points that the job with this key logged, by name."""
        return self.source(key).metrics(key)

    # Steering

    def act(
        self,
        action: Action | str,
        rows: Sequence[Row | Group | str],
        *,
        dry_run: bool = False,
        by: str = "a script",
    ) -> list[Acted]:
        """Stops, retries or removes jobs, or pauses or resumes groups, and says what became of each.

        `action`: ``kill``, ``retry`` or ``clean``, and `rows`: jobs, as rows or by name; or ``pause`` or
        ``resume``, and groups, or their names. `dry_run`: only says what would happen to jobs. `by`: who
        is noted.
        """
        action = _action(action)
        if action in _OF_GROUPS:
            if dry_run:
                raise BadQuestion(f"{action.value} has no dry run")
            groups = [one.name if isinstance(one, Row) else one for one in rows]
            found = [one if isinstance(one, Group) else self.group(one) for one in groups]
            return [self.steer(action, one, by=by) for one in found]
        targets: dict[str, list[Target]] = {}
        for one in rows:
            if isinstance(one, Group):
                raise BadQuestion(f"{action.value} is for jobs: give it those of jobs_of(group)")
            row = one if isinstance(one, Row) else self.row(one)
            targets.setdefault(row.key.partition(":")[0], []).append(Target(row.key, row.attempt))
        return [
            acted
            for door, some in targets.items()
            for acted in self._doors[door].act(action, some, dry_run=dry_run, by=by)
        ]

    def steer(self, action: Action | str, group: Group, *, by: str = "a script") -> Acted:
        """Pauses or resumes a group, and says what became of that.

        `action`: ``pause`` or ``resume``. `group`: as `group` and `groups` give it. `by`: the person that is
        noted.
        """
        action = _action(action)
        if action not in _OF_GROUPS:
            raise BadQuestion(f"{action.value} is for jobs: give their rows to act()")
        (acted,) = self.source(group.group).act(action, [Target(group.group)], dry_run=False, by=by)
        return acted

    # Where a question goes

    @property
    def _doors(self) -> dict[str, Source]:
        return {source.door.value: source for source in self.sources}

    def _of(self, kind: str | None) -> Iterator[Source]:
        if kind is not None and kind not in KINDS:
            raise BadQuestion(f"{kind!r:.40} is no kind of job: it is one of {', '.join(sorted(KINDS))}")
        return (source for source in self.sources if kind in (None, source.door.kind))

    def source(self, key: str) -> Source:
        """The source that shows the job or group with this key."""
        found = self._doors.get(key.partition(":")[0])
        if found is None:
            raise NotFound(f"nothing here has {key!r:.200}")
        return found


def job_chunks(
    catalogue: Catalogue, *, every: bool = False, kind: str | None = None, sieve: Sieve | None = None
) -> Iterator[Sequence[Row]]:
    """What `Catalogue.jobs` gives, some at a time and in no order, but for what a sieve leaves out."""
    for source in catalogue.sources:
        if kind in (None, source.door.kind):
            if sieve is not None and source is catalogue.experiments and not every:
                yield from catalogue.experiments.sieved(sieve)
            else:
                yield from source.every() if every else source.listed()


def submitted(catalogue: Catalogue, group: Group) -> list[Row]:
    """The jobs of a group, in the order they were submitted."""
    chunks = catalogue.source(group.group).rows(group.group)
    return list({row.key: row for chunk in chunks for row in chunk}.values())


def sifted(
    catalogue: Catalogue,
    question: Question,
    chunks: Chunks,
    *,
    arranged: Arranged = newest_first,
    most: int | None = None,
    tells_unknown: bool = False,
) -> Sifted:
    """Of rows that come as a stream the ones that a question finds: `sift`."""

    def parameters(row: Row) -> Mapping[str, Any]:
        if row.door is Door.EXPERIMENTS:  # its marker is not read again
            return catalogue.view.parameters(row)
        return {**flat_result(row.result), **catalogue.parameters(row.key)}

    tree = read_question(question.filter, regex=question.regex, words=question.words)
    tags: set[str] = set()
    if isinstance(chunks, partial) and chunks.func is job_chunks and tree is not None and not question.sort:
        chunks = partial(chunks, sieve=Sieve(tree, most, tags))
    found = partial(sift, chunks, question, catalogue.now(), parameters, arranged=arranged)
    return found(most=most, tells_unknown=tells_unknown, tags=tags)


def check_sort(question: Question, found: Sifted) -> None:
    """Refuses to sort by a name that none of the jobs has, if there are any; asked with `tells_unknown`."""
    name = question.sort.removeprefix("-")
    if name and found.known and name in found.unknown:
        raise NotFound(f"no job here has a field, tag, parameter or result {name!r} to sort by")


def _action(action: Action | str) -> Action:
    try:
        return Action(action)
    except ValueError:
        known = ", ".join(one.value for one in Action)
        raise BadQuestion(f"{action!r:.40} is no action: it is one of {known}") from None


def _short(key: str) -> str:
    task, _, job_id = key.partition(":")[2].rpartition("/")
    return f"{task}/{job_id[:12]}"


def has_databases(settings: Settings) -> bool:
    """Whether the settings name a service that has a database, or a database of searches."""
    return settings.database.url is not None or _has_service(settings)


def _has_service(settings: Settings) -> bool:
    database = settings.service.database
    is_declared = settings.service != ServiceSettings() or any(
        key.partition(".")[0] in ("service", "services") for key in settings.origins
    )
    return is_declared and (isinstance(database, Url) or Path(database).exists())


def _has_searches(view: WorkspaceView, settings: Settings) -> bool:
    return settings.database.url is not None or Path(view.layout.root, SEARCH_FILE).exists()


def _search(view: WorkspaceView, settings: Settings, databases: ExitStack) -> Source:
    root = view.layout.root
    database = searches.open_database(settings, Path(root))
    return search_source.SearchSource(databases.enter_context(closing(database)), root)


def _service(view: WorkspaceView, settings: Settings, databases: ExitStack) -> Source:
    database = tables.opened(configuration.database_of(settings.service), tables.MIGRATIONS, PATIENCE_S)
    place = str(settings.service.data)
    return service_source.ServiceSource(databases.enter_context(closing(database)), place, settings.services)
