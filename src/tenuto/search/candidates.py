"""Candidates: a proposal as a task, its identity and its stored parameters, and as a row keeps it.
Runs no task and stores nothing.
"""

from __future__ import annotations

import json
import os.path
import random
import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tenuto.errors import CapReached, SearchError
from tenuto.jobs.submission import dependencies_of, tokens_of
from tenuto.jobs.validity import RERUNS, check_classes
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.commits import EvolveCommit
from tenuto.search.kept_outcomes import judge, read_json
from tenuto.search.program_commands import files_outside
from tenuto.search.program_tasks import check_repository, complete_values, evaluator_files, program_task
from tenuto.search.programs import Programs, Repository
from tenuto.search.proposals import Proposal, check_task
from tenuto.search.rows import Added, Caps, LogRow, NewCandidate, Refusal, SearchRow, check_priority
from tenuto.search.spaces import Domain, Objects, Space
from tenuto.tasks.base import ConfigBase
from tenuto.tasks.code import classes_of, file_digests
from tenuto.tasks.config import copyconfig
from tenuto.tasks.identity import identity
from tenuto.tasks.live import live_class, seal
from tenuto.tasks.location import locate
from tenuto.tasks.schema import schema_of
from tenuto.tasks.seeds import SEED, give_seed, seed_of
from tenuto.tasks.serialization import dumps, job_document, state_dict
from tenuto.tasks.stored_configs import from_state_dict
from tenuto.tasks.stored_values import values_shown
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Files

if TYPE_CHECKING:
    from tenuto.search.store import Store


class Candidates:
    """Makes candidates of one search."""

    def __init__(
        self, task: Any, domain: Domain, layout: Layout, *, search: str = "", maximize: bool = True
    ) -> None:
        """`task`: a class of tasks, a config whose other parameters are set, or a `Repository`."""
        self.rerun_changed = False
        """Outcomes that other code made are not taken over."""
        self._search = search
        self._maximize = maximize
        self.salt = ""
        """Makes identities those of one search alone; empty: known outcomes are looked up."""
        self._is_seeded = False
        """Each evaluation of a candidate has a seed of its own, which follows that of the first one."""
        self.domain = domain
        self.fixed: dict[str, dict[str, str]] = {}
        """The values that all candidates have: by class, parameter -> value."""
        self.code = ""
        """The digest of the code that evaluates them; empty for programs, whose code is the candidate."""
        self._layout = layout
        if isinstance(task, Repository):
            task = EvolveCommit
        self._is_class = isinstance(task, type)
        self._template = task
        check_task(task)
        self.task_id = schema_of(task if self._is_class else type(task)).id

    def belong_to(self, search: SearchRow) -> None:
        """From now on makes candidates as a stored search has them."""
        self.salt = _salt_of(search)
        self._is_seeded = bool(search.definition.get("repeats") or search.definition.get("repeat_best"))

    @cached_property
    def evaluators(self) -> dict[str, str] | None:
        """The files that evaluate programs, each with its digest, when first asked; None: of no programs."""
        if not isinstance(self.domain, Programs):
            return None
        return evaluator_files(self.domain.repository, self._checkout)

    @property
    def _checkout(self) -> str:
        """Where commands run, as far as it is known before there is a job."""
        return f"{self._layout.task(self.task_id)}/any/checkout"

    def _check_evaluators(self, repository: Repository) -> None:
        """Refuses to add a candidate that another evaluator would judge than those before it."""
        before = {path: digest for path, digest in (self.evaluators or {}).items() if os.path.isabs(path)}
        changed = dict(before.items() ^ files_outside(repository.evaluate, self._checkout).items())
        if changed:
            raise SearchError(
                f"the evaluator changed while its search runs: {min(changed)}; put it back, or end the "
                f"search and begin one of another name"
            )

    def check(self, files: Files) -> None:
        """Refuses, at the call, a task that no job could build or that varies a parameter it lacks.

        From then on `fixed` has the values that all candidates have.
        """
        if isinstance(self.domain, Programs):
            check_repository(self.domain.repository)
            return
        rng = random.Random(0)
        drawn = self.domain.examples(rng) if isinstance(self.domain, Space) else [self.domain.draw(rng)]
        shown = []
        for values in drawn:
            task = self._task(values)
            locate(live_class(type(task)))
            check_classes(files, self._layout, task)
            self.code = file_digests.code(classes_of(task)).digest
            shown.append(values_shown(task, defaults=not isinstance(self.domain, Space)))
            if dependencies_of(task) or tokens_of(task):
                raise SearchError(
                    "a candidate cannot depend on other tasks, nor on tokens: evaluate them inside it"
                )
        varied = {SEED, *(name.rpartition(".")[2] for name in getattr(self.domain, "dimensions", ()))}
        self.fixed = {
            of: {
                name: value
                for name, value in values.items()
                if name not in varied and all(one.get(of, {}).get(name, value) == value for one in shown)
            }
            for of, values in shown[0].items()
        }

    def given(self, values: Any, root: str | None = None) -> Proposal:
        """The proposal of a person; `SearchError` for values that are not in the space.

        `root`: of programs, the commit that the search began with.
        """
        if isinstance(self.domain, Programs):
            return Proposal(values, context={"root": root})
        return Proposal(self.domain.checked(values) if isinstance(self.domain, Space) else values)

    def make(self, proposal: Proposal, number: int, asked_after: int, priority: int) -> NewCandidate:
        """The row of a proposal."""
        check_priority(priority)
        if isinstance(self.domain, Programs):
            values = complete_values(self.domain.repository, proposal.values)
            proposal = proposal._replace(values=values)
            self._check_evaluators(self.domain.repository)
        task = self._task(proposal.values, proposal.context)
        job_id = identity(task)
        if self.salt:
            job_id = sha256(f"{self.salt}/{job_id}".encode()).hexdigest()
        paths = self._layout.job(self.task_id, job_id)
        document = job_document(task, paths.directory, self._layout.partials, sys.path)
        if not isinstance(self.domain, Programs):  # whose code is the program: a part of the identity
            document["code"] = file_digests.code(classes_of(task)).digest
            document |= {RERUNS: True} if self.rerun_changed else {}
        return NewCandidate(
            uuid.uuid4().hex,
            number,
            asked_after,
            self.task_id,
            job_id,
            dumps(document).decode("ascii"),
            encoded(proposal),
            proposal.island,
            proposal.parent,
            priority,
        )

    def _task(self, values: Any, context: Any = None) -> Any:
        if isinstance(self.domain, Programs):
            task = program_task(
                self.domain.repository,
                values,
                context,
                self._search,
                self._maximize,
                self.evaluators or {},
                self.salt,
                os.path.dirname(self._layout.jobs),
            )
        elif isinstance(self.domain, Space):
            values = self.domain.realized(values)
            task = self._template.C(**values) if self._is_class else copyconfig(self._template, **values)
        else:
            task = values
            if not isinstance(task, ConfigBase) or schema_of(type(task)).id != self.task_id:
                raise SearchError(f"start and vary must return a config of {self.task_id}, not {task!r:.80}")
        if self._is_seeded:  # before it is sealed, since the seed is a part of it
            give_seed(task, seed_of(task) or 0, "the seed of a candidate that is repeated")
        seal(task, to_run=True)
        return task

    def decode(self, row: LogRow) -> Proposal:
        """The proposal that a row keeps."""
        proposal = decoded(row)
        if isinstance(self.domain, Objects):
            proposal = proposal._replace(values=from_state_dict(proposal.values))
        return proposal


