"""The branch that stands for the best program of a search: `tenuto/NAME/best`.
Moves nothing that a person has checked out.
"""

from __future__ import annotations

import json

from sqlalchemy import select

from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.git import Git
from tenuto.search.store import Store
from tenuto.search.tables import is_status, jobs


class BestBranch:
    """Follows the best candidate of a search."""

    def __init__(self, store: Store, search: str, repository: str) -> None:
        self._store = store
        self._search = search
        self._git = Git(repository)
        self._git.sweep(f"refs/tenuto/{search}")
        self.name = f"tenuto/{search}/best"
        self._number: int | None = None

    def follow(self, number: int | None) -> None:
        """Lets the branch stand for the candidate of that number, if it does not yet."""
        if number is None or number == self._number:
            return
        query = select(jobs.outcome).where(
            jobs.search_id == self._search, jobs.number == number, is_status(EvolutionStatus.SUCCEEDED)
        )
        outcome = self._store.database.read(lambda connection: connection.execute(query).scalar())
        commit = json.loads(outcome or "{}").get("solution")
        if isinstance(commit, str) and self._git.ask("cat-file", "-e", commit) is not None:
            self._git.point(self.name, commit)
            self._number = number
