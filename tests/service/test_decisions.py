"""Whose job is next, which node gets it, and when a failure is tried again."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.service.decisions import (
    ActiveJob,
    Breaker,
    CleanerRest,
    QueuedUser,
    QueueView,
    Quota,
    ServerBeats,
    UserQueue,
    back_off_s,
    next_jobs,
    waiting_message,
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[UserQueue], Quota, int]:
    numbers = iter(range(1, 1000))
    queues = [
        UserQueue(
            f"user{n}",
            draw(st.integers(0, 4)),
            draw(st.integers(0, 50)),
            tuple(next(numbers) for _ in range(draw(st.integers(0, 8)))),
        )
        for n in range(draw(st.integers(0, 6)))
    ]
    quota = Quota(draw(st.integers(0, 5)), draw(st.integers(0, 12)))
    others = draw(st.integers(0, 3))
    return queues, quota, sum(queue.active for queue in queues) + others


@given(situations(), st.integers(0, 20))
def test_quotas_are_never_exceeded(situation: tuple[list[UserQueue], Quota, int], most: int) -> None:
    queues, quota, active = situation
    chosen = next_jobs(queues, quota, active, most)
    owner = {job: queue for queue in queues for job in queue.jobs}
    assert len(set(chosen)) == len(chosen) <= most
    assert not chosen or active + len(chosen) <= quota.max_runs
    for user, count in Counter(owner[job].user for job in chosen).items():
        queue = next(queue for queue in queues if queue.user == user)
        assert queue.active + count <= quota.runs_per_user
        mine = [job for job in chosen if owner[job].user == user]
        assert mine == list(queue.jobs[: len(mine)]), "each user's oldest first"


@given(situations())
def test_no_place_stays_free_while_a_job_may_have_it(situation: tuple[list[UserQueue], Quota, int]) -> None:
    queues, quota, active = situation
    chosen = next_jobs(queues, quota, active, 1000)
    possible = sum(max(0, min(quota.runs_per_user - queue.active, len(queue.jobs))) for queue in queues)
    assert len(chosen) == max(0, min(possible, quota.max_runs - active))


@given(situations())
def test_places_go_to_the_users_with_the_fewest(situation: tuple[list[UserQueue], Quota, int]) -> None:
    queues, quota, active = situation
    chosen = set(next_jobs(queues, quota, active, 1000))
    has = {queue.user: queue.active + len(chosen & set(queue.jobs)) for queue in queues}
    for left_out in queues:
        if set(left_out.jobs) <= chosen or has[left_out.user] >= quota.runs_per_user:
            continue
        for served in queues:
            if chosen & set(served.jobs):
                assert has[served.user] <= has[left_out.user] + 1


def test_a_user_who_comes_later_waits_for_one_job_of_the_other_at_most() -> None:
    """One place, a thousand queued jobs of one user; the other's first job is the next but one."""
    first, second, turn = list(range(1, 1001)), [5000, 5001, 5002], 1
    turns = {"first": 1, "second": 0}
    served = []
    for _ in range(6):
        queues = [
            UserQueue("first", 0, turns["first"], tuple(first)),
            UserQueue("second", 0, turns["second"], tuple(second)),
        ]
        (job,) = next_jobs(queues, Quota(5, 1), 0, 8)
        turn += 1
        user, mine = ("second", second) if job >= 5000 else ("first", first)
        mine.remove(job)
        turns[user] = turn
        served.append(user)
    assert served == ["second", "first", "second", "first", "second", "first"]


def _active(users: str, running: int) -> list[ActiveJob]:
    """Jobs of these users, of which the first ones run."""
    return [ActiveJob(user, 0 if n < running else None) for n, user in enumerate(users)]


def test_a_waiting_job_says_what_it_waits_for() -> None:
    quota = Quota(2, 3)
    assert waiting_message("1", _active("11", 2), quota, "dock") == "user 1 has 2 of 2 jobs running"
    assert waiting_message("1", _active("122", 3), quota, "dock") == "service dock has 3 of 3 jobs running"
    assert waiting_message("1", _active("12", 0), quota, "dock") == "waits to be sent to a node"
    said = waiting_message("1", _active("11", 1), quota, "dock")
    assert said == "user 1 has 2 of 2 jobs at nodes, 1 of them running"


