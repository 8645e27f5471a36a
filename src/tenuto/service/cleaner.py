"""The cleaner: removes the files of jobs that ended long ago, forgets their rows later, and sweeps.
Trusts the database's clock, and rests when that jumped.
"""

from __future__ import annotations

from tenuto.lifecycle.service import ServiceState
from tenuto.service.decisions import CleanerRest
from tenuto.service.log import log
from tenuto.service.parts import Parts
from tenuto.service.stage import Stage

ORPHAN_AGE_S = 86400.0
"""Age at which a directory without a row is removed, where another server may be about to add the row."""
AT_ONCE = 100
FORGOTTEN = 1000
SWEEP_EVERY_S = 86400.0


class Cleaner:
    """The stage that cleans."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # At the start the machine's own clock is what the database's is compared with.
        self._rest = CleanerRest(parts.clock.now().timestamp(), parts.clock.monotonic())
        self._sweep_at = 0.0
        """On the monotonic clock."""
        self.stage = Stage("cleaner", self.round, parts.settings.clean_every_s, parts.metrics.stage_failed)

    async def round(self) -> None:
        """Removes what is old, unless the clock cannot be trusted."""
        settings, clock = self._parts.settings, self._parts.clock
        # The database's clock says how old a job is, and may be another machine's.
        wall, now = await self._parts.sql(self._parts.requests.now) / 1000, clock.monotonic()
        self._rest, ahead = self._rest.round(wall, now, settings.max_age_s)
        if ahead:
            log("clock_jumped", 30, ahead_s=round(ahead))
        if self._rest.is_resting(now):
            return
        while await self._clean() == AT_ONCE:
            pass
        forget, age_ms = self._parts.requests.forget, int(settings.forget_after_s * 1000)
        while await self._parts.sql(forget, age_ms, FORGOTTEN) == FORGOTTEN:
            pass
        if now >= self._sweep_at:
            await self.sweep(alone=False)

    async def _clean(self) -> int:
        parts = self._parts
        max_age_ms = int(parts.settings.max_age_s * 1000)
        rows = await parts.sql(parts.requests.old, max_age_ms, AT_ONCE)
        cleaned = 0
        for row in rows:
            # The disk has a clock of its own: the database's may have been wrong when the job ended.
            if await parts.files(self._is_young, row.directory):
                continue
            if await parts.move(row, ServiceState.CLEANED) is not None:
                await parts.files(parts.places.discard, row.directory)
                cleaned += 1
        if cleaned:
            log("cleaned", jobs=cleaned)
        return cleaned

    def _is_young(self, directory: str) -> bool:
        age_s = self._parts.places.age_s(directory, self._parts.clock.now().timestamp())
        return age_s is not None and age_s < self._parts.settings.max_age_s

    async def sweep(self, *, alone: bool) -> None:
        """Removes what killed servers left: directories without a job or of a cleaned one, parts of results.

        ``alone``: no upload is under way, so that no directory can be about to get its row. A directory that
        has had a row is kept like a result: the database was restored, and may be once more.
        """
        parts, kept = self._parts, 0
        self._sweep_at = parts.clock.monotonic() + SWEEP_EVERY_S
        names = await parts.files(parts.places.names)
        for start in range(0, len(names), AT_ONCE):
            some = names[start : start + AT_ONCE]
            states = await parts.sql(parts.requests.states_of, some)
            now = parts.clock.now().timestamp()
            for name in some:
                state = states.get(name)
                if state is None and (age_s := parts.places.age_s(name, now)) is not None:
                    was_accepted = parts.places.was_accepted(name)
                    least_s = parts.settings.max_age_s if was_accepted else 0.0 if alone else ORPHAN_AGE_S
                    if age_s < least_s:
                        kept += was_accepted
                        continue
                if state is None or state is ServiceState.CLEANED:
                    log("swept", 30, directory=name, why="cleaned before" if state else "of no job")
                    await parts.files(parts.places.discard, name)
                elif state.is_final:
                    await parts.files(parts.places.job(name).tidy)
        if kept:
            log("kept", 30, directories=kept, for_s=round(parts.settings.max_age_s))
