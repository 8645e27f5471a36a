"""Which of the jobs that wait for tokens may start: the rule by itself, on values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from tenuto.scheduler.tokens import MOST_OVERTAKINGS, Decision, Picks, decide
from tenuto.workspace.token_files import Need, Ticket, TokenState

ME, OTHER = 0, 1


def ticket(number: int, *needs: tuple[str, int], scheduler: int = ME, **more: object) -> Ticket:
    return Ticket(number, scheduler, tuple(Need(name, amount) for name, amount in needs), **more)  # type: ignore[arg-type]


class Grants(dict[int, Picks]):
    """Takes whatever is granted to `ME`."""

    def claim(self, ticket: Ticket, picks: Picks) -> bool | None:
        if ticket.scheduler != ME:
            return None
        self[ticket.number] = picks
        return True


def granted(tickets: Sequence[Ticket], free: Mapping[str, Sequence[int]]) -> tuple[Grants, Decision]:
    grants = Grants()
    decision = decide(tickets, free, ignored=lambda t: t.parked, claim=grants.claim)
    return grants, decision


def test_the_first_ticket_gets_the_units_of_the_lowest_numbers() -> None:
    grants, decision = granted([ticket(1, ("a", 2)), ticket(2, ("a", 2))], {"a": [0, 2, 3]})
    assert grants == {1: {"a": (0, 2)}}
    assert [t.number for t in decision.tickets] == [2]


def test_a_ticket_that_is_short_takes_nothing_and_delays_no_other() -> None:
    grants, decision = granted(
        [ticket(1, ("a", 3)), ticket(2, ("a", 1)), ticket(3, ("b", 1))], {"a": [0, 1], "b": [0]}
    )
    assert set(grants) == {2, 3}
    assert decision.tickets[0].overtaken == {"a": 1}


def test_all_or_none_of_several_tokens() -> None:
    grants, decision = granted([ticket(1, ("a", 1), ("b", 1)), ticket(2, ("a", 1))], {"a": [0], "b": []})
    assert grants == {2: {"a": (0,)}}
    assert decision.tickets[0].overtaken == {"a": 1}


def test_a_ticket_of_another_scheduler_that_can_start_is_waited_for() -> None:
    tickets = [ticket(1, ("a", 1), scheduler=OTHER), ticket(2, ("a", 1))]
    grants, decision = granted(tickets, {"a": [0]})
    assert not grants
    assert decision.able == {1}
    grants, _ = granted(tickets, {"a": [0, 1]})
    assert grants == {2: {"a": (1,)}}


def test_no_ticket_waits_for_a_parked_one_and_to_pass_it_counts_for_nothing() -> None:
    grants, decision = granted(
        [ticket(1, ("a", 1), scheduler=OTHER, parked=True), ticket(2, ("a", 1))], {"a": [0]}
    )
    assert set(grants) == {2}
    assert decision.tickets[0].overtaken == {}


def test_after_ten_overtakings_what_falls_free_is_kept() -> None:
    large = ticket(1, ("a", 3), overtaken={"a": MOST_OVERTAKINGS - 1})
    grants, decision = granted([large, ticket(2, ("a", 1)), ticket(3, ("a", 1))], {"a": [0, 1]})
    assert set(grants) == {2}
    large = decision.tickets[0]
    assert large.overtaken == {"a": MOST_OVERTAKINGS}
    assert not granted([large, ticket(3, ("a", 1))], {"a": [1, 2]})[0]
    assert set(granted([large, ticket(3, ("a", 1))], {"a": [0, 1, 2]})[0]) == {1}


def test_a_ticket_short_of_a_token_that_no_other_takes_from_it_closes_no_other() -> None:
    both = ticket(1, ("a", 1), ("b", 1), overtaken={"a": MOST_OVERTAKINGS})
    grants, _ = granted([both, ticket(2, ("a", 1))], {"a": [0], "b": []})
    assert set(grants) == {2}
    both = both._replace(overtaken={"a": MOST_OVERTAKINGS, "b": MOST_OVERTAKINGS})
    assert not granted([both, ticket(2, ("a", 1))], {"a": [0], "b": []})[0]


def test_only_units_that_will_do_are_picked_and_only_their_loss_is_an_overtaking() -> None:
    bound = Ticket(1, ME, (Need("gpu", 2, (2, 3)),))
    grants, decision = granted([bound, ticket(2, ("gpu", 1))], {"gpu": [0, 1, 3]})
    assert grants == {2: {"gpu": (0,)}}
    assert decision.tickets[0].overtaken == {}
    assert granted([bound], {"gpu": [0, 2, 3]})[0] == {1: {"gpu": (2, 3)}}


def test_a_smaller_capacity_takes_effect_as_units_fall_free() -> None:
    assert TokenState(4, frozenset({2, 3})).free() == [0, 1]
    assert TokenState(2, frozenset({2, 3})).free() == []
    assert TokenState(2, frozenset({3})).free() == [0]
    assert TokenState(6, frozenset({2, 3})).free() == [0, 1, 4, 5]
    assert TokenState(None, frozenset()).free() == []


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 40))]
)
def test_no_request_is_overtaken_more_than_ten_times(seed: int) -> None:
    """Requests come and holders leave at random, and each scheduler looks in turn."""
    random = Random(seed)
    capacity = random.randint(1, 4)
    queue: tuple[Ticket, ...] = ()
    running: dict[int, tuple[int, ...]] = {}
    suffered: Counter[int] = Counter()
    for number in range(1, 400):
        looking = random.choice([ME, OTHER])
        taken: dict[int, tuple[int, ...]] = {}

        def claim(t: Ticket, picks: Picks) -> bool | None:
            if t.scheduler != looking:  # noqa: B023  called at once
                return None
            taken[t.number] = picks["a"]  # noqa: B023
            return True

        if len(queue) < 30:
            amount = random.choice([1, 1, 1, capacity])
            queue = (*queue, ticket(number, ("a", amount), scheduler=random.choice([ME, OTHER])))
        if running and random.random() < 0.7:
            del running[random.choice(sorted(running))]
        held = {unit for units in running.values() for unit in units}
        free = [unit for unit in range(capacity) if unit not in held]
        short = {t.number for t in queue if t.needs[0].amount > len(free)}
        queue = decide(queue, {"a": free}, ignored=lambda t: False, claim=claim).tickets
        for started in taken:
            suffered.update(t.number for t in queue if t.number < started and t.number in short)
        given_out = [unit for units in taken.values() for unit in units]
        assert len(given_out) == len(set(given_out))
        assert set(given_out) <= set(free)
        running.update(taken)
    assert max(suffered.values(), default=0) <= MOST_OVERTAKINGS
    assert capacity == 1 or max(suffered.values(), default=0) > 0
