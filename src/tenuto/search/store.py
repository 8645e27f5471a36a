"""The rows of all searches of a database: everything that schedulers, workers and people do to them.
Puts the stores together; each method of theirs is one transaction.
"""

from __future__ import annotations

from tenuto.database import Database
from tenuto.search.add_store import AddStore
from tenuto.search.claim_store import ClaimStore
from tenuto.search.control import ControlStore
from tenuto.search.dispatch_store import DispatchStore
from tenuto.search.search_store import SearchStore
from tenuto.search.tell_store import TellStore


class Store(SearchStore, AddStore, DispatchStore, TellStore, ClaimStore, ControlStore):
    """The searches of one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
