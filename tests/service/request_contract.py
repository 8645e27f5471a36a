"""What every store of requests must do. Subclass, and give the fixtures `database` and `requests`.

`requests` is the store of the server "me" on `database`, which is empty.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import update

from tenuto.database import Database, Member, MemberKind, join
from tenuto.errors import IllegalTransition
from tenuto.lifecycle.service import ServiceState
from tenuto.service import tables
from tenuto.service.decisions import Quota
from tenuto.service.requests import QUEUE_CHANNEL, Requests
from tenuto.service.rows import JobRow, NewJob, Page

S = ServiceState
NODES = ["n"] * 16
_numbers = itertools.count()


def add(requests: Requests, user: str = "1", service: str = "s", **more: Any) -> JobRow:
    """A queued job, in a directory of its own."""
    return requests.add(NewJob(user, service, f"d{next(_numbers)}", **more))[0]


def _age(job_id: int, ms: int, connection: Any) -> None:
    older = tables.jobs.c.ended_at - ms
    connection.execute(update(tables.jobs).where(tables.jobs.c.id == job_id).values(ended_at=older))


def _beats(requests: Requests) -> dict[str, int]:
    """The beats of all servers, which are past by the database's clock."""
    beats, _ = requests.servers(15_000)
    while requests.now() <= max(beats.values(), default=0):
        continue
    return beats


