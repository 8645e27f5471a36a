"""Islands: archives that evolve apart and now and then send their best to the next.
With one island there is one archive and no migration.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tenuto.search.archive import Archive, Verdict


class Islands:
    """The archive of the whole search, and one for each island."""

    def __init__(self, make: Callable[[], Archive], count: int, migrate_every: int, migrants: int) -> None:
        self.whole = make()
        self._archives = [make() for _ in range(count)] if count > 1 else [self.whole]
        self._migrate_every = migrate_every
        self._migrants = migrants
        self._told = 0

    def of(self, number: int) -> int:
        """The island of a proposal."""
        return number % len(self._archives)

    def archive(self, island: int) -> Archive:
        """The archive of an island."""
        return self._archives[island % len(self._archives)]

    def add(
        self, island: int, number: int, values: Any, objective: float, measures: Sequence[float]
    ) -> tuple[Verdict, int]:
        """Adds a candidate to its island and to the whole, whose verdict counts."""
        archive = self.archive(island)
        if archive is not self.whole:
            archive.add(number, values, objective, measures)
        return self.whole.add(number, values, objective, measures)

    def count_tell(self) -> None:
        """Counts what was told; after each `migrate_every` the best of each island go to the next."""
        self._told += 1
        if len(self._archives) == 1 or self._told % self._migrate_every:
            return
        leaving = [archive.top(self._migrants) for archive in self._archives]
        for island, elites in enumerate(leaving):
            following = self._archives[(island + 1) % len(self._archives)]
            for elite in elites:
                following.add(elite.number, elite.values, elite.objective, elite.measures)
