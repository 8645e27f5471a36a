"""A study whose log lies in a database, so that any number of processes ask and tell.
It has rows as a search has, and no jobs: candidates are asked for and told by hand.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tenuto.database import Database, migrate
from tenuto.errors import SearchError
from tenuto.jobs.driver_command import running_command
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.archive import Elite, Verdict
from tenuto.search.candidates import decoded, encoded
from tenuto.search.kept_outcomes import judge
from tenuto.search.opening import MIGRATIONS
from tenuto.search.proposals import Proposal, Sampler
from tenuto.search.replica import Replica
from tenuto.search.rows import Caps, LogRow, NewCandidate
from tenuto.search.search_loop import CandidateMaker, Ingestion, ScheduledJob
from tenuto.search.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenuto.search.outcome import Outcome
    from tenuto.search.spaces import Domain

TASK = "study"
"""In the place of the task of candidates that no job evaluates."""
_MOST_RACES = 100


class _Candidates:
    """Makes rows of proposals, which are the candidates of one study alone."""

    def __init__(self, domain: Domain, salt: str) -> None:
        self.domain = domain
        self._salt = salt

    def make(self, proposal: Proposal, number: int, asked_after: int, priority: int) -> NewCandidate:
        try:
            text = encoded(proposal)
            key = json.dumps(json.loads(text)["values"], sort_keys=True)
        except (TypeError, ValueError) as error:
            raise SearchError(f"the values of a stored study are such as JSON has: {error}") from None
        job_id = sha256(f"{self._salt}/{key}".encode()).hexdigest()
        return NewCandidate(
            uuid.uuid4().hex,
            number,
            asked_after,
            TASK,
            job_id,
            "{}",
            text,
            proposal.island,
            proposal.parent,
            priority,
        )

    def decode(self, row: LogRow) -> Proposal:
        return decoded(row)


class StoredStudy:
    """The log of a study, and the sampler as the log makes it."""

    def __init__(
        self,
        url: str | os.PathLike[str],
        name: str,
        domain: Domain,
        begin: Callable[[], Sampler],
        definition: Mapping[str, Any],
    ) -> None:
        """Makes or finds the study; raises `SearchDiffers` if it was declared otherwise."""
        self._name = name
        self._definition = {"task": TASK, **definition}
        self._database = Database(url if isinstance(url, str) and "://" in url else os.path.abspath(url))
        try:
            migrate(self._database, MIGRATIONS)
            self._store = Store(self._database)
            row = self._store.declare(name, self._definition, definition["seed"])
            self._store.driven_by(name, running_command(), os.getcwd())
        except BaseException:
            self._database.close()
            raise
        candidates: Any = _Candidates(domain, f"{name}/{row.created_at}")
        self._maximize = definition["direction"] == "max"
        self.replica = Replica(self._store, name, begin, candidates, definition["seed"])
        self._maker = CandidateMaker(
            self._store, self.replica, candidates, caps=Caps(), maximize=self._maximize
        )
        self._ingestion = Ingestion(self._store, self.replica, name, maximize=self._maximize)

    def ask(self) -> ScheduledJob | None:
        """The next candidate; None if the sampler has nothing to try."""
        self._ingestion.ingest(is_asked_out=False)
        return self._maker.make()

    def tell(self, number: int, outcome: Outcome | None) -> Verdict:
        """Stores the outcome of a candidate, and tells it to the sampler."""
        found = judge({"failure": "it failed"} if outcome is None else outcome, self._definition)
        if outcome is not None and found.status is EvolutionStatus.FAILED:
            raise SearchError(f"candidate {number}: {found.message}")
        if not self._store.finish_by_hand(self._name, number, found):
            raise SearchError(f"candidate {number} was not asked for, or was told already")
        for _ in range(_MOST_RACES):
            self._ingestion.ingest(is_asked_out=False)
            verdict = self._store.verdict(self._name, number)
            if verdict is not None:
                return Verdict(verdict)
        raise SearchError(f"candidate {number} is stored, but could not be told: too many processes tell")

    def best(self) -> Elite | None:
        """The best candidate that was told, by whichever process."""
        self.replica.read_on()
        archive, row = self.replica.archive, self._store.search(self._name)
        if archive is not None or row is None or row.best_number is None or row.best_objective is None:
            return archive.best if archive is not None else None
        values = self._store.proposal(self._name, row.best_number)
        return Elite(0, row.best_objective, (), row.best_number, values)

    def close(self) -> None:
        """Closes the connection to the database."""
        self._database.close()
