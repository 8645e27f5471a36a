"""Small rows of searches, and a console that keeps what it is told."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import select, text

from tenuto.lifecycle.evolution import EvolutionStatus
from tenuto.search.rows import Added, Caps, Claimed, End, NewCandidate, Refusal, Told
from tenuto.search.store import Store
from tenuto.search.tables import evolution_jobs, jobs

ANY = Caps()


class Console:
    """Keeps what a person would see."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def print(self, *objects: Any) -> None:
        self.lines.append(" ".join(map(str, objects)))


def new(number: int = 1, after: int = 0, identity: str | None = None, priority: int = 0) -> NewCandidate:
    identity = identity or f"i{number}"
    return NewCandidate(
        uuid.uuid4().hex,
        number,
        after,
        "task",
        identity,
        "{}",
        f'{{"values": {{"x": {number}}}, "inspirations": []}}',
        priority=priority,
    )


def opened(store: Store, name: str = "s") -> Store:
    store.open(name, {"task": "t"}, 1)
    return store


def added(store: Store, count: int, name: str = "s", caps: Caps = ANY) -> list[Added]:
    """So many more candidates."""
    search = store.search(name)
    assert search is not None
    made = []
    for number in range(search.scheduled + 1, search.scheduled + count + 1):
        result = store.add(name, new(number, search.told, f"{name}{number}"), caps)
        assert not isinstance(result, Refusal), result
        made.append(result)
    return made


def claimed(store: Store, count: int = 1, worker: str = "w", lease_ms: int = 60_000) -> list[Claimed]:
    return store.claim(worker, count, lease_ms)


def succeeded(row: Claimed, objective: float = 1.0, cost: float = 0.0) -> End:
    return End(
        row.id,
        row.attempt,
        EvolutionStatus.SUCCEEDED,
        f'{{"objective": {objective}, "measures": [0.5]}}',
        objective,
        cost,
        job_attempt=1,
    )


def tell_all(store: Store, name: str = "s") -> int:
    search = store.search(name)
    assert search is not None
    rows = store.to_tell(name, 1000)
    told = [Told(row.id, row.number, "new", 0, row.cost or 0.0, row.objective) for row in rows]
    count = store.tell(name, search.told, lambda: told, True)
    assert count is not None
    return count


def status(store: Store, number: int, name: str = "s") -> EvolutionStatus:
    """The status of a candidate."""
    query = select(jobs.status).where(jobs.search_id == name, jobs.number == number)
    return EvolutionStatus(store.database.read(lambda c: c.execute(query).scalar_one()))


def column(store: Store, number: int, column: str, name: str = "s") -> object:
    query = select(evolution_jobs.c[column]).where(jobs.search_id == name, jobs.number == number)
    return store.database.read(lambda c: c.execute(query).scalar_one())


def execute(store: Store, statement: str) -> None:
    store.database.write(lambda c: c.execute(text(statement)))