def encoded(proposal: Proposal) -> str:
    """A proposal as text; a config as its document."""
    values = proposal.values
    if isinstance(values, ConfigBase):
        values = state_dict(values)
    return json.dumps({"values": values, "inspirations": list(proposal.inspirations)})


def decoded(row: LogRow) -> Proposal:
    """The proposal that a row keeps, with plain values."""
    kept = read_json(row.proposal)[0]
    return Proposal(kept["values"], row.parent, tuple(kept["inspirations"]), row.island)


def _salt_of(search: SearchRow) -> str:
    """What sets the identities of a search apart that looks nothing up, or repeats; of any other nothing."""
    own = f"{search.id}/{search.created_at}" if search.definition.get("reuse") is False else ""
    repeats, of_best = (search.definition.get(key) for key in ("repeats", "repeat_best"))
    return f"{own}/repeats {repeats} {of_best}" if repeats or of_best else own


def with_outcome(new: NewCandidate, outcome: Any, definition: Mapping[str, Any]) -> NewCandidate:
    """A candidate with the outcome that it has; `SearchError` for one that the search cannot use."""
    found = judge(outcome, definition)
    if found.status is not EvolutionStatus.SUCCEEDED:
        raise SearchError(f"the outcome cannot be used: {found.message}")
    return replace(new, outcome=found.outcome, objective=found.objective)


def add_given(
    store: Store, name: str, new: NewCandidate, caps: Caps, skip_if_exists: bool = False
) -> tuple[int, bool]:
    """Adds what a person gave; its number, and whether it is new.

    `skip_if_exists`: the number of the candidate that has these values already, whatever the caps are.
    """
    known = store.number_of(name, new) if skip_if_exists else None
    if known is not None:
        return known, False
    result = store.add(name, new, caps, is_ordered=False)
    if isinstance(result, Added):
        return result.number, True
    known = store.number_of(name, new) if skip_if_exists and result is Refusal.DUPLICATE else None
    if known is not None:  # another process added it meanwhile
        return known, False
    raise refused(name, result, caps)


def refused(name: str, refusal: Refusal, caps: Caps) -> SearchError:
    """Why what a person gave was not added, in words."""
    if refusal is Refusal.TOTAL:
        return CapReached(f"{name} has all {caps.max_total} candidates it may have: raise max_total_jobs")
    if refusal is Refusal.DUPLICATE:
        return SearchError(f"{name} has a candidate with these values already: give skip_if_exists=True")
    if refusal is Refusal.STATE:
        return SearchError(f"{name} has ended, or is ending: run it again, with larger bounds, to open it")
    return SearchError(f"{name}: {refusal.value}")
