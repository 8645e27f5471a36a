"""A search of objects: not numbers in a space but configs, which two functions make and change.

    tenuto evolve objects.py

A travelling salesman visits twelve towns. The archive keeps the shortest tour for each number of crossings
between the two halves of the country, and for each length of the first leg.
"""

import itertools
import math
import random
from pathlib import Path

from tenuto import Param, Task
from tenuto.search import Evolution, MapElites, Outcome

TOTAL = 300
TOWNS = [(math.cos(1.7 * n) * (n % 5 + 1), math.sin(2.3 * n) * (n % 7 + 1)) for n in range(12)]


class Tour(Task):
    """The towns in the order in which they are visited."""

    order: Param[list[int]]

    def execute(self) -> Outcome:
        places = [TOWNS[town] for town in self.order]
        legs = [math.dist(a, b) for a, b in zip(places, places[1:] + places[:1], strict=True)]
        crossings = sum((a[0] < 0) != (b[0] < 0) for a, b in itertools.pairwise(places))
        return Outcome(objective=-sum(legs), measures=[crossings, legs[0]])


def make(rng: random.Random) -> Tour:
    """A tour at random; chance comes from `rng` alone, so that a search can be repeated."""
    return Tour.C(order=rng.sample(range(len(TOWNS)), len(TOWNS)))


def change(parent: Tour, inspirations: list[Tour], rng: random.Random) -> Tour:
    """The parent's tour, with a part of it turned around."""
    order = list(parent.order)
    begin, end = sorted(rng.sample(range(len(order) + 1), 2))
    order[begin:end] = reversed(order[begin:end])
    return Tour.C(order=order)


if __name__ == "__main__":
    result = Evolution(
        "tour",
        Tour,
        start=make,
        vary=change,
        sampler=MapElites(cells=[12, 10], ranges=[(0, 12), (0, 14)]),
        max_total_jobs=TOTAL,
        workdir=Path(__file__).parent / "workspace",
    ).run()
    if result.best is not None:
        print(f"the shortest tour has length {-result.best.objective:.2f}")
