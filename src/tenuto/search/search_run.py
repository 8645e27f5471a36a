"""Runs a declared search: puts scheduler and worker together, shows how it goes, and ends both.
Knows how to run and to end; how a search is opened is in `open_search`.
"""

from __future__ import annotations

import json
import os
import os.path
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from tenuto.errors import SearchError, WorkerDied
from tenuto.jobs.driver_command import running_command
from tenuto.jobs.notify import Notice, Notifier
from tenuto.search.export import failures, kept_outcome
from tenuto.search.git import Git
from tenuto.search.open_search import OpenSearch
from tenuto.search.program_tasks import check_commands, ignore_workspace, remarks_on
from tenuto.search.programs import Programs
from tenuto.search.reporter import (
    LineReporter,
    Plain,
    RunOptions,
    SearchProgress,
    SearchReporter,
    SearchResult,
    current_options,
    current_reporter,
)
from tenuto.search.rows import SearchRow
from tenuto.search.search_loop import Console
from tenuto.search.store import Store
from tenuto.search.tables import jobs
from tenuto.settings.tree import imposed_notify

if TYPE_CHECKING:
    from tenuto.search.evolution import Evolution

# What Ctrl-C, or a TERM, does to a search or a worker: the first has it drain, the third end at once.
# Changes the process's signal handlers, and puts them back.


INTERRUPTED = 5


class SearchInterrupts:
    """Counts interrupts while a search or a worker runs; does nothing outside the main thread."""

    def __init__(self, say: Callable[[str], None], *acts: tuple[Callable[[], None], str]) -> None:
        """`acts`: what the first and the second interrupt do, each with what is said of it."""
        self._say = say
        self._acts = acts
        self._before: dict[int, Any] = {}
        self.count = 0

    @property
    def is_left(self) -> bool:
        """True once a person did not want to wait for running rows."""
        return self.count > 1

    def __enter__(self) -> SearchInterrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._interrupted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        # In a thread: a handler interrupts whatever the main thread does, also what holds a lock.
        if self.count > len(self._acts):
            os._exit(INTERRUPTED)
        self._start(*self._acts[self.count - 1])

    def _start(self, act: Callable[[], None], text: str) -> None:
        def work() -> None:
            self._say(text)
            act()

        threading.Thread(target=work, name="interrupt", daemon=True).start()


# The branch that stands for the best program of a search: `tenuto/NAME/best`.
# Moves nothing that a person has checked out or moved, and no branch of another search.


