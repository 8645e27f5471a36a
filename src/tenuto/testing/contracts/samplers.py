"""What every sampler of searches must do. Subclass, and give the fixtures `sampler` and `space`.

`sampler` is declared as a script would; `space` is a mapping of dimensions that it can vary, or None for a
sampler of objects, with `start` and `vary` given by the fixtures of that name.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from tenuto.search.outcome import Outcome, read_outcome
from tenuto.search.proposals import (
    InFlight,
    Proposal,
    Sampler,
    Setup,
    begin,
    chance,
    definition_of,
    measures_of,
)
from tenuto.search.spaces import Domain, Space

SEED = 7
ASKED = 30
MOST_FLYING = 4


class Course:
    """A search without jobs: asks, evaluates by a fixed rule, and tells in a fixed order."""

    def __init__(self, sampler: Any, domain: Domain) -> None:
        self.declared = sampler
        self.setup = Setup(domain, True, SEED, 4, 2)
        self.sampler: Sampler = begin(sampler, self.setup)
        self.asked: list[Proposal] = []
        self.told: list[tuple[int, Proposal, Outcome | None]] = []
        self.flying: list[InFlight] = []

    def go_on(self, count: int) -> None:
        """Asks for so many more, with several in flight; every fifth candidate fails."""
        order = random.Random(SEED + len(self.asked))
        until = len(self.asked) + count
        while len(self.asked) < until:
            proposal = self.ask() if len(self.flying) < MOST_FLYING else None
            if proposal is not None:
                self.asked.append(proposal)
                self.flying.append(InFlight(len(self.asked), proposal))
            elif self.flying:
                self.tell(self.flying.pop(order.randrange(len(self.flying))))
            else:
                return  # it has nothing more to try

    def ask(self) -> Proposal | None:
        number = len(self.asked) + 1
        return self.sampler.ask(number, chance(SEED, number, 0), list(self.flying))

    def tell(self, one: InFlight) -> None:
        outcome = self.outcome(one)
        self.sampler.tell(one.number, one.proposal, outcome)
        self.told.append((one.number, one.proposal, outcome))

    def outcome(self, one: InFlight) -> Outcome | None:
        if one.number % 5 == 0:
            return None
        rng = random.Random(f"{self.setup.domain.key(one.proposal.values)}")
        names, count = measures_of(self.declared)
        found = [rng.random() for _ in range(count or 0)]
        return read_outcome(Outcome(rng.random(), found), names, count)


class SamplerContract:
    """The promises of docs/search.md: equal logs give equal proposals, whatever process asks."""

    @pytest.fixture
    def domain(self, space: Mapping[str, Any]) -> Domain:
        return Space(space)

    def test_what_it_proposes_can_be_stored(self, sampler: Any, domain: Domain) -> None:
        course = Course(sampler, domain)
        course.go_on(ASKED)
        assert course.asked
        for proposal in course.asked:
            assert isinstance(proposal, Proposal)
            if isinstance(domain, Space):
                assert set(proposal.values) == set(domain.dimensions)
                assert json.loads(json.dumps(proposal.values)) == proposal.values
            assert proposal.parent is None or 0 < proposal.parent <= ASKED

    def test_the_same_log_gives_the_same_proposals(self, sampler: Any, domain: Domain) -> None:
        first, second = Course(sampler, domain), Course(sampler, domain)
        first.go_on(ASKED)
        second.go_on(ASKED)
        assert first.asked == second.asked

    def test_a_sampler_that_is_told_the_log_again_goes_on_equally(self, sampler: Any, domain: Domain) -> None:
        course = Course(sampler, domain)
        course.go_on(ASKED)
        again = begin(sampler, course.setup)
        for number, proposal, outcome in course.told:
            again.tell(number, proposal, outcome)
        number = len(course.asked) + 1
        flying = list(course.flying)
        expected = course.sampler.ask(number, chance(SEED, number, 0), flying)
        assert again.ask(number, chance(SEED, number, 0), flying) == expected

    def test_asking_twice_changes_nothing(self, sampler: Any, domain: Domain) -> None:
        course = Course(sampler, domain)
        course.go_on(ASKED // 2)
        assert course.ask() == course.ask()

    def test_two_searches_know_nothing_of_each_other(self, sampler: Any, domain: Domain) -> None:
        course, other = Course(sampler, domain), Course(sampler, domain)
        course.go_on(ASKED)
        other.go_on(1)
        assert other.asked == course.asked[:1]

    def test_a_search_in_which_everything_fails_goes_on(self, sampler: Any, domain: Domain) -> None:
        begun = begin(sampler, Setup(domain, True, SEED, 4, 2))
        for number in range(1, 20):
            proposal = begun.ask(number, chance(SEED, number, 0), [])
            if proposal is None:
                break
            verdict, cell = begun.tell(number, proposal, None)
            assert (verdict.value, cell) == ("failed", None)

    def test_its_definition_is_plain_data_and_always_the_same(self, sampler: Any, domain: Domain) -> None:
        found = definition_of(sampler)
        assert json.loads(json.dumps(found)) == json.loads(json.dumps(definition_of(sampler)))
        assert found.get("kind")
