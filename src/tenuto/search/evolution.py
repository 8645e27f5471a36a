"""A search as a script declares it.
Loaded by every job of the search: imports nothing heavy; the methods load the loop of the search.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import SearchError
from tenuto.light import late
from tenuto.search.archive import AUTO
from tenuto.search.map_elites import MapElites
from tenuto.search.outcome import check_directions
from tenuto.search.plain_samplers import RandomSearch
from tenuto.search.programs import DEFAULT_MEASURES, Programs, Repository
from tenuto.search.proposals import check_name_and_seed, check_sampler, check_task, missing_extra
from tenuto.search.pruning import check_pruner
from tenuto.search.spaces import Domain
from tenuto.search.study import domain_of
from tenuto.tasks.arguments import guarded_by

if TYPE_CHECKING:
    from pathlib import Path

    from tenuto.compat import loreley
    from tenuto.search import open_search, search_run
    from tenuto.search.open_search import OpenSearch
    from tenuto.search.queues import Queue
    from tenuto.search.reporter import SearchResult
    from tenuto.search.search_loop import CandidateMaker, Console, SearchLoop
    from tenuto.settings import Settings
else:
    loreley = late("tenuto.compat.loreley")
    open_search = late("tenuto.search.open_search")
    search_run = late("tenuto.search.search_run")

_METRIC = "objective"


@guarded_by(SearchError)
class Evolution:
    """A search: which task evaluates a candidate, its variables, its sampler, and when it ends.

    `task`: a class of tasks, a config whose other parameters are set, or a `Repository`; `space`, or `start`
    and `vary`: what varies; `sampler`: by default random search; `direction`: "max" or "min", or a list of
    these, one for each objective; `workdir`: the
    workspace, by default that of the settings, else ``workspace``. It ends when one of these is reached:
    `max_total_jobs` candidates, `max_seconds` of running time, `max_cost`, the `target` objective, `stall`
    outcomes without a new or better cell. `max_unfinished_jobs`: how many candidates are in flight (twice the
    slots); `walltime_s`: how long one may run; `reproducible`: outcomes are told in the order of the numbers,
    so that the whole search repeats itself; `reuse`: outcomes that other searches and experiments know are
    looked up, and with False every candidate is evaluated; `repeats`: how often each is evaluated, with other
    seeds, whose mean counts, and `repeat_best`: how often again if it would be the best; `pruner`: `Median`
    or `Halving`, which stop candidates by the `metric` that they log, in the direction of the objective.
    `start_from`: the search whose outcomes are added first, as far as they fit. Arguments outrank `settings`.
    """

    def __init__(
        self,
        name: str,
        task: Any,
        *,
        space: Mapping[str, Any] | None = None,
        start: Callable[..., Any] | None = None,
        vary: Callable[..., Any] | None = None,
        sampler: Any = None,
        direction: str | Sequence[str] = "max",
        seed: int = 0,
        workdir: "str | Path | None" = None,
        max_unfinished_jobs: int | None = None,
        max_total_jobs: int | None = None,
        max_seconds: float | None = None,
        max_cost: float | None = None,
        target: float | None = None,
        stall: int | None = None,
        walltime_s: float | None = None,
        reproducible: bool = False,
        reuse: bool = True,
        repeats: int = 1,
        repeat_best: int = 0,
        pruner: Any = None,
        metric: str = _METRIC,
        start_from: str | None = None,
        settings: "Settings | None" = None,
    ) -> None:
        check_name_and_seed(name, seed)
        _check_counts(max_unfinished_jobs=max_unfinished_jobs, max_total_jobs=max_total_jobs, stall=stall)
        _check_numbers(max_seconds=max_seconds, max_cost=max_cost, target=target, walltime_s=walltime_s)
        self.name = name
        self.experiment_id = name
        self.task = task
        if isinstance(task, Repository):
            if space is not None or start is not None or vary is not None:
                raise SearchError("a Repository is varied by its agent: give no space, start or vary with it")
            self.domain: Domain = Programs(task)
            sampler = sampler if sampler is not None else _map_of_programs()
        else:
            self.domain = domain_of(space, start, vary)
            check_task(task)
        self.directions = check_directions(direction)
        self.maximize = self.directions[0]
        self.direction = direction if isinstance(direction, str) else list(direction)
        self.declared_sampler = sampler if sampler is not None else RandomSearch()
        check_sampler(self.declared_sampler, len(self.directions))
        self.seed = seed
        self.workdir = workdir
        self.max_unfinished_jobs = max_unfinished_jobs
        self.max_total_jobs = max_total_jobs
        self.max_seconds = max_seconds
        self.max_cost = max_cost
        self.target = target
        self.stall = stall
        self.walltime_s = walltime_s
        self.reproducible = reproducible
        self.reuse = reuse
        self.repeats = repeats
        self.repeat_best = repeat_best
        self.pruner = pruner
        self.metric = metric
        self.start_from = start_from
        self.given_settings = settings
        self._opened: OpenSearch | None = None
        self._check()

    def _check(self) -> None:
        """Raises `SearchError` for arguments that do not go together."""
        is_single, is_of_programs = len(self.directions) == 1, isinstance(self.task, Repository)
        if self.target is not None and not is_single:
            raise SearchError("target= needs a search with one objective")
        if self.workdir == "":
            raise SearchError("workdir='': give a directory")
        if self.pruner is None and self.metric != _METRIC:
            raise SearchError(f"metric={self.metric!r} is what a pruner judges: give pruner=, too")
        if self.pruner is not None:
            if not self.metric:
                raise SearchError("metric='': give the name of a metric that the task logs")
            check_pruner(self.pruner)
            if self.reproducible or not is_single or is_of_programs:
                raise SearchError(
                    "pruner= needs a task with one objective, and not reproducible=True: what is stopped "
                    "depends on which candidate is quicker"
                )
        _check_counts(repeats=self.repeats, repeat_best=self.repeat_best)
        if (self.repeats > 1 or self.repeat_best) and (self.pruner is not None or is_of_programs):
            raise SearchError("repeats= and repeat_best= need a task, and no pruner")
        if self.repeat_best and (self.reproducible or not is_single):
            raise SearchError(
                "repeat_best= needs one objective, and not reproducible=True: the best is of now"
            )
        if self.start_from is not None and (self.start_from == self.name or is_of_programs):
            raise SearchError(f"start_from={self.start_from!r}: give the name of another search, of tasks")

    @property
    def settings(self) -> "Settings":
        """The settings, with the arguments of this search; once it was opened, those that it has."""
        if self._opened is not None:
            return self._opened.settings  # a program may have gone to another directory since
        with missing_extra():
            settings_of = open_search.settings_of
        return settings_of(self)

    @property
    def sampler(self) -> "loreley.MapElitesSampler":
        """What makes candidates of the stored search, for a `JobScheduler`; opens it."""
        return loreley.MapElitesSampler(self.open().maker)

    def open(self) -> "OpenSearch":
        """Makes or finds the stored search.

        Raises `SearchDiffers` if a search of this name was declared otherwise, `SearchInJob` inside a job.
        """
        if self._opened is None:
            with missing_extra():
                kind = open_search.OpenSearch
            self._opened = kind(self)
        return self._opened

    def run(self, slots: int | None = None, console: "Console | None" = None) -> "SearchResult":
        """Runs the search until it ends; run again, it continues where it stopped.

        `slots`: how many candidates are evaluated at once (the settings'); `console`: where trouble is told.
        """
        with missing_extra():
            run = search_run.run
        return run(self, slots, console)

    def enqueue(self, values: Any, priority: int = 0, *, skip_if_exists: bool = False) -> int:
        """Adds a candidate of your own, beyond `max_unfinished_jobs`; its number.

        `skip_if_exists`: if the search has these values already, that candidate's number; otherwise they are
        refused. Raises `CapReached` if the search has `max_total_jobs` candidates already.
        """
        return self._open_for_more().enqueue(values, priority, skip_if_exists=skip_if_exists)

    def add(self, values: Any, outcome: Any, *, skip_if_exists: bool = False) -> int:
        """Adds a candidate whose outcome is known, which is told and never evaluated; its number.

        `outcome`: what the task would return. It costs nothing, counts as a candidate, and no other search
        takes it over. Raises `SearchError` for an outcome that failed or cannot be used, and as `enqueue`.
        """
        if isinstance(self.task, Repository):
            raise SearchError("programs are evaluated: give a commit of yours to enqueue")
        return self._open_for_more().add(values, outcome, skip_if_exists=skip_if_exists)

    def _open_for_more(self) -> "CandidateMaker":
        opened = self.open()
        opened.reopen(has_new=True)
        return opened.maker

    def scheduler(self, console: "Console | None" = None, queue: "Queue | Any | None" = None) -> "SearchLoop":
        """The scheduler of the search, without a worker: for programs that tick by themselves."""
        return self.open().scheduler(console, queue)

    def result(self) -> "SearchResult":
        """The outcome of the search so far."""
        return self.open().result()

    def close(self) -> None:
        """Closes the connection to the database, if the search was opened."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


_MOST = 1 << 31


def _check_counts(**given: int | None) -> None:
    for key, value in given.items():
        least = 0 if key in ("max_total_jobs", "repeat_best") else 1
        if value is not None and (type(value) is not int or value < least):
            raise SearchError(f"{key}={value!r} is not a whole number of at least {least}")
        if value is not None and value >= _MOST:
            raise SearchError(f"{key}={value!r} is more than a database counts; None is without bound")


def _check_numbers(**given: float | None) -> None:
    for key, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise SearchError(f"{key}={value!r} is not a number")
        if value is not None and (not math.isfinite(value) or (key != "target" and value <= 0)):
            raise SearchError(
                f"{key}={value!r} is not a finite number{'' if key == 'target' else ' above 0'}"
            )


def _map_of_programs() -> MapElites:
    return MapElites(cells=[10] * len(DEFAULT_MEASURES), ranges=AUTO, measures=DEFAULT_MEASURES)
