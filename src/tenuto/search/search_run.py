"""Runs a declared search: puts scheduler and agent together, shows how it goes, and ends both.
Knows how to run and to end; how a search is opened is in `open_search`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tenuto.errors import WorkerDied
from tenuto.search.best_branch import BestBranch
from tenuto.search.export import failures
from tenuto.search.interrupts import SearchInterrupts
from tenuto.search.job_scheduler import Console
from tenuto.search.line_reporter import LineReporter
from tenuto.search.open_search import OpenSearch
from tenuto.search.plain_console import Plain
from tenuto.search.programs import Programs
from tenuto.search.reporter import (
    RunOptions,
    SearchProgress,
    SearchReporter,
    current_options,
    current_reporter,
)
from tenuto.search.result import SearchResult

if TYPE_CHECKING:
    from tenuto.search.evolution import Evolution


def run(evolution: Evolution, slots: int | None, console: Console | None) -> SearchResult:
    """Runs a search until it ends, or a person leaves it."""
    options = current_options.get() or RunOptions()
    reporter: SearchReporter = current_reporter.get() or LineReporter()
    opened = OpenSearch(evolution, slots or options.slots)
    try:
        result = SearchRun(opened, reporter, console, options).run()
    finally:
        opened.close()
    options.results.append(result)
    return result


def _best_branch(opened: OpenSearch) -> BestBranch | None:
    domain = opened.evolution.domain
    if not isinstance(domain, Programs):
        return None
    host = opened.machine.processes.own().host
    path, workspace = domain.repository.path, str(opened.workspace)
    return BestBranch(opened.store, opened.row, path, workspace=workspace, host=host)


class SearchRun:
    """One execution of a search in this process."""

    def __init__(
        self, opened: OpenSearch, reporter: SearchReporter, console: Console | None, options: RunOptions
    ) -> None:
        self._opened = opened
        self._reporter = reporter
        self._options = options
        self._clock = opened.machine.clock
        self._began = self._clock.monotonic()
        self._branch = _best_branch(opened)
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
        interrupts = SearchInterrupts(self._stop, self._leave, self._reporter.say)
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
            if self.agent is not None and self.agent.error is not None:
                error = self.agent.error
                words = f"{opened.name} could not go on: {type(error).__name__}: {error}"
                raise WorkerDied(words) from error
            result = opened.result(interrupts.count > 0)
            self._follow_best()
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

    def _follow_best(self) -> None:
        if self._branch is not None and self.scheduler.view is not None:
            trouble = self._branch.follow(self.scheduler.view.search.best_number)
            if trouble is not None:
                self._reporter.say(trouble)

    def _ticked(self, counts: dict[str, int]) -> None:
        if self.scheduler.view is None:  # the database did not answer, or the search was removed
            return
        self._follow_best()
        self._reporter.progressed(self._progress())

    def _progress(self) -> SearchProgress:
        view = self.scheduler.view or self._opened.store.view(self._opened.name)
        assert view is not None
        replica = self._opened.sampler.replica
        tally, archive = replica.tally, replica.archive
        parents = {p.parent for p in replica.in_flight.values() if p.parent is not None}
        cells = tuple(e.cell for e in archive.elites() if e.number in parents) if archive and parents else ()
        return SearchProgress(
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
