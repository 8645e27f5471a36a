"""Owns the exploration of a model: every reachable state, breadth first, so that a trace is a shortest one.
Knows no protocol; a model says what can happen next and what must never be.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Step(NamedTuple, Generic[S]):
    """Something that can happen in a state."""

    label: str
    after: S
    is_fault: bool = False
    """A crash, a kill, a power loss: it may happen, but nothing may depend on it."""


class Model(Protocol[S]):
    """A protocol, reduced to what it decides."""

    name: str

    def initial(self) -> S: ...

    def steps(self, state: S) -> Iterable[Step[S]]:
        """All that can happen next."""
        ...

    def broken(self, state: S) -> str | None:
        """Which promise this state breaks."""
        ...

    def at_rest(self, state: S) -> bool:
        """Whether everything has come to a good end here."""
        ...

    def show(self, state: S) -> str:
        """The state in one line, for a person."""
        ...


@dataclass(frozen=True, slots=True)
class Counterexample:
    """How a promise is broken, in as few steps as possible."""

    what: str
    trace: tuple[tuple[str, str], ...]
    """What happened, and the state after it."""

    def text(self) -> str:
        width = max(len(label) for label, _ in self.trace)
        lines = [f"{n:3} {label:{width}}  {state}" for n, (label, state) in enumerate(self.trace)]
        return "\n".join([*lines, f"    => {self.what}"])


@dataclass(frozen=True, slots=True)
class Checked:
    """What an exploration saw."""

    states: int
    steps: int
    depth: int
    """The length of the longest of the shortest ways to a state."""
    found: Counterexample | None = None


class TooManyStates(Exception):
    """The model is larger than it was meant to be; a part of it explored would prove nothing."""


STUCK = "from here, without further faults, no good end can be reached any more"


def check(model: Model[S], *, most: int = 20_000_000) -> Checked:
    """Explore the whole model, or as much as is needed to find a broken promise."""
    first = model.initial()
    numbers: dict[S, int] = {first: 0}
    states: list[S] = [first]
    parents = array("l", [-1])
    labels: list[str] = ["the beginning"]
    sources, targets = array("l"), array("l")
    steps = depth = 0
    level_end = 1
    at = 0
    if (what := model.broken(first)) is not None:
        return Checked(1, 0, 0, _traced(model, states, parents, labels, 0, what))
    while at < len(states):
        if at == level_end:
            depth += 1
            level_end = len(states)
        for label, after, is_fault in model.steps(states[at]):
            steps += 1
            number = numbers.get(after)
            if number is None:
                number = len(states)
                numbers[after] = number
                states.append(after)
                parents.append(at)
                labels.append(label)
                if (what := model.broken(after)) is not None:
                    found = _traced(model, states, parents, labels, number, what)
                    return Checked(len(states), steps, depth + 1, found)
            if not is_fault and number != at:
                sources.append(at)
                targets.append(number)
        at += 1
        if len(states) > most:
            raise TooManyStates(f"{model.name} has more than {most:,} states")
    stuck = _first_stuck(model, states, sources, targets)
    if stuck is None:
        return Checked(len(states), steps, depth)
    return Checked(len(states), steps, depth, _traced(model, states, parents, labels, stuck, STUCK))


def _first_stuck(model: Model[S], states: list[S], sources: array[int], targets: array[int]) -> int | None:
    """The first state from which no state at rest can be reached by steps that are no faults."""
    begins = array("l", bytes((len(states) + 1) * array("l").itemsize))
    for target in targets:
        begins[target + 1] += 1
    for number in range(len(states)):
        begins[number + 1] += begins[number]
    free = array("l", begins)
    before = array("l", bytes(len(targets) * array("l").itemsize))
    for source, target in zip(sources, targets, strict=True):
        before[free[target]] = source
        free[target] += 1
    reaches = bytearray(len(states))
    waiting = [number for number, state in enumerate(states) if model.at_rest(state)]
    for number in waiting:
        reaches[number] = 1
    while waiting:
        number = waiting.pop()
        for index in range(begins[number], begins[number + 1]):
            source = before[index]
            if not reaches[source]:
                reaches[source] = 1
                waiting.append(source)
    stuck = reaches.find(0)
    return None if stuck < 0 else stuck


def _traced(
    model: Model[S], states: list[S], parents: array[int], labels: list[str], last: int, what: str
) -> Counterexample:
    way = [last]
    while parents[way[-1]] >= 0:
        way.append(parents[way[-1]])
    trace = tuple((labels[number], model.show(states[number])) for number in reversed(way))
    return Counterexample(what, trace)