class RequestsContract:
    def test_ids_count_from_one(self, requests: Requests) -> None:
        assert [add(requests).id for _ in range(3)] == [1, 2, 3]

    def test_numbers_that_a_lost_database_gave_are_not_given_again(self, requests: Requests) -> None:
        assert requests.count_on(0) is False
        assert add(requests).id == 1
        assert requests.count_on(1) is False
        assert requests.count_on(41) is True
        assert requests.count_on(41) is False
        assert [add(requests).id for _ in range(2)] == [42, 43]

    def test_numbers_of_a_new_database_follow_those_of_its_data(self, requests: Requests) -> None:
        assert requests.count_on(7) is True
        assert add(requests).id == 8

    def test_places_that_come_one_by_one_go_to_users_in_the_told_order(self, requests: Requests) -> None:
        """Users who were never served: the oldest job first, however the users are called."""
        jobs = [add(requests, user) for user in ("9", "5", "1", "2", "9")]
        assert [requests.line(job).position for job in jobs] == [1, 2, 3, 4, 5]
        claimed = [requests.claim("s", Quota(5, 10), ["n"])[0].id for _ in jobs]
        assert claimed == [job.id for job in jobs]

    def test_a_repeated_insert_is_one_job(self, requests: Requests) -> None:
        """F52: the answer of the commit was lost."""
        new = NewJob("1", "s", "directory")
        assert requests.add(new)[0].id == requests.add(new)[0].id
        assert len(requests.listed(Page())) == 1

    def test_an_idempotency_key_is_one_job_of_its_user(self, requests: Requests) -> None:
        """H14."""
        first = add(requests, idempotency_key="k", body_sha256="x")
        again, is_new = requests.add(NewJob("1", "s", "other", "k", "x"))
        assert (again.id, is_new) == (first.id, False)
        assert add(requests, "2", idempotency_key="k").id != first.id

    def test_keys_that_come_at_once_are_one_job(self, requests: Requests) -> None:
        def one(n: int) -> int:
            return requests.add(NewJob("1", "s", f"dir{n}", "key", "x"))[0].id

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(one, range(16)))) == 1

    def test_a_move_is_recorded_and_stamped(self, requests: Requests) -> None:
        row = add(requests)
        (claimed,) = requests.claim("s", Quota(5, 5), NODES)
        assert (claimed.state, claimed.claim, claimed.server_id, claimed.node) == (S.PROCESSING, 1, "me", "n")
        submitted = requests.move(claimed, S.SUBMITTED, payload_id=7)
        assert submitted is not None
        running = requests.move(submitted, S.RUNNING)
        assert running is not None
        assert running.started_at is not None
        done = requests.move(running, S.COMPLETED, result_bytes=1, exit_code=0)
        assert done is not None
        assert done.ended_at is not None
        assert done.created_at <= running.started_at <= done.ended_at
        states = [move.state for move in requests.moves_of(row.id)]
        assert states == [S.QUEUED, S.PROCESSING, S.SUBMITTED, S.RUNNING, S.COMPLETED]
        last = requests.moves_of(row.id)[2].id
        assert [move.state for move in requests.moves_of(row.id, last)] == [S.RUNNING, S.COMPLETED]
        assert requests.last_move() == requests.moved_since(0)[-1][0]

    def test_a_move_from_an_old_row_has_no_effect(self, requests: Requests) -> None:
        add(requests)
        (claimed,) = requests.claim("s", Quota(5, 5), NODES)
        assert requests.move(claimed, S.SUBMITTED) is not None
        assert requests.move(claimed, S.FAILED, "late") is None
        known = requests.get(claimed.id)
        assert known is not None
        assert known.state is S.SUBMITTED

    def test_a_move_whose_answer_was_lost_is_not_lost(self, requests: Requests) -> None:
        add(requests)
        (claimed,) = requests.claim("s", Quota(5, 5), NODES)
        assert requests.move(claimed, S.SUBMITTED) == requests.move(claimed, S.SUBMITTED)

    def test_an_illegal_move_is_refused(self, requests: Requests) -> None:
        with pytest.raises(IllegalTransition):
            requests.move(add(requests), S.COMPLETED)

    def test_what_a_server_writes_after_it_was_taken_over_has_no_effect(
        self, requests: Requests, database: Database
    ) -> None:
        """Acceptance 10: a frozen server that comes back changes nothing."""
        add(requests)
        (claimed,) = requests.claim("s", Quota(5, 5), NODES)
        other = Requests(database, "other")
        requests.leave()  # as others do for a server that is silent
        (taken,) = other.take_over()
        assert (taken.claim, taken.server_id) == (2, "other")
        assert requests.move(claimed, S.FAILED) is None
        assert requests.requeue(claimed, "", 0) is None
        assert requests.update(claimed, node="x") is None
        assert requests.mine() == []
        assert [row.id for row in other.mine()] == [taken.id]
        assert requests.take_over() == [], "its owner is a member"
        other.leave()
        assert [row.id for row in requests.take_over()] == [taken.id]

    def test_a_claim_counts_while_its_server_is_a_member(
        self, requests: Requests, database: Database
    ) -> None:
        """S1-1: whichever way a server went."""
        other = Requests(database, "other")
        add(requests)
        (claimed,) = requests.claim("s", Quota(5, 5), NODES)
        assert other.take_over() == [], "to claim is to be a member"
        requests.leave()
        assert [row.id for row in other.take_over()] == [claimed.id]
        assert other.take_over() == [], "its own are not taken over"
        add(requests)
        (again,) = requests.claim("s", Quota(5, 5), NODES)
        node = Member("me", MemberKind.NODE, "host", "1")
        database.write(lambda connection: join(connection, node))
        assert [row.id for row in other.take_over()] == [again.id], "a node of this name is no server"

    def test_a_server_that_was_frozen_is_seen_as_it_claims(self, requests: Requests) -> None:
        """The model: else it is dismissed after its claim, and loses a job while it is awake."""
        requests.be_seen()
        old = _beats(requests)
        add(requests)
        assert len(requests.claim("s", Quota(5, 5), NODES)) == 1
        requests.dismiss(old)
        claimed = _beats(requests)
        assert set(claimed) == {"me"}
        assert requests.take_over() == []
        requests.dismiss(claimed)
        taken_over = _beats(requests)
        assert set(taken_over) == {"me"}
        requests.dismiss(taken_over)
        assert requests.servers(15_000)[0] == {}

    def test_quotas_hold_and_users_take_turns(self, requests: Requests) -> None:
        for _ in range(4):
            add(requests, "a")
        for _ in range(2):
            add(requests, "b")
        add(requests, "c", service="other")
        claimed = requests.claim("s", Quota(2, 3), NODES)
        assert [row.user_id for row in claimed] == ["a", "b", "a"]
        assert requests.claim("s", Quota(2, 3), NODES) == []
        assert sorted(requests.active("s")[0]) == [("a", None), ("a", None), ("b", None)]
        assert requests.move(claimed[0], S.FAILED) is not None
        assert [row.user_id for row in requests.claim("s", Quota(2, 3), NODES)] == ["b"]
        assert [row.user_id for row in requests.claim("other", Quota(2, 3), NODES)] == ["c"]

    def test_fewer_nodes_fewer_claims(self, requests: Requests) -> None:
        for _ in range(4):
            add(requests)
        assert [row.node for row in requests.claim("s", Quota(9, 9), ["x", None])] == ["x", None]

    def test_a_job_that_was_not_sent_waits_its_time(self, requests: Requests) -> None:
        add(requests)
        (row,) = requests.claim("s", Quota(5, 5), NODES)
        queued = requests.requeue(row, "no node", 60_000)
        assert queued is not None
        assert (queued.state, queued.node, queued.server_id) == (S.QUEUED, None, None)
        assert requests.claim("s", Quota(5, 5), NODES) == []
        assert requests.requeue(row, "", 0) is None

    def test_servers_together_never_exceed_a_quota(self, database: Database) -> None:
        """H10, acceptance 14."""
        first = Requests(database, "a")
        for n in range(30):
            add(first, str(n % 3))
        servers = [Requests(database, f"s{n}") for n in range(6)]
        with ThreadPoolExecutor(6) as pool:
            claimed = [
                row
                for rows in pool.map(lambda one: one.claim("s", Quota(3, 8), NODES), servers)
                for row in rows
            ]
        assert len(claimed) == len({row.id for row in claimed}) == 8
        by_user = [sum(row.user_id == user for row in claimed) for user in "012"]
        assert max(by_user) <= 3

    def test_a_queued_job_is_ended_at_once_and_an_active_one_is_asked(self, requests: Requests) -> None:
        first, second = add(requests), add(requests)
        killed = requests.terminate(first.id)
        assert killed is not None
        assert (killed.state, killed.message) == (S.KILLED, "job terminated")
        (active,) = requests.claim("s", Quota(5, 5), NODES)
        assert active.id == second.id
        asked = requests.terminate(second.id)
        assert asked is not None
        assert asked.state is S.PROCESSING
        assert asked.terminate_at is not None
        again = requests.terminate(second.id)
        assert again is not None
        assert again.terminate_at == asked.terminate_at
        moved = requests.move(active, S.SUBMITTED)
        assert moved is not None, "the wish does not fence"
        assert moved.terminate_at is not None
        assert requests.terminate(99) is None

    def test_pages(self, requests: Requests) -> None:
        for n in range(5):
            add(requests, str(n % 2), "s" if n else "t")
        assert [row.id for row in requests.listed(Page(limit=2))] == [5, 4]
        assert [row.id for row in requests.listed(Page(limit=2, before=4))] == [3, 2]
        assert [row.id for row in requests.listed(Page(user_id="1"))] == [4, 2]
        assert [row.id for row in requests.listed(Page(service="t"))] == [1]
        assert requests.listed(Page(state=S.RUNNING)) == []
        assert requests.counts() == {("s", S.QUEUED): 4, ("t", S.QUEUED): 1}

    def test_old_jobs_are_found_by_the_databases_clock(self, requests: Requests, database: Database) -> None:
        row = add(requests)
        assert requests.terminate(row.id) is not None
        assert requests.old(60_000) == []
        database.write(partial(_age, row.id, 61_000))
        (old,) = requests.old(60_000)
        assert requests.forget(0) == 0, "first its files"
        assert requests.move(old, S.CLEANED) is not None
        assert requests.forget(120_000) == 0
        assert requests.forget(60_000) == 1
        assert requests.get(row.id) is None
        assert requests.moves_of(row.id) == []

    def test_directories_without_a_row_are_known(self, requests: Requests) -> None:
        row = add(requests)
        assert requests.states_of([row.directory, "x"]) == {row.directory: row.state}

    def test_a_new_job_is_announced(self, requests: Requests, database: Database) -> None:
        heard = threading.Event()
        database.wakeups.listen(QUEUE_CHANNEL, heard.set)
        add(requests)
        assert heard.wait(10)
