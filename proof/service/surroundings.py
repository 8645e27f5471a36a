"""Owns what surrounds a simulated server: the database and its clock, wrong clocks, calls without threads.
Decides nothing; `simulation` does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import event

from tenuto.database import Database, migrate
from tenuto.service.data_paths import StoredJobPaths
from tenuto.service.tables import MIGRATIONS
from tenuto.testing.clock import FakeClock

DAY_S = 86400.0
_JULIAN_1970 = 2440587.5


class DatabaseClock:
    """The clock of the database, which jumps."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.ahead_s = 0.0

    def julian_day(self, _: str) -> float:
        return _JULIAN_1970 + (self._clock.now().timestamp() + self.ahead_s) / DAY_S


class SharedDatabase(Database):
    """A SQLite file that servers share as if it were PostgreSQL, on a clock of its own."""

    def __init__(self, path: Path, clock: DatabaseClock) -> None:
        super().__init__(path)
        event.listen(
            self._engine.pool,
            "connect",
            lambda connection, record: connection.create_function("julianday", 1, clock.julian_day),
        )
        migrate(self, MIGRATIONS)
        self.is_sqlite = False


class SkewedClock:
    """A machine whose clock is wrong; its monotonic one is right."""

    def __init__(self, clock: FakeClock, ahead_s: float) -> None:
        self._clock = clock
        self._ahead = timedelta(seconds=ahead_s)

    def now(self) -> datetime:
        return self._clock.now() + self._ahead

    def uptime(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        return self._clock.monotonic()


class Calls:
    """The threads of one server, without threads: a call is made in the loop; to the dead none returns."""

    def __init__(self, chance: random.Random, stamp: Callable[[str], None]) -> None:
        """`stamp` gives a directory that was changed the time of the virtual clock."""
        self._chance = chance
        self._stamp = stamp
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.is_dead = False
        self.last_frozen = -DAY_S
        """Until when it stood still, on the virtual clock."""

    def freeze(self, seconds: float) -> None:
        """Stands still, as after SIGSTOP."""
        loop = asyncio.get_running_loop()
        self.thawed.clear()
        self.last_frozen = max(self.last_frozen, loop.time() + seconds)
        loop.call_later(seconds, self.thawed.set)

    async def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(self._chance.random() * 0.01)
        await self._alive()
        result = function(*arguments)
        place = getattr(function, "__self__", None)
        if isinstance(place, StoredJobPaths):
            self._stamp(place.directory)
        await asyncio.sleep(0)
        await self._alive()
        return result

    async def _alive(self) -> None:
        await self.thawed.wait()
        if self.is_dead:
            await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Nothing to close."""
