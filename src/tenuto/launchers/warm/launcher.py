"""The warm launcher: forks runners from parents that have imported their tasks' modules already.
A job that must not be forked gets a fresh interpreter, a spare if ready, and that is said once.
"""

from __future__ import annotations

import weakref
from functools import cached_property

from tenuto.launchers.forking_launcher import ForkingLauncher
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.local import LocalProcess
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.warm.needs import Needs, ProcessVariables, needs_of
from tenuto.launchers.warm.spares import Spares


class WarmLauncher(ForkingLauncher):
    """Starts each runner, and its payload, by forks where that is safe."""

    name = "warm"
    _behind = 0
    """How many jobs wait, as the scheduler last said."""
    _not_forked: Needs | None = None
    """Of the last job that could have started from a spare: the next job is likely to have the same."""

    @cached_property
    def _spares(self) -> Spares:
        spares = Spares(self._machine, self._python, slots=self.slots, memory_limit=self._memory_limit)
        weakref.finalize(self, spares.close)  # for a launcher that is never closed
        return spares

    async def start(self, order: StartOrder) -> LocalProcess:
        self._behind = order.behind
        return await super().start(order)

    def expect(self, behind: int) -> None:
        """Begin a spare for jobs that were submitted after the last one started; so many wait."""
        self._behind = behind
        needs = self._not_forked
        if needs is not None and len(self._spares.of(needs)) < behind:
            self._spares.prepare(needs, self._surroundings.now(), behind)

    def close(self) -> None:
        self._not_forked = None
        self._spares.close()
        super().close()

    def _needs(self, order: StartOrder, environment: ProcessVariables) -> Needs:
        instructions = Instructions.of(order.launch)
        return needs_of(self._machine.files, order.paths, instructions, environment, order.params)

    def _started_ahead(
        self, needs: Needs, order: StartOrder, environment: ProcessVariables, why_fresh: str
    ) -> LocalProcess | None:
        started = self._spares.start(self.name, needs, order, environment, why_fresh)
        self._spares.prepare(needs, environment, self._behind)
        self._not_forked = needs
        return started
