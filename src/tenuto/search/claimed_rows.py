"""The rows of searches as workers change them, inside a transaction: claimed, ended, taken back.
Begins no transaction; `store` does. What an older attempt says has no effect.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Integer, bindparam, select, update

from tenuto.database import Member, announce, now_ms
from tenuto.lifecycle.evolution import EvolutionStatus, SearchState
from tenuto.search.candidate_rows import ROWS, WORK, CandidateMove, bump, record_moves, wake_search
from tenuto.search.programs import PROGRAM_TASK
from tenuto.search.rows import Claimed, End
from tenuto.search.tables import DISPATCH_ORDER, evolution_jobs, is_status, jobs, searches
from tenuto.workspace.ports import Liveness, Processes
from tenuto.workspace.processes import liveness_of

S = EvolutionStatus
LOST = "LOST"
SURROUNDINGS = "SURROUNDINGS"
"""The failure of a row whose surroundings failed: no agent, no evaluator, no sandbox."""
DEATHS_AN_ATTEMPT = 10
"""How many deaths of its workers a row survives, for each attempt that it may have."""


class ClaimRequest(NamedTuple):
    """What a worker would claim: at most so many rows, for so long, of all searches or of `only` these.

    `agents`: how many rows of searches of programs, which begin with an agent and count apart.
    """

    worker: str
    most: int
    lease_ms: int
    only: Collection[str] | None = None
    agents: int = 0


_CLAIM = ROWS.claim(
    S.RUNNING,
    jobs.id.in_(bindparam("ids", expanding=True)),
    worker=bindparam("new_worker"),
    started_at=now_ms(),
    not_before=None,
    lease_until=now_ms() + bindparam("lease_ms", type_=BigInteger),
)
_RUNNING_SEARCHES = select(searches.c.id, searches.c.definition).where(
    searches.c.state == SearchState.RUNNING.value
)
_CLAIMED = "id search_id number attempt priority task_id job_id job_attempt deaths params".split()
"""The columns of a row that `Claimed` has, in its order."""
_BEST_OF_ONE = (
    select(*(jobs[name] for name in _CLAIMED), jobs.scheduled_at, jobs.created_at)
    .where(jobs.search_id == bindparam("name"), is_status(S.QUEUED))
    .order_by(*DISPATCH_ORDER)
    .limit(bindparam("most", type_=Integer))
    .with_for_update(skip_locked=True)
)
_IS_OVER = (is_status(S.RUNNING), jobs.lease_until < now_ms())
OVER = (
    select(jobs.id, jobs.search_id, jobs.number, jobs.attempt)
    .where(*_IS_OVER)
    .with_for_update(skip_locked=True)
)
_ANY_OVER = select(jobs.id).where(*_IS_OVER).limit(1)
RETURNED: dict[str, Any] = {
    "status": S.PENDING.value,
    "scheduled_at": jobs.created_at,
    "worker": None,
    "lease_until": None,
    "started_at": None,
}
LOST_VALUES: dict[str, Any] = {
    "status": S.FAILED.value,
    "failure": LOST,
    "completed_at": now_ms(),
    "lease_until": None,
    "cost": 0.0,
}


def has_lost_rows(connection: Connection) -> bool:
    """Whether the lease of a row is over."""
    return connection.execute(_ANY_OVER).first() is not None


def take_back(connection: Connection, dead: Collection[str], most: int) -> list[CandidateMove]:
    """Returns the rows of dead workers; a row that ended as many workers as may be is FAILED."""
    theirs = update(evolution_jobs).where(is_status(S.RUNNING), jobs.worker.in_(dead))
    theirs = theirs.returning(jobs.search_id, jobs.number, jobs.attempt)
    died = jobs.deaths + 1
    back = theirs.where(died < most).values(attempt=jobs.attempt - 1, deaths=died, **RETURNED)
    given_up = theirs.where(died >= most).values(
        deaths=died, message=f"its worker died {most} times", **LOST_VALUES
    )
    returned = moves_of(connection.execute(back), S.PENDING, "its worker died")
    return returned + moves_of(connection.execute(given_up), S.FAILED, LOST)


def claim_rows(connection: Connection, request: ClaimRequest) -> list[Claimed]:
    """Claims the best rows that a worker asks for."""
    rows, definitions = _best(connection, request)
    if rows:
        ids = [row.id for row in rows]
        connection.execute(_CLAIM, {"ids": ids, "new_worker": request.worker, "lease_ms": request.lease_ms})
    return [
        Claimed(*[*row[:3], row.attempt + 1, *row[4 : len(_CLAIMED)], definitions[row.search_id]])
        for row in rows
    ]


def _best(connection: Connection, request: ClaimRequest) -> tuple[list[Any], dict[str, dict[str, Any]]]:
    """The best rows that may be claimed, locked, and the definitions of their searches."""
    running = _RUNNING_SEARCHES
    if request.only is not None:
        running = running.where(searches.c.id.in_(request.only))
    known = connection.execute(running).all()
    rows: list[Any] = []
    most = max(request.most, request.agents)
    for search in known if most > 0 else ():
        # One query for each search: the index begins with the search, and there are few that run.
        rows += connection.execute(_BEST_OF_ONE, {"name": search.id, "most": most}).all()
    rows.sort(key=lambda row: (-row.priority, row.scheduled_at, row.created_at, row.number))
    best = [row for row in rows if row.task_id == PROGRAM_TASK][: max(request.agents, 0)]
    best += [row for row in rows if row.task_id != PROGRAM_TASK][: max(request.most, 0)]
    needed = {row.search_id for row in best}
    return best, {one.id: json.loads(one.definition) for one in known if one.id in needed}


_ENDED = ("outcome", "objective", "cost", "failure", "message", "job_attempt", "directory", "reused")
_SHOWN = (jobs.search_id, jobs.number, jobs.attempt, jobs.status)
_AGAIN = ROWS.swap(*_SHOWN, **RETURNED)
_FINISH = ROWS.swap(*_SHOWN, completed_at=now_ms(), lease_until=None)


def finish_row(connection: Connection, end: End, max_attempts: int) -> CandidateMove | None:
    """Ends a row, or returns it if it was lost; None if it is not this attempt's any more."""
    fence = ROWS.known(end.id, S.RUNNING, end.attempt)
    if end.failure == LOST and end.status is S.FAILED and end.attempt < max_attempts:
        row = _AGAIN.row(connection, {**fence, "job_attempt": end.job_attempt})
    else:
        values = {key: getattr(end, key) for key in _ENDED}
        row = _FINISH.row(connection, {**fence, "status": end.status.value, **values})
    if row is None:
        return None
    search, number, attempt, status = row
    return CandidateMove(search, number, attempt, S(status), end.message)


def moves_of(rows: Iterable[Any], status: EvolutionStatus, message: str) -> list[CandidateMove]:
    return [CandidateMove(row.search_id, row.number, row.attempt, status, message) for row in rows]


def moved(connection: Connection, moves: Sequence[CandidateMove]) -> int:
    """Leaves what every change leaves besides; how many rows moved."""
    record_moves(connection, moves)
    for search in sorted({move.search_id for move in moves}):  # in one order: two transactions never cross
        bump(connection, search)
        wake_search(connection, search)
    if any(move.status is S.PENDING for move in moves):
        announce(connection, WORK)
    return len(moves)


def is_dead(processes: Processes, member: Member) -> bool:
    """Whether the process of a member of this machine is certainly gone."""
    return liveness_of(processes, member.process) in (Liveness.DEAD, Liveness.REBOOTED)
