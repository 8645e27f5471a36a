"""Runs a declared search: opens its rows, puts scheduler and agent together, and ends both.
The only module that knows all parts.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.errors import SearchDiffers, SearchInJob
from tenuto.search.agent import Agent
from tenuto.search.archive import Elite
from tenuto.search.candidates import Candidates
from tenuto.search.decisions import Bounds
from tenuto.search.evolution_scheduler import EvolutionScheduler
from tenuto.search.export import candidate_rows, failures
from tenuto.search.interrupts import Interrupts
from tenuto.search.job_scheduler import Console
from tenuto.search.lines import LineReporter
from tenuto.search.opening import default_workspace, open_database
from tenuto.search.proposals import Sampler, Setup, begin, definition_of, measures_of
from tenuto.search.queues import Queue
from tenuto.search.replica import Replica
from tenuto.search.reporting import Progress, Reporter, RunOptions, current_options, current_reporter
from tenuto.search.result import SearchResult
from tenuto.search.rows import Caps, SearchRow
from tenuto.search.sampling import MapElitesSampler
from tenuto.search.store import Store
from tenuto.settings import Settings, load_settings
from tenuto.settings.search import SEARCH_SECTIONS
from tenuto.tasks.ports import current_job
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine

if TYPE_CHECKING:
    from tenuto.search.evolution import Evolution

_COMPARED = ("task", "space", "sampler", "seed", "direction", "reproducible")


def settings_of(evolution: Evolution) -> Settings:
    """The settings, with the arguments of a search."""
    settings = evolution.given_settings or load_settings(foreign=SEARCH_SECTIONS)
    given = {
        "max_unfinished_jobs": evolution.max_unfinished_jobs,
        "max_total_jobs": evolution.max_total_jobs,
        "walltime_s": evolution.walltime_s,
    }
    known: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    return dataclasses.replace(settings, search=dataclasses.replace(settings.search, **known))


def workspace_of(evolution: Evolution, settings: Settings) -> Path:
    """The workspace of a search."""
    if evolution.workdir is None:
        return default_workspace(settings)
    return Path(os.path.abspath(settings.workspace(evolution.workdir)))


class OpenSearch:
    """A search with its rows: what schedulers, agents and results are made of."""

    def __init__(self, evolution: Evolution, slots: int | None = None) -> None:
        if current_job.get() is not None:
            raise SearchInJob(
                f"the search {evolution.name!r} was opened inside a job, which imported the script that "
                f'opens it: put the search under `if __name__ == "__main__":`'
            )
        self.evolution = evolution
        self.name = evolution.name
        self.settings = settings_of(evolution)
        if slots is not None:
            self.settings = dataclasses.replace(self.settings, slots=slots)
        self.workspace = workspace_of(evolution, self.settings)
        self.machine = this_machine()
        layout = Layout(str(self.workspace))
        self.candidates = Candidates(evolution.task, evolution.domain, layout)
        self.candidates.check(self.machine.files)
        self.window = self.max_unfinished if evolution.reproducible else None
        self.definition = self._definition()
        self.store = Store(open_database(self.settings, self.workspace))
        self.row = self._open_row()
        self.sampler = self._sampler()

    @property
    def max_unfinished(self) -> int:
        return self.settings.search.max_unfinished_jobs or 2 * self.settings.slots

    def _definition(self) -> dict[str, Any]:
        evolution = self.evolution
        names, count = measures_of(evolution.declared_sampler)
        made = {
            "task": self.candidates.task_id,
            "space": evolution.domain.definition(),
            "sampler": definition_of(evolution.declared_sampler),
            "seed": evolution.seed,
            "direction": evolution.direction,
            "reproducible": self.window,
            "measures": list(names),
            "measure_count": count,
            "walltime_s": self.settings.search.walltime_s,
            "max_total": self.settings.search.max_total_jobs,
        }
        plain: dict[str, Any] = json.loads(json.dumps(made))
        return plain

    def _open_row(self) -> SearchRow:
        try:
            row = self.store.open(self.name, self.definition, self.evolution.seed)
            for key in _COMPARED:
                place = difference(row.definition.get(key), self.definition[key], key)
                if place is not None:
                    raise SearchDiffers(
                        f"the stored search {self.name!r} was declared otherwise: {place}. Put that back, "
                        f"give the search another name, or discard it: tenuto search remove {self.name} --yes"
                    )
            if row.definition != self.definition:
                self.store.redefine(self.name, self.definition)
        except BaseException:
            self.store.database.close()
            raise
        return row

    def _sampler(self) -> MapElitesSampler:
        search = self.settings.search
        setup = Setup(
            self.evolution.domain,
            self.evolution.maximize,
            self.evolution.seed,
            search.seed_population,
            search.inspirations,
        )

        def fresh() -> Sampler:
            return begin(self.evolution.declared_sampler, setup)

        replica = Replica(self.store, self.name, fresh, self.candidates, self.evolution.seed)
        return MapElitesSampler(
            self.store,
            replica,
            self.candidates,
            caps=Caps(self.max_unfinished, search.max_total_jobs),
            maximize=self.evolution.maximize,
            default_priority=search.default_priority,
            window=self.window,
        )

    def bounds(self) -> Bounds:
        evolution, search = self.evolution, self.settings.search
        return Bounds(
            self.max_unfinished,
            search.max_total_jobs,
            search.schedule_batch_size,
            evolution.max_seconds,
            evolution.max_cost,
            evolution.target,
            evolution.stall,
            search.seed_population,
            evolution.maximize,
        )

    def scheduler(
        self, console: Console | None = None, queue: Queue | None = None, agent: Agent | None = None
    ) -> EvolutionScheduler:
        """The scheduler of the search."""
        return EvolutionScheduler(
            self.settings,
            console or Plain(LineReporter()),
            self.sampler,
            self.name,
            store=self.store,
            queue=queue,
            agent=agent,
            bounds=self.bounds(),
            workspace=self.workspace,
            machine=self.machine,
        )

    def agent(self) -> Agent:
        """An agent for the candidates of this search, on the slots of this machine."""
        return Agent(
            self.store,
            self.settings,
            self.workspace,
            self.machine,
            slots=self.settings.slots,
            only=[self.name],
            is_leased=self.settings.database.url is not None,
        )

    def reopen(self) -> None:
        """Lets a search that ended go on if its bounds allow more by now."""
        row = self.store.search(self.name)
        if row is None or row.reason is None:
            return
        bounds = self.bounds()
        more = {
            "TOTAL": bounds.max_total is None or bounds.max_total > row.scheduled,
            "TIME": bounds.max_seconds is None or bounds.max_seconds > row.active_ms / 1000,
            "COST": bounds.max_cost is None or bounds.max_cost > row.cost,
            "STOPPED": True,
            "FAILING": True,
            "EXHAUSTED": False,
        }
        if more.get(row.reason.name, self._is_beyond(row)):
            self.store.reopen(self.name)

    def _is_beyond(self, row: SearchRow) -> bool:
        if row.reason is not None and row.reason.name == "TARGET":
            target, best = self.evolution.target, row.best_objective
            if target is None or best is None:
                return True
            return best < target if self.evolution.maximize else best > target
        return self.evolution.stall is None or self.sampler.replica.tally.since_better < self.evolution.stall

    def result(self, is_interrupted: bool = False) -> SearchResult:
        """What came of the search so far."""
        replica = self.sampler.replica
        replica.read_on()
        row = self.store.search(self.name)
        assert row is not None
        tally = replica.tally
        return SearchResult(
            row.id,
            row.state.value,
            row.reason.name if row.reason else None,
            row.message,
            row.scheduled,
            tally.succeeded,
            tally.failed,
            tally.reused,
            row.cost,
            self._best(row),
            replica.archive,
            is_interrupted,
            lambda: candidate_rows(self.store, self.name),
        )

    def _best(self, row: SearchRow) -> Elite | None:
        archive = self.sampler.replica.archive
        if archive is not None and archive.best is not None:
            return archive.best
        if row.best_number is None or row.best_objective is None:
            return None
        return Elite(0, row.best_objective, (), row.best_number, None)

    def close(self) -> None:
        self.store.database.close()


def difference(stored: Any, declared: Any, place: str) -> str | None:
    """The first place where two definitions differ, in words."""
    if stored == declared:
        return None
    if isinstance(stored, dict) and isinstance(declared, dict):
        for key in [*stored, *(key for key in declared if key not in stored)]:
            if stored.get(key) != declared.get(key):
                return difference(stored.get(key), declared.get(key), f"{place}.{key}")
    return f"{place} was {json.dumps(stored)}, and is {json.dumps(declared)} now"


class Plain:
    """A console for a reporter that reads no markup."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def print(self, *objects: Any) -> None:
        text = " ".join(str(one) for one in objects)
        for mark in ("[yellow]", "[red]", "[/]"):
            text = text.replace(mark, "")
        text = text.replace("\\[", "[")
        if text != "Sampler returned no job":  # not news to a person who watches the search
            self._reporter.say(text)


