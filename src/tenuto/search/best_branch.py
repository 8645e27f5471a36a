"""The branch that stands for the best program of a search: `tenuto/NAME/best`.
Moves nothing that a person has checked out or moved, and no branch of another search.
"""

from __future__ import annotations

import json
import os.path
from typing import Any

from sqlalchemy import select

from tenuto.errors import SearchError
from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.git import Git
from tenuto.search.rows import SearchRow
from tenuto.search.store import Store
from tenuto.search.tables import is_status, jobs


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
        query = select(jobs.outcome).where(
            jobs.search_id == self._search, jobs.number == number, is_status(EvolutionStatus.SUCCEEDED)
        )
        outcome = self._store.database.read(lambda connection: connection.execute(query).scalar())
        commit = json.loads(outcome or "{}").get("solution")
        if not isinstance(commit, str) or self._git.ask("cat-file", "-e", commit) is None:
            return None
        self._number = number
        before = self._git.reference(f"refs/heads/{self.name}")
        if self._is_own(before) and self._git.point(self.name, commit, before):
            self._commit = commit
            return None
        return f"the branch {self.name} is in use or was moved, and stays; the best is the commit {commit}"

    def _is_own(self, commit: str | None) -> bool:
        """Whether the branch may be moved: it stands for a candidate of this search, or for nothing."""
        if commit is None or commit == self._commit:
            return True
        is_solution = jobs.outcome.contains(f'"{commit}"')
        query = select(jobs.number).where(jobs.search_id == self._search, is_solution).limit(1)
        return self._store.database.read(lambda connection: connection.execute(query).first()) is not None