class BestBranch:
    """Follows the best candidate of a search.

    The repository keeps which search has the branch, as `refs/tenuto/@owners/NAME`: two searches of one name,
    in two workspaces, begin with the same commit, so the branch itself cannot tell.
    """

    def __init__(
        self, store: Store, search: SearchRow, repository: str, *, workspace: str, host: str
    ) -> None:
        """Raises `SearchError` if the branch is that of another search, or a person's."""
        self._store = store
        self._search = search.id
        self._git = Git(repository)
        for folder in (search.id, "@owners"):
            self._git.sweep(f"refs/tenuto/{folder}")
        self.name = f"tenuto/{search.id}/best"
        self._told = 0
        self._number: int | None = None
        self._commit: str | None = None
        """What this process, or an earlier search in this place, let the branch stand for."""
        self._own({"workspace": workspace, "host": host, "created": search.created_at})

    def _own(self, search: dict[str, Any]) -> None:
        reference = f"refs/tenuto/@owners/{self._search}"
        kept = self._git.reference(reference)
        owner = json.loads(self._git("cat-file", "blob", kept)) if kept is not None else None
        if owner is None and not self._is_own(self._git.reference(f"refs/heads/{self.name}")):
            raise SearchError(
                f"the repository has a branch {self.name} that is not of this search: give the search "
                f"another name, or rename the branch: git branch -m {self.name} NEW"
            )
        if owner is not None and owner["created"] != search["created"]:
            is_here = (owner["workspace"], owner["host"]) == (search["workspace"], search["host"])
            is_gone = owner["host"] == search["host"] and not os.path.isdir(owner["workspace"])
            if not is_here and not is_gone:
                raise SearchError(
                    f"the branch {self.name} is that of the search {self._search} in {owner['workspace']} "
                    f"({owner['host']}): give this search another name, or discard what that one found: "
                    f"git branch -D {self.name} && git update-ref -d {reference}"
                )
        elif owner is not None:
            return
        written = self._git("hash-object", "-w", "--stdin", text=json.dumps(search))
        self._commit = self._git.reference(f"refs/heads/{self.name}")
        if not self._git.move(reference, written, kept):
            self._own(search)  # another search was quicker

    def follow(self, number: int | None) -> str | None:
        """Lets the branch stand for the candidate of that number, if it does not yet; words if it cannot."""
        if number is None or number == self._number:
            return None
        commit = kept_outcome(self._store, self._search, number).get("solution")
        if not isinstance(commit, str) or self._git.ask("cat-file", "-e", commit) is None:
            return None
        self._number = number
        before = self._git.reference(f"refs/heads/{self.name}")
        if self._is_own(before) and self._git.point(self.name, commit, before):
            self._commit = commit
            return None
        return f"the branch {self.name} is in use or was moved, and stays; the best is the commit {commit}"

    def keep(self, told: int) -> str | None:
        """Keeps the commits that another search made, which may forget them; words if one is gone.

        `told`: how many candidates were told.
        """
        query = select(jobs.number, jobs.outcome).where(
            jobs.search_id == self._search, jobs.told > self._told, jobs.told <= told, jobs.reused
        )
        rows = self._store.database.read(lambda c: c.execute(query).all()) if told > self._told else ()
        self._told = told
        prefix = f"refs/tenuto/{self._search}"
        there = (rows and self._git("for-each-ref", "--format=%(refname)", prefix)) or ""
        gone = None
        for row in rows:
            commit = json.loads(row.outcome or "{}").get("solution")
            if not isinstance(commit, str) or f"{prefix}/{commit[:12]}" in there.splitlines():
                continue
            if self._git.ask("update-ref", f"{prefix}/{commit[:12]}", commit) is None:
                gone = (
                    f"{self._search}: the repository has the commit of candidate {row.number} no more, which "
                    f"another search made: begin one that looks nothing up, with --no-reuse"
                )
        return gone

    def _is_own(self, commit: str | None) -> bool:
        """Whether the branch may be moved: it stands for a candidate of this search, or for nothing."""
        if commit is None or commit == self._commit:
            return True
        is_solution = jobs.outcome.contains(f'"{commit}"')
        query = select(jobs.number).where(jobs.search_id == self._search, is_solution).limit(1)
        return self._store.database.read(lambda connection: connection.execute(query).first()) is not None


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
        domain = opened.evolution.domain
        if isinstance(domain, Programs):
            ignore_workspace(domain.repository, str(opened.workspace))
        if isinstance(domain, Programs) and options.workers:
            check_commands(domain.repository)
        self._branch = _best_branch(opened)
        self.worker = opened.worker() if options.workers else None
        self.scheduler = opened.scheduler(console or Plain(reporter), worker=self.worker)
        self.scheduler.on_tick = self._ticked
        self._is_root_read = False
        told = imposed_notify.get() or opened.settings.notify
        self._notifier = Notifier(told) if told.is_on else None
        self._best_told: int | None = None
        self._failed_told = 0
        self._failed_before = 0
        self._failures_before: Counter[str] = Counter()

    def run(self) -> SearchResult:
        """Runs the search, and has a person told of its end, whatever that is."""
        try:
            result = self._run()
        except BaseException as error:
            self._tell_end("failed", f"{type(error).__name__}: {error}", 0)
            raise
        text = f"{result.succeeded} succeeded, {result.failed} failed"
        if result.best is not None:
            text += f", best {result.best.objective:.4g} (#{result.best.number})"
        self._tell_end(str(result.reason or result.state), text, result.failed)
        return result

    def _tell_end(self, state: str, text: str, failed: int) -> None:
        if self._notifier is not None:
            name = self._opened.name
            self._notifier.tell(Notice("ended", f"{name}: {state}", text, name, state, failed))
            self._notifier.close()

    def _run(self) -> SearchResult:
        opened = self._opened
        opened.maker.replica.read_on()
        opened.reopen()
        opened.store.driven_by(opened.name, running_command("tenuto", "evolve"), os.getcwd())
        started = self._progress()
        self._best_told, self._failed_told = started.best_number, started.failed  # told by an earlier driver
        if self._options.on_started is not None:
            self._options.on_started(started)
        self._reporter.started(started)
        if opened.given is not None:
            count, unfit = opened.given
            words = f"begins with {count} outcomes of {opened.evolution.start_from}"
            words += f"; {unfit} of it do not fit" if unfit else ""
            self._reporter.say(f"{opened.name}: {words}")
        domain = opened.evolution.domain
        for remark in remarks_on(domain.repository) if isinstance(domain, Programs) else ():
            self._reporter.say(f"{opened.name}: {remark}")
        interrupts = SearchInterrupts(
            self._reporter.say,
            (self._stop, "nothing more is started; waiting for what runs (again: leave, jobs continue)"),
            (self._leave, "leaving; running jobs continue, and the next run takes them over"),
        )
        with interrupts:
            if self.worker is not None:
                self.worker.start()
            try:
                self.scheduler.run_forever(once=self._options.once)
            finally:
                if self.worker is not None:
                    self.worker.drain() if not interrupts.is_left else self.worker.leave()
                    self.worker.join(None if not interrupts.is_left else 10)
            self.scheduler.dispatcher.close()
            if self.worker is not None and self.worker.error is not None:
                error = self.worker.error
                words = f"{opened.name} could not continue: {type(error).__name__}: {error}"
                raise WorkerDied(words) from error
            result = opened.result(interrupts.count > 0)
            self._follow_best()
            ended = self._progress()
            self._reporter.ended(ended, result)
            if self._notifier is not None:  # the rows that ended after the last tick
                self._notify(ended, self._notifier)
            self._say_other_code(opened)
        return result

    def _say_other_code(self, opened: OpenSearch) -> None:
        older = opened.maker.replica.tally.older
        if older:
            self._reporter.say(
                f"{opened.name}: {older} of the outcomes {'was' if older == 1 else 'were'} made by other "
                f"code (--rerun-changed of tenuto run, or rerun_changed in the settings, evaluates such "
                f"candidates of a new search again)"
            )
        if opened.is_continued_by_other_code:
            self._reporter.say(
                f"{opened.name}: its first outcomes were made by other code, and stay; a search of "
                f"another name evaluates them again (--rerun-changed of tenuto run, or rerun_changed)"
            )

    def _stop(self) -> None:
        self.scheduler.stop()
        if self.worker is not None:
            self.worker.drain()

    def _leave(self) -> None:
        if self.worker is not None:
            self.worker.leave()
        self.scheduler.stop(at_once=True)

    def _follow_best(self) -> None:
        if self._branch is not None and self.scheduler.view is not None:
            search = self.scheduler.view.search
            for trouble in (self._branch.keep(search.told), self._branch.follow(search.best_number)):
                if trouble is not None:
                    self._reporter.say(trouble)

    def _doubt_root(self) -> None:
        """Says once that the evaluator of programs caught an error of its own while it evaluated the root."""
        view = self.scheduler.view
        if self._branch is None or self._is_root_read or view is None or not view.search.told:
            return
        self._is_root_read = True
        outcome = kept_outcome(self._opened.store, self._opened.name, 1)
        error = (outcome.get("metrics") or {}).get("error")
        if error:
            self._reporter.say(
                f"{self._opened.name}: the evaluator scored the first program, and says that it failed: "
                f"{str(error)[:300]}; fix that before agents are paid for nothing"
            )

    def _ticked(self, counts: dict[str, int]) -> None:
        if self.scheduler.view is None:  # the database did not answer, or the search was removed
            return
        self._follow_best()
        self._doubt_root()
        progress = self._progress()
        self._reporter.progressed(progress)
        if self._notifier is not None:
            self._notify(progress, self._notifier)

    def _notify(self, progress: SearchProgress, notifier: Notifier) -> None:
        """Tells a person of the first failure, and of each better best."""
        name, state = progress.name, progress.state
        if progress.failed > self._failed_told:
            self._failed_told = sys.maxsize  # the first one is told, and no other
            text = next(iter(progress.failures), "a candidate failed")
            notifier.tell(
                Notice("first_failure", f"{name}: a candidate failed", text, name, state, progress.failed)
            )
        if progress.best_number is not None and progress.best_number != self._best_told:
            self._best_told = progress.best_number
            text = f"{progress.best_objective:.4g} (#{progress.best_number})"
            notifier.tell(Notice("best", f"{name}: a better best", text, name, state, progress.failed))

    def _progress(self) -> SearchProgress:
        view = self.scheduler.view or self._opened.store.view(self._opened.name)
        assert view is not None
        replica = self._opened.maker.replica
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
            self._opened.settings.slots if self.worker is not None else 0,
            self._failures(tally.failed),
            str(self._opened.workspace),
        )

    def _failures(self, failed: int) -> Counter[str]:
        if failed != self._failed_before:
            self._failed_before = failed
            self._failures_before = failures(self._opened.store, self._opened.name)
        return self._failures_before