def run(evolution: Evolution, slots: int | None, console: Console | None) -> SearchResult:
    """Runs a search until it ends, or a person leaves it."""
    options = current_options.get() or RunOptions()
    reporter: Reporter = current_reporter.get() or LineReporter()
    opened = OpenSearch(evolution, slots or options.slots)
    try:
        result = Run(opened, reporter, console, options).run()
    finally:
        opened.close()
    options.results.append(result)
    return result


class Run:
    """One execution of a search in this process."""

    def __init__(
        self, opened: OpenSearch, reporter: Reporter, console: Console | None, options: RunOptions
    ) -> None:
        self._opened = opened
        self._reporter = reporter
        self._options = options
        self._clock = opened.machine.clock
        self._began = self._clock.monotonic()
        self.agent = opened.agent() if options.workers else None
        self.scheduler = opened.scheduler(console or Plain(reporter), agent=self.agent)
        self.scheduler.on_tick = self._ticked
        self._failed_before = 0
        self._failures_before: Counter[str] = Counter()

    def run(self) -> SearchResult:
        opened = self._opened
        opened.sampler.replica.read_on()
        opened.reopen()
        self._reporter.started(self._progress())
        interrupts = Interrupts(self._stop, self._leave, self._reporter.say)
        with interrupts:
            if self.agent is not None:
                self.agent.start()
            try:
                self.scheduler.run_forever(once=self._options.once)
            finally:
                if self.agent is not None:
                    self.agent.drain() if not interrupts.is_left else self.agent.leave()
                    self.agent.join(None if not interrupts.is_left else 10)
        self.scheduler.jobs.close()
        result = opened.result(interrupts.count > 0)
        self._reporter.ended(self._progress(), result)
        return result

    def _stop(self) -> None:
        self.scheduler.stop()
        if self.agent is not None:
            self.agent.drain()

    def _leave(self) -> None:
        if self.agent is not None:
            self.agent.leave()
        self.scheduler.stop(at_once=True)

    def _ticked(self, counts: dict[str, int]) -> None:
        self._reporter.progressed(self._progress())

    def _progress(self) -> Progress:
        view = self.scheduler.view or self._opened.store.view(self._opened.name)
        assert view is not None
        replica = self._opened.sampler.replica
        tally, archive = replica.tally, replica.archive
        parents = {p.parent for p in replica.in_flight.values() if p.parent is not None}
        cells = tuple(e.cell for e in archive.elites() if e.number in parents) if archive and parents else ()
        return Progress(
            self._opened.name,
            view.search.state.value,
            view.search.scheduled,
            self._opened.settings.search.max_total_jobs,
            view.search.scheduled - view.counts.unfinished,
            view.counts.unfinished,
            view.counts.running,
            tally.succeeded,
            tally.failed,
            tally.reused,
            view.search.cost,
            self._clock.monotonic() - self._began,
            view.search.best_number,
            view.search.best_objective,
            archive,
            cells,
            self._opened.settings.slots if self.agent is not None else 0,
            self._failures(tally.failed),
        )

    def _failures(self, failed: int) -> Counter[str]:
        if failed != self._failed_before:
            self._failed_before = failed
            self._failures_before = failures(self._opened.store, self._opened.name)
        return self._failures_before
