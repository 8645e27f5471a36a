"""A declared search with its stored rows: what schedulers, workers and results are made of.
Runs nothing; `search_run` does.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.errors import CapReached, NotFound, SearchError, SearchInJob, TenutoError
from tenuto.jobs.retry_rules import check_growth, read_rules
from tenuto.jobs.validity import is_of_other_code
from tenuto.launchers.requirements import Requirement
from tenuto.lifecycle.evolution import EvolutionStatus, SearchState
from tenuto.scheduler.decisions import Allowance
from tenuto.search.archive import Elite
from tenuto.search.candidates import Candidates, add_given, with_outcome
from tenuto.search.export import flat_rows
from tenuto.search.kept_outcomes import as_given
from tenuto.search.opening import default_workspace, open_database
from tenuto.search.program_tasks import root_of
from tenuto.search.programs import ProgramRun, Programs
from tenuto.search.proposals import Sampler, Setup, begin, definition_of, front_of, measures_of
from tenuto.search.queues import Queue
from tenuto.search.replica import Replica
from tenuto.search.reporter import LineReporter, Plain, RunOptions, SearchResult, current_options
from tenuto.search.rows import Caps, SearchRow
from tenuto.search.search_loop import Bounds, CandidateMaker, Console, SearchLoop
from tenuto.search.store import Store
from tenuto.search.worker_loop import WorkerLoop
from tenuto.settings import Settings, load_settings
from tenuto.settings.search import SEARCH_SECTIONS
from tenuto.settings.tree import imposed_rerun
from tenuto.tasks.ports import current_job
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine

if TYPE_CHECKING:
    from tenuto.search.evolution import Evolution

_REPEATS = ("repeats", "repeat_best")
_BOUNDS = ("max_seconds", "max_cost", "target", "stall", "maximize")


def settings_of(evolution: Evolution) -> Settings:
    """The settings, with the arguments of a search."""
    settings = evolution.given_settings or load_settings(foreign=SEARCH_SECTIONS)
    imposed = imposed_rerun.get()
    if imposed is not None:
        settings = dataclasses.replace(settings, rerun_changed=imposed)
    given = {
        "max_unfinished_jobs": evolution.max_unfinished_jobs,
        "max_total_jobs": evolution.max_total_jobs,
        "walltime_s": evolution.walltime_s,
    }
    known: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    settings = dataclasses.replace(settings, search=dataclasses.replace(settings.search, **known))
    if evolution.workdir is None:
        return settings
    # A scheduler that is made with these settings alone opens the database of this search.
    return dataclasses.replace(settings, default_workspace=str(workspace_of(evolution, settings)))


def workspace_of(evolution: Evolution, settings: Settings) -> Path:
    """The workspace of a search."""
    if evolution.workdir is None:
        return default_workspace(settings)
    return Path(os.path.abspath(settings.workspace(evolution.workdir)))


class OpenSearch:
    """A search with its rows: what schedulers, workers and results are made of."""

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
        self.candidates = Candidates(
            evolution.task, evolution.domain, layout, search=evolution.name, maximize=evolution.maximize
        )
        self.candidates.rerun_changed = self.settings.rerun_changed
        self.candidates.check(self.machine.files)
        self.window = self.max_unfinished if evolution.reproducible else None
        self.definition = self._definition()
        self.store = Store(open_database(self.settings, self.workspace))
        try:
            self.row = self.store.declare(self.name, self.definition, evolution.seed)
            self.candidates.belong_to(self.row)
            self.maker = self._maker()
            self.given = self._start() if evolution.start_from is not None else None
            """Outcomes of the search to start from that were added now, and how many of it do not fit."""
        except BaseException:
            self.store.database.close()
            raise

    def _start(self) -> tuple[int, int]:
        """Adds what the search to start from found, as far as it fits and is not here."""
        other = str(self.evolution.start_from)
        if self.store.search(other) is None:
            known = ", ".join(name for name in self.store.names() if name != self.name) or "none"
            raise SearchError(f"start_from={other!r}: there is no such search here; there are: {known}")
        _, rows, _ = self.store.read_log(other, 0, 0)
        known_ids = self.store.identities(self.name)
        added = unfit = 0
        for row in rows:
            if row.status is not EvolutionStatus.SUCCEEDED or row.told is None or row.outcome is None:
                continue
            try:
                proposal = self.candidates.given(self.candidates.decode(row).values)
                new = self.candidates.make(proposal, 0, 0, 0)
                if (new.task_id, new.job_id) in known_ids:
                    continue
                new = with_outcome(new, as_given(row.outcome), self.definition)
                added += add_given(self.store, self.name, new, self.maker.caps, True)[1]
            except CapReached:
                break
            except TenutoError:
                unfit += 1
        return added, unfit

    @property
    def is_continued_by_other_code(self) -> bool:
        """Whether the search began with other code than it has now."""
        first = self.store.first_params(self.name) if self.candidates.code else None
        return first is not None and is_of_other_code(json.loads(first), {"code": self.candidates.code})

    @property
    def max_unfinished(self) -> int:
        search = self.settings.search
        agents = search.agent_slots if isinstance(self.evolution.domain, Programs) else 0
        return search.max_unfinished_jobs or 2 * (self.settings.slots + agents)

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
            "evaluators": self.candidates.evaluators,
        }
        if self.candidates.fixed:
            made["fixed"] = self.candidates.fixed
        if not (evolution.reuse and (current_options.get() or RunOptions()).reuse):
            made["reuse"] = False
        made |= {key: count for key in _REPEATS if (count := getattr(evolution, key)) > (key == "repeats")}
        if evolution.pruner is not None:
            made |= {"pruner": evolution.pruner.definition(), "metric": evolution.metric}
        if not isinstance(evolution.domain, Programs):
            made |= {key: value for key, value in self._needs().items() if value}
        plain: dict[str, Any] = json.loads(json.dumps(made))
        return plain

    def _needs(self) -> dict[str, Any]:
        """What a candidate's task asks for, and its retry rules; neither makes another search of it.

        Raises `RequirementError` for rules that cannot be read, or have nothing to begin with.
        """
        task, settings = type(self.evolution.task), self.settings
        requires, retry = getattr(task, "__requires__", None), getattr(task, "__retry__", None)
        needs = None if requires is None else Requirement.parse(requires).alternatives[0]
        if retry is not None:
            memory_bytes = (needs and needs.memory_bytes) or settings.memory_bytes
            duration_s = settings.search.walltime_s or (needs and needs.duration_s) or settings.walltime_s
            said = f"{task.__name__}.__retry__"
            check_growth(read_rules(retry, said), Allowance(memory_bytes, duration_s), said)
        return {"requires": needs and str(needs), "retry": retry}

    def _maker(self) -> CandidateMaker:
        search = self.settings.search
        setup = Setup(
            self.evolution.domain,
            self.evolution.maximize,
            self.evolution.seed,
            self._seed_population,
            search.inspirations,
            self.evolution.directions,
        )
        domain = self.evolution.domain

        def fresh() -> Sampler:
            begun = begin(self.evolution.declared_sampler, setup)
            if isinstance(domain, Programs):
                return ProgramRun(begun, lambda: root_of(domain.repository), self.evolution.maximize)
            return begun

        replica = Replica(self.store, self.name, fresh, self.candidates, self.evolution.seed)
        return CandidateMaker(
            self.store,
            replica,
            self.candidates,
            caps=Caps(self.max_unfinished, search.max_total_jobs),
            maximize=self.evolution.maximize,
            default_priority=search.default_priority,
            window=self.window,
            bounds=self.bounds(),
            pruner=self.evolution.pruner,
        )

    @property
    def _seed_population(self) -> int:
        """How many candidates come before children; of programs it is the root alone, which must succeed."""
        is_of_programs = isinstance(self.evolution.domain, Programs)
        return 1 if is_of_programs else self.settings.search.seed_population

    def bounds(self) -> Bounds:
        evolution, search = self.evolution, self.settings.search
        return Bounds(
            self.max_unfinished,
            max_total=search.max_total_jobs,
            batch=search.schedule_batch_size,
            seed_population=self._seed_population,
            **{name: getattr(evolution, name) for name in _BOUNDS},
        )

    def scheduler(
        self, console: Console | None = None, queue: Queue | None = None, worker: WorkerLoop | None = None
    ) -> SearchLoop:
        """The scheduler of the search."""
        return SearchLoop(
            self.settings,
            console or Plain(LineReporter()),
            self.maker,
            self.name,
            store=self.store,
            queue=queue,
            worker=worker,
            workspace=self.workspace,
            machine=self.machine,
        )

    def worker(self) -> WorkerLoop:
        """A worker for the candidates of this search, on the slots of this machine."""
        return WorkerLoop(
            self.store,
            self.settings,
            self.workspace,
            self.machine,
            slots=self.settings.slots,
            only=[self.name],
            is_leased=self.settings.database.url is not None,
        )

    def reopen(self, *, has_new: bool = False) -> None:
        """Lets a search that ended continue if its bounds allow more; `has_new`: a person gave one."""
        row = self.store.search(self.name)
        if row is not None and row.state is SearchState.PAUSED and row.message is not None:
            self.store.set_state(self.name, SearchState.RUNNING)  # it paused by itself
        if row is None or row.reason is None:
            return
        bounds = self.bounds()
        more = {
            "TOTAL": bounds.max_total is None or bounds.max_total > row.scheduled,
            "TIME": bounds.max_seconds is None or bounds.max_seconds > row.active_ms / 1000,
            "COST": bounds.max_cost is None or bounds.max_cost > row.cost,
            "STOPPED": True,
            "FAILING": True,
            "EXHAUSTED": has_new and (bounds.max_total is None or bounds.max_total > row.scheduled),
        }
        if more.get(row.reason.name, self._is_beyond(row)):
            self.store.reopen(self.name)

    def _is_beyond(self, row: SearchRow) -> bool:
        if row.reason is not None and row.reason.name == "TARGET":
            target, best = self.evolution.target, row.best_objective
            if target is None or best is None:
                return True
            return best < target if self.evolution.maximize else best > target
        return self.evolution.stall is None or self.maker.replica.tally.since_better < self.evolution.stall

    def result(self, is_interrupted: bool = False) -> SearchResult:
        """The outcome of the search so far; `NotFound` if it was removed meanwhile."""
        replica = self.maker.replica
        row = self.store.search(self.name)
        if row is None:
            raise NotFound(f"the search {self.name} was removed while it ran: run it again to begin anew")
        replica.read_on()
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
            lambda: flat_rows(self.store, self.name),
            self._front(self._best(row)),
            tally.pruned,
            tally.cancelled,
        )

    def _front(self, best: Elite | None) -> list[Elite]:
        front = front_of(self.maker.replica.sampler)
        return front if front is not None else [best] if best is not None else []

    def _best(self, row: SearchRow) -> Elite | None:
        archive = self.maker.replica.archive
        if archive is not None and archive.best is not None:
            return archive.best
        if row.best_number is None or row.best_objective is None:
            return None
        return Elite(0, row.best_objective, (), row.best_number, None)

    def close(self) -> None:
        self.store.database.close()