@pytest.mark.parametrize(
    ("slots", "in_hand", "said"),
    [
        ({}, {}, "waits for a node: no node of the service answers"),
        ({"a": 0, "b": 0}, {}, "waits for a node: none takes jobs now (a, b)"),
        ({"a": 2}, {"a": 4}, "waits for a place at a node: they have 4 jobs in hand, of all services"),
        ({"a": 2, "b": 0}, {"a": 3}, "waits to be sent to a node"),
    ],
)
def test_a_waiting_job_says_how_its_nodes_are(
    slots: dict[str, int], in_hand: dict[str, int], said: str
) -> None:
    assert waiting_message("1", [], Quota(2, 3), "dock", slots, in_hand) == said


def test_a_breaker_opens_after_three_failures_and_waits_longer_each_time() -> None:
    breaker, now, rests = Breaker(), 100.0, []
    for _ in range(2):
        breaker = breaker.failed(now)
        assert not breaker.is_open(now)
    for _ in range(8):
        breaker = breaker.failed(now)
        assert breaker.is_open(now)
        rests.append(breaker.closed_at - now)
        now = breaker.closed_at
        assert not breaker.is_open(now), "it is tried again then"
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]
    assert breaker.answered() == Breaker()


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_back_off_grows_and_is_bounded(tries: int, chance: float) -> None:
    assert 0.25 <= back_off_s(tries, chance) <= 60
    assert back_off_s(tries + 1, chance) >= back_off_s(tries, chance)


def test_the_cleaner_rests_for_as_long_as_the_clock_jumped() -> None:
    rest, ahead = CleanerRest(1000.0, 10.0).round(1060.0, 70.0, 3600)
    assert ahead == 0
    assert not rest.is_resting(70.0)
    rest, ahead = rest.round(1060.0 + 60 + 600, 130.0, 3600)
    assert ahead == 600
    assert rest.is_resting(130.0 + 599)
    assert not rest.is_resting(130.0 + 600)
    rest, _ = rest.round(10_000_000.0, 190.0, 3600)
    assert not rest.is_resting(190.0 + 3600), "never longer than files are kept"
    backwards, ahead = rest.round(0.0, 250.0, 3600)
    assert ahead == 0
    assert backwards.until == rest.until


def test_a_server_is_still_while_it_shows_the_same_beat_by_our_own_clock() -> None:
    beats = ServerBeats()
    beats.look({"a": 100_000, "b": 100_000}, 50.0)
    beats.look({"a": 13_600, "b": 100_000}, 55.0)  # the database's clock was a day back when a was seen
    assert not beats.is_still("a", 60.0, 10.0)
    assert beats.is_still("b", 60.0, 10.0)
    beats.look({"a": 13_600}, 65.0)
    assert beats.is_still("a", 65.0, 10.0)


@given(situations())
def test_the_place_of_a_job_is_that_in_which_it_is_claimed(
    situation: tuple[list[UserQueue], Quota, int],
) -> None:
    queues = [queue for queue in situation[0] if queue.jobs]
    queued = {queue.user: QueuedUser(len(queue.jobs), queue.jobs[0], queue.turn) for queue in queues}
    active = [ActiveJob(queue.user, None) for queue in queues for _ in range(queue.active)]
    order = next_jobs(queues, Quota(10_000, 10_000), 0, 10_000)
    for queue in queues:
        for before, job in enumerate(queue.jobs):
            line = QueueView(queue.user, before, queued, active, (), 0)
            assert order[line.position - 1] == job


def test_a_start_is_expected_by_what_ran_lately() -> None:
    queued = {"a": QueuedUser(5, 10, 1), "b": QueuedUser(1, 20, 0)}
    running = [ActiveJob("a", 4_000), ActiveJob("a", 9_000)]
    lately = (9_000, 10_000, 11_000, 1, 90_000)
    line = QueueView("b", 0, queued, running, lately, 10_000)
    assert line.position == 1
    assert line.expected_start(Quota(5, 10), 2) == 14_000, "the first of the two ends then"
    assert line.expected_start(Quota(5, 10), 3) == 10_000, "a slot is free"
    late = QueueView("a", 4, queued, running, lately, 10_000)
    assert late.position == 6
    assert late.expected_start(Quota(5, 10), 2) == 39_000, "in the third round"
    assert late.expected_start(Quota(1, 10), 100) == 59_000, "one after the other"
    at_node = line._replace(active=[ActiveJob("a", 4_000), ActiveJob("a", None)])
    assert at_node.expected_start(Quota(5, 10), 1) == 24_000, "after the one that waits at the node"
    assert line.expected_start(Quota(5, 10), 0) is None, "no node is well"
    assert line._replace(runs_ms=()).expected_start(Quota(5, 10), 2) is None
