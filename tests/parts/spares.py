"""A launcher that starts every task from a spare, for suites that put spares to the test.
Each spare begins with the order for its job, which waits until everything is imported.
"""

from __future__ import annotations

import asyncio

from tenuto.launchers.forking_launcher import DirectLauncher
from tenuto.launchers.local import LocalProcess
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.warm.launcher import WarmLauncher

_LOOK_AGAIN_S = 0.005


class SpareLauncher(WarmLauncher):
    """Forks nothing."""

    async def start(self, order: StartOrder) -> LocalProcess:
        if self._is_closed:
            return await DirectLauncher.start(self, order)
        environment = self._surroundings.now()
        needs = self._needs(order, environment)
        while not any(spare.size is not None for spare in self._spares.of(needs)):
            assert not self._spares.is_unfit(needs), "the modules cannot be imported ahead of time"
            self._spares.prepare(needs, environment, 1)
            await asyncio.sleep(_LOOK_AGAIN_S)
        process = self._spares.start(self.name, needs, order, environment, "is to start from a spare")
        return process or await DirectLauncher.start(self, order)
