"""The warm launcher: forks runners from parents that have imported their tasks' modules already.
What must not be forked gets a fresh interpreter, and that is said once.
"""

from __future__ import annotations

from tenuto.launchers.forking import ForkingLauncher
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.warm.needs import Environment, Needs, needs_of


class WarmLauncher(ForkingLauncher):
    """Starts each runner, and its payload, by forks where that is safe."""

    name = "warm"

    def _needs(self, order: StartOrder, environment: Environment) -> Needs:
        instructions = Instructions.of(order.launch)
        return needs_of(self._machine.files, order.paths, instructions, environment, order.params)
